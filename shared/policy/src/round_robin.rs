//! What becomes of the queue if projects share the host as their shares say: the round-robin simulation
//! (R3.8; BOINC: `rr_simulation`).
//!
//! Model: a fluid. For each resource type, the projects that have jobs of it compute at rates given by the
//! share-weighted max-min division of the instances; no project gets more than its jobs can use. Within a
//! project the jobs come in the order of R2.3 (running, preempted, then by deadline). Each gets all the
//! instances it uses, until the project's rate is used up; the last one may get a part. Rates change only
//! when what is left of some project's jobs cannot use its rate any more. A job whose files are still being
//! downloaded counts as if they were there. A job that would not fit on the empty host does not count.
//!
//! GPU jobs are simulated on their type first. The whole CPUs that they use on average are then not
//! available to CPU jobs.
//!
//! Computing is possible only part of the time (R2.12), so times are stretched: a deadline in ten hours
//! leaves eight hours of computing on a host that is on for 80% of the time. A shortfall is what would be
//! computed within the window if there were work enough: idle instance time, less the time in which the
//! host is off.
//!
//! Where the owner limits how many jobs of a project run at once, its rate is never more than those can use
//! that are held now. Which of its applications they are of is not looked at as time goes by: where one that
//! is limited is left when others have ended, it is known only then that it leaves instances idle, and that
//! its jobs end later. Places that jobs on GPUs have are none of the CPU jobs' to the end of the simulation:
//! where they leave none, the project's CPU jobs are left out.
//!
//! Not in here: memory, checkpoints, the fair division across types of R3.3 (each type is divided by
//! itself), and changes to come, such as other preferences tomorrow.
//!
//! In queues of hundreds of jobs most jobs are passed over where nobody can be late (`flow::pass_over`).
//! Idle times are then exact only to within one job for each instance.
//!
//! A plan holds for a while (`Outlook::valid_until`), and asking for it again costs nothing until then.

mod flow;
mod frame;
mod level;
mod screen;
mod steps;
mod taken;

use fallow_domain::{Duration, InstanceSeconds, Instant, JobId, PerType, ProjectId, ResourceType, Share};

use crate::job_queue::JobQueue;
use crate::plan_host::PlanHost;
use frame::Horizon;
use steps::Simulation;

/// A project in the simulation. Jobs of others are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanProject {
    /// The project.
    pub id: ProjectId,
    /// Its share; with zero it gets what the others leave.
    pub share: Share,
    /// Whether its share counts while it has no jobs, because it may supply some: only then can it be short
    /// of work.
    pub counts: bool,
}

/// What becomes of one resource type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeOutlook {
    /// Instances that have nothing to do now.
    pub idle: f64,
    /// What would not be used within the window, by the clock: as if computing were always possible.
    pub shortfall: InstanceSeconds,
    /// What would not be used within [`NEAR`] of computing, or within the window if that is shorter.
    pub near: InstanceSeconds,
    /// How long all instances stay busy. Beyond the window it is a lower bound.
    pub saturated: Duration,
}

/// What becomes of one project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectOutlook {
    /// The project.
    pub id: ProjectId,
    /// Jobs that miss their deadlines, by main type.
    pub misses: PerType<u32>,
    /// What its jobs leave unused of its own share within the window, by the clock and by type.
    pub shortfall: PerType<InstanceSeconds>,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// By type.
    pub types: PerType<TypeOutlook>,
    /// The projects as they were given.
    pub projects: Vec<ProjectOutlook>,
    /// The jobs that miss their deadlines, by type, project and order of running.
    pub late: Vec<JobId>,
    /// Until then no further job misses its deadline, and no type without shortfall gets one, if nothing is
    /// added to the queue or taken from it and tasks go as estimated.
    pub valid_until: Instant,
}

impl Outlook {
    /// What becomes of one project.
    pub fn of(&self, project: ProjectId) -> Option<&ProjectOutlook> {
        self.projects.iter().find(|outlook| outlook.id == project)
    }

