use super::*;
use proptest::prelude::*;

use ResourceType::{Cpu, Nvidia};

fn host(cpus: u32, gpus: u32, speed: f64) -> PlanHost {
    let mut host = PlanHost::cpus(cpus);
    host.instances[Nvidia] = gpus;
    host.speeds[Nvidia] = speed;
    host
}

fn claim(id: u32, share: f64, cpus: f64, gpus: f64) -> DueClaim {
    let mut limit = PerType::cpu(cpus);
    limit[Nvidia] = gpus;
    DueClaim { project: ProjectId(id), share: Share::new(share).unwrap(), limit }
}

fn due(host: &PlanHost, claims: &[DueClaim]) -> Vec<(f64, f64)> {
    let rounded = |value: f64| (value * 1e9).round() / 1e9;
    rates(host, claims).iter().map(|due| (rounded(due[Cpu]), rounded(due[Nvidia]))).collect()
}

#[test]
fn r3_13_a_project_with_gpu_jobs_only_gets_three_quarters_of_the_gpu() {
    let parts = due(&host(1, 1, 2.0), &[claim(1, 100.0, 0.0, 1.0), claim(2, 100.0, 1.0, 1.0)]);
    assert_eq!(parts, [(0.0, 0.75), (1.0, 0.25)]);
}

#[test]
fn r3_3_where_all_take_part_for_all_types_each_gets_its_share_of_each() {
    let parts = due(&host(4, 2, 10.0), &[claim(1, 75.0, 4.0, 2.0), claim(2, 25.0, 4.0, 2.0)]);
    assert_eq!(parts, [(3.0, 1.5), (1.0, 0.5)]);
}

#[test]
fn r3_3_what_one_cannot_use_goes_to_the_others() {
    assert_eq!(
        due(&host(4, 0, 1.0), &[claim(1, 75.0, 1.0, 0.0), claim(2, 25.0, 9.0, 0.0)]),
        [(1.0, 0.0), (3.0, 0.0)]
    );
    // The GPU is far faster than the CPUs: no CPU makes up for it.
    assert_eq!(
        due(&host(4, 1, 100.0), &[claim(1, 50.0, 0.0, 1.0), claim(2, 50.0, 4.0, 0.0)]),
        [(0.0, 1.0), (4.0, 0.0)]
    );
}

#[test]
fn a_share_of_zero_gets_what_the_others_cannot_use() {
    let claims = [claim(1, 100.0, 3.0, 0.0), claim(2, 0.0, 9.0, 1.0), claim(3, 0.0, 9.0, 0.0)];
    assert_eq!(due(&host(4, 1, 1.0), &claims), [(3.0, 0.0), (0.0, 1.0), (1.0, 0.0)]);
    assert_eq!(due(&host(4, 0, 1.0), &[claim(1, 0.0, 9.0, 0.0), claim(2, 0.0, 9.0, 0.0)]), [(2.0, 0.0); 2]);
}

#[test]
fn nonsense_limits_and_hosts_without_instances_are_taken_as_they_come() {
    assert!(rates(&host(1, 0, 1.0), &[]).is_empty());
    assert_eq!(due(&host(0, 0, 1.0), &[claim(1, 1.0, 1.0, 1.0)]), [(0.0, 0.0)]);
    let claims = [claim(1, 1.0, f64::INFINITY, f64::NAN), claim(2, 1.0, -1.0, 1.0)];
    assert_eq!(due(&host(2, 1, f64::NAN), &claims), [(2.0, 0.0), (0.0, 1.0)]);
}

