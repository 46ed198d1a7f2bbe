//! What holds a demonstration up, told before anybody has to ask: daemons that are dead and not started
//! again, agents that are not connected, a disk that is full, jobs that no agent takes. Each is told after a
//! while and then again and again, as long as it lasts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fallow_domain::Bytes;
use fallow_proto::operator::v1::{Host, ProjectSummary};
use tokio::time::Instant;

use super::daemon::{Daemon, Daemons};
use super::progress::Reporter;
use super::space;
use super::watch::FleetSnapshot;

/// A daemon that is away for less may be on its way back.
const PATIENCE: Duration = Duration::from_secs(20);
/// Agents that do not even ask may have enough of another project's jobs for a while.
const UNASKED: Duration = Duration::from_secs(90);
/// After the first time.
const AGAIN: Duration = Duration::from_secs(60);
/// Names of jobs that are listed; the rest is counted.
const LISTED: usize = 3;

/// What is wrong with which daemon or project: since when, and when it was last reported.
#[derive(Default)]
pub(super) struct Alarms(BTreeMap<(String, Trouble), (Instant, Option<Instant>)>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Dead,
    Unlinked,
    Disk,
    Untaken,
}

impl Alarms {
    /// Looks at everything. `snapshot` is what the coordinator said just now, or last if it is away.
    pub(super) fn look(
        &mut self,
        dir: &Path,
        daemons: &Daemons,
        snapshot: Option<&FleetSnapshot>,
        away: bool,
        reporter: &Reporter,
    ) {
        let now = Instant::now();
        for daemon in daemons.agents.iter().chain([&daemons.coordinator]) {
            let is_dead = daemon.pid().is_none();
            let host = snapshot.and_then(|snapshot| host_of(daemon, snapshot));
            if let Some(since) = self.due(now, &daemon.name, Trouble::Dead, is_dead, PATIENCE) {
                reporter.say("dead", &dead(&daemon.name, since, host, &daemon.by_hand()));
            }
            let is_agent = daemon.name != daemons.coordinator.name;
            let is_unlinked = is_agent && !is_dead && !away && !host.is_some_and(|host| host.connected);
            if let Some(since) = self.due(now, &daemon.name, Trouble::Unlinked, is_unlinked, PATIENCE) {
                let log = daemon.log();
                reporter.say("unlinked", &unlinked(&daemon.name, since, &daemon.last_words(), &log));
            }
        }
        let free = space::free(dir).filter(|free| *free < space::LOW);
        if let (Some(free), Some(_)) =
            (free, self.due(now, "", Trouble::Disk, free.is_some(), Duration::ZERO))
        {
            reporter.say("disk", &full(dir, free));
        }
        for project in snapshot.filter(|_| !away).into_iter().flat_map(|snapshot| &snapshot.projects) {
            // A share of 0 is one's own wish that its jobs wait for all others.
            let is_untaken = project.hosted
                && project.share > 0.0
                && project.jobs_unsent > 0
                && project.jobs_in_progress == 0;
            let patience = if project.last_refusal.is_some() { PATIENCE } else { UNASKED };
            if let Some(since) = self.due(now, &project.name, Trouble::Untaken, is_untaken, patience) {
                reporter.say("untaken", &untaken(project, since));
            }
        }
    }

    /// Whether to tell of it now, and how long it has lasted.
    fn due(
        &mut self,
        now: Instant,
        name: &str,
        trouble: Trouble,
        is_so: bool,
        patience: Duration,
    ) -> Option<Duration> {
        let key = (name.to_owned(), trouble);
        if !is_so {
            self.0.remove(&key);
            return None;
        }
        let (since, told) = self.0.entry(key).or_insert((now, None));
        let lasted = now - *since;
        let is_due = told.map_or(lasted >= patience, |told| now - told >= AGAIN);
        is_due.then(|| {
            *told = Some(now);
            lasted
        })
    }
}

fn host_of<'a>(daemon: &Daemon, snapshot: &'a FleetSnapshot) -> Option<&'a Host> {
    let id = daemon.agent_id()?;
    snapshot.hosts.iter().find(|host| host.agent_id == id)
}

