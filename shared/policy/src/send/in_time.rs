//! WS2: only what the host can finish in time (R5.6, R3.12).

use fallow_domain::{Instant, PerType, ResourceType};
use serde::{Deserialize, Serialize};

use super::as_asked::AsAsked;
use super::simulation::Workload;
use super::{Demand, InProgress, Load, Offer, SendDecision, SendHost, SendPolicy, SendSituation, WhyNotSent};

/// WS2.
#[derive(Clone, Copy, Debug)]
pub struct InTime;

impl SendPolicy for InTime {
    fn name(&self) -> &'static str {
        "WS2"
    }

    fn summary(&self) -> &'static str {
        "what can be in time"
    }

    fn needs_workload(&self) -> bool {
        true
    }

    /// Of a host whose jobs are not known nothing can be simulated: it gets what was asked for.
    fn decide(
        &self,
        situation: &SendSituation<'_>,
        offers: &mut dyn Iterator<Item = Offer<usize>>,
    ) -> SendDecision<usize> {
        let SendSituation { now, demand, host, switches, held } = situation;
        match held {
            None => AsAsked.decide(situation, offers),
            Some(held) => ws2_under(*demand, host, held.load, held.list, offers, *switches, *now),
        }
    }
}

/// The two improvements over WS2 as Kondo, Anderson and McLeod published it in 2007 (R5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ws2Switches {
    /// Candidates already chosen for the same reply count as work of the host.
    pub count_chosen: bool,
    /// Running times are stretched by the host's availability.
    pub scale_by_availability: bool,
}

impl Ws2Switches {
    /// As published: each candidate is judged against the workload in the request.
    pub const PUBLISHED: Self = Self { count_chosen: false, scale_by_availability: false };
    /// Both improvements.
    pub const IMPROVED: Self = Self { count_chosen: true, scale_by_availability: true };
}

/// WS2 (R5.6): as WS1, but of jobs that the host can finish in time only.
pub fn ws2<Id>(
    demand: Demand,
    host: &SendHost,
    in_progress: &[InProgress],
    offers: impl IntoIterator<Item = Offer<Id>>,
    switches: Ws2Switches,
    now: Instant,
) -> SendDecision<Id> {
    ws2_under(demand, host, Load::of(in_progress), || in_progress.to_vec(), offers, switches, now)
}

/// As [`ws2`], for a caller that has sums over the host's jobs: the jobs are listed only where the sums do
/// not tell enough.
pub fn ws2_under<Id>(
    demand: Demand,
    host: &SendHost,
    load: Load,
    in_progress: impl FnOnce() -> Vec<InProgress>,
    offers: impl IntoIterator<Item = Offer<Id>>,
    switches: Ws2Switches,
    now: Instant,
) -> SendDecision<Id> {
    let stretch = if switches.scale_by_availability { 1.0 / host.availability.get().max(0.01) } else { 1.0 };
    let mut check = DeadlineCheck {
        host,
        stretch,
        now,
        switches,
        load,
        list: Some(in_progress),
        jobs: Vec::new(),
        workloads: PerType::default(),
    };
    let mut sent = SendDecision { send: Vec::new(), refused: Vec::new(), open: demand };
    for offer in offers {
        if !sent.open.is_open() {
            break;
        }
        if !sent.open.wants(offer.usage.main_type()) {
            continue;
        }
        let job = InProgress { deadline: offer.deadline, remaining: offer.estimate, usage: offer.usage };
        match check.refuses(&job) {
            Some(refusal) => sent.refused.push((offer.id, refusal)),
            None => {
                sent.open.fill(offer.usage, offer.estimate);
                sent.send.push(offer.id);
            }
        }
    }
    sent
}

/// Tells which jobs a host can take.
struct DeadlineCheck<'a, List> {
    host: &'a SendHost,
    stretch: f64,
    now: Instant,
    switches: Ws2Switches,
    /// Of all jobs that count.
    load: Load,
    /// Lists the host's jobs, the first time.
    list: Option<List>,
    /// The host's jobs once they are listed, and before that the jobs that were taken without looking at
    /// them.
    jobs: Vec<InProgress>,
    workloads: PerType<Option<Workload>>,
}

impl<List: FnOnce() -> Vec<InProgress>> DeadlineCheck<'_, List> {
    /// Why a job should not be sent, if it should not. One that is sent counts from then on, if the chosen
    /// do.
    fn refuses(&mut self, job: &InProgress) -> Option<WhyNotSent> {
        let kind = job.usage.main_type();
        let cpus = self.host.instances[ResourceType::Cpu];
        if self.workloads[kind].is_none() && self.load.has_room_for(job, cpus, self.stretch, self.now) {
            if self.switches.count_chosen {
                self.load.add(job);
                self.jobs.push(*job);
            }
            return None;
        }
        let workload = self.workload(kind);
        let refusal = workload.refuses(job);
        if refusal.is_none() && self.switches.count_chosen {
            self.workload(kind).add(job);
        }
        refusal
    }

    fn workload(&mut self, kind: ResourceType) -> &mut Workload {
        if let Some(list) = self.list.take() {
            // Those taken before count behind the host's own of the same deadline.
            let taken = std::mem::replace(&mut self.jobs, list());
            self.jobs.extend(taken);
        }
        let Self { host, stretch, now, jobs, .. } = self;
        self.workloads[kind].get_or_insert_with(|| Workload::new(kind, host, *stretch, *now, jobs))
    }
}
