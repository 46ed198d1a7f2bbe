//! WS1: what was asked for, whatever becomes of it (R5.5).

use super::{Offer, SendPolicy, SendSituation, Sent, Wanted};

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
    ) -> Sent<usize> {
        let mut open = situation.wanted;
        let send = fill(&mut open, offers);
        Sent { send, refused: Vec::new(), open }
    }
}

/// Jobs in the order offered, of the types that are wanted, until nothing more is.
pub fn ws1<Id>(mut wanted: Wanted, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    fill(&mut wanted, offers)
}

fn fill<Id>(wanted: &mut Wanted, offers: impl IntoIterator<Item = Offer<Id>>) -> Vec<Id> {
    let mut send = Vec::new();
    for offer in offers {
        if !wanted.is_open() {
            break;
        }
        if wanted.wants(offer.usage.main_type()) {
            wanted.fill(offer.usage, offer.estimate);
            send.push(offer.id);
        }
    }
    send
}
