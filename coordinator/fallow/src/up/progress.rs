//! What a demonstration says: bars on a terminal, plain lines elsewhere, JSON for programs.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use fallow_domain::DocumentVersion;
use fallow_proto::operator::v1::ProjectSummary;
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::eta::{self, Eta};
use super::summary::Summary;
use super::watch::FleetSnapshot;
use crate::cli::screen;
use crate::cli::table;
use crate::cli::{Failure, host_json, percent, print, project_json};

/// How often a plain line is written.
const LINES: Duration = Duration::from_secs(5);

const BARS: &str = "Bars: jobs that are over, and of those that run the part that is done.";
const JOBS: &str = "Jobs done: those that are over, and of those that run the part that is done.";
const SHARE: &str = "\
Share: a project's part of the CPU time used while both projects had work on a host, as only then shares can be kept, \
against what it should be. It is counted anew after a change of shares, and told once a minute of such time was used.";
const DEBT: &str = "Debt: CPU seconds that a project is owed (+) or has had too early (-), over all agents.";

/// Contested CPU time of all projects together, in microseconds, below which nothing is said about shares:
/// jobs take turns every few seconds, so that of less the one that came first would have most.
pub(super) const JUDGED_FROM: f64 = 60e6;
/// Columns from which there is room for the debts beside the bars.
const WIDE: usize = 100;

/// Where it is said.
pub(super) struct Reporter {
    mode: Mode,
    began: Instant,
    eta: RefCell<Eta>,
    /// How the fleet stood last, while that is shown by bars alone.
    last: RefCell<Option<String>>,
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
        Self { mode, began: Instant::now(), eta: RefCell::default(), last: RefCell::default() }
    }

    /// Something happened.
    pub(super) fn say(&self, event: &str, text: &str) {
        // Nobody reads standard output any more: then nobody is told.
        let _ = match &self.mode {
            Mode::Json => {
                print(&format!("{}\n", json!({ "event": event, "seconds": self.seconds(), "text": text })))
            }
            Mode::Bars { all, .. } => {
                all.suspend(|| print(&format!("{}\n", screen::told(text, screen::width()))))
            }
            Mode::Lines { .. } => print(&format!("{text}\n")),
        };
    }

    /// How the fleet stands now.
    pub(super) fn progress(&self, snapshot: &FleetSnapshot) {
        let left = self.eta.borrow_mut().left(snapshot, tokio::time::Instant::now());
        match &self.mode {
            Mode::Json => {
                let projects: Vec<_> = snapshot.projects.iter().map(without_key).collect();
                let hosts: Vec<_> =
                    snapshot.hosts.iter().map(|host| host_json(host, snapshot.document_version)).collect();
                let line = json!({
                    "event": "progress",
                    "seconds": self.seconds(),
                    "document_version": snapshot.document_version,
                    "seconds_left": left.map(|left| left.as_secs()),
                    "projects": projects,
                    "hosts": hosts,
                });
                let _ = print(&format!("{line}\n"));
            }
            Mode::Bars { all, bars } => {
                draw(all, &mut bars.borrow_mut(), snapshot, left);
                *self.last.borrow_mut() = Some(self.line(snapshot, None));
            }
            Mode::Lines { last } => {
                if last.get().is_none_or(|last| last.elapsed() >= LINES) {
                    last.set(Some(Instant::now()));
                    let _ = print(&format!("{}\n", self.line(snapshot, left)));
                }
            }
        }
    }

    /// Says what the figures are, once.
    pub(super) fn legend(&self) {
        match &self.mode {
            Mode::Json => {}
            Mode::Bars { .. } => self.say("legend", &legend(true, screen::width() >= WIDE)),
            Mode::Lines { .. } => self.say("legend", &legend(false, true)),
        }
    }

    /// Takes the bars away after a key such as Ctrl-C. The terminal has shown it as `^C` behind the bars,
    /// whose last line fills the width: so the cursor is a line lower than the bars left it, and the first
    /// would stay.
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

    /// Leaves the figures of bars that were taken away before the end, in a line of text.
    pub(super) fn leave_figures(&self) {
        if let Some(text) = self.figures() {
            self.say("figures", &text);
        }
    }

    fn figures(&self) -> Option<String> {
        let line = self.last.take()?;
        Some(format!("when it was ended: {}", line.trim_start()))
    }

    /// The end of it.
    pub(super) fn summary(&self, summary: &Summary) -> Result<(), Failure> {
        self.last.take();
        match &self.mode {
            Mode::Json => print(&format!("{}\n", summary.to_json(self.seconds()))),
            _ => print(&summary.to_text(self.began.elapsed())),
        }
    }

    fn seconds(&self) -> f64 {
        (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0
    }

    fn line(&self, snapshot: &FleetSnapshot, left: Option<Duration>) -> String {
        let mut parts = vec![format!("{:>5.0} s", self.seconds()), agents(snapshot)];
        parts.extend(snapshot.projects.iter().map(|project| {
            let (done, all) = eta::jobs(project, snapshot);
            format!(
                "{}: {}/{} validated, {} of jobs done, share {}, debt {}",
                project.name,
                project.workunits_validated,
                project.workunits,
                percent(done, all),
                share(project, snapshot),
                table::debt(project.debt_seconds)
            )
        }));
        parts.extend(left.map(eta::about));
        parts.join(" | ")
    }
}

/// What the figures are that are shown, and no others.
fn legend(has_bars: bool, has_debts: bool) -> String {
    let debt = if has_debts { Some(DEBT) } else { None };
    let figures = [if has_bars { BARS } else { JOBS }, SHARE];
    figures.into_iter().chain(debt).collect::<Vec<_>>().join("\n")
}

