//! What is held of one agent: totals, bounds, and what is left of one that is taken out.

use fallow_domain::agent_state::{DiskAct, DiskSpace};
use fallow_domain::{Bytes, Duration, Fraction, Share};
use proptest::prelude::*;

use super::*;

const URL: &str = "http://127.0.0.1:1/a/";

fn id() -> AgentId {
    AgentId("A".into())
}

fn project(cpu: i64) -> Entry {
    let cpu = Duration::from_micros(cpu);
    Entry::Project(ProjectState {
        url: url(),
        name: String::new(),
        share: Share::ZERO,
        debt: Duration::from_millis(1_500),
        cpu_time: cpu,
        cpu_in_progress: Duration::ZERO,
        cpu_success: Duration::ZERO,
        cpu_error: Duration::ZERO,
        cpu_late: Duration::ZERO,
        cpu_contested: cpu / 2,
        scheduler_rpcs: 0,
        scheduler_failures: 0,
        min_rpc_time: None,
        jobs_success: 0,
        jobs_error: 0,
        jobs_late: 0,
    })
}

fn url() -> MasterUrl {
    MasterUrl::parse(URL).unwrap()
}

fn keyed(entries: Vec<Entry>) -> Entries {
    entries.into_iter().map(|entry| (entry.key(), entry)).collect()
}

fn snapshot(sequence: u64, entries: Vec<Entry>) -> Update {
    Update { sequence, is_snapshot: true, entries: keyed(entries), removed: BTreeSet::new() }
}

fn delta(sequence: u64, entries: Vec<Entry>, removed: &[EntryKey]) -> Update {
    let removed = removed.iter().cloned().collect();
    Update { sequence, is_snapshot: false, entries: keyed(entries), removed }
}

fn position(epoch: &str, sequence: u64) -> Position {
    Position { epoch: epoch.into(), sequence, at: Instant::EPOCH }
}

fn apply(state: &mut State, totals: &mut Totals, epoch: &str, update: Update) {
    let (change, _) = state.plan(&id(), position(epoch, update.sequence), update).unwrap();
    state.take(change, totals);
}

#[test]
fn r6_3_a_gap_is_refused_and_an_old_message_is_acknowledged_again() {
    let held = position("e", 7);
    assert_eq!(check_update(&held, "e", &delta(8, vec![], &[])), UpdateCheck::Next);
    assert_eq!(check_update(&held, "e", &delta(7, vec![], &[])), UpdateCheck::AlreadyApplied);
    assert_eq!(check_update(&held, "e", &snapshot(7, vec![])), UpdateCheck::AlreadyApplied);
    assert_eq!(check_update(&held, "e", &snapshot(12, vec![])), UpdateCheck::Next);
    assert!(
        matches!(check_update(&held, "e", &delta(9, vec![], &[])), UpdateCheck::Refuse(why) if why.contains("8 was due"))
    );
    assert_eq!(check_update(&held, "new", &snapshot(1, vec![])), UpdateCheck::Next);
    assert!(matches!(check_update(&held, "new", &delta(8, vec![], &[])), UpdateCheck::Refuse(_)));
}

#[test]
fn r6_6_cpu_time_of_a_detached_project_and_of_an_earlier_store_is_not_forgotten() {
    let (mut state, mut totals) = (State::default(), Totals::default());
    apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
    apply(&mut state, &mut totals, "e", delta(2, vec![project(150)], &[]));
    assert_eq!(totals.of(&url()), ProjectTotals { cpu: 150, contested: 75, debt: 1_500_000 });
    apply(&mut state, &mut totals, "e", delta(3, vec![], &[EntryKey::Project(url())]));
    assert_eq!(totals.of(&url()), ProjectTotals { cpu: 150, contested: 75, debt: 0 });
    apply(&mut state, &mut totals, "e", delta(4, vec![project(10)], &[]));
    assert_eq!(totals.of(&url()).cpu, 160);
    apply(&mut state, &mut totals, "other", snapshot(1, vec![project(20)]));
    assert_eq!(totals.of(&url()).cpu, 180);
}

