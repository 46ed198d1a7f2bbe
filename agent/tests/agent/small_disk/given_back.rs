//! Jobs that wait on a small real volume: where only files that jobs need are left, each project in turn
//! gives back the one with the latest deadline, and no other one; what runs goes on and is reported.

use std::path::Path;

use fallow_policy::disk::DeletionChoice;

use super::lab::{Input, Job, Lab, MIB};
use super::plan::{
    Done, Known, Part, agent, at_rest, done, done_in_all, files_here, model_of, names, others_leave, planned,
};
use super::{GIVEN_BACK, Kind, as_child, disk, passes_on, suspended_by};
use crate::daemon::outcome;
use crate::spinning::running;
use crate::support::{put, wait_for};

/// The jobs of a project that wait: name, deadline in days, mebibytes of the input.
type Waiting = [(&'static str, i64, u64)];
const FIRST: &Waiting = &[("p1", 5, 10), ("p2", 9, 11), ("p3", 7, 12)];
const SECOND: &Waiting = &[("q1", 8, 9), ("q2", 6, 13)];
/// What the first project's task reads, and so does a job that would be given back before all others.
const SHARED: Input = Input::passing("shared", 5 * MIB);

fn jobs(waiting: &'static Waiting) -> impl Iterator<Item = Job> {
    let job = |(name, days, mebibytes): &(&'static str, i64, u64)| Job {
        days: *days,
        cpus: 1.0,
        ..Job::short(name, Input::passing(name, mebibytes * MIB))
    };
    waiting.iter().map(job)
}

fn parts<'a>(labs: [&'a Lab; 2], gone: &[Done]) -> [Part<'a>; 2] {
    let gone = names(gone);
    let part = |lab, waiting: &'static Waiting| {
        let left = waiting.iter().filter(|(name, ..)| !gone.contains(&format!("{name}_0").as_str()));
        let left: Vec<_> = left.collect();
        let file = |(name, _, mebibytes): &&(&'static str, i64, u64)| Known {
            input: Input::passing(name, mebibytes * MIB),
            came: 1,
            used: 1,
        };
        let queued = left.iter().map(|(name, days, _)| (*name, *days, *name)).collect();
        Part { lab, files: left.iter().map(file).collect(), queued }
    };
    [part(labs[0], FIRST), part(labs[1], SECOND)]
}

fn child_gives_back(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    let _daemon = agent(dir, &log);
    disk(dir);
    let labs = [75.0, 25.0].map(|share| Lab::new(share, DeletionChoice::default(), &go));
    let [first, second] = &labs;
    labs.iter().for_each(|lab| lab.attach(dir));
    // Two tasks take all CPUs, so that all others wait.
    let cpus = std::thread::available_parallelism().unwrap().get() as f64 / 2.0;
    let takes_half = |name, input| Job { cpus, ..Job::waiting(name, input) };
    first.sends(dir, [takes_half("p_run", SHARED)]);
    second.sends(dir, [takes_half("q_run", Input::passing("q_in", 5 * MIB))]);
    wait_for("both tasks", || (running(dir).len() == 2).then_some(()));
    let tasks = running(dir);
    let shares = Job { days: 10, cpus: 1.0, ..Job::short("p4", SHARED) };
    first.sends(dir, jobs(FIRST).chain([shares]));
    second.sends(dir, jobs(SECOND));
    wait_for("all inputs", || (files_here(dir).len() == 7).then_some(()));
    others_leave(dir, volume, 150 * MIB);
    let all_fit = at_rest(dir);
    assert!(all_fit["over"] == 0 && done(dir).is_empty() && running(dir) == tasks, "{all_fit}");

    // Of the project that exceeds its part by most the first one goes; the one that would free nothing stays.
    let give_back = |before: &[Done], limit: u64, is_enough: bool| {
        let found = others_leave(dir, volume, limit);
        let parts = parts([first, second], before);
        let plan = model_of(&parts, &found, limit).shrink().unwrap();
        assert_eq!(plan.suspension.is_none(), is_enough);
        let planned: Vec<Done> = planned(&parts, &plan);
        let done = done_in_all(dir, before.len() + planned.len());
        let all = [before, &planned].concat();
        assert_eq!(done, all, "{}", outcome(dir, &["disk", "--why"]).1);
        all
    };
    let used = all_fit["used"].as_u64().unwrap();
    let gave_back = |done: &[Done]| {
        let jobs = done.iter().filter(|one| matches!(one, Done::GaveBack(_)));
        jobs.map(|one| one.name().to_owned()).collect::<Vec<_>>()
    };
    let done = give_back(&[], used - 25 * MIB, true);
    assert_eq!(gave_back(&done), ["q1_0", "p2_0", "q2_0"]);
    assert!(suspended_by(dir).is_null() && running(dir) == tasks);
    wait_for("that their inputs go", || (files_here(dir).len() == 4).then_some(()));
    // All that wait go, and then tasks rest. What they read stays.
    let done = give_back(&done, 4 * MIB, false);
    assert_eq!(gave_back(&done)[3..], ["p3_0", "p1_0"]);
    wait_for("rest", || (suspended_by(dir) == "disk").then_some(()));
    assert_eq!(files_here(dir), ["q_in", "shared"]);

    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("work again", || (suspended_by(dir).is_null() && running(dir) == tasks).then_some(()));
    put(&go, b"");
    let statuses = |lab: &Lab, names: &[&str]| {
        let all = lab.asked_until(dir, "all reports", || {
            names.iter().map(|name| lab.report(&format!("{name}_0"))).collect::<Option<Vec<_>>>()
        });
        assert_eq!(lab.reports().len(), names.len(), "each was reported");
        all.into_iter().map(|report| report.exit_status).collect::<Vec<_>>()
    };
    assert_eq!(
        statuses(first, &["p1", "p2", "p3", "p4", "p_run"]),
        [GIVEN_BACK, GIVEN_BACK, GIVEN_BACK, 0, 0]
    );
    assert_eq!(statuses(second, &["q1", "q2", "q_run"]), [GIVEN_BACK, GIVEN_BACK, 0]);
}

#[test]
fn child_giving_back() {
    as_child(child_gives_back);
}

/// Shows R4.5.
#[test]
fn r4_8_on_a_tmpfs_projects_in_turn_give_back_the_waiting_job_with_the_latest_deadline() {
    passes_on(Kind::Tmpfs, 1_400, "small_disk::given_back::child_giving_back");
}

/// Shows R4.5.
#[test]
fn r4_8_on_an_ext4_projects_in_turn_give_back_the_waiting_job_with_the_latest_deadline() {
    passes_on(Kind::Ext4, 1_400, "small_disk::given_back::child_giving_back");
}
