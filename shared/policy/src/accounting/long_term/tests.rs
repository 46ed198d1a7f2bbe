use super::*;
use proptest::prelude::*;

use ResourceType::{Cpu, Nvidia};

const CLEARED: AfterReply = AfterReply::Cleared;

fn host(cpus: u32, gpus: u32, speed: f64) -> PlanHost {
    let mut host = PlanHost::cpus(cpus);
    (host.instances[Nvidia], host.speeds[Nvidia]) = (gpus, speed);
    host
}

fn both<T: Default>(cpu: T, gpu: T) -> PerType<T> {
    let mut both = PerType::cpu(cpu);
    both[Nvidia] = gpu;
    both
}

fn period(id: u32, share: f64, cpu_secs: f64, gpu_secs: f64) -> LongTermPeriod {
    let used = both(Duration::from_secs_f64(cpu_secs), Duration::from_secs_f64(gpu_secs));
    let share = Share::new(share).unwrap();
    let (may_supply, forgotten) = (PerType::from_fn(|_| true), PerType::default());
    LongTermPeriod { project: ProjectId(id), share, used, may_supply, forgotten }
}

/// Debts of projects that have all supplied jobs of the types said.
fn supplied(rows: &[(u32, bool, bool)]) -> LongTermDebts {
    let mut debts = LongTermDebts::default();
    for (id, cpu, gpu) in rows {
        for (kind, yes) in [(Cpu, *cpu), (Nvidia, *gpu)] {
            if yes {
                debts.on_reply(ProjectId(*id), kind, ReplyForType::Jobs(1), CLEARED);
            }
        }
    }
    debts
}

