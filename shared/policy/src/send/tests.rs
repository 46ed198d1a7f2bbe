use super::as_asked::ws1;
use super::in_time::*;
use super::*;
use ResourceType::{Cpu, Nvidia};
use fallow_domain::InstanceSeconds;
use proptest::prelude::*;

const HOUR: Duration = Duration::from_hours(1);

fn t0() -> Instant {
    Instant::from_secs_f64(1.8e9)
}
fn offer(id: u32, hours: i64, deadline: i64) -> Offer<u32> {
    Offer { id, estimate: HOUR * hours, deadline: t0() + HOUR * deadline, usage: Usage::ONE_CPU }
}
fn has(hours: i64, deadline: i64) -> InProgress {
    InProgress { deadline: t0() + HOUR * deadline, remaining: HOUR * hours, usage: Usage::ONE_CPU }
}
fn host(cpus: u32, availability: f64) -> SendHost {
    SendHost { instances: PerType::cpu(cpus), availability: Fraction::clamped(availability) }
}
fn judge(
    host: SendHost,
    held: &[InProgress],
    offered: Offer<u32>,
    switches: Ws2Switches,
) -> Option<WhyNotSent> {
    ws2(Demand::cpu(HOUR, 0), &host, held, [offered], switches, t0()).refused.first().map(|(_, why)| *why)
}

#[test]
fn r5_5_jobs_are_sent_until_their_estimates_add_up() {
    let offers = || (1..9).map(|id| offer(id, 2, 99));
    assert_eq!(ws1(Demand::cpu(HOUR * 5, 0), offers()), [1, 2, 3]);
    assert_eq!(ws1(Demand::cpu(HOUR * 4, 0), offers()), [1, 2]);
    assert_eq!(ws1(Demand::cpu(Duration::from_secs(1), 3), offers()), [1, 2, 3]);
    assert!(ws1(Demand::cpu(Duration::ZERO, 0), offers()).is_empty());
}

#[test]
fn r5_6_a_job_is_sent_only_if_it_meets_its_deadline_and_harms_no_other() {
    let published = |held: &[InProgress], offered| judge(host(1, 1.0), held, offered, Ws2Switches::PUBLISHED);
    assert_eq!(published(&[], offer(1, 4, 4)), None);
    assert_eq!(published(&[], offer(1, 4, 3)), Some(WhyNotSent::MissesDeadline(HOUR)));
    assert_eq!(published(&[has(2, 9)], offer(1, 4, 6)), None);
    assert_eq!(published(&[has(4, 7)], offer(1, 4, 6)), Some(WhyNotSent::MakesAnotherLate));
    assert_eq!(published(&[has(4, 3)], offer(1, 1, 2)), Some(WhyNotSent::MakesAnotherLater));
    assert_eq!(published(&[has(4, 3)], offer(1, 1, 9)), None);
    assert_eq!(judge(host(2, 1.0), &[has(4, 3)], offer(1, 1, 2), Ws2Switches::PUBLISHED), None);
    let wide = Offer { usage: Usage::from_cpus(3.0), ..offer(1, 1, 99) };
    assert_eq!(judge(host(2, 1.0), &[], wide, Ws2Switches::PUBLISHED), Some(WhyNotSent::TooManyCpus));
}

#[test]
fn r5_6_the_two_switches() {
    let send = |switches| {
        ws2(Demand::cpu(HOUR * 8, 0), &host(1, 0.8), &[], [offer(1, 4, 5), offer(2, 4, 5)], switches, t0())
            .send
    };
    assert_eq!(send(Ws2Switches::PUBLISHED), [1, 2]);
    assert_eq!(send(Ws2Switches::IMPROVED), [1]);
    let unscaled = Ws2Switches { scale_by_availability: false, ..Ws2Switches::IMPROVED };
    assert_eq!(judge(host(1, 0.5), &[], offer(1, 4, 5), unscaled), None);
    assert_eq!(
        judge(host(1, 0.5), &[], offer(1, 4, 5), Ws2Switches::IMPROVED),
        Some(WhyNotSent::MissesDeadline(HOUR * 3))
    );
}

/// The simulation in plain words: each job in order of deadline on the CPU that frees first.
fn lateness(jobs: &[InProgress], cpus: u32, stretch: f64) -> Vec<Duration> {
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|job| job.deadline);
    let mut free_at = vec![t0(); cpus as usize];
    let run = |job: &InProgress| {
        let first = free_at.iter_mut().min().unwrap();
        *first = *first + job.remaining.mul_f64(stretch);
        *first - job.deadline
    };
    jobs.iter().map(run).collect()
}

