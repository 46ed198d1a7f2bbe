//! GPUs: found by a real process through the real wrapper of NVIDIA's library and the real loader of
//! OpenCL's, behind which stand-ins tell of devices that are not there; and jobs that are real processes on
//! them.

mod in_use;
mod jobs;
mod machine;
mod other_jobs;
mod others;
mod stand_in;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fallow_agent::host::gpu::{Look, Said};
use fallow_domain::{Bytes, ResourceType};

use crate::attach::status;
use crate::daemon::{Daemon, command};
use crate::support::{agent, wait_for};
use stand_in::StandIn;

/// Two cards, the one that is first on the bus told last.
const TWO: &str = "gpu 2 8 6 1695 10496 24576 RTX 3090\ngpu 1 7 0 1530 5120 16384 Tesla V100\n";

/// What the process that looks says, whatever it says, and whether it ended well.
fn said(looks: &mut Command) -> (Vec<Said>, bool) {
    let output = looks.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output.status.success())
}

fn looks(library: &Path) -> Command {
    let mut command = Command::new(agent());
    command.arg("gpus").arg("--nvml-library").arg(library);
    command
}

fn look(command: &mut Command) -> Look {
    match said(command) {
        (said, true) => match said.as_slice() {
            [Said::Look(look)] => look.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn r3_15_devices_are_told_in_the_order_of_the_bus_with_what_servers_ask_of_them() {
    let stand_in = StandIn::telling(&format!(
        "{TWO}heat 2 63\nprocess 2 77 g 500\nprocess 2 78 c 9\nprocess 2 78 g 9\n"
    ));
    let found = look(&mut looks(&stand_in.library()));
    let [nvidia] = found.coprocessors.as_slice() else { panic!("{found:?}") };
    assert_eq!((nvidia.kind, nvidia.count, nvidia.driver.as_str()), (ResourceType::Nvidia, 2, "535.129.03"));
    assert_eq!((nvidia.cuda_version, nvidia.compute()), (12_020, Some((7, 0))));
    let [first, second] = nvidia.devices.as_slice() else { panic!("{nvidia:?}") };
    assert_eq!(
        (first.number, first.address.as_str(), first.model.as_str()),
        (0, "0000:01:00.0", "Tesla V100")
    );
    assert_eq!((second.number, second.address.as_str()), (1, "0000:02:00.0"));
    assert_eq!((second.memory, second.multiprocessors), (Bytes::from_mebibytes(24_576), 82));
    assert_eq!((second.clock_khz, second.free), (1_695_000, Bytes::from_mebibytes(24_476)));
    assert!((second.speed.get() / 35.58e12 - 1.0).abs() < 0.001, "{second:?}");
    let heat: Vec<_> = found.temperatures.iter().map(|one| (one.address.as_str(), one.degrees)).collect();
    assert_eq!(heat, [("0000:02:00.0", 63)], "the other one does not tell it, which is no error");
    let who: Vec<(u32, bool)> = found.processes.iter().map(|one| (one.pid, one.draws)).collect();
    assert_eq!(who, [(78, false), (77, true)], "one that computes and draws computes");

    // As most systems have it: where the loader looks. Nothing but what is told goes to standard output.
    let mut by_loader = Command::new(agent());
    let found_by_loader = look(by_loader.arg("gpus").env("LD_LIBRARY_PATH", stand_in.dir()));
    assert_eq!(found_by_loader, found);
}

#[test]
fn r3_15_a_card_that_tells_next_to_nothing_is_a_device_all_the_same() {
    let stand_in = StandIn::telling("gpu 1 8 6 0 0 0 Card\n");
    let found = look(&mut looks(&stand_in.library()));
    let device = &found.coprocessors[0].devices[0];
    assert_eq!((device.speed.get(), device.multiprocessors, device.clock_khz), (1e11, 0, 0));
}

#[test]
fn r3_15_without_a_library_or_a_device_there_is_none_and_that_is_no_error() {
    let stand_in = StandIn::telling("");
    assert_eq!(look(&mut looks(&stand_in.library())), Look::default());
    let nowhere = tempfile::tempdir().unwrap();
    if !Path::new("/dev/nvidiactl").exists() {
        let mut without = Command::new(agent());
        assert_eq!(look(without.arg("gpus").env("LD_LIBRARY_PATH", nowhere.path())), Look::default());
    }
    // One that was named has to be one.
    let junk = nowhere.path().join("junk.so");
    std::fs::write(&junk, "no library").unwrap();
    let (said, _) = said(&mut looks(&junk));
    assert!(matches!(said.as_slice(), [Said::Trouble(why)] if why.contains("cannot be set up")), "{said:?}");
}

#[test]
fn r3_15_of_what_a_mad_driver_says_only_what_can_be_is_told() {
    let stand_in = StandIn::telling(&format!("nonsense\n{TWO}"));
    let found = look(&mut looks(&stand_in.library()));
    let nvidia = &found.coprocessors[0];
    // A million devices, all the same one.
    assert_eq!((nvidia.count, nvidia.cuda_version, nvidia.memory), (1, 0, Bytes(0)));
    let device = &nvidia.devices[0];
    assert_eq!((device.speed.get(), device.compute), (1e11, None));
    assert!(!device.model.contains('\u{1b}'), "{}", device.model);
    assert_eq!(found.temperatures, []);
}

#[test]
fn r3_15_a_driver_that_hangs_is_given_up_and_one_that_crashes_ends_nothing_else() {
    let stand_in = StandIn::telling("hang\n");
    let begun = Instant::now();
    let (told, well) = said(looks(&stand_in.library()).args(["--limit-ms", "300"]));
    assert!(matches!(told.as_slice(), [Said::Trouble(why)] if why.contains("has not answered")), "{told:?}");
    assert!(!well && begun.elapsed() < Duration::from_secs(60));
    stand_in.tell("crash\n");
    let (told, well) = said(&mut looks(&stand_in.library()));
    assert!(told.is_empty() && !well, "{told:?}");
}

/// An agent for which the stand-in is NVIDIA's library.
fn daemon(dir: &Path, stand_in: &StandIn) -> Daemon {
    let mut run = command(dir, &["run"]);
    run.arg("--nvml-library").arg(stand_in.library()).stdout(Stdio::null()).stderr(Stdio::null());
    // Where some systems say that the driver's libraries are.
    run.env("LD_LIBRARY_PATH", "/driver/lib64:here:/other");
    Daemon::of(run, dir)
}

/// Each device with how it stands.
fn states(dir: &Path) -> Vec<String> {
    let status = status(dir);
    let devices = status["host"]["devices"].as_array().unwrap();
    let shown = |one: &serde_json::Value| {
        format!("{} {}", one["device"].as_str().unwrap(), one["state"].as_str().unwrap())
    };
    devices.iter().map(shown).collect()
}

#[test]
fn r3_15_an_agent_runs_beside_a_driver_that_crashes_or_hangs_and_finds_the_devices_of_one_that_recovers() {
    for trouble in ["crash\n", "hang\n"] {
        let stand_in = StandIn::telling(trouble);
        let dir = tempfile::tempdir().unwrap();
        let _daemon = daemon(dir.path(), &stand_in);
        assert_eq!(states(dir.path()), Vec::<String>::new());
        stand_in.tell(TWO);
        wait_for("the devices", || {
            (states(dir.path()) == ["nvidia:0 usable", "nvidia:1 usable"]).then_some(())
        });
        let output = command(dir.path(), &["status"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("nvidia:1") && text.contains("RTX 3090"), "{text}");
    }
}

#[test]
fn r3_15_an_agent_is_not_started_with_a_library_that_others_may_write_to() {
    use std::os::unix::fs::PermissionsExt;
    let stand_in = StandIn::telling(TWO);
    std::fs::set_permissions(stand_in.library(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output =
        command(dir.path(), &["run"]).arg("--nvml-library").arg(stand_in.library()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && text.contains("chmod go-w"), "{text}");
}
