//! What a project is not asked for, whatever is lacking: the client's own limits on the work that it holds
//! of one project (R3.9).
//!
//! Model: five limits, in the manner of BOINC's client. A project is asked for no work
//! - while so many of its jobs are here that more would only fill the disk,
//! - while its downloads stall,
//! - while its results gather because they cannot be sent.
//!
//! It is asked for no work of one type while jobs of that type gather that cannot run. Other projects are
//! then asked for what idles, and this one for its other types as before.
//!
//! And a request asks for no more seconds than there is room for jobs. A request names seconds; with jobs
//! of a tenth of a second an hour's work would be 36,000 jobs.
//!
//! Where the owner limits how many jobs of a project run at once, it is asked for no more of a type than
//! those come to within the buffer ([`within_places`]), however much idles beside them; and for no CPU jobs
//! while its jobs on GPUs have all places, or are asked for all, for these would wait until they are late.
//! Where he limits some of its applications only, nobody knows which jobs a request brings: it is asked as
//! if there were no limit until jobs gather that would not begin within the buffer. (BOINC takes the
//! smallest limit of an application for that of the whole project, which leaves the others short.)
//!
//! As long as no job of a project has been seen here, nobody knows how long its jobs are, nor whether they
//! run at all. So its first request asks for one second of each type, which brings one job of each, within
//! those limits. Every further request follows the plan.

use std::fmt;

use fallow_domain::{Duration, InstanceSeconds, PerType, ProjectId, ResourceType};

use super::{IDLE_MIN, REQUEST_MIN, WorkRequest};
use crate::job_queue::JobQueue;
use crate::plan_host::PlanHost;

/// No more jobs of one project are held than this (BOINC: 1,000 runnable jobs).
pub const JOBS_MAX: usize = 1_000;

/// A project of which so many jobs are held is not asked. So it is asked again when a quarter of the most
/// that it may have is done, and not after each job.
pub const JOBS_ENOUGH: usize = 750;

/// Results of a project on their way to its server, for each CPU or GPU, that are no reason to stop (BOINC's
/// number).
pub const UPLOADING_PER_INSTANCE: usize = 2;

/// Jobs of a project and main type that cannot run now, for each CPU or GPU, that are no reason to stop.
/// (BOINC stops at the first that waits to be started again, by type as well, and never for those that are
/// too large.)
pub const UNRUNNABLE_PER_INSTANCE: usize = 2;

/// What the first request asks for of each type (BOINC's number): a server answers it with one job if it has
/// one.
pub const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// What a host holds of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectHoldings {
    /// Jobs that are not over, whose downloads do not stall, and which can run.
    pub jobs: usize,
    /// Jobs that are over and whose outputs are on their way.
    pub uploading: usize,
    /// A download of it stalls.
    pub downloads_stall: bool,
    /// Instances of the type of which the host has most.
    pub instances: u32,
}

/// Why a project is asked for no more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchLimit {
    /// So many of its jobs are here.
    Jobs(usize),
    /// So many of its results are on their way.
    Uploading(usize),
    /// Its downloads stall.
    DownloadsStall,
    /// What its owner says of it cannot be read, and may forbid it.
    Unread,
}

/// Why a project is not to be asked for work, if it is not.
pub fn fetch_limit(held: &ProjectHoldings) -> Option<FetchLimit> {
    let uploading_max = UPLOADING_PER_INSTANCE * held.instances.max(1) as usize;
    match held {
        ProjectHoldings { downloads_stall: true, .. } => Some(FetchLimit::DownloadsStall),
        ProjectHoldings { uploading, .. } if *uploading > uploading_max => {
            Some(FetchLimit::Uploading(*uploading))
        }
        ProjectHoldings { jobs, .. } if *jobs >= JOBS_ENOUGH => Some(FetchLimit::Jobs(*jobs)),
        _ => None,
    }
}

/// The types of which a project holds too many jobs that cannot run now: it is asked for no more of these.
/// The jobs are not over; they wait to be started again, are too large for what may be used here, or wait for
/// a place among those that the owner gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnrunnableTypes(PerType<Option<Gathered>>);

/// What is held of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// So many jobs.
    Jobs(usize),
    /// As much as the owner lets run within the buffer.
    Places,
}

impl UnrunnableTypes {
    /// From the jobs that are set aside, by main type. `instances` are those of the type of which the host
    /// has most.
    pub fn of(unrunnable: &PerType<usize>, instances: u32) -> Self {
        let most = UNRUNNABLE_PER_INSTANCE * instances.max(1) as usize;
        Self(unrunnable.map(|_, jobs| Some(*jobs).filter(|jobs| *jobs > most).map(Gathered::Jobs)))
    }

