//! What operators' calls may take of the coordinator's memory (R6.10).
//!
//! Whoever has a token, even one that may only look, could otherwise ask for the longest answers on many
//! connections and take none of them, or begin requests that do not end. So each operator has so many places
//! for calls at once, on all his connections together, and budgets for what is read of his requests and made
//! of answers to him; all operators have budgets together. The holder of the coordinator's own token has
//! his beside theirs: no operator keeps him out. Changes have places and room of their own, so neither lists
//! that nobody takes nor submissions are in their way, whoever submits. What finds no room waits for a while,
//! and is then refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fallow_daemon::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

use super::giving_back;
use crate::roles::{Caller, Role};

/// Calls of one operator at once, those included whose answers he has not taken yet. As many again for
/// changes, and for uploads and backups.
const PLACES: usize = 16;
/// The same with the coordinator's own token: several people and scripts may have it.
const OWN_PLACES: usize = 64;
/// Answers to one operator that are made at once. What an answer takes is known when it is made.
const MAKING: usize = 2;
/// The same with the coordinator's own token.
const OWN_MAKING: usize = 8;
/// Long requests of one operator that are carried out at once, and as many again that change something: each
/// takes many times its length, as messages and as what is made of them.
const WORKING: usize = 2;
/// The same with the coordinator's own token.
const OWN_WORKING: usize = 4;
/// Submissions of all operators that are carried out at once, but for those with the coordinator's own token:
/// each may take the better part of a CPU, a hundred MiB and the disk for seconds.
const ALL_SUBMITTING: usize = 2;
/// Long answers to viewers and submitters that are turned into JSON at once, long requests of theirs that are
/// turned into messages, and as many of each again of those who run the fleet: meanwhile each takes some ten
/// times its length, or a hundred. Nobody waits for a caller there.
const ALL_REWRITING: usize = 2;
/// A text or an answer of so many bytes takes little memory on its way from or to JSON as well.
pub(super) const LITTLE: usize = 64 << 10;
/// Bytes of submissions of one operator, as many again of his other requests, and of answers to him. The
/// longest message has 64 MiB.
const BYTES: usize = 160 << 20;
/// Bytes of answers to all operators but the holder of the coordinator's own token, who has [`BYTES`] for
/// himself; the same of submissions and of all requests of those who run no fleet, and of other requests of
/// those who do.
const ALL_BYTES: usize = 512 << 20;
/// Of an operator's requests on their way at a time so much counts in his own budget alone, beside what all
/// have together: however much others announce and however slowly they send it, two usual ones find room.
/// `fallow submit` sends 8 MiB at a time.
const FIRST_BYTES: usize = 20 << 20;
/// How long a call waits for a place or room.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory of all calls of operators.
pub(super) struct Memory {
    answers: Arc<Budget>,
    /// Submissions, and what else those ask who may submit jobs, and nothing beyond.
    submissions: Arc<Budget>,
    /// Other requests of operators and administrators.
    orders: Arc<Budget>,
    /// To carry out submissions.
    submitting: Arc<Semaphore>,
    /// To make messages of long texts of viewers and submitters, and answers to them into such texts.
    rewriting: [Arc<Semaphore>; 2],
    /// The same for operators and administrators.
    rewriting_orders: [Arc<Semaphore>; 2],
    /// Of each who has a call now.
    shares: Mutex<BTreeMap<String, Weak<Share>>>,
}

/// What one operator may have.
#[derive(Debug)]
pub(crate) struct Share {
    places: Arc<Semaphore>,
    /// Places for changes.
    for_changes: Arc<Semaphore>,
    /// Places for what takes as long as its caller likes.
    for_long: Arc<Semaphore>,
    making: Arc<Semaphore>,
    /// To carry out long requests that change something.
    working: Arc<Semaphore>,
    /// To carry out submissions: they may take minutes, and no order waits for them.
    submitting: Arc<Semaphore>,
    /// The same of all operators; none for the holder of the coordinator's own token.
    submitting_all: Option<Arc<Semaphore>>,
    /// To make messages of long texts in JSON.
    reading: Arc<Semaphore>,
    /// The same of all operators; none for the holder of the coordinator's own token.
    reading_all: Option<Arc<Semaphore>>,
    /// To turn long answers that are there into JSON.
    rewriting: Arc<Semaphore>,
    /// The same of all operators; none for the holder of the coordinator's own token.
    rewriting_all: Option<Arc<Semaphore>>,
    /// Budgets that answers count in: this operator's, and that of all; the holder of the coordinator's own
    /// token has the first alone.
    answers: Vec<Arc<Budget>>,
    /// The same of submissions.
    submissions: Vec<Arc<Budget>>,
    /// The same of other requests.
    requests: Vec<Arc<Budget>>,
}

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// To be told something.
    Look,
    /// To change something.
    Change,
    /// To send or fetch something that is long: jobs, files of applications, a backup.
    Long,
}

