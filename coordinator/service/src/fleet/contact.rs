//! Telling agents to contact a project now, because it has new jobs (R1.4, R6.3).
//!
//! An agent that asked in vain backs off for up to a day; without this, jobs that are submitted after a
//! pause would wait for the project's `poll`. Of those that are connected and have the project, at most as
//! many are told as there are new jobs, and some more where a job failed; those with idle CPUs first, those
//! whose owners have suspended them last, else by chance, so that a stream of single jobs goes to all in
//! turn. Jobs that nobody takes all the same are told of again, to others by chance, with pauses that
//! double. Of a machine and its copies one comes before the others: where several must agree, no two of them
//! get jobs of one workunit.
//!
//! An agent that comes back ([`super::returns`]) is told of the jobs that were submitted while it was away.
//! Calls count, those to agents that were there and those to agents that come: until its job is taken, or
//! some time has passed, a call stands for a job ([`ContactCalls`]). So a whole fleet that comes back at
//! once makes no more calls than there are jobs.
//!
//! All of a large fleet told at once would ask at once: the calls are spread over a time that grows with
//! their number. Nothing is stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_daemon::lock;
use fallow_domain::MasterUrl;
use rand::rngs::{StdRng, SysRng};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _, TryRng as _};

use super::{Agent, Fleet};

/// Agents told in a second, at most. Each makes a scheduler RPC then.
const PER_SECOND: f64 = 200.0;
/// Projects that an agent can be told to contact before it took in the first.
const KEPT_MAX: usize = 64;
/// How long a call stands for a job that nobody has taken. Whoever was told asks within seconds, but for one
/// whose request delay or network holds it back.
const STANDS: Duration = Duration::from_secs(60);
/// How often others are told, at least, of jobs that nobody takes.
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// So many are told then of a project's jobs, and of so many projects' at once: there may be none who can
/// compute them.
const AGAIN_MAX: u64 = 200;
const AGAIN_PROJECTS: usize = 4;

impl Fleet {
    /// Tells so many agents at most to contact a project, which has so many new jobs. Returns how many will
    /// be; the last of them in their number over `PER_SECOND` seconds.
    pub fn contact(self: &Arc<Self>, url: &MasterUrl, jobs: u64, at_most: u64) -> usize {
        self.calls(url, |calls| calls.new_jobs(jobs, Instant::now()));
        self.tell(url, self.connected_agents(), at_most)
    }

    /// Tells others of jobs that are still unsent: whoever was told may not have asked, or was sent none. Of
    /// those that were not told lately, and whose owners let them compute. `unsent` has all projects that
    /// have any.
    pub fn contact_again(self: &Arc<Self>, unsent: &BTreeMap<MasterUrl, u64>) {
        let now = Instant::now();
        let mut due: Vec<(Instant, &MasterUrl, u64)> = {
            let mut calls = lock(&self.calls);
            calls
                .iter_mut()
                .filter(|(url, _)| !unsent.contains_key(url))
                .for_each(|(_, calls)| calls.all_taken());
            let due = unsent.iter().filter_map(|(url, unsent)| {
                let (at, allowed) = calls.entry(url.clone()).or_default().again(*unsent, now)?;
                Some((at, url, allowed.min(AGAIN_MAX)))
            });
            due.collect()
        };
        // Those that wait for longest; the others next time: a project's calls are spread, those of many are
        // not.
        due.sort_unstable_by_key(|(at, ..)| *at);
        due.truncate(AGAIN_PROJECTS);
        if due.is_empty() {
            return;
        }
        let (agents, since) = (self.connected_agents(), now.checked_sub(STANDS).unwrap_or(now));
        for (_, url, allowed) in due {
            // By chance, whatever idles there: it may be a GPU that is wanted, of a host whose CPUs are busy.
            let is_able = |agent: &&Arc<Agent>| {
                let stands = agent.stands_with(url);
                stands.is_some_and(|stands| stands != Standing::Suspended) && !agent.was_told(url, since)
            };
            let mut able: Vec<_> = agents.iter().filter(is_able).cloned().collect();
            let mut rng = generator();
            let most = usize::try_from(allowed).unwrap_or(usize::MAX);
            let (chosen, _) = able.partial_shuffle(&mut rng, most);
            let told = self.tell(url, chosen.to_vec(), allowed);
            self.calls(url, |calls| calls.told_again(told > 0, now));
        }
    }

