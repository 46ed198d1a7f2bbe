//! What the coordinator exports, asked at each export: agents, document, jobs and debt by project.

use std::sync::Arc;

use fallow_domain::MasterUrl;
use fallow_telemetry::opentelemetry::metrics::ObservableGauge;
use fallow_telemetry::{KeyValue, names};
use fallow_work_server::ProjectServer;

use crate::document::Documents;
use crate::fleet::Fleet;
use crate::fleet::totals::to_micros;

/// Keeps the instruments, and the projects that they ask.
pub(super) struct Registered {
    _instruments: Vec<ObservableGauge<f64>>,
    _projects: Arc<ProjectServer>,
}

/// Which project a figure is about.
fn of(url: &MasterUrl, name: &str) -> [KeyValue; 2] {
    [KeyValue::new(names::PROJECT, url.to_string()), KeyValue::new(names::PROJECT_NAME, name.to_owned())]
}

pub(super) fn register(
    fleet: &Arc<Fleet>,
    documents: &Arc<Documents>,
    projects: &ProjectServer,
) -> Registered {
    let meter = fallow_telemetry::meter("fallow_coordinator");
    // Weak: the exporter outlives the coordinator's state, and must not keep the store open.
    let agents = Arc::downgrade(fleet);
    let connected = names::AGENTS_CONNECTED.observed(&meter, move |to| {
        if let Some(fleet) = agents.upgrade() {
            to.observe(fleet.connected() as f64, &[]);
        }
    });
    let versions = Arc::downgrade(documents);
    let version = names::DOCUMENT_VERSION.observed(&meter, move |to| {
        if let Some(documents) = versions.upgrade() {
            to.observe(documents.document().version.0 as f64, &[]);
        }
    });
    let (agents, assigned) = (Arc::downgrade(fleet), Arc::downgrade(documents));
    let debt = names::DEBT.observed(&meter, move |to| {
        let (Some(fleet), Some(documents)) = (agents.upgrade(), assigned.upgrade()) else { return };
        for project in documents.document().projects {
            let debt = to_micros(fleet.project_totals(&project.url).debt) as f64 / 1e6;
            to.observe(debt, &of(&project.url, &project.name));
        }
    });
    // Dropped with the coordinator's own handle, see `Registered`.
    let held = Arc::new(projects.clone());
    let projects = Arc::downgrade(&held);
    let jobs = names::JOBS.observed(&meter, move |to| {
        let Some(projects) = projects.upgrade() else { return };
        for info in projects.projects() {
            let Ok(counts) = projects.counts(&info.name) else { continue };
            for (state, jobs) in [
                ("unsent", counts.jobs_unsent),
                ("in progress", counts.jobs_in_progress),
                ("over", counts.jobs_over),
            ] {
                let [url, name] = of(&info.url, &info.name);
                to.observe(jobs as f64, &[url, name, KeyValue::new(names::JOB_STATE, state)]);
            }
        }
    });
    Registered { _instruments: vec![connected, version, debt, jobs], _projects: held }
}