    /// And those of which as much is held as the owner lets run.
    #[must_use]
    pub fn and_full(mut self, full: &PerType<bool>) -> Self {
        for (kind, _) in full.iter().filter(|(_, is_full)| **is_full) {
            self.0[kind].get_or_insert(Gathered::Places);
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, jobs)| jobs.is_none())
    }

    /// Which types they are.
    pub fn types(&self) -> PerType<bool> {
        self.0.map(|_, jobs| jobs.is_some())
    }
}

/// A request, cut to the number of jobs that there is room for. `job` is the instance time of a job of the
/// project, as its last jobs were estimated.
#[must_use]
pub fn within_job_limit(request: WorkRequest, held: usize, job: Duration) -> WorkRequest {
    let room = JOBS_MAX.saturating_sub(held) as f64;
    let most = (InstanceSeconds::of_one(job) * room).max(InstanceSeconds::of_one(FIRST_REQUEST));
    WorkRequest {
        seconds: request.seconds.map(|_, seconds| seconds.min(most)),
        instances: request.instances.map(|_, instances| instances.min(room)),
    }
}

/// The most that a project may be asked for of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacesLeft {
    /// How much computing.
    pub seconds: InstanceSeconds,
    /// Instances that have no job.
    pub instances: f64,
    /// Jobs that these are enough for.
    pub jobs: usize,
}

/// The most that a project may be asked for of a type, where the owner limits how many of its jobs run at
/// once; none where that leaves it open. `window` is how much work is to be held, by the clock. `asked` is
/// how many jobs the same request asks for that get their places first.
pub fn within_places(
    queue: &JobQueue,
    project: ProjectId,
    kind: ResourceType,
    host: &PlanHost,
    window: Duration,
    asked: usize,
) -> Option<PlacesLeft> {
    let (size, jobs) = queue.places_left(project, kind, &host.instances)?;
    let jobs = jobs.saturating_sub(asked);
    let most = size.times(jobs).as_f64().min(f64::from(host.instances[kind]));
    let active = host.active_fraction.get().max(0.01);
    let holds = queue.remaining_on(project, kind).as_secs_f64();
    let lacks = most * window.max(Duration::ZERO).as_secs_f64() - holds / active;
    // However short the buffer, there is to be a job for each place.
    let free = most - queue.held_instances(project, kind).as_f64();
    let free = if free >= IDLE_MIN { free } else { 0.0 };
    let least = if free > 0.0 { REQUEST_MIN.as_secs_f64() } else { 0.0 };
    let lacks = if lacks >= REQUEST_MIN.as_secs_f64() { lacks } else { least };
    // Parts of a millionth are none.
    let lacking = (free / size.as_f64().max(f64::MIN_POSITIVE) + 1e-6).floor() as usize;
    Some(PlacesLeft { seconds: InstanceSeconds::new(lacks), instances: free, jobs: lacking.min(jobs) })
}

/// A request, cut to what the owner lets run of a project at once. `room` says how much that is of a type
/// beside so many other jobs: those on GPUs get their places first, in this request as well.
#[must_use]
pub fn cut_to_places(
    mut request: WorkRequest,
    room: impl Fn(ResourceType, usize) -> Option<PlacesLeft>,
) -> WorkRequest {
    let mut asked = 0_usize;
    for kind in ResourceType::COPROCESSORS.into_iter().chain([ResourceType::Cpu]) {
        let Some(room) = room(kind, asked) else { continue };
        request.seconds[kind] = request.seconds[kind].min(room.seconds);
        request.instances[kind] = request.instances[kind].min(room.instances);
        if request.asks(kind) {
            asked = asked.saturating_add(room.jobs);
        }
    }
    request
}

/// What a project is asked for of which no job has been seen: a second of each type that may be used here.
pub fn first_request(usable: &PerType<u32>) -> WorkRequest {
    let seconds = |count: &u32| match count {
        0 => InstanceSeconds::ZERO,
        _ => InstanceSeconds::of_one(FIRST_REQUEST),
    };
    WorkRequest { seconds: usable.map(|_, count| seconds(count)), instances: PerType::default() }
}

impl fmt::Display for FetchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs(jobs) => write!(f, "{jobs} of its jobs are here"),
            Self::Uploading(jobs) => write!(f, "the results of {jobs} jobs wait to be sent to it"),
            Self::DownloadsStall => write!(f, "its downloads stall"),
            Self::Unread => write!(f, "what the owner says of it cannot be read"),
        }
    }
}

