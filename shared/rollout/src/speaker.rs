//! Who speaks for a machine and its copies.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::AgentId;

use crate::{HostNow, Rollout};

/// Has one host of each machine and its copies speak for them, of those that a version is released to and of
/// the others: whoever has one machine can have made the copies. `last` are those that spoke at the look
/// before, and then those that speak now.
///
/// Of several it is one that is there, has the version that it is to have, and does not rest: in a lab that
/// was set up from one image all hosts are copies, and one that shows nothing would hide what the others
/// show. Of several such it is one of the wave that was released last, or one host would be all that is seen
/// of every wave; then one of which it is kept what it did before, or else who spoke last.
pub fn have_one_speak(rollout: &Rollout, hosts: &mut [HostNow], last: &mut BTreeSet<AgentId>) {
    let mut speakers: BTreeMap<(&AgentId, bool), (_, usize)> = BTreeMap::new();
    // One to which the version says nothing new can say nothing of it.
    for (at, host) in hosts.iter().enumerate().filter(|(_, host)| host.changed) {
        let wave = rollout.wave_of(&host.id, &host.groups);
        let is_released = rollout.has_released(wave);
        let has_its_own = match is_released {
            true => host.version == rollout.candidate,
            false => host.version < rollout.candidate,
        };
        let is_known = rollout.before.contains_key(&host.id);
        let is_newest = wave + 1 == rollout.released;
        let worth = (host.connected, has_its_own, !host.rests, is_newest, is_known, last.contains(&host.id));
        let kind = (&host.machine, is_released);
        if speakers.get(&kind).is_none_or(|(other, _)| worth > *other) {
            speakers.insert(kind, (worth, at));
        }
    }
    let speakers: BTreeSet<usize> = speakers.into_values().map(|(_, at)| at).collect();
    for (at, host) in hosts.iter_mut().enumerate() {
        host.speaks = speakers.contains(&at);
    }
    *last = hosts.iter().filter(|host| host.speaks).map(|host| host.id.clone()).collect();
}

#[cfg(test)]
mod tests {
    use fallow_domain::{DocumentVersion, Duration, Instant};

    use super::*;
    use crate::{Phase, Plan};

    const OLD: DocumentVersion = DocumentVersion(1);
    const NEW: DocumentVersion = DocumentVersion(2);

    /// A rollout that was released to these.
    fn released_to(hosts: &[&str]) -> Rollout {
        let plan = Plan::new("3,100%", Duration::from_mins(4)).unwrap();
        let begun = ("anna".to_owned(), Instant::EPOCH);
        let mut rollout = Rollout::begin(1, (OLD, NEW), plan, BTreeMap::new(), begun, 9);
        rollout.counted = BTreeMap::from([(0, hosts.iter().map(|id| AgentId((*id).into())).collect())]);
        (rollout.released, rollout.phase) = (1, Phase::Watching);
        rollout
    }

    /// Copies of `a`.
    fn copies(ids: &[&str]) -> Vec<HostNow> {
        let machine = AgentId("a".into());
        let copy = |id: &&str| HostNow {
            machine: machine.clone(),
            connected: true,
            version: OLD,
            ..HostNow::named(AgentId((*id).into()))
        };
        ids.iter().map(copy).collect()
    }

    fn speak(rollout: &Rollout, hosts: &mut [HostNow], last: &mut BTreeSet<AgentId>) -> String {
        have_one_speak(rollout, hosts, last);
        let speaking: BTreeSet<_> = hosts.iter().filter(|host| host.speaks).map(|host| &host.id).collect();
        assert_eq!(speaking, last.iter().collect());
        hosts.iter().filter(|host| host.speaks).map(|host| host.id.0.as_str()).collect()
    }

