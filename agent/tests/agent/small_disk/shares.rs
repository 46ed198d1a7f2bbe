//! Projects with shares on a small real volume that others fill in three steps: who uses more than its part
//! and may, who shrinks first, who then loses files in turn, and in which order each project loses its own;
//! what running jobs read stays, tasks rest when nothing else is left, and go on.

use std::path::Path;

use fallow_policy::disk::DeletionChoice;

use super::lab::{Input, Job, Lab, MIB};
use super::plan::{
    Done, Known, Part, agent, at_rest, done, done_in_all, measured_anew, model_of, names, of_project,
    others_leave, planned,
};
use super::{Kind, as_child, disk, passes_on, suspended_by};
use crate::daemon::outcome;
use crate::spinning::running;
use crate::support::{put, wait_for};

const BY_PRIORITY: DeletionChoice = DeletionChoice { priority: true, expiration: false };
const BY_DATE: DeletionChoice = DeletionChoice { priority: false, expiration: true };

const HIGH: Input = Input { priority: Some(5), ..Input::kept("high", 12 * MIB) };
const LOW_1: Input = Input { priority: Some(1), ..Input::kept("low_1", 10 * MIB) };
const LOW_2: Input = Input::kept("low_2", 11 * MIB);
const KEEP: Input = Input { exp_days: Some(50.0), ..Input::kept("keep", 13 * MIB) };
const OLD: Input = Input { exp_days: Some(0.0), priority: Some(4), ..Input::kept("old", 14 * MIB) };
const NEW: Input = Input { exp_days: Some(0.0), ..Input::kept("new", 15 * MIB) };

const fn known(input: Input, came: i64, used: i64) -> Known {
    Known { input, came, used }
}

/// What three projects have made of their parts.
struct Labs {
    /// Has three quarters of the disk, and its files go by their priorities.
    large: Lab,
    /// Has a quarter, and what is past its date goes first.
    small: Lab,
    /// Has a share of nothing, and all that it holds is what its task reads.
    none: Lab,
}

impl Labs {
    /// With all their files here and with a task of each, which waits.
    fn settled(dir: &Path, go: &Path) -> Self {
        let large = Lab::new(75.0, BY_PRIORITY, go);
        let small = Lab::new(25.0, BY_DATE, go);
        let none = Lab::new(0.0, DeletionChoice::default(), go);
        let waits = |name, input, bytes| Job::waiting(name, Input::passing(input, bytes));
        large.attach(dir);
        small.attach(dir);
        none.attach(dir);
        large.sends(dir, [waits("l_run", "l_in", 5 * MIB)]);
        small.sends(dir, [waits("s_run", "s_in", 5 * MIB)]);
        none.sends(dir, [waits("n_run", "n_in", 40 * MIB)]);
        wait_for("all tasks", || (running(dir).len() == 3).then_some(()));
        // What came first or is past its date first is used once more: the order of uses is another one.
        for (name, input) in [("l1", HIGH), ("l2", LOW_1), ("l3", LOW_2), ("l4", LOW_1)] {
            large.has_done(dir, Job::short(name, input));
        }
        for (name, input) in [("s1", KEEP), ("s2", OLD), ("s3", NEW), ("s4", OLD)] {
            small.has_done(dir, Job::short(name, input));
        }
        Self { large, small, none }
    }

    /// As the policy has them, without the files that are gone.
    fn parts(&self, gone: &[Done]) -> [Part<'_>; 3] {
        let gone = names(gone);
        let left = |files: [Known; 3]| -> Vec<Known> {
            files.into_iter().filter(|file| !gone.contains(&file.input.name)).collect()
        };
        let large = left([known(HIGH, 1, 1), known(LOW_1, 2, 4), known(LOW_2, 3, 3)]);
        let small = left([known(KEEP, 1, 1), known(OLD, 2, 4), known(NEW, 3, 3)]);
        let part = |lab, files| Part { lab, files, queued: Vec::new() };
        [part(&self.large, large), part(&self.small, small), part(&self.none, Vec::new())]
    }

    /// Others write so much that the limit is exceeded by `over`: what is done now, beside what was done
    /// before, is what the policy plans. Gives that.
    fn shrink(&self, dir: &Path, volume: &Path, before: &[Done], over: u64, is_enough: bool) -> Vec<Done> {
        let limit = at_rest(dir)["used"].as_u64().unwrap() - over;
        let found = others_leave(dir, volume, limit);
        let parts = self.parts(before);
        let plan = model_of(&parts, &found, limit).shrink().unwrap();
        assert_eq!(plan.suspension.is_none(), is_enough);
        let planned = planned(&parts, &plan);
        let done = done_in_all(dir, before.len() + planned.len());
        let news = done[before.len()..].to_vec();
        assert_eq!(
            (&done[..before.len()], &news),
            (before, &planned),
            "{}",
            outcome(dir, &["disk", "--why"]).1
        );
        news
    }
}