/// What the call that an answer belongs to has taken, for whoever makes another answer of it.
#[derive(Clone)]
pub(crate) struct Kept {
    /// What the answer may take.
    pub(crate) share: Arc<Share>,
    /// The call's place, until the answer was handed over.
    pub(crate) place: Place,
    /// The right to make the answer, until all that is made of it was counted. None for what is short.
    pub(crate) making: Option<Making>,
}

/// A call's place.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;
/// The turn to carry out a long request: among the operator's own, and of a submission among those of all.
pub(super) type Working = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);
/// The right to make an answer.
pub(crate) type Making = Arc<OwnedSemaphorePermit>;

/// Bytes that are counted as taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: usize,
    from: Vec<Arc<Budget>>,
}

#[derive(Debug)]
struct Budget {
    taken: Mutex<usize>,
    most: usize,
    freed: Notify,
}

impl Default for Memory {
    fn default() -> Self {
        let all = || Budget::new(ALL_BYTES);
        let rewriting = || [(); 2].map(|()| Arc::new(Semaphore::new(ALL_REWRITING)));
        Self {
            answers: all(),
            submissions: all(),
            orders: all(),
            submitting: Arc::new(Semaphore::new(ALL_SUBMITTING)),
            rewriting: rewriting(),
            rewriting_orders: rewriting(),
            shares: Mutex::default(),
        }
    }
}

impl Memory {
    /// The share of whoever calls.
    pub(super) fn share(&self, caller: &Caller) -> Arc<Share> {
        // No operator has an empty name.
        let (name, all, [reading_all, rewriting_all]) = match caller {
            Caller::Owner => (String::new(), None, [None, None]),
            Caller::Named(operator) => {
                let (requests, rewriting) = match operator.role {
                    Role::Viewer | Role::Submitter => (&self.submissions, &self.rewriting),
                    Role::Operator | Role::Administrator => (&self.orders, &self.rewriting_orders),
                };
                (
                    operator.name.to_string(),
                    Some([&self.answers, &self.submissions, requests]),
                    rewriting.clone().map(Some),
                )
            }
        };
        let mut shares = lock(&self.shares);
        if let Some(share) = shares.get(&name).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let submitting_all = all.is_some().then(|| self.submitting.clone());
        let share = Arc::new(Share { submitting_all, reading_all, rewriting_all, ..Share::new(all) });
        shares.insert(name, Arc::downgrade(&share));
        share
    }
}

impl Share {
    /// With the budgets of all for answers, submissions and other requests, if it has a part in these.
    fn new(all: Option<[&Arc<Budget>; 3]>) -> Self {
        let (places, making, working) = match all {
            Some(_) => (PLACES, MAKING, WORKING),
            None => (OWN_PLACES, OWN_MAKING, OWN_WORKING),
        };
        let [answers, submissions, requests] = all.map_or([None; 3], |all| all.map(Some));
        let with_own = |of_all: Option<&Arc<Budget>>| {
            std::iter::once(Budget::new(BYTES)).chain(of_all.cloned()).collect()
        };
        Self {
            places: Arc::new(Semaphore::new(places)),
            for_changes: Arc::new(Semaphore::new(places)),
            for_long: Arc::new(Semaphore::new(places)),
            making: Arc::new(Semaphore::new(making)),
            working: Arc::new(Semaphore::new(working)),
            submitting: Arc::new(Semaphore::new(working)),
            submitting_all: None,
            reading: Arc::new(Semaphore::new(working)),
            rewriting: Arc::new(Semaphore::new(making)),
            reading_all: None,
            rewriting_all: None,
            answers: with_own(answers),
            submissions: with_own(submissions),
            requests: with_own(requests),
        }
    }

