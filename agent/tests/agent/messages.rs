//! What applications and projects say to each other, and the memory that old applications share with their
//! client.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use fallow_agent::supervise::{Delivery, leftovers};
use fallow_boinc::runtime::exit::Ended;
use fallow_client::{Event, SlotFile, StartFault};
use fallow_domain::{Bytes, Duration};

use crate::supervision::{Bench, ENDLESS, JOB, OUTPUT, SLOT};
use crate::support::{project, put, signed, wait_for};

/// Puts a text into a channel of the slot, the flag last.
pub(crate) fn say(channel: usize, text: &str) -> String {
    let at = channel * 1024;
    let write = |at: usize, text: &str| {
        format!("printf '{text}' | dd of=boinc_mmap_file bs=1 seek={at} conv=notrunc 2> /dev/null; ")
    };
    write(at + 1, &format!("{text}\\000")) + &write(at, "\\001")
}

#[test]
fn r6_2_a_jobs_message_is_moved_to_its_project_and_its_early_output_is_looked_at() {
    let bench = Bench::new();
    let place = bench.data.project(&project());
    put(&place.join("output_1"), b"");
    let told = say(6, "<have_new_trickle_up/>\\n<have_new_upload_file/>\\n");
    let text = format!(
        "echo '<variety>x</variety>' > trickle_up.xml; echo part > {OUTPUT}; \
         : > boinc_ufr_out; {told} while [ ! -f trickle_down_5 -o ! -f boinc_ufs_out ]; do sleep 0.1; done; \
         while ! head -c 7300 boinc_mmap_file | tail -c 132 | grep -q have_trickle_down; do sleep 0.1; done; \
         cat trickle_down_5 boinc_ufs_out >&2; exit 3"
    );
    let mut setup = bench.script(&text);
    let name = "output_1".to_owned();
    setup.files = vec![SlotFile {
        name,
        open_name: "out".into(),
        copy: false,
        output: true,
        gzip: false,
        max_nbytes: None,
    }];
    bench.supervisor.start_task(setup);
    let (mut trickle, mut output) = (None, None);
    bench.next("the message and the output", |event| {
        match event {
            Event::TrickleFound { name, nbytes, .. } => trickle = Some((name, nbytes)),
            Event::UploadWanted { output: found, .. } => output = Some(found),
            _ => {}
        }
        (trickle.is_some() && output.is_some()).then_some(())
    });
    let (name, nbytes) = trickle.unwrap();
    assert!(name.starts_with("trickle_up_job_1_0_"), "{name}");
    assert_eq!(nbytes, Bytes(21));
    assert_eq!(std::fs::read(place.join(name)).unwrap(), b"<variety>x</variety>\n");
    assert_eq!(output.unwrap().md5, fallow_boinc::signature::md5_hex(b"part\n"));
    assert!(!bench.data.slot(SLOT).join("boinc_ufr_out").exists());
    let trickle = Delivery::Trickle { name: "trickle_down_5".into(), text: "<order>go</order>\n".into() };
    bench.supervisor.deliver(JOB, SLOT, trickle);
    bench.supervisor.deliver(JOB, SLOT, Delivery::UploadStatus { open_name: "out".into(), status: 0 });
    let end = bench.ended();
    assert_eq!(end.exit, Ended::Code(3));
    assert_eq!(end.stderr, "<order>go</order>\n<status>0</status>\n");
}

#[test]
fn r6_2_a_message_announced_to_a_killed_agent_is_taken_at_the_next_start() {
    let mut bench = Bench::new();
    let told = say(6, "<have_new_trickle_up/>");
    // Said when no look comes any more.
    let setup = bench.script(&format!("echo m > trickle_up.xml; cp boinc_mmap_file kept; sed -n 1p kept > /dev/null; {told} cp boinc_mmap_file kept; exit 3"));
    bench.supervisor.start_task(setup);
    bench.ended();
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
    // As a kill would have left them.
    let slot = bench.data.slot(SLOT);
    put(&slot.join("trickle_up.xml"), b"m");
    // Of whoever the job ran as.
    let job = slot.join("kept").metadata().unwrap();
    std::os::unix::fs::chown(slot.join("trickle_up.xml"), Some(job.uid()), Some(job.gid())).unwrap();
    std::fs::rename(slot.join("kept"), slot.join("boinc_mmap_file")).unwrap();
    for entry in std::fs::read_dir(bench.data.project(&project())).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("trickle_up_") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    leftovers::take_over(&bench.data, &|| false);
    let entries = std::fs::read_dir(bench.data.project(&project())).unwrap().flatten();
    let found =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("trickle_up_job_1_0_"));
    assert_eq!(found.count(), 1);
}

