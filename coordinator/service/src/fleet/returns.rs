//! Agents that come back, and the jobs that were submitted while they were away (R1.4, R6.3).
//!
//! A link that begins is noted if its agent had projects before; one that is new asks by itself. A moment
//! later the agent has said what it does now, and has its document: then it is told to contact those of its
//! projects that have unsent jobs, as it would have been when they were submitted, with the same bounds
//! ([`super::contact`]). Those that come in the same moment are chosen among together. The next lot waits
//! until the last one is told, so that a whole fleet that comes back after a restart of the coordinator asks
//! at the pace that holds for new jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_daemon::lock;
use fallow_domain::{AgentId, MasterUrl};

use super::contact::{Calls, spread};
use super::{Agent, Fleet};

/// How long after its link began an agent is told: its newest state is here then, and it has its document.
const SETTLED: Duration = Duration::from_secs(1);

/// Agents whose links began, at most one entry each.
#[derive(Debug, Default)]
pub(super) struct ReturningAgents {
    /// When, and which projects each had.
    agents: BTreeMap<AgentId, (Instant, BTreeSet<MasterUrl>)>,
    /// When all that were chosen are told.
    told_at: Option<Instant>,
}

impl ReturningAgents {
    fn note(&mut self, agent: AgentId, projects: BTreeSet<MasterUrl>, now: Instant) {
        if !projects.is_empty() {
            self.agents.insert(agent, (now, projects));
        }
    }

    /// Those that are due, by project, and since when each is linked; none while others are still being told.
    fn due(&mut self, now: Instant) -> BTreeMap<MasterUrl, Vec<(AgentId, Instant)>> {
        let mut due = BTreeMap::<MasterUrl, Vec<_>>::new();
        if self.told_at.is_some_and(|at| now < at) {
            return due;
        }
        self.agents.retain(|agent, (since, projects)| {
            let waits = now.saturating_duration_since(*since) < SETTLED;
            if !waits {
                for project in std::mem::take(projects) {
                    due.entry(project).or_default().push((agent.clone(), *since));
                }
            }
            waits
        });
        due
    }
}

impl Fleet {
    /// An agent's link begins.
    pub(super) fn note_return(&self, agent: &Agent) {
        let projects = lock(&agent.state).projects().map(|project| project.url.clone()).collect();
        lock(&self.returns).note(agent.id.clone(), projects, Instant::now());
    }

    /// Whether there are agents that came back and were not told yet.
    #[must_use]
    pub fn has_returned(&self) -> bool {
        !lock(&self.returns).agents.is_empty()
    }

    /// Tells agents that came back of these projects' unsent jobs. To be called every fraction of a second.
    pub fn contact_returned(self: &Arc<Self>, unsent: &BTreeMap<MasterUrl, u64>) {
        let now = Instant::now();
        let due = lock(&self.returns).due(now);
        let mut most = 0;
        for (url, agents) in due {
            let Some(unsent) = unsent.get(&url) else { continue };
            let allowed = self.calls(&url, |calls| calls.allowed(*unsent, now));
            let agents = agents.iter().filter_map(|(id, since)| Some((self.agent(&id.0)?, *since)));
            // Jobs may have come since it is here, of which it was told as all others were.
            let agents =
                agents.filter(|(agent, since)| agent.is_connected() && !agent.was_told(&url, *since));
            let agents = agents.map(|(agent, _)| agent);
            most = most.max(self.tell(&url, agents.collect(), Calls::idle_first(allowed), now));
        }
        if most > 0 {
            lock(&self.returns).told_at = Some(now + spread(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_4_agents_that_come_back_are_told_in_lots_that_wait_for_each_other() {
        let (mut returns, start) = (ReturningAgents::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        let id = |number: u32| AgentId(format!("{number:04}"));
        let url = |name: &str| MasterUrl::parse(&format!("http://127.0.0.1:1/{name}/")).unwrap();
        let has = |names: &[&str]| names.iter().map(|name| url(name)).collect::<BTreeSet<_>>();
        returns.note(id(1), has(&["a", "b"]), start);
        returns.note(id(2), has(&["a"]), after(500));
        returns.note(id(3), has(&[]), start);
        assert!(returns.due(after(999)).is_empty());
        let due = returns.due(after(1_000));
        assert_eq!(due, BTreeMap::from([(url("a"), vec![(id(1), start)]), (url("b"), vec![(id(1), start)])]));
        // One that comes and goes is one.
        (0..100).for_each(|time| returns.note(id(4), has(&["a"]), after(time)));
        returns.told_at = Some(after(4_000));
        assert!(returns.due(after(3_999)).is_empty());
        let due = returns.due(after(4_000));
        assert_eq!(due, BTreeMap::from([(url("a"), vec![(id(2), after(500)), (id(4), after(99))])]));
        assert!(returns.due(after(9_000)).is_empty() && returns.agents.is_empty());
    }
}
