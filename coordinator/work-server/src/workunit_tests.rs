use fallow_domain::{Bytes, Duration, Flops, Instant};
use proptest::prelude::*;

use super::*;
use crate::validate;

fn t(seconds: i64) -> Instant {
    Instant::from_micros(0) + Duration::from_secs(1_800_000_000 + seconds)
}

/// A workunit with its first copies.
pub(crate) fn workunit(rules: Rules) -> Workunit {
    Workunit {
        name: "w".to_owned(),
        sequence: 1,
        application: "app".to_owned(),
        command_line: String::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        flops_estimate: Flops::new(1e12).unwrap(),
        flops_bound: Flops::new(1e13).unwrap(),
        memory_bound: Bytes(1),
        disk_bound: Bytes(1),
        delay_bound: Duration::from_hours(1),
        rules,
        comparator: "bytewise".to_owned(),
        created_at: t(0),
        state: WorkunitState::Active,
        target: 0,
        jobs: Vec::new(),
        files_deleted: false,
    }
    .start()
}

fn rules(quorum: u32, initial_jobs: u32, max_error_jobs: u32, max_total_jobs: u32) -> Rules {
    Rules { quorum, initial_jobs, max_error_jobs, max_total_jobs }
}

pub(crate) fn report(outcome: Outcome) -> Report {
    Report { outcome, cpu_time: Duration::from_secs(9), claimed: 1.0, exit_status: 0, stderr: String::new() }
}

/// A host with an account of its own.
fn account(host: u64) -> HostAccount {
    HostAccount { host, account: host, voter: host }
}

/// Sends a copy if the host may have one; whatever was late is still there.
fn send(workunit: &mut Workunit, host: u64) -> Option<u32> {
    if workunit.history(account(host), |_| true) == CopyHistory::HasCopy {
        return None;
    }
    let index = workunit.unsent()?;
    assert!(workunit.send(index, account(host), t(0), 100, "p"));
    Some(index)
}

/// Sends a copy to `host` and takes its success.
fn succeed(workunit: &mut Workunit, host: u64) -> u32 {
    let index = send(workunit, host).unwrap();
    assert!(workunit.report(index, account(host), report(Outcome::Success), t(1)));
    index
}

/// Compares as the background work does; jobs agree if their hosts give the same `value`.
fn compare(workunit: &mut Workunit, value: impl Fn(u64) -> u64) -> bool {
    let candidates = workunit.to_compare();
    if candidates.is_empty() {
        return false;
    }
    let host = |index: u32| workunit.jobs[index as usize].host;
    let agree = |a, b| value(host(a)) == value(host(b));
    let comparison = match workunit.state {
        WorkunitState::Validated { canonical } => validate::check_pair(canonical, &candidates, agree),
        _ => {
            let quorum = workunit.rules.quorum as usize;
            validate::check_set(&candidates, quorum, |index| workunit.account_of(index), agree)
        }
    };
    workunit.take_comparison(&comparison);
    true
}

fn unsent(workunit: &Workunit) -> usize {
    workunit.jobs.iter().filter(|job| job.state == ServerState::Unsent).count()
}

#[test]
fn r6_8_a_quorum_on_different_hosts_validates() {
    let mut w = workunit(rules(2, 2, 3, 6));
    succeed(&mut w, 1);
    assert_eq!(send(&mut w, 1), None, "one host, one copy");
    assert!(w.to_compare().is_empty(), "one success is no quorum");
    succeed(&mut w, 2);
    assert!(compare(&mut w, |_| 7));
    assert_eq!(w.state, WorkunitState::Validated { canonical: 0 });
    assert_eq!(w.agreeing(), 2);
    assert!(w.to_compare().is_empty());
}