#[test]
fn r6_10_messages_of_jobs_wait_while_nothing_is_taken_in_and_hold_no_look_up() {
    let room = Arc::new(AtomicBool::new(false));
    let mut bench = Bench::with_room(&room);
    let told = say(6, "<have_new_trickle_up/>\\n");
    let text = format!(
        "while :; do [ -f trickle_up.xml ] || {{ echo m > trickle_up.xml; {told} }}; sleep 0.1; done"
    );
    bench.supervisor.start_task(bench.script(&text));
    let project = bench.data.project(&project());
    let taken = || {
        let entries = std::fs::read_dir(&project).unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("trickle_up_")).count()
    };
    // Each is taken by another look.
    wait_for("some messages", || (taken() >= 4).then_some(()));
    bench.supervisor.stop(StdDuration::ZERO);
    assert!(matches!(bench.ended().exit, Ended::Signal { number: 9, .. }));
    bench.supervisor.join();
    assert!(taken() >= 4, "they are kept for the next start");
}

#[test]
fn r6_10_messages_that_waited_are_told_when_something_is_taken_in_again() {
    let room = Arc::new(AtomicBool::new(false));
    let bench = Bench::with_room(&room);
    let told = say(6, "<have_new_trickle_up/>\\n");
    let text =
        format!("echo m > trickle_up.xml; {told} while [ -f trickle_up.xml ]; do sleep 0.1; done; exit 3");
    bench.supervisor.start_task(bench.script(&text));
    // Its end is told at once, and its message when there is room.
    assert_eq!(bench.ended().exit, Ended::Code(3));
    room.store(true, Ordering::Relaxed);
    let name = bench.next("the message", |event| match event {
        Event::TrickleFound { name, nbytes: Bytes(2), .. } => Some(name),
        _ => None,
    });
    assert!(bench.data.project(&project()).join(name).exists());
}

/// Threads of this process that look at outputs to be sent early.
fn upload_looks() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.trim() == "upload").count()
}

#[test]
fn r6_10_outputs_asked_for_again_and_again_are_looked_at_by_one_thread_that_looks_once_more() {
    let mut bench = Bench::new();
    let output = bench.data.project(&project()).join("output_1");
    put(&output, b"");
    // So long that its sum is worked out for minutes.
    std::fs::File::options().write(true).open(&output).unwrap().set_len(1 << 40).unwrap();
    let told = say(6, "<have_new_upload_file/>\\n");
    let text = format!(
        "while [ ! -f quiet ]; do : > boinc_ufr_out; {told} echo >> rounds; sleep 0.3; done; : > silent; sleep 1000"
    );
    let mut setup = bench.script(&text);
    setup.files = vec![SlotFile {
        name: "output_1".into(),
        open_name: "out".into(),
        copy: false,
        output: true,
        gzip: false,
        max_nbytes: None,
    }];
    bench.supervisor.start_task(setup);
    let slot = bench.data.slot(SLOT);
    wait_for("many requests", || {
        (std::fs::read(slot.join("rounds")).map_or(0, |rounds| rounds.len()) > 15).then_some(())
    });
    for _ in 0..3 {
        bench.sample("a look", |_| true);
    }
    // Another test's may show up for an instant.
    wait_for("one look at a time", || (upload_looks() == 1).then_some(()));
    put(&slot.join("quiet"), b"");
    wait_for("silence", || slot.join("silent").exists().then_some(()));
    for _ in 0..3 {
        bench.sample("a look", |_| true);
    }
    // The sum that goes on ends where the file ends now; what was asked for meanwhile is looked at after it.
    put(&output, b"done\n");
    let found = bench.next("the last look", |event| match event {
        Event::UploadWanted { output, .. } if output.nbytes == Bytes(5) => Some(output),
        _ => None,
    });
    assert_eq!(found.md5, fallow_boinc::signature::md5_hex(b"done\n"));
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

#[test]
fn r6_10_a_program_that_was_replaced_since_it_came_is_not_started() {
    let bench = Bench::new();
    let setup = bench.script("echo right >&2; exit 3");
    let program = bench.data.project(&project()).join("app");
    let content = std::fs::read(&program).unwrap();
    for _ in 0..2 {
        bench.supervisor.start_task(setup.clone());
        assert_eq!(bench.ended().stderr, "right\n");
    }
    // As long, and as old.
    let modified = std::fs::metadata(&program).unwrap().modified().unwrap();
    std::fs::write(&program, String::from_utf8_lossy(&content).replace("right", "wrong")).unwrap();
    std::fs::File::options().write(true).open(&program).unwrap().set_modified(modified).unwrap();
    bench.supervisor.start_task(setup);
    let (reason, fault) = bench.next("the refusal", |event| match event {
        Event::TaskStartFailed { reason, fault, .. } => Some((reason, fault)),
        Event::TaskEnded { end, .. } => panic!("it was executed: {}", end.stderr),
        _ => None,
    });
    assert_eq!(fault, StartFault::Files(vec!["app".into()]), "{reason}");
}

#[test]
fn r6_10_what_is_executed_is_what_was_looked_at_under_its_own_name() {
    let bench = Bench::new();
    bench.stock(ENDLESS);
    bench.supervisor.start_task(bench.setup(true, false));
    let pid = bench.started();
    bench.sample("it to be up", |sample| sample.status.is_some());
    let link = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(link, bench.data.project(&project()).join("app").canonicalize().unwrap());
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(line.starts_with(b"../../projects/127.0.0.1_9_test/app\0"), "{}", String::from_utf8_lossy(&line));
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "app\n");
    bench.supervisor.kill(JOB);
    bench.ended();
}

