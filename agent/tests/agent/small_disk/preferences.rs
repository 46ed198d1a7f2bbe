//! What BOINC's file says of the disk, on a running agent on a small volume: how much may be used, and that
//! tasks rest where more is (R6.4, R4.1).

use std::path::Path;

use super::{Keeper, Kind, agent, as_child, attach, disk, passes_on, suspended_by};
use crate::daemon::outcome;
use crate::spinning::running;
use crate::support::{is_alive, wait_for};

/// What the job writes into its slot.
const HOLDS: u64 = 90_000_000;
const GIB: f64 = 1_073_741_824.0;

fn child_keeps_to_each_preference(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let _daemon = agent(dir, &elsewhere.path().join("log"));
    // With its input that is more than the least that an owner may allow.
    let keeper = Keeper::new(&format!("head -c {HOLDS} /dev/zero >held; while :; do sleep 1; done"), 1);
    let says = |elements: &str| {
        let text = format!("<global_preferences>\n{elements}\n</global_preferences>\n");
        std::fs::write(dir.join("global_prefs_override.xml"), text).unwrap();
        let (code, text) = outcome(dir, &["preferences", "reload"]);
        assert_eq!(code, 0, "{text}");
    };
    says("<disk_min_free_gb>0.1</disk_min_free_gb>");
    attach(dir, &keeper.server);
    let pid = wait_for("a task", || running(dir).first().copied());
    let used =
        wait_for("what it holds", || disk(dir)["used"].as_u64().filter(|used| *used > HOLDS + (20 << 20)));
    let size = disk(dir)["size"].as_f64().unwrap();
    let rests = |elements: &str, preference: &str, limit: f64| {
        says(&format!("<disk_min_free_gb>0.1</disk_min_free_gb>\n{elements}"));
        wait_for(elements, || (suspended_by(dir) == "disk" && running(dir).is_empty()).then_some(()));
        let found = disk(dir);
        let (is, why) = (found["limit"].as_f64().unwrap(), found["limit_why"].as_str().unwrap());
        assert!((is - limit).abs() <= 2e6, "{elements}: {found}");
        assert!(why.contains(preference) && why.contains("global_prefs_override.xml"), "{why}");
        assert!(found["over"].as_u64() > Some(0) && !found["suspended"].is_null(), "{found}");
        assert!(is_alive(pid), "it has saved nothing, and stays");
        println!("{elements}: {is} of {size}, {why}");
    };
    let goes_on = |elements: &str, preference: &str, limit: f64| {
        says(elements);
        wait_for(elements, || (suspended_by(dir).is_null() && running(dir) == [pid]).then_some(()));
        let found = disk(dir);
        let (is, why) = (found["limit"].as_f64().unwrap(), found["limit_why"].as_str().unwrap());
        assert!((is - limit).abs() <= 2e6 && why.contains(preference), "{elements}: {found}");
    };
    rests("<disk_max_used_pct>5</disk_max_used_pct>", "disk_fraction", size / 20.0);
    goes_on(
        "<disk_max_used_pct>50</disk_max_used_pct>\n<disk_min_free_gb>0</disk_min_free_gb>",
        "disk_fraction",
        size / 2.0,
    );
    rests("<disk_max_used_gb>0.1</disk_max_used_gb>", "disk_max", GIB / 10.0);
    goes_on(
        "<disk_max_used_gb>0.3</disk_max_used_gb>\n<disk_min_free_gb>0</disk_min_free_gb>",
        "disk_max",
        GIB * 0.3,
    );
    // Nobody else writes there: what is to stay free is taken off the whole.
    let free = size - 90e6;
    rests(&format!("<disk_min_free_gb>{}</disk_min_free_gb>", free / GIB), "disk_free_min", 90e6);
    let free = size - 200e6;
    goes_on(&format!("<disk_min_free_gb>{}</disk_min_free_gb>", free / GIB), "disk_free_min", 200e6);
    assert!(used > 107_374_182, "{used}");
}

#[test]
fn child_keeping_to_preferences() {
    as_child(child_keeps_to_each_preference);
}

#[test]
fn r4_1_r6_4_each_of_the_overrides_limits_of_the_disk_is_kept_and_tasks_rest_beyond_it() {
    passes_on(Kind::Tmpfs, 1_174, "small_disk::preferences::child_keeping_to_preferences");
}
