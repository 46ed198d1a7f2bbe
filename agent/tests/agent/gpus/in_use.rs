//! GPUs while somebody uses the machine, as BOINC's preferences say it (R6.4, R3.14).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Stdio;

use super::TWO;
use super::jobs::{Running, gpu_project, has_cuda, on};
use super::stand_in::StandIn;
use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::owner::Dev;
use crate::support::{is_alive, put, wait_for};

/// Says for each of these jobs that it has saved its state, as BOINC's library would: until then it stays in
/// memory whatever happens. Waits until the agent knows.
fn save(dir: &Path, jobs: &[Running]) {
    let mut secs = 0.0;
    wait_for("saved states", || {
        secs += 0.01;
        let text = format!(
            "<current_cpu_time>{secs}</current_cpu_time>\n<checkpoint_cpu_time>{secs}</checkpoint_cpu_time>\n\0"
        );
        for job in jobs {
            let channels = OpenOptions::new().write(true).open(job.slot.join("boinc_mmap_file")).unwrap();
            channels.write_all_at(text.as_bytes(), 0x1401).unwrap();
            channels.write_all_at(&[1], 0x1400).unwrap();
        }
        let status = status(dir);
        let pid = |job: &Running, task: &serde_json::Value| task["pid"].as_u64() == Some(job.pid.into());
        let is_saved = |job: &Running| {
            let task = status["tasks"].as_array()?.iter().find(|task| pid(job, task))?;
            (task["checkpoint_cpu_time"].as_f64() > Some(0.0)).then_some(())
        };
        jobs.iter().all(|job| is_saved(job).is_some()).then_some(())
    });
}

#[test]
fn r6_4_jobs_leave_gpus_while_somebody_uses_the_machine_unless_the_override_lets_them_stay() {
    let (stand_in, mut dev, dir) = (StandIn::telling(TWO), Dev::new(), tempfile::tempdir().unwrap());
    let (server, dir) = (gpu_project("NVIDIA", has_cuda), dir.path());
    let says = |gpus: u32| {
        let text = format!(
            "<global_preferences>\n<run_if_user_active>1</run_if_user_active>\n\
             <run_gpu_if_user_active>{gpus}</run_gpu_if_user_active>\n\
             <idle_time_to_run>0.17</idle_time_to_run>\n</global_preferences>\n"
        );
        put(&dir.join("global_prefs_override.xml"), text.as_bytes());
    };
    says(0);
    let mut run = command(dir, &["run", "--benchmark-after-ms", "10000000"]);
    run.arg("--nvml-library").arg(stand_in.library()).arg("--devices-dir").arg(dev.path());
    run.env("LD_LIBRARY_PATH", "/driver/lib64:here:/other")
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus");
    run.env_remove("FALLOW_NEVER_IN_USE").env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    run.env_remove("XDG_SESSION_ID").stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = Daemon::of(run, dir);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let both = ["nvidia:0", "nvidia:1"];
    let two = wait_for("jobs on both", || on(dir, &both));
    save(dir, &two);
    wait_for("all to be left", || {
        dev.key();
        on(dir, &[])
    });
    wait_for("the ends of their processes", || two.iter().all(|one| !is_alive(one.pid)).then_some(()));
    let host = status(dir)["host"].clone();
    assert_eq!(
        (&host["suspended_by"], &host["rests_in_use"]),
        (&serde_json::Value::Null, &"coprocessors".into())
    );
    // Nobody is there any more.
    wait_for("jobs on both again", || on(dir, &both));
    // Where they may stay, somebody who comes is no matter, nor one who is there.
    says(1);
    assert_eq!(outcome(dir, &["preferences", "reload"]).0, 0);
    let two = wait_for("jobs on both while somebody is there", || {
        dev.key();
        on(dir, &both).filter(|_| status(dir)["host"]["in_use"] == true)
    });
    save(dir, &two);
    says(0);
    assert_eq!(outcome(dir, &["preferences", "reload"]).0, 0);
    wait_for("the ends of their processes", || {
        dev.key();
        two.iter().all(|one| !is_alive(one.pid)).then_some(())
    });
}
