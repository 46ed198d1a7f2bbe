//! What a demonstration says: bars on a terminal, plain lines elsewhere, JSON for programs.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use fallow_proto::operator::v1::ProjectSummary;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::summary::Summary;
use super::watch::Scene;
use crate::cli::table;
use crate::cli::{Failure, host_json, percent, print, project_json};

/// How often a plain line is written.
const LINES: Duration = Duration::from_secs(5);

const LEGEND: &str = "\
CPU share: a project's part of the CPU time used while both projects had work on a host; only then can shares be kept.
After a change of shares it is counted anew.
Debt: CPU seconds that a project is owed (+) or has had too early (-), over all agents.";

/// Where it is said.
pub(super) struct Reporter {
    mode: Mode,
    began: Instant,
}

enum Mode {
    Bars { all: MultiProgress, bars: RefCell<Vec<ProgressBar>> },
    Lines { last: Cell<Option<Instant>> },
    Json,
}

impl Reporter {
    pub(super) fn new(json: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let mode = match (json, is_terminal) {
            (true, _) => Mode::Json,
            (false, true) => Mode::Bars { all: MultiProgress::new(), bars: RefCell::default() },
            (false, false) => Mode::Lines { last: Cell::new(None) },
        };
        Self { mode, began: Instant::now() }
    }

    /// Something happened.
    pub(super) fn say(&self, event: &str, text: &str) {
        // Nobody reads standard output any more: then nobody is told.
        let _ = match &self.mode {
            Mode::Json => {
                print(&format!("{}\n", json!({ "event": event, "seconds": self.seconds(), "text": text })))
            }
            Mode::Bars { all, .. } => all.suspend(|| print(&format!("{text}\n"))),
            Mode::Lines { .. } => print(&format!("{text}\n")),
        };
    }

    /// How the fleet stands now.
    pub(super) fn progress(&self, scene: &Scene) {
        match &self.mode {
            Mode::Json => {
                let projects: Vec<_> = scene.projects.iter().map(without_key).collect();
                let hosts: Vec<_> = scene.hosts.iter().map(host_json).collect();
                let line = json!({
                    "event": "progress",
                    "seconds": self.seconds(),
                    "document_version": scene.document_version,
                    "projects": projects,
                    "hosts": hosts,
                });
                let _ = print(&format!("{line}\n"));
            }
            Mode::Bars { all, bars } => draw(all, &mut bars.borrow_mut(), scene),
            Mode::Lines { last } => {
                if last.get().is_none_or(|last| last.elapsed() >= LINES) {
                    last.set(Some(Instant::now()));
                    let _ = print(&format!("{}\n", self.line(scene)));
                }
            }
        }
    }

    /// Says what the figures are, once.
    pub(super) fn legend(&self) {
        if !matches!(self.mode, Mode::Json) {
            self.say("legend", LEGEND);
        }
    }

    /// Takes the bars away after a key such as Ctrl-C. The terminal has shown it as `^C` behind the bars, whose last line
    /// fills the width: so the cursor is a line lower than the bars left it, and the first would stay.
    pub(super) fn clear_after_key(&self) {
        if let Mode::Bars { bars, .. } = &self.mode
            && !bars.borrow().is_empty()
        {
            use std::io::Write as _;
            // As with all that is drawn: a terminal that is gone shows nothing.
            let _ = std::io::stderr().write_all(b"\r\x1b[K\x1b[A");
        }
        self.clear();
    }

    /// Takes the bars away.
    pub(super) fn clear(&self) {
        if let Mode::Bars { all, bars } = &self.mode {
            // A terminal that is gone has nothing to be cleared.
            let _ = all.clear();
            // A bar draws itself and the others once more as it goes: nowhere, then.
            all.set_draw_target(ProgressDrawTarget::hidden());
            bars.borrow_mut().drain(..).for_each(|bar| all.remove(&bar));
        }
    }

    /// The end of it.
    pub(super) fn summary(&self, summary: &Summary) -> Result<(), Failure> {
        match &self.mode {
            Mode::Json => print(&format!("{}\n", summary.to_json())),
            _ => print(&summary.to_text()),
        }
    }

    fn seconds(&self) -> f64 {
        (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0
    }

    fn line(&self, scene: &Scene) -> String {
        let mut parts = vec![format!("{:>5.0} s", self.seconds()), agents(scene)];
        parts.extend(scene.projects.iter().map(|project| {
            format!(
                "{}: {}/{} validated, {}",
                project.name,
                project.workunits_validated,
                project.workunits,
                share(project, scene)
            )
        }));
        parts.join(" | ")
    }
}

/// The operator's JSON of a project, without its secret: this output ends up in logs.
pub(super) fn without_key(project: &ProjectSummary) -> serde_json::Value {
    let mut value = project_json(project);
    if let Some(object) = value.as_object_mut() {
        object.remove("account_key");
    }
    value
}

fn agents(scene: &Scene) -> String {
    let connected = scene.hosts.iter().filter(|host| host.connected).count();
    format!("{connected}/{} agents", scene.hosts.len())
}

/// Its part of the CPU time while both had work, against its target, and its debt.
fn share(project: &ProjectSummary, scene: &Scene) -> String {
    let contested: f64 = scene.projects.iter().map(|project| scene.contested(project) as f64).sum();
    let shares: f64 = scene.projects.iter().map(|project| project.share).sum();
    let part = match contested > 0.0 {
        true => percent(scene.contested(project) as f64, contested),
        false => "not known yet".to_owned(),
    };
    let target = percent(project.share, shares);
    format!("CPU share {part} (target {target}), debt {}", table::debt(project.debt_seconds))
}

fn draw(all: &MultiProgress, bars: &mut Vec<ProgressBar>, scene: &Scene) {
    if bars.is_empty() {
        all.set_draw_target(ProgressDrawTarget::stderr());
    }
    while bars.len() < scene.projects.len() + 1 {
        bars.push(all.add(ProgressBar::new(1)));
    }
    let style = |template: &str| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    for (bar, project) in bars.iter().zip(&scene.projects) {
        bar.set_style(style("{prefix:12} [{bar:30}] {pos}/{len} validated  {msg}").progress_chars("=> "));
        bar.set_length(project.workunits);
        bar.set_position(project.workunits_validated);
        bar.set_prefix(project.name.clone());
        bar.set_message(share(project, scene));
    }
    if let Some(last) = bars.last() {
        let running: usize = scene.hosts.iter().map(running).sum();
        last.set_style(style("{prefix:12} {msg}  ({elapsed})"));
        last.set_prefix("fleet");
        let version = scene.document_version;
        last.set_message(format!("{} connected, {running} tasks run, document {version}", agents(scene)));
    }
}

fn running(host: &fallow_proto::operator::v1::Host) -> usize {
    host.tasks.iter().filter(|task| task.phase() == fallow_proto::fleet::v1::TaskPhase::Running).count()
}
