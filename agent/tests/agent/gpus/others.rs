//! GPUs of AMD and Intel, found by a real process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fallow_domain::{Bytes, CoprocessorDevice, ResourceType};

use super::machine::{Machine, USUAL};
use super::stand_in::StandIn;
use super::{TWO, look, said};
use crate::support::agent;
use fallow_agent::host::gpu::{Look, Said};

fn looks(machine: &Machine) -> Command {
    let mut command = Command::new(agent());
    command.arg("gpus").arg("--opencl-library").arg(machine.library());
    command.arg("--sysfs").arg(machine.sysfs());
    command
}

fn devices(look: &Look, kind: ResourceType) -> &[CoprocessorDevice] {
    look.coprocessors.iter().find(|one| one.kind == kind).map_or(&[], |one| &one.devices)
}

#[test]
fn r3_15_gpus_of_amd_and_intel_are_found_with_what_opencl_says_of_each() {
    let machine = Machine::usual();
    let found = look(&mut looks(&machine));
    let [first, second] = devices(&found, ResourceType::Amd) else { panic!("{found:?}") };
    assert_eq!((first.address.as_str(), first.model.as_str()), ("0000:03:00.0", "Radeon RX 7800 XT"));
    assert_eq!((second.address.as_str(), second.model.as_str()), ("0000:07:00.0", "Radeon RX 7900 XTX"));
    // OpenCL counts them the other way round.
    let index = |device: &CoprocessorDevice| device.opencl.as_ref().unwrap().index;
    assert_eq!((first.number, index(first), second.number, index(second)), (1, 1, 0, 0));
    assert_eq!((first.memory, first.free.0), (Bytes::from_mebibytes(16_368), (16_368 << 20) - 20_000_000));
    // 60 compute units of 4 SIMD units of 16, two operations in each of 2,400 million cycles.
    assert_eq!(first.speed.get(), 2.4e9 * 60.0 * 64.0 * 2.0);
    let opencl = first.opencl.as_ref().unwrap();
    assert_eq!((opencl.vendor_id, opencl.double, opencl.compute_units), (0x1002, 63, 60));
    assert_eq!(opencl.platform_version, "OpenCL 2.1 AMD-APP (3590.0)");
    let amd = found.coprocessors.iter().find(|one| one.kind == ResourceType::Amd).unwrap();
    assert_eq!(
        (amd.count, amd.driver.as_str(), amd.model.as_str()),
        (2, "3590.0 (HSA1.1,LC)", "Radeon RX 7800 XT")
    );

    // It has no memory of its own, and OpenCL does not say where it is.
    let [intel] = devices(&found, ResourceType::Intel) else { panic!("{found:?}") };
    assert_eq!((intel.address.as_str(), intel.model.as_str()), ("0000:00:02.0", "Intel(R) UHD Graphics 770"));
    assert_eq!((intel.memory, intel.free), (Bytes::from_mebibytes(12_000), Bytes::from_mebibytes(12_000)));
    assert_eq!((intel.speed.get(), intel.number, index(intel)), (32.0 * 8.0 * 1.65e9, 0, 0));
    assert_eq!(devices(&found, ResourceType::Nvidia), []);
}

#[test]
fn r3_15_nvidias_gpus_are_told_with_what_opencl_says_of_them() {
    let (stand_in, machine) = (
        StandIn::telling(TWO),
        Machine::telling("platform OpenCL 3.0 CUDA\ngpu nvidia 2 82 1695 24576 RTX\n"),
    );
    let found = look(looks(&machine).arg("--nvml-library").arg(stand_in.library()));
    let [first, second] = devices(&found, ResourceType::Nvidia) else { panic!("{found:?}") };
    assert!(first.is_fit() && first.opencl.is_none(), "OpenCL does not know it, and CUDA does: {first:?}");
    assert_eq!((second.number, second.opencl.as_ref().unwrap().index), (1, 0));
}

