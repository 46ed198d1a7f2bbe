//! GPU jobs of a project, as real processes on devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use fallow_boinc::scheduler::{
    App, AppVersion, Coprocessor, FileInfo, FileRef, HostCoprocessors, ResultJob, SchedulerReply,
    SchedulerRequest, Workunit,
};
use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_domain::{Bytes, Duration, Flops, Instant};

use super::stand_in::StandIn;
use super::{daemon, states};
use crate::attach::{RIGHT, attach, status};
use crate::daemon::outcome;
use crate::support::{copy_program, is_alive, put, wait_for};
use crate::transfers::{Server, http};
use crate::turns::{call, calls, random, unknown};

/// Three cards.
const THREE: &str = "gpu 3 8 6 1695 10496 24576 RTX 3090\ngpu 1 8 6 1695 10496 24576 RTX 3090\n\
                     gpu 2 8 6 1695 10496 24576 RTX 3090\n";

/// A program that notes what it was told, leaves when it is told to, and fails when a file says so.
const PROGRAM: &[u8] = b"#!/bin/sh
{
  echo \"arguments $*\"
  echo \"order $CUDA_DEVICE_ORDER visible ${CUDA_VISIBLE_DEVICES-none}\"
  echo \"libraries ${LD_LIBRARY_PATH#*..:}\"
  if echo gpu-job >/proc/$$/task/$$/comm; then echo \"named $(cat /proc/$$/comm)\"; fi
  for place in /proc/$$/oom_score_adj /proc/$PPID/task/$PPID/comm /proc/sys/kernel/hostname; do
    if cat $place >/dev/null && true >>$place; then echo \"could write $place\"; fi
  done
  grep '<gpu_' init_data.xml
} >seen.new
mv seen.new seen
while ! grep -aq '<quit/>' boinc_mmap_file; do
  if [ -e fail ]; then exit 7; fi
  sleep 0.1
done
";

/// A project that sends up to four jobs for devices of a kind to hosts that ask for work for them and have
/// what its programs need, as BOINC's servers look.
pub(super) fn gpu_project(kind: &'static str, has: fn(&HostCoprocessors) -> bool) -> Server {
    let key = PrivateKey::generate(&mut random()).unwrap();
    let signature = key.sign_file(&md5_hex(PROGRAM), &mut random()).unwrap();
    let sent = Mutex::new(0);
    Server::start(move |asked| {
        let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        if asked.head.starts_with("get /p/program ") {
            return http("200 OK", "", PROGRAM);
        }
        if asked.head.starts_with("get /p/ ") {
            let text = format!("<html><!-- <scheduler>http://{host}/p/cgi</scheduler> --></html>");
            return http("200 OK", "", text.as_bytes());
        }
        let Some(request) = call(asked) else { return unknown() };
        let mut reply = SchedulerReply {
            hostid: (request.hostid == 0).then_some(7),
            request_delay: Duration::from_secs(1),
            code_sign_key: Some(key.public_key().to_text()),
            result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
            ..SchedulerReply::default()
        };
        let devices = request.coprocs.iter().find(|one| one.kind == kind);
        let mut sent = sent.lock().unwrap();
        if devices.is_some_and(|one| has(one) && one.req_secs > 0.0) && *sent < 4 {
            *sent += 4;
            describe(&mut reply, &request, kind, &format!("http://{host}/p/program"), &signature);
        }
        http("200 OK", "", reply.write().as_bytes())
    })
}

/// What NVIDIA's devices need for programs of plan class `cuda`.
pub(super) fn has_cuda(devices: &HostCoprocessors) -> bool {
    devices.cuda.is_some_and(|cuda| cuda.major >= 7 && cuda.version >= 11_000)
}

