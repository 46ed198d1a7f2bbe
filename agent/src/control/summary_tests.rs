//! Each case of the line, as a table.

use serde_json::{Value, json};

use fallow_preferences::Outdone;

use super::*;

/// A Friday, 10:00 in UTC.
const NOW: f64 = 1_800_000_000.0 + 2.0 * 3_600.0;

fn at(hour: f64) -> f64 {
    NOW + (hour - 10.0) * 3_600.0
}

fn task(phase: &str, project: &str) -> Value {
    json!({
        "project_url": project, "name": "job", "phase": phase, "fraction_done": 0.5, "cpu_time": 1.0,
        "checkpoint_cpu_time": 1.0, "deadline": NOW, "pid": null, "devices": [],
    })
}

fn project_of(url: &str, name: &str) -> Value {
    json!({
        "url": url, "name": name, "share": 100.0, "debt": 0.0, "cpu_time": 0.0, "jobs": [0, 0, 0], "min_rpc": null,
        "from_document": false,
    })
}

/// A host of four CPUs with two projects, changed by `host` and `status`.
fn said(host: &Value, status: &Value) -> String {
    let metrics = json!({
        "idleness": null, "waste": null, "share_violation": null, "share_deviation": null, "monotony": null,
    });
    let mut all = json!({
        "line": "", "version": "1", "pid": 1, "dir": "/d", "fleet": null, "tasks": [], "notices": [],
        "projects": [project_of("http://a/", "primes"), project_of("http://b/", "")],
        "host": {
            "cpus": 4, "usable_cpus": 4, "idle_cpus": 4, "suspended_by": null, "document_version": 7,
            "document_refused": null, "cpu_time": 0.0, "scheduler_rpcs": 0, "jobs_finished": 0, "idle_after": 180.0,
            "metrics": [metrics.clone(), metrics.clone(), metrics],
        },
    });
    let merge = |into: &mut Value, from: &Value| {
        let from = from.as_object().unwrap().clone();
        into.as_object_mut().unwrap().extend(from);
    };
    merge(&mut all["host"], host);
    merge(&mut all, status);
    let status: Status = serde_json::from_value(all).unwrap();
    line(&status, Instant::from_secs_f64(NOW), &WallClock(TimeZone::UTC))
}

