//! How much of the swap space tasks may hold (R6.4; BOINC: `vm_max_used_pct`): when all together hold more,
//! some leave memory, and what of them was out there is given back. One that ran starts again from its saved
//! state a while later: by then whoever wanted the memory may be gone.

use fallow_domain::{Bytes, Duration, Fraction};
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
        let held = self.state.jobs.slots().values().filter_map(|id| self.state.jobs.get(id)).filter_map(held);
        let held: Vec<Held> = held.collect();
        let all = held.iter().fold(Bytes(0), |all, task| all.plus(task.swap));
        for id in who_leaves(most, held) {
            let Some(job) = self.state.jobs.get(&id) else { continue };
            let (Process::Executing(pid) | Process::Suspended(pid)) = job.process else { continue };
            let not_before = if job.process.computes() { self.now() + AWAY } else { job.run.not_before };
            self.act(Effect::QuitTask { job: id }, Cause::SwapFull { held: all, most });
            self.edit_job(id, |job| (job.run.not_before, job.run.swap) = (not_before, Bytes(0)));
            self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
            self.refresh(id);
        }
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