fn gpu_job(id: u32, hours: i64, deadline: i64, gpus: f64) -> Offer<u32> {
    Offer { usage: Usage::from_cpus(0.2).with_coprocessor(Nvidia, gpus), ..offer(id, hours, deadline) }
}

fn both<T: Default>(cpu: T, gpu: T) -> PerType<T> {
    let mut both = PerType::cpu(cpu);
    both[Nvidia] = gpu;
    both
}

fn seconds(cpu: f64, gpu: f64) -> PerType<InstanceSeconds> {
    both(InstanceSeconds::new(cpu), InstanceSeconds::new(gpu))
}

#[test]
fn r3_12_each_type_is_filled_by_itself_and_no_other_is_sent() {
    let offers = || {
        [
            offer(1, 2, 99),
            gpu_job(2, 1, 99, 1.0),
            offer(3, 2, 99),
            gpu_job(4, 1, 99, 1.0),
            gpu_job(5, 1, 99, 1.0),
        ]
    };
    let ask = |cpu: (f64, f64), gpu: (f64, f64)| {
        ws1(
            Demand::new(&seconds(cpu.0, gpu.0), &both(cpu.1, gpu.1), InstanceSeconds::new(cpu.0.max(gpu.0))),
            offers(),
        )
    };
    assert_eq!(ask((3_600.0, 0.0), (0.0, 0.0)), [1]);
    assert_eq!(ask((0.0, 0.0), (5_400.0, 0.0)), [2, 4]);
    assert_eq!(ask((0.0, 0.0), (1.0, 3.0)), [2, 4, 5]);
    assert_eq!(ask((3_600.0, 2.0), (1.0, 0.0)), [1, 2, 3]);
}

#[test]
fn r3_12_an_old_clients_scalar_is_filled_from_whatever_types_there_are() {
    let demand = Demand::new(&PerType::default(), &PerType::default(), InstanceSeconds::new(3.0 * 3_600.0));
    assert!(demand.wants(Cpu) && demand.wants(Nvidia));
    assert_eq!(ws1(demand, [offer(1, 2, 99), gpu_job(2, 1, 99, 1.0), offer(3, 2, 99)]), [1, 2]);
    assert!(!Demand::new(&PerType::default(), &PerType::default(), InstanceSeconds::new(f64::NAN)).is_open());
}

#[test]
fn r3_12_a_project_without_versions_for_the_only_types_wanted_can_say_so() {
    let demand = Demand::new(&seconds(0.0, 60.0), &PerType::default(), InstanceSeconds::new(60.0));
    assert!(!demand.is_supported(&PerType::cpu(true)) && demand.is_supported(&both(false, true)));
    assert_eq!(demand.unsupported(&PerType::cpu(true)), both(false, true));
    let more = Demand::new(&seconds(60.0, 60.0), &PerType::default(), InstanceSeconds::new(60.0));
    assert!(more.is_supported(&PerType::cpu(true)));
}

#[test]
fn r5_6_types_are_simulated_by_themselves_and_gpus_can_be_shared() {
    let host = SendHost { instances: both(1, 1), availability: Fraction::ONE };
    let judge = |held: &[InProgress], offered: Offer<u32>| {
        let demand = Demand::new(&seconds(3_600.0, 3_600.0), &PerType::default(), InstanceSeconds::new(0.0));
        ws2(demand, &host, held, [offered], Ws2Switches::PUBLISHED, t0()).refused.first().map(|(_, why)| *why)
    };
    // The CPU is full for nine hours; the GPU is free.
    assert_eq!(judge(&[has(9, 9)], gpu_job(1, 4, 4, 1.0)), None);
    let held = |gpus| InProgress { usage: gpu_job(1, 0, 0, gpus).usage, ..has(4, 4) };
    assert_eq!(judge(&[held(1.0)], gpu_job(1, 4, 4, 1.0)), Some(WhyNotSent::MissesDeadline(HOUR * 4)));
    assert_eq!(judge(&[held(0.5)], gpu_job(1, 4, 4, 0.5)), None, "two halves run side by side");
    assert_eq!(judge(&[], gpu_job(1, 1, 9, 2.0)), Some(WhyNotSent::TooManyInstances(Nvidia)));
}

