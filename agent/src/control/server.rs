//! The agent's side of the control socket.
//!
//! Model: whoever calls is looked at as soon as he does, before he is heard, and takes a place only if he is
//! to be answered. Of those who are refused a few are heard out, so that any tool can read why, and the
//! others are told at once. All who have called are taken out of the kernel's queue together, for whoever
//! finds it full has to wait; and looking at callers has a part of the agent's time, whoever calls without
//! end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::places::{Peers, Place};
use super::protocol::{ANSWER, Request, Response};
use crate::error::AgentError;
use crate::proc;

/// Longest request.
const REQUEST_MAX: u64 = 64 * 1024;
/// How long a peer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long people may take to ask: there are many, and places for few.
const PEOPLES_PATIENCE: Duration = Duration::from_secs(1);
/// How long somebody who is refused may take to ask.
const REFUSED_PATIENCE: Duration = Duration::from_millis(500);
/// Most of those who are refused that are heard at once.
const REFUSED: usize = 4;
/// So many callers are looked at at a time.
const CALLERS: usize = 64;
/// For any time that is spent on callers, so many times as long nobody new is looked at.
const REST: u32 = 9;
/// But never longer than this, or the owner would wait for his answer.
const REST_MAX: Duration = Duration::from_millis(50);

/// Who is answered at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The agent's own user and root, whatever they ask.
    Owner,
    /// Whoever may open the socket, by what the system lets people do with files: the status, and a pause.
    People,
}

impl Door {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::People => 0o660,
        }
    }

    /// How long a peer may take to ask, and again to read its answer.
    const fn patience(self) -> Duration {
        match self {
            Self::Owner => PATIENCE,
            Self::People => PEOPLES_PATIENCE,
        }
    }

    /// Why a request is not for whoever asks here.
    fn refuses(self, request: &Request) -> Option<AgentError> {
        match (self, request) {
            (Self::Owner, _) | (Self::People, Request::Status {} | Request::Snooze { .. }) => None,
            (Self::People, _) => Some(AgentError::refused(
                "people of this machine may ask for the status, and have it rest for a while (snooze): for anything else ask as \
                 the user that the agent runs as, or as root",
            )),
        }
    }
}

/// Opens the socket, for those alone whom the door is for.
///
/// # Errors
/// [`AgentError::System`].
pub fn bind(path: &Path, door: Door) -> Result<UnixListener, AgentError> {
    let fail =
        |error| AgentError::system(format!("cannot open the control socket {}", path.display()), error);
    // Under another name first, so that it is never there with another mode. The directory's lock says that
    // nobody else listens here, so what lies there is left over.
    let new = path.with_extension("new");
    for old in [path, &new] {
        crate::files::remove(old).map_err(fail)?;
    }
    let (short, _dir) = super::short_path(&new).map_err(fail)?;
    let listener = UnixListener::bind(short).map_err(fail)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(door.mode())).map_err(fail)?;
    std::fs::rename(&new, path).map_err(fail)?;
    Ok(listener)
}