#[test]
fn r6_4_the_line_says_why_nothing_computes() {
    let by = |who: &str| json!({ "suspended_by": who });
    let toml = json!({ "preferences": [{
        "key": "suspended", "value": "true", "source": "preferences.toml", "line": 2, "about": "", "overruled": [],
    }] });
    let none = json!({});
    for (host, status, expected) in [
        (by("owner"), &none, "suspended by the owner; goes on with: fallow-agent resume"),
        (by("owner"), &toml, "suspended by preferences.toml, line 2"),
        (by("coordinator"), &none, "suspended by the coordinator (document version 7)"),
        (
            json!({ "suspended_by": "hours", "hours": "mon-fri 18:00-08:00", "hours_change": "Mon 18:00" }),
            &none,
            "resting: outside of its hours (mon-fri 18:00-08:00); goes on Mon 18:00",
        ),
        (
            json!({ "suspended_by": "hours", "hours": "never" }),
            &json!({ "preferences": [{
                "key": "hours", "value": "never", "source": "preferences.toml", "line": 1, "about": "", "overruled": [
                    { "value": "fri 18:00-20:00", "source": "preferences.toml", "line": 1, "why": Outdone::Apart.as_str() },
                    { "value": "mon-fri 08:00-12:00", "source": "coordinator's document version 3",
                      "why": Outdone::Apart.as_str() },
                ],
            }] }),
            "resting: it may compute at no hour (fri 18:00-20:00 by preferences.toml, line 1 and mon-fri 08:00-12:00 by \
             coordinator's document version 3 have none in common)",
        ),
        (
            by("preference file"),
            &json!({ "preference_troubles": ["error: preferences.toml:1:1: cpus: unknown key\n    1 | cpus = 1"] }),
            "suspended until a preference file is mended and taken (fallow-agent preferences reload): error: preferences.toml:1:1: cpus: unknown key",
        ),
        (
            json!({ "suspended_by": "hours", "hours": "never" }),
            &none,
            "resting: it may compute at no hour (never)",
        ),
        (
            json!({ "suspended_by": "snooze", "snoozed_until": at(14.0) + 300.0, "snoozed_by": "ann" }),
            &none,
            "snoozed until 14:05 by ann; goes on before that with: fallow-agent snooze off",
        ),
        (
            json!({ "suspended_by": "snooze", "snoozed_until": at(26.0) }),
            &none,
            "snoozed until Sat 02:00; goes on before that with: fallow-agent snooze off",
        ),
        (
            json!({ "suspended_by": "in use", "in_use": true, "in_use_until": at(10.05) }),
            &none,
            "resting: somebody uses the machine; goes on 3 min after the last input, so not before 10:03",
        ),
        (
            json!({ "suspended_by": "in use", "in_use": true, "in_use_until": at(10.0), "idle_after": 10.0 }),
            &none,
            "resting: somebody uses the machine; goes on 10 s after the last input, so not before 10:00",
        ),
        (
            json!({ "suspended_by": "in use", "in_use": true }),
            &none,
            "resting: somebody has a session here, of whose input nothing can be seen; goes on when it ends",
        ),
        (
            json!({ "suspended_by": "battery", "stopped_for": "the machine runs on its battery" }),
            &none,
            "resting: the machine runs on its battery; goes on when that is over",
        ),
        (
            json!({ "suspended_by": "other programs", "stopped_for": "steam runs, which wants the machine for itself" }),
            &none,
            "resting: steam runs, which wants the machine for itself; goes on when that is over",
        ),
        (
            by("preference file"),
            &json!({ "preference_troubles": ["preferences.toml:1: no such key"] }),
            "suspended until a preference file is mended and taken (fallow-agent preferences reload): preferences.toml:1: no such key",
        ),
        (
            by("disk"),
            &none,
            "resting: there is too little space on the disk; more says: fallow-agent disk --why",
        ),
        (
            json!({ "suspended_by": "confinement", "lacks_layers": "files (switched off)" }),
            &none,
            "suspended: required of jobs' confinement and off: files (switched off); who requires it says: \
             fallow-agent preferences --why",
        ),
        // Whatever still runs: what was said is that it must not.
        (
            by("owner"),
            &json!({ "tasks": [task("running", "http://a/")] }),
            "suspended by the owner; goes on with: fallow-agent resume",
        ),
    ] {
        assert_eq!(said(&host, status), expected);
    }
}

#[test]
fn r6_4_the_line_says_what_computes_and_for_whom() {
    let two = json!({ "tasks": [task("running", "http://a/"), task("running", "http://b/"), task("ready", "http://a/")] });
    let one =
        json!({ "tasks": [task("running", "http://a/")], "last_input": { "of": "a key", "at": at(9.5) } });
    let mut blind = one.clone();
    blind["sensors"] = json!([{ "sensor": "input devices", "on": false, "what": "may not be read" }]);
    let idle = |idle: u32| json!({ "idle_cpus": idle });
    for (host, status, expected) in [
        (idle(2), &two, "computing: 2 jobs of 2 projects, on 2 of 4 CPUs"),
        (idle(3), &one, "computing: 1 job of primes, on 1 of 4 CPUs; nobody uses the machine since 09:30"),
        (idle(3), &blind, "computing: 1 job of primes, on 1 of 4 CPUs"),
        (
            json!({ "idle_cpus": 3, "in_use": true, "rests_in_use": "nothing" }),
            &one,
            "computing: 1 job of primes, on 1 of 4 CPUs; somebody uses the machine, for whom it may go on",
        ),
        (
            json!({ "idle_cpus": 3, "in_use": true, "rests_in_use": "coprocessors", "devices": [{
                "device": "nvidia:0", "model": "", "address": "", "memory": 0, "driver": "", "usable": false,
                "state": "", "jobs": [],
            }] }),
            &one,
            "computing: 1 job of primes, on 1 of 4 CPUs; its devices rest, for somebody uses the machine",
        ),
        (
            json!({ "usable_cpus": 1, "idle_cpus": 0, "cpus": 1 }),
            &json!({ "tasks": [{ "project_url": "http://b/", "name": "job", "phase": "running", "fraction_done": 0.0,
                "cpu_time": 0.0, "checkpoint_cpu_time": 0.0, "deadline": NOW, "pid": 3, "devices": ["nvidia:0"] }] }),
            "computing: 1 job of http://b/, on 1 of 1 CPU and 1 device",
        ),
    ] {
        assert_eq!(said(&host, status), expected);
    }
}