#[test]
fn a_snapshot_removes_what_it_does_not_name() {
    let (mut state, mut totals) = (State::default(), Totals::default());
    apply(&mut state, &mut totals, "e", snapshot(1, vec![project(100)]));
    let (change, writes) = state.plan(&id(), position("e", 2), snapshot(2, vec![])).unwrap();
    assert!(writes.iter().any(|(key, value)| key.ends_with(URL.as_bytes()) && value.is_none()));
    state.take(change, &mut totals);
    assert!(state.is_empty());
}

fn task(number: usize) -> Entry {
    Entry::Task(TaskState {
        project: url(),
        name: number.to_string(),
        phase: None,
        cpu_time: Duration::ZERO,
        checkpoint_cpu_time: Duration::ZERO,
        fraction_done: Fraction::ZERO,
        deadline: Instant::EPOCH,
    })
}

fn task_key(name: &str) -> EntryKey {
    EntryKey::Task { project: url(), name: name.to_owned() }
}

/// As names of jobs are.
fn job(number: usize) -> Entry {
    let name = format!("collatz_2026_11_27_workunit_{number:06}_0001");
    let project = MasterUrl::parse("https://boinc.lab.example.org:8080/mersenne/").unwrap();
    match task(number) {
        Entry::Task(task) => Entry::Task(TaskState { project, name, ..task }),
        other => other,
    }
}

#[test]
fn r6_10_a_host_with_ten_thousand_jobs_fits_with_a_third_to_spare() {
    let mut state = State::default();
    apply(&mut state, &mut Totals::default(), "e", snapshot(1, (0..10_000).map(job).collect()));
    assert!(state.bytes() * 3 < BYTES_PER_AGENT * 2, "{}", state.bytes());
    assert_eq!(state.machine().bytes(), state.bytes());
}

#[test]
fn r6_10_an_agent_holds_as_many_bytes_as_it_may_and_no_more_whatever_it_says_is_gone() {
    let (mut state, mut totals) = (State::default(), Totals::default());
    let most = BYTES_PER_AGENT / weight::of(&job(0));
    apply(&mut state, &mut totals, "e", snapshot(1, (0..most).map(job).collect()));
    // News of entries that are there take no more.
    apply(&mut state, &mut totals, "e", delta(2, (0..most).map(job).collect(), &[]));
    let one_more = |removed: &[EntryKey]| delta(3, vec![job(most)], removed);
    let refused = |update| state.plan(&id(), position("e", 3), update).unwrap_err();
    assert!(matches!(refused(one_more(&[])), UpdateError::TooHeavy(_)));
    let why = refused(one_more(&[task_key("never_there"), task_key("nor_this")])).to_string();
    assert!(why.contains("may take 8 MiB"), "{why}");
    apply(&mut state, &mut totals, "e", one_more(&[job(0).key()]));
    assert_eq!(state.len(), most);
}

#[test]
fn r6_10_a_machine_and_its_copies_hold_no_more_together_also_of_what_is_not_stored_yet() {
    let machine = MachineWeight::default();
    let most = BYTES_PER_AGENT / weight::of(&job(0));
    let all = || snapshot(1, (0..most).map(job).collect());
    let mut copies: Vec<State> =
        (0..BYTES_PER_MACHINE / BYTES_PER_AGENT).map(|_| State::on(machine.clone())).collect();
    let planned: Vec<_> =
        copies.iter().map(|copy| copy.plan(&id(), position("e", 1), all()).unwrap().0).collect();
    let another = State::on(machine.clone());
    let refused = || another.plan(&id(), position("e", 1), all()).unwrap_err();
    assert!(matches!(refused(), UpdateError::MachineTooHeavy));
    let mut totals = Totals::default();
    copies.iter_mut().zip(planned).for_each(|(copy, change)| copy.take(change, &mut totals));
    assert_eq!(machine.bytes(), copies.iter().map(State::bytes).sum::<usize>());
    assert!(refused().to_string().contains("hosts revoke"));
    // Each has room for some hundreds of jobs in any case.
    let mut small = State::on(machine);
    let few = BYTES_OF_EACH / weight::of(&job(0));
    let some = |from| snapshot(from, (0..few * from as usize).map(job).collect());
    let (change, _) = small.plan(&id(), position("e", 1), some(1)).unwrap();
    small.take(change, &mut totals);
    assert!(few > 200 && small.len() == few, "{few}");
    let refused_more = small.plan(&id(), position("e", 2), some(2)).unwrap_err();
    assert!(matches!(refused_more, UpdateError::MachineTooHeavy));
    let (change, ..) = small.plan_rest(&id()).unwrap();
    small.take(change, &mut totals);
    // Once one of them is taken out of the fleet there is room.
    let (change, ..) = copies[0].plan_rest(&id()).unwrap();
    copies[0].take(change, &mut totals);
    another.plan(&id(), position("e", 1), all()).unwrap();
}