fn describe(
    reply: &mut SchedulerReply,
    request: &SchedulerRequest,
    kind: &str,
    program: &str,
    signature: &str,
) {
    let platform = request.platform_name.clone();
    reply.apps.push(App { name: "app".into(), ..App::default() });
    reply.files.push(FileInfo {
        name: "program".into(),
        download_urls: vec![program.to_owned()],
        executable: true,
        signature_required: true,
        file_signature: Some(signature.to_owned()),
        ..FileInfo::default()
    });
    reply.app_versions.push(AppVersion {
        app_name: "app".into(),
        version_num: 1,
        platform: platform.clone(),
        plan_class: "gpu".into(),
        api_version: Some("7.4.42".into()),
        avg_ncpus: 0.1,
        coproc: Some(Coprocessor { kind: kind.into(), count: 1.0 }),
        files: vec![FileRef { file_name: "program".into(), main_program: true, ..FileRef::default() }],
        ..AppVersion::default()
    });
    for number in 0..4 {
        let name = format!("job{number}");
        reply.workunits.push(Workunit {
            name: name.clone(),
            app_name: "app".into(),
            command_line: "own".into(),
            rsc_fpops_est: Some(Flops::new(1e15).unwrap()),
            ..Workunit::default()
        });
        reply.results.push(ResultJob {
            name: name.clone(),
            wu_name: name,
            report_deadline: Instant::from_secs_f64(4e9),
            platform: platform.clone(),
            version_num: 1,
            plan_class: "gpu".into(),
            report_immediately: true,
            ..ResultJob::default()
        });
    }
}

/// A task that runs: its devices, its process, its slot.
pub(super) struct Running {
    pub(super) devices: Vec<String>,
    pub(super) pid: u32,
    pub(super) slot: PathBuf,
}

/// The tasks that have said what they were told.
fn running(dir: &Path) -> Vec<Running> {
    let status = status(dir);
    let tasks = status["tasks"].as_array().unwrap().iter().filter(|task| task["phase"] == "running");
    let of = |task: &serde_json::Value| {
        let pid = u32::try_from(task["pid"].as_u64()?).unwrap();
        let slot = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let devices = task["devices"].as_array()?.iter().map(|one| one.as_str().unwrap().to_owned());
        slot.join("seen").exists().then(|| Running { devices: devices.collect(), pid, slot })
    };
    tasks.filter_map(of).collect()
}

/// Those, where they are on these devices and no others.
pub(super) fn on(dir: &Path, expected: &[&str]) -> Option<Vec<Running>> {
    let mut all = running(dir);
    all.sort_by(|a, b| a.devices.cmp(&b.devices));
    let named: Vec<&str> = all.iter().flat_map(|one| &one.devices).map(String::as_str).collect();
    (named == expected).then_some(all)
}

