//! Places for those who ask at a socket, so that nobody takes them from others (R6.4).
//!
//! Model: whoever is answered has a place as long as that takes. At the socket for people each user has a few
//! places of his own, and whoever asks for more at once is turned away. Pauses of one user take turns, since
//! each is stored. Those who are refused have no place here (see [`super::server`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::server::Door;

/// Most peers at once at the owner's socket; more have to wait.
const OWNERS: u32 = 16;
/// Most peers at once at the socket for people.
const PEOPLE: u32 = 64;
/// Of these, most of one user.
const OF_ONE: u32 = 4;
/// So many pauses of one user may come in a row.
const PAUSES: u32 = 4;
/// From then on, one in so much time.
const PAUSE_EVERY: Duration = Duration::from_secs(2);

/// Places for peers. Clones are of the same places.
#[derive(Clone, Debug)]
pub struct Peers {
    all: u32,
    of_one: Option<u32>,
    room: Arc<Semaphore>,
    users: Users,
}

type Users = Arc<Mutex<BTreeMap<u32, User>>>;

/// What a user has and had lately.
#[derive(Debug)]
struct User {
    places: u32,
    pauses: Turns,
}

impl Peers {
    /// Those at a socket.
    pub fn at(door: Door) -> Self {
        let (all, of_one) = match door {
            Door::Owner => (OWNERS, None),
            Door::People => (PEOPLE, Some(OF_ONE)),
        };
        let room = Arc::new(Semaphore::new(usize::try_from(all).unwrap_or(1)));
        Self { all, of_one, room, users: Users::default() }
    }

    /// A place for this user, when one is free; none if he has all that he may have, or nobody new is
    /// answered any more.
    pub(super) async fn place(&self, user: u32) -> Option<Place> {
        let mut place = self.enter(user)?;
        place.room = Some(Arc::clone(&self.room).acquire_owned().await.ok()?);
        Some(place)
    }

    /// A place that still has to be found room for.
    fn enter(&self, user: u32) -> Option<Place> {
        let now = Instant::now();
        let mut users = known(&self.users);
        users.retain(|_, user| user.places > 0 || user.pauses.owed(now) > Duration::ZERO);
        let known = users.entry(user).or_insert_with(|| User { places: 0, pauses: Turns::since(now) });
        if self.of_one.is_some_and(|most| known.places >= most) {
            return None;
        }
        known.places += 1;
        Some(Place { user, users: Arc::clone(&self.users), room: None })
    }

    /// Waits until every peer has its answer, for so long at most. Nobody new is answered from then on.
    pub async fn answered(&self, patience: Duration) {
        if let Ok(Ok(places)) = timeout(patience, self.room.acquire_many(self.all)).await {
            places.forget();
        }
    }
}

fn known(users: &Users) -> MutexGuard<'_, BTreeMap<u32, User>> {
    users.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place, which is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    user: u32,
    users: Users,
    room: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Whose it is.
    pub(super) const fn user(&self) -> u32 {
        self.user
    }

    /// Waits until it is the turn of another pause of this user.
    pub(super) async fn turn_to_pause(&self) {
        let wait = known(&self.users).get_mut(&self.user).map(|user| user.pauses.take(Instant::now()));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(user) = known(&self.users).get_mut(&self.user) {
            user.places -= 1;
        }
    }
}

/// Turns of which some may come in a row.
#[derive(Debug)]
struct Turns {
    owed: Duration,
    at: Instant,
}

impl Turns {
    const fn since(at: Instant) -> Self {
        Self { owed: Duration::ZERO, at }
    }

    /// What the turns that were taken still cost.
    fn owed(&self, now: Instant) -> Duration {
        self.owed.saturating_sub(now.duration_since(self.at))
    }

    /// Takes another one. Says how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        (self.owed, self.at) = (self.owed(now) + PAUSE_EVERY, now);
        self.owed.saturating_sub(PAUSE_EVERY * PAUSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn r6_4_who_takes_all_of_his_places_leaves_those_of_others() {
        let peers = Peers::at(Door::People);
        let mut held = Vec::new();
        for user in 0..PEOPLE / OF_ONE - 1 {
            for _ in 0..OF_ONE {
                held.push(peers.place(user).await.unwrap());
            }
            assert!(peers.place(user).await.is_none(), "{user}");
        }
        let other = peers.place(1_000).await;
        assert!(other.is_some());
        held.pop();
        assert!(peers.place(PEOPLE / OF_ONE - 2).await.is_some(), "one of his own was free again");
        drop((held, other));
        let _one = peers.place(1).await;
        assert_eq!(known(&peers.users).len(), 1, "nothing is kept of those who are gone");
    }

    #[test]
    fn r6_4_pauses_of_one_user_come_a_few_in_a_row_and_then_take_turns() {
        let begun = Instant::now();
        let mut turns = Turns::since(begun);
        for _ in 0..PAUSES {
            assert_eq!(turns.take(begun), Duration::ZERO);
        }
        assert_eq!([0, 1].map(|_| turns.take(begun)), [PAUSE_EVERY, PAUSE_EVERY * 2]);
        let later = begun + PAUSE_EVERY * 100;
        assert_eq!((turns.owed(later), turns.take(later)), (Duration::ZERO, Duration::ZERO));
    }
}