/// Plans as many of these deltas as find room before any of them is taken, then takes them.
fn in_one_burst(state: &mut State, deltas: impl Iterator<Item = Update>) -> usize {
    let (mut planned, mut on_their_way): (Vec<PlannedUpdate>, usize) = (Vec::new(), 0);
    for delta in deltas {
        let position = position("e", delta.sequence);
        let (change, _) = if planned.is_empty() {
            state.plan(&id(), position, delta).unwrap()
        } else {
            let Some(reserved) = state.reserve_behind(&delta, on_their_way) else { continue };
            state.plan_behind(&id(), position, delta, reserved).unwrap()
        };
        on_their_way += change.bytes();
        planned.push(change);
    }
    let count = planned.len();
    planned.into_iter().for_each(|change| state.take(change, &mut Totals::default()));
    count
}

#[test]
fn r6_10_however_much_is_on_its_way_an_agent_of_a_full_machine_comes_to_hold_no_more_than_its_part() {
    let machine = MachineWeight::default();
    let mut state = State::on(machine.clone());
    let others = machine.reserve_in_any_case(BYTES_PER_MACHINE);
    // Each of them has room by itself.
    let few = BYTES_OF_EACH / weight::of(&job(0));
    let bring = |number: usize, gone: &[EntryKey]| {
        delta(number as u64 + 1, (number * few..(number + 1) * few).map(job).collect(), gone)
    };
    assert_eq!(in_one_burst(&mut state, (0..50).map(|number| bring(number, &[]))), 1);
    assert!(state.bytes() <= BYTES_OF_EACH, "{}", state.bytes());
    assert_eq!(machine.bytes(), BYTES_PER_MACHINE + state.bytes());
    // Nor does it if each of them removes the same.
    let mut state = State::on(machine.clone());
    drop(others);
    apply(&mut state, &mut Totals::default(), "e", snapshot(1, (0..2 * few).map(job).collect()));
    let (held, _others) = (state.bytes(), machine.reserve_in_any_case(BYTES_PER_MACHINE));
    let gone: Vec<_> = (0..few).map(|number| job(number).key()).collect();
    assert_eq!(in_one_burst(&mut state, (2..50).map(|number| bring(number, &gone))), 1);
    assert_eq!(state.bytes(), held);
}

#[test]
fn r6_10_where_there_is_room_changes_are_on_their_way_side_by_side_and_count_for_their_machine() {
    let machine = MachineWeight::default();
    let mut state = State::on(machine.clone());
    let bring =
        |number: usize| delta(number as u64 + 1, (number * 100..(number + 1) * 100).map(job).collect(), &[]);
    assert_eq!(in_one_burst(&mut state, (0..50).map(bring)), 50);
    assert_eq!((state.len(), machine.bytes()), (5_000, state.bytes()));
    let most = BYTES_PER_AGENT / weight::of(&job(0)) / 100;
    assert!(in_one_burst(&mut state, (50..2 * most).map(bring)) <= most - 50);
    assert!(state.bytes() <= BYTES_PER_AGENT && machine.bytes() == state.bytes());
}