/// The operator's JSON of a project, without its secret: this output ends up in logs.
pub(super) fn without_key(project: &ProjectSummary) -> serde_json::Value {
    let mut value = project_json(project);
    if let Some(object) = value.as_object_mut() {
        object.remove("account_key");
    }
    value
}

fn agents(snapshot: &FleetSnapshot) -> String {
    let connected = snapshot.hosts.iter().filter(|host| host.connected).count();
    format!("{connected}/{} agents", snapshot.hosts.len())
}

/// Its part of the CPU time while both had work, against its target.
fn share(project: &ProjectSummary, snapshot: &FleetSnapshot) -> String {
    let contested: f64 = snapshot.projects.iter().map(|project| snapshot.contested(project) as f64).sum();
    let shares: f64 = snapshot.projects.iter().map(|project| project.share).sum();
    let part = match contested >= JUDGED_FROM {
        true => percent(snapshot.contested(project) as f64, contested),
        false => "?".to_owned(),
    };
    format!("{part} of {}", percent(project.share, shares))
}

fn draw(all: &MultiProgress, bars: &mut Vec<ProgressBar>, snapshot: &FleetSnapshot, left: Option<Duration>) {
    if bars.is_empty() {
        all.set_draw_target(ProgressDrawTarget::stderr());
    }
    while bars.len() < snapshot.projects.len() + 1 {
        bars.push(all.add(ProgressBar::new(1)));
    }
    let style = |template: &str| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    for (bar, project) in bars.iter().zip(&snapshot.projects) {
        bar.set_style(style("{prefix:9} [{bar:20}] {msg}").progress_chars("=> "));
        let (done, jobs) = eta::jobs(project, snapshot);
        // In thousandths of jobs: a bar knows whole numbers only.
        bar.set_length((jobs * 1e3) as u64);
        bar.set_position((done * 1e3) as u64);
        bar.set_prefix(project.name.clone());
        bar.set_message(beside(project, snapshot, screen::width() >= WIDE));
    }
    if let Some(last) = bars.last() {
        let running: usize = snapshot.hosts.iter().map(running).sum();
        last.set_style(style("{prefix:9} {msg}"));
        last.set_prefix("fleet");
        let mut parts = vec![
            format!("{} up", agents(snapshot)),
            match running {
                1 => "1 task runs".to_owned(),
                _ => format!("{running} tasks run"),
            },
        ];
        parts.push(format!("document {}", DocumentVersion(snapshot.document_version)));
        parts.extend(left.map(eta::about));
        last.set_message(format!("{}  ({:#})", parts.join(", "), HumanDuration(last.elapsed())));
    }
}

/// What stands beside a project's bar.
fn beside(project: &ProjectSummary, snapshot: &FleetSnapshot, is_wide: bool) -> String {
    let valid = format!("{}/{} valid", project.workunits_validated, project.workunits);
    let text = format!("{valid}, share {}", share(project, snapshot));
    if is_wide { format!("{text}, debt {}", table::debt(project.debt_seconds)) } else { text }
}

fn running(host: &fallow_proto::operator::v1::Host) -> usize {
    host.tasks.iter().filter(|task| task.phase() == fallow_proto::fleet::v1::TaskPhase::Running).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_that_are_taken_away_before_the_end_leave_their_figures() {
        let project = ProjectSummary {
            name: "mersenne".into(),
            workunits: 7,
            workunits_validated: 3,
            ..ProjectSummary::default()
        };
        let snapshot = FleetSnapshot { projects: vec![project], ..FleetSnapshot::default() };
        let bars = || Mode::Bars {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
            bars: RefCell::default(),
        };
        let reporter = Reporter { mode: bars(), ..Reporter::new(false) };
        assert_eq!(reporter.figures(), None, "nothing was shown");
        reporter.progress(&snapshot);
        let left = reporter.figures().unwrap();
        assert!(left.starts_with("when it was ended: 0 s | 0/0 agents"), "{left}");
        assert!(left.contains("mersenne: 3/7 validated"), "{left}");
        assert_eq!(reporter.figures(), None, "said once");
    }

    #[test]
    fn a_legend_explains_what_is_shown_and_nothing_else() {
        let narrow = legend(true, false);
        assert!(narrow.contains("Bars:") && !narrow.contains("Debt"), "{narrow}");
        assert!(legend(true, true).contains("\nDebt: CPU seconds"), "{}", legend(true, true));
        assert!(!legend(false, true).contains("Bars"), "{}", legend(false, true));
    }

    #[test]
    fn a_line_beside_a_bar_fits_eighty_columns_and_shares_are_told_once_enough_was_used() {
        let project = |share, used: i64| ProjectSummary {
            name: "mersenne".into(),
            share,
            cpu_contested_micros: used,
            workunits: 10_000,
            workunits_validated: 9_999,
            debt_seconds: -12_345.0,
            ..ProjectSummary::default()
        };
        let snapshot = |used| FleetSnapshot {
            projects: vec![project(75.0, used), project(25.0, used)],
            ..FleetSnapshot::default()
        };
        let text = |used: i64, is_wide| beside(&snapshot(used).projects[0], &snapshot(used), is_wide);
        // A name, a blank, the bar in brackets and a blank stand before it.
        let before = 9 + 1 + 22 + 1;
        assert!(before + text(40_000_000, false).len() <= 80, "{}", text(40_000_000, false));
        assert!(before + text(40_000_000, true).len() <= WIDE, "{}", text(40_000_000, true));
        assert!(text(700_000, false).ends_with("share ? of 75.0 %"), "{}", text(700_000, false));
        assert!(text(40_000_000, false).ends_with("share 50.0 % of 75.0 %"), "{}", text(40_000_000, false));
    }
}