fn any_world() -> impl Strategy<Value = (PlanHost, Vec<DueClaim>)> {
    let types = (prop::collection::vec(0_u32..5, 5), prop::collection::vec(0.1..50.0_f64, 5));
    // Half of the limits are none or all, as flags make them; the others are anything.
    let limit = prop_oneof![Just(0.0), Just(99.0), 0.0..5.0_f64];
    let share = prop_oneof![Just(0.0), Just(100.0), 0.1..1e6_f64];
    let claims = prop::collection::vec((share, prop::collection::vec(limit, 5)), 0..12);
    (types, claims).prop_map(|((instances, speeds), rows)| {
        let host = PlanHost {
            instances: PerType::from_fn(|kind| instances[kind as usize]),
            speeds: PerType::from_fn(|kind| if kind == Cpu { 1.0 } else { speeds[kind as usize] }),
            active_fraction: fallow_domain::Fraction::ONE,
        };
        let claim = |(id, (share, limits)): (u32, (f64, Vec<f64>))| DueClaim {
            project: ProjectId(id),
            share: Share::new(share).unwrap(),
            limit: PerType::from_fn(|kind| limits[kind as usize].min(f64::from(host.instances[kind]))),
        };
        (host, (1..).zip(rows).map(claim).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn r3_3_nothing_is_lost_and_no_limit_is_exceeded((host, claims) in any_world()) {
        let due = rates(&host, &claims);
        for kind in ResourceType::ALL {
            let usable: f64 = claims.iter().map(|claim| claim.limit[kind]).sum();
            let given: f64 = due.iter().map(|due| due[kind]).sum();
            let there = f64::from(host.instances[kind]).min(usable);
            prop_assert!((given - there).abs() < 1e-6, "{kind}: {given} of {there}");
            for (due, claim) in due.iter().zip(&claims) {
                prop_assert!(due[kind] >= -1e-9 && due[kind] <= claim.limit[kind] + 1e-9);
            }
        }
    }

    /// Nobody can be helped but by taking from one that is not better off, along any chain of types.
    #[test]
    fn r3_3_who_could_use_more_takes_it_from_nobody_better_off((host, claims) in any_world()) {
        let due = rates(&host, &claims);
        let level = |i: usize| {
            let speed: f64 = ResourceType::ALL.iter().map(|kind| due[i][*kind] * host.speeds[*kind]).sum();
            match claims[i].share.get() {
                // Shares of zero rank behind all others, so they are better off with anything at all.
                0.0 if speed > 1e-6 => 1e12 + speed,
                0.0 => 0.0,
                share => speed / share,
            }
        };
        for i in 0..claims.len() {
            let mut reached = [false; 5];
            let mut takers = vec![i];
            while let Some(taker) = takers.pop() {
                for kind in ResourceType::ALL {
                    let room = claims[taker].limit[kind] - due[taker][kind] > 1e-6;
                    if !room || reached[kind as usize] {
                        continue;
                    }
                    reached[kind as usize] = true;
                    for giver in (0..claims.len()).filter(|giver| due[*giver][kind] > 1e-6) {
                        let (own, other) = (level(i), level(giver));
                        let zeros = claims[i].share.get() == 0.0 && claims[giver].share.get() > 0.0;
                        prop_assert!(zeros || other <= own * (1.0 + 1e-6) + 1e-6, "{i} {giver} {own} {other}");
                        takers.push(giver);
                    }
                }
            }
        }
    }

    #[test]
    fn a_division_that_is_kept_is_made_anew_when_anything_that_it_follows_from_changes(
        (host, claims) in any_world(),
        kind in prop::sample::select(ResourceType::ALL.to_vec()),
        place in any::<prop::sample::Index>(),
    ) {
        let (mut more, mut faster, mut shared, mut limited) = (host, host, claims.clone(), claims.clone());
        more.instances[kind] += 1;
        faster.speeds[kind] *= 2.0;
        if !claims.is_empty() {
            let at = place.index(claims.len());
            shared[at].share = Share::new(claims[at].share.get() + 7.0).unwrap();
            limited[at].limit[kind] *= 0.5;
        }
        let fewer = &claims[..claims.len().saturating_sub(1)];
        let mut last = LastRates::default();
        let asked = [(&host, &claims[..]), (&more, &claims), (&faster, &claims), (&host, &shared)];
        for (host, claims) in asked.into_iter().chain([(&host, &limited[..]), (&host, fewer)]) {
            for _ in 0..2 {
                prop_assert_eq!(last.of(host, claims), rates(host, claims));
            }
        }
    }

    #[test]
    fn a_division_made_twice_is_the_same((host, claims) in any_world()) {
        prop_assert_eq!(rates(&host, &claims), rates(&host, &claims));
    }
}
