//! A rollout as it was listed last.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fallow_daemon::lock;
use fallow_proto::operator::v1 as wire;
use fallow_rollout::{HostNow, Rollout};

use super::rollouts::to_wire;

/// What was worked out holds so many times as long as that took.
const HOLDS: u32 = 20;
/// And no longer than this: of a machine that stood still in the middle it took long.
const HOLDS_AT_MOST: Duration = Duration::from_secs(10);

/// The open rollout as it was listed last. Whoever watches it asks twice a second, and in a large fleet it
/// takes long to see how all hosts fare: so however many ask, a twentieth of one CPU's time goes to that at
/// most, and in a small fleet nobody sees anything old.
#[derive(Default)]
pub(super) struct Listed(Mutex<Option<Kept>>);

struct Kept {
    rollout: Rollout,
    listed: wire::Rollout,
    until: Instant,
}

impl Listed {
    /// Lists a rollout whose hosts are looked at only if they have to be.
    pub(super) fn list(
        &self,
        rollout: &Rollout,
        now: impl Fn() -> Instant,
        hosts: impl FnOnce() -> Vec<HostNow>,
    ) -> wire::Rollout {
        if !rollout.is_open() {
            return to_wire(rollout, &[]);
        }
        // Whoever comes meanwhile waits, and gets the same.
        let mut kept = lock(&self.0);
        let begun = now();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > begun && kept.rollout == *rollout) {
            return kept.listed.clone();
        }
        let listed = to_wire(rollout, &hosts());
        let end = now();
        let holds = end.saturating_duration_since(begun).saturating_mul(HOLDS).min(HOLDS_AT_MOST);
        let until = end.checked_add(holds).unwrap_or(end);
        *kept = Some(Kept { rollout: rollout.clone(), listed: listed.clone(), until });
        listed
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use fallow_domain::{AgentId, DocumentVersion, Instant as Time};
    use fallow_rollout::Plan;

    use super::*;

    #[test]
    fn r6_5_hosts_are_looked_at_seldom_however_often_a_rollout_is_listed_and_at_once_when_it_goes_on() {
        let plan = Plan::new("1,100%", fallow_domain::Duration::from_mins(4)).unwrap();
        let versions = (DocumentVersion(1), DocumentVersion(2));
        let begun = ("anna".to_owned(), Time::EPOCH);
        let rollout = Rollout::begin(1, versions, plan, BTreeMap::new(), begun, 9);
        let (listed, begun) = (Listed::default(), Instant::now());
        let (time, looks) = (Cell::new(Duration::ZERO), Cell::new(0));
        // A look takes half a second, and sees one host more each time.
        let list = |rollout: &Rollout| {
            let look = || {
                time.set(time.get() + Duration::from_millis(500));
                looks.set(looks.get() + 1);
                (0..looks.get()).map(|number| HostNow::named(AgentId(number.to_string()))).collect()
            };
            listed.list(rollout, || begun + time.get(), look).hosts
        };
        for _ in 0..19 {
            assert_eq!(list(&rollout), 1);
            time.set(time.get() + Duration::from_millis(500));
        }
        time.set(time.get() + Duration::from_millis(500));
        assert_eq!(list(&rollout), 2);
        // It has gone on.
        assert_eq!(list(&Rollout { released: 1, ..rollout.clone() }), 3);
        // A look that took a minute holds for ten seconds.
        let slow = Rollout { released: 2, ..rollout.clone() };
        for (later, hosts) in [(9, 4), (2, 4), (0, 5)] {
            let look = || {
                time.set(time.get() + Duration::from_mins(1));
                looks.set(looks.get() + 1);
                (0..looks.get()).map(|number| HostNow::named(AgentId(number.to_string()))).collect()
            };
            assert_eq!(listed.list(&slow, || begun + time.get(), look).hosts, hosts);
            time.set(time.get() + Duration::from_secs(later));
        }
        // Of one that is over no host is looked at.
        assert_eq!(list(&Rollout { phase: fallow_rollout::Phase::Completed, ..rollout }), 0);
        assert_eq!(looks.get(), 5);
    }
}
