//! The tasks on the host: how far each is, and when it ends or has a checkpoint.
//!
//! All times here are on the host's own clock, which runs while it is on. A task is brought up to date when
//! somebody looks; between two looks nothing is computed.

use std::collections::BTreeMap;

use fallow_boinc::runtime::message::AppStatus;
use fallow_client::TaskSample;
use fallow_domain::{Bytes, Duration, Fraction, JobId, Usage};

/// Programs on a GPU use a little CPU time too, whatever their scenario says. Clients take a checkpoint for
/// one only when the CPU time at it has changed.
pub(crate) const CPUS_MIN: f64 = 0.001;

/// A job with a process.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) project: usize,
    /// The job's number within its project.
    pub(crate) number: u64,
    pub(crate) usage: Usage,
    memory: Bytes,
    length: Duration,
    /// How far it runs: to its end, or to where it fails.
    stops_at: Duration,
    /// Running time between two checkpoints; none keeps everything.
    interval: Option<Duration>,
    /// Running time towards the result when this process began.
    base: Duration,
    /// Running time towards the result.
    done: Duration,
    /// When it was last brought up to date, while it runs.
    since: Option<Duration>,
    /// Running time not yet booked by whoever counts it.
    unbooked: Duration,
    /// Which stretch of running this is: what was planned for an earlier one is void.
    pub(crate) turn: u32,
    /// The client has been told how far it is.
    sampled: bool,
    /// The output that it writes, and its size.
    pub(crate) output: Option<(String, Bytes)>,
}

/// What is needed to begin a task.
pub(crate) struct TaskStart {
    pub(crate) project: usize,
    pub(crate) number: u64,
    pub(crate) usage: Usage,
    pub(crate) memory: Bytes,
    pub(crate) length: Duration,
    pub(crate) fails_at: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    /// Where it goes on.
    pub(crate) base: Duration,
    pub(crate) output: Option<(String, Bytes)>,
}

impl Task {
    fn new(begin: TaskStart) -> Self {
        Self {
            project: begin.project,
            number: begin.number,
            usage: begin.usage,
            memory: begin.memory,
            length: begin.length,
            stops_at: begin.fails_at.map_or(begin.length, |at| at.min(begin.length)),
            interval: begin.interval,
            base: begin.base,
            done: begin.base,
            since: None,
            unbooked: Duration::ZERO,
            turn: 0,
            sampled: true,
            output: begin.output,
        }
    }

    fn update(&mut self, clock: Duration) {
        if let Some(since) = self.since.filter(|since| *since < clock) {
            let ran = clock - since;
            self.done += ran;
            self.unbooked += ran;
            self.since = Some(clock);
            self.sampled = false;
        }
    }

    /// Running time towards the result that would survive the end of the process.
    pub(crate) fn kept(&self) -> Duration {
        match self.interval {
            Some(interval) if interval.is_positive() => {
                interval * (self.done.as_micros() / interval.as_micros())
            }
            _ => self.done,
        }
    }

    /// Running time beyond the last checkpoint.
    pub(crate) fn unkept(&self) -> Duration {
        self.done - self.kept()
    }

    /// Whether it has come to its end, and then whether it failed.
    pub(crate) fn over(&self) -> Option<bool> {
        (self.done >= self.stops_at).then_some(self.stops_at < self.length)
    }

    /// CPU time of so much running time.
    fn cpu(&self, running: Duration) -> Duration {
        if self.usage.cpus == 1.0 { running } else { running.mul_f64(self.usage.cpus.max(CPUS_MIN)) }
    }

    /// CPU time of this process.
    pub(crate) fn process_cpu(&self) -> Duration {
        self.cpu(self.done - self.base)
    }

    fn sample(&self, job: JobId) -> TaskSample {
        let part = self.done.as_secs_f64() / self.length.as_secs_f64();
        TaskSample {
            job,
            cpu_time: self.process_cpu(),
            working_set: self.memory,
            swap: None,
            threads: 1,
            disk: None,
            status: Some(AppStatus {
                current_cpu_time: self.cpu(self.done),
                checkpoint_cpu_time: self.cpu(self.kept()),
                fraction_done: Some(Fraction::clamped(part)),
                ..AppStatus::default()
            }),
        }
    }

    /// When it reaches its end if it runs on without a break.
    fn ends_at(&self, clock: Duration) -> Duration {
        clock + (self.stops_at - self.done)
    }

    /// When it has its next checkpoint if it runs on without a break.
    pub(crate) fn next_checkpoint(&self, clock: Duration) -> Option<Duration> {
        let interval = self.interval?;
        let at = clock + (self.kept() + interval - self.done);
        (at < self.ends_at(clock)).then_some(at)
    }
}

/// The tasks that have a process.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: BTreeMap<JobId, Task>,
}