#[test]
fn r3_14_gpu_jobs_run_on_devices_of_their_own_and_leave_those_that_others_use_or_that_go() {
    let stand_in = StandIn::telling(THREE);
    let server = gpu_project("NVIDIA", has_cuda);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = daemon(dir, &stand_in);
    assert_eq!(outcome(dir, &["exclude", "nvidia:2"]).0, 0);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);

    // Two at once, on a device each; none on the one that is excluded.
    let two = wait_for("jobs on two devices", || on(dir, &["nvidia:0", "nvidia:1"]));
    for (number, task) in two.iter().enumerate() {
        let seen = std::fs::read_to_string(task.slot.join("seen")).unwrap();
        let told = [
            format!("arguments own --device {number}\n"),
            "order PCI_BUS_ID visible none\n".to_owned(),
            "libraries /driver/lib64:/other\n".to_owned(),
            // CUDA's driver does so, and gives up where it cannot.
            "named gpu-job\n".to_owned(),
            "<gpu_type>NVIDIA</gpu_type>".to_owned(),
            format!("<gpu_device_num>{number}</gpu_device_num>"),
            format!("<gpu_opencl_dev_index>{number}</gpu_opencl_dev_index>"),
            "<gpu_usage>1".to_owned(),
        ];
        assert!(told.iter().all(|part| seen.contains(part)), "{seen} lacks one of {told:?}");
        assert!(!seen.contains("could write"), "{seen}");
    }
    assert_eq!(states(dir), ["nvidia:0 usable", "nvidia:1 usable", "nvidia:2 excluded by the owner"]);
    let said = status(dir);
    assert_eq!(said["host"]["devices"][0]["jobs"].as_array().unwrap().len(), 1, "{said}");

    // What the server was told, in its own words.
    let asked = calls(&server);
    let gpus = asked.iter().flat_map(|request| &request.coprocs).next().unwrap();
    let cuda = gpus.cuda.unwrap();
    assert_eq!((gpus.count, gpus.name.as_str(), gpus.driver.as_str()), (2, "RTX 3090", "53599"));
    assert_eq!((cuda.version, cuda.major, cuda.minor, cuda.multiprocessors), (12_020, 8, 6, 82));
    assert_eq!(gpus.memory, Bytes::from_mebibytes(24_576));

    // Our own processes on them are nobody else's.
    let ours = format!("process 1 {} c 200\nprocess 2 {} c 200\n", two[0].pid, two[1].pid);
    stand_in.tell(&format!("{THREE}{ours}"));
    // The owner's program is on the first.
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    stand_in.tell(&format!("{THREE}{ours}process 1 {} c 10\n", owner.id()));
    let one = wait_for("the first device to be left", || on(dir, &["nvidia:1"]));
    assert_eq!(one[0].pid, two[1].pid, "the other goes on as if nothing were");
    wait_for("the end of the task", || (!is_alive(two[0].pid)).then_some(()));
    let in_use = format!("nvidia:0 in use by sleep (process {})", owner.id());
    let expected = [in_use.as_str(), "nvidia:1 usable", "nvidia:2 excluded by the owner"];
    assert_eq!(states(dir), expected);

    // The second falls off the bus, and comes back.
    let gone: String =
        THREE.lines().filter(|line| !line.starts_with("gpu 2")).map(|line| format!("{line}\n")).collect();
    let user = format!("process 1 {} c 10\n", owner.id());
    stand_in.tell(&format!("{gone}{user}"));
    wait_for("all to be left", || on(dir, &[]));
    assert_eq!(states(dir)[1], "nvidia:1 gone");
    // The excluded one is its driver's second now, and stays the third here.
    assert_eq!(states(dir)[2], "nvidia:2 excluded by the owner");
    stand_in.tell(&format!("{THREE}{user}"));
    let again = wait_for("a job on the one that is back", || on(dir, &["nvidia:1"]));

    // One that fails says where.
    std::fs::write(again[0].slot.join("fail"), "").unwrap();
    let message = wait_for("the report", || {
        let all = calls(&server).into_iter().flat_map(|request| request.results);
        all.into_iter().find_map(|result| result.stderr_out.message)
    });
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(message.contains(" on NVIDIA GPU 1 (RTX 3090 at 0000:02:00.0)"), "{message}");
}

#[test]
fn r3_14_jobs_leave_a_device_that_is_hotter_than_the_owner_allows_and_come_back_when_it_has_cooled() {
    let heat = |first: u32| format!("{THREE}heat 1 {first}\nheat 3 96\n");
    let stand_in = StandIn::telling(&heat(60));
    let server = gpu_project("NVIDIA", has_cuda);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(&dir.join("preferences.toml"), b"gpu_temperature_max = 80\n");
    let _daemon = daemon(dir, &stand_in);
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    // The third is too hot, and the second does not tell.
    let two = wait_for("jobs on two devices", || on(dir, &["nvidia:0", "nvidia:1"]));
    let hot = "too hot (96 °C, at most 80 °C; used again from 75 °C on down)";
    assert_eq!(
        states(dir),
        ["nvidia:0 usable".to_owned(), "nvidia:1 usable".into(), format!("nvidia:2 {hot}")]
    );

    stand_in.tell(&heat(85));
    let one = wait_for("the first device to be left", || on(dir, &["nvidia:1"]));
    assert_eq!(one[0].pid, two[1].pid, "the other goes on as if nothing were");
    let degrees = |dir: &Path| status(dir)["host"]["devices"][0]["temperature"].as_u64();
    // Not enough cooler, and enough.
    stand_in.tell(&heat(77));
    wait_for("its temperature to be seen", || (degrees(dir) == Some(77)).then_some(()));
    assert!(states(dir)[0].starts_with("nvidia:0 too hot (77 °C"), "{:?}", states(dir));
    stand_in.tell(&heat(75));
    wait_for("a job on it again", || on(dir, &["nvidia:0", "nvidia:1"]));
    let (_, text) = outcome(dir, &["status"]);
    assert!(text.contains(" 75 °C ") && text.contains(" 96 °C ") && text.contains(hot), "{text}");
}