#[test]
fn r6_10_an_account_that_poses_as_two_hosts_gets_one_copy_and_is_one_opinion() {
    let mut w = workunit(rules(2, 3, 3, 6));
    succeed(&mut w, 1);
    let posing = HostAccount { host: 2, account: 1, voter: 1 };
    assert_eq!(w.history(posing, |_| false), CopyHistory::HasCopy);
    assert!(!w.send(1, posing, t(0), 100, "p"));
    // Even if both copies come to be computed by it, as after a report that was late, they are one opinion.
    let index = send(&mut w, 3).unwrap();
    w.jobs[index as usize].account = 1;
    w.report(index, account(3), report(Outcome::Success), t(1));
    assert!(w.to_compare().is_empty());
    succeed(&mut w, 4);
    compare(&mut w, |_| 7);
    assert_eq!(w.agreeing(), 2);
}

#[test]
fn r6_10_a_copied_machine_counts_by_itself_where_one_result_is_enough_and_as_the_first_one_elsewhere() {
    let copied = HostAccount { host: 2, account: 2, voter: 1 };
    for (quorum, of_copy, is_for_all, accounts) in
        [(1, CopyHistory::None, true, vec![1, 2]), (2, CopyHistory::Failed, false, vec![1])]
    {
        let mut w = workunit(rules(quorum, quorum, 3, 9));
        let index = send(&mut w, 1).unwrap();
        assert!(w.report(index, account(1), report(Outcome::Error), t(0)));
        assert_eq!(w.history(copied, |_| false), of_copy, "quorum {quorum}");
        let index = w.unsent().unwrap();
        assert!(w.send(index, copied, t(0), 100, "p"));
        // Whichever counts, the job is the copy's alone.
        assert!(!w.report(index, account(1), report(Outcome::Error), t(1)));
        assert!(w.report(index, copied, report(Outcome::Error), t(1)));
        assert_eq!(w.retry_backoff(t(2)).unwrap().is_for_all, is_for_all, "quorum {quorum}");
        assert_eq!(w.accounts(), accounts.into_iter().collect());
    }
    // Results of both are one opinion, and the first one waits for no second job either.
    let mut w = workunit(rules(2, 3, 3, 9));
    let index = w.unsent().unwrap();
    assert!(w.send(index, copied, t(0), 100, "p"));
    assert_eq!(w.history(account(1), |_| false), CopyHistory::HasCopy);
    assert!(w.report(index, copied, report(Outcome::Success), t(1)));
    let other = w.unsent().unwrap();
    w.jobs[other as usize] = Job { index: other, account: 1, host: 1, ..w.jobs[index as usize].clone() };
    assert!(w.to_compare().is_empty());
}

#[test]
fn r6_10_a_copy_computed_under_a_key_that_all_agents_had_makes_no_quorum_with_one_of_them() {
    let mut w = workunit(rules(2, 2, 3, 6));
    let index = send(&mut w, 1).unwrap();
    w.jobs[index as usize].account = 0;
    w.report(index, account(1), report(Outcome::Success), t(1));
    succeed(&mut w, 7);
    assert!(w.to_compare().is_empty());
    succeed(&mut w, 8);
    assert!(compare(&mut w, |_| 7));
    assert!(matches!(w.state, WorkunitState::Validated { .. }));
}

#[test]
fn r6_8_a_copy_that_failed_does_not_count_and_one_that_may_still_come_does() {
    let mut w = workunit(rules(1, 1, 3, 6));
    let index = send(&mut w, 1).unwrap();
    w.report(index, account(1), report(Outcome::Error), t(1));
    assert_eq!(w.history(account(1), |_| false), CopyHistory::Failed);
    assert_eq!((w.history(account(2), |_| false), w.quiet_since(t(1))), (CopyHistory::None, t(1)));
    let late = send(&mut w, 1).unwrap();
    w.give_up(late);
    assert_eq!(w.history(account(1), |name| name == "w_1"), CopyHistory::HasCopy);
    assert_eq!(w.history(account(1), |_| false), CopyHistory::Failed);
    let end = t(0) + Duration::from_hours(1);
    assert_eq!([t(2), end].map(|now| w.quiet_since(now)), [t(1), end]);
}