fn rule(done: &Done) -> &str {
    match done {
        Done::Deleted(_, _, rule) => rule,
        Done::GaveBack(_) => "given back",
    }
}

fn child_shares(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    let _daemon = agent(dir, &log);
    disk(dir);
    let labs = Labs::settled(dir, &go);
    let tasks = running(dir);

    // There is enough: nobody loses anything, also not who uses more than its part (R4.3).
    let found = others_leave(dir, volume, 170 * MIB);
    assert!(found["limit"].as_u64() > Some(170 * MIB));
    let found = at_rest(dir);
    let of = |key: &str| found[key].as_u64().unwrap();
    assert!(of("limit").abs_diff(170 * MIB) < MIB && of("used") < of("limit"), "{found}");
    let all = (of("limit") - of("own")) as f64;
    for (lab, part) in [(&labs.large, 0.75), (&labs.small, 0.25), (&labs.none, 0.0)] {
        assert_eq!(of_project(&found, lab)["limit"].as_u64(), Some((all * part) as u64), "{found}");
    }
    let used: u64 =
        found["projects"].as_array().unwrap().iter().map(|one| one["used"].as_u64().unwrap()).sum();
    assert_eq!((of("own") + used, of("free")), (of("used"), of("limit") - of("used")), "{found}");
    let small = of_project(&found, &labs.small);
    assert!(small["used"].as_u64() > small["limit"].as_u64(), "{found}");
    assert_eq!((done(dir), of("over")), (vec![], 0));

    // Who uses more than its part loses what is past its date, and no more than is needed.
    let first = labs.shrink(dir, volume, &[], 5 * MIB, true);
    assert_eq!(names(&first), ["old"]);
    // It shrinks to its part, and then the projects lose a file in turn.
    let second = labs.shrink(dir, volume, &first, 31 * MIB, true);
    assert_eq!(names(&second), ["new", "keep", "low_1"]);
    let in_turn = |done: &Done| rule(done).contains("each project loses a file in turn");
    let its_own = |done: &Done| rule(done).contains("and so is the project's own");
    assert!(its_own(&first[0]) && its_own(&second[0]) && second[1..].iter().all(in_turn), "{second:?}");
    assert!(suspended_by(dir).is_null() && running(dir) == tasks);

    // All that may go goes, and tasks rest: what they read stays.
    let before = [first, second].concat();
    let last = labs.shrink(dir, volume, &before, 60 * MIB, false);
    assert_eq!(names(&last), ["low_2", "high"]);
    wait_for("rest", || (suspended_by(dir) == "disk").then_some(()));
    let found = at_rest(dir);
    assert!(found["suspended"].as_str().unwrap().contains("usage exceeds the disk limit"), "{found}");
    for (lab, input, bytes) in [(&labs.large, "l_in", 5), (&labs.small, "s_in", 5), (&labs.none, "n_in", 40)]
    {
        let url = fallow_domain::MasterUrl::parse(&lab.url()).unwrap();
        let path = fallow_agent::dir::DataDir::at(dir).project(&url).join(input);
        assert_eq!(std::fs::metadata(path).unwrap().len(), bytes * MIB);
    }
    assert!(running(dir).is_empty());
    // As long as nothing is free, nothing goes on; then all of it does.
    measured_anew(dir);
    assert_eq!(suspended_by(dir), "disk");
    std::fs::remove_file(volume.join("fill")).unwrap();
    wait_for("work again", || (suspended_by(dir).is_null() && running(dir) == tasks).then_some(()));
    put(&go, b"");
    for (lab, name) in [(&labs.large, "l_run_0"), (&labs.small, "s_run_0"), (&labs.none, "n_run_0")] {
        let report = lab.asked_until(dir, "the report", || lab.report(name));
        assert_eq!(report.exit_status, 0, "{report:?}");
    }
    assert_eq!(done(dir).len(), 6, "nothing else went");
}

#[test]
fn child_with_shares() {
    as_child(child_shares);
}

/// Shows R4.2, R4.3, R4.5, R4.6, R4.7, R4.13.
#[test]
fn r4_8_on_a_tmpfs_offenders_shrink_then_projects_lose_files_in_turn_as_they_chose_then_tasks_rest() {
    passes_on(Kind::Tmpfs, 1_400, "small_disk::shares::child_with_shares");
}

/// Shows R4.2, R4.3, R4.5, R4.6, R4.7, R4.13.
#[test]
fn r4_8_on_an_ext4_offenders_shrink_then_projects_lose_files_in_turn_as_they_chose_then_tasks_rest() {
    passes_on(Kind::Ext4, 1_400, "small_disk::shares::child_with_shares");
}
