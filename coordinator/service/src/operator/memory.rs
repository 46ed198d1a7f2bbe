//! What operators' calls may take of the coordinator's memory (R6.10).
//!
//! Whoever has a token, even one that may only look, could otherwise ask for the longest answers on many
//! connections and take none of them, or begin requests that do not end. So each operator has so many places
//! for calls at once, on all his connections together, and a budget for what is read of his requests and made
//! of answers to him; all operators have one together. The holder of the coordinator's own token has a budget
//! beside theirs: no operator keeps him out. What finds no room waits for a while, and is then refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fallow_daemon::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tonic::Status;

use crate::roles::Caller;

/// Calls of one operator at once, those included whose answers he has not taken yet.
const PLACES: usize = 16;
/// The same with the coordinator's own token: several people and scripts may have it.
const OWN_PLACES: usize = 64;
/// Answers to one operator that are made at once. What an answer takes is known when it is made.
const MAKING: usize = 2;
/// The same with the coordinator's own token.
const OWN_MAKING: usize = 8;
/// An answer of so many bytes takes little memory in JSON as well.
const LITTLE: usize = 64 << 10;
/// Bytes of requests of one operator, and of answers to him. The longest message has 64 MiB.
const BYTES: usize = 160 << 20;
/// The same of all operators but the holder of the coordinator's own token, who has [`BYTES`] for himself.
const ALL_BYTES: usize = 512 << 20;
/// How long a call waits for a place or room.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory of all calls of operators.
pub(super) struct Memory {
    all: Arc<Budget>,
    /// Of each who has a call now.
    shares: Mutex<BTreeMap<String, Weak<Share>>>,
}

/// What one operator may have.
#[derive(Debug)]
pub(crate) struct Share {
    places: Arc<Semaphore>,
    making: Arc<Semaphore>,
    /// To turn long answers that are there into JSON.
    rewriting: Semaphore,
    own: Arc<Budget>,
    /// None for the holder of the coordinator's own token.
    all: Option<Arc<Budget>>,
}

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
        Self { all: Budget::new(ALL_BYTES), shares: Mutex::default() }
    }
}

impl Memory {
    /// The share of whoever calls.
    pub(super) fn share(&self, caller: &Caller) -> Arc<Share> {
        // No operator has an empty name.
        let (name, all) = match caller {
            Caller::Owner => (String::new(), None),
            Caller::Named(operator) => (operator.name.to_string(), Some(self.all.clone())),
        };
        let mut shares = lock(&self.shares);
        if let Some(share) = shares.get(&name).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share::new(all));
        shares.insert(name, Arc::downgrade(&share));
        share
    }
}

impl Share {
    fn new(all: Option<Arc<Budget>>) -> Self {
        let (places, making) = if all.is_some() { (PLACES, MAKING) } else { (OWN_PLACES, OWN_MAKING) };
        Self {
            places: Arc::new(Semaphore::new(places)),
            making: Arc::new(Semaphore::new(making)),
            rewriting: Semaphore::new(making),
            own: Budget::new(BYTES),
            all,
        }
    }

