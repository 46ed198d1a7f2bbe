//! Earliest deadline first on one type of a host's instances.
//!
//! Model: an instance is a number of *processors*: one for a CPU, four for an instance of a coprocessor,
//! since jobs that use a half or a quarter of a GPU are common. A job takes as many as it uses, rounded up.
//! It runs to its end on those that become free first, and jobs go in order of deadline. All jobs are there
//! from the start, so none would gain from preemption on one CPU. The CPUs beside a coprocessor are not
//! simulated: they may be overcommitted (R2.5).
//!
//! Cost: jobs are sorted once. A candidate changes nothing for the jobs before it. So its simulation begins
//! at the last *snapshot* before it (a copy of the processors' state, kept at every 64th job), copies no
//! job, and stops at the first harm.

use fallow_domain::{Duration, Instant, ResourceType};

use super::{InProgress, SendHost, WhyNotSent};

/// Jobs between two snapshots.
const SNAPSHOT_PERIOD: usize = 64;

/// More processors than this are not told apart: the time that a job takes here grows with them, and it is
/// the host that says how many it has.
pub(super) const PROCESSORS_MAX: u32 = 1_024;

/// A job, as far as the simulation goes.
#[derive(Clone, Copy)]
struct Job {
    deadline: Instant,
    runs: Duration,
    processors: usize,
}

/// When each processor frees, the earliest first.
type Processors = Vec<Instant>;

/// The jobs of one type in order of deadline, with how late each is.
pub(super) struct Workload {
    kind: ResourceType,
    instances: u32,
    processors_of_one: u32,
    stretch: f64,
    now: Instant,
    jobs: Vec<Job>,
    lateness: Vec<Duration>,
    /// The processors before every `SNAPSHOT_PERIOD`th job.
    snapshots: Vec<Processors>,
    /// The processors of the simulation in progress.
    scratch: Processors,
}

impl Workload {
    /// The jobs of that main type.
    pub(super) fn new(
        kind: ResourceType,
        host: &SendHost,
        stretch: f64,
        now: Instant,
        in_progress: &[InProgress],
    ) -> Self {
        let processors_of_one = if kind.is_coprocessor() { 4 } else { 1 };
        let instances = host.instances[kind].min(PROCESSORS_MAX / processors_of_one);
        let mut workload = Self {
            kind,
            instances,
            processors_of_one,
            stretch,
            now,
            jobs: Vec::new(),
            lateness: Vec::new(),
            snapshots: Vec::new(),
            scratch: Vec::new(),
        };
        let ours = in_progress.iter().filter(|job| job.usage.main_type() == kind);
        workload.jobs = ours.map(|job| workload.job(job)).collect();
        workload.jobs.sort_by_key(|job| job.deadline);
        workload.simulate_from(0);
        workload
    }

    fn job(&self, job: &InProgress) -> Job {
        let processors = (job.usage.of(self.kind) * f64::from(self.processors_of_one) - 1e-9).ceil();
        // `as` saturates and takes NaN for 0.
        let processors = (processors as usize).clamp(1, PROCESSORS_MAX as usize);
        let runs = job.remaining.max(Duration::ZERO).mul_f64(self.stretch);
        Job { deadline: job.deadline, runs, processors }
    }

    /// A job goes behind those of the same deadline, so that it never delays them.
    fn place(&self, job: &Job) -> usize {
        self.jobs.partition_point(|other| other.deadline <= job.deadline)
    }

    /// Takes a job in.
    pub(super) fn add(&mut self, job: &InProgress) {
        let job = self.job(job);
        let place = self.place(&job);
        self.jobs.insert(place, job);
        self.simulate_from(place);
    }

    /// Why a job should not be sent, if it should not.
    pub(super) fn refuses(&mut self, job: &InProgress) -> Option<WhyNotSent> {
        let fits = job.usage.of(self.kind) <= f64::from(self.instances) + 1e-9;
        match self.kind {
            _ if fits => {}
            ResourceType::Cpu => return Some(WhyNotSent::TooManyCpus),
            kind => return Some(WhyNotSent::TooManyInstances(kind)),
        }
        let job = self.job(job);
        let place = self.place(&job);
        let mut processors = std::mem::take(&mut self.scratch);
        self.recall(place, &mut processors);
        let refusal = self.harm(&job, place, &mut processors);
        self.scratch = processors;
        refusal
    }

    fn harm(&self, job: &Job, place: usize, processors: &mut Processors) -> Option<WhyNotSent> {
        let own = run(processors, job);
        if own.is_positive() {
            return Some(WhyNotSent::MissesDeadline(own));
        }
        self.jobs[place..].iter().zip(&self.lateness[place..]).find_map(|(other, before)| {
            let after = run(processors, other);
            match (before.is_positive(), after > *before && after.is_positive()) {
                (_, false) => None,
                (false, true) => Some(WhyNotSent::MakesAnotherLate),
                (true, true) => Some(WhyNotSent::MakesAnotherLater),
            }
        })
    }

    /// The processors as they are before the job at a place.
    fn recall(&self, place: usize, processors: &mut Processors) {
        // Behind the last full group of jobs there is no snapshot yet.
        let snapshot = (place / SNAPSHOT_PERIOD).min(self.snapshots.len().saturating_sub(1));
        processors.clear();
        match self.snapshots.get(snapshot) {
            Some(known) => processors.extend_from_slice(known),
            None => processors.resize((self.instances.max(1) * self.processors_of_one) as usize, self.now),
        }
        for job in &self.jobs[snapshot * SNAPSHOT_PERIOD..place] {
            run(processors, job);
        }
    }

    /// Works out how late the jobs from a place on are; zero or less means in time.
    fn simulate_from(&mut self, place: usize) {
        let begin = place / SNAPSHOT_PERIOD * SNAPSHOT_PERIOD;
        let mut processors = std::mem::take(&mut self.scratch);
        self.recall(begin, &mut processors);
        self.snapshots.truncate(begin / SNAPSHOT_PERIOD);
        self.lateness.truncate(begin);
        for (place, job) in self.jobs.iter().enumerate().skip(begin) {
            if place % SNAPSHOT_PERIOD == 0 {
                self.snapshots.push(processors.clone());
            }
            self.lateness.push(run(&mut processors, job));
        }
        self.scratch = processors;
    }
}

/// Runs a job on the processors that free first. Returns how late it ends.
fn run(processors: &mut [Instant], job: &Job) -> Duration {
    let width = job.processors.min(processors.len());
    let end = processors[width - 1] + job.runs;
    // Those that free later but before its end move to the front, so that the order holds.
    let earlier = width + processors[width..].partition_point(|free| *free < end);
    processors.copy_within(width..earlier, 0);
    processors[earlier - width..earlier].fill(end);
    end - job.deadline
}