#[test]
fn r6_4_boincs_client_configuration_keeps_gpus_from_projects_from_all_jobs_and_while_a_program_runs() {
    let stand_in = StandIn::telling(THREE);
    let server = gpu_project("NVIDIA", has_cuda);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = daemon(dir, &stand_in);
    let config = |options: &str| {
        let text = format!("<cc_config>\n<options>{options}</options>\n</cc_config>\n");
        put(&dir.join("cc_config.xml"), text.as_bytes());
        let (code, text) = outcome(dir, &["preferences", "reload"]);
        assert_eq!(code, 0, "{text}");
    };
    let all = ["nvidia:0", "nvidia:1", "nvidia:2"];
    let exclude = |more: &str| format!("<exclude_gpu><url>{}</url>{more}</exclude_gpu>", server.url(""));
    assert_eq!(attach(dir, &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let three = wait_for("jobs on all devices", || on(dir, &all));

    config(&exclude("<device_num>1</device_num>"));
    let two = wait_for("that the second is left", || on(dir, &["nvidia:0", "nvidia:2"]));
    assert_eq!([two[0].pid, two[1].pid], [three[0].pid, three[2].pid], "the others go on");
    assert_eq!(states(dir)[1], "nvidia:1 usable", "other projects may use it");
    config(&exclude("<type>NVIDIA</type><app>another</app>"));
    wait_for("jobs of an application that is not meant", || on(dir, &all));
    config(&exclude("<type>ATI</type>"));
    wait_for("jobs on devices that are not meant", || on(dir, &all));
    config(&exclude("<type>NVIDIA</type><app>app</app>"));
    wait_for("that all are left", || on(dir, &[]));
    config("");
    wait_for("jobs on all again", || on(dir, &all));

    config("<no_gpus>1</no_gpus>");
    wait_for("that none is used", || on(dir, &[]));
    let expected = all.map(|device| format!("{device} excluded by the owner"));
    assert_eq!(states(dir), expected);
    config("");
    wait_for("jobs on all again", || on(dir, &all));

    // A program that wants GPUs for itself.
    let program = dir.join("a-gpu-game-here");
    copy_program("/bin/sleep".as_ref(), &program);
    let mut game = Command::new(&program).arg("1000").spawn().unwrap();
    config("<exclusive_gpu_app>a-gpu-game-here</exclusive_gpu_app>");
    let left = wait_for("that they are left to it", || on(dir, &[]));
    let rests = "a-gpu-game-here runs, which wants GPUs for itself";
    assert!(left.is_empty() && states(dir)[0] == format!("nvidia:0 {rests}"), "{:?}", states(dir));
    assert_eq!(status(dir)["host"]["suspended_by"], serde_json::Value::Null, "CPUs compute");
    game.kill().unwrap();
    game.wait().unwrap();
    wait_for("jobs on all again", || on(dir, &all));

    // A file that is wrong changes nothing.
    let text = "<cc_config><options>\n<exclude_gpu><url>no url</url></exclude_gpu></options></cc_config>";
    put(&dir.join("cc_config.xml"), text.as_bytes());
    let (code, text) = outcome(dir, &["preferences", "reload"]);
    assert!(
        code == 3 && text.contains("a project's URL at line 2") && text.contains("cc_config.xml"),
        "{text}"
    );
    assert!(on(dir, &all).is_some());
}

#[test]
fn r3_15_an_agent_without_jobs_for_gpus_starts_nobody_who_looks_again_and_again() {
    let stand_in = StandIn::telling(THREE);
    let dir = tempfile::tempdir().unwrap();
    let _daemon = daemon(dir.path(), &stand_in);
    wait_for("the devices", || (states(dir.path()).len() == 3).then_some(()));
    let pid = u32::try_from(status(dir.path())["pid"].as_u64().unwrap()).unwrap();
    let children: BTreeSet<u32> =
        fallow_agent::proc::all().iter().filter(|one| one.parent == pid).map(|one| one.pid).collect();
    let looks = children.iter().filter(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("--every-ms")
    });
    assert_eq!(looks.count(), 0);
}