    /// A place for a call.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(super) async fn place(&self, kind: CallKind) -> Result<Place, Status> {
        let (places, what) = match kind {
            CallKind::Look => (&self.places, "calls"),
            CallKind::Change => (&self.for_changes, "changes"),
            CallKind::Long => (&self.for_long, "submissions, uploads and backups"),
        };
        let full = || {
            Status::resource_exhausted(format!(
                "{} {what} of this operator are on their way or wait for their turn, as many as may at once on all connections \
                 together: read their answers, or end them, and try again",
                if self.answers.len() > 1 { PLACES } else { OWN_PLACES }
            ))
        };
        permit(places).await.map(Arc::new).ok_or_else(full)
    }

    /// Room for a message of so many bytes that is to be read, of a call of this kind.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(super) async fn read(&self, kind: CallKind, bytes: usize) -> Result<Held, Status> {
        let budgets = match kind {
            CallKind::Long => &self.submissions,
            CallKind::Look | CallKind::Change => &self.requests,
        };
        timeout(PATIENCE, room(budgets, bytes, FIRST_BYTES)).await.map_err(|_| no_room())
    }

    /// The turn to carry out a long request that is there, to its end. It comes always, for those before it
    /// wait for no caller.
    pub(super) async fn turn_to_work(&self, kind: CallKind) -> Option<Working> {
        match kind {
            CallKind::Long => turn(&self.submitting, self.submitting_all.as_ref()).await,
            CallKind::Look | CallKind::Change => turn(&self.working, None).await,
        }
    }

    /// The turn to make a message of a long text that is there, and nothing beyond.
    pub(super) async fn turn_to_read(&self) -> Option<Working> {
        turn(&self.reading, self.reading_all.as_ref()).await
    }

    /// The right to make an answer, when answers that were made before leave room.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(super) async fn make(&self) -> Result<Making, Status> {
        let made = async {
            let making = self.making.clone().acquire_owned().await.ok()?;
            drop(room(&self.answers, 1, 0).await);
            Some(Arc::new(making))
        };
        timeout(PATIENCE, made).await.ok().flatten().ok_or_else(no_room)
    }

    /// The turn to make JSON of an answer of so many bytes. It comes always, for those before it wait for
    /// nobody: a call that was carried out is not refused in the end.
    /// One that has the right to make it has its own turn already.
    pub(crate) async fn turn_to_rewrite(
        &self,
        bytes: usize,
        is_made: bool,
    ) -> [Option<OwnedSemaphorePermit>; 2] {
        if bytes <= LITTLE {
            return [None, None];
        }
        let own = if is_made { None } else { self.rewriting.clone().acquire_owned().await.ok() };
        let of_all = match &self.rewriting_all {
            Some(all) => all.clone().acquire_owned().await.ok(),
            None => None,
        };
        [own, of_all]
    }

    /// Counts what was made, however much it is.
    pub(crate) fn made(&self, bytes: usize) -> Held {
        let from = self.answers.clone();
        for budget in &from {
            *lock(&budget.taken) += bytes;
        }
        Held { bytes, from }
    }

    /// Bytes of requests and answers that are counted now.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        [&self.answers, &self.submissions, &self.requests]
            .map(|budgets| *lock(&budgets[0].taken))
            .iter()
            .sum()
    }
}

/// Room in all of these, the first of which is the operator's own. While that has no more than `first` taken,
/// it is in that one alone.
async fn room(budgets: &[Arc<Budget>], bytes: usize, first: usize) -> Held {
    let mut held = Held { bytes, from: Vec::with_capacity(budgets.len()) };
    for budget in budgets {
        let taken = budget.take(bytes).await;
        held.from.push(budget.clone());
        if taken <= first {
            break;
        }
    }
    held
}

/// A turn among an operator's own, then one among those of all where he has a part in these.
async fn turn(own: &Arc<Semaphore>, all: Option<&Arc<Semaphore>>) -> Option<Working> {
    let own = own.clone().acquire_owned().await.ok()?;
    Some(match all {
        Some(all) => (own, Some(all.clone().acquire_owned().await.ok()?)),
        None => (own, None),
    })
}

async fn permit(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    timeout(PATIENCE, of.clone().acquire_owned()).await.ok()?.ok()
}

fn no_room() -> Status {
    Status::resource_exhausted(
        "other calls take the memory that there is for operators' requests and answers: read the answers that were asked for, \
         and try again",
    )
}

impl Budget {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), most, freed: Notify::new() })
    }

    /// Waits for room for so many bytes, which is never more than all. Gives what is taken with them.
    async fn take(&self, bytes: usize) -> usize {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut taken = lock(&self.taken);
                let after = taken.saturating_add(bytes);
                if after <= self.most || *taken == 0 {
                    *taken = after;
                    return after;
                }
            }
            freed.await;
        }
    }
}