#[test]
fn r6_8_hosts_that_disagree_lead_to_one_more_copy_and_the_odd_one_is_invalid() {
    let mut w = workunit(rules(2, 2, 3, 6));
    succeed(&mut w, 1);
    succeed(&mut w, 2);
    compare(&mut w, |host| host);
    assert_eq!((w.state.clone(), unsent(&w)), (WorkunitState::Active, 1));
    succeed(&mut w, 3);
    compare(&mut w, |host| u64::from(host == 2));
    assert_eq!(w.state, WorkunitState::Validated { canonical: 0 });
    let validations: Vec<_> = w.jobs.iter().map(|job| job.validation.unwrap()).collect();
    assert_eq!(validations, [Validation::Valid, Validation::Invalid, Validation::Valid]);
}

#[test]
fn r6_8_an_error_and_a_passed_deadline_each_bring_another_copy() {
    let mut w = workunit(rules(1, 1, 1, 6));
    let index = send(&mut w, 1).unwrap();
    assert!(w.report(index, account(1), report(Outcome::Error), t(1)));
    assert_eq!(unsent(&w), 1);
    let index = send(&mut w, 2).unwrap();
    assert!(w.give_up(index));
    assert!(!w.give_up(index), "once");
    assert_eq!(unsent(&w), 1);
    assert_eq!(w.jobs[index as usize].outcome, Some(Outcome::Late));
}

#[test]
fn r6_8_too_many_errors_fail_the_workunit_and_say_why() {
    let mut w = workunit(rules(1, 2, 1, 6));
    for host in 1..=2 {
        let index = send(&mut w, host).unwrap();
        w.report(index, account(host), report(Outcome::Aborted), t(1));
    }
    let reason = "2 jobs in error, 1 allowed; the last ended with exit status 0".to_owned();
    assert_eq!(w.state, WorkunitState::Failed { reason });
    assert_eq!(unsent(&w), 0);
    assert_eq!(w.jobs.last().unwrap().outcome, Some(Outcome::NotNeeded));
}

#[test]
fn r6_8_a_workunit_without_a_quorum_fails_when_no_more_copies_may_be_made() {
    let mut w = workunit(rules(2, 2, 9, 3));
    for host in 1..=3 {
        succeed(&mut w, host);
        compare(&mut w, |host| host);
    }
    assert_eq!(w.state, WorkunitState::Failed { reason: "no quorum of 2 after 3 jobs".to_owned() });
}

#[test]
fn r6_8_a_late_report_counts_while_the_workunit_is_undecided() {
    let mut w = workunit(rules(2, 2, 3, 6));
    let index = send(&mut w, 1).unwrap();
    w.give_up(index);
    assert!(w.report(index, account(1), report(Outcome::Success), t(9_999)));
    succeed(&mut w, 2);
    compare(&mut w, |_| 0);
    assert_eq!(w.agreeing(), 2);
    assert_eq!(w.jobs.iter().filter(|job| job.outcome == Some(Outcome::NotNeeded)).count(), 1);
}

#[test]
fn r6_8_a_report_after_the_decision_is_compared_with_the_canonical_job() {
    let mut w = workunit(rules(1, 3, 3, 6));
    let late = [send(&mut w, 5).unwrap(), send(&mut w, 6).unwrap()];
    let canonical = succeed(&mut w, 1);
    compare(&mut w, |_| 0);
    w.report(late[0], account(5), report(Outcome::Success), t(2));
    w.report(late[1], account(6), report(Outcome::Success), t(2));
    assert_eq!(w.to_compare(), [canonical, late[0], late[1]]);
    compare(&mut w, |host| u64::from(host == 6));
    assert_eq!(w.jobs[late[0] as usize].validation, Some(Validation::Valid));
    assert_eq!(w.jobs[late[1] as usize].validation, Some(Validation::Invalid));
    assert_eq!(w.state, WorkunitState::Validated { canonical });
}

