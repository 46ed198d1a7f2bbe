//! How long a project's downloads are waited for (R2.16).
//!
//! Model: two clocks for each project, a pure function of what is seen and when. The first is patient and
//! begins anew with every change of what is under way: when it ends, the downloads are late, and none of the
//! project's incoming jobs is work to reckon with. The second runs only while CPUs idle that a job of this
//! project would use if its files were here: [`EACH`] since that began or a file came last, [`AT_ALL`]
//! however many come. When it ends, the project's CPU jobs are passed over, so that another project is asked
//! for some; that one has a clock of its own. So asking goes from one project to the next every half minute,
//! and what is held too much while files are slow is a buffer for each half minute, not one of every project.
//!
//! Others' jobs on those CPUs do not make the files come: a project that was passed over is waited for again
//! when one of its files comes.

use std::collections::BTreeSet;

use fallow_domain::{Duration, Instant};
use fallow_policy::backoff::Wait;

use crate::FileKey;

/// CPUs idle so long for the files of a project before others are asked, since the last that came.
const EACH: Duration = Duration::from_secs(30);
/// And so long for files that come one after the other, but never the last that a job needs.
const AT_ALL: Duration = Duration::from_mins(2);

/// The downloads of a project that are under way.
#[derive(Debug)]
pub(crate) struct UnderWay {
    files: BTreeSet<FileKey>,
    /// Since one of them ended or another began.
    patience: Wait,
    late: bool,
    /// While CPUs idle for them.
    idle: Option<Idle>,
    passed_over: bool,
}

/// How long CPUs go on idling for the files of one project.
#[derive(Debug)]
struct Idle {
    each: Wait,
    at_all: Wait,
}

/// What is seen of a project's downloads.
#[derive(Debug)]
pub(crate) struct DownloadsNow {
    /// Those that are under way.
    pub files: BTreeSet<FileKey>,
    /// One that was is here now.
    pub came: bool,
    /// In which time the next is expected.
    pub patience: Duration,
    /// CPUs idle that could run a job if its files were here.
    pub cpus_wait: bool,
}

impl UnderWay {
    pub(crate) fn new(now: Instant) -> Self {
        let files = BTreeSet::new();
        Self { files, patience: Wait::new(now, Duration::ZERO), late: false, idle: None, passed_over: false }
    }

    pub(crate) const fn files(&self) -> &BTreeSet<FileKey> {
        &self.files
    }

    /// Whether none came for so long that they are no longer reckoned with.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    /// Whether CPUs that idle are no longer kept for them.
    pub(crate) const fn is_passed_over(&self) -> bool {
        self.passed_over
    }

    /// Takes in what is seen now. Says whether something is held of them that was not before.
    pub(crate) fn look(&mut self, now: Instant, seen: DownloadsNow) -> bool {
        let before = (self.late, self.passed_over);
        self.patience.observe(now);
        if self.files != seen.files {
            self.files = seen.files;
            self.patience = Wait::new(now, seen.patience);
            self.late = false;
        }
        self.late |= !self.patience.holds(now);
        self.idle = self.idle.take().filter(|_| seen.cpus_wait);
        if seen.cpus_wait {
            let idle = self.idle.get_or_insert_with(|| Idle::new(now));
            idle.look(now, seen.came);
        }
        self.passed_over &= !seen.came;
        self.passed_over |= self.idle.as_ref().is_some_and(|idle| idle.until() <= now);
        before != (self.late, self.passed_over)
    }

    /// When something else is held of them if nothing happens.
    pub(crate) fn next(&self) -> Instant {
        let late = (!self.late).then(|| self.patience.until());
        let passed_over = self.idle.as_ref().filter(|_| !self.passed_over).map(Idle::until);
        late.into_iter().chain(passed_over).min().unwrap_or(Instant::FAR_FUTURE)
    }
}

impl Idle {
    fn new(now: Instant) -> Self {
        Self { each: Wait::new(now, EACH), at_all: Wait::new(now, AT_ALL) }
    }

