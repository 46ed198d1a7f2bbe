//! What goes out as OpenTelemetry metrics (R6.7).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fallow_client::{Client, Phase, Totals};
use fallow_domain::{Fraction, ProjectId};
use fallow_telemetry::names::{
    CPU_TIME, DEBT, DOCUMENT_VERSION, IDLENESS, MONOTONY, Metric, OUTCOME, PROJECT, RPCS, SHARE_VIOLATION,
    TASK_STATE, TASKS, WASTE,
};
use fallow_telemetry::opentelemetry::metrics::{AsyncInstrument, Counter, Meter};
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
    cpu: Counter<f64>,
    rpcs: Counter<u64>,
    /// Totals as they were counted last. Counters tell what happened in this life of the agent, so the first look at a
    /// project counts nothing.
    counted: BTreeMap<ProjectId, Totals>,
    last: Option<Instant>,
}

impl Metrics {
    /// Registers the instruments.
    pub(super) fn new() -> Self {
        let meter = meter("fallow_agent");
        let observed: Arc<Mutex<Observed>> = Arc::default();
        for metric in [TASKS, DEBT, DOCUMENT_VERSION, IDLENESS, WASTE, SHARE_VIOLATION, MONOTONY] {
            observe(metric, &meter, &observed);
        }
        let (cpu, rpcs) = (CPU_TIME.f64_counter(&meter), RPCS.u64_counter(&meter));
        Self { observed, cpu, rpcs, counted: BTreeMap::new(), last: None }
    }

    /// Looks at the client, if the last look is a second old.
    pub(super) fn update(&mut self, client: &Client) {
        if self.last.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.last = Some(Instant::now());
        self.count(client);
        let mut observed = Observed::default();
        observed.host(client);
        observed.projects(client);
        observed.tasks(client);
        *self.observed.lock().unwrap_or_else(PoisonError::into_inner) = observed;
    }

    fn count(&mut self, client: &Client) {
        let views = client.project_views();
        self.counted.retain(|id, _| views.iter().any(|view| view.id == *id));
        for view in views {
            let (id, now) = (view.id, view.totals);
            let before = *self.counted.entry(id).or_insert(now);
            self.counted.insert(id, now);
            let labels =
                |outcome| [KeyValue::new(PROJECT, view.name.clone()), KeyValue::new(OUTCOME, outcome)];
            for (outcome, now, before) in [
                ("success", now.cpu_success, before.cpu_success),
                ("error", now.cpu_error, before.cpu_error),
                ("late", now.cpu_late, before.cpu_late),
            ] {
                let used = (now - before).as_secs_f64();
                if used > 0.0 {
                    self.cpu.add(used, &labels(outcome));
                }
            }
            let failures = now.rpc_failures.saturating_sub(before.rpc_failures);
            let calls = now.rpcs.saturating_sub(before.rpcs);
            for (outcome, n) in [("success", calls.saturating_sub(failures)), ("failure", failures)] {
                if n > 0 {
                    self.rpcs.add(n, &labels(outcome));
                }
            }
        }
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
            (MONOTONY, day.monotony),
        ] {
            if let Some(value) = value.map(Fraction::get) {
                self.put(metric, value, vec![]);
            }
        }
    }

    fn projects(&mut self, client: &Client) {
        for view in client.project_views() {
            self.put(DEBT, view.debt, vec![KeyValue::new(PROJECT, view.name)]);
        }
    }

    fn tasks(&mut self, client: &Client) {
        let mut names = BTreeMap::new();
        let mut counts: BTreeMap<(ProjectId, Phase), u32> = BTreeMap::new();
        for view in client.project_views() {
            names.insert(view.id, view.name);
        }
        for task in client.task_views() {
            *counts.entry((task.project, task.phase)).or_default() += 1;
        }
        for ((project, at), n) in counts {
            let name = names.get(&project).cloned().unwrap_or_default();
            self.put(
                TASKS,
                n.into(),
                vec![KeyValue::new(PROJECT, name), KeyValue::new(TASK_STATE, phase(at))],
            );
        }
    }

    fn put(&mut self, metric: Metric, value: f64, labels: Vec<KeyValue>) {
        self.0.entry(metric.name).or_default().push((value, labels));
    }
}

fn observe(metric: Metric, meter: &Meter, observed: &Arc<Mutex<Observed>>) {
    let observed = Arc::clone(observed);
    let _ = metric.observed(meter, move |instrument: &dyn AsyncInstrument<f64>| {
        let observed = observed.lock().unwrap_or_else(PoisonError::into_inner);
        for (value, labels) in observed.0.get(metric.name).into_iter().flatten() {
            instrument.observe(*value, labels);
        }
    });
}
