//! R3.2, R3.7, R3.9, R3.10, R5.4.

use fallow_domain::{Duration, InstanceSeconds, PerType, ProjectId, ResourceType, Share};
use fallow_policy::accounting::Debt;
use fallow_policy::fetch::shortfall::{
    FetchCandidate, FetchRules, PassedOver, PlannedRequest, Trigger, TypeNeed, over_served, plan,
};
use fallow_policy::fetch::{FetchContact, FetchPriority, FetchWhen, WorkRequest};
use proptest::prelude::*;

use ResourceType::{Amd, Cpu, Nvidia};

const HOUR: f64 = 3_600.0;

fn rules() -> FetchRules {
    let mut speeds = PerType::cpu(1.0);
    (speeds[Nvidia], speeds[Amd]) = (10.0, 5.0);
    let buffer_min = Duration::from_hours(2);
    FetchRules { speeds, when: FetchWhen::AnyShortfall, buffer_min }
}

fn candidate(id: u32, priority: f64) -> FetchCandidate {
    FetchCandidate {
        id: ProjectId(id),
        share: Share::DEFAULT,
        priority: FetchPriority::Debt(Debt::from_secs(priority)),
        over_served: false,
        tight: false,
        may_supply: true,
        contact: FetchContact { may_contact: true, ..FetchContact::default() },
        backed_off: PerType::default(),
        untried: PerType::default(),
        shortfall: PerType::default(),
    }
}

fn needs(rows: &[(ResourceType, f64, f64)]) -> PerType<TypeNeed> {
    let mut needs = PerType::<TypeNeed>::default();
    for (kind, idle, shortfall) in rows {
        let saturated = Duration::from_hours(if *idle > 0.0 { 0 } else { 1 });
        needs[*kind] = TypeNeed { idle: *idle, shortfall: InstanceSeconds::new(*shortfall), saturated };
    }
    needs
}

fn ask(needs: &PerType<TypeNeed>, candidates: &[FetchCandidate]) -> Option<PlannedRequest> {
    plan(&rules(), needs, candidates).ask
}

fn asked(needs: &PerType<TypeNeed>, candidates: &[FetchCandidate]) -> Option<(u32, Vec<ResourceType>)> {
    ask(needs, candidates).map(|ask| (ask.project.0, ask.request.types().collect()))
}

#[test]
fn r3_10_needs_have_an_order_and_idle_instances_ask_for_their_type_only() {
    let any = [candidate(1, 0.0)];
    let all = [(Cpu, 1.0, HOUR), (Nvidia, 1.0, HOUR), (Amd, 0.0, HOUR)];
    assert_eq!(asked(&needs(&all), &any), Some((1, vec![Nvidia])));
    let cpu_idle = [(Cpu, 1.0, HOUR), (Nvidia, 0.0, HOUR)];
    assert_eq!(asked(&needs(&cpu_idle), &any), Some((1, vec![Cpu])));
    let short = [(Cpu, 0.0, HOUR), (Nvidia, 0.0, HOUR)];
    let ask = ask(&needs(&short), &any).unwrap();
    assert_eq!(
        ask.request.types().collect::<Vec<_>>(),
        [Cpu, Nvidia],
        "work for the CPU is asked for with it"
    );
    assert_eq!((ask.why.kind, ask.why.trigger), (Nvidia, Trigger::Shortfall(InstanceSeconds::new(HOUR))));
    assert_eq!(asked(&needs(&[]), &any), None);
}

#[test]
fn r3_10_a_request_for_a_shortfall_asks_for_other_types_only_where_the_project_is_best() {
    let mut first = candidate(1, 0.0);
    first.shortfall[Nvidia] = InstanceSeconds::new(HOUR);
    let mut second = candidate(2, 0.0);
    second.shortfall[Cpu] = InstanceSeconds::new(HOUR);
    let short = needs(&[(Cpu, 0.0, HOUR), (Nvidia, 0.0, HOUR)]);
    assert_eq!(asked(&short, &[first, second]), Some((1, vec![Nvidia])));
    let backed_off = FetchCandidate { backed_off: PerType::cpu(true), ..second };
    assert_eq!(asked(&short, &[first, backed_off]), Some((1, vec![Cpu, Nvidia])));
}

