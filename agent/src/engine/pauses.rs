//! Who has paused computing until when.
//!
//! Model: each person of a machine has a pause of his own, and computing is paused until the last of them is
//! over. So nobody ends or shortens what somebody else has asked for, but the agent's own user and root,
//! whose word replaces all of it.
//!
//! Left out: a restart. The client stores until when computing is paused, and not by whom. A pause that is
//! stored already belongs to nobody who is known, so only the agent's own user and root end it.

use std::collections::BTreeMap;

use fallow_client::{SNOOZE_MAX, SNOOZE_SAME};
use fallow_domain::{Duration, Instant};

/// Most people whose pauses are told apart.
const PEOPLE_MAX: usize = 100;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The agent's own user, or root.
    Owner(u32),
    /// Another user.
    Person(u32),
}

/// A pause that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) until: Instant,
    /// Whose it is, if that is known.
    pub(super) by: Option<u32>,
}

/// Until when each of them has paused computing. Under none is what nobody is known for.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<Option<u32>, Instant>);

impl Pauses {
    /// Somebody wants computing to be paused for so long, or, for none, his pause to be over. `holds` says
    /// until when it is paused before that. Gives what is in force then.
    ///
    /// # Errors
    /// The pause of somebody else that is in force, where he wants one to be over and has none.
    pub(super) fn ask(
        &mut self,
        asker: Asker,
        time: Duration,
        now: Instant,
        holds: Option<Instant>,
    ) -> Result<Option<Pause>, Pause> {
        self.look(now, holds);
        let (Asker::Owner(user) | Asker::Person(user)) = asker;
        if matches!(asker, Asker::Owner(_)) {
            self.0.clear();
        }
        let had = self.0.remove(&Some(user)).is_some();
        if time.is_positive() {
            if self.0.len() >= PEOPLE_MAX {
                self.merge_two();
            }
            self.0.insert(Some(user), now + time.min(SNOOZE_MAX));
            return Ok(self.last());
        }
        match self.last() {
            Some(pause) if !had => Err(pause),
            last => Ok(last),
        }
    }

    /// Forgets what is over, and learns of what was stored before.
    fn look(&mut self, now: Instant, holds: Option<Instant>) {
        let Some(holds) = holds.filter(|until| *until > now) else { return self.0.clear() };
        // The clock may have been set back.
        let holds = holds.min(now + SNOOZE_MAX);
        for until in self.0.values_mut().filter(|until| until.since(holds) >= SNOOZE_SAME) {
            *until = holds;
        }
        self.0.retain(|_, until| *until > now);
        if self.last().is_none_or(|pause| holds.since(pause.until) >= SNOOZE_SAME) {
            self.0.insert(None, holds);
        }
    }

    /// Takes the one that is over first for one of nobody who is known. It holds all the same.
    fn merge_two(&mut self) {
        let first = self.0.iter().filter(|(by, _)| by.is_some()).min_by_key(|(_, until)| **until);
        if let Some((by, until)) = first.map(|(by, until)| (*by, *until)) {
            self.0.remove(&by);
            let unknown = self.0.entry(None).or_insert(until);
            *unknown = (*unknown).max(until);
        }
    }

