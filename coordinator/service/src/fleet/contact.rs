//! Telling agents to contact a project now, because it has new jobs (R1.4, R6.3).
//!
//! An agent that asked in vain backs off for up to a day; without this, jobs that are submitted after a
//! pause would wait for the project's `poll`. Of those that are connected and have the project, at most as
//! many are told as there are new jobs, and some more where a job failed; those with idle CPUs first, those
//! whose owners have suspended them last, else by chance, so that a stream of single jobs goes to all in
//! turn. Of jobs that nobody takes all the same others are told, by chance ([`super::retelling`]). In both
//! cases one of a machine and its copies comes before the others: where several must agree, no two of them
//! get jobs of one workunit.
//!
//! An agent that comes back ([`super::returns`]) is told of the jobs that were submitted while it was away.
//! Calls count, those to agents that were there and those to agents that come: until its job is taken, or
//! some time has passed, a call stands for a job ([`ContactCalls`]). So a whole fleet that comes back at
//! once makes no more calls than there are jobs.
//!
//! All of a large fleet told at once would ask at once: the calls are spread over a time that grows with
//! their number. Nothing is stored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_daemon::lock;
use fallow_domain::MasterUrl;
use rand::rngs::{StdRng, SysRng};
use rand::{RngExt as _, SeedableRng as _, TryRng as _};

use super::retelling::{Due, Retelling};
use super::{Agent, Fleet};

/// Agents told in a second, at most. Each makes a scheduler RPC then.
const PER_SECOND: f64 = 200.0;
/// Projects that an agent can be told to contact before it took in the first.
const KEPT_MAX: usize = 64;
/// How long a call stands for a job that nobody has taken. Whoever was told asks within seconds, but for one
/// whose request delay or network holds it back.
pub(super) const STANDS: Duration = Duration::from_secs(60);
/// Of so many projects' jobs others are told at one look: a project's calls are spread, those of many are
/// not.
const AGAIN_PROJECTS: usize = 4;

/// Calls that are to be made for a project's jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    /// So many agents are told, at most.
    at_most: u64,
    /// For so many jobs the calls stand, at most.
    jobs: u64,
    /// Those with idle CPUs do not come first: it may be a GPU that is wanted, of a host whose CPUs are
    /// busy. Nobody is told who is suspended; he would come last else.
    whatever_idles: bool,
}

impl Calls {
    /// So many calls for as many jobs, to those whose CPUs idle first.
    pub(super) fn idle_first(at_most: u64) -> Self {
        Self { at_most, jobs: at_most, whatever_idles: false }
    }
}

impl Fleet {
    /// Tells so many agents at most to contact a project, which has so many new jobs. Returns how many will
    /// be; the last of them in their number over `PER_SECOND` seconds.
    pub fn contact(self: &Arc<Self>, url: &MasterUrl, jobs: u64, at_most: u64) -> usize {
        self.contact_at(url, jobs, at_most, Instant::now())
    }

    fn contact_at(self: &Arc<Self>, url: &MasterUrl, jobs: u64, at_most: u64, now: Instant) -> usize {
        self.calls(url, |calls| calls.new_jobs(jobs, now));
        self.tell(url, self.connected_agents(), Calls::idle_first(at_most), now)
    }

    /// Tells others of jobs that are still unsent: whoever was told may not have asked, or was sent none. Of
    /// those that were not told lately, and whose owners let them compute. `unsent` has all projects that
    /// have any. To be called every few seconds.
    pub fn contact_again(self: &Arc<Self>, unsent: &BTreeMap<MasterUrl, u64>) {
        self.contact_again_at(unsent, Instant::now());
    }