#[test]
fn r6_4_the_line_says_what_an_idle_agent_waits_for() {
    let none = json!({});
    let tasks = |phases: &[&str]| {
        let tasks: Vec<Value> = phases.iter().map(|phase| task(phase, "http://a/")).collect();
        json!({ "tasks": tasks })
    };
    let with = |key: &str, value: Value| {
        let mut one = project_of("http://a/", "primes");
        one[key] = value;
        json!({ "projects": [one] })
    };
    let held = |resource: &str, hour: f64| json!({ "resource": resource, "until": at(hour), "failures": 1 });
    let enough = |name: &str, why: &str| {
        let mut one = project_of("http://a/", name);
        one["enough"] = json!(why);
        one
    };
    let spent = json!({ "network_rests": "files came to 2.0 GB today" });
    let others = json!({ "files_wait": "other programs use the network" });
    for (host, status, expected) in [
        (json!({ "cpus": 0 }), &none, "starting: it is measured what this machine is like"),
        (
            none.clone(),
            &json!({ "store_trouble": "no space left" }),
            "resting: nothing new is begun: no space left",
        ),
        (
            none.clone(),
            &json!({ "projects": [] }),
            "idle: no projects; attach one with: fallow-agent attach URL",
        ),
        (
            none.clone(),
            &json!({ "projects": [], "fleet": { "coordinator": "c", "agent_id": "a", "connected": true, "last_error": null } }),
            "idle: no projects: the coordinator names none so far",
        ),
        (
            json!({ "document_version": 0 }),
            &json!({ "projects": [], "fleet": { "coordinator": "c", "agent_id": "a", "connected": false, "last_error": null } }),
            "idle: no projects: the coordinator was not reached yet",
        ),
        (
            json!({ "document_refused": [7, "it is older"] }),
            &json!({ "projects": [], "fleet": { "coordinator": "c", "agent_id": "a", "connected": true, "last_error": null } }),
            "idle: no projects: a document of the coordinator's was refused",
        ),
        (
            none.clone(),
            &tasks(&["ready", "preempted", "downloading"]),
            "idle: of 2 jobs here none can run now",
        ),
        (
            json!({ "awaits_look": true }),
            &tasks(&["ready", "preempted"]),
            "about to compute: it is looked at the battery and other programs first",
        ),
        (json!({ "awaits_look": true }), &tasks(&["downloading"]), "idle: files of 1 job are awaited"),
        (none.clone(), &tasks(&["downloading"]), "idle: files of 1 job are awaited"),
        (
            spent.clone(),
            &tasks(&["downloading", "uploading"]),
            "idle: files of 1 job are awaited; no project is contacted: files came to 2.0 GB today",
        ),
        (
            others.clone(),
            &tasks(&["downloading"]),
            "idle: files of 1 job are awaited; files wait: other programs use the network",
        ),
        (
            others,
            &tasks(&["uploading"]),
            "idle: no work, and 1 job to be sent or reported; files wait: other programs use the network",
        ),
        (
            spent,
            &tasks(&["uploading", "ready to report"]),
            "idle: no work, and 2 jobs to be sent or reported; no project is contacted: files came to 2.0 GB today",
        ),
        (
            none.clone(),
            &with("min_rpc", json!([at(10.5), "it asked for a delay"])),
            "idle: no work; primes may be asked for some at 10:30 (it asked for a delay)",
        ),
        (
            none.clone(),
            &with("no_work", json!([at(9.0), "no jobs\nnow"])),
            "idle: no work; primes had none and said: no jobs\u{fffd}now",
        ),
        (none.clone(), &none, "idle: no work; primes is asked for some"),
        (
            none.clone(),
            &with("held_types", json!([held("CPU", 11.0), held("NVIDIA", 12.0)])),
            "idle: no work; primes may be asked for some at 11:00 (it had no jobs for the CPUs)",
        ),
        (
            none.clone(),
            &json!({ "projects": [enough("primes", "its downloads stall"), enough("rocks", "it is suspended")] }),
            "idle: no work; none is asked for (primes: its downloads stall; and 1 other project for other reasons)",
        ),
        (
            none.clone(),
            &with("enough", json!("its downloads stall")),
            "idle: no work; none is asked for (its downloads stall)",
        ),
    ] {
        let line = said(&host, status);
        assert!(!line.contains('\n'));
        assert_eq!(line, expected);
    }
}
