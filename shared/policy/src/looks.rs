//! How often it is looked what goes on around the tasks of a host (R6.4): its battery, exclusive programs,
//! the load of other programs.
//!
//! Each look wakes the machine. So it is looked every few seconds only while the answer lets a task run or
//! stops one. A host without jobs is to know whether it may compute before it asks for some, so it is looked
//! now and then. Where something else keeps the host from computing anyway, or it has no project, nothing
//! follows from a look.
//!
//! What was seen before says nothing when looks begin, or begin to be close: no work is asked for, and no
//! task starts, before the first of them ([`Asked`]). A task that runs goes on until then. A look that does
//! not come in a minute is not waited for any longer ([`PATIENCE`]): whatever keeps the host from looking is
//! not to keep it from computing for good.

use std::fmt;

use fallow_domain::{Duration, Instant};

/// For so long jobs wait for a look. One takes far less than a second; a file of a driver that hangs may
/// never be read.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a look would be for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stakes {
    /// Jobs are here that run, or can be started now or later.
    pub jobs: bool,
    /// It has projects that could be asked for jobs.
    pub projects: bool,
    /// Something that no look can see keeps the host from computing: its owner's word, its hours, people.
    pub rests: bool,
}

/// Whether it is looked, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looking {
    /// Not at all: there is no job, and nobody to ask for one.
    #[default]
    NothingToDo,
    /// Not at all: the host rests whatever is seen.
    RestsAnyway,
    /// Now and then: it may be asked for work.
    ForFetch,
    /// Every few seconds: jobs run, or could.
    ForJobs,
}

/// How often it is looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookPace {
    /// Not at all.
    #[default]
    Never,
    /// About once a minute.
    Seldom,
    /// Every few seconds.
    Often,
}

impl Looking {
    /// What these stakes come to.
    #[must_use]
    pub const fn at(stakes: Stakes) -> Self {
        match stakes {
            Stakes { rests: true, .. } => Self::RestsAnyway,
            Stakes { jobs: true, .. } => Self::ForJobs,
            Stakes { projects: true, .. } => Self::ForFetch,
            _ => Self::NothingToDo,
        }
    }

    /// How often it is looked for that.
    #[must_use]
    pub const fn pace(self) -> LookPace {
        match self {
            Self::NothingToDo | Self::RestsAnyway => LookPace::Never,
            Self::ForFetch => LookPace::Seldom,
            Self::ForJobs => LookPace::Often,
        }
    }
}

impl fmt::Display for Looking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToDo => "nothing is looked at: there is no job here, and no project to ask for one",
            Self::RestsAnyway => "nothing is looked at: the host rests whatever would be seen",
            Self::ForFetch => {
                "it is looked about once a minute: no job is here, and projects may be asked for some"
            }
            Self::ForJobs => "it is looked every few seconds: jobs are here that run or could be started",
        })
    }
}

/// Which look was asked for, and which is the last that was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    looking: Looking,
    asked: u64,
    /// When it was asked for that.
    asked_at: Instant,
    answered: u64,
}

impl Asked {
    /// From `now` on it is looked like this. `wanted` says whether there is anything to look for: where there
    /// is nothing, nothing has to be known.
    pub fn look(&mut self, looking: Looking, wanted: bool, now: Instant) {
        if looking.pace() > self.looking.pace() {
            self.asked += 1;
            self.asked_at = now;
        }
        self.looking = looking;
        if !wanted {
            self.answered = self.asked;
        }
    }

    /// A look was made that had been asked for under this number.
    pub fn answer(&mut self, number: u64) {
        self.answered = self.answered.max(number.min(self.asked));
    }

    /// Counts a look that was asked for too long ago as made. Says whether there was one.
    pub fn give_up(&mut self, now: Instant) -> bool {
        let is_over = self.patience_ends().is_some_and(|at| at <= now);
        if is_over {
            self.answered = self.asked;
        }
        is_over
    }

    /// The clock was set back.
    pub fn observe(&mut self, now: Instant) {
        self.asked_at = self.asked_at.min(now);
    }

    /// Until when the look is waited for that is asked for, if one is.
    #[must_use]
    pub fn patience_ends(&self) -> Option<Instant> {
        self.is_stale().then(|| self.asked_at + PATIENCE)
    }

    /// How it is looked.
    #[must_use]
    pub const fn looking(&self) -> Looking {
        self.looking
    }