    /// The one that is over last.
    fn last(&self) -> Option<Pause> {
        let last = self.0.iter().max_by_key(|(_, until)| **until);
        last.map(|(&by, &until)| Pause { until, by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Asker = Asker::Owner(0);
    const ANN: Asker = Asker::Person(1);
    const BEN: Asker = Asker::Person(2);

    /// Until which minute computing is paused and by whom, or who alone may end that.
    type Said = Result<Option<(i64, Option<u32>)>, u32>;

    /// What is said after each.
    fn after(asked: &[(Asker, i64)], mut holds: Option<i64>) -> Vec<Said> {
        let (mut pauses, now) = (Pauses::default(), Instant::from_micros(0));
        let minutes = |until: Instant| until.since(now).as_micros() / 60_000_000;
        let mut ask = |&(asker, time): &(Asker, i64)| {
            let held = holds.map(|time| now + Duration::from_mins(time));
            let said = pauses.ask(asker, Duration::from_mins(time), now, held);
            if let Ok(pause) = said {
                holds = pause.map(|pause| minutes(pause.until));
            }
            let shown = |pause: Pause| (minutes(pause.until), pause.by);
            said.map(|pause| pause.map(shown)).map_err(|pause| pause.by.unwrap_or_default())
        };
        asked.iter().map(&mut ask).collect()
    }

    #[test]
    fn r6_4_nobody_ends_or_shortens_a_pause_of_somebody_else_but_the_owner() {
        let ann = Ok(Some((120, Some(1))));
        assert_eq!(after(&[(ANN, 120), (BEN, 0)], None), [ann, Err(1)]);
        assert_eq!(after(&[(ANN, 120), (BEN, 1), (BEN, 0), (ANN, 0)], None), [ann, ann, ann, Ok(None)]);
        let ben = Ok(Some((180, Some(2))));
        assert_eq!(after(&[(ANN, 120), (BEN, 180), (BEN, 0)], None), [ann, ben, ann]);
        assert_eq!(after(&[(ANN, 120), (BEN, 180), (ANN, 0), (ANN, 0)], None), [ann, ben, ben, Err(2)]);
        assert_eq!(after(&[(ANN, 120), (ANN, 10)], None), [ann, Ok(Some((10, Some(1))))]);
        assert_eq!(after(&[(ANN, 120), (ROOT, 10)], None), [ann, Ok(Some((10, Some(0))))]);
        assert_eq!(after(&[(ANN, 120), (ROOT, 0), (BEN, 0)], None), [ann, Ok(None), Ok(None)]);
    }

    #[test]
    fn r6_4_a_pause_from_before_the_agent_was_started_is_ended_by_the_owner_alone() {
        let unknown = Ok(Some((60, None)));
        assert_eq!(after(&[(ANN, 0), (ANN, 5), (ANN, 0)], Some(60)), [Err(0), unknown, unknown]);
        assert_eq!(after(&[(ROOT, 0)], Some(60)), [Ok(None)]);
    }

    #[test]
    fn r6_4_a_clock_that_is_set_back_makes_no_pause_longer_and_takes_it_from_nobody() {
        let (mut pauses, days) =
            (Pauses::default(), |days: i64| Instant::from_micros(0) + Duration::from_hours(24 * days));
        let until = days(40) + Duration::from_hours(10);
        assert_eq!(
            pauses.ask(ANN, Duration::from_hours(10), days(40), None),
            Ok(Some(Pause { until, by: Some(1) }))
        );
        // The client has not seen that it was, and then it has.
        let cut = Ok(Some(Pause { until: days(11), by: Some(1) }));
        assert_eq!(pauses.ask(BEN, Duration::from_secs(1), days(10), Some(until)), cut);
        let later = days(10) + Duration::from_hours(5);
        assert_eq!(pauses.ask(BEN, Duration::from_secs(1), later, Some(days(11))), cut);
        assert_eq!(pauses.ask(ANN, Duration::ZERO, later + Duration::from_secs(2), Some(days(11))), Ok(None));
    }

    #[test]
    fn r6_4_of_two_pauses_with_hardly_another_end_each_is_its_own() {
        let (mut pauses, now, hour) = (Pauses::default(), Instant::from_micros(0), Duration::from_hours(1));
        let at = |secs| now + Duration::from_secs(secs);
        assert!(pauses.ask(ANN, hour, now, None).is_ok());
        // The client keeps the first end.
        let stored = Some(now + hour);
        let ben = Ok(Some(Pause { until: at(3) + hour, by: Some(2) }));
        assert_eq!(pauses.ask(BEN, hour, at(3), stored), ben);
        assert_eq!(pauses.ask(ANN, Duration::ZERO, at(4), stored), ben);
        assert_eq!(pauses.ask(BEN, Duration::ZERO, at(5), stored), Ok(None));
    }

    #[test]
    fn r6_4_many_people_cannot_have_the_pause_of_one_forgotten() {
        let mut asked = vec![(ANN, 10)];
        asked.extend((2..300).map(|user| (Asker::Person(user), 100)));
        asked.extend((2..300).map(|user| (Asker::Person(user), 0)));
        let last = after(&asked, None).pop().unwrap();
        assert!(last.is_err() || last.is_ok_and(|pause| pause.is_some()), "{last:?}");
    }
}
