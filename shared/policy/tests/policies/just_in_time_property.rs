//! Work fetch just in time (WF3), whatever it meets: absurd jobs, shares, droughts and hours.

use fallow_domain::ResourceType::Cpu;
use fallow_domain::{Duration, Fraction, Instant, PerType};
use fallow_policy::accounting::Debt;
use fallow_policy::fetch::just_in_time::JustInTime;
use fallow_policy::fetch::{CHECK_PERIOD, FetchPriority, TypicalJob};
use fallow_policy::job_queue::JobQueue;
use fallow_policy::on_time::OnTime;
use proptest::prelude::*;

use crate::fetch_world::{Attached, FetchWorld, attached};
use crate::world::{any_jobs, at_min, share};

/// Seconds from a hair to thousands of years.
fn any_time() -> impl Strategy<Value = Duration> {
    prop_oneof![0.0..1e-3, 1.0..1e5, 1e5..1e11].prop_map(Duration::from_secs_f64)
}

fn any_typical() -> impl Strategy<Value = Option<TypicalJob>> {
    let job =
        (any_time(), any_time(), 0.01..64.0_f64).prop_map(|(running_time, latency_bound, instances)| {
            TypicalJob { running_time, latency_bound, instances }
        });
    prop::option::of(job)
}

fn any_attached(id: u32) -> impl Strategy<Value = Attached> {
    let weight = prop_oneof![Just(0.0), 0.001..1e6];
    let flags = prop::array::uniform9(prop::bool::weighted(0.2));
    let owed = (-1e12..1e12_f64, 0_i64..40);
    (weight, flags, any_typical(), owed).prop_map(move |(weight, flags, typical, (debt, wait))| {
        let mut of = attached(id, 1.0);
        of.project.share = share(weight);
        let [leaving, left_out, unreachable, full, backed_off, untried, hung, has_work, lacks] = flags;
        of.project.lacks = PerType::cpu(lacks);
        of.contact.hung = hung;
        of.contact.has_work = PerType::cpu(has_work);
        // Relative to the test's time, which is set later.
        of.contact.contact_from = unreachable.then(|| at_min(wait));
        of.project.detach_when_done = leaving;
        of.project.left_out = PerType::cpu(left_out);
        of.contact.may_contact = !unreachable;
        of.contact.at_limit = full;
        of.contact.backed_off = PerType::cpu(backed_off);
        of.project.supplies = PerType::cpu(!untried);
        of.priority = FetchPriority::Debt(Debt::from_secs(debt));
        of.typical = PerType::from_fn(|kind| typical.filter(|_| kind == Cpu));
        of
    })
}

/// Hours on and off, with jumps of the clock by years in both directions.
fn any_on_time() -> impl Strategy<Value = OnTime> {
    prop::collection::vec((-1e9..1e9_f64, 0.0..1e5_f64, any::<bool>()), 0..30).prop_map(|steps| {
        let (mut on_time, mut now) = (OnTime::default(), at_min(0));
        for (jump, length, on) in steps {
            if jump.abs() < 2e8 {
                now = now + Duration::from_secs_f64(jump);
            }
            now = now + Duration::from_secs_f64(length);
            on_time.observe(now, on);
        }
        on_time
    })
}

proptest! {
    /// Shows R2.16 and R3.9 of it, and that no request is without measure.
    #[test]
    fn it_never_asks_whom_it_may_not_nor_without_measure_nor_in_a_loop(
        jobs in any_jobs(30),
        projects in (any_attached(1), any_attached(2), any_attached(3)),
        on_time in any_on_time(),
        (drought, buffer, interval) in (any_time(), any_time(), prop_oneof![Just(Duration::ZERO), any_time()]),
        (cpus, active, minute) in (1_u32..65, 0.0..=1.0_f64, -1_000_000_i64..1_000_000),
    ) {
        let queue: JobQueue = jobs.into_iter().collect();
        let mut projects = [projects.0, projects.1, projects.2];
        let later = at_min(minute) - at_min(0);
        projects.iter_mut().for_each(|of| of.contact.contact_from = of.contact.contact_from.map(|at| at + later));
        let mut world = FetchWorld::new(cpus, &projects, &queue);
        world.now = at_min(minute);
        world.host.active_fraction = Fraction::clamped(active);
        world.on_time = on_time;
        world.droughts = PerType::cpu(drought);
        // What owners may set.
        world.buffer_min = buffer.min(Duration::from_hours(240));
        world.connection_interval = interval.min(Duration::from_hours(240));
        let decision = world.decision(&JustInTime);

        prop_assert!(decision.check_by >= world.now + CHECK_PERIOD);
        prop_assert!(decision.check_by < Instant::FAR_FUTURE);
        let mut asked = 0;
        for of in &projects {
            let Some(ask) = decision.of(of.project.id) else { continue };
            let never = of.project.detach_when_done || of.project.left_out[Cpu] || of.contact.at_limit;
            let beside = ask.piggyback != ask.request && !ask.piggyback.is_none();
            let left_alone = of.contact.backed_off[Cpu] && !of.contact.hung && !of.project.lacks[Cpu];
            prop_assert!(!beside || left_alone && !never && of.project.share.get() > 0.0, "{of:?}");
            if ask.request.is_none() {
                continue;
            }
            asked += 1;
            let may = of.contact.may_contact && !of.contact.at_limit && !of.contact.backed_off[Cpu];
            prop_assert!(may && !of.project.left_out[Cpu] && !of.project.detach_when_done, "{of:?}");
            let seconds = ask.request.seconds[Cpu].get();
            let held = Duration::from_hours(2 * 240).as_secs_f64() * f64::from(cpus);
            let half_a_job = of.typical[Cpu].map_or(0.0, |job| job.running_time.as_secs_f64() * job.instances / 2.0);
            prop_assert!((1.0..=held.max(half_a_job) + 1.0).contains(&seconds), "{seconds}");
            prop_assert!(ask.request.instances[Cpu] <= f64::from(cpus));
            prop_assert!(ask.why.is_some());
        }
        prop_assert!(asked <= 1);
        prop_assert_eq!(decision.wants_work(), asked == 1);
    }
}