#[test]
fn r3_9_the_project_with_the_largest_debt_and_shortfall_is_asked() {
    let short = needs(&[(Nvidia, 0.0, 4.0 * HOUR)]);
    let with = |id, priority, shortfall| {
        let mut candidate = candidate(id, priority);
        candidate.shortfall[Nvidia] = InstanceSeconds::new(shortfall);
        candidate
    };
    let of = |candidates: &[FetchCandidate]| ask(&short, candidates).map(|ask| ask.project.0);
    assert_eq!(of(&[with(1, 100.0, 0.0), with(2, 0.0, 0.0)]), Some(1));
    // A GPU second is worth ten CPU seconds.
    assert_eq!(of(&[with(1, 9_000.0, 0.0), with(2, 0.0, 1_000.0)]), Some(2));
    assert_eq!(of(&[with(2, 0.0, 0.0), with(1, 0.0, 0.0)]), Some(1), "of equals the smaller id");
    let cannot = |id| FetchCandidate { contact: FetchContact::default(), ..with(id, 1e9, 0.0) };
    assert_eq!(of(&[cannot(1), with(2, 0.0, 0.0)]), Some(2));
    assert_eq!(of(&[cannot(1)]), None);
}

#[test]
fn r3_9_a_tight_or_over_served_project_is_passed_over_unless_an_instance_idles_and_no_other_will_do() {
    let tight = FetchCandidate { tight: true, ..candidate(1, 1e6) };
    let over_served = FetchCandidate { over_served: true, ..candidate(2, -1e6) };
    let plain = candidate(3, -10.0);
    let short = needs(&[(Cpu, 0.0, 5.0 * HOUR)]);
    let idle = needs(&[(Cpu, 1.0, 5.0 * HOUR)]);
    assert_eq!(asked(&short, &[tight, over_served, plain]).unwrap().0, 3);
    assert_eq!(asked(&idle, &[tight, over_served, plain]).unwrap().0, 3);
    assert_eq!(asked(&short, &[tight, over_served]), None);
    let last = ask(&idle, &[tight, over_served]).unwrap();
    assert_eq!((last.project, last.why.last_resort), (ProjectId(1), Some(PassedOver::Tight)));
    assert_eq!((last.request.seconds[Cpu].get(), last.request.instances[Cpu]), (5.0 * HOUR, 1.0));
}

#[test]
fn r1_10_a_project_that_hung_when_it_was_last_asked_is_asked_after_those_that_did_not() {
    let idle = needs(&[(Cpu, 1.0, 5.0 * HOUR)]);
    let contact = FetchContact { may_contact: true, hung: true, ..FetchContact::default() };
    let hung = FetchCandidate { contact, ..candidate(1, 1e6) };
    let other = candidate(2, -10.0);
    let asked = |candidates: &[FetchCandidate]| asked(&idle, candidates).map(|(id, _)| id);
    assert_eq!(asked(&[hung, other]), Some(2));
    assert_eq!(asked(&[hung, FetchCandidate { contact, ..other }]), Some(1), "among them by what is owed");
    for passed_over in
        [FetchCandidate { over_served: true, ..other }, FetchCandidate { share: Share::ZERO, ..other }]
    {
        assert_eq!(asked(&[hung, passed_over]), Some(1), "its turn comes where no other will do");
    }
}

#[test]
fn r3_9_over_served_is_a_debt_below_a_scheduling_period_and_the_buffer() {
    let stands = |priority| over_served(priority, Duration::from_hours(1), Duration::from_hours(8));
    let over = |secs| stands(FetchPriority::Debt(Debt::from_secs(secs)));
    assert!(over(-9.1 * HOUR) && !over(-8.9 * HOUR) && !over(1e9));
    assert!(!stands(FetchPriority::Score(-1e9)), "who is only ranked owes nothing");
}

