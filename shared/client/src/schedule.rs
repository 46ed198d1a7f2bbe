//! Carries out the CPU scheduling policy: settles debts, decides, starts, resumes and preempts.

use std::collections::BTreeSet;

use fallow_domain::{Bytes, Duration, Instant, JobId, PerType, ProjectId, ResourceType, SlotId};
use fallow_policy::accounting::{Debt, ShortTermPeriod};
use fallow_policy::confinement::TaskLayers;
use fallow_policy::cpu_schedule::{
    CpuSituation, ProjectSnapshot, RunAction, Schedule, ScheduleHost, ScheduledJob, UnscheduledJob,
};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::round_robin::Outlook;

use crate::app_configs::BelowShare;
use crate::end_state::EndState;
use crate::machine::Client;
use crate::state::{Given, Process};
use crate::{Cause, Effect, Entity, Reason, Rule};

impl Client {
    /// Memory that tasks may use together.
    pub(crate) fn memory_limit(&self) -> Bytes {
        let memory = self.state.host.facts().map_or(0.0, |host| host.memory.as_f64());
        Bytes::from_f64(memory * self.preferences().memory_fraction.get())
    }

    /// Memory that tasks may use together while nobody uses the host: the most that one may ever have.
    pub(crate) fn memory_limit_unused(&self) -> Bytes {
        let memory = self.state.host.facts().map_or(0.0, |host| host.memory.as_f64());
        Bytes::from_f64(memory * self.state.host.unused().memory_fraction.get())
    }

    /// What the host offers to jobs.
    pub(crate) fn schedule_host(&self, suspended: bool) -> ScheduleHost {
        let preferences = self.preferences();
        ScheduleHost {
            usable: if suspended { 0 } else { self.usable_cpus() },
            devices: match suspended || self.state.host.spares_devices() {
                true => PerType::default(),
                false => self.usable_devices(),
            },
            scheduling_period: preferences.scheduling_period,
            memory_limit: self.memory_limit(),
            preempt_only_at_checkpoint: !preferences.leave_in_memory,
        }
    }

    /// What it offers at this moment.
    fn schedule_host_now(&self) -> ScheduleHost {
        let suspended = self.preferences().suspended;
        let host = match suspended || self.state.host.spares_devices() {
            true => self.schedule_host(suspended),
            false => ScheduleHost { devices: self.devices_to_begin_on(), ..self.schedule_host(false) },
        };
        ScheduleHost { usable: host.usable.saturating_sub(self.cpus_kept_free()), ..host }
    }

    /// Decides what runs (R2.2 to R2.6), and sees to it.
    pub(crate) fn decide_what_runs(&mut self) {
        self.abort_hopeless();
        self.look_at_devices();
        let held = self.held_below_share();
        let used = self.settle_debts(&held);
        let (composition, none) = (self.config.composition, Outlook::default());
        let looks_ahead = composition.cpu.looks_ahead();
        if looks_ahead {
            self.look_ahead();
        }
        let owed = composition.accounting.owed(&self.books());
        let project = |((id, share), priority): (&(ProjectId, _), _)| ProjectSnapshot {
            id: *id,
            share: *share,
            priority,
            misses: PerType::default(),
        };
        let shares = self.state.projects.shares();
        let mut projects: Vec<ProjectSnapshot> = shares.iter().zip(owed).map(project).collect();
        self.put_held_first(&mut projects, &held);
        let decision = composition.cpu.decide(&CpuSituation {
            now: self.now(),
            host: self.schedule_host_now(),
            used,
            projects: &projects,
            outlook: if looks_ahead { self.round_robin.outlook() } else { &none },
            queue: self.workload.queue(),
        });
        // Its timer has passed, was set when the decision was wanted, or is stale since the clock was set
        // back.
        self.schedule.make(self.now(), decision.decide_by, ());
        let waits_for_checkpoint = decision.run.iter().any(|chosen| chosen.until_checkpoint);
        self.ledger.decided(decision.starved.map(|_, starved| starved.as_f64()), waits_for_checkpoint);
        self.carry_out(&decision);
        self.ledger.now_compute(self.computing_projects());
        self.touch(Entity::Host);
    }

