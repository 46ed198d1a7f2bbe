//! Whether tasks can have groups by what came of the last ones: a system that lets the agent make groups may
//! still keep processes from entering them.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::confine::Shortage;

/// What keeps tasks from groups of their own, if something does.
#[derive(Debug)]
pub(super) struct Lack {
    /// How long it is not looked again, where nothing else looks.
    again: Duration,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Why, and since when that is known.
    why: Option<(String, Instant)>,
    shortage: Shortage,
}

impl Lack {
    /// Nothing does, for all that is known.
    pub(super) fn none(again: Duration) -> Self {
        Self { again, seen: Mutex::default() }
    }

    /// A task could have none for this reason. Whether that counts: not where the system was short of
    /// something for a moment.
    pub(super) fn note(&self, error: &io::Error) -> bool {
        let (mut seen, now) = (self.seen(), Instant::now());
        let counts = seen.shortage.is_reason(error, now);
        if counts {
            seen.why = Some((format!("a job could not be put into one: {error}"), now));
        }
        counts
    }

    /// A task is in one.
    pub(super) fn end(&self) {
        *self.seen() = Seen::default();
    }

    /// Why tasks have none.
    pub(super) fn why(&self) -> Option<String> {
        self.seen().why.as_ref().map(|(why, _)| why.clone())
    }

    /// How long until it is to be looked again. None where tasks have groups.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.seen().why.as_ref().map(|(_, since)| self.again.saturating_sub(since.elapsed()))
    }

    /// What came of a look. What the system is short of when tasks start is not known by it.
    pub(super) fn looked(&self, found: &io::Result<()>) {
        self.seen().why = match found {
            Ok(()) => None,
            Err(error) => Some((format!("no process can be put into one: {error}"), Instant::now())),
        };
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        fallow_daemon::lock(&self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_what_keeps_a_task_from_its_group_counts_until_one_is_in_its_own_or_a_look_finds_that_one_can() {
        let lack = Lack::none(Duration::from_secs(600));
        assert_eq!((lack.why(), lack.due_in()), (None, None));
        // A moment's shortage is nothing.
        assert!(!lack.note(&io::Error::from_raw_os_error(libc::ENOMEM)));
        assert_eq!(lack.why(), None);
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        assert!(lack.note(&gone()));
        assert!(lack.why().unwrap().contains("No such device"));
        assert!(lack.due_in().is_some_and(|due| due > Duration::from_secs(590)), "{lack:?}");
        lack.looked(&Err(gone()));
        assert!(lack.why().is_some());
        lack.looked(&Ok(()));
        assert_eq!((lack.why(), lack.due_in()), (None, None));
        lack.note(&gone());
        lack.end();
        assert_eq!(lack.why(), None);
    }
}