    fn contact_again_at(self: &Arc<Self>, unsent: &BTreeMap<MasterUrl, u64>, now: Instant) {
        let mut due: Vec<(&MasterUrl, Due)> = {
            let mut calls = lock(&self.calls);
            for (_, calls) in calls.iter_mut().filter(|(url, _)| !unsent.contains_key(url)) {
                calls.again.look(0, now);
            }
            let due = unsent.iter().filter_map(|(url, unsent)| {
                Some((url, calls.entry(url.clone()).or_default().again.look(*unsent, now)?))
            });
            due.collect()
        };
        // Those that wait for longest; the others next time.
        due.sort_unstable_by_key(|(_, due)| due.at);
        due.truncate(AGAIN_PROJECTS);
        if due.is_empty() {
            return;
        }
        let (agents, since) = (self.connected_agents(), now.checked_sub(STANDS).unwrap_or(now));
        for (url, due) in due {
            let others = agents.iter().filter(|agent| !agent.was_told(url, since)).cloned();
            let calls = Calls { at_most: due.agents, jobs: due.jobs, whatever_idles: true };
            let told = self.tell(url, others.collect(), calls, now);
            self.calls(url, |calls| calls.again.told(&due, told > 0, now));
        }
    }

    /// Tells some of these, if they have the project. Returns how many will be.
    pub(super) fn tell(
        self: &Arc<Self>,
        url: &MasterUrl,
        agents: Vec<Arc<Agent>>,
        calls: Calls,
        now: Instant,
    ) -> usize {
        let mut able = BTreeMap::<Standing, Vec<Arc<Agent>>>::new();
        for agent in agents {
            let standing = match agent.stands_with(url) {
                None => continue,
                Some(Standing::Suspended) if calls.whatever_idles => continue,
                Some(Standing::Busy) if calls.whatever_idles => Standing::Idle,
                Some(standing) => standing,
            };
            able.entry(standing).or_default().push(agent);
        }
        let mut rng = generator();
        let chosen = self.choose(able, usize::try_from(calls.at_most).unwrap_or(usize::MAX), &mut rng);
        let count = chosen.len();
        if count == 0 {
            return 0;
        }
        tracing::info!(%url, agents = count, "agents are told to contact the project, which has jobs");
        chosen.iter().for_each(|agent| agent.note_told(url, now));
        let stand = calls.jobs.min(count as u64);
        self.calls(url, |calls| calls.made(stand, now, now + spread(count)));
        let pause = Duration::from_secs_f64(1.0 / PER_SECOND);
        let url = url.clone();
        tokio::spawn(async move {
            for (told, agent) in chosen.into_iter().enumerate() {
                if told > 0 {
                    // Half to one and a half of the mean: no two coordinators' agents march in step.
                    tokio::time::sleep(pause.mul_f64(rng.random_range(0.5..1.5))).await;
                }
                agent.want_contact(&url);
            }
        });
        count
    }

    /// Chooses so many of these, at most: those that stand best first, of them one of each machine before
    /// its copies, else by chance.
    fn choose(
        &self,
        able: BTreeMap<Standing, Vec<Arc<Agent>>>,
        at_most: usize,
        rng: &mut StdRng,
    ) -> Vec<Arc<Agent>> {
        let (mut chosen, mut machines) = (Vec::new(), BTreeSet::new());
        for mut alike in able.into_values() {
            // Drawn one by one: a single job is no reason to put a whole fleet in order.
            let mut further = Vec::new();
            while chosen.len() < at_most && !alike.is_empty() {
                let agent = alike.swap_remove(rng.random_range(0..alike.len()));
                let is_first = machines.insert(self.machine(&agent.id));
                if is_first { &mut chosen } else { &mut further }.push(agent);
            }
            chosen.extend(further.into_iter().take(at_most - chosen.len()));
        }
        chosen
    }

    /// Does something with the calls for a project.
    pub(super) fn calls<T>(&self, url: &MasterUrl, work: impl FnOnce(&mut ContactCalls) -> T) -> T {
        work(lock(&self.calls).entry(url.clone()).or_default())
    }
}

/// How long so many calls take.
pub(super) fn spread(count: usize) -> Duration {
    Duration::from_secs_f64(count as f64 / PER_SECOND)
}

/// What an agent could do with a job now. Who comes first in order is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It has idle CPUs.
    Idle,
    /// It computes on all that it may use, or has not said.
    Busy,
    /// It computes nothing: its owner or somebody at it does not let it, or it is not the hour.
    Suspended,
}