/// An application as they were before API 6.0: finds its channel by the key in `init_data.xml`.
const OLD_APPLICATION: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ipc.h>
#include <sys/shm.h>
int main(void) {
    char line[4096]; int key = 0;
    FILE *f = fopen("init_data.xml", "r");
    while (f && fgets(line, sizeof line, f)) { char *p = strstr(line, "<shm_key>"); if (p) key = atoi(p + 9); }
    int id = shmget(key, 0, 0);
    if (key <= 0 || id < 0) return 10;
    volatile char *m = shmat(id, 0, 0);
    if (m == (void *)-1) return 11;
    strcpy((char *)m + 0x1401, "<current_cpu_time>7.5e+00</current_cpu_time><checkpoint_cpu_time>5.0e+00</checkpoint_cpu_time>");
    m[0x1400] = 1;
    for (int i = 0; i < 3000 && !m[0x1000]; i++) usleep(100000);
    if (!m[0x1000] || !strstr((char *)m + 0x1001, "<heartbeat/>")) return 12;
    f = fopen("boinc_finish_called", "w"); fprintf(f, "0\n"); fclose(f);
    fprintf(stderr, "key %d\n", key);
    return 0;
}
"#;

fn compile(source: &str, to: &Path) -> bool {
    let from = to.with_extension("c");
    put(&from, source.as_bytes());
    let Ok(output) = Command::new("cc").arg("-o").arg(to).arg(&from).output() else { return false };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn segments() -> Vec<i64> {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn r6_2_an_application_older_than_api_6_has_its_channel_in_system_v_memory() {
    let bench = Bench::new();
    let mut setup = bench.script("");
    if !compile(OLD_APPLICATION, &bench.data.project(&project()).join("app")) {
        println!("skipped: there is no C compiler here");
        return;
    }
    setup.application = signed(&bench.data.project(&project()), "app");
    setup.mapped_channel = false;
    bench.supervisor.start_task(setup);
    let said = bench.sample("what it says", |sample| sample.status.is_some());
    assert_eq!(said.status.unwrap().current_cpu_time, Duration::from_millis(7_500));
    let end = bench.ended();
    assert_eq!((end.exit, end.finish.is_some()), (Ended::Code(0), true), "{}", end.stderr);
    let key: i64 = end.stderr.trim().strip_prefix("key ").unwrap().parse().unwrap();
    wait_for("its removal", || (!segments().contains(&key)).then_some(()));
}

#[test]
fn r6_2_system_v_memory_of_a_killed_agent_is_removed_by_the_next_one() {
    let bench = Bench::new();
    let make = bench.data.path().join("make");
    let source = "#include <stdio.h>\n#include <sys/shm.h>\nint main(void) { for (int key = 54321; key < 64321; key++) \
                  if (shmget(key, 8192, IPC_CREAT | IPC_EXCL | 0600) >= 0) { printf(\"%d\", key); return 0; } return 1; }";
    if !compile(source, &make) {
        println!("skipped: there is no C compiler here");
        return;
    }
    let output = Command::new(&make).output().unwrap();
    let key: i64 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    assert!(segments().contains(&key));
    std::fs::create_dir(bench.data.slot(SLOT)).unwrap();
    let record = serde_json::json!({
        "job": 7, "name": "old", "url": project(), "outputs": [], "cpu_before": 0, "shm_key": key, "process": null,
    });
    put(&bench.data.slot_record(SLOT), record.to_string().as_bytes());
    leftovers::take_over(&bench.data, &|| false);
    assert!(!segments().contains(&key));
}
