//! How much of the swap space tasks may hold (R6.4; BOINC: `vm_max_used_pct`): when all together hold more,
//! some leave memory, and what of them was out there is given back. One that ran starts again from its saved
//! state a while later, if what it had there fits beside what others have by then. Nothing begins in its
//! place meanwhile: that would only take the memory again, and job after job would begin and leave.

use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId};
use fallow_policy::swap_limit::{Held, who_leaves};

use crate::machine::Client;
use crate::state::{Job, Process};
use crate::{Cause, Effect};

/// So long a task stays away that had to leave.
const AWAY: Duration = Duration::from_mins(10);

impl Client {
    /// The most of the swap space that tasks may hold together; none where they may hold all of it, or there
    /// is none.
    fn swap_max(&self) -> Option<Bytes> {
        let part = self.local_preferences().swap_fraction;
        let all = self.state.host.facts()?.swap;
        (part < Fraction::ONE && all > Bytes(0)).then(|| Bytes::from_f64(all.as_f64() * part.get()))
    }

    /// Whether it makes a difference how much of the swap space tasks hold, so that the shell is to look.
    pub fn counts_swap(&self) -> bool {
        self.swap_max().is_some() && self.has_processes()
    }

    /// Has tasks leave memory when all of them together hold too much of the swap space.
    pub(crate) fn keep_swap_limit(&mut self) {
        let Some(most) = self.swap_max() else { return };
        let held: Vec<Held> = self.in_slots().filter_map(held).collect();
        let all = self.swap_held();
        for id in who_leaves(most, held) {
            let Some(job) = self.state.jobs.get(&id) else { continue };
            let (Process::Executing(pid) | Process::Suspended(pid)) = job.process else { continue };
            let (not_before, swapped) = match job.process.computes() {
                true => (self.now() + AWAY, job.run.swap),
                false => (job.run.not_before, Bytes(0)),
            };
            self.act(Effect::QuitTask { job: id }, Cause::SwapFull { held: all, most });
            self.edit_job(id, |job| {
                (job.run.not_before, job.run.swapped, job.run.swap) = (not_before, swapped, Bytes(0));
            });
            self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
            self.refresh(id);
        }
    }

    /// CPUs of tasks that had to leave: nothing else uses them until these come back.
    pub(crate) fn cpus_kept_free(&self) -> u32 {
        if self.swap_max().is_none() {
            return 0;
        }
        let now = self.now();
        let is_away = |job: &&Job| {
            job.run.swapped > Bytes(0)
                && job.run.not_before > now
                && !job.process.computes()
                && job.outcome.is_none()
        };
        let cpus: f64 = self.in_slots().filter(is_away).map(|job| job.usage.cpus).sum();
        cpus.ceil() as u32
    }

    /// What all tasks in memory have in the swap space, by the last look.
    pub(crate) fn swap_held(&self) -> Bytes {
        self.in_slots().filter_map(held).fold(Bytes(0), |all, task| all.plus(task.swap))
    }

    /// When a task may start again whose wait is over: at once, unless it had to leave for its part of the
    /// swap space, and that does not fit yet beside what tasks hold of it. Alone it may try in any case.
    pub(crate) fn comes_back(&self, id: JobId, held: &mut Bytes) -> Instant {
        let swapped = self.state.jobs.get(&id).map_or(Bytes(0), |job| job.run.swapped);
        let all = held.plus(swapped);
        let is_too_much =
            swapped > Bytes(0) && *held > Bytes(0) && self.swap_max().is_some_and(|most| all > most);
        if is_too_much {
            return self.now() + AWAY;
        }
        *held = all;
        Instant::EPOCH
    }

    fn in_slots(&self) -> impl Iterator<Item = &Job> {
        self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id))
    }
}

/// What a task in memory holds of it, by the last look.
fn held(job: &Job) -> Option<Held> {
    let runs = match job.process {
        Process::Executing(_) => true,
        Process::Suspended(_) => false,
        Process::None | Process::Starting | Process::Quitting(_) | Process::Aborting(_) => return None,
    };
    Some(Held { job: job.id, swap: job.run.swap, runs, is_saved: job.run.checkpoint_cpu.is_positive() })
}
