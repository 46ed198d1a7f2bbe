//! The work of the demonstration: how much of it, cut into which workunits.
//!
//! Two projects in the ratio of their shares, 75 to 25, so that both have work nearly to the end; each
//! workunit is computed twice on different hosts. Sizes are CPU seconds on the machine that the applications'
//! cost models were measured on; on another everything takes its time, in the same ratio.

use crate::cli::Unacceptable;
use fallow_domain::Duration;
use fallow_mersenne::SPEED;
use fallow_proto::operator::v1::{InputFile, NewWorkunit, OutputFile};
use serde::{Deserialize, Serialize};

/// Shares of the two projects.
pub(super) const SHARES: [f64; 2] = [75.0, 25.0];
/// Largest exponent by default: the search up to here takes about 630 CPU seconds, done twice and in both.
const TO: u64 = 18_600;
/// And with `--quick`: about 90 CPU seconds.
const TO_QUICK: u64 = 10_250;
/// CPU seconds of a job: long enough that starting one costs nothing, short enough that hosts get many.
const JOB_SECONDS: f64 = 22.0;
/// The same with `--quick`.
const JOB_SECONDS_QUICK: f64 = 6.0;
/// A job of a host that was killed and not restarted is given to another after this.
const DEADLINE: Duration = Duration::from_mins(30);

/// Largest output of a job; they have some kilobytes.
const OUTPUT_MAX: u64 = 8 << 20;
/// What a job may take of the disk: its output, a checkpoint as large, its error log. An agent gets a job
/// only if it has this much for its project, so more would keep small disks from taking part.
pub(super) const DISK_BOUND: u64 = 2 * OUTPUT_MAX + (1 << 20);

/// The size of the demonstration that was asked for: decides every workunit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DemoSize {
    /// Exponents from and to.
    pub(super) exponents: (u64, u64),
    /// Small jobs.
    pub(super) quick: bool,
}

/// A project to be made.
pub(super) struct ProjectPlan {
    /// Name of project, application and executable.
    pub(super) name: &'static str,
    /// For people.
    pub(super) friendly_name: &'static str,
    /// Its resource share.
    pub(super) share: f64,
    /// Its work.
    pub(super) workunits: Vec<NewWorkunit>,
}

impl DemoSize {
    pub(super) fn new(exponents: Option<(u64, u64)>, quick: bool) -> Self {
        Self { exponents: exponents.unwrap_or((2, if quick { TO_QUICK } else { TO })), quick }
    }

    /// The scheduling period that goes with the size of the jobs.
    pub(super) fn scheduling_period(self) -> Duration {
        Duration::from_secs(if self.quick { 5 } else { 15 })
    }

    /// Work that each of so many agents keeps at least, and how much more it fetches: a minute and a quarter,
    /// and half a minute; less where all the work is so little that the first agents would leave none to the
    /// others.
    pub(super) fn buffers(self, agents: u32) -> (Duration, Duration) {
        let (from, to) = self.exponents;
        let mersenne = fallow_mersenne::estimated_flops(from, to) / SPEED;
        // Twice each, and the other project beside it.
        let all = 2.0 * mersenne * (SHARES[0] + SHARES[1]) / SHARES[0];
        let part = all / f64::from(agents.max(1));
        let at_most = |most: f64, part: f64| Duration::from_secs_f64(part.clamp(1.0, most));
        (at_most(75.0, part / 3.0), at_most(30.0, part / 8.0))
    }

    /// Both projects with all their workunits.
    pub(super) fn projects(self) -> [ProjectPlan; 2] {
        let (from, to) = self.exponents;
        let flops = fallow_mersenne::estimated_flops(from, to);
        let ranges = fallow_mersenne::split(from, to, self.jobs(flops));
        let mersenne = ranges
            .into_iter()
            .map(|(from, to)| workunit("mersenne", from, to, fallow_mersenne::estimated_flops(from, to)));
        let flops = flops * SHARES[1] / SHARES[0];
        let jobs = self.jobs(flops);
        let ranges = fallow_totient::split(1, totient_end(flops, jobs), jobs);
        let totient = ranges
            .into_iter()
            .map(|(from, to)| workunit("totient", from, to, fallow_totient::estimated_flops(from, to)));
        [
            ProjectPlan {
                name: "mersenne",
                friendly_name: "Mersenne primes",
                share: SHARES[0],
                workunits: mersenne.collect(),
            },
            ProjectPlan {
                name: "totient",
                friendly_name: "Sums of Euler's phi",
                share: SHARES[1],
                workunits: totient.collect(),
            },
        ]
    }

    fn jobs(self, flops: f64) -> usize {
        let seconds = if self.quick { JOB_SECONDS_QUICK } else { JOB_SECONDS };
        // Three at least: every agent has something to do. Ten thousand are one submission of some megabytes.
        ((flops / SPEED / seconds).round() as usize).clamp(3, 10_000)
    }
}

