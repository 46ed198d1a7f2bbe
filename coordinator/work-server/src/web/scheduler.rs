//! The scheduler RPC over HTTP.
//!
//! **Who asks comes first.** The account key is read from the first bytes of the body, where every client
//! puts it, and looked up before anything else is taken in. Whoever has none costs a look-up and some
//! kilobytes. What an account holds is bounded ([`Admission`](super::admission::Admission)), what all of them
//! hold together by budgets: for the beginnings of bodies, for the rest of long ones, and for what reading
//! them takes. Whoever sends much, or sends it slowly, keeps out none but others who send much.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes as Chunk;
use fallow_domain::AccountKey;
use futures_util::StreamExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::admission::Place;
use super::upload::is_due;
use super::{Budgets, Failure, Holder, Web, blocking, known, xml};
use crate::connections::ConnectionHandle;
use crate::project::Project;
use crate::records::Account;
use crate::server::Via;

/// The largest request, and what an account may have on its way. One with a thousand reported jobs and their
/// standard error is about as large.
const BODY_MAX: usize = 64 << 20;
/// How long a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long nothing of it may come.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Where the account key must be: clients begin with it.
const HEAD_MAX: usize = 8 << 10;
/// How long that may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// What is still read of a refused request, at most this much for this long: a client that is still sending
/// would see a broken connection instead of the refusal.
const REFUSED_BYTES: usize = 256 << 10;
const REFUSED_TIME: Duration = Duration::from_secs(2);
/// Memory that an element takes when it is read, beside its text: the largest records have ten elements for
/// each kilobyte that they take.
const ELEMENT_BYTES: usize = 256;

/// Whatever the content type says: clients of one version say this, of another that.
pub(super) async fn rpc(
    State(web): State<Web>,
    Path(project): Path<String>,
    connection: Option<Extension<ConnectionHandle>>,
    via: Option<Extension<Via>>,
    body: Body,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let url = web.url(&project, via);
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(Failure::TooLarge);
    }
    let mut arriving = Arriving { stream: body.into_data_stream(), received: Vec::new() };
    let key = timeout(HEAD_TIMEOUT, arriving.key()).await.map_err(|_| Failure::Timeout)??;
    let account = match key.clone() {
        Some(key) => account(&project, key).await?,
        None => None,
    };
    let Some(account) = account else {
        let refusal = if key.is_some() { project.refuse_key() } else { project.refuse_without_key() };
        arriving.drop_rest().await;
        return Ok(xml(refusal));
    };
    let Some(place) = web.admission.enter(&project.name, &account) else {
        arriving.drop_rest().await;
        return Err(Failure::Busy);
    };
    known(connection, &project.name, Holder::Account(account.id));
    let memory = Memory { budgets: web.bodies.clone(), held: [None, None, None] };
    let received = timeout(BODY_TIMEOUT, arriving.rest(place, memory)).await;
    let whole = received.map_err(|_| Failure::Timeout)??;
    let reading = web.reading_memory.clone().acquire_many_owned(whole.cost_kib()?).await;
    let reading = reading.map_err(|_| Failure::Ours)?;
    let shared = web.shared().clone();
    let answer = blocking(move || {
        let (reply, to_compare) = project.scheduler_rpc(&whole.body, &account, &url, shared.now())?;
        if to_compare {
            shared.wakeup.notify();
        }
        drop((whole, reading));
        Ok::<_, crate::ProjectError>(reply)
    })
    .await?;
    Ok(xml(answer?))
}

async fn account(project: &Arc<Project>, key: AccountKey) -> Result<Option<Account>, Failure> {
    let project = project.clone();
    Ok(blocking(move || project.account(&key)).await??)
}

/// A request on its way.
struct Arriving {
    stream: BodyDataStream,
    received: Vec<u8>,
}

