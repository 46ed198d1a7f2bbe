//! Jobs for GPUs of AMD, as real processes.

use std::path::Path;
use std::process::Stdio;

use fallow_boinc::scheduler::HostCoprocessors;

use super::jobs::{gpu_project, on};
use super::machine::{Machine, USUAL};
use super::states;
use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::support::{is_alive, wait_for};
use crate::transfers::Server;

/// An agent of this machine.
fn daemon(dir: &Path, machine: &Machine, log: Stdio) -> Daemon {
    let mut run = command(dir, &["run"]);
    run.arg("--opencl-library").arg(machine.library()).arg("--sysfs").arg(machine.sysfs());
    run.stdout(Stdio::null()).stderr(log);
    Daemon::of(run, dir)
}

/// What a plan class for OpenCL with numbers of 64 bits needs.
fn has_opencl(devices: &HostCoprocessors) -> bool {
    devices.opencl.as_ref().is_some_and(|opencl| {
        opencl.double_fp_config != 0 && opencl.opencl_device_version.starts_with("OpenCL 2.")
    })
}

/// The text of the first request that tells of coprocessors.
fn told(server: &Server) -> Option<String> {
    let mut all = server.asked().into_iter().filter(|asked| asked.head.starts_with("post "));
    all.find_map(|asked| Some(asked.text()).filter(|text| text.contains("<coprocs>")))
}

#[test]
fn r3_14_jobs_run_on_amds_gpus_under_the_numbers_of_opencl_and_leave_those_alone_that_others_use() {
    let machine = Machine::usual();
    // A game of somebody else's is on the first.
    machine.set("0000:03:00.0", "mem_info_vram_used", "9000000000\n");
    let server = gpu_project("ATI", has_opencl);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = daemon(dir, &machine, Stdio::null());
    wait_for("the devices", || (states(dir).len() == 3).then_some(()));
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);

    // The second on the bus is OpenCL's first.
    let one = wait_for("a job on the second device", || on(dir, &["amd:1"]));
    let seen = std::fs::read_to_string(one[0].slot.join("seen")).unwrap();
    for part in [
        "arguments own --device 0\n",
        "<gpu_type>ATI</gpu_type>",
        "<gpu_device_num>0</gpu_device_num>",
        "<gpu_opencl_dev_index>0</gpu_opencl_dev_index>",
        "order  visible none\n",
    ] {
        assert!(seen.contains(part), "{seen} lacks {part}");
    }
    let in_use = "amd:0 in use by a program that cannot be seen";
    assert_eq!(states(dir), [in_use, "amd:1 usable", "intel:0 usable"]);

    // What the server was told, by BOINC's names: what each of them can.
    let text = told(&server).unwrap();
    let (_, amd) = text.split_once("<coproc_ati>").unwrap();
    let (amd, rest) = amd.split_once("</coproc_ati>").unwrap();
    for part in [
        "<count>2</count>",
        "<name>Radeon RX 7800 XT</name>",
        "<have_opencl>1</have_opencl>",
        "<localRAM>16368</localRAM>",
        "<engineClock>2400</engineClock>",
        "<coproc_opencl>",
        "<vendor>Advanced Micro Devices, Inc.</vendor>",
        "<global_mem_size>17163091968</global_mem_size>",
        "<max_compute_units>60</max_compute_units>",
        "<opencl_driver_version>3590.0 (HSA1.1,LC)</opencl_driver_version>",
    ] {
        assert!(amd.contains(part), "{amd} lacks {part}");
    }
    assert!(!amd.contains("CALVersion") && amd.contains("<req_secs>"), "{amd}");
    let (_, intel) = rest.split_once("<coproc_intel_gpu>").unwrap();
    assert!(intel.contains("<opencl_device_version>OpenCL 3.0 NEO"), "{intel}");

    assert_eq!(outcome(dir, &["exclude", "amd:1"]).0, 0);
    wait_for("the device to be left", || on(dir, &[]));
    wait_for("the end of the task", || (!is_alive(one[0].pid)).then_some(()));
    assert_eq!(states(dir)[1], "amd:1 excluded by the owner");
}

#[test]
fn r3_15_an_opencl_that_breaks_takes_no_device_from_its_task_at_first() {
    let machine = Machine::usual();
    let server = gpu_project("ATI", has_opencl);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let log = dir.join("log");
    let _daemon = daemon(dir, &machine, std::fs::File::create(&log).unwrap().into());
    let troubles =
        || std::fs::read_to_string(&log).unwrap().matches("OpenCL cannot be asked for GPUs").count();
    wait_for("the devices", || (states(dir).len() == 3).then_some(()));
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let two = wait_for("jobs on both", || on(dir, &["amd:0", "amd:1"]));
    // Who looks begins anew when computing does: then OpenCL is asked anew.
    machine.tell(&format!("crash\n{USUAL}"));
    let begin_anew = || {
        let before = troubles();
        assert_eq!(outcome(dir, &["suspend"]).0, 0);
        assert_eq!(outcome(dir, &["resume"]).0, 0);
        wait_for("OpenCL to be asked", || (troubles() > before).then_some(()));
    };
    begin_anew();
    let again = wait_for("the jobs to go on", || on(dir, &["amd:0", "amd:1"]));
    assert_eq!(again.len(), two.len());
    assert_eq!(states(dir), ["amd:0 usable", "amd:1 usable", "intel:0 usable"]);
    // It stays broken: the devices are no use to anybody.
    begin_anew();
    wait_for("all to be left", || on(dir, &[]));
    let state = states(dir)[0].clone();
    assert!(state.starts_with("amd:0 not usable: OpenCL cannot be asked: "), "{state}");
    assert_eq!(status(dir)["host"]["devices"][0]["usable"], false);
}
