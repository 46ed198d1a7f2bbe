//! Keeping the accounts ([`Ledger`](crate::accounts::Ledger)): what tasks use is charged, time that passes is
//! accounted for, what is over is booked, and estimates are learned from.

use fallow_domain::{Duration, Instant, JobId, PerType, ProjectId, ResourceType};
use fallow_policy::metrics::{DeadlineOutcome, Observation, ProjectObservation};

use crate::Entity;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{Job, Outcome};

/// What was available in the time since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinceLastLook {
    pub from: Instant,
    available: PerType<u32>,
    starved: PerType<f64>,
    /// Instance time lost to the limit on CPU time (R2.8).
    pub throttled: Duration,
}

impl Client {
    /// Books CPU time of a task, which the task's own record counts already. Whether it was
    /// [contested](Self::is_contested) is the same for all tasks that are looked at together.
    pub(crate) fn charge(&mut self, id: JobId, project: ProjectId, cpu: Duration, contested: bool) {
        if !cpu.is_positive() {
            return;
        }
        let now = self.now();
        self.records.charged(id);
        self.ledger.charge(project, cpu, contested);
        if self.config.learns_recent_cpu() {
            self.ledger.note_recent_cpu(project, cpu, now);
        }
        self.touch(Entity::Project(project));
        self.touch(Entity::Host);
    }

    /// Whether every project with a share, and more than one, has runnable work: only then do shares decide
    /// who gets a CPU.
    pub(crate) fn is_contested(&self) -> bool {
        if self.state.projects.len() < 2 {
            return false;
        }
        let mut sharing =
            self.state.projects.values().filter(|p| p.share.get() > 0.0 && !p.detach_when_done).peekable();
        let several = sharing.clone().nth(1).is_some();
        several && sharing.all(|project| self.workload.queue().is_runnable(project.id))
    }

    /// A job is forgotten: what it cost moves to the account of what became of it. One that was finished and
    /// never reported was for nothing.
    pub(crate) fn book_job(&mut self, job: &Job, is_reported: bool) {
        let late = self.now() > job.result.report_deadline;
        let success = is_reported && job.outcome.as_ref().is_some_and(Outcome::is_success);
        let cost = job.run.charged;
        let worth = self.worth(job);
        self.count(job.project, |totals| {
            totals.cpu_in_progress -= cost;
            let (cpu, jobs) = match (success, late) {
                (true, false) => (&mut totals.cpu_success, &mut totals.jobs_success),
                (true, true) => (&mut totals.cpu_late, &mut totals.jobs_late),
                (false, _) => (&mut totals.cpu_error, &mut totals.jobs_error),
            };
            *cpu += cost;
            *jobs += 1;
        });
        // What was begun and given up is done no more than what is late.
        let given_up = job.outcome.as_ref().is_some_and(|outcome| outcome.state == EndState::Aborted);
        let fate =
            if late || given_up || !is_reported { DeadlineOutcome::Missed } else { DeadlineOutcome::Met };
        self.ledger.job_settled(self.clock.now(), worth, fate);
    }

    /// All the instance time that a job used, weighted by speed: what it counts for in the metrics.
    pub(crate) fn worth(&self, job: &Job) -> Duration {
        match job.usage.coprocessor {
            Some((kind, _)) => {
                job.run.charged + job.run.charged_coprocessor.mul_f64(self.plan_host().speeds[kind])
            }
            None => job.run.charged,
        }
    }

    /// Accounts for the time since the last look, as things stood before the event: availability, elapsed
    /// times.
    pub(crate) fn observe(&mut self) -> Option<SinceLastLook> {
        let now = self.now();
        let from = self.ledger.look(now)?;
        // Computing is vouched for only as long as the shell was sure to call.
        let vouched = self.presence.vouched(from, now);
        let (length, off) = (vouched.since(from), now.since(vouched));
        let allowed = !self.preferences().suspended;
        if off.is_positive() {
            self.presence.begin(now);
        }
        self.ledger.time_passed(from, vouched, now, allowed);
        if self.config.learns_habits() {
            let unserved = self.unserved();
            self.ledger.learn_habits(from, vouched, now, allowed, &unserved);
        }
        if length.is_positive() {
            self.tasks_ran_for(length);
        }
        let here = allowed && !off.is_positive();
        self.note_stretches(here, from);
        Some(SinceLastLook {
            from,
            available: if here { self.plan_host().instances } else { PerType::default() },
            starved: if here { self.ledger.starved() } else { PerType::default() },
            throttled: length.mul_f64(self.paused_cpus()),
        })
    }

    /// Notes for the metrics how projects stood in that time, `from` its beginning: the event that ended it
    /// may end jobs, too.
    fn note_stretches(&mut self, here: bool, from: Instant) {
        let instances = self.plan_host().instances;
        let queue = self.workload.queue();
        self.ledger.note_stretches(self.state.projects.values(), |project, backoffs| {
            let could_use = instances.map(|kind, count| match count {
                0 => 0.0,
                _ => queue.runnable_instances(project.id, kind).as_f64(),
            });
            let must_wait = project.rpc.must_wait(from);
            let shut = project.detach_when_done || project.rpc.is_down(from);
            let left_out = project.left_out();
            let has_none = |kind: ResourceType| {
                shut || project.lacks[kind]
                    || left_out[kind]
                    || backoffs.has_none(project.id, kind, from, must_wait)
            };
            ProjectObservation {
                project: project.id,
                share: project.share,
                used: PerType::default(),
                running: here,
                could_use,
                could_get: instances.map(|kind, count| match count {
                    0 => 0.0,
                    _ if has_none(kind) => could_use[kind],
                    count => f64::from(*count),
                }),
            }
        });
    }

    /// Counts the elapsed time of the tasks that execute.
    fn tasks_ran_for(&mut self, length: Duration) {
        let Self { state, throttle, ledger, .. } = self;
        state.jobs.change_executed(|job| {
            if throttle.holds(job, &state.versions) {
                return;
            }
            job.run.elapsed += length;
            // The kernel counts CPU time only.
            if let Some((kind, count)) = job.usage.coprocessor {
                let used = length.mul_f64(count);
                job.run.charged_coprocessor += used;
                ledger.used(job.project, kind, used);
            }
        });
    }

    /// Books that time, and what was used in it, for the metrics.
    pub(crate) fn observe_metrics(&mut self, seen: SinceLastLook) {
        // What was used before the host went away, and is only seen now, is booked when it is back: it says
        // nothing about a time without instances.
        if seen.available != PerType::default() {
            self.ledger.book_stretches();
        }
        let (to, speeds) = (self.now(), self.plan_host().speeds);
        let scheduling_period = self.preferences().scheduling_period;
        self.ledger.observe_metrics(|projects| Observation {
            from: seen.from,
            to,
            available: seen.available,
            starved: seen.starved,
            speeds,
            throttled: seen.throttled,
            scheduling_period,
            projects,
        });
    }

    /// The jobs of a project.
    pub(crate) fn jobs_of(&self, project: ProjectId) -> Vec<JobId> {
        self.state.jobs.of(project).collect()
    }
}
