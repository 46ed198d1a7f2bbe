//! Watching a demonstration until its end.

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
pub(super) enum End {
    /// All workunits are validated.
    Done,
    /// Some failed.
    Failed,
    /// A signal.
    Interrupted,
}

/// How the fleet stands.
pub(super) struct Scene {
    pub(super) hosts: Vec<Host>,
    pub(super) projects: Vec<ProjectSummary>,
    pub(super) document_version: u64,
}

/// How often the coordinator is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// The last figures of the agents come within a moment of their last reports.
const LAST_WORDS: Duration = Duration::from_secs(10);

impl Scene {
    async fn of(client: &mut Client) -> Result<Self, Failure> {
        let hosts = client.list_hosts(ListHostsRequest {}).await?.into_inner();
        let projects = client.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
        Ok(Self { hosts: hosts.hosts, projects, document_version: hosts.document_version })
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
) -> Result<End, Failure> {
    reporter.legend();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done_at: Option<Instant> = None;
    let mut was_away = false;
    let mut alarms = Alarms::default();
    // What the coordinator said last: who waits for a dead agent is known even when the coordinator is gone.
    let mut last: Option<Scene> = None;
    // Workunits that the last summary spoke of: new ones may be submitted while it stays up.
    let mut told = None;
    loop {
        ticks.tick().await;
        daemons.look(reporter);
        let scene = match Scene::of(&mut client).await {
            Ok(scene) => scene,
            Err(failure) => {
                if !was_away {
                    reporter.say("waiting", &format!("{failure}; agents go on with what they have"));
                }
                was_away = true;
                alarms.look(dir, daemons, last.as_ref(), true, reporter);
                continue;
            }
        };
        alarms.look(dir, daemons, Some(&scene), false, reporter);
        if std::mem::take(&mut was_away) {
            reporter.say("back", "the coordinator answers again");
        }
        reporter.progress(&scene);
        let scene = last.insert(scene);
        if !scene.is_done() {
            done_at = None;
            continue;
        }
        let since = *done_at.get_or_insert_with(Instant::now);
        if !scene.is_quiet() && since.elapsed() < LAST_WORDS {
            continue;
        }
        let workunits: u64 = scene.projects.iter().map(|project| project.workunits).sum();
        if told != Some(workunits) {
            // The coordinator may go away even now: then this is done when it is back.
            let Ok(summary) = summary::of(&mut client, scene).await else { continue };
            told = Some(workunits);
            reporter.clear();
            reporter.summary(&summary)?;
            if until_done {
                return Ok(if scene.failed() > 0 { End::Failed } else { End::Done });
            }
            reporter.say("idle", "all work is done; Ctrl-C stops everything");
        }
    }
}