/// How long hosts take to use up a workunit that lose every copy as soon as they may have it.
fn lost_time(rules: Rules, accounts: u64) -> Duration {
    let (mut w, mut now) = (workunit(rules), t(0));
    while w.state == WorkunitState::Active {
        let mut sent = Vec::new();
        let mut rests = Vec::new();
        for host in 1..=accounts {
            let history = w.history(account(host), |_| false);
            match (w.retry_at(history, now), w.unsent()) {
                (Some(until), _) => rests.push(until),
                (None, Some(index)) if w.send(index, account(host), now, 100, "p") => sent.push(index),
                (None, _) => {}
            }
        }
        // All of them at once, as late as that.
        assert!(!sent.is_empty() || !rests.is_empty(), "{w:?}");
        match sent.is_empty() {
            true => now = rests.into_iter().min().unwrap(),
            false => sent.into_iter().for_each(|index| assert!(w.lose(index, now))),
        }
    }
    now.since(t(0))
}

#[test]
fn r6_10_hosts_that_lose_every_copy_use_up_no_workunit_within_hours_but_in_the_end() {
    let (hours, month) = (Duration::from_hours(4), Duration::from_hours(30 * 24));
    for (quorum, initial, most) in
        [(1, 1, 1), (1, 1, 6), (2, 2, 6), (2, 3, 9), (5, 5, 5), (10, 30, 90), (100, 100, 100)]
    {
        for accounts in [1, 2, 6, 100] {
            let time = lost_time(rules(quorum, initial, 3, most), accounts);
            assert!(hours <= time && time <= month, "{initial} of {most}, {accounts} accounts: {time}");
        }
    }
}

#[test]
fn r6_10_a_lost_copy_is_replaced_beyond_the_most_copies_and_counts_when_it_is_reported_after_all() {
    let mut w = workunit(rules(1, 1, 3, 1));
    let index = send(&mut w, 1).unwrap();
    assert!(w.lose(index, t(1)));
    assert_eq!((w.state.clone(), unsent(&w)), (WorkunitState::Active, 1));
    assert!(w.report(index, account(1), report(Outcome::Success), t(9)));
    compare(&mut w, |_| 0);
    assert_eq!(w.state, WorkunitState::Validated { canonical: 0 });
    // One that was lost and is reported in error is none of those that do not count.
    let mut w = workunit(rules(1, 1, 3, 1));
    let index = send(&mut w, 1).unwrap();
    assert!(w.lose(index, t(1)) && w.report(index, account(1), report(Outcome::Error), t(9)));
    let index = send(&mut w, 2).unwrap();
    assert!(w.report(index, account(2), report(Outcome::Error), t(10)));
    assert_eq!(w.state, WorkunitState::Failed { reason: "no quorum of 1 after 2 jobs".to_owned() });
}

#[test]
fn r6_8_a_second_report_or_anothers_changes_nothing() {
    let mut w = workunit(rules(1, 1, 3, 6));
    let index = send(&mut w, 1).unwrap();
    assert!(!w.report(index, account(2), report(Outcome::Success), t(1)));
    assert!(w.report(index, account(1), report(Outcome::Success), t(1)));
    let before = w.clone();
    assert!(!w.report(index, account(1), report(Outcome::Error), t(2)));
    assert_eq!(w, before);
}

#[test]
fn r6_8_a_lost_job_goes_to_the_same_host_again_with_a_new_deadline() {
    let mut w = workunit(rules(1, 1, 3, 6));
    let index = send(&mut w, 1).unwrap();
    assert!(!w.send(index, account(2), t(5), 100, "p"), "another host cannot have this copy");
    assert!(w.send(index, account(1), t(5), 100, "p"));
    assert_eq!(w.jobs[0].times_sent, 2);
    assert_eq!(w.jobs[0].deadline, Some(t(5) + Duration::from_hours(1)));
}

#[test]
fn missing_outputs_are_an_error_of_the_job() {
    let mut w = workunit(rules(1, 1, 3, 6));
    let index = succeed(&mut w, 1);
    w.take_comparison(&Comparison { unreadable: vec![index], ..Comparison::default() });
    assert_eq!(w.jobs[0].outcome, Some(Outcome::Error));
    assert_eq!(unsent(&w), 1);
}

