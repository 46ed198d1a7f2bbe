//! WS1: what was asked for, whatever becomes of it (R5.5).

use super::{Demand, Offer, SendDecision, SendPolicy, SendSituation};

/// WS1.
#[derive(Clone, Copy, Debug)]
pub struct AsAsked;

impl SendPolicy for AsAsked {
    fn name(&self) -> &'static str {
        "WS1"
    }

    fn summary(&self) -> &'static str {
        "what was asked for"
    }

    fn decide(
        &self,
        situation: &SendSituation<'_>,
        offers: &mut dyn Iterator<Item = Offer<usize>>,
    ) -> SendDecision<usize> {
        let mut open = situation.demand;
        let send = fill(&mut open, offers);
        SendDecision { send, refused: Vec::new(), trial: None, open }
    }
}

/// Jobs in the order offered, of the types that are wanted, until nothing more is.
pub fn ws1<Id>(mut demand: Demand, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    fill(&mut demand, offers)
}

fn fill<Id>(demand: &mut Demand, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    let mut send = Vec::new();
    for offer in offers {
        if !demand.is_open() {
            break;
        }
        if demand.wants(offer.usage.main_type()) {
            demand.fill(offer.usage, offer.estimate);
            send.push(offer.id);
        }
    }
    send
}