impl fmt::Display for UnrunnableTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.iter().filter_map(|(kind, jobs)| Some((kind, (*jobs)?)));
        for (n, (kind, jobs)) in held.enumerate() {
            let sep = if n > 0 { ", " } else { "" };
            match jobs {
                Gathered::Jobs(jobs) => {
                    write!(f, "{sep}{kind}: {jobs} of its jobs are here that cannot run now")?;
                }
                Gathered::Places => {
                    write!(f, "{sep}{kind}: as much of its work is here as the owner lets run")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ResourceType::{Cpu, Nvidia};

    #[test]
    fn r3_9_a_project_of_which_enough_is_held_is_asked_for_no_more() {
        let table = [
            // jobs, uploading, stalls, instances; why it is not asked
            (0, 0, false, 4, None),
            (749, 8, false, 4, None),
            (750, 0, false, 4, Some(FetchLimit::Jobs(750))),
            (5_000, 0, false, 4, Some(FetchLimit::Jobs(5_000))),
            (0, 9, false, 4, Some(FetchLimit::Uploading(9))),
            (0, 9, false, 5, None),
            (0, 2, false, 0, None),
            (0, 3, false, 0, Some(FetchLimit::Uploading(3))),
            (0, 0, true, 4, Some(FetchLimit::DownloadsStall)),
            (1_000, 100, true, 4, Some(FetchLimit::DownloadsStall)),
        ];
        for (jobs, uploading, downloads_stall, instances, expected) in table {
            let held = ProjectHoldings { jobs, uploading, downloads_stall, instances };
            assert_eq!(fetch_limit(&held), expected, "{held:?}");
        }
    }

    #[test]
    fn r3_9_a_project_is_asked_for_no_more_of_a_type_of_which_jobs_gather_that_cannot_run() {
        let table = [
            // CPU and GPU jobs set aside, instances; what is said
            (0, 0, 4, ""),
            (8, 8, 4, ""),
            (9, 8, 4, "CPU: 9 of its jobs are here that cannot run now"),
            (9, 9, 5, ""),
            (0, 3, 0, "NVIDIA GPU: 3 of its jobs are here that cannot run now"),
        ];
        for (cpu, gpu, instances, said) in table {
            let mut unrunnable = PerType::cpu(cpu);
            unrunnable[Nvidia] = gpu;
            let unrunnable_types = UnrunnableTypes::of(&unrunnable, instances);
            assert_eq!(
                (unrunnable_types.to_string().as_str(), unrunnable_types.is_empty()),
                (said, said.is_empty())
            );
            let types = unrunnable_types.types();
            assert_eq!((types[Cpu], types[Nvidia]), (said.starts_with("CPU"), said.starts_with("NVIDIA")));
        }
        assert_eq!(UnrunnableTypes::of(&PerType::from_fn(|_| 9), 1).to_string().matches(", ").count(), 4);
    }

    #[test]
    fn r3_9_a_request_asks_for_no_more_than_there_are_places_for_jobs() {
        let table = [
            // seconds wanted, jobs held, milliseconds of a job; seconds asked for
            (17_280.0, 0, 100, 100.0),
            (17_280.0, 700, 100, 30.0),
            (17_280.0, 749, 1, 1.0),
            (17_280.0, 0, 3_600_000, 17_280.0),
            (17_280.0, 900, 3_600_000, 17_280.0),
            (50.0, 0, 100, 50.0),
            (0.0, 0, 100, 0.0),
        ];
        for (seconds, held, millis, expected) in table {
            let wanted = WorkRequest::cpu(Duration::from_secs_f64(seconds), 2.0);
            let cut = within_job_limit(wanted, held, Duration::from_millis(millis));
            assert!((cut.seconds[Cpu].get() - expected).abs() < 1e-9, "{seconds} {held} {millis}: {cut:?}");
            assert_eq!(cut.instances[Cpu], 2.0);
        }
    }

    #[test]
    fn r3_2_the_first_request_asks_for_a_second_of_each_type_that_may_be_used() {
        let usable = PerType::from_fn(|kind| u32::from(kind == Cpu || kind == Nvidia) * 4);
        let request = first_request(&usable);
        assert_eq!(request.types().collect::<Vec<_>>(), [Cpu, Nvidia]);
        assert!(
            request.types().all(|kind| request.seconds[kind].get() == 1.0 && request.instances[kind] == 0.0)
        );
    }
}