/// The calls for a project's jobs that are not taken yet.
#[derive(Debug, Default)]
pub(super) struct ContactCalls {
    /// Unsent jobs when they were last counted, and those that came since.
    unsent: u64,
    /// How many calls were made, and when the last of each lot goes out; the oldest first.
    made: VecDeque<(u64, Instant)>,
    /// When others are told of jobs that nobody took.
    again: Retelling,
}

impl ContactCalls {
    fn new_jobs(&mut self, jobs: u64, now: Instant) {
        self.unsent = self.unsent.saturating_add(jobs);
        self.again.new_jobs(jobs, now);
    }

    fn made(&mut self, count: u64, now: Instant, until: Instant) {
        self.forget(now);
        self.made.push_back((count, until));
    }

    /// Calls that stand for nothing any more.
    fn forget(&mut self, now: Instant) {
        self.made.retain(|(_, until)| now.saturating_duration_since(*until) < STANDS);
    }

    /// How many more agents may be told, when the project has so many unsent jobs: those for which no call
    /// stands.
    pub(super) fn allowed(&mut self, unsent: u64, now: Instant) -> u64 {
        self.forget(now);
        let mut taken = self.unsent.saturating_sub(unsent);
        self.unsent = unsent;
        while let Some((count, _)) = self.made.front_mut()
            && taken > 0
        {
            let done = taken.min(*count);
            (*count, taken) = (*count - done, taken - done);
            if *count == 0 {
                self.made.pop_front();
            }
        }
        unsent.saturating_sub(self.made.iter().map(|(count, _)| count).sum())
    }
}

/// Which agents are told is no secret: without the system's random numbers they are the same ones each time.
fn generator() -> StdRng {
    let mut seed = [0; 32];
    let _ = SysRng.try_fill_bytes(&mut seed);
    StdRng::from_seed(seed)
}

impl Agent {
    /// How it stands; `None` if it does not have the project.
    fn stands_with(&self, url: &MasterUrl) -> Option<Standing> {
        let state = lock(&self.state);
        state.has_project(url).then(|| match state.host() {
            Some(host) if host.suspended_by.is_some() => Standing::Suspended,
            Some(host) if host.idle_cpus > 0 => Standing::Idle,
            _ => Standing::Busy,
        })
    }

    /// Whether it was told since then: whatever came before was told with that.
    pub(super) fn was_told(&self, url: &MasterUrl, since: Instant) -> bool {
        lock(&self.told).get(url).is_some_and(|at| *at >= since)
    }

    fn note_told(&self, url: &MasterUrl, now: Instant) {
        let mut told = lock(&self.told);
        told.retain(|_, at| now.saturating_duration_since(*at) < STANDS);
        told.insert(url.clone(), now);
    }

    fn want_contact(&self, url: &MasterUrl) {
        let mut wanted = lock(&self.contacts);
        if wanted.len() < KEPT_MAX && wanted.insert(url.clone()) {
            self.contact_wanted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_4_a_call_stands_for_a_job_until_that_is_taken_or_a_minute_has_passed() {
        let (mut calls, start) = (ContactCalls::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(calls.allowed(10, start), 10, "after a start nobody was told");
        calls.made(10, start, start);
        assert_eq!(calls.allowed(10, after(1)), 0);
        // Somebody takes four at once; three others come, for which three agents that were there are told.
        calls.new_jobs(3, after(2));
        calls.made(3, after(2), after(2));
        assert_eq!(calls.allowed(9, after(2)), 0);
        // More jobs than agents that are there.
        calls.new_jobs(5, after(3));
        calls.made(2, after(3), after(3));
        assert_eq!(calls.allowed(14, after(3)), 3);
        // The first six calls brought nothing.
        assert_eq!(calls.allowed(14, after(60)), 9);
        assert_eq!(calls.allowed(14, after(63)), 14);
        assert_eq!(calls.allowed(0, after(63)), 0);
    }

    #[test]
    fn r1_4_calls_that_nobody_asks_after_are_forgotten_after_a_minute() {
        let (mut calls, start) = (ContactCalls::default(), Instant::now());
        for second in 0..10_000 {
            let now = start + Duration::from_secs(second);
            calls.made(1, now, now);
        }
        assert_eq!(calls.made.len(), 60);
    }
}

#[cfg(test)]
#[path = "contact_tests.rs"]
mod fleet_tests;
