//! How many days of a host are simulated in a second of CPU time, everything included.
//!
//! Run with `cargo bench -p fallow-emulator --bench speed [-- WORD...]`; words choose scenarios by parts of
//! their names, or by `=NAME`. Each scenario runs until it has used about a second. The peer is BOINC's own
//! simulator (client 8.3.0, step 60 s), whose figures are of another run, in CPU seconds of one core of a
//! 2-core machine.
//!
//! What is *held* are jobs of the base length that the host has at the beginning, with nothing fetched beside
//! them: few end in a day. Other queues are as long as the work buffer makes them, with jobs that are fetched
//! and reported all the while: a buffer of 30 + 30 days on two CPUs holds n jobs when each takes 60 days x 2
//! CPUs x availability / n. The first fill is outside of what is measured (a run of a day less is taken off),
//! as the peer's is negligible. By default a host asks for work as soon as its buffer is not full, so at each
//! job's end; *by marks* it asks as the peer does, when less than the minimum is left.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;

use fallow_domain::{Duration, Flops, Fraction, Share};
use fallow_emulator::engine::{RunOptions, RunOutcome, run};
use fallow_emulator::scenario::{ApplicationModel, Buffer, ProjectModel, QueuedJob, QueuedState, Scenario};
use fallow_policy::composition::Composition;
use fallow_policy::fetch::FetchWhen;

const DAY: Duration = Duration::from_hours(24);

struct Case {
    name: String,
    scenario: Scenario,
    composition: Composition,
    /// Days that the peer simulates in a CPU second.
    peer: Option<f64>,
    /// The queue is there before what is measured.
    filled: bool,
    /// No longer than this, or a queue that nothing refills would be another one.
    days_max: i64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!(
        "{:<36}{:>12}{:>12}{:>14}{:>12}{:>10}{:>12}",
        "scenario", "mean queue", "rpcs a day", "host-days/s", "us a day", "peer's", "times peer"
    );
    println!("{:<36}{:>62}{:>10}", "", "", "(other run)");
    for case in cases() {
        if words.is_empty() || words.iter().any(|word| chosen(&case.name, word)) {
            measure(&case);
        }
    }
}

/// Whether a word chooses a scenario: as a part of its name, or as `=NAME` the whole of it.
fn chosen(name: &str, word: &str) -> bool {
    word.strip_prefix('=').map_or_else(|| name.contains(word), |whole| name == whole)
}

fn cases() -> Vec<Case> {
    let case = |name: &str, scenario: Scenario, peer, filled| {
        // A tenth of what is held, at 10.6 jobs a day.
        let held: usize = scenario.projects.iter().map(|project| project.queue.len()).sum();
        let days_max = if held > 0 { (held as i64 / 106).max(3) } else { 20_000 };
        let composition = Composition::base();
        Case { name: name.to_owned(), scenario, composition, peer, filled, days_max }
    };
    // The peer asks for work when less than the minimum buffer is left, and then for all that is missing.
    let by_marks = |case: Case| Case {
        name: format!("{}, by marks", case.name),
        composition: Composition { fetch_when: FetchWhen::BelowMinimum, ..case.composition },
        ..case
    };
    let by_default = |case: Case| Case {
        name: format!("{}, default", case.name),
        composition: Composition::default(),
        ..case
    };
    vec![
        case("base", Scenario::base(), Some(80.0), false),
        by_default(case("base", Scenario::base(), Some(80.0), false)),
        by_default(case("mix 20", Scenario::mix(20), Some(26.0), false)),
        by_default(case("10,000 jobs, 1 project", queue(10_000, 1), Some(0.41), true)),
        by_default(case("10,000 jobs, 20 projects", queue(10_000, 20), Some(0.10), true)),
        case("mix 20", Scenario::mix(20), Some(26.0), false),
        case("100 jobs, 1 project", queue(100, 1), Some(20.0), true),
        case("100 jobs, 10 projects", queue(100, 10), None, true),
        case("100 jobs, 20 projects", queue(100, 20), None, true),
        case("1,000 jobs, 1 project", queue(1_000, 1), Some(5.7), true),
        case("1,000 jobs, 10 projects", queue(1_000, 10), Some(3.6), true),
        case("1,000 jobs, 20 projects", queue(1_000, 20), None, true),
        case("10,000 jobs, 1 project", queue(10_000, 1), Some(0.41), true),
        case("10,000 jobs, 10 projects", queue(10_000, 10), None, true),
        case("10,000 jobs, 20 projects", queue(10_000, 20), Some(0.10), true),
        by_marks(case("1,000 jobs, 1 project", queue(1_000, 1), Some(5.7), true)),
        by_marks(case("10,000 jobs, 1 project", queue(10_000, 1), Some(0.41), true)),
        by_marks(case("10,000 jobs, 20 projects", queue(10_000, 20), Some(0.10), true)),
        by_default(case("10,000 base jobs held", held(10_000, 1), Some(0.41), true)),
        by_default(case("10,000 base jobs held, 20", held(10_000, 20), Some(0.10), true)),
        case("1,000 base jobs held", held(1_000, 1), Some(5.7), true),
        case("10,000 base jobs held", held(10_000, 1), Some(0.41), true),
        case("10,000 base jobs held, 20", held(10_000, 20), Some(0.10), true),
    ]
}