    /// Tells so many of these at most, if they have the project. Returns how many will be.
    pub(super) fn tell(self: &Arc<Self>, url: &MasterUrl, agents: Vec<Arc<Agent>>, at_most: u64) -> usize {
        let mut rng = generator();
        let mut able: Vec<((Standing, u32), Arc<Agent>)> = agents
            .into_iter()
            .filter_map(|agent| Some(((agent.stands_with(url)?, rng.random::<u32>()), agent)))
            .collect();
        able.sort_by_key(|(rank, _)| *rank);
        let are_further = self.are_further(able.iter().map(|(_, agent)| &agent.id));
        let mut chosen: Vec<((Standing, bool), Arc<Agent>)> = able
            .into_iter()
            .zip(are_further)
            .map(|(((standing, _), agent), is_further)| ((standing, is_further), agent))
            .collect();
        chosen.sort_by_key(|(rank, _)| *rank);
        chosen.truncate(usize::try_from(at_most).unwrap_or(usize::MAX));
        let count = chosen.len();
        if count == 0 {
            return 0;
        }
        tracing::info!(%url, agents = count, "agents are told to contact the project, which has jobs");
        let now = Instant::now();
        chosen.iter().for_each(|(_, agent)| agent.note_told(url, now));
        self.calls(url, |calls| calls.made(count as u64, now, now + spread(count)));
        let pause = Duration::from_secs_f64(1.0 / PER_SECOND);
        let url = url.clone();
        tokio::spawn(async move {
            for (told, (_, agent)) in chosen.into_iter().enumerate() {
                if told > 0 {
                    // Half to one and a half of the mean: no two coordinators' agents march in step.
                    tokio::time::sleep(pause.mul_f64(rng.random_range(0.5..1.5))).await;
                }
                agent.want_contact(&url);
            }
        });
        count
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
    /// When others are told of jobs that nobody took, at the earliest; none where no job was unsent.
    again_at: Option<Instant>,
    /// How long it is until then from the time before.
    pause: Duration,
    /// Unsent jobs at the last look.
    left: u64,
}

impl ContactCalls {
    fn new_jobs(&mut self, jobs: u64, now: Instant) {
        self.unsent = self.unsent.saturating_add(jobs);
        // What waits already does not wait longer for that.
        let _ = self.again_at.get_or_insert(now + STANDS);
    }

    /// No job is unsent.
    fn all_taken(&mut self) {
        (self.again_at, self.pause, self.left) = (None, Duration::ZERO, 0);
    }

    /// Since when others are to be told of the jobs that are still unsent, and how many of them; none if
    /// they are not. As long as somebody takes jobs, all is well.
    fn again(&mut self, unsent: u64, now: Instant) -> Option<(Instant, u64)> {
        let is_taken = unsent < std::mem::replace(&mut self.left, unsent);
        let at = *self.again_at.get_or_insert(now + STANDS);
        if is_taken || now < at {
            return None;
        }
        // Calls that stand are for jobs of a moment ago, which others take: these have waited for longer.
        Some((at, unsent))
    }

    /// Some were told, or nobody could be. The pause doubles each time that some were in vain: there may be
    /// none who can.
    fn told_again(&mut self, some: bool, now: Instant) {
        if some {
            self.pause = (2 * self.pause).clamp(2 * STANDS, PAUSE_MAX);
        }
        self.again_at = Some(now + self.pause.max(STANDS));
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
    fn r1_4_jobs_that_nobody_takes_are_told_of_again_with_pauses_that_double() {
        let (mut calls, start) = (ContactCalls::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        calls.new_jobs(1, start);
        calls.made(1, start, start);
        let told = |calls: &mut ContactCalls, unsent: u64, from: u64, to: u64, some: bool| {
            let mut told = Vec::new();
            for second in (from..to).step_by(20) {
                if calls.again(unsent, after(second)).is_some() {
                    calls.told_again(some, after(second));
                    told.push(second);
                }
            }
            told
        };
        assert_eq!(told(&mut calls, 1, 0, 1_000, true), [60, 180, 420, 900]);
        // Others that come change nothing for it.
        calls.new_jobs(2, after(1_000));
        assert_eq!(told(&mut calls, 3, 1_000, 3_000, true), [1_860]);
        // As long as jobs are taken, nobody is told again.
        for (turn, second) in (3_000..9_000).step_by(20).enumerate() {
            assert_eq!(calls.again(302 - turn as u64, after(second)), None);
        }
        // All are taken: what comes later begins anew.
        calls.all_taken();
        calls.new_jobs(1, after(9_000));
        assert_eq!(told(&mut calls, 1, 9_000, 9_200, true), [9_060, 9_180]);
        // Where nobody could be told, it is tried again in a minute, and the pause does not grow.
        calls.all_taken();
        calls.new_jobs(1, after(10_000));
        assert_eq!(told(&mut calls, 1, 10_000, 10_200, false), [10_060, 10_120, 10_180]);
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