    /// The number of the look that was asked for last.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.asked
    }

    /// Whether what is known is older than what it is for: nothing is to be started, or asked for, before the
    /// next look.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.looking.pace() > LookPace::Never && self.answered < self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

    #[test]
    fn r6_4_it_is_looked_often_for_jobs_seldom_for_fetch_and_never_where_nothing_follows_from_it() {
        let table = [
            // jobs, projects, rests
            ((false, false, false), Looking::NothingToDo, LookPace::Never),
            ((false, true, false), Looking::ForFetch, LookPace::Seldom),
            ((true, true, false), Looking::ForJobs, LookPace::Often),
            ((true, false, false), Looking::ForJobs, LookPace::Often),
            ((false, false, true), Looking::RestsAnyway, LookPace::Never),
            ((false, true, true), Looking::RestsAnyway, LookPace::Never),
            ((true, true, true), Looking::RestsAnyway, LookPace::Never),
        ];
        for ((jobs, projects, rests), looking, pace) in table {
            let stakes = Stakes { jobs, projects, rests };
            let found = Looking::at(stakes);
            assert_eq!((found, found.pace()), (looking, pace), "{stakes:?}");
        }
    }

    #[test]
    fn r6_4_what_was_seen_before_looks_were_close_is_stale_until_the_next_look() {
        let mut asked = Asked::default();
        asked.look(Looking::ForFetch, true, NOW);
        assert!(asked.is_stale(), "what was seen before looks began was forgotten");
        asked.answer(asked.number());
        assert!(!asked.is_stale());
        asked.look(Looking::ForJobs, true, NOW);
        assert!(asked.is_stale());
        // The answer to a look of before.
        asked.answer(0);
        assert!(asked.is_stale());
        asked.answer(asked.number());
        assert!(!asked.is_stale());
        asked.look(Looking::ForJobs, true, NOW);
        assert!(!asked.is_stale(), "it goes on being looked");
        for between in [Looking::ForFetch, Looking::RestsAnyway, Looking::NothingToDo] {
            asked.look(between, true, NOW);
            assert!(!asked.is_stale());
            let before = asked.number();
            asked.look(Looking::ForJobs, true, NOW);
            assert!(asked.is_stale(), "{between:?}");
            asked.answer(before);
            assert!(asked.is_stale(), "{between:?}: that look is older");
            asked.answer(asked.number());
        }
        // A number that nobody has asked for yet answers nothing that comes later.
        asked.answer(1_000);
        asked.look(Looking::RestsAnyway, true, NOW);
        asked.look(Looking::ForJobs, true, NOW);
        assert!(asked.is_stale());
    }

    #[test]
    fn r6_4_where_nothing_is_looked_for_nothing_waits_and_what_runs_goes_on_when_that_changes() {
        let mut asked = Asked::default();
        asked.look(Looking::ForJobs, false, NOW);
        assert!(!asked.is_stale());
        asked.look(Looking::ForJobs, true, NOW);
        assert!(!asked.is_stale());
    }

    #[test]
    fn r6_4_a_look_that_never_ends_keeps_no_job_waiting_for_longer_than_a_minute() {
        let mut asked = Asked::default();
        assert_eq!((asked.patience_ends(), asked.give_up(NOW)), (None, false), "nothing was asked for");
        asked.look(Looking::ForJobs, true, NOW);
        let end = NOW + Duration::from_secs(60);
        assert_eq!(asked.patience_ends(), Some(end));
        // It goes on being asked for: that is no new question.
        asked.look(Looking::ForJobs, true, NOW + Duration::from_secs(30));
        assert!(!asked.give_up(end - Duration::from_secs(1)) && asked.is_stale());
        assert!(asked.give_up(end) && !asked.is_stale());
        assert_eq!((asked.patience_ends(), asked.give_up(end)), (None, false), "once");
        // The next question has its own minute, also where the clock is set back in it.
        asked.look(Looking::RestsAnyway, true, end);
        asked.look(Looking::ForJobs, true, end);
        assert_eq!(asked.patience_ends(), Some(end + PATIENCE));
        asked.observe(NOW);
        assert_eq!(asked.patience_ends(), Some(end));
        // One that was answered is not given up.
        asked.answer(asked.number());
        assert!(!asked.give_up(end + PATIENCE));
    }
}