#[test]
fn r5_6_however_many_jobs_a_host_holds_the_last_in_line_waits_for_all_of_them() {
    for count in 1..200_i64 {
        let held = vec![has(1, 0); count as usize];
        let judged = |deadline| judge(host(1, 1.0), &held, offer(1, 1, deadline), Ws2Switches::PUBLISHED);
        assert_eq!(judged(count + 1), None, "{count}");
        assert_eq!(judged(count), Some(WhyNotSent::MissesDeadline(HOUR)), "{count}");
    }
}

proptest! {
    /// Snapshots and early ends are for speed only.
    #[test]
    fn r5_6_a_candidate_is_judged_as_by_a_whole_simulation(
        cpus in 1_u32..5,
        held in prop::collection::vec((0_i64..9, 0_i64..400), 0..300),
        hours in 0_i64..9, deadline in 0_i64..400,
    ) {
        let held: Vec<_> = held.into_iter().map(|(hours, deadline)| has(hours, deadline)).collect();
        let offered = offer(1, hours, deadline);
        let refusal = judge(host(cpus, 1.0), &held, offered, Ws2Switches::PUBLISHED);
        let before = lateness(&held, cpus, 1.0);
        let place = {
            let mut deadlines: Vec<_> = held.iter().map(|job| job.deadline).collect();
            deadlines.sort_unstable();
            deadlines.partition_point(|other| *other <= offered.deadline)
        };
        let mut all = held;
        all.push(has(hours, deadline));
        let mut after = lateness(&all, cpus, 1.0);
        let own = after.remove(place);
        let harmed = before.iter().zip(&after).find(|(before, after)| after > before && after.is_positive());
        let expected = match harmed {
            _ if own.is_positive() => Some(WhyNotSent::MissesDeadline(own)),
            None => None,
            Some((before, _)) if before.is_positive() => Some(WhyNotSent::MakesAnotherLater),
            Some(_) => Some(WhyNotSent::MakesAnotherLate),
        };
        prop_assert_eq!(refusal, expected);
    }

    #[test]
    fn r5_6_what_improved_ws2_sends_is_all_in_time_and_delays_nobody(
        cpus in 1_u32..5,
        held in prop::collection::vec((0_i64..9, 0_i64..20), 0..8),
        offers in prop::collection::vec((0_i64..9, 0_i64..20), 0..12),
    ) {
        let held: Vec<_> = held.into_iter().map(|(hours, deadline)| has(hours, deadline)).collect();
        let offers: Vec<_> =
            (0..).zip(offers).map(|(id, (hours, deadline))| offer(id, hours, deadline)).collect();
        let host = host(cpus, 0.9);
        let sent = ws2(Demand::cpu(HOUR * 1_000, 0), &host, &held, offers.clone(), Ws2Switches::IMPROVED, t0());
        let late = |jobs: &[InProgress]| lateness(jobs, cpus, 1.0 / 0.9).into_iter().filter(|late| late.is_positive()).count();
        let late_before = late(&held);
        let mut all = held;
        all.extend(sent.send.iter().map(|id| &offers[*id as usize]).map(|o| has(
            (o.estimate.as_secs_f64() / 3600.0) as i64, ((o.deadline - t0()).as_secs_f64() / 3600.0) as i64)));
        prop_assert!(late(&all) <= late_before);
        prop_assert_eq!(sent.send.len() + sent.refused.len(), offers.len());
    }

    /// The sums only spare the look at each job: whoever has none of them sends the same.
    #[test]
    fn r5_6_sums_that_show_room_send_what_a_look_at_each_job_sends(
        cpus in 1_u32..5,
        held in prop::collection::vec((0_i64..9, 0_i64..90), 0..12),
        offers in prop::collection::vec((0_i64..9, 0_i64..90), 0..12),
        availability in 0.3..1.0_f64,
        improved in any::<bool>(),
    ) {
        let held: Vec<_> = held.into_iter().map(|(hours, deadline)| has(hours, deadline + 20)).collect();
        let offers: Vec<_> =
            (0..).zip(offers).map(|(id, (hours, deadline))| offer(id, hours, deadline)).collect();
        let switches = if improved { Ws2Switches::IMPROVED } else { Ws2Switches::PUBLISHED };
        let send = |load: Load| {
            let demand = Demand::cpu(HOUR * 30, 0);
            ws2_under(demand, &host(cpus, availability), load, || held.clone(), offers.clone(), switches, t0())
        };
        let unknown = Load { one_cpu_each: false, ..Load::NONE };
        prop_assert_eq!(send(Load::of(&held)), send(unknown));
    }
}