#[test]
fn a_project_without_a_share_gets_a_job_for_each_idle_instance_when_nobody_else_has_any() {
    let without = FetchCandidate { share: Share::ZERO, ..candidate(1, 1e6) };
    let idle = needs(&[(Cpu, 2.0, 5.0 * HOUR)]);
    assert_eq!(asked(&idle, &[without, candidate(2, -1e9)]).unwrap().0, 2);
    let away = FetchCandidate { contact: FetchContact::default(), ..candidate(2, 0.0) };
    let ask = ask(&idle, &[without, away]).unwrap();
    assert_eq!(
        (ask.request, ask.why.last_resort),
        (WorkRequest::cpu(Duration::from_secs(1), 2.0), Some(PassedOver::NoShare))
    );
    assert_eq!(asked(&needs(&[(Cpu, 0.0, HOUR)]), &[without, away]), None);
    // Where nobody has one all are equals.
    assert_eq!(asked(&needs(&[(Cpu, 0.0, HOUR)]), &[without]).unwrap().0, 1);
}

#[test]
fn r5_4_a_project_is_asked_for_what_it_is_owed_within_the_whole_shortfall() {
    let short = needs(&[(Cpu, 0.0, 10.0 * HOUR)]);
    let with = |priority: f64, own: f64| {
        let mut candidate = candidate(1, priority);
        candidate.shortfall[Cpu] = InstanceSeconds::new(own);
        ask(&short, &[candidate]).unwrap().request.seconds[Cpu].get() / HOUR
    };
    assert_eq!(with(0.0, 5.0 * HOUR), 5.0, "nothing owed: its share of the queue");
    assert_eq!(with(2.0 * HOUR, 5.0 * HOUR), 7.0);
    assert_eq!(with(200.0 * HOUR, 5.0 * HOUR), 10.0);
    assert_eq!(with(-HOUR, 5.0 * HOUR), 5.0);
    assert_eq!(with(-HOUR, 0.0), 10.0, "nobody is owed anything");
}

#[test]
fn r5_4_when_a_shortfall_is_a_reason_to_ask_is_a_switch() {
    let below = FetchRules { when: FetchWhen::BelowMinimum, ..rules() };
    let with = |rules: &FetchRules, hours| {
        let mut needs = needs(&[(Cpu, 0.0, HOUR)]);
        needs[Cpu].saturated = Duration::from_hours(hours);
        plan(rules, &needs, &[candidate(1, 0.0)]).ask.is_some()
    };
    assert!(with(&below, 1) && !with(&below, 2));
    assert!(with(&rules(), 1) && with(&rules(), 2));
}

#[test]
fn r3_7_an_rpc_that_happens_anyway_asks_for_all_types_in_shortfall_for_which_the_project_is_best() {
    let short = needs(&[(Cpu, 0.0, HOUR), (Nvidia, 1.0, HOUR)]);
    let mut best = candidate(1, 100.0);
    best.backed_off[Nvidia] = true;
    let plan = plan(&rules(), &short, &[best, candidate(2, 0.0)]);
    assert_eq!(plan.ask.unwrap().project, ProjectId(2), "the GPU idles, and the first is backed off");
    let piggybacks: Vec<_> =
        plan.piggybacks.iter().map(|(id, request)| (id.0, request.types().collect::<Vec<_>>())).collect();
    assert_eq!(piggybacks, [(1, vec![Cpu, Nvidia]), (2, vec![Nvidia])]);
}

#[test]
fn r3_2_the_scalar_for_older_servers_is_the_largest_of_the_seconds() {
    let mut request = WorkRequest::cpu(Duration::from_secs(10), 0.0);
    request.seconds[Nvidia] = InstanceSeconds::new(30.0);
    assert_eq!(request.scalar().get(), 30.0);
    assert!(request.asks(Cpu) && !request.asks(Amd) && !request.is_none());
}

