//! Where preferences require that each job is in a control group of its own (R6.10), in real ones.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Stdio;

use fallow_agent::cgroup::Group;
use fallow_agent::confine::{Confinement, Layer};
use fallow_agent::sys;
use fallow_boinc::runtime::exit::Ended;
use fallow_client::{Event, StartFault};

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::groups::Place;
use crate::supervision::Bench;
use crate::support::{put, wait_for};
use crate::turns::working;

/// Why a start failed.
fn failed(bench: &Bench) -> (StartFault, String) {
    bench.next("a start that failed", |event| match event {
        Event::TaskStartFailed { fault, reason, .. } => Some((fault, reason)),
        Event::TaskStarted { .. } => panic!("it was started"),
        _ => None,
    })
}

fn layer(bench: &Bench) -> Layer {
    bench.groups.upgrade().unwrap().layer()
}

#[test]
fn r6_10_a_task_that_cannot_enter_its_group_is_not_begun_where_that_is_required_and_the_layer_says_why() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    assert!(layer(&bench).on);
    // What is made below a group of threads takes no processes.
    let jobs = Group::open(bench.groups.upgrade().unwrap().jobs().unwrap()).unwrap();
    jobs.take_controllers_back();
    place.group().take_controllers_back();
    jobs.write("cgroup.type", "threaded").unwrap();
    let mut strict = bench.script("exit 3");
    let mut lax = strict.clone();
    (strict.required.groups, lax.start) = (true, 2);
    bench.supervisor.start_task(strict);
    let (fault, reason) = failed(&bench);
    assert!(fault == StartFault::Host && reason.contains("not supported"), "{reason}");
    assert!(reason.contains("preferences require it"), "{reason}");
    let layer = layer(&bench);
    assert!(!layer.on && layer.why.contains("a job could not be put into one"), "{layer:?}");
    bench.supervisor.start_task(lax);
    let without = bench.next("a start", |event| match event {
        Event::TaskStarted { without, .. } => Some(without),
        Event::TaskStartFailed { reason, .. } => panic!("{reason}"),
        _ => None,
    });
    assert!(without.groups);
    assert_eq!(bench.ended().exit, Ended::Code(3));
}

#[test]
fn r6_10_a_moments_shortage_of_groups_fails_one_start_and_takes_the_layer_from_nobody() {
    let Some(place) = Place::new() else { return };
    let bench = Bench::in_groups(tempfile::tempdir().unwrap(), Confinement::none(), &place.path);
    let jobs = Group::open(bench.groups.upgrade().unwrap().jobs().unwrap()).unwrap();
    let most = jobs.read("cgroup.max.descendants").unwrap();
    jobs.write("cgroup.max.descendants", "0").unwrap();
    let mut setup = bench.script("exit 3");
    setup.required.groups = true;
    let mut again = setup.clone();
    again.start = 2;
    bench.supervisor.start_task(setup);
    let (fault, reason) = failed(&bench);
    assert!(fault == StartFault::Host && reason.contains("preferences require it"), "{reason}");
    assert!(layer(&bench).on, "{:?}", layer(&bench));
    jobs.write("cgroup.max.descendants", most.trim()).unwrap();
    bench.supervisor.start_task(again);
    bench.started();
    assert_eq!(bench.ended().exit, Ended::Code(3));
}

#[test]
fn r6_10_a_host_whose_jobs_can_have_no_groups_any_more_rests_where_they_are_required_and_says_why() {
    let Some(place) = Place::new() else { return };
    if Path::new("/run/systemd/system").exists() {
        return println!("skipped: systemd manages the groups of this machine (see e2e/vm/unit)");
    }
    let server = working(b"#!/bin/sh\nwhile :; do sleep 1; done\n");
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    put(&dir.join("preferences.toml"), b"required_layers = [\"groups\"]\n");
    let start = || {
        let mut run = command(dir, &["run", "--benchmark-after-ms", "10000000", "--layers-again-ms", "500"]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        let door = place.group().file("cgroup.procs", true).unwrap();
        sys::enter(&mut run, door.as_fd());
        Daemon::of(run, dir)
    };
    let stands = |why: serde_json::Value, runs: bool| {
        wait_for(if runs { "a task that runs" } else { "that none does" }, || {
            let status = status(dir);
            let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice);
            let found = tasks.iter().any(|task| task["phase"] == "running");
            (status["host"]["suspended_by"] == why && found == runs).then_some(())
        });
    };
    {
        let mut agent = start();
        wait_for("an agent that answers", || (outcome(dir, &["status"]).0 == 0).then_some(()));
        let all = place.group();
        let jobs = all.children().into_iter().find(|name| name.starts_with("fallow-jobs-")).unwrap();
        all.remove_within(&jobs, std::time::Duration::from_secs(10)).unwrap();
        assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
        stands("confinement".into(), false);
        let said = outcome(dir, &["status"]).1;
        assert!(said.contains("jobs are in no control groups: "), "{said}");
        assert_eq!(outcome(dir, &["stop"]).0, 0);
        assert_eq!(agent.code(), Some(0));
    }
    // The next life has others.
    let _agent = start();
    stands(serde_json::Value::Null, true);
    let said = outcome(dir, &["status"]).1;
    assert!(!said.contains("jobs are in no control groups: "), "{said}");
}
