//! Watching a demonstration until its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fallow_proto::operator::v1::{Host, ListHostsRequest, ListProjectsRequest, ProjectSummary};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::alarm::Alarms;
use super::daemon::Daemons;
use super::progress::Reporter;
use super::summary;
use crate::cli::{Client, Failure};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// All workunits are validated.
    Done,
    /// Some failed.
    Failed,
    /// A signal.
    Interrupted,
}

/// How the fleet stands.
#[derive(Default)]
pub(super) struct FleetSnapshot {
    pub(super) hosts: Vec<Host>,
    pub(super) projects: Vec<ProjectSummary>,
    pub(super) document_version: u64,
    /// What was used when the shares were changed last; none if they are as they were when this began to
    /// watch.
    pub(super) changed: Option<Baseline>,
}

/// Contested CPU time before a change of shares: what came after it is what can be compared with the new
/// ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Baseline {
    /// Microseconds, by project.
    contested: BTreeMap<String, i64>,
    /// When.
    pub(super) at: Option<Instant>,
}

/// How often the coordinator is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// The last figures of the agents come within a moment of their last reports.
const LAST_WORDS: Duration = Duration::from_secs(10);

impl FleetSnapshot {
    async fn of(client: &mut Client) -> Result<Self, Failure> {
        let hosts = client.list_hosts(ListHostsRequest::default()).await?.into_inner();
        let projects = client.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
        let document_version = hosts.document_version;
        Ok(Self { hosts: hosts.hosts, projects, document_version, changed: None })
    }

    /// Takes over since when shares are as they are from the snapshot before.
    fn follow(&mut self, before: &Self) {
        let shares = |snapshot: &Self| -> BTreeMap<String, u64> {
            snapshot.projects.iter().map(|project| (project.name.clone(), project.share.to_bits())).collect()
        };
        self.changed = if shares(self) == shares(before) {
            before.changed.clone()
        } else {
            let used = |project: &ProjectSummary| (project.name.clone(), project.cpu_contested_micros);
            Some(Baseline { contested: self.projects.iter().map(used).collect(), at: Some(Instant::now()) })
        };
    }

    /// A project's contested CPU time since its share is as it is, in microseconds.
    pub(super) fn contested(&self, project: &ProjectSummary) -> i64 {
        let before = self.changed.as_ref().and_then(|changed| changed.contested.get(&project.name));
        // An agent that comes back after a loss may count less than before.
        (project.cpu_contested_micros - before.copied().unwrap_or(0)).max(0)
    }

    /// All workunits are decided.
    fn is_done(&self) -> bool {
        let decided = |project: &ProjectSummary| project.workunits_validated + project.workunits_failed;
        self.projects.iter().all(|project| decided(project) >= project.workunits)
    }

    fn failed(&self) -> u64 {
        self.projects.iter().map(|project| project.workunits_failed).sum()
    }

    /// No agent that is there has anything left to report.
    fn is_quiet(&self) -> bool {
        self.hosts.iter().filter(|host| host.connected).all(|host| host.tasks.is_empty())
    }
}

/// Shows progress until all is done, then the summary. Without `until_done` it stays.
pub(super) async fn until_end(
    dir: &Path,
    daemons: &mut Daemons,
    mut client: Client,
    reporter: &Reporter,
    until_done: bool,
) -> Result<WatchEnd, Failure> {
    reporter.legend();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done_at: Option<Instant> = None;
    let mut was_away = false;
    let mut alarms = Alarms::default();
    // What the coordinator said last: who waits for a dead agent is known even when the coordinator is gone.
    let mut last: Option<FleetSnapshot> = None;
    // Workunits that the last summary spoke of: new ones may be submitted while it stays up.
    let mut told = None;
    loop {
        ticks.tick().await;
        daemons.look(reporter);
        let snapshot = match FleetSnapshot::of(&mut client).await {
            Ok(mut snapshot) => {
                if let Some(before) = &last {
                    snapshot.follow(before);
                }
                snapshot
            }
            Err(failure) => {
                if !was_away {
                    reporter.say("waiting", &format!("{failure}; agents go on with what they have"));
                }
                was_away = true;
                alarms.look(dir, daemons, last.as_ref(), true, reporter);
                continue;
            }
        };
        alarms.look(dir, daemons, Some(&snapshot), false, reporter);
        if std::mem::take(&mut was_away) {
            reporter.say("back", "the coordinator answers again");
        }
        reporter.progress(&snapshot);
        let snapshot = last.insert(snapshot);
        if !snapshot.is_done() {
            done_at = None;
            continue;
        }
        let since = *done_at.get_or_insert_with(Instant::now);
        if !snapshot.is_quiet() && since.elapsed() < LAST_WORDS {
            continue;
        }
        let workunits: u64 = snapshot.projects.iter().map(|project| project.workunits).sum();
        if told != Some(workunits) {
            // The coordinator may go away even now: then this is done when it is back.
            let Ok(summary) = summary::of(&mut client, snapshot).await else { continue };
            told = Some(workunits);
            reporter.clear();
            reporter.summary(&summary)?;
            if until_done {
                return Ok(if snapshot.failed() > 0 { WatchEnd::Failed } else { WatchEnd::Done });
            }
            reporter.say("idle", "all work is done; Ctrl-C stops everything");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_with_what_was_used_since_they_were_changed_last() {
        let snapshot = |share, used: i64| {
            let project = ProjectSummary {
                name: "a".into(),
                share,
                cpu_contested_micros: used,
                ..ProjectSummary::default()
            };
            FleetSnapshot { projects: vec![project], ..FleetSnapshot::default() }
        };
        let contested = |snapshot: &FleetSnapshot| snapshot.contested(&snapshot.projects[0]);
        let first = snapshot(75.0, 100);
        assert_eq!(contested(&first), 100);
        let mut same = snapshot(75.0, 150);
        same.follow(&first);
        assert!(same.changed.is_none() && contested(&same) == 150);
        let mut changed = snapshot(25.0, 160);
        changed.follow(&same);
        assert_eq!(contested(&changed), 0);
        let mut after = snapshot(25.0, 200);
        after.follow(&changed);
        assert!(after.changed.is_some() && contested(&after) == 40);
    }
}