/// Answers peers for ever. `carry_out` hands a request to the engine.
///
/// `wary` where jobs can reach the socket: they are known by that they can gain no privileges, as everything
/// that they start, and nobody who can gain none is answered then.
pub async fn serve<F, R>(listener: UnixListener, door: Door, peers: Peers, wary: bool, carry_out: F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let carry_out = Arc::new(carry_out);
    let refused = Arc::new(Semaphore::new(REFUSED));
    loop {
        let callers = match callers(&listener).await {
            Ok(callers) => callers,
            Err(error) => {
                tracing::warn!(%error, "cannot accept at the control socket");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let begun = Instant::now();
        for mut stream in callers {
            let user = match admitted(&stream, door, wary) {
                Ok(user) => user,
                Err(error) => {
                    turn_away(stream, &error, &refused);
                    continue;
                }
            };
            let Some(place) = peers.place(user).await else {
                turn_away(stream, &too_many(), &refused);
                continue;
            };
            let carry_out = Arc::clone(&carry_out);
            tokio::spawn(async move { talk(&mut stream, door, &place, &*carry_out).await });
        }
        tokio::time::sleep(rest_after(begun.elapsed())).await;
    }
}

/// Waits for a caller. Those who have called besides come with him.
async fn callers(listener: &UnixListener) -> std::io::Result<Vec<UnixStream>> {
    let (first, _) = listener.accept().await?;
    let mut callers = vec![first];
    while callers.len() < CALLERS {
        let another = std::future::poll_fn(|context| Poll::Ready(listener.poll_accept(context))).await;
        // What keeps the next one from being accepted shows when he is waited for.
        let Poll::Ready(Ok((stream, _))) = another else { break };
        callers.push(stream);
    }
    Ok(callers)
}

/// How long nobody new is looked at when so much time was spent on callers.
fn rest_after(spent: Duration) -> Duration {
    spent.saturating_mul(REST).min(REST_MAX)
}

async fn talk<F, R>(stream: &mut UnixStream, door: Door, place: &Place, carry_out: &F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let response = answer(stream, door, place, carry_out).await;
    say(stream, door.patience(), &response).await;
}

async fn say(stream: &mut UnixStream, patience: Duration, response: &Response) {
    match timeout(patience, stream.write_all(&line_of(response))).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a peer at the control socket did not wait for its answer"),
        Err(_) => tracing::debug!("a peer at the control socket took too long to read its answer"),
    }
}

fn line_of(response: &Response) -> Vec<u8> {
    let mut line = serde_json::to_vec(response).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Tells somebody why he is not answered, and waits for him if there is a place.
fn turn_away(mut stream: UnixStream, error: &AgentError, places: &Arc<Semaphore>) {
    let response = Response::failed(error);
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        tokio::spawn(async move {
            // Whoever asks is still writing, and many tools could not read an answer that came before.
            let _ = timeout(REFUSED_PATIENCE, hear(&mut stream)).await;
            say(&mut stream, REFUSED_PATIENCE, &response).await;
            drop(place);
        });
    } else {
        // Nothing was sent to him yet, so that there is room for it. If he is gone, nobody misses it.
        let _ = send(&stream, &line_of(&response), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

fn too_many() -> AgentError {
    AgentError::refused(
        "you ask for too much at once at the socket for people of this machine: wait for an answer before you ask again",
    )
}

/// The user whom somebody who calls is answered as.
fn admitted(stream: &UnixStream, door: Door, wary: bool) -> Result<u32, AgentError> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if wary && !peer.pid().is_some_and(may_gain_privileges) => Err(AgentError::refused(
            "jobs of this agent can reach this socket, since they may use the network or this system has no filters of system calls: \
             nobody is answered who can gain no privileges, as they cannot (NoNewPrivs in /proc/self/status); ask from a shell \
             that is not restricted so",
        )),
        Ok(peer) if door == Door::People || peer.uid() == own || peer.uid() == 0 => Ok(peer.uid()),
        Ok(peer) => Err(AgentError::refused(format!(
            "user {} may not control this agent: only its own user ({own}) and root may",
            peer.uid()
        ))),
        Err(error) => Err(AgentError::refused(format!("the system does not say who is asking: {error}"))),
    }
}

/// The line that a peer writes, or why there is none.
async fn hear(stream: &mut UnixStream) -> Result<String, String> {
    let mut line = String::new();
    match BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line).await {
        Ok(_) => Ok(line),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a process that is there could gain privileges by a set-user-id program.
fn may_gain_privileges(pid: i32) -> bool {
    u32::try_from(pid).is_ok_and(|pid| proc::status(pid, "NoNewPrivs:").as_deref() == Some("0"))
}

async fn answer<F, R>(stream: &mut UnixStream, door: Door, place: &Place, carry_out: &F) -> Response
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let line = timeout(door.patience(), hear(stream))
        .await
        .unwrap_or_else(|_| Err("it took too long to come".to_owned()));
    let request =
        line.and_then(|line| serde_json::from_str::<Request>(&line).map_err(|error| error.to_string()));
    match request {
        Err(why) => Response::failed(&AgentError::bad_input(format!(
            "this is no request ({why}): one line of JSON such as {{\"command\":\"status\"}} is expected"
        ))),
        Ok(request) if let Some(error) = door.refuses(&request) => Response::failed(&error),
        Ok(mut request) => {
            if let Request::Snooze { by, .. } = &mut request {
                *by = Some(place.user());
            }
            if door == Door::People && matches!(request, Request::Snooze { .. }) {
                place.turn_to_pause().await;
            }
            let asks_for_the_end = matches!(request, Request::Stop {});
            let (reply, response) = oneshot::channel();
            let answered = async {
                carry_out(request, reply).await;
                response.await
            };
            let failed = |why: &str| Response::failed(&AgentError::unreachable(why));
            match timeout(ANSWER, answered).await {
                Ok(Ok(response)) if door == Door::People => response.for_people(),
                Ok(Ok(response)) => response,
                // It was heard, and the end came before the engine looked who had asked for it.
                Ok(Err(_)) if asks_for_the_end => Response::ending(),
                Ok(Err(_)) => failed("the agent is just ending"),
                Err(_) => failed("the agent is too busy to answer: try again, and look at its log"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// What a peer gets for a request that nobody looks at any more.
    async fn unheard(line: &'static [u8]) -> String {
        let (stream, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let asking = std::thread::spawn(move || {
            peer.write_all(line).unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            answer
        });
        let place = Peers::at(Door::Owner).place(0).await.unwrap();
        let mut stream = UnixStream::from_std(stream).unwrap();
        talk(&mut stream, Door::Owner, &place, &|_, reply| async { drop(reply) }).await;
        drop(stream);
        asking.join().unwrap()
    }

    #[tokio::test]
    async fn who_asks_for_the_end_is_told_that_it_comes_however_soon_it_does() {
        let stop = unheard(b"{\"command\":\"stop\"}\n").await;
        assert!(stop.contains("the agent is ending"), "{stop}");
        let status = unheard(b"{\"command\":\"status\"}\n").await;
        assert!(status.contains("the agent is just ending"), "{status}");
    }

    #[tokio::test]
    async fn answers_are_waited_for_at_the_end_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let peers = Peers::at(Door::Owner);
        let (heard, mut asked) = tokio::sync::mpsc::channel(1);
        let serving =
            serve(bind(&path, Door::Owner).unwrap(), Door::Owner, peers.clone(), false, move |_, reply| {
                let heard = heard.clone();
                async move { drop(heard.send(reply).await) }
            });
        let serving = tokio::spawn(serving);
        let mut peer = UnixStream::connect(&path).await.unwrap();
        peer.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
        let reply = asked.recv().await.unwrap();
        serving.abort();
        peers.answered(Duration::from_millis(1)).await;
        reply.send(Response::ending()).unwrap();
        peers.answered(Duration::from_secs(60)).await;
        // It is there already: nobody is given time to write it now.
        let mut answer = [0; 256];
        let read = peer.into_std().unwrap().read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.contains("the agent is ending"), "{answer}");
    }

    /// All that somebody is told.
    fn told(peer: &mut std::os::unix::net::UnixStream) -> String {
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn r6_4_one_of_the_people_who_takes_more_places_than_his_own_is_told_so_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("people");
        let (door, peers) = (Door::People, Peers::at(Door::People));
        let answers = |_, reply: oneshot::Sender<Response>| async { drop(reply.send(Response::ending())) };
        let serving = tokio::spawn(serve(bind(&path, door).unwrap(), door, peers, false, answers));
        let calls = move || {
            let call = || std::os::unix::net::UnixStream::connect(&path).unwrap();
            // On a machine that is very slow, the first may be gone before the last comes.
            loop {
                let _silent = [call(), call(), call(), call()];
                if told(&mut call()).contains("too much at once") {
                    break;
                }
            }
            // As soon as a place is free again.
            loop {
                let mut asks = call();
                asks.write_all(b"{\"command\":\"status\"}\n").unwrap();
                let told = told(&mut asks);
                if told.contains("ending") {
                    break;
                }
                assert!(told.contains("too much at once"), "{told}");
            }
        };
        tokio::task::spawn_blocking(calls).await.unwrap();
        serving.abort();
    }

    /// Time passes while all wait, and only then.
    #[tokio::test(start_paused = true)]
    async fn r6_4_many_pauses_of_one_user_take_turns_and_other_questions_do_not_wait_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("people");
        let (door, peers) = (Door::People, Peers::at(Door::People));
        let answers = |_, reply: oneshot::Sender<Response>| async { drop(reply.send(Response::ending())) };
        let serving = tokio::spawn(serve(bind(&path, door).unwrap(), door, peers, false, answers));
        let mut waited = Vec::new();
        for line in
            ["{\"command\":\"snooze\",\"seconds\":60}\n"; 6].iter().chain(&["{\"command\":\"status\"}\n"; 6])
        {
            let begun = tokio::time::Instant::now();
            let mut peer = UnixStream::connect(&path).await.unwrap();
            peer.write_all(line.as_bytes()).await.unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains("the agent is ending"), "{answer}");
            waited.push(begun.elapsed().as_secs() > 0);
        }
        let turns = [false, false, false, false, true, true];
        assert_eq!(waited, [turns, [false; 6]].concat());
        serving.abort();
    }

    #[test]
    fn callers_have_a_tenth_of_the_time_and_nobody_waits_long_for_that() {
        let spent = Duration::from_millis(1);
        assert_eq!(rest_after(spent), spent * 9);
        assert_eq!(rest_after(Duration::from_secs(1)), REST_MAX);
    }
}