/// A host that holds so many jobs of the base length from the beginning on.
fn held(jobs: u32, projects: u32) -> Scenario {
    let mut scenario = queue(jobs, projects);
    for (place, project) in (0..projects).zip(&mut scenario.projects) {
        let application = project.name.clone();
        project.applications = vec![ApplicationModel::base(application.clone(), 1)];
        let of_project = (0..jobs).filter(|n| n % projects == place);
        project.queue = of_project
            .map(|n| QueuedJob {
                name: format!("j{n}"),
                application: application.clone(),
                received: Duration::ZERO,
                deadline: DAY * 5_000 + Duration::from_secs(i64::from(n)),
                fraction_done: Fraction::ZERO,
                elapsed: Duration::ZERO,
                remaining: None,
                state: QueuedState::Waiting,
            })
            .collect();
    }
    scenario
}

/// A host that holds about so many jobs of so many projects.
fn queue(jobs: u32, projects: u32) -> Scenario {
    let mut scenario = Scenario::base();
    scenario.client.buffer = Buffer { min: DAY * 30, additional: DAY * 30 };
    let length = 60.0 * 86_400.0 * 2.0 * 0.8 / f64::from(jobs);
    let application = |name: &str| ApplicationModel {
        latency_bound: DAY * 300,
        ..ApplicationModel::of_size(name, Flops::new(length * 1e9).unwrap())
    };
    let project = |i: u32| {
        let name = format!("p{i}");
        ProjectModel::new(name.clone(), Share::DEFAULT, application(&name))
    };
    scenario.projects = (0..projects).map(project).collect();
    scenario
}

/// CPU seconds of a run. Short ones are averaged over several: the kernel counts in ticks of some
/// milliseconds.
fn average(case: &Case, days: i64) -> (f64, RunOutcome) {
    let times = if case.days_max < 20_000 { 20 } else { 1 };
    let (mut seconds, mut outcome) = simulate(case, days);
    for _ in 1..times {
        let (more, again) = simulate(case, days);
        (seconds, outcome) = (seconds + more, again);
    }
    (seconds / f64::from(times), outcome)
}

fn simulate(case: &Case, days: i64) -> (f64, RunOutcome) {
    let scenario = Scenario { duration: DAY * days, ..case.scenario.clone() };
    let before = cpu_seconds();
    let outcome = black_box(run(&scenario, case.composition, 1, RunOptions::default()));
    (cpu_seconds() - before, outcome)
}

fn measure(case: &Case) {
    // What comes before the first day, if the queue is to be full.
    let (first, start) = if case.filled { average(case, 1) } else { (0.0, average(case, 1).1) };
    let from = if case.filled { 1 } else { 0 };
    let mut days = if case.days_max < 20_000 { case.days_max } else { 2 };
    loop {
        let (seconds, outcome) = average(case, days + from);
        let seconds = seconds - first;
        if seconds < 0.7 && days < case.days_max {
            // Never ten times as long at once: the first days say little.
            let aim = (days as f64 * 1.0 / seconds.max(0.05)) as i64;
            days = aim.clamp(days + 1, days * 8).min(case.days_max);
            continue;
        }
        let rpcs = if case.filled { outcome.rpcs - start.rpcs } else { outcome.rpcs };
        let rate = days as f64 / seconds;
        let peer = case.peer.map_or_else(|| "-".to_owned(), |peer| format!("{peer}"));
        let times = case.peer.map_or_else(|| "-".to_owned(), |peer| format!("{:.0}", rate / peer));
        println!(
            "{:<36}{:>12.1}{:>12.1}{:>14.0}{:>12.1}{:>10}{:>12}",
            case.name,
            outcome.mean_queue,
            rpcs as f64 / days as f64,
            rate,
            1e6 / rate,
            peer,
            times
        );
        return;
    }
}

/// CPU time of this process. Linux only; elsewhere zero, and the figures mean nothing.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds: f64 = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    nanoseconds / 1e9
}