#[test]
fn by_recent_credit_the_priority_alone_ranks() {
    let short = needs(&[(Cpu, 0.0, 10.0 * HOUR)]);
    let ranked = |id, rank| FetchCandidate { priority: FetchPriority::Score(rank), ..candidate(id, 0.0) };
    let mut hungry = ranked(1, -1.5);
    hungry.shortfall[Cpu] = InstanceSeconds::new(5.0 * HOUR);
    let ask = plan(&rules(), &short, &[hungry, ranked(2, -0.5)]).ask.unwrap();
    assert_eq!((ask.project, ask.request.seconds[Cpu].get()), (ProjectId(2), 10.0 * HOUR));
}

fn any_candidate(id: u32) -> impl Strategy<Value = FetchCandidate> {
    let flags = prop::collection::vec(any::<bool>(), 7);
    (flags, -1e6..1e6_f64, prop::collection::vec(0.0..1e5_f64, 2), any::<bool>()).prop_map(
        move |(flags, priority, short, share)| {
            let mut candidate = candidate(id, priority);
            candidate.share = if share { Share::DEFAULT } else { Share::ZERO };
            (candidate.tight, candidate.over_served) = (flags[0], flags[1]);
            (candidate.may_supply, candidate.contact.may_contact) =
                (flags[2] || flags[3], flags[3] || flags[4]);
            (candidate.backed_off[Cpu], candidate.backed_off[Nvidia]) = (flags[5], flags[6]);
            candidate.shortfall[Cpu] = InstanceSeconds::new(short[0]);
            candidate.shortfall[Nvidia] = InstanceSeconds::new(short[1]);
            candidate
        },
    )
}

proptest! {
    #[test]
    fn r3_9_only_who_may_be_asked_is_asked_for_what_is_lacking_and_twice_the_same(
        candidates in (1_usize..6).prop_flat_map(|n| (1..=n as u32).map(any_candidate).collect::<Vec<_>>()),
        idle in prop::collection::vec(0_u8..3, 2), short in prop::collection::vec(0.0..1e5_f64, 2),
    ) {
        let rows = [(Cpu, f64::from(idle[0]), short[0]), (Nvidia, f64::from(idle[1]), short[1])];
        let needs = needs(&rows);
        let first = plan(&rules(), &needs, &candidates);
        prop_assert_eq!(&first, &plan(&rules(), &needs, &candidates));
        let mut reversed = candidates.clone();
        reversed.reverse();
        prop_assert_eq!(first.ask, plan(&rules(), &needs, &reversed).ask, "the order does not matter");
        if let Some(ask) = first.ask {
            let asked = candidates.iter().find(|c| c.id == ask.project).unwrap();
            prop_assert!(asked.may_supply && asked.contact.may_contact);
            for kind in ask.request.types() {
                prop_assert!(!asked.backed_off[kind] && (needs[kind].shortfall.is_positive() || needs[kind].idle > 0.0));
                prop_assert!(ask.request.seconds[kind].get() <= needs[kind].shortfall.get().max(1.0));
            }
        }
        // Nothing idles while somebody could be asked.
        for kind in [Cpu, Nvidia].into_iter().filter(|kind| needs[*kind].idle > 0.0) {
            if candidates.iter().any(|c| c.may_supply && c.contact.may_contact && !c.backed_off[kind]) {
                prop_assert!(first.ask.is_some());
            }
        }
    }
}

#[test]
fn r3_9_a_project_that_has_supplied_nothing_yet_is_tried_first_and_for_its_own_shortfall_only() {
    let mut owed = candidate(1, 50_000.0);
    owed.shortfall[Cpu] = InstanceSeconds::new(HOUR);
    let mut unknown = candidate(2, 0.0);
    unknown.shortfall[Cpu] = InstanceSeconds::new(HOUR / 10.0);
    unknown.untried[Cpu] = true;
    let short = needs(&[(Cpu, 0.0, 8.0 * HOUR)]);
    let tried = ask(&short, &[owed, unknown]).unwrap();
    assert_eq!((tried.project.0, tried.request.seconds[Cpu].get()), (2, HOUR / 10.0));
    // It had nothing: the others have their turn until its backoff is over.
    unknown.backed_off[Cpu] = true;
    assert_eq!(ask(&short, &[owed, unknown]).unwrap().project.0, 1);
}
