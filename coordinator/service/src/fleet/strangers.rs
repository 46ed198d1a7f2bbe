//! Places for work on calls of those who have no certificate (R6.10).
//!
//! Each is in the way of all others for as long as its work takes, which may be a durable write. So those at
//! one place (IPv4 address, or network of IPv6) have half of them at most, and wait for each other. Nobody is
//! refused: an agent takes that for the last word.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use fallow_daemon::lock;
use fallow_work_server::connections::Source;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::STRANGERS_AT_WORK;

/// All such places.
#[derive(Debug)]
pub(super) struct Strangers {
    places: Arc<Semaphore>,
    /// What those at one place may have, as long as any of them has a call.
    shares: Mutex<BTreeMap<Option<Source>, Weak<Semaphore>>>,
}

/// A call's place, until its work is done.
pub(super) type Place = [Option<OwnedSemaphorePermit>; 2];

impl Default for Strangers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(STRANGERS_AT_WORK)), shares: Mutex::default() }
    }
}

impl Strangers {
    /// A place for a call from there; none where that is not known.
    pub(super) async fn place(&self, from: Option<Source>) -> Place {
        let of_source = self.share(from).acquire_owned().await.ok();
        [of_source, self.places.clone().acquire_owned().await.ok()]
    }

    fn share(&self, from: Option<Source>) -> Arc<Semaphore> {
        let mut shares = lock(&self.shares);
        if let Some(share) = shares.get(&from).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(STRANGERS_AT_WORK / 2));
        shares.insert(from, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn at(last: u8) -> Option<Source> {
        Some(Source::of([192, 0, 2, last].into()))
    }

    #[test]
    fn r6_10_whoever_enrols_waits_for_half_as_many_at_one_place_as_are_worked_on_at_most() {
        let strangers = Strangers::default();
        let mut had: Vec<_> = std::iter::from_fn(|| strangers.place(at(1)).now_or_never()).collect();
        assert_eq!(had.len(), 8);
        // However many wait there.
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(strangers.place(at(1)))).collect();
        assert!(waiting.iter_mut().all(|place| place.now_or_never().is_none()));
        let others: Vec<_> = (2..=9).filter_map(|last| strangers.place(at(last)).now_or_never()).collect();
        assert_eq!(others.len(), 8);
        assert!(strangers.place(at(10)).now_or_never().is_none(), "all are taken");
        had.pop();
        assert!((&mut waiting[0]).now_or_never().is_some(), "it is the next one's");
        // Of those who have no call, nothing is kept.
        drop((had, others, waiting));
        let _last = strangers.place(at(11)).now_or_never().expect("all are free");
        assert_eq!(lock(&strangers.shares).len(), 1);
    }
}