fn secs(secs: i64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn r3_3_a_pair_earns_its_part_of_the_fair_division_and_pays_what_it_uses() {
    let mut debts = supplied(&[(1, false, true), (2, true, true)]);
    let periods = [period(1, 100.0, 0.0, 50.0), period(2, 100.0, 100.0, 50.0)];
    debts.settle(&host(1, 1, 2.0), &periods);
    assert_eq!(
        (debts.of(ProjectId(1), Nvidia).as_secs(), debts.of(ProjectId(2), Nvidia).as_secs()),
        (25.0, -25.0)
    );
    assert_eq!((debts.of(ProjectId(1), Cpu).as_secs(), debts.of(ProjectId(2), Cpu).as_secs()), (0.0, 0.0));
}

#[test]
fn r3_4_the_overall_debt_is_weighted_by_speed() {
    let host = host(1, 1, 2.0);
    let mut debts = supplied(&[(1, false, true), (2, true, true)]);
    debts.settle(&host, &[period(1, 100.0, 0.0, 50.0), period(2, 100.0, 100.0, 50.0)]);
    assert_eq!(debts.overall(ProjectId(1), &host.speeds).as_secs(), 50.0);
    assert_eq!(debts.overall(ProjectId(3), &host.speeds).as_secs(), 0.0);
}

/// Shows R3.11 as well.
#[test]
fn r3_5_a_pair_accumulates_from_its_first_job_on_until_it_is_known_not_to_supply() {
    let mut debts = LongTermDebts::default();
    let mut reply = |reply, after| {
        debts.on_reply(ProjectId(1), Nvidia, reply, after);
        debts.supplies(ProjectId(1), Nvidia)
    };
    let backed_off = |at_maximum| AfterReply::BackedOff { failures: 3, wait: secs(60), at_maximum };
    assert!(!reply(ReplyForType::NoneNow, backed_off(false)), "initially false");
    assert!(reply(ReplyForType::Jobs(2), CLEARED));
    assert!(reply(ReplyForType::NoneNow, backed_off(false)), "no work now says nothing");
    assert!(!reply(ReplyForType::NotSupported, backed_off(false)));
    assert!(reply(ReplyForType::Jobs(1), CLEARED));
    assert!(!reply(ReplyForType::NoneNow, backed_off(true)), "never supplied until the maximum");
}

#[test]
fn r3_6_a_pair_that_does_not_accumulate_neither_earns_nor_drifts() {
    let mut debts = supplied(&[(1, true, false), (2, true, false), (3, true, false)]);
    let host = host(2, 0, 1.0);
    debts.settle(&host, &[period(1, 1.0, 90.0, 0.0), period(2, 1.0, 90.0, 0.0), period(3, 1.0, 0.0, 0.0)]);
    assert_eq!(debts.of(ProjectId(3), Cpu).as_secs(), 60.0);
    let mut barred = period(3, 1.0, 30.0, 0.0);
    barred.may_supply[Cpu] = false;
    debts.settle(&host, &[period(1, 1.0, 90.0, 0.0), period(2, 1.0, 90.0, 0.0), barred]);
    assert_eq!(debts.of(ProjectId(3), Cpu).as_secs(), 60.0);
}

#[test]
fn r3_6_what_nobody_could_use_is_owed_to_nobody_so_that_a_small_share_does_not_lose_all_of_its_own() {
    // A limit on CPU time leaves 100 of 200 seconds, of which each got its share.
    let mut debts = supplied(&[(1, true, false), (2, true, false)]);
    debts.settle(&host(2, 0, 1.0), &[period(1, 1.0, 10.0, 0.0), period(2, 9.0, 90.0, 0.0)]);
    for project in [1, 2] {
        assert!(debts.of(ProjectId(project), Cpu).as_secs().abs() < 1e-9, "{project}");
    }
    debts.settle(&host(2, 0, 1.0), &[period(1, 1.0, 0.0, 0.0), period(2, 9.0, 100.0, 0.0)]);
    assert!((debts.of(ProjectId(1), Cpu).as_secs() - 10.0).abs() < 1e-9);
}

#[test]
fn opposite_parts_are_set_off_against_each_other() {
    // One gets all of the CPU, the other all of a GPU of the same speed: nobody is owed anything.
    let mut debts = supplied(&[(1, true, true), (2, true, true)]);
    debts.settle(&host(1, 1, 1.0), &[period(1, 1.0, 100.0, 0.0), period(2, 1.0, 0.0, 100.0)]);
    for (project, kind) in [(1, Cpu), (1, Nvidia), (2, Cpu), (2, Nvidia)] {
        assert_eq!(debts.of(ProjectId(project), kind).as_secs(), 0.0, "{project} {kind}");
    }
}

#[test]
fn r3_6_debts_survive_being_stored() {
    let mut debts = supplied(&[(1, true, false), (2, true, false)]);
    debts.settle(&host(1, 0, 1.0), &[period(1, 3.0, 100.0, 0.0), period(2, 1.0, 0.0, 0.0)]);
    let stored = serde_json::to_string(&debts).unwrap();
    assert_eq!(serde_json::from_str::<LongTermDebts>(&stored).unwrap(), debts);
}

/// A stretch of a history: for each project whether it may be asked; then a draw that says who among the
/// equals is.
type Turn = (Vec<(bool, bool)>, u8, u16);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn r3_6_debts_sum_to_zero_over_the_pairs_that_accumulate_and_stay_bounded_when_the_most_owed_computes(
        shares in prop::collection::vec(1.0..100.0_f64, 2..6),
        speed in 0.2..20.0_f64,
        turns in prop::collection::vec((prop::collection::vec((any::<bool>(), any::<bool>()), 6), any::<u8>(), 1_u16..3_600), 1..400_usize),
    ) {
        let turns: Vec<Turn> = turns;
        let host = host(2, 1, speed);
        let ids: Vec<u32> = (1..=shares.len() as u32).collect();
        let mut debts = supplied(&ids.iter().map(|id| (*id, true, true)).collect::<Vec<_>>());
        for (may, favours, length) in turns {
            let length = f64::from(length);
            // The rule of R3.9: each type computes for the project owed most of those that may be asked for
            // it.
            let most = |allowed: &dyn Fn(usize) -> bool| {
                (0..ids.len()).filter(|i| allowed(*i)).max_by(|a, b| {
                    let of = |i: &usize| debts.overall(ProjectId(ids[*i]), &host.speeds).as_secs();
                    of(a).total_cmp(&of(b)).then((a + usize::from(favours)).cmp(&(b + usize::from(favours))))
                })
            };
            let (cpu, gpu) = (most(&|i| may[i].0), most(&|i| may[i].1));
            let periods: Vec<LongTermPeriod> = (0..ids.len()).map(|i| LongTermPeriod {
                may_supply: both(may[i].0, may[i].1),
                ..period(
                    ids[i],
                    shares[i],
                    if cpu == Some(i) { 2.0 * length } else { 0.0 },
                    if gpu == Some(i) { length } else { 0.0 },
                )
            }).collect();
            debts.settle(&host, &periods);
            // One stretch gives at most an hour of the whole host.
            let bound = 3_600.0 * (2.0 + speed) * 4.0 * shares.len() as f64;
            for (kind, allowed) in [(Cpu, 0), (Nvidia, 1)] {
                let pairs = (0..ids.len()).filter(|i| if allowed == 0 { may[*i].0 } else { may[*i].1 });
                let sum: f64 = pairs.map(|i| debts.of(ProjectId(ids[i]), kind).as_secs()).sum();
                prop_assert!(sum.abs() < 1e-6 * bound, "{kind}: {sum}");
                for id in &ids {
                    let debt = debts.of(ProjectId(*id), kind).as_secs() * host.speeds[kind];
                    prop_assert!(debt.abs() <= bound, "{kind} of {id}: {debt} beyond {bound}");
                }
            }
        }
    }
}
