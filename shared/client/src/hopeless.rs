//! Gives up jobs that cannot be in time any more, where the composition says so (`abort=hopeless`).
//!
//! What is given up is lost for good, so a clock that is ahead must not decide it: that of a host that has
//! just come up, or was just set forward, is believed only when the host has been there for half an hour
//! without a gap. By then a time server has corrected it, if there is one. A shell that says when its host is
//! away is believed at once.
//!
//! There may be ten thousand jobs, and a decision for each second. Looked at are tasks that have begun, and
//! jobs of whose time half has passed: no other can be hopeless.

use std::collections::BTreeSet;

use fallow_boinc::runtime::exit;
use fallow_domain::{Duration, Fraction, JobId};
use fallow_policy::completion::EndedJob;
use fallow_policy::hopeless::{AbortWhich, Prospects, WhyHopeless, why_hopeless};
use fallow_policy::on_time::Sureness;

use crate::cause::Cause;
use crate::estimates::ran;
use crate::machine::Client;
use crate::state::{Job, Process, Stage};

/// A job of which a smaller part is done says little of how long it would have taken.
const FRACTION_TAUGHT: f64 = 0.25;
/// A clock is believed when the host has been there for so long.
const BELIEVED_AFTER: Duration = Duration::from_mins(30);

impl Client {
    /// Aborts what is hopeless, before it is decided what runs: what it would have used is there for others.
    pub(crate) fn abort_hopeless(&mut self) {
        if self.config.composition.abort == AbortWhich::None || !self.believes_clock() {
            return;
        }
        let judged = self.may_be_hopeless();
        let judged = judged.iter().filter_map(|id| self.state.jobs.get(id));
        let hopeless = judged.filter_map(|job| Some((job.id, self.why_hopeless(job)?)));
        let hopeless: Vec<(JobId, WhyHopeless)> = hopeless.collect();
        for (id, why) in hopeless {
            self.give_up(id, why);
        }
    }

    fn believes_clock(&self) -> bool {
        self.config.tells_away || self.presence.there_for(self.now()) >= BELIEVED_AFTER
    }

    /// The jobs that are judged now. What has begun has a slot.
    pub(crate) fn may_be_hopeless(&self) -> BTreeSet<JobId> {
        let jobs = &self.state.jobs;
        jobs.slots().values().copied().chain(jobs.past_half_time(self.now())).collect()
    }

    fn why_hopeless(&self, job: &Job) -> Option<WhyHopeless> {
        let goes_on = matches!(job.stage, Stage::Downloading | Stage::Runnable) && job.outcome.is_none();
        if !goes_on || matches!(job.process, Process::Aborting(_)) {
            return None;
        }
        let prospects = Prospects {
            fraction_done: Fraction::clamped(job.run.fraction_done),
            ran: ran(job),
            had: self.now() - job.received_at,
            time_left: job.result.report_deadline - self.now(),
        };
        let hope = |time: Duration| {
            let on_time = self.ledger.on_time();
            on_time.within(self.now(), time, Sureness::Hope).max(time.mul_f64(on_time.share().get()))
        };
        why_hopeless(&prospects, || self.shortest(job), hope)
    }

    fn give_up(&mut self, id: JobId, why: WhyHopeless) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        // As BOINC's servers know them.
        let exit_status = if job.run.begun { exit::ABORTED_BY_CLIENT } else { exit::UNSTARTED_LATE };
        self.learn_from_given_up(id);
        // Its owner is told with the reason.
        self.abort_job(id, exit_status, &Cause::Hopeless(why));
    }

    /// A job that took too long and is given up would else leave no trace, and the next would be thought to
    /// take as long as those that were short enough. What it would have taken follows from how far it is.
    fn learn_from_given_up(&mut self, id: JobId) {
        let Some(job) = self.state.jobs.get(&id) else { return };
        let done = job.run.fraction_done;
        if done < FRACTION_TAUGHT {
            return;
        }
        let (by_size, actual) = (self.estimated_total(id), ran(job).mul_f64(1.0 / done));
        let (project, version, ended) =
            (job.project, job.version.clone(), EndedJob { by_size, actual, speed: job.speed });
        self.learn_experience(project, &version, ended);
    }
}