#[test]
fn rules_that_could_never_be_met_are_refused() {
    for bad in [rules(0, 1, 1, 1), rules(2, 1, 1, 3), rules(1, 2, 1, 1), rules(1, 1, 1, TOTAL_MAX + 1)] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

/// What can happen to a workunit.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u64),
    Report(u32, Outcome),
    GiveUp(u32),
    Lose(u32),
    Compare,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Success),
        1 => Just(Outcome::Error),
        1 => Just(Outcome::Aborted)
    ];
    let step = prop_oneof![
        4 => (1_u64..20).prop_map(Step::Send),
        4 => (0_u32..12, outcome).prop_map(|(index, outcome)| Step::Report(index, outcome)),
        1 => (0_u32..12).prop_map(Step::GiveUp),
        1 => (0_u32..12).prop_map(Step::Lose),
        2 => Just(Step::Compare),
    ];
    prop::collection::vec(step, 0..60)
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (1_u32..4, 0_u32..3, 0_u32..4, 0_u32..6)
        .prop_map(|(quorum, more, errors, spare)| rules(quorum, quorum + more, errors, quorum + more + spare))
}

fn check(w: &Workunit, value: impl Fn(u64) -> u64) {
    let ever_lost = w.jobs.iter().filter(|job| job.lost_at.is_some()).count();
    assert!(w.jobs.len() <= w.rules.max_total_jobs as usize + ever_lost, "never more copies than allowed");
    let counts = |job: &&Job| matches!(job.outcome, None | Some(Outcome::Success | Outcome::Late));
    let mut hosts: Vec<u64> =
        w.jobs.iter().filter(counts).map(|job| job.host).filter(|host| *host != 0).collect();
    let all = hosts.len();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), all, "each copy that may count on a host of its own");
    let mut settled = w.clone();
    settled.settle();
    assert_eq!(&settled, w, "settling twice changes nothing");
    match &w.state {
        WorkunitState::Active => {
            let open = w.jobs.iter().any(|job| job.state != ServerState::Over);
            assert!(open || !w.to_compare().is_empty(), "something can still happen: {w:?}");
        }
        WorkunitState::Validated { canonical } => {
            assert!(w.agreeing() >= w.rules.quorum);
            let truth = value(w.jobs[*canonical as usize].host);
            for job in w.jobs.iter().filter(|job| job.validation == Some(Validation::Valid)) {
                assert_eq!(value(job.host), truth);
            }
        }
        WorkunitState::Failed { reason } => assert!(!reason.is_empty()),
    }
    assert!(w.state == WorkunitState::Active || unsent(w) == 0, "nothing is sent after the decision");
}

proptest! {
    #[test]
    fn r6_8_whatever_happens_the_rules_hold_and_it_ends(rules in any_rules(), steps in steps(), wrong in 0_u64..4) {
        // Hosts divisible by this computed something else, each its own.
        let value = |host: u64| if wrong > 0 && host.is_multiple_of(wrong + 1) { host } else { 0 };
        let mut w = workunit(rules);
        for step in steps {
            match step {
                Step::Send(host) => drop(send(&mut w, host)),
                Step::Report(index, outcome) => {
                    let host = w.jobs.get(index as usize).map_or(0, |job| job.host);
                    if host != 0 {
                        w.report(index, account(host), report(outcome), t(1));
                    }
                }
                Step::GiveUp(index) => drop(w.give_up(index)),
                Step::Lose(index) => drop(w.lose(index, t(1))),
                Step::Compare => drop(compare(&mut w, value)),
            }
            check(&w, value);
        }
        // From here on every host does its duty: it ends in a few rounds.
        for host in 100..100 + 3 * u64::from(TOTAL_MAX) {
            compare(&mut w, value);
            for index in 0..w.jobs.len() as u32 {
                let host = w.jobs[index as usize].host;
                w.report(index, account(host), report(Outcome::Success), t(1));
            }
            compare(&mut w, value);
            if w.state != WorkunitState::Active {
                break;
            }
            send(&mut w, host);
            check(&w, value);
        }
        check(&w, value);
        prop_assert!(w.state != WorkunitState::Active);
    }
}
