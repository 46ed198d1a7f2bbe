//! How much of the swap space tasks may hold (R6.4; BOINC: `vm_max_used_pct`): when all together hold more,
//! some leave memory, and what of them was out there is given back. One that ran starts again from its saved
//! state a while later, if what it had there fits beside what others have by then. Nothing begins in its
//! place meanwhile: that would only take the memory again, and job after job would begin and leave.
//!
//! One that had to leave soon after it came back stays away for twice as long each time, and others use its
//! CPUs. One that by itself holds more than all may, and saves nothing, would go on like that for ever: the
//! fifth time in a row it fails.

use fallow_boinc::runtime::exit;
use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId};
use fallow_policy::swap_limit::{Held, who_leaves};

use crate::cause::LimitExceeded;
use crate::machine::Client;
use crate::state::{Job, Process};
use crate::tasks::doubled;
use crate::{Cause, Effect};

/// So long a task stays away that had to leave, the first time. One that has run for so long since it came
/// back has had its turn.
const AWAY: Duration = Duration::from_mins(10);
/// And no longer than this.
const AWAY_MAX: Duration = Duration::from_hours(4);
/// So many times a task may come to hold more than all may without having saved anything; then it fails.
const VAIN_MAX: u32 = 5;

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
            let (run, held) = (&job.run, job.run.swap);
            let (not_before, swapped, exits, vain) = match job.process.computes() {
                true => {
                    let exits = if run.elapsed - run.elapsed_base < AWAY { run.swap_exits + 1 } else { 1 };
                    // What it has saved sets that back.
                    let vain = run.swap_vain + u32::from(held > most);
                    (self.now() + doubled(AWAY, exits - 1, AWAY_MAX), held, exits, vain)
                }
                false => (run.not_before, Bytes(0), run.swap_exits, run.swap_vain),
            };
            if vain >= VAIN_MAX && held > most {
                self.end_beyond(id, exit::MEM_LIMIT_EXCEEDED, LimitExceeded::Swap { held, most });
                continue;
            }
            self.act(Effect::QuitTask { job: id }, Cause::SwapFull { held: all, most });
            self.edit_job(id, |job| {
                (job.run.not_before, job.run.swapped, job.run.swap) = (not_before, swapped, Bytes(0));
                (job.run.swap_exits, job.run.swap_vain) = (exits, vain);
            });
            self.steer_job(id, |job| job.process = Process::Quitting(Some(pid)));
            self.refresh(id);
        }
    }

    /// CPUs of tasks that had to leave, for the first time: nothing else uses them until these come back.
    pub(crate) fn cpus_kept_free(&self) -> u32 {
        if self.swap_max().is_none() {
            return 0;
        }
        let now = self.now();
        let is_away = |job: &&Job| {
            job.run.swapped > Bytes(0)
                && job.run.swap_exits == 1
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
    /// swap space, and that does not fit yet beside what tasks hold of it. Alone it may try in any case,
    /// and so may one that had more than all may have: it takes nobody's place, for it would leave first
    /// again.
    pub(crate) fn comes_back(&self, id: JobId, held: &mut Bytes) -> Instant {
        let swapped = self.state.jobs.get(&id).map_or(Bytes(0), |job| job.run.swapped);
        let all = held.plus(swapped);
        let is_too_much = swapped > Bytes(0)
            && *held > Bytes(0)
            && self.swap_max().is_some_and(|most| all > most && swapped <= most);
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