    /// A place for a call.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Status> {
        let full = || {
            Status::resource_exhausted(format!(
                "{} calls of this operator are on their way, as many as may be at once on all connections together: read \
                 their answers, or end them, and try again",
                if self.all.is_some() { PLACES } else { OWN_PLACES }
            ))
        };
        permit(&self.places).await.ok_or_else(full)
    }

    /// Room for a message of so many bytes that is to be read.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(super) async fn read(&self, bytes: usize) -> Result<Held, Status> {
        timeout(PATIENCE, self.room(bytes)).await.map_err(|_| no_room())
    }

    /// The right to make an answer, when answers that were made before leave room.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is none for long.
    pub(crate) async fn make(&self) -> Result<OwnedSemaphorePermit, Status> {
        let made = async {
            let making = self.making.clone().acquire_owned().await.ok()?;
            drop(self.room(1).await);
            Some(making)
        };
        timeout(PATIENCE, made).await.ok().flatten().ok_or_else(no_room)
    }

    /// The turn to make JSON of an answer of so many bytes. It comes always, for those before it wait for
    /// nobody: a call that was carried out is not refused in the end.
    pub(crate) async fn turn_to_rewrite(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= LITTLE { None } else { self.rewriting.acquire().await.ok() }
    }

    /// Counts what was made, however much it is.
    pub(crate) fn made(&self, bytes: usize) -> Held {
        let from: Vec<_> = self.budgets().cloned().collect();
        for budget in &from {
            *lock(&budget.taken) += bytes;
        }
        Held { bytes, from }
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        *lock(&self.own.taken)
    }

    fn budgets(&self) -> impl Iterator<Item = &Arc<Budget>> {
        std::iter::once(&self.own).chain(&self.all)
    }

    async fn room(&self, bytes: usize) -> Held {
        let mut held = Held { bytes, from: Vec::with_capacity(2) };
        for budget in self.budgets() {
            budget.take(bytes).await;
            held.from.push(budget.clone());
        }
        held
    }
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

    /// Waits for room for so many bytes, which is never more than all.
    async fn take(&self, bytes: usize) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut taken = lock(&self.taken);
                let after = taken.saturating_add(bytes);
                if after <= self.most || *taken == 0 {
                    *taken = after;
                    return;
                }
            }
            freed.await;
        }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn named(all: &Arc<Budget>) -> Share {
        Share::new(Some(all.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_who_has_as_many_calls_as_he_may_waits_for_one_to_end_and_is_then_refused() {
        let share = named(&Budget::new(ALL_BYTES));
        let mut places = Vec::new();
        for _ in 0..PLACES {
            places.push(share.place().await.unwrap());
        }
        let refused = share.place().await.unwrap_err();
        assert!(
            refused.code() == Code::ResourceExhausted && refused.message().contains("16 calls"),
            "{refused}"
        );
        let (place, ()) = tokio::join!(share.place(), async { drop(places.pop()) });
        drop(place.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_what_one_operator_takes_is_bounded_and_leaves_room_to_others_and_to_the_owner() {
        let all = Budget::new(ALL_BYTES);
        let (greedy, honest, owner) = (named(&all), named(&all), Share::new(None));
        let answer = greedy.made(BYTES + 1);
        for refused in [greedy.make().await.map(drop), greedy.read(1 << 20).await.map(drop)] {
            let refused = refused.unwrap_err();
            assert!(
                refused.code() == Code::ResourceExhausted && refused.message().contains("try again"),
                "{refused}"
            );
        }
        drop(honest.make().await.unwrap());
        drop(honest.read(64 << 20).await.unwrap());
        // Where many do so, the owner still comes through.
        let many: Vec<_> = (0..4).map(|_| named(&all).made(BYTES)).collect();
        assert!(honest.make().await.is_err());
        drop(owner.make().await.unwrap());
        // Whoever waits goes on as soon as there is room.
        let (made, ()) = tokio::join!(honest.make(), async { drop((many, answer)) });
        drop(made.unwrap());
        assert_eq!((*lock(&all.taken), *lock(&honest.own.taken), *lock(&owner.own.taken)), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn r6_11_json_is_made_of_what_was_carried_out_also_where_no_other_answer_has_room() {
        let share = named(&Budget::new(ALL_BYTES));
        let _answers = share.made(2 * BYTES);
        let _made = [share.making.try_acquire().unwrap(), share.making.try_acquire().unwrap()];
        assert!(share.make().await.is_err());
        let first = share.turn_to_rewrite(LITTLE + 1).await;
        let second = share.turn_to_rewrite(LITTLE + 1).await;
        assert!(first.is_some() && second.is_some());
        assert!(share.turn_to_rewrite(LITTLE).await.is_none(), "a short one needs no turn");
        // Nobody is refused, however long the others take.
        let (third, ()) = tokio::join!(share.turn_to_rewrite(LITTLE + 1), async {
            tokio::time::sleep(10 * PATIENCE).await;
            drop(first);
        });
        assert!(third.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn r6_10_a_wait_that_is_given_up_takes_nothing() {
        let all = Budget::new(ALL_BYTES);
        let share = named(&all);
        let others = Held { bytes: ALL_BYTES, from: vec![all.clone()] };
        *lock(&all.taken) += ALL_BYTES;
        assert!(share.read(1 << 20).await.is_err());
        drop(others);
        assert_eq!((*lock(&all.taken), *lock(&share.own.taken)), (0, 0));
    }
}