    /// Updates the debts for the time since the last decision (R2.1). Returns the instance time that all
    /// projects used. A project takes no part for types of which the owner lets it use less than its share.
    pub(crate) fn settle_debts(&mut self, held: &BelowShare) -> PerType<Duration> {
        let period: Vec<ShortTermPeriod> = self
            .state
            .projects
            .values()
            .map(|project| ShortTermPeriod {
                project: project.id,
                share: project.share,
                used: self.ledger.spent_by(project.id),
                runnable: PerType::from_fn(|kind| self.workload.queue().is_runnable_on(project.id, kind)),
            })
            .collect();
        for project in &period {
            self.touch(Entity::Project(project.project));
        }
        let host = self.plan_host();
        self.book_credit(&period, &host);
        let without_held = |period: ShortTermPeriod| ShortTermPeriod {
            runnable: period.runnable.map(|kind, runnable| *runnable && !held.holds(period.project, kind)),
            used: held.but_of_held(period.project, &period.used),
            ..period
        };
        let period: Vec<ShortTermPeriod> = period.into_iter().map(without_held).collect();
        self.ledger.settle_short_term(&host, &period)
    }

    /// A project of which the owner lets less run than its share comes first: it gets no more than it is
    /// owed, and the others divide the rest.
    fn put_held_first(&self, projects: &mut [ProjectSnapshot], held: &BelowShare) {
        let period = self.preferences().scheduling_period.as_secs_f64();
        for kind in ResourceType::ALL {
            if held.is_empty_of(kind) {
                continue;
            }
            let others = projects.iter().filter(|of| !held.holds(of.id, kind));
            let most = others.map(|of| of.priority[kind].as_secs()).fold(0.0, f64::max);
            for of in projects.iter_mut() {
                if let Some(instances) = held.most(of.id, kind) {
                    of.priority[kind] = Debt::from_secs(most + period * instances);
                }
            }
        }
    }

