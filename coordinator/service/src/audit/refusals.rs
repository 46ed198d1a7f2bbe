//! How many refusals are recorded: anybody can be refused as often as he likes, and must not fill the disk
//! with it.

use std::collections::BTreeMap;

use fallow_domain::{AgentId, Duration, Instant};

use super::record::{Action, Actor};

/// Refusals of each kind that are recorded in an hour. Five kinds are anybody's (to enrol, to link, to call
/// as an operator, to speak without TLS, to show another authority's certificate): with half a kilobyte
/// each, an attack that never ends writes 260 MB a year. What operators are refused for their roles is a
/// kind of its own, which no stranger can crowd out, and so is speaking without TLS, which may be a program
/// of the lab's that is set up wrongly.
pub const AN_HOUR: u32 = 12;
/// Of those, of one host: it must not hide what others say. A copy of a machine is a host of its own here, so
/// three of them can use up an hour's; who refuses a version is in `fallow hosts` all the same.
pub const OF_ONE: u32 = 4;

const HOUR: Duration = Duration::from_hours(1);

/// Refusals of each kind in its present hour.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<Action, Recorded>);

#[derive(Debug)]
struct Recorded {
    since: Instant,
    recorded: u32,
    unrecorded: u64,
    /// Of each host, in this hour.
    of_hosts: BTreeMap<AgentId, u32>,
}

impl Refusals {
    /// Counts a refusal. If it is to be recorded: how many before it were not. An hour begins with the first
    /// refusal in it, and also when the clock was set back.
    pub fn count(&mut self, action: Action, actor: &Actor, now: Instant) -> Option<u64> {
        let new = Recorded { since: now, recorded: 0, unrecorded: 0, of_hosts: BTreeMap::new() };
        let held = self.0.entry(action).or_insert(new);
        if now.since(held.since) >= HOUR || now < held.since {
            (held.since, held.recorded) = (now, 0);
            held.of_hosts.clear();
        }
        let host = if let Actor::Agent(id) = actor { Some(id) } else { None };
        let of_host = host.and_then(|id| held.of_hosts.get(id)).copied().unwrap_or_default();
        if held.recorded >= AN_HOUR || of_host >= OF_ONE {
            held.unrecorded += 1;
            return None;
        }
        held.recorded += 1;
        if let Some(id) = host {
            held.of_hosts.insert(id.clone(), of_host + 1);
        }
        Some(std::mem::take(&mut held.unrecorded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_so_many_refusals_an_hour_are_recorded_and_the_next_one_counts_the_others() {
        let mut refusals = Refusals::default();
        let minute = |minute: i64| Instant::EPOCH + Duration::from_secs(60 * minute);
        let mut at = |at: i64, action| refusals.count(action, &Actor::Stranger, minute(at));
        let first: Vec<_> = (0..100).filter_map(|_| at(0, Action::LinkRefused)).collect();
        assert_eq!(first, [0; AN_HOUR as usize]);
        assert_eq!(at(59, Action::LinkRefused), None);
        assert_eq!(at(59, Action::OperatorRefused), Some(0), "each kind has its own");
        assert_eq!(at(60, Action::LinkRefused), Some(u64::from(101 - AN_HOUR)));
        assert_eq!(at(61, Action::LinkRefused), Some(0));
        assert_eq!(at(5, Action::LinkRefused), Some(0), "the clock was set back");
    }

    #[test]
    fn r6_10_one_host_that_refuses_again_and_again_hides_no_other_ones_refusal() {
        let mut refusals = Refusals::default();
        let mut of = |host: &str, at: i64| {
            let now = Instant::EPOCH + Duration::from_secs(60 * at);
            refusals.count(Action::DocumentRefused, &Actor::Agent(AgentId(host.into())), now)
        };
        let loud: Vec<_> = (0..100).filter_map(|_| of("loud", 0)).collect();
        assert_eq!(loud, [0; OF_ONE as usize]);
        assert_eq!(of("honest", 1), Some(u64::from(100 - OF_ONE)));
        assert_eq!((of("loud", 2), of("loud", 61)), (None, Some(1)));
    }
}