    /// Whether any job misses its deadline.
    pub fn is_endangered(&self) -> bool {
        !self.late.is_empty()
    }
}

/// What idles within so much computing is looked at apart: who fetches work just in time asks for that.
pub const NEAR: Duration = Duration::from_mins(20);

/// A shortfall grows while nothing is done about it, and a miss goes away when something is: figures of such
/// an outcome that are older than this are worked out anew (R2.16).
const TROUBLED_AGE_MAX: Duration = Duration::from_secs(60);

/// What a simulation was made from.
#[derive(Clone, Debug, PartialEq)]
struct Inputs {
    host: PlanHost,
    generation: u64,
    window: Duration,
    deadline_margin: Duration,
}

/// The simulation, with its memory and its last outcome. It serves one queue.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    simulation: Simulation,
    projects: Vec<PlanProject>,
    made_from: Option<(Inputs, Instant)>,
    outlook: Outlook,
    runs: u64,
}

impl RoundRobin {
    /// Simulates from now on. `window` is the buffer period over which shortfalls count; a job misses its
    /// deadline when it ends later than `deadline_margin` before it. The last outcome is handed out again
    /// while it is good.
    pub fn simulate(
        &mut self,
        host: &PlanHost,
        projects: &[PlanProject],
        queue: &JobQueue,
        window: Duration,
        deadline_margin: Duration,
        now: Instant,
    ) -> &Outlook {
        let inputs = Inputs { host: *host, generation: queue.generation(), window, deadline_margin };
        if !self.is_good(&inputs, projects, queue, now) {
            self.runs += 1;
            self.run(&inputs, projects, queue, now);
            self.projects.clear();
            self.projects.extend_from_slice(projects);
            self.made_from = Some((inputs, now));
        }
        &self.outlook
    }

    /// The last outcome.
    pub const fn outlook(&self) -> &Outlook {
        &self.outlook
    }

    /// How often it had to simulate.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    fn is_good(&self, inputs: &Inputs, projects: &[PlanProject], queue: &JobQueue, now: Instant) -> bool {
        let Some((made_from, at)) = &self.made_from else { return false };
        if made_from != inputs || now < *at || now >= self.outlook.valid_until || self.projects != projects {
            return false;
        }
        let age = now.since(*at);
        let short = self.outlook.types.iter().any(|(_, of)| of.shortfall.is_positive());
        if (short || self.outlook.is_endangered()) && age >= TROUBLED_AGE_MAX {
            return false;
        }
        // Tasks that come to their ends faster than time goes by were estimated too long.
        queue.progressed().iter().all(|(kind, progressed)| {
            let expected = age.as_secs_f64() * f64::from(inputs.host.instances[kind]);
            progressed.as_secs_f64() <= expected * 1.05 + 1.0
        })
    }

    fn run(&mut self, inputs: &Inputs, projects: &[PlanProject], queue: &JobQueue, now: Instant) {
        let host = &inputs.host;
        // Something can always be computed some day: no division by nothing.
        let active = host.active_fraction.get().max(0.01);
        let window = inputs.window.max(Duration::ZERO).as_secs_f64() * active;
        let near = window.min(NEAR.as_secs_f64());
        let horizon = Horizon { now, margin: inputs.deadline_margin, active, window, near };
        let outlook = &mut self.outlook;
        outlook.late.clear();
        outlook.projects.clear();
        outlook.projects.extend(projects.iter().map(|project| ProjectOutlook {
            id: project.id,
            misses: PerType::default(),
            shortfall: PerType::default(),
        }));
        self.simulation.begin(host, horizon);
        let mut valid_secs = f64::INFINITY;
        for kind in ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]) {
            outlook.types[kind] = TypeOutlook::default();
            if host.instances[kind] > 0 {
                valid_secs = valid_secs.min(self.simulation.run(kind, projects, queue, outlook));
            }
        }
        let valid = if valid_secs < 1e9 { Duration::from_secs_f64(valid_secs) } else { Duration::MAX };
        outlook.valid_until = now + valid;
    }
}