#[test]
fn r3_15_a_device_that_opencl_does_not_know_is_shown_and_not_usable() {
    let machine = Machine::usual();
    let why = |found: &Look, kind| -> Vec<String> {
        devices(found, kind).iter().map(|device| device.unfit.clone().unwrap_or_default()).collect()
    };
    machine.tell("platform OpenCL 2.1 AMD-APP (3590.0)\ngpu amd 7 96 2500 16368 Radeon RX 7900 XTX\n");
    let found = look(&mut looks(&machine));
    let [first, second]: [String; 2] = why(&found, ResourceType::Amd).try_into().unwrap();
    assert!(first.contains("OpenCL does not know it") && second.is_empty(), "{first} {second}");
    assert_eq!(devices(&found, ResourceType::Amd)[0].model, "AMD GPU 744c");
    assert!(why(&found, ResourceType::Intel)[0].contains("OpenCL does not know it"));
    // BOINC's library would give a program the other card: that of the first platform.
    machine.tell("platform A\ngpu amd 7 96 2500 16368 Radeon\nplatform B\ngpu amd 3 96 2500 16368 Radeon\n");
    let found = look(&mut looks(&machine));
    let [first, second]: [String; 2] = why(&found, ResourceType::Amd).try_into().unwrap();
    assert!(first.contains("OpenCL does not know it") && second.is_empty(), "{first} {second}");
    // There is no such library.
    if Command::new("sh").args(["-c", "! ldconfig -p | grep -q libOpenCL.so.1"]).status().unwrap().success() {
        let mut without = Command::new(agent());
        let found =
            look(without.arg("gpus").arg("--sysfs").arg(machine.sysfs()).env_remove("LD_LIBRARY_PATH"));
        assert_eq!(why(&found, ResourceType::Intel), ["OpenCL is not installed (libOpenCL.so.1)"]);
        assert_eq!(found.opencl_trouble, None);
    }
}

#[test]
fn r3_15_whatever_opencl_does_costs_what_else_was_found_nothing() {
    let (stand_in, machine) = (StandIn::telling(TWO), Machine::usual());
    let junk = machine.sysfs().join("junk.so");
    std::fs::write(&junk, "no library").unwrap();
    for (trouble, library, limit, expected) in [
        ("crash\n", machine.library(), "50000", "ended with signal: 6"),
        ("hang\n", machine.library(), "4000", "has not answered for 4 s"),
        ("error\n", machine.library(), "50000", "it tells no platforms: error -5"),
        ("", junk, "50000", "file too short"),
    ] {
        machine.tell(&format!("{trouble}{USUAL}"));
        let mut command = Command::new(agent());
        command.arg("gpus").arg("--nvml-library").arg(stand_in.library()).args(["--limit-ms", limit]);
        command.arg("--opencl-library").arg(library).arg("--sysfs").arg(machine.sysfs());
        let begun = Instant::now();
        let found = look(&mut command);
        assert!(begun.elapsed() < Duration::from_secs(60), "{expected}");
        assert_eq!(devices(&found, ResourceType::Nvidia).len(), 2, "{expected}");
        assert!(devices(&found, ResourceType::Nvidia).iter().all(CoprocessorDevice::is_fit));
        assert_eq!(devices(&found, ResourceType::Amd).len(), 2, "{expected}");
        let why = devices(&found, ResourceType::Amd)[0].unfit.clone().unwrap();
        assert!(why.starts_with("OpenCL cannot be asked: ") && why.contains(expected), "{why}");
        assert!(found.opencl_trouble.unwrap().contains(expected));
    }
}

#[test]
fn r3_15_of_what_a_mad_opencl_says_only_what_can_be_is_told() {
    let machine = Machine::usual();
    machine.tell(&format!("nonsense\n{USUAL}"));
    let found = look(&mut looks(&machine));
    // It says that every value is as long as can be: so nothing of a device is believed.
    assert!(devices(&found, ResourceType::Amd).iter().all(|device| !device.is_fit()), "{found:?}");
    machine.tell("platform P\ngpu amd 3 4294967295 4294967295 18446744073709 \u{1b}[2J\n");
    let found = look(&mut looks(&machine));
    let device = &devices(&found, ResourceType::Amd)[0];
    assert_eq!((device.speed.get(), device.memory, device.clock_khz), (1e11, Bytes(0), 0));
    assert_eq!(device.model, "\u{fffd}[2J");
}

#[test]
fn r3_15_sysfs_of_others_and_libraries_of_others_are_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::usual();
    std::fs::set_permissions(machine.library(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let found = look(&mut looks(&machine));
    assert!(found.opencl_trouble.unwrap().contains("chmod go-w"));
    std::fs::set_permissions(machine.sysfs(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = looks(&machine).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("chmod go-w"), "{text}");
}

/// Where the system has OpenCL, a CPU that it knows (`pocl`) is no GPU.
#[test]
fn r3_15_the_systems_own_opencl_is_asked_and_tells_no_gpu_that_sysfs_does_not_show() {
    let machine = Machine::telling("");
    machine.card(0, "0000:00:02.0", "8086:A780", "i915");
    let mut command = Command::new(agent());
    command.arg("gpus").arg("--sysfs").arg(machine.sysfs());
    let (told, well) = said(&mut command);
    let [Said::Look(found)] = told.as_slice() else { panic!("{told:?}") };
    assert!(well);
    if !Path::new("/sys/class/drm/card0").exists() {
        let device = &devices(found, ResourceType::Intel)[0];
        assert!(device.opencl.is_none() && !device.is_fit(), "{device:?}");
    }
}