impl Held {
    /// No more than so many bytes are needed.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        self.bytes -= freed;
        drop(Self { bytes: freed, from: self.from.clone() });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for budget in &self.from {
            {
                let mut taken = lock(&budget.taken);
                *taken = taken.saturating_sub(self.bytes);
            }
            budget.freed.notify_waiters();
        }
        giving_back::freed(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Instant;
    use tonic::Code;

    use super::*;
    use crate::roles::{Operator, OperatorName};

    fn named(all: &Arc<Budget>) -> Share {
        Share::new(Some([all, &Budget::new(ALL_BYTES), &Budget::new(ALL_BYTES)]))
    }

    fn taken(budgets: &[Arc<Budget>]) -> usize {
        *lock(&budgets[0].taken)
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_who_has_as_many_calls_as_he_may_waits_for_one_to_end_and_is_then_refused() {
        let share = named(&Budget::new(ALL_BYTES));
        let mut places = Vec::new();
        for _ in 0..PLACES {
            places.push(share.place(CallKind::Look).await.unwrap());
        }
        // A change is in nobody's way, nor is anybody in its.
        drop(share.place(CallKind::Change).await.unwrap());
        drop(share.place(CallKind::Long).await.unwrap());
        let refused = share.place(CallKind::Look).await.unwrap_err();
        assert!(
            refused.code() == Code::ResourceExhausted && refused.message().contains("16 calls"),
            "{refused}"
        );
        let (place, ()) = tokio::join!(share.place(CallKind::Look), async { drop(places.pop()) });
        drop(place.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_what_one_operator_takes_is_bounded_and_leaves_room_to_others_and_to_the_owner() {
        let all = Budget::new(ALL_BYTES);
        let (greedy, honest, owner) = (named(&all), named(&all), Share::new(None));
        let answer = greedy.made(BYTES + 1);
        let request = greedy.read(CallKind::Change, BYTES).await.unwrap();
        for refused in [greedy.make().await.map(drop), greedy.read(CallKind::Change, 1 << 20).await.map(drop)]
        {
            let refused = refused.unwrap_err();
            assert!(
                refused.code() == Code::ResourceExhausted && refused.message().contains("try again"),
                "{refused}"
            );
        }
        drop(request);
        drop(honest.make().await.unwrap());
        drop(honest.read(CallKind::Change, 64 << 20).await.unwrap());
        // Where many do so, the owner still comes through.
        let many: Vec<_> = (0..4).map(|_| named(&all).made(BYTES)).collect();
        assert!(honest.make().await.is_err());
        drop(owner.make().await.unwrap());
        // Whoever waits goes on as soon as there is room.
        let (made, ()) = tokio::join!(honest.make(), async { drop((many, answer)) });
        drop(made.unwrap());
        assert_eq!((*lock(&all.taken), taken(&honest.answers), taken(&owner.answers)), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_few_long_answers_become_json_at_once_however_many_operators_ask() {
        let memory = Memory::default();
        let named = |name: &str, role| {
            let operator = Operator {
                name: OperatorName::new(name).unwrap(),
                role,
                projects: Vec::new(),
                made_at: Instant::EPOCH,
                made_by: String::new(),
                expires_at: Instant::EPOCH,
                revoked_at: None,
            };
            memory.share(&Caller::Named(Arc::new(operator)))
        };
        let viewers: Vec<_> = (0..9).map(|number| named(&format!("v{number}"), Role::Viewer)).collect();
        let mut turns = Vec::new();
        for viewer in &viewers {
            drop(viewer.turn_to_rewrite(LITTLE, true).await);
            turns.extend(timeout(PATIENCE, viewer.turn_to_rewrite(LITTLE + 1, true)).await.ok());
        }
        assert_eq!(turns.len(), ALL_REWRITING);
        // Those who run the fleet wait for none of them.
        let operator = named("o", Role::Operator);
        assert!(timeout(PATIENCE, operator.turn_to_rewrite(1 << 30, true)).await.is_ok());
        drop(memory.share(&Caller::Owner).turn_to_rewrite(1 << 30, false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_few_submissions_are_carried_out_at_once_however_many_operators_submit() {
        let memory = Memory::default();
        let named = |name: &str, role| {
            let operator = Operator {
                name: OperatorName::new(name).unwrap(),
                role,
                projects: Vec::new(),
                made_at: Instant::EPOCH,
                made_by: String::new(),
                expires_at: Instant::EPOCH,
                revoked_at: None,
            };
            memory.share(&Caller::Named(Arc::new(operator)))
        };
        let submitters: Vec<_> = (0..9).map(|number| named(&format!("s{number}"), Role::Submitter)).collect();
        let mut turns = Vec::new();
        for submitter in &submitters {
            turns.extend(timeout(PATIENCE, submitter.turn_to_work(CallKind::Long)).await.ok().flatten());
        }
        assert_eq!(turns.len(), ALL_SUBMITTING);
        let mut read = Vec::new();
        for submitter in &submitters {
            read.extend(timeout(PATIENCE, submitter.turn_to_read()).await.ok().flatten());
        }
        assert_eq!(read.len(), ALL_REWRITING);
        assert!(named("p", Role::Operator).turn_to_read().await.is_some());
        // Whoever waits is the next, and orders wait for none of them.
        let operator = named("o", Role::Operator);
        assert!(operator.turn_to_work(CallKind::Change).await.is_some());
        assert!(memory.share(&Caller::Owner).turn_to_work(CallKind::Long).await.is_some());
        let (turn, ()) =
            tokio::join!(submitters[8].turn_to_work(CallKind::Long), async { drop(turns.pop()) });
        assert!(turn.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_neither_answers_nor_submissions_take_the_room_of_what_operators_order() {
        let memory = Memory::default();
        let named = |name: &str, role| {
            let operator = Operator {
                name: OperatorName::new(name).unwrap(),
                role,
                projects: Vec::new(),
                made_at: Instant::EPOCH,
                made_by: String::new(),
                expires_at: Instant::EPOCH,
                revoked_at: None,
            };
            memory.share(&Caller::Named(Arc::new(operator)))
        };
        let viewers: Vec<_> = (0..4).map(|number| named(&format!("v{number}"), Role::Viewer)).collect();
        let submitters: Vec<_> = (0..4).map(|number| named(&format!("s{number}"), Role::Submitter)).collect();
        let answers: Vec<_> = viewers.iter().map(|viewer| viewer.made(BYTES)).collect();
        let mut requests = Vec::new();
        for submitter in &submitters[..3] {
            requests.push(submitter.read(CallKind::Long, BYTES).await.unwrap());
        }
        let more = submitters[3].read(CallKind::Long, 64 << 20).await;
        assert!(more.is_err(), "submissions have so much together");
        // What is usual has room, whatever others have announced; more at once has none.
        requests.push(submitters[3].read(CallKind::Long, 16 << 20).await.unwrap());
        assert!(submitters[3].read(CallKind::Long, 64 << 20).await.is_err());
        let operator = named("o", Role::Operator);
        assert!(operator.read(CallKind::Long, 64 << 20).await.is_err(), "whoever submits");
        drop(operator.read(CallKind::Change, 64 << 20).await.unwrap());
        // His own are in the way of his orders as little.
        requests.clear();
        requests.push(operator.read(CallKind::Long, BYTES).await.unwrap());
        assert!(operator.read(CallKind::Long, 1).await.is_err());
        drop(operator.read(CallKind::Change, BYTES).await.unwrap());
        drop((answers, requests));
        assert_eq!(
            [&memory.answers, &memory.submissions, &memory.orders].map(|all| *lock(&all.taken)),
            [0; 3]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn r6_11_json_is_made_of_what_was_carried_out_also_where_no_other_answer_has_room() {
        let share = named(&Budget::new(ALL_BYTES));
        let _answers = share.made(2 * BYTES);
        let _made = [share.making.try_acquire().unwrap(), share.making.try_acquire().unwrap()];
        assert!(share.make().await.is_err());
        let first = share.turn_to_rewrite(LITTLE + 1, false).await;
        let second = share.turn_to_rewrite(LITTLE + 1, false).await;
        assert!(first[0].is_some() && second[0].is_some());
        assert!(share.turn_to_rewrite(LITTLE, false).await[0].is_none(), "a short one needs no turn");
        // Nobody is refused, however long the others take.
        let (third, ()) = tokio::join!(share.turn_to_rewrite(LITTLE + 1, false), async {
            tokio::time::sleep(10 * PATIENCE).await;
            drop(first);
        });
        assert!(third[0].is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_wait_that_is_given_up_takes_nothing() {
        let all = Budget::new(ALL_BYTES);
        let share = named(&all);
        let others = Held { bytes: ALL_BYTES, from: vec![all.clone()] };
        *lock(&all.taken) += ALL_BYTES;
        assert!(share.make().await.is_err());
        drop(others);
        assert_eq!((*lock(&all.taken), taken(&share.answers)), (0, 0));
    }
}