    fn computing_projects(&self) -> BTreeSet<ProjectId> {
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id));
        held.filter(|job| job.process.computes()).map(|job| job.project).collect()
    }

    /// Books what was used in the recent credit of projects.
    fn book_credit(&mut self, period: &[ShortTermPeriod], host: &PlanHost) {
        if !self.config.composition.accounting.counts_credit() {
            return;
        }
        let Some(cpu) = self.state.host.facts().map(|host| host.speed.fpops) else { return };
        self.ledger.book_credit(self.clock.now(), host, cpu, period);
    }

    fn carry_out(&mut self, decision: &Schedule) {
        for passed in &decision.preempt {
            self.preempt(passed);
        }
        for chosen in &decision.run {
            self.run(chosen);
        }
    }

    pub(crate) fn run(&mut self, chosen: &ScheduledJob) {
        let id = chosen.job;
        // A process in memory is bound to the devices that it was started on (R3.14).
        let Some(job) = self.state.jobs.get(&id) else { return };
        let elsewhere = job.run.devices != chosen.devices;
        let moved = elsewhere && job.usage.coprocessor.is_some();
        let process = job.process;
        let reason = || Reason::new(Rule::Scheduling(chosen.rule), chosen.why.clone());
        if elsewhere || job.run.slice_since != chosen.slice_began {
            self.steer_job(id, |job| {
                job.run.devices = chosen.devices;
                if job.run.slice_since != chosen.slice_began {
                    job.run.slice_since = chosen.slice_began;
                    if chosen.action != RunAction::Continue {
                        job.run.checkpoint_at = None;
                    }
                }
            });
        }
        match process {
            // Its end leads to the next decision.
            Process::None if self.is_being_left(id, chosen.devices) => {}
            Process::None => self.start_task(id, reason()),
            Process::Suspended(pid) if moved => {
                self.act(Effect::QuitTask { job: id }, Cause::DeviceChanged(chosen.devices));
                self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
            }
            Process::Suspended(pid) => {
                // One that comes back in a pause of the limit on CPU time resumes at its end (R2.8).
                if !self.is_paused(id) {
                    self.act(Effect::ResumeTask { job: id }, reason());
                }
                self.steer_job(id, |job| job.process = Process::Executing(pid));
            }
            // It goes on, or its last process must be gone first; then the next decision starts it.
            Process::Starting | Process::Executing(_) | Process::Quitting(_) | Process::Aborting(_) => {}
        }
        self.refresh(id);
    }

    /// Its place among the jobs is for the caller to refresh.
    fn start_task(&mut self, id: JobId, reason: Reason) {
        let slot = match self.state.jobs.get(&id).and_then(|job| job.slot) {
            Some(slot) => slot,
            None => self.free_slot_number(),
        };
        // A slot without a process so far may be half filled: the last start failed on the way.
        let fresh = self.state.jobs.get(&id).is_none_or(|job| job.slot.is_none() || !job.run.ran);
        self.steer_job(id, |job| job.run.starts = job.run.starts.wrapping_add(1));
        let setup = match self.task_setup(id, slot, fresh) {
            Ok(setup) => setup,
            Err(why) => {
                return self.job_failed(
                    id,
                    fallow_boinc::runtime::exit::START_FAILED,
                    EndState::ComputeError,
                    format!("cannot start: {why}"),
                );
            }
        };
        let network = setup.network;
        let started = self.steer_job(id, |job| {
            job.slot = Some(slot);
            job.process = Process::Starting;
            job.given = Given { network, without: TaskLayers::default() };
            job.run.base = job.run.checkpoint_cpu;
            job.run.process_cpu = Duration::ZERO;
            (job.run.swap, job.run.swapped) = (Bytes(0), Bytes(0));
            job.run.elapsed = job.run.checkpoint_elapsed;
            job.run.elapsed_base = job.run.elapsed;
            job.run.begun = true;
            // Stored before the start is carried out: what the process then does is never lost, however
            // little of it could be stored.
            job.run.live = true;
            (job.run.checkpoint_cpu, job.project, job.result.name.clone())
        });
        if let Some((resumed, project, name)) = started {
            let text = self.said(|| match resumed.is_positive() {
                true => format!("resuming {name} from its checkpoint at {resumed} of CPU time"),
                false if !fresh => format!("starting {name} again from the beginning: it has no checkpoint"),
                false => format!("starting {name}"),
            });
            self.notice(crate::NoticeLevel::Info, Some(project), text);
        }
        self.act(Effect::StartTask(Box::new(setup)), reason);
    }

    fn free_slot_number(&self) -> SlotId {
        let mut slot = SlotId(0);
        while self.state.jobs.slots().contains_key(&slot) || !self.state.slots.is_free(slot, self.now()) {
            slot.0 += 1;
        }
        slot
    }

    /// A running task gives way to another (R2.4).
    pub(crate) fn preempt(&mut self, passed: &UnscheduledJob) {
        let id = passed.job;
        let Some(job) = self.state.jobs.get(&id) else { return };
        let checkpointed = job.run.checkpoint_cpu.is_positive();
        // One on a coprocessor would hold the memory of its device, which whoever runs there next may need.
        // Until its first checkpoint a task would lose all it did, and might never come to an end.
        let stays = self.preferences().leave_in_memory && job.usage.coprocessor.is_none();
        // A device that is excluded is given up at once, whatever that costs (R3.14).
        let is_excluded = self.is_excluded(job);
        let gone = passed.gives_up_devices || is_excluded;
        // To whoever has just sat down it stops at once: to save its state would take what he wants.
        let is_wanted = self.state.host.gives_way() || self.state.host.is_snoozed();
        let gives_way = is_wanted && job.usage.coprocessor.is_none();
        let stay = (stays || !checkpointed || gives_way) && !gone;
        let reason = match is_excluded {
            true => self.why_left(id).into(),
            false => Reason::new(Rule::GivesWay, passed.why.clone()),
        };
        match job.process {
            Process::Executing(pid) if stay => {
                self.act(Effect::SuspendTask { job: id }, reason);
                self.steer_job(id, |job| job.process = Process::Suspended(pid));
            }
            Process::Executing(pid) => {
                self.act(Effect::QuitTask { job: id }, reason);
                self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
            }
            Process::Starting => {
                self.act(Effect::QuitTask { job: id }, reason);
                self.steer_job(id, |job| job.process = Process::Quitting(None));
            }
            Process::None | Process::Suspended(_) | Process::Quitting(_) | Process::Aborting(_) => {}
        }
        self.refresh(id);
    }

    /// When to decide again if nothing happens.
    pub(crate) fn next_decision(&self) -> Option<Instant> {
        // A project left, or a start failed, after the decision was made.
        if self.schedule.is_wanted() {
            return Some(Instant::EPOCH);
        }
        let something = self.state.projects.keys().any(|project| self.workload.queue().is_runnable(*project));
        something.then(|| self.schedule.holds_until())
    }
}