fn dead(name: &str, since: Duration, host: Option<&Host>, command: &str) -> String {
    let tasks = host.map(|host| host.tasks.as_slice()).unwrap_or_default();
    let listed: Vec<&str> = tasks.iter().take(LISTED).map(|task| task.name.as_str()).collect();
    let more = tasks.len() - listed.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let waiting = match tasks.len() {
        0 => String::new(),
        count => format!("; {count} jobs wait for it until their deadline: {}{more}", listed.join(", ")),
    };
    format!("{name} has not run for {} s{waiting}; start it again with:\n  {command}", since.as_secs())
}

fn unlinked(name: &str, since: Duration, last_words: &str, log: &Path) -> String {
    let said = if last_words.is_empty() { "it has said nothing yet" } else { last_words };
    format!(
        "{name} runs but has not been connected for {} s; the last line of its log ({}): {said}",
        since.as_secs(),
        log.display()
    )
}

fn untaken(project: &ProjectSummary, since: Duration) -> String {
    let (name, jobs, since) = (&project.name, project.jobs_unsent, since.as_secs());
    let why = match &project.last_refusal {
        Some(refusal) => {
            let is_named = !refusal.agent_name.is_empty();
            let who = if is_named { &refusal.agent_name } else { &refusal.host_name };
            format!("host {who} asked last and got none: {}", refusal.reason)
        }
        None => {
            "none has asked for any; see `fallow hosts` and `fallow preferences` for what they do".to_owned()
        }
    };
    format!("project {name}: no agent takes one of the {jobs} jobs that wait, for {since} s: {why}")
}

fn full(dir: &Path, free: u64) -> String {
    format!(
        "the disk of {} has only {} left: coordinator and agents cannot write there and wait for space; free at least {}, and all goes on",
        dir.display(),
        Bytes(free),
        Bytes(2 * space::LOW)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_proto::fleet::v1::TaskState;

    #[test]
    fn what_lasts_is_told_after_a_while_and_again_and_what_is_over_is_forgotten() {
        let mut alarms = Alarms::default();
        let began = Instant::now();
        let mut look =
            |is_so, after| alarms.due(began + after, "agent-1", Trouble::Dead, is_so, PATIENCE).is_some();
        assert!(!look(true, Duration::ZERO));
        assert!(look(true, PATIENCE) && !look(true, PATIENCE));
        assert!(look(true, PATIENCE + AGAIN));
        assert!(!look(false, PATIENCE + AGAIN) && !look(true, PATIENCE + AGAIN));
    }

    #[test]
    fn jobs_that_no_agent_takes_are_told_with_the_work_servers_reason() {
        use fallow_proto::operator::v1::Refusal;
        let mut project = ProjectSummary { name: "totient".into(), jobs_unsent: 12, ..Default::default() };
        assert!(untaken(&project, PATIENCE).contains("none has asked"), "{}", untaken(&project, PATIENCE));
        let reason = "totient needs 52.43 MB of disk space but only 45.07 MB is available for use.";
        let refusal = Refusal { host_name: "lab1".into(), reason: reason.into(), ..Default::default() };
        project.last_refusal = Some(refusal);
        let text = untaken(&project, PATIENCE);
        assert!(
            text.starts_with("project totient: no agent takes one of the 12 jobs that wait, for 20 s"),
            "{text}"
        );
        assert!(text.ends_with(reason) && text.contains("host lab1"), "{text}");
    }

    #[test]
    fn a_dead_agent_is_told_with_the_jobs_that_wait_for_it_and_the_command() {
        let task = |name: &str| TaskState { name: name.into(), ..Default::default() };
        let host = Host { tasks: ["a", "b", "c", "d"].map(task).to_vec(), ..Default::default() };
        let text = dead("agent-2", Duration::from_secs(20), Some(&host), "fallow-agent run --dir x/agent-2");
        assert!(text.contains("4 jobs wait for it until their deadline: a, b, c and 1 more"), "{text}");
        assert!(text.ends_with("start it again with:\n  fallow-agent run --dir x/agent-2"), "{text}");
    }
}
