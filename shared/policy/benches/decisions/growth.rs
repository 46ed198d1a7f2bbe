//! How the cost of a full decision grows with the queue: a table, and the exponent of the number of jobs
//! fitted to it.
//!
//! Beside it stand the figures of the peer, BOINC's client 8.3.0 in its own simulator, which were measured in
//! another run, on one core of a two-core machine with -O2.

use std::time::Instant;

use crate::world::{Deadlines, World};

const JOBS: [u64; 4] = [100, 1_000, 10_000, 100_000];
const PROJECTS: [u32; 3] = [1, 20, 100];

/// Microseconds of a decision of the peer, by jobs and projects; at its base values there are four jobs.
const PEER: [(u64, u32, f64); 3] = [(1_000, 1, 122.0), (10_000, 1, 1_700.0), (10_000, 20, 6_800.0)];

pub(crate) fn report() {
    println!("\nA full decision on 8 CPUs in microseconds: simulation, deadline check, choice, work fetch.");
    println!("The peer's figures were measured in another run, of BOINC 8.3.0.");
    println!("\n4 jobs of a project, as at base values: {:.2} (peer: 8.5)", cost(4, 1, Deadlines::Far));
    for (deadlines, name) in [(Deadlines::Far, "all jobs in time"), (Deadlines::Near, "every other job late")]
    {
        println!("\n{name}");
        println!("{:>10} {:>9} {:>12} {:>12}", "jobs", "projects", "this", "peer");
        for projects in PROJECTS {
            let mut points = Vec::new();
            for jobs in JOBS {
                let micros = cost(jobs, projects, deadlines);
                points.push((jobs as f64, micros));
                let peer = PEER.iter().find(|(n, p, _)| (*n, *p) == (jobs, projects));
                let peer = peer.map_or_else(|| "-".to_owned(), |(_, _, micros)| format!("{micros:.0}"));
                println!("{jobs:>10} {projects:>9} {micros:>12.1} {peer:>12}");
            }
            let last = points.get(1..).unwrap_or_default();
            println!(
                "{:>20} grows like jobs ^ {:.2} (from 1,000 jobs on: {:.2})",
                "",
                exponent(&points),
                exponent(last)
            );
        }
    }
    println!("\nWhen nothing changed, 10,000 jobs of 100 projects: {:.1} microseconds", {
        let mut world = World::new(10_000, 100, Deadlines::Far);
        world.decide();
        best_of(|| world.decide_again())
    });
}

fn cost(jobs: u64, projects: u32, deadlines: Deadlines) -> f64 {
    let mut world = World::new(jobs, projects, deadlines);
    best_of(|| world.decide())
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn clock() -> Instant {
    Instant::now()
}

/// The least of several means, which a busy machine disturbs least.
fn best_of(mut run: impl FnMut()) -> f64 {
    let began = clock();
    run();
    let once = began.elapsed().as_secs_f64().max(1e-7);
    let times = (0.01 / once).clamp(1.0, 10_000.0) as u32;
    let mean = |_| {
        let began = clock();
        (0..times).for_each(|_| run());
        began.elapsed().as_secs_f64() / f64::from(times)
    };
    (0..9).map(mean).fold(f64::INFINITY, f64::min) * 1e6
}

/// The slope of a straight line through the logarithms.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
    covariance / variance
}
