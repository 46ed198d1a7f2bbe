//! Policies of one's own: whatever they say, the client keeps within what holds for all.

use std::sync::atomic::{AtomicUsize, Ordering};

use fallow_domain::{Duration, Fraction, Instant, JobId, ProjectId, SlotId, Usage};
use fallow_policy::completion::{
    Basis, CompletionChoice, CompletionPolicy, DurationCorrection, Estimate, JobProgress, Learned,
    WhyEstimate,
};
use fallow_policy::cpu_schedule::{
    CpuChoice, CpuPolicy, CpuSituation, RunAction, Schedule, ScheduledJob, SchedulingRule, UnscheduledJob,
};
use fallow_policy::fetch::{
    CHECK_PERIOD, CHECK_SOONEST, FetchChoice, FetchDecision, FetchPolicy, FetchSituation, ProjectRequest,
    WorkRequest,
};
use fallow_policy::job_queue::{Devices, JobSnapshot};
use fallow_policy::why::Why;

use super::{NOW, client, id_of, put_job};
use crate::machine::Client;
use crate::state::Process;
use crate::{Action, Effect, Event};

/// Asks whoever it hears of for work, and somebody it never heard of, and would decide again at once, for
/// ever. It counts how often it was asked.
struct Greedy {
    decisions: AtomicUsize,
}

impl FetchPolicy for Greedy {
    fn name(&self) -> &'static str {
        "WF0"
    }
    fn summary(&self) -> &'static str {
        "everybody, always"
    }
    fn decide(&self, situation: &FetchSituation<'_>) -> FetchDecision {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        let hour = WorkRequest::cpu(Duration::from_hours(1), 1.0);
        let projects = situation.projects().into_iter().map(|project| project.id).chain([ProjectId(77)]);
        let ask =
            |project| ProjectRequest { project, request: hour, piggyback: hour, for_idle: hour, why: None };
        FetchDecision::new(projects.map(ask).collect(), Instant::EPOCH)
    }
}

/// A client that follows it, attached to projects whose schedulers it knows.
fn greedy(policy: &'static Greedy, projects: &[&str]) -> Client {
    let mut client = client(0, projects);
    client.config.composition.fetch = FetchChoice::new(policy);
    for name in projects {
        let id = id_of(&client, name);
        client.edit_project(id, |project| {
            project.scheduler_urls = vec![format!("http://127.0.0.1/{name}/cgi")];
            project.rpc = Default::default();
        });
    }
    client
}

/// Whom the client calls.
fn called(actions: &[Action]) -> Vec<ProjectId> {
    let called = actions.iter().filter_map(|action| match &action.effect {
        Effect::CallScheduler { project, .. } => Some(*project),
        _ => None,
    });
    called.collect()
}

#[test]
fn r2_16_a_host_that_can_ask_nobody_is_not_woken_for_it() {
    static POLICY: Greedy = Greedy { decisions: AtomicUsize::new(0) };
    let mut client = greedy(&POLICY, &[]);
    let wake_at = client.handle(NOW, Event::WakeUp).wake_at;
    assert!(wake_at.is_none_or(|at| at > NOW + CHECK_PERIOD * 5), "{wake_at:?}");
    assert_eq!(POLICY.decisions.load(Ordering::Relaxed), 0);
}

#[test]
fn r2_16_a_host_whose_computing_is_suspended_is_not_woken_to_look_for_work_and_looks_when_it_goes_on() {
    static POLICY: Greedy = Greedy { decisions: AtomicUsize::new(0) };
    let mut client = greedy(&POLICY, &["a"]);
    client.handle(NOW, Event::OwnerSuspended(true));
    let before = POLICY.decisions.load(Ordering::Relaxed);
    let at = NOW + CHECK_PERIOD * 5;
    client.handle(at, Event::WakeUp);
    let wake_at = client.handle(at, Event::WakeUp).wake_at;
    assert!(wake_at.is_none_or(|wake| wake > at + CHECK_PERIOD), "{wake_at:?}");
    assert_eq!(POLICY.decisions.load(Ordering::Relaxed), before);
    client.handle(at, Event::OwnerSuspended(false));
    assert!(POLICY.decisions.load(Ordering::Relaxed) > before);
}

#[test]
fn r2_16_a_policy_that_would_decide_at_once_again_is_asked_again_after_a_second() {
    static POLICY: Greedy = Greedy { decisions: AtomicUsize::new(0) };
    let mut client = greedy(&POLICY, &["a"]);
    let a = id_of(&client, "a");
    // It answers nothing, so that nothing but time goes on.
    client.edit_rpc(a, |rpc| rpc.on_request_delay(NOW, Duration::from_hours(1)));
    client.handle(NOW, Event::WakeUp);
    let (before, soonest) = (POLICY.decisions.load(Ordering::Relaxed), NOW + CHECK_SOONEST);
    for _ in 0..5 {
        let wake_at = client.handle(NOW + Duration::from_millis(10), Event::WakeUp).wake_at;
        assert!(wake_at.is_some_and(|at| at >= soonest), "{wake_at:?}");
    }
    assert_eq!(POLICY.decisions.load(Ordering::Relaxed), before);
    client.handle(soonest, Event::WakeUp);
    assert_eq!(POLICY.decisions.load(Ordering::Relaxed), before + 1);
}

