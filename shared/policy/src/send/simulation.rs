//! Earliest deadline first on one type of a host's instances.
//!
//! Model: each instance is a number of *lanes*, one of a CPU and four of a coprocessor, since jobs that use a
//! half or a quarter of a GPU are common. A job takes as many as it uses, rounded up, runs to its end on
//! those that free first, and jobs go in order of deadline; all are there from the start, so no job would
//! gain from preemption on one CPU. The CPUs beside a coprocessor are not simulated: they may be
//! overcommitted (R2.5).
//!
//! Cost: jobs are sorted once. A candidate changes nothing before its place, so its simulation begins at the
//! last *landmark* before it, a copy of the lanes that is kept at every 64th job, copies no job and ends at
//! the first harm.

use fallow_domain::{Duration, Instant, ResourceType};

use super::{InProgress, Refusal, SendHost};

/// Jobs between two landmarks.
const LANDMARK: usize = 64;

/// More lanes than this are not told apart: the time that a job takes here grows with them, and whoever asks
/// says how many there are.
pub(super) const LANES_MAX: u32 = 1_024;

/// A job, as far as the simulation goes.
#[derive(Clone, Copy)]
struct Job {
    deadline: Instant,
    runs: Duration,
    lanes: usize,
}

/// When each lane frees, the earliest first.
type Lanes = Vec<Instant>;

/// The jobs of one type in order of deadline, with how late each is.
pub(super) struct Workload {
    kind: ResourceType,
    instances: u32,
    lanes_of_one: u32,
    stretch: f64,
    now: Instant,
    jobs: Vec<Job>,
    lateness: Vec<Duration>,
    /// The lanes before every `LANDMARK`th job.
    landmarks: Vec<Lanes>,
    /// The lanes of the simulation in progress.
    scratch: Lanes,
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
        let lanes_of_one = if kind.is_coprocessor() { 4 } else { 1 };
        let instances = host.instances[kind].min(LANES_MAX / lanes_of_one);
        let mut workload = Self {
            kind,
            instances,
            lanes_of_one,
            stretch,
            now,
            jobs: Vec::new(),
            lateness: Vec::new(),
            landmarks: Vec::new(),
            scratch: Vec::new(),
        };
        let ours = in_progress.iter().filter(|job| job.usage.main_type() == kind);
        workload.jobs = ours.map(|job| workload.job(job)).collect();
        workload.jobs.sort_by_key(|job| job.deadline);
        workload.simulate_from(0);
        workload
    }

    fn job(&self, job: &InProgress) -> Job {
        let lanes = (job.usage.of(self.kind) * f64::from(self.lanes_of_one) - 1e-9).ceil();
        // `as` saturates and takes NaN for 0.
        let lanes = (lanes as usize).clamp(1, LANES_MAX as usize);
        let runs = job.remaining.max(Duration::ZERO).mul_f64(self.stretch);
        Job { deadline: job.deadline, runs, lanes }
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
    pub(super) fn refuses(&mut self, job: &InProgress) -> Option<Refusal> {
        let fits = job.usage.of(self.kind) <= f64::from(self.instances) + 1e-9;
        match self.kind {
            _ if fits => {}
            ResourceType::Cpu => return Some(Refusal::TooManyCpus),
            kind => return Some(Refusal::TooManyInstances(kind)),
        }
        let job = self.job(job);
        let place = self.place(&job);
        let mut lanes = std::mem::take(&mut self.scratch);
        self.recall(place, &mut lanes);
        let refusal = self.harm(&job, place, &mut lanes);
        self.scratch = lanes;
        refusal
    }

    fn harm(&self, job: &Job, place: usize, lanes: &mut Lanes) -> Option<Refusal> {
        let own = run(lanes, job);
        if own.is_positive() {
            return Some(Refusal::MissesDeadline(own));
        }
        self.jobs[place..].iter().zip(&self.lateness[place..]).find_map(|(other, before)| {
            let after = run(lanes, other);
            match (before.is_positive(), after > *before && after.is_positive()) {
                (_, false) => None,
                (false, true) => Some(Refusal::MakesAnotherLate),
                (true, true) => Some(Refusal::MakesAnotherLater),
            }
        })
    }

    /// The lanes as they are before the job at a place.
    fn recall(&self, place: usize, lanes: &mut Lanes) {
        // Behind the last of a whole number of stretches there is no landmark yet.
        let landmark = (place / LANDMARK).min(self.landmarks.len().saturating_sub(1));
        lanes.clear();
        match self.landmarks.get(landmark) {
            Some(known) => lanes.extend_from_slice(known),
            None => lanes.resize((self.instances.max(1) * self.lanes_of_one) as usize, self.now),
        }
        for job in &self.jobs[landmark * LANDMARK..place] {
            run(lanes, job);
        }
    }

    /// Works out how late the jobs from a place on are; zero or less means in time.
    fn simulate_from(&mut self, place: usize) {
        let begin = place / LANDMARK * LANDMARK;
        let mut lanes = std::mem::take(&mut self.scratch);
        self.recall(begin, &mut lanes);
        self.landmarks.truncate(begin / LANDMARK);
        self.lateness.truncate(begin);
        for (place, job) in self.jobs.iter().enumerate().skip(begin) {
            if place % LANDMARK == 0 {
                self.landmarks.push(lanes.clone());
            }
            self.lateness.push(run(&mut lanes, job));
        }
        self.scratch = lanes;
    }
}

/// Runs a job on the lanes that free first. Returns how late it ends.
fn run(lanes: &mut [Instant], job: &Job) -> Duration {
    let width = job.lanes.min(lanes.len());
    let end = lanes[width - 1] + job.runs;
    // Those that free later but before its end move to the front, so that the order holds.
    let earlier = width + lanes[width..].partition_point(|free| *free < end);
    lanes.copy_within(width..earlier, 0);
    lanes[earlier - width..earlier].fill(end);
    end - job.deadline
}
