//! WS2: only what the host can finish in time (R5.6, R3.12).

use fallow_domain::Instant;
use serde::{Deserialize, Serialize};

use super::as_asked::AsAsked;
use super::deadline_check::DeadlineCheck;
use super::host_clock::HostClock;
use super::{Demand, InProgress, Load, Offer, SendDecision, SendHost, SendPolicy, SendSituation};

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
        let SendSituation { now, demand, host, switches, held, .. } = situation;
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
    let mut check = DeadlineCheck::new(host, HostClock::Stretched(stretch), now, load, in_progress);
    let mut sent = SendDecision { send: Vec::new(), refused: Vec::new(), trial: None, open: demand };
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
                if switches.count_chosen {
                    check.add(&job);
                }
                sent.open.fill(offer.usage, offer.estimate);
                sent.send.push(offer.id);
            }
        }
    }
    sent
}