#[test]
fn r2_16_nobody_who_is_leaving_or_may_not_be_contacted_is_asked_whatever_the_policy_says() {
    static POLICY: Greedy = Greedy { decisions: AtomicUsize::new(0) };
    let mut client = greedy(&POLICY, &["leaving", "waits", "asked"]);
    let [leaving, waits, asked] = ["leaving", "waits", "asked"].map(|name| id_of(&client, name));
    client.edit_project(leaving, |project| project.detach_when_done = true);
    client.edit_rpc(waits, |rpc| rpc.on_request_delay(NOW, Duration::from_hours(1)));
    assert_eq!(called(&client.handle(NOW, Event::WakeUp).actions), [asked]);
    for (id, is_asked) in [(leaving, false), (waits, true), (asked, true), (ProjectId(77), false)] {
        assert_eq!(client.fetch.made().of(id).is_some(), is_asked, "{id}");
    }
    // Of nobody else is anything wanted: the network is not held open for them either.
    client.handle(NOW, Event::Detach { url: super::url("asked") });
    client.handle(NOW, Event::Detach { url: super::url("waits") });
    client.handle(NOW + Duration::from_mins(2), Event::WakeUp);
    assert!(!client.fetch.made().wants_work());
}

/// Lets jobs of the smaller ids run, as many as there are CPUs, each until it makes a checkpoint.
struct Eldest;

impl CpuPolicy for Eldest {
    fn name(&self) -> &'static str {
        "CS0"
    }
    fn summary(&self) -> &'static str {
        "whoever came first"
    }
    fn decide(&self, situation: &CpuSituation<'_>) -> Schedule {
        let CpuSituation { now, host, queue, .. } = *situation;
        let mut jobs: Vec<&JobSnapshot> = queue.iter().collect();
        jobs.sort_by_key(|job| job.id);
        let (run, wait) = jobs.split_at(jobs.len().min(host.usable as usize));
        let chosen = |job: &&JobSnapshot| ScheduledJob {
            job: job.id,
            project: job.project,
            action: if job.is_running() { RunAction::Continue } else { RunAction::Start },
            slice_began: now,
            devices: Devices::NONE,
            until_checkpoint: true,
            rule: SchedulingRule::Own("CS0"),
            why: Why::new("it came first"),
        };
        let waits = wait.iter().filter(|job| job.is_running());
        let passed = |job: &&JobSnapshot| UnscheduledJob {
            job: job.id,
            gives_up_devices: true,
            why: Why::new("others came before it"),
        };
        Schedule {
            run: run.iter().map(chosen).collect(),
            preempt: waits.map(passed).collect(),
            decide_by: now + host.scheduling_period,
            ..Schedule::default()
        }
    }
}

#[test]
fn r2_4_what_a_policy_decides_is_carried_out_whatever_reasons_it_has() {
    let mut client = client(0, &["a"]);
    client.config.composition.cpu = CpuChoice::new(&Eldest);
    let a = id_of(&client, "a");
    let [first, second, third] = [1, 2, 3].map(|id| put_job(&mut client, id, a, Usage::ONE_CPU));
    for (id, slot) in [(second, 0), (third, 1)] {
        client.edit_job(id, |job| {
            (job.process, job.slot, job.run.begun) = (Process::Executing(7), Some(SlotId(slot)), true);
        });
    }
    client.actions.take();
    client.decide_what_runs();
    let quit = client.actions.iter().find(|action| matches!(action.effect, Effect::QuitTask { .. })).unwrap();
    assert!(matches!(quit.effect, Effect::QuitTask { job } if job == third), "{:?}", quit.effect);
    assert_eq!(quit.reason.to_string(), "others came before it [R2.4]");
    assert_eq!(client.state.jobs[&first].run.starts, 1);
    // It asked to be asked again at a checkpoint.
    client.schedule.take_wanted();
    client.edit_job(second, |job| job.run.checkpoint_said += Duration::from_secs(1));
    assert!(client.schedule.is_wanted());
}

/// Takes what was learned twice, in an estimate of its own.
struct Twofold;

impl CompletionPolicy for Twofold {
    fn name(&self) -> &'static str {
        "JC0"
    }
    fn summary(&self) -> &'static str {
        "by the square of what was learned"
    }
    fn factor(&self, _learned: DurationCorrection) -> DurationCorrection {
        DurationCorrection::default()
    }
    fn estimate(&self, job: &JobProgress) -> Estimate {
        let square = job.learned.get() * job.learned.get();
        let (by_size, factor) = (job.by_size.mul_f64(square), job.learned);
        Estimate { left: by_size, why: WhyEstimate { by_size, factor, fraction_done: Fraction::ZERO } }
    }
    fn depends_on(&self, learned: &Learned) -> Basis {
        Basis::new([learned.correction.get()])
    }
}

#[test]
fn r5_7_jobs_held_are_estimated_anew_when_what_their_policy_depends_on_has_moved() {
    let mut client = client(0, &["a", "b"]);
    client.config.composition.completion = CompletionChoice::new(&Twofold);
    let [a, b] = ["a", "b"].map(|name| id_of(&client, name));
    let [of_a, of_b] = [(1, a), (2, b)].map(|(id, of)| put_job(&mut client, id, of, Usage::ONE_CPU));
    let left = |client: &Client, id: JobId| client.workload.queue().get(id).map(|job| job.remaining);
    let before = left(&client, of_a);
    client.edit_correction(a, |_| DurationCorrection::new(1.01));
    assert_eq!(left(&client, of_a), before, "small steps are let gather");
    client.edit_correction(a, |_| DurationCorrection::new(3.0));
    assert_eq!(left(&client, of_a), Some(Duration::from_secs(9_000)));
    assert_eq!(left(&client, of_b), Some(Duration::from_secs(1_000)));
}
