use fallow_domain::Duration;

use super::*;

fn host(number: usize) -> AgentId {
    AgentId(format!("{number:05}"))
}

/// A rollout that was taken back when so many hosts had its version, and 5 did not.
fn taken_back(had: usize) -> Rollout {
    let versions = (DocumentVersion(1), DocumentVersion(2));
    let plan = Plan::new("1,100%", Duration::from_mins(4)).unwrap();
    let begun = ("anna".to_owned(), Instant::EPOCH);
    let rollout = Rollout::begin(1, versions, plan, BTreeMap::new(), begun, 9);
    let now = |number| {
        let version = DocumentVersion(if number < had { 2 } else { 1 });
        // The first one went back from it by itself.
        let went_back = (DocumentVersion(2), "silence".to_owned());
        match number {
            0 => HostNow {
                rolled_back: Some(went_back),
                version: DocumentVersion(1),
                ..HostNow::named(host(0))
            },
            _ => HostNow { version, ..HostNow::named(host(number)) },
        }
    };
    let hosts: Vec<_> = (0..had + 5).map(now).collect();
    let transition = Transition::TakeBack { why: "it harms".into() };
    rollout.after(&transition, Instant::EPOCH, DocumentVersion(3), &hosts)
}

#[test]
fn r6_5_hosts_that_a_version_was_taken_from_are_told_from_those_that_never_had_it() {
    let rollout = taken_back(3);
    let text = serde_json::to_string(&rollout).unwrap();
    let stored: Rollout = serde_json::from_str(&text).unwrap();
    assert_eq!(stored, rollout);
    let taken = [0, 2, 3, 7, 99].map(|number| stored.was_taken_from(&host(number)));
    assert_eq!(taken, [Some(true), Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!([0, 2, 3].map(|number| stored.went_back(&host(number))), [true, false, false]);
    let Phase::TakenBack { had, .. } = stored.phase else { panic!("{stored:?}") };
    assert_eq!(had, 3);
    let begun = Rollout { phase: Phase::Watching, ..rollout };
    assert_eq!(begun.was_taken_from(&host(0)), None);
}

#[test]
fn r6_5_of_very_many_hosts_some_are_kept_and_of_the_others_nothing_is_said() {
    let rollout = taken_back(HAD_KEPT + 1);
    let Phase::TakenBack { had, had_by, .. } = &rollout.phase else { panic!("{rollout:?}") };
    assert_eq!((*had, had_by.len()), (HAD_KEPT as u64 + 1, HAD_KEPT));
    let others = (0..HAD_KEPT + 6).filter(|number| rollout.was_taken_from(&host(*number)).is_none());
    assert_eq!(others.count(), 6);
}

#[test]
fn r6_5_a_rollout_that_was_stored_before_hosts_were_kept_is_read_and_says_nothing_of_them() {
    let read = |phase: &str| Rollout { phase: serde_json::from_str(phase).unwrap(), ..taken_back(0) };
    let older = read(r#"{"taken_back":{"by":3,"why":"it harms","had":2}}"#);
    assert_eq!(older.was_taken_from(&host(0)), None);
    let nobody = read(r#"{"taken_back":{"by":3,"why":"it harms","had":0}}"#);
    assert_eq!(nobody.was_taken_from(&host(0)), Some(false));
}