    fn look(&mut self, now: Instant, came: bool) {
        self.each.observe(now);
        self.at_all.observe(now);
        if came {
            self.each = Wait::new(now, EACH);
        }
    }

    fn until(&self) -> Instant {
        self.each.until().min(self.at_all.until())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ProjectId;

    /// What is held of downloads each ten seconds, given which files are under way (a number, the same for
    /// the same ones), whether one came, and whether CPUs wait: late and passed over.
    fn held(steps: &[(u32, bool, bool)]) -> Vec<(bool, bool)> {
        let begin = Instant::from_secs_f64(1.8e9);
        let mut under_way = UnderWay::new(begin);
        let look = |(step, &(number, came, cpus_wait)): (usize, &(u32, bool, bool))| {
            let key = FileKey { project: ProjectId(1), name: number.to_string() };
            let (files, patience) = (BTreeSet::from([key]), Duration::from_mins(15));
            let now = begin + Duration::from_secs(10) * step as i64;
            let _ = under_way.look(now, DownloadsNow { files, came, patience, cpus_wait });
            (under_way.is_late(), under_way.is_passed_over())
        };
        steps.iter().enumerate().map(look).collect()
    }

    fn passed_over(steps: &[(u32, bool, bool)]) -> Vec<usize> {
        let held = held(steps).into_iter().enumerate();
        held.filter(|(_, (_, passed_over))| *passed_over).map(|(step, _)| step).collect()
    }

    #[test]
    fn r2_16_idle_cpus_are_kept_half_a_minute_for_files_that_do_not_come() {
        assert_eq!(passed_over(&[(0, false, true); 6]), [3, 4, 5]);
    }

    #[test]
    fn r2_16_files_are_late_after_their_time_and_not_before_where_no_cpu_waits_for_them() {
        let held = held(&[(0, false, false); 92]);
        assert!(held[..90].iter().all(|held| *held == (false, false)));
        assert_eq!(held[90..], [(true, false), (true, false)]);
    }

    #[test]
    fn r2_16_the_half_minute_is_counted_while_cpus_wait() {
        let mut steps = [(0, false, false); 40];
        steps[20..22].fill((0, false, true));
        steps[30..].fill((0, false, true));
        assert_eq!(passed_over(&steps), (33..40).collect::<Vec<_>>());
    }

    #[test]
    fn r2_16_a_file_that_comes_gives_the_next_its_own_half_minute_and_all_together_have_two() {
        let steps: Vec<_> = (0..20).map(|step| (step / 2, step > 0 && step % 2 == 0, true)).collect();
        assert_eq!(passed_over(&steps), (12..20).collect::<Vec<_>>());
        // One that failed or was only added gives none.
        let steps: Vec<_> = (0..6).map(|step| (step / 2, false, true)).collect();
        assert_eq!(passed_over(&steps), [3, 4, 5]);
    }

    #[test]
    fn r2_16_who_was_passed_over_is_waited_for_again_when_a_file_comes() {
        let mut steps = [(0, false, true); 12];
        steps[5..].fill((0, false, false));
        steps[9] = (1, true, false);
        steps[10..].fill((1, false, false));
        assert_eq!(passed_over(&steps), (3..9).collect::<Vec<_>>());
    }

    #[test]
    fn r1_12_a_clock_that_is_set_back_makes_no_wait_longer() {
        let begin = Instant::from_secs_f64(1.8e9);
        let mut under_way = UnderWay::new(begin);
        let files = BTreeSet::from([FileKey { project: ProjectId(1), name: String::new() }]);
        let patience = Duration::from_mins(15);
        let mut look = |secs: i64| {
            let seen = DownloadsNow { files: files.clone(), came: false, patience, cpus_wait: true };
            under_way.look(begin + Duration::from_secs(secs), seen);
            under_way.is_passed_over()
        };
        assert_eq!([0, -1_000, -980, -970].map(&mut look), [false, false, false, true]);
    }
}
