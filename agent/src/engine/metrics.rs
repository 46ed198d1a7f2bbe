//! What goes out as OpenTelemetry metrics (R6.7).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fallow_client::{Client, Phase, ProjectView, Totals};
use fallow_domain::agent_state::DiskSpace;
use fallow_domain::{Fraction, ProjectId};
use fallow_telemetry::names::{
    CPU_TIME, DEBT, DISK_DELETED, DISK_DELETED_FILES, DISK_GIVEN_BACK, DISK_LIMIT, DISK_MISSING, DISK_USED,
    DOCUMENT_VERSION, IDLENESS, MONOTONY, Metric, OUTCOME, PROJECT, PROJECT_NAME, RPCS, SHARE_DEVIATION,
    SHARE_VIOLATION, TASK_STATE, TASKS, WASTE,
};
use fallow_telemetry::opentelemetry::metrics::AsyncInstrument;
use fallow_telemetry::{KeyValue, meter};

use crate::control::status::phase;

/// How often the figures are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// A figure and what it is about.
type Point = (f64, Vec<KeyValue>);

/// What the observers see: the figures as they were at the last look.
#[derive(Default)]
struct Observed(BTreeMap<&'static str, Vec<Point>>);

/// The agent's metrics.
pub(super) struct Metrics {
    observed: Arc<Mutex<Observed>>,
    last: Option<Instant>,
}

impl Metrics {
    /// Registers the instruments.
    pub(super) fn new() -> Self {
        let meter = meter("fallow_agent");
        let observed: Arc<Mutex<Observed>> = Arc::default();
        let gauges =
            [TASKS, DEBT, DOCUMENT_VERSION, IDLENESS, WASTE, SHARE_VIOLATION, SHARE_DEVIATION, MONOTONY];
        for metric in gauges.into_iter().chain([DISK_LIMIT, DISK_USED, DISK_MISSING]) {
            let _ = metric.observed(&meter, observer(metric, &observed));
        }
        for metric in [CPU_TIME, RPCS, DISK_DELETED, DISK_DELETED_FILES, DISK_GIVEN_BACK] {
            let _ = metric.observed_total(&meter, observer(metric, &observed));
        }
        Self { observed, last: None }
    }

    /// Looks at the client, if the last look is a second old.
    pub(super) fn update(&mut self, client: &Client) {
        if self.last.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.last = Some(Instant::now());
        let mut observed = Observed::default();
        observed.host(client);
        if let Some(space) = client.disk_space() {
            observed.disk(&space);
        }
        for view in client.project_views() {
            observed.project(&of(&view), view.debt, &view.totals);
        }
        observed.tasks(client);
        *fallow_daemon::lock(&self.observed) = observed;
    }
}

impl Observed {
    fn host(&mut self, client: &Client) {
        let view = client.host_view();
        self.put(DOCUMENT_VERSION, view.document_version.0 as f64, vec![]);
        let day = &view.figures[0];
        for (metric, value) in [
            (IDLENESS, day.idleness),
            (WASTE, day.waste),
            (SHARE_VIOLATION, day.share_violation),
            (SHARE_DEVIATION, day.share_deviation),
            (MONOTONY, day.monotony),
        ] {
            if let Some(value) = value.map(Fraction::get) {
                self.put(metric, value, vec![]);
            }
        }
    }

    /// What was done about the disk is counted since the agent's start (R4.13).
    fn disk(&mut self, space: &DiskSpace) {
        let DiskSpace { limit, used, missing, deleted_files, deleted, jobs_given_back, .. } = space;
        for (metric, value) in [
            (DISK_LIMIT, limit.0),
            (DISK_USED, used.0),
            (DISK_MISSING, missing.0),
            (DISK_DELETED, deleted.0),
            (DISK_DELETED_FILES, *deleted_files),
            (DISK_GIVEN_BACK, *jobs_given_back),
        ] {
            self.put(metric, value as f64, vec![]);
        }
    }

    /// Totals are those since the store was made (R6.3), by outcome; CPU time of jobs that are not over has
    /// none yet.
    fn project(&mut self, project: &[KeyValue], debt: f64, totals: &Totals) {
        let labels = |outcome| [project, &[KeyValue::new(OUTCOME, outcome)]].concat();
        for (outcome, cpu) in
            [("success", totals.cpu_success), ("error", totals.cpu_error), ("late", totals.cpu_late)]
        {
            self.put(CPU_TIME, cpu.as_secs_f64(), labels(outcome));
        }
        let good = totals.rpcs.saturating_sub(totals.rpc_failures);
        for (outcome, n) in [("success", good), ("failure", totals.rpc_failures)] {
            self.put(RPCS, n as f64, labels(outcome));
        }
        self.put(DEBT, debt, project.to_vec());
    }

    fn tasks(&mut self, client: &Client) {
        let mut projects = BTreeMap::new();
        let mut counts: BTreeMap<(ProjectId, Phase), u32> = BTreeMap::new();
        for view in client.project_views() {
            projects.insert(view.id, of(&view));
        }
        for task in client.task_views() {
            *counts.entry((task.project, task.phase)).or_default() += 1;
        }
        for ((project, at), n) in counts {
            let project = projects.get(&project).cloned().unwrap_or_default();
            self.put(TASKS, n.into(), [project, vec![KeyValue::new(TASK_STATE, phase(at))]].concat());
        }
    }

    fn put(&mut self, metric: Metric, value: f64, labels: Vec<KeyValue>) {
        self.0.entry(metric.name).or_default().push((value, labels));
    }
}

/// Which project a figure is about.
fn of(view: &ProjectView) -> Vec<KeyValue> {
    vec![KeyValue::new(PROJECT, view.url.to_string()), KeyValue::new(PROJECT_NAME, view.name.clone())]
}

/// What an instrument calls at each export.
fn observer(
    metric: Metric,
    observed: &Arc<Mutex<Observed>>,
) -> impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static {
    let observed = Arc::clone(observed);
    move |instrument: &dyn AsyncInstrument<f64>| {
        let observed = fallow_daemon::lock(&observed);
        for (value, labels) in observed.0.get(metric.name).into_iter().flatten() {
            instrument.observe(*value, labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_7_cpu_time_and_rpcs_go_out_as_totals_by_outcome() {
        let secs = fallow_domain::Duration::from_secs;
        let totals = Totals {
            cpu: secs(10),
            cpu_in_progress: secs(1),
            cpu_success: secs(4),
            cpu_error: secs(3),
            cpu_late: secs(2),
            rpcs: 7,
            rpc_failures: 2,
            ..Totals::default()
        };
        let mut observed = Observed::default();
        observed.project(&[KeyValue::new(PROJECT, "http://p.example/")], -1.5, &totals);
        let values = |metric: Metric| observed.0[metric.name].iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(values(CPU_TIME), [4.0, 3.0, 2.0]);
        assert_eq!(values(RPCS), [5.0, 2.0]);
        assert_eq!(values(DEBT), [-1.5]);
    }
    #[test]
    fn r4_13_how_it_stands_with_the_disk_goes_out_with_what_was_done_about_it() {
        let bytes = fallow_domain::Bytes;
        let space = DiskSpace {
            limit: bytes(1),
            used: bytes(2),
            missing: bytes(3),
            deleted: bytes(4),
            deleted_files: 5,
            jobs_given_back: 6,
            ..DiskSpace::default()
        };
        let mut observed = Observed::default();
        observed.disk(&space);
        let all = [DISK_LIMIT, DISK_USED, DISK_MISSING, DISK_DELETED, DISK_DELETED_FILES, DISK_GIVEN_BACK];
        assert_eq!(all.map(|metric| observed.0[metric.name][0].0), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    /// Shows R6.7.
    #[test]
    fn all_metrics_go_out_by_the_keys_that_they_have_everywhere() {
        let keys = fallow_domain::Metric::ALL.map(|metric| format!("fallow.{}", metric.key()));
        let names = [IDLENESS, WASTE, SHARE_VIOLATION, SHARE_DEVIATION, MONOTONY].map(|metric| metric.name);
        assert_eq!(names.as_slice(), keys);
    }
}