    #[test]
    fn r6_5_of_a_machine_and_its_copies_one_that_is_there_speaks_on_either_side_of_a_wave() {
        let mut hosts = copies(&["a", "b", "c", "d"]);
        // The image that all were made of is never there; and there is another machine.
        hosts[0].connected = false;
        hosts.push(HostNow::named(AgentId("x".into())));
        let mut of = |released: &[&str]| speak(&released_to(released), &mut hosts, &mut BTreeSet::new());
        assert_eq!(of(&[]), "bx");
        assert_eq!(of(&["c"]), "bcx");
        assert_eq!(of(&["a", "b", "c", "d", "x"]), "bx");
        assert_eq!(of(&["a"]), "abx", "nobody else was given it");
        // The first one is in no group of which the version says something else.
        hosts[1].changed = false;
        assert_eq!(speak(&released_to(&[]), &mut hosts, &mut BTreeSet::new()), "cx");
    }

    #[test]
    fn r6_5_of_copies_one_speaks_that_has_the_version_and_does_not_rest() {
        let mut hosts = copies(&["a", "b", "c", "d"]);
        let all = released_to(&["a", "b", "c", "d"]);
        let mut new = BTreeSet::new();
        // The first one hangs, the second rests.
        for host in &mut hosts[1..] {
            host.version = NEW;
        }
        hosts[1].rests = true;
        assert_eq!(speak(&all, &mut hosts, &mut new), "c");
        // Nothing is known of whoever says that it has what it was not given.
        assert_eq!(speak(&released_to(&[]), &mut hosts, &mut BTreeSet::new()), "a");
        // What is better than nothing: one that rests, and one that hangs rather than one that is off.
        (hosts[2].rests, hosts[3].rests) = (true, true);
        assert_eq!(speak(&all, &mut hosts, &mut new), "c");
        hosts[1..].iter_mut().for_each(|host| host.connected = false);
        assert_eq!(speak(&all, &mut hosts, &mut new), "a");
    }

    #[test]
    fn r6_5_whoever_spoke_for_its_machine_goes_on_until_another_one_is_better() {
        let mut hosts = copies(&["a", "b", "c"]);
        let all = released_to(&["a", "b", "c"]);
        let mut last = BTreeSet::new();
        hosts.iter_mut().for_each(|host| host.version = NEW);
        hosts[0].rests = true;
        assert_eq!(speak(&all, &mut hosts, &mut last), "b");
        hosts[0].rests = false;
        assert_eq!(speak(&all, &mut hosts, &mut last), "b", "the first one is no better");
        hosts[1].rests = true;
        assert_eq!(speak(&all, &mut hosts, &mut last), "a");
        hosts[1].rests = false;
        assert_eq!(speak(&all, &mut hosts, &mut last), "a");
        // After a start of the coordinator nobody remembers who spoke.
        let known = AgentId("c".into());
        let all = Rollout { before: BTreeMap::from([(known, crate::Load::default())]), ..all };
        assert_eq!(speak(&all, &mut hosts, &mut BTreeSet::new()), "c");
    }

    #[test]
    fn r6_5_of_copies_with_the_version_one_of_the_newest_wave_speaks() {
        let mut hosts = copies(&["a", "b", "c"]);
        hosts.iter_mut().for_each(|host| host.version = NEW);
        let plan = Plan::new("1,2,3,100%", Duration::from_mins(4)).unwrap();
        let mut rollout = Rollout { plan, ..released_to(&["a"]) };
        let mut last = BTreeSet::from([AgentId("a".into())]);
        rollout.before.insert(AgentId("a".into()), crate::Load::default());
        rollout.counted.insert(1, BTreeSet::from([AgentId("b".into())]));
        rollout.counted.insert(2, BTreeSet::from([AgentId("c".into())]));
        for (released, speaker) in [(2, "b"), (3, "c")] {
            rollout.released = released;
            let of_released = |host: &&HostNow| rollout.is_released_to(&host.id, &host.groups);
            let mut reached: Vec<_> = hosts.iter().filter(of_released).cloned().collect();
            assert_eq!(speak(&rollout, &mut reached, &mut last), speaker);
        }
        // One that rests shows less than one of an earlier wave.
        hosts[2].rests = true;
        assert_eq!(speak(&rollout, &mut hosts, &mut last), "a");
    }
}
