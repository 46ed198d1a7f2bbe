//! A small batch is spread over the hosts that ask for work (R6.8): carries out what `fallow_policy::send`
//! decides of it, whatever client asks, and tells the host.

use fallow_boinc::scheduler::{Message, PART_REFUSAL};
use fallow_daemon::lock;
use fallow_domain::{Duration, Instant, PerType, Usage};
use fallow_policy::send::spread::{self, HasItsPart, SpreadSituation};

use super::send::JOBS_MAX;
use super::work_request::WorkRequest;
use super::{ReplyContent, note};
use crate::asking_hosts::INSTANCES_MAX;
use crate::error::ProjectError;
use crate::project::Project;
use crate::records::Counters;
use crate::txn::Txn;

/// What is held back of a request, and what becomes of the host's next one.
pub(super) struct BatchPart {
    situation: SpreadSituation,
    /// Why it gets fewer than it asked for, if it does.
    pub(super) why: Option<HasItsPart>,
    /// Whether what it holds is bounded by its part.
    is_small: bool,
    /// The mean estimate of the jobs that it could have had, if there were any.
    estimate: Option<Duration>,
}

impl BatchPart {
    /// Of a host that asks and holds so many jobs. None in a project that does not spread.
    pub(super) fn of(
        project: &Project,
        txn: &Txn<'_>,
        reply: &ReplyContent,
        work_request: &WorkRequest<'_>,
        held: usize,
        now: Instant,
    ) -> Result<Option<Self>, ProjectError> {
        let settings = project.settings();
        if !settings.spread {
            return Ok(None);
        }
        // As many as count for others: a host that claims more has no larger part.
        let instances = spread::instances(&work_request.capacity.instances).min(INSTANCES_MAX);
        let (fleet, idle_left) = {
            let mut asking = lock(&project.asking);
            asking.asked(reply.host.id, instances, now);
            (asking.fleet(settings.poll, now), asking.idle_left(reply.host.id))
        };
        let mut idle_left = idle_left as f64;
        let idle = PerType::from_fn(|kind| {
            let idle = work_request.wanted.idle(kind).min(idle_left);
            idle_left -= idle;
            idle
        });
        let counters: Option<Counters> = txn.get("counters", &project.keys.counters())?;
        let situation = SpreadSituation {
            unsent: counters.unwrap_or_default().counts.jobs_unsent,
            fleet,
            instances,
            held: held as u64,
            idle,
        };
        Ok(Some(Self { situation, why: None, estimate: None, is_small: false }))
    }

    /// Of the jobs that could be sent, by what each uses and takes: whether each is.
    pub(super) fn cut(&mut self, jobs: &[(Usage, Duration)]) -> Vec<bool> {
        let usages: Vec<Usage> = jobs.iter().map(|(usage, _)| *usage).collect();
        let spread = self.situation.spread(&usages);
        self.why = spread.why;
        self.is_small = self.situation.is_small(jobs.len() as u64);
        let all = jobs.iter().fold(Duration::ZERO, |sum, (_, estimate)| sum + *estimate);
        self.estimate = (!jobs.is_empty()).then(|| all.mul_f64(1.0 / jobs.len() as f64));
        spread.send
    }

    /// Says in the reply what is held back, and when the host may come again.
    pub(super) fn tell(&self, project: &Project, reply: &mut ReplyContent, sent: usize, now: Instant) {
        let holds = self.situation.held + sent as u64;
        if self.is_small {
            let room = self.situation.part().saturating_sub(self.situation.held);
            let beyond = (sent as u64).saturating_sub(room);
            lock(&project.asking).gave_idle(reply.host.id, beyond, now);
        }
        reply.messages.extend(self.why.as_ref().map(message));
        if let Some(estimate) = self.estimate {
            let usual = project.settings().request_delay;
            let delay = self.situation.comes_again(holds, estimate, usual, JOBS_MAX as u64);
            reply.host.told_delay = (delay < usual).then_some(delay);
        }
        if self.estimate.is_none() && holds == 0 {
            reply.host.told_delay = None;
        }
        reply.is_part = self.why.is_some() || reply.host.told_delay.is_some();
    }
}

fn message(why: &HasItsPart) -> Message {
    note(format!("{PART_REFUSAL}: {why}"))
}