/// The last number up to which sums of totients cost about this much, or as much as so many jobs may do.
fn totient_end(flops: f64, jobs: usize) -> u64 {
    let most = fallow_totient::LENGTH_MAX / 2 * (jobs as u64);
    let (mut low, mut high) = (1_000, most.min(fallow_totient::NUMBER_MAX));
    while low < high {
        let middle = low + (high - low) / 2;
        if fallow_totient::estimated_flops(1, middle) < flops {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn workunit(application: &str, from: u64, to: u64, flops: f64) -> NewWorkunit {
    // A range without any work still takes a moment.
    let flops = flops.max(1e8);
    NewWorkunit {
        // Padded, so that listings are in the order of the ranges.
        name: format!("{application}_{from:010}_{to:010}"),
        application: application.to_owned(),
        inputs: vec![InputFile {
            open_name: "in".to_owned(),
            content: format!("from={from} to={to}\n").into_bytes(),
            ..InputFile::default()
        }],
        outputs: vec![OutputFile { open_name: "out".to_owned(), max_bytes: OUTPUT_MAX }],
        flops_estimate: flops,
        // Unoptimised builds and slow machines need far longer than the model says.
        flops_bound: flops * 200.0,
        memory_bound_bytes: 64 << 20,
        disk_bound_bytes: DISK_BOUND,
        delay_bound_micros: DEADLINE.as_micros(),
        quorum: 2,
        initial_jobs: 2,
        max_error_jobs: 6,
        max_total_jobs: 12,
        ..NewWorkunit::default()
    }
}

/// Parses `FROM..TO`, both included.
pub(super) fn exponents(text: &str) -> Result<(u64, u64), Box<dyn std::error::Error + Send + Sync>> {
    let expected = "expected FROM..TO, both whole numbers and included, such as 2..5000";
    let (from, to) = text.split_once("..").ok_or(expected)?;
    let to = to.strip_prefix('=').unwrap_or(to);
    let (from, to) = (from.parse().map_err(|_| expected)?, to.parse().map_err(|_| expected)?);
    fallow_mersenne::Range::new(from, to).map_err(|error| Unacceptable(error.to_string()))?;
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(plan: &ProjectPlan) -> f64 {
        plan.workunits.iter().map(|workunit| workunit.flops_estimate / SPEED * 2.0).sum()
    }

    #[test]
    fn the_default_is_more_than_ten_cpu_minutes_in_the_ratio_of_the_shares() {
        let [mersenne, totient] = DemoSize::new(None, false).projects();
        let (one, other) = (seconds(&mersenne), seconds(&totient));
        assert!((620.0..780.0).contains(&one), "{one}");
        assert!((one / other - 3.0).abs() < 0.1, "{one} to {other}");
        for workunit in mersenne.workunits.iter().chain(&totient.workunits) {
            let job = workunit.flops_estimate / SPEED;
            assert!((18.0..60.0).contains(&job), "{}: {job} s", workunit.name);
        }
    }

    #[test]
    fn agents_hold_more_than_a_minute_of_work_unless_that_is_all_there_is() {
        let seconds = |(min, more): (Duration, Duration)| (min.as_secs_f64(), more.as_secs_f64());
        let (min, more) = seconds(DemoSize::new(None, false).buffers(3));
        assert!(min > 55.0 && more > 25.0, "{min} {more}");
        let (min, more) = seconds(DemoSize::new(None, true).buffers(3));
        assert!(min + more < 20.0, "{min} {more}");
    }

    #[test]
    fn the_quick_one_is_two_cpu_minutes() {
        let [mersenne, totient] = DemoSize::new(None, true).projects();
        let all = seconds(&mersenne) + seconds(&totient);
        assert!((100.0..150.0).contains(&all), "{all}");
    }

    #[test]
    fn a_range_of_any_size_gives_work_to_both() {
        for exponents in [(2, 2), (24, 28), (2, 100), (2, 40_000), (2, 200_000)] {
            for plan in DemoSize::new(Some(exponents), false).projects() {
                assert!((1..=10_000).contains(&plan.workunits.len()));
                assert!(plan.workunits.iter().all(|workunit| workunit.flops_estimate > 0.0));
            }
        }
    }

    #[test]
    fn exponents_are_read_as_people_write_ranges() {
        assert_eq!(exponents("2..4423").unwrap(), (2, 4423));
        assert_eq!(exponents("2..=4423").unwrap(), (2, 4423));
        for bad in ["", "2", "2..", "..3", "9..2", "2..99999999999", "-2..3"] {
            assert!(exponents(bad).is_err(), "{bad}");
        }
    }
}