#[test]
fn r6_10_of_an_agent_that_is_no_member_is_left_what_its_host_is_and_what_the_greatest_projects_had() {
    let (mut state, mut totals) = (State::default(), Totals::default());
    let at = |number: usize| MasterUrl::parse(&format!("http://127.0.0.1:1/{number}/")).unwrap();
    let had = |number: usize| match project(number as i64) {
        Entry::Project(had) => Entry::Project(ProjectState { url: at(number), ..had }),
        other => other,
    };
    let host = HostState { hostname: "h".into(), declined: vec![url(); 1_000], ..HostState::default() };
    let mut entries: Vec<_> = (0..PASTS_KEPT + 50).map(had).chain((0..500).map(task)).collect();
    entries.push(Entry::Host(Box::new(host)));
    apply(&mut state, &mut totals, "e", snapshot(1, entries));
    let (change, jobs, rest) = state.plan_rest(&id()).unwrap();
    assert_eq!(jobs.len(), 500);
    assert!(jobs.iter().all(|(_, value)| value.is_none()) && !rest.is_empty());
    state.take(change, &mut totals);
    assert_eq!(state.len(), 1);
    assert_eq!(state.host().map(|host| (host.hostname.as_str(), host.declined.len())), Some(("h", 0)));
    assert!(state.bytes() < 64 << 10 && state.machine().bytes() == state.bytes(), "{}", state.bytes());
    assert_eq!((totals.of(&at(PASTS_KEPT + 49)).cpu, totals.of(&at(10)).cpu), (PASTS_KEPT as i128 + 49, 0));
    // Nothing is left to be done.
    let (_, jobs, rest) = state.plan_rest(&id()).unwrap();
    assert!(jobs.is_empty() && rest.len() == 1, "its position: {rest:?}");
}

#[test]
fn r4_13_what_a_host_tells_of_its_disk_counts_for_its_bounds_takes_little_and_goes_with_its_membership() {
    let longest = |number: usize| DiskDecision {
        at: Instant::EPOCH,
        what: DiskAct::Deleted,
        project: MasterUrl::parse(&format!("http://127.0.0.1:1/{}/", "u".repeat(230))).ok(),
        name: format!("{number:0>255}"),
        bytes: Bytes(1),
        rule: "r".repeat(32),
        why: "w".repeat(600),
    };
    let (mut state, mut totals) = (State::default(), Totals::default());
    apply(&mut state, &mut totals, "e", snapshot(1, vec![]));
    let before = state.bytes();
    for sequence in 2..200 {
        let last = (0..20).map(|number| longest(sequence as usize + number)).collect();
        apply(&mut state, &mut totals, "e", delta(sequence, vec![Entry::Disk(last)], &[]));
        let taken = state.bytes() - before;
        assert!((20 * (255 + 32 + 600 + 230)..32 << 10).contains(&taken), "{taken}");
    }
    assert_eq!(state.disk_decisions()[19].name, format!("{:0>255}", 218));
    let disk = Some(Box::new(DiskSpace { limited_by: "l".repeat(1_024), ..DiskSpace::default() }));
    let host = HostState { hostname: "h".into(), disk, ..HostState::default() };
    apply(&mut state, &mut totals, "e", delta(200, vec![Entry::Host(Box::new(host))], &[]));
    let (change, _, _) = state.plan_rest(&id()).unwrap();
    state.take(change, &mut totals);
    assert!(state.disk_decisions().is_empty() && state.host().is_some_and(|host| host.disk.is_none()));
    assert_eq!(state.machine().bytes(), state.bytes());
}

proptest! {
    /// Totals kept by difference are those of a fleet that is read anew from its store.
    #[test]
    fn r6_6_totals_by_difference_are_the_sums_of_what_is_held(steps in prop::collection::vec((0..4, 0..1_000_i64), 1..40)) {
        let (mut state, mut totals) = (State::default(), Totals::default());
        let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let (mut sequence, mut epoch) = (0, 0);
        for (kind, cpu) in steps {
            sequence += 1;
            let update = match kind {
                0 => snapshot(sequence, vec![project(cpu)]),
                1 => { epoch += 1; snapshot(sequence, vec![project(cpu)]) }
                2 => delta(sequence, vec![], &[EntryKey::Project(url())]),
                _ => delta(sequence, vec![project(cpu)], &[]),
            };
            let (change, writes) = state.plan(&id(), position(&epoch.to_string(), sequence), update).unwrap();
            for (key, value) in writes {
                match value {
                    Some(value) => store.insert(key, value),
                    None => store.remove(&key),
                };
            }
            state.take(change, &mut totals);
        }
        let (mut read, mut sums) = (State::default(), Totals::default());
        for (key, value) in &store {
            if key.starts_with(keys::ENTRIES) {
                read.put(stored::read(key, value).unwrap(), &mut sums);
            } else if key.starts_with(keys::PASTS) {
                let (_, url) = keys::split(keys::PASTS, key).unwrap();
                read.put_past(MasterUrl::parse(url).unwrap(), keys::PAST.read(key, value).unwrap(), &mut sums);
            }
        }
        prop_assert_eq!(totals.of(&url()), sums.of(&url()));
    }
}
