//! What the accounts cost: debts, fair division, work fetch by projects; a booking of metrics; a server's
//! look at a candidate by jobs that the host has.
//!
//! Run with `cargo bench -p fallow-policy --bench accounts`.

use divan::{Bencher, black_box};
use fallow_domain::{
    Duration, Fraction, InstanceSeconds, Instant, PerType, ProjectId, ResourceType, Share, Usage,
};
use fallow_policy::accounting::{Debt, LongTermDebts, LongTermPeriod};
use fallow_policy::due::{DueClaim, rates};
use fallow_policy::fetch::shortfall::{FetchCandidate, FetchRules, TypeNeed, plan};
use fallow_policy::fetch::{FetchContact, FetchPriority, FetchWhen};
use fallow_policy::metrics::{Metrics, Observation, ProjectObservation};
use fallow_policy::plan_host::PlanHost;
use fallow_policy::send::in_time::ws2;
use fallow_policy::send::{Demand, InProgress, Offer, SendHost, Ws2Switches};
use fallow_policy::type_backoff::{AfterReply, ReplyForType};

const PROJECTS: [u32; 4] = [2, 10, 100, 1_000];

fn main() {
    divan::main();
}

fn now() -> Instant {
    Instant::from_secs_f64(1.8e9)
}

fn host(types: usize) -> PlanHost {
    let mut host = PlanHost::cpus(8);
    for kind in ResourceType::COPROCESSORS.into_iter().take(types - 1) {
        (host.instances[kind], host.speeds[kind]) = (2, 10.0);
    }
    host
}

/// One project in three has CPU jobs only, one GPU jobs only, one both.
fn takes_part(id: u32, kind: ResourceType) -> bool {
    match id % 3 {
        0 => kind == ResourceType::Cpu,
        1 => kind != ResourceType::Cpu,
        _ => true,
    }
}

fn share(id: u32) -> Share {
    Share::new(f64::from(id % 7 + 1) * 10.0).unwrap_or_default()
}

fn claims(host: &PlanHost, projects: u32) -> Vec<DueClaim> {
    let limit = |id| {
        PerType::from_fn(|kind| if takes_part(id, kind) { f64::from(host.instances[kind]) } else { 0.0 })
    };
    (0..projects).map(|id| DueClaim { project: ProjectId(id), share: share(id), limit: limit(id) }).collect()
}

#[divan::bench(args = PROJECTS)]
fn due_of_cpus(bencher: Bencher<'_, '_>, projects: u32) {
    let host = host(1);
    let claims = claims(&host, projects);
    bencher.bench(|| rates(&host, black_box(&claims)));
}

#[divan::bench(args = PROJECTS)]
fn due_of_cpus_and_gpus(bencher: Bencher<'_, '_>, projects: u32) {
    let host = host(2);
    let claims = claims(&host, projects);
    bencher.bench(|| rates(&host, black_box(&claims)));
}

#[divan::bench(args = PROJECTS)]
fn due_of_five_types(bencher: Bencher<'_, '_>, projects: u32) {
    let host = host(5);
    let claims = claims(&host, projects);
    bencher.bench(|| rates(&host, black_box(&claims)));
}

#[divan::bench(args = PROJECTS)]
fn settle_long_term_debts(bencher: Bencher<'_, '_>, projects: u32) {
    let host = host(2);
    let mut debts = LongTermDebts::default();
    for id in 0..projects {
        for kind in host.types().filter(|kind| takes_part(id, *kind)) {
            debts.on_reply(ProjectId(id), kind, ReplyForType::Jobs(1), AfterReply::Cleared);
        }
    }
    let period = |id| LongTermPeriod {
        project: ProjectId(id),
        share: share(id),
        used: PerType::from_fn(|_| Duration::from_secs(i64::from(id % 11))),
        may_supply: PerType::from_fn(|_| true),
        forgotten: PerType::default(),
    };
    let periods: Vec<_> = (0..projects).map(period).collect();
    bencher.bench_local(move || debts.settle(&host, black_box(&periods)));
}

#[divan::bench(args = PROJECTS)]
fn plan_fetch(bencher: Bencher<'_, '_>, projects: u32) {
    let rules = FetchRules {
        speeds: host(2).speeds,
        when: FetchWhen::AnyShortfall,
        buffer_min: Duration::from_hours(2),
    };
    let needs =
        PerType::from_fn(|_| TypeNeed { shortfall: InstanceSeconds::new(5_000.0), ..TypeNeed::default() });
    let candidate = |id: u32| FetchCandidate {
        id: ProjectId(id),
        share: share(id),
        priority: FetchPriority::Debt(Debt::from_secs(f64::from(id * 7_919 % 10_007) - 5_000.0)),
        over_served: id.is_multiple_of(5),
        tight: false,
        may_supply: true,
        contact: FetchContact { may_contact: true, ..FetchContact::default() },
        backed_off: PerType::default(),
        untried: PerType::default(),
        shortfall: PerType::from_fn(|_| InstanceSeconds::new(100.0)),
    };
    let candidates: Vec<_> = (0..projects).map(candidate).collect();
    bencher.bench(|| plan(&rules, black_box(&needs), &candidates));
}

#[divan::bench(args = PROJECTS)]
fn book_a_stretch(bencher: Bencher<'_, '_>, projects: u32) {
    let project = |id: u32| ProjectObservation {
        project: ProjectId(id),
        share: share(id),
        used: PerType::cpu(Duration::from_secs(1)),
        running: id.is_multiple_of(2),
        could_use: PerType::cpu(8.0),
        could_get: PerType::cpu(8.0),
    };
    let projects: Vec<_> = (0..projects).map(project).collect();
    let (mut metrics, mut from) = (Metrics::default(), now());
    bencher.bench_local(move || {
        let to = from + Duration::from_secs(10);
        metrics.observe(&Observation {
            from,
            to,
            available: PerType::cpu(8),
            starved: PerType::default(),
            speeds: PerType::cpu(1.0),
            throttled: Duration::ZERO,
            scheduling_period: Duration::from_hours(1),
            projects: black_box(&projects),
        });
        from = to;
    });
}

/// A hundred candidates of which none can be sent: all harm another.
#[divan::bench(args = [100, 1_000, 10_000])]
fn judge_a_hundred_candidates(bencher: Bencher<'_, '_>, jobs: i64) {
    let held = |id: i64| InProgress {
        deadline: now() + Duration::from_hours(id * 7_919 % (jobs + 1)) / 8 + Duration::from_hours(3),
        remaining: Duration::from_hours(1),
        usage: Usage::ONE_CPU,
    };
    let held: Vec<_> = (0..jobs).map(held).collect();
    let host = SendHost { instances: PerType::cpu(8), availability: Fraction::ONE };
    let offer = |id: i64| Offer {
        id,
        estimate: Duration::from_hours(1),
        deadline: now() + Duration::from_hours(2 + id * jobs / 1_000),
        usage: Usage::ONE_CPU,
    };
    bencher.bench(|| {
        let wanted = Demand::cpu(Duration::from_hours(10_000), 0);
        ws2(wanted, &host, black_box(&held), (0..100).map(offer), Ws2Switches::IMPROVED, now())
    });
}
