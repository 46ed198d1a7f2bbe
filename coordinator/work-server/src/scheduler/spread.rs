//! A small batch is spread over the hosts that ask for work (R6.8): carries out what `fallow_policy::send`
//! decides of it, whatever client asks, and tells the host. Of a host of which nothing is known yet
//! (`crate::new_hosts`) it carries out as well how much that may hold.

use fallow_boinc::scheduler::PART_REFUSAL;
use fallow_daemon::lock;
use fallow_domain::{Duration, Instant, PerType, Usage};
use fallow_policy::send::TopUps;
use fallow_policy::send::new_hosts::NewHosts;
use fallow_policy::send::spread::{self, SpreadSituation};

use super::send::JOBS_MAX;
use super::work_request::WorkRequest;
use super::{ReplyContent, note};
use crate::asking_hosts::{Asker, INSTANCES_MAX, window};
use crate::error::ProjectError;
use crate::listing::in_seconds;
use crate::project::Project;
use crate::records::Counters;
use crate::txn::Txn;

/// What is held back of a request, and what becomes of the host's next one.
pub(super) struct BatchPart {
    situation: SpreadSituation,
    /// The new hosts of the account, if this is one of them, and what this one has.
    new: Option<(NewHosts, PerType<u32>)>,
    /// What it was sent beyond its part, or at all if it is new, as it is now.
    top_ups: TopUps,
    /// How many such jobs it may have now.
    left: u64,
    /// Why it gets fewer than it asked for, if it does.
    pub(super) why: Option<String>,
    /// Whether what it holds is bounded by its part.
    is_small: bool,
    /// The mean estimate of the jobs that it could have had, if there were any.
    estimate: Option<Duration>,
}

impl BatchPart {
    /// Of a host that asks, holds so many jobs, and is new or not. None in a project that does not spread.
    pub(super) fn of(
        project: &Project,
        txn: &Txn<'_>,
        reply: &ReplyContent,
        work_request: &WorkRequest<'_>,
        (held, is_new): (usize, bool),
        now: Instant,
    ) -> Result<Option<Self>, ProjectError> {
        let settings = project.settings();
        if !settings.spread {
            return Ok(None);
        }
        let instances = counted_instances(work_request);
        let account = reply.host.account;
        let (fleet, of_new) = {
            let mut asking = lock(&project.asking);
            let mut counted = instances;
            if is_new {
                counted = asking.new.instances(account, window(settings.poll), now);
            }
            asking.asked(Asker::of(&reply.host, is_new), counted, now);
            let of_new = is_new.then(|| (counted, asking.new.held(account, now)));
            (asking.fleet(settings.poll, now), of_new)
        };
        let counters: Option<Counters> = txn.get("counters", &project.keys.counters())?;
        let unsent = counters.unwrap_or_default().counts.jobs_unsent;
        let new = of_new.map(|(instances, held)| {
            let of_account = NewHosts { unsent, fleet_instances: fleet.instances, instances, held };
            (of_account, work_request.capacity.instances)
        });
        let held = held as u64;
        let mut situation = SpreadSituation { unsent, fleet, instances, held, idle: PerType::default() };
        let mut top_ups = reply.host.top_ups;
        // The job that a new host has in any case is one a round.
        let most = new.as_ref().map_or(instances, |(new, _)| new.most(instances, held));
        let left = top_ups.left(most, is_new || held > situation.part(), now);
        let mut rest = left as f64;
        situation.idle = PerType::from_fn(|kind| {
            let idle = work_request.wanted.idle(kind).min(rest);
            rest -= idle;
            idle
        });
        Ok(Some(Self { situation, new, top_ups, left, why: None, estimate: None, is_small: false }))
    }

    /// Of the jobs that could be sent, by what each uses and takes: whether each is.
    pub(super) fn cut(&mut self, jobs: &[(Usage, Duration)], now: Instant) -> Vec<bool> {
        let usages: Vec<Usage> = jobs.iter().map(|(usage, _)| *usage).collect();
        let send = match &self.new {
            Some((new, instances)) => {
                let send = new.cut(instances, self.situation.held, self.left, &usages);
                self.why = send.contains(&false).then(|| self.until_it_is_known(new, now));
                send
            }
            None => {
                let spread = self.situation.spread(&usages);
                self.why = spread.why.map(|why| why.to_string());
                spread.send
            }
        };
        self.is_small = self.situation.is_small(jobs.len() as u64);
        let all = jobs.iter().fold(Duration::ZERO, |sum, (_, estimate)| sum + *estimate);
        self.estimate = (!jobs.is_empty()).then(|| all.mul_f64(1.0 / jobs.len() as f64));
        send
    }

    fn until_it_is_known(&self, new: &NewHosts, now: Instant) -> String {
        let most = new.most(self.situation.instances, self.situation.held);
        let may_more = self.situation.held < most;
        if let Some(wait) = self.top_ups.wait(now).filter(|_| may_more && self.left == 0) {
            return format!(
                "none of its results was found valid yet; it may have more in {}",
                in_seconds(wait)
            );
        }
        let jobs = match most {
            1 => "1 job".to_owned(),
            most => format!("{most} jobs"),
        };
        format!("it may hold {jobs} until a result that it returned is found valid")
    }

    /// Says in the reply what is held back, and when the host may come again.
    pub(super) fn tell(&self, project: &Project, reply: &mut ReplyContent, sent: usize, now: Instant) {
        let holds = self.situation.held + sent as u64;
        reply.host.top_ups = self.top_ups;
        if self.new.is_some() {
            reply.host.top_ups.gave(sent as u64, now);
        } else if self.is_small {
            let room = self.situation.part().saturating_sub(self.situation.held);
            let beyond = (sent as u64).saturating_sub(room);
            reply.host.top_ups.gave(beyond, now);
        }
        reply.messages.extend(self.why.as_ref().map(|why| note(format!("{PART_REFUSAL}: {why}"))));
        if let Some(estimate) = self.estimate {
            let usual = project.settings().request_delay;
            let delay = self.situation.comes_again(holds, estimate, usual, JOBS_MAX as u64);
            reply.host.told_delay = (delay < usual).then_some(delay);
        }
        if holds == 0 && (self.estimate.is_none() || self.new.is_some()) {
            reply.host.told_delay = None;
        }
        reply.is_part = self.why.is_some() || reply.host.told_delay.is_some();
    }
}

/// As many instances of a host as count for others: one that claims more has no larger part.
pub(super) fn counted_instances(work_request: &WorkRequest<'_>) -> u64 {
    spread::instances(&work_request.capacity.instances).min(INSTANCES_MAX)
}