impl Tasks {
    /// Begins a task, which runs at once. Says when it ends.
    pub(crate) fn begin(&mut self, job: JobId, begin: TaskStart, clock: Duration) -> (Duration, u32) {
        let task = Task { since: Some(clock), ..Task::new(begin) };
        let ends_at = task.ends_at(clock);
        self.tasks.insert(job, task);
        (ends_at, 0)
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&Task> {
        self.tasks.get(&job)
    }

    /// Lets a suspended task run. Says when it ends; none if it runs already or is gone.
    pub(crate) fn resume(&mut self, job: JobId, clock: Duration) -> Option<(Duration, u32)> {
        let task = self.tasks.get_mut(&job).filter(|task| task.since.is_none())?;
        task.since = Some(clock);
        task.turn = task.turn.wrapping_add(1);
        Some((task.ends_at(clock), task.turn))
    }

    /// Stops a task and keeps it in memory. Says whether it ran.
    pub(crate) fn suspend(&mut self, job: JobId, clock: Duration) -> bool {
        let Some(task) = self.tasks.get_mut(&job) else { return false };
        task.update(clock);
        task.turn = task.turn.wrapping_add(1);
        task.since.take().is_some()
    }

    /// Ends a task's process.
    pub(crate) fn end(&mut self, job: JobId, clock: Duration) -> Option<Task> {
        let mut task = self.tasks.remove(&job)?;
        task.update(clock);
        Some(task)
    }

    /// All that have a process, in order.
    pub(crate) fn ids(&self) -> Vec<JobId> {
        self.tasks.keys().copied().collect()
    }

    /// Brings all tasks up to date, and books what they ran with `book`.
    pub(crate) fn update(&mut self, clock: Duration, mut book: impl FnMut(&Task, Duration)) {
        for task in self.tasks.values_mut() {
            task.update(clock);
            if task.unbooked.is_positive() {
                let ran = std::mem::take(&mut task.unbooked);
                book(task, ran);
            }
        }
    }

    /// What the client has not been told: how far the tasks are that went on.
    pub(crate) fn samples(&mut self) -> Vec<TaskSample> {
        let news = self.tasks.iter_mut().filter(|(_, task)| !task.sampled);
        news.map(|(job, task)| {
            task.sampled = true;
            task.sample(*job)
        })
        .collect()
    }
}

impl Task {
    /// Takes what it ran and nobody has booked.
    pub(crate) fn take_unbooked(&mut self) -> Duration {
        std::mem::take(&mut self.unbooked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(secs: i64) -> Duration {
        Duration::from_secs(secs)
    }
    fn begin(length: i64, interval: Option<i64>, base: i64) -> TaskStart {
        TaskStart {
            project: 0,
            number: 0,
            usage: Usage::ONE_CPU,
            memory: Bytes(0),
            length: s(length),
            fails_at: None,
            interval: interval.map(s),
            base: s(base),
            output: None,
        }
    }

    #[test]
    fn a_suspended_task_makes_no_progress_and_loses_none() {
        let (mut tasks, job) = (Tasks::default(), JobId(1));
        assert_eq!(tasks.begin(job, begin(100, Some(30), 0), s(10)), (s(110), 0));
        assert!(tasks.suspend(job, s(50)));
        assert!(!tasks.suspend(job, s(60)));
        assert_eq!(tasks.resume(job, s(80)), Some((s(140), 3)));
        assert_eq!(tasks.resume(job, s(90)), None);
        let task = tasks.end(job, s(100)).unwrap();
        assert_eq!((task.done, task.process_cpu(), task.kept(), task.unkept()), (s(60), s(60), s(60), s(0)));
    }

    #[test]
    fn a_task_without_an_interval_keeps_everything_and_one_with_it_falls_back() {
        let (mut tasks, job) = (Tasks::default(), JobId(1));
        for (interval, kept, next) in [(None, 50, None), (Some(20), 40, Some(60))] {
            tasks.begin(job, begin(100, interval, 0), s(0));
            tasks.update(s(50), |_, _| {});
            let task = tasks.get(job).unwrap();
            assert_eq!((task.kept(), task.next_checkpoint(s(50))), (s(kept), next.map(s)));
            tasks.end(job, s(50));
        }
        let (ends_at, _) = tasks.begin(job, begin(100, Some(20), 40), s(70));
        assert_eq!(ends_at, s(130));
    }

    #[test]
    fn what_ran_is_booked_once_and_said_once() {
        let (mut tasks, job) = (Tasks::default(), JobId(1));
        tasks.begin(job, begin(100, None, 0), s(0));
        let mut booked = Duration::ZERO;
        for clock in [10, 10, 35] {
            tasks.update(s(clock), |_, ran| booked += ran);
        }
        assert_eq!(booked, s(35));
        assert_eq!(tasks.samples()[0].cpu_time, s(35));
        assert!(tasks.samples().is_empty());
    }

    #[test]
    fn a_job_that_fails_stops_where_it_does() {
        let (mut tasks, job) = (Tasks::default(), JobId(1));
        let fails = TaskStart { fails_at: Some(s(25)), ..begin(100, None, 0) };
        assert_eq!(tasks.begin(job, fails, s(0)).0, s(25));
        tasks.update(s(25), |_, _| {});
        assert_eq!(tasks.get(job).unwrap().over(), Some(true));
    }
}
