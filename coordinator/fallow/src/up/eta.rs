//! How much of the work is done, and how long the rest may take (the estimated time of arrival, ETA).
//!
//! Work is counted in jobs: those that are over, and of each that runs the part that its host says is done.
//! So something moves from the first seconds on, long before two hosts have agreed on anything.

use std::time::Duration;

use fallow_proto::operator::v1::ProjectSummary;
use tokio::time::Instant;

use super::watch::FleetSnapshot;

/// What was done since the beginning has to be a fiftieth of all before it says anything about the rest.
const PART_MIN: f64 = 0.02;
/// And it has to have taken so long.
const TIME_MIN: Duration = Duration::from_secs(10);

/// Jobs that are done and those there are, of a project.
pub(super) fn jobs(project: &ProjectSummary, snapshot: &FleetSnapshot) -> (f64, f64) {
    let all = project.jobs_unsent + project.jobs_in_progress + project.jobs_over;
    let tasks = snapshot.hosts.iter().flat_map(|host| &host.tasks);
    let parts =
        tasks.filter(|task| task.project_url == project.url).map(|task| task.fraction_done.clamp(0.0, 1.0));
    // A task that is reported already may still be listed by its host.
    let running = parts.sum::<f64>().min(project.jobs_in_progress as f64);
    (project.jobs_over as f64 + running, all as f64)
}

/// When this began to watch, and what was done by then.
#[derive(Default)]
pub(super) struct Eta(Option<(Instant, f64)>);

impl Eta {
    /// How long the rest may take at the pace since the beginning; none while too little is known, or nothing
    /// is left.
    pub(super) fn left(&mut self, snapshot: &FleetSnapshot, now: Instant) -> Option<Duration> {
        let sums = snapshot.projects.iter().map(|project| jobs(project, snapshot));
        let (done, all) = sums.fold((0.0, 0.0), |sum, (done, all)| (sum.0 + done, sum.1 + all));
        let (began, before) = *self.0.get_or_insert((now, done));
        let (took, more) = (now - began, done - before);
        let is_known = took >= TIME_MIN && more >= PART_MIN * all && done < all;
        is_known.then(|| took.mul_f64(((all - done) / more).min(1e4)))
    }
}

/// A time that is left, for people: rounded as far as it is guessed.
pub(super) fn about(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..=89 => format!("about {} s left", seconds.div_ceil(10) * 10),
        seconds @ 90..=5_399 => format!("about {} min left", (seconds + 30) / 60),
        seconds => format!("about {} h left", (seconds + 1_800) / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_proto::fleet::v1::TaskState;
    use fallow_proto::operator::v1::Host;

    fn snapshot(over: u64, fraction: f64) -> FleetSnapshot {
        let project = ProjectSummary {
            url: "u".into(),
            jobs_over: over,
            jobs_in_progress: 1,
            jobs_unsent: 9 - over,
            ..ProjectSummary::default()
        };
        let task = |url: &str| TaskState {
            project_url: url.into(),
            fraction_done: fraction,
            ..TaskState::default()
        };
        let host = Host { tasks: vec![task("u"), task("other")], ..Host::default() };
        FleetSnapshot { projects: vec![project], hosts: vec![host], ..FleetSnapshot::default() }
    }

    #[test]
    fn work_moves_before_the_first_job_is_over_and_the_rest_is_guessed_from_the_pace() {
        assert_eq!(jobs(&snapshot(0, 0.5).projects[0], &snapshot(0, 0.5)), (0.5, 10.0));
        let (mut eta, began) = (Eta::default(), Instant::now());
        assert_eq!(eta.left(&snapshot(0, 0.0), began), None);
        assert_eq!(eta.left(&snapshot(4, 0.0), began + Duration::from_secs(5)), None, "too soon");
        assert_eq!(
            eta.left(&snapshot(4, 1.0), began + Duration::from_secs(50)),
            Some(Duration::from_secs(50))
        );
        let shown = [5, 61, 200, 9_000].map(|seconds| about(Duration::from_secs(seconds)));
        assert_eq!(shown, ["about 10 s left", "about 70 s left", "about 3 min left", "about 3 h left"]);
    }
}