fn add(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

/// A request that is there, with the places that it takes.
struct Whole {
    body: Vec<u8>,
    _memory: Memory,
    _place: Place,
}

/// Memory that a body takes: of each budget so much, as far as it is long enough.
struct Memory {
    budgets: Budgets,
    held: [Option<OwnedSemaphorePermit>; 3],
}

impl Memory {
    /// Takes what a body of this length needs. Nobody who holds something waits for more: two of them might
    /// wait for each other.
    async fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let (mut from, wants) = (0, bytes.div_ceil(1_024));
        for (budget, held) in self.budgets.0.iter().zip(&mut self.held) {
            let has = from + held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = u32::try_from(wants.min(budget.to_kib).saturating_sub(has)).unwrap_or(u32::MAX);
            let memory = budget.memory.clone();
            match more {
                0 => {}
                _ if from == 0 && held.is_none() => {
                    add(held, memory.acquire_many_owned(more).await.map_err(|_| Failure::Ours)?);
                }
                _ => add(held, memory.try_acquire_many_owned(more).map_err(|_| Failure::Busy)?),
            }
            from = budget.to_kib;
        }
        Ok(())
    }
}

impl Arriving {
    async fn next(&mut self) -> Result<Option<Chunk>, Failure> {
        let next = timeout(STALL_TIMEOUT, self.stream.next()).await.map_err(|_| Failure::Timeout)?;
        next.transpose().map_err(|_| Failure::Broken)
    }

    /// The account key in the first bytes; none if there is none.
    async fn key(&mut self) -> Result<Option<AccountKey>, Failure> {
        let (mut looked, mut is_over) = (0, false);
        loop {
            let head = self.received.get(..HEAD_MAX).unwrap_or(&self.received);
            if is_over || head.len() == HEAD_MAX || is_due(head.len(), looked) {
                looked = head.len();
                if let Some(key) = key_in(head) {
                    return Ok(Some(key));
                }
                if is_over || head.len() == HEAD_MAX {
                    return Ok(None);
                }
            }
            match self.next().await? {
                Some(chunk) => self.received.extend_from_slice(&chunk),
                None => is_over = true,
            }
        }
    }

    /// All of it, with memory for what has come and not for what is announced: whoever announces much and
    /// sends little keeps nobody out.
    async fn rest(mut self, mut place: Place, mut memory: Memory) -> Result<Whole, Failure> {
        let mut fresh = self.received.len();
        loop {
            if !place.take(fresh, BODY_MAX) {
                return Err(Failure::TooLarge);
            }
            memory.grow(self.received.len()).await?;
            let Some(chunk) = self.next().await? else { break };
            fresh = chunk.len();
            self.received.extend_from_slice(&chunk);
        }
        Ok(Whole { body: self.received, _memory: memory, _place: place })
    }

    /// Reads on for a moment, for the sake of the refusal.
    async fn drop_rest(mut self) {
        let mut left = REFUSED_BYTES;
        let rest = async {
            while let Ok(Some(chunk)) = self.next().await {
                left = left.saturating_sub(chunk.len());
                if left == 0 {
                    break;
                }
            }
        };
        // Whoever sends no more is answered all the same.
        let _ = timeout(REFUSED_TIME, rest).await;
    }
}

impl Whole {
    /// What reading it takes, in KiB: its texts once more, and a record for every element. None is read that
    /// takes more than there is.
    fn cost_kib(&self) -> Result<u32, Failure> {
        let elements = self.body.iter().filter(|byte| **byte == b'<').count();
        let bytes = self.body.len().saturating_add(elements.saturating_mul(ELEMENT_BYTES));
        let kib = bytes.div_ceil(1_024);
        if kib > super::READING_MEMORY_KIB {
            return Err(Failure::TooLarge);
        }
        u32::try_from(kib).map_err(|_| Failure::TooLarge)
    }
}

/// The text of the first `authenticator` element.
fn key_in(head: &[u8]) -> Option<AccountKey> {
    let find = |from: usize, what: &[u8]| {
        let rest = head.get(from..)?;
        rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let (start, end) = (b"<authenticator>", b"</authenticator>");
    let from = find(0, start)? + start.len();
    let text = std::str::from_utf8(head.get(from..find(from, end)?)?).ok()?;
    Some(AccountKey::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_where_clients_put_it_and_only_whole() {
        let key = |text: &str| key_in(text.as_bytes()).map(|key| key.reveal().to_owned());
        let head = "<scheduler_request>\n    <authenticator>abc</authenticator>\n<hostid>0</hostid>";
        assert_eq!(key(head), Some("abc".to_owned()));
        assert_eq!(key("<authenticator>\n abc </authenticator>"), Some("abc".to_owned()));
        for none in
            ["", "<authenticator>", "<authenticator>abc</authentic", "</authenticator>abc<authenticator>"]
        {
            assert_eq!(key(none), None, "{none}");
        }
    }
}
