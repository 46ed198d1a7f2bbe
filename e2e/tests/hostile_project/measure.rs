//! What the good project gets of the machine while the others misbehave.

use std::time::{Duration, Instant};

use crate::agent::Agent;

/// Clock ticks in a second, on every Linux there is.
const TICKS: f64 = 100.0;

/// What was used until a moment, in seconds.
struct Moment {
    at: Instant,
    good: f64,
    idle: f64,
    own: f64,
}

/// What was seen over a stretch of time.
#[derive(Debug)]
pub(crate) struct Share {
    /// Of the CPUs' time, what was left idle.
    pub(crate) idle: f64,
    /// Of the CPUs' time, what the agent spent on itself.
    pub(crate) own: f64,
    /// Of the CPUs that it could have had, on how many it had a task, on average.
    pub(crate) of_cpus: f64,
}

impl Share {
    /// Of the CPUs' time, what was neither left idle nor spent by the agent on itself: the most that tasks,
    /// and other programs before them, could have. Tasks have the lowest priority, so what they got alone
    /// would judge those other programs.
    pub(crate) fn of_cpu_time(&self) -> f64 {
        1.0 - self.idle - self.own
    }
}

/// Watches for about so long; `look` is called every now and then.
pub(crate) fn watch(agent: &Agent, good: &str, stretch: Duration, mut look: impl FnMut()) -> Share {
    let first = moment(agent, good);
    let (mut busy, mut all) = (0, 0);
    while first.at.elapsed() < stretch {
        let (running, cpus) = agent.running(good);
        (busy, all) = (busy + running.min(cpus), all + cpus);
        look();
        std::thread::sleep(Duration::from_secs(3));
    }
    let last = moment(agent, good);
    assert!(last.good > first.good, "the good project got no CPU time at all");
    let there =
        (last.at - first.at).as_secs_f64() * rustix::thread::sched_getaffinity(None).unwrap().count() as f64;
    let (idle, own) = ((last.idle - first.idle) / there, (last.own - first.own) / there);
    let of_cpus = busy as f64 / f64::from(all.max(1) as u32);
    Share { idle, own, of_cpus }
}

fn moment(agent: &Agent, good: &str) -> Moment {
    let good = agent.cpu_time_of(good);
    Moment { at: Instant::now(), good, idle: idle_time(), own: agent.own_ticks() as f64 / TICKS }
}

/// Seconds for which this process's CPUs had nothing to do since the machine was started.
fn idle_time() -> f64 {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let of = |line: &str| {
        // The line of all CPUs together has a blank where the others have their number.
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu: usize = words.next()?.parse().ok()?;
        let times: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        // Idle, and idle while the disk was waited for.
        own.is_set(cpu).then(|| times[3] + times[4])
    };
    stat.lines().filter_map(of).sum::<f64>() / TICKS
}
