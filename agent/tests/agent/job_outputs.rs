//! What a root agent takes of jobs that run as users of their own, and what it costs (R6.10): copies of files
//! that jobs may still have open.
//!
//! Whoever is not root has no other users: then these tests say so.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fallow_agent::owner::is_jobs;
use fallow_boinc::signature::md5_hex;
use fallow_client::{Event, OutputFound, SlotFile};
use fallow_domain::Bytes;

use crate::job_users::{TO, WAIT, bench, ended, is_root, output};
use crate::messages::say;
use crate::supervision::{Bench, OUTPUT, SLOT};
use crate::support::{project, put, wait_for};

/// Copies that are being made in the project's directory.
fn copies(project: &Path) -> usize {
    let parts = std::fs::read_dir(project.join(".partial")).into_iter().flatten().flatten();
    parts.filter(|part| part.file_name().to_string_lossy().starts_with("%copy-")).count()
}

fn early(bench: &Bench, name: &str) -> OutputFound {
    bench.next("an early output", |event| match event {
        Event::UploadWanted { output, .. } if output.name == name => Some(output),
        Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
        _ => None,
    })
}

/// Tells that there are requests for outputs to be sent early.
fn asked() -> String {
    say(6, "<have_new_upload_file/>\\n")
}

/// Waits for the job's word that it is ready.
fn ready(bench: &Bench) {
    wait_for("the job", || bench.data.slot(SLOT).join("ready").exists().then_some(()));
}

fn go(bench: &Bench) {
    put(&bench.data.slot(SLOT).join("go"), b"");
}

#[test]
fn r6_10_an_early_copy_that_is_still_being_made_is_not_put_over_what_its_job_has_left() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let mut setup = bench.script(&format!(
        "{TO}; truncate -s 1G $to; : > boinc_ufr_out; {} {WAIT}; rm $to; echo final > $to; echo 0 > boinc_finish_called",
        asked()
    ));
    setup.files = vec![output(false)];
    let place = bench.data.project(&setup.url);
    bench.supervisor.start_task(setup);
    wait_for("a copy", || (copies(&place) > 0).then_some(()));
    go(&bench);
    let end = ended(&bench);
    wait_for("the end of all copies", || (copies(&place) == 0).then_some(()));
    assert_eq!(std::fs::read(place.join("output_1")).unwrap(), b"final\n");
    let found: Vec<&str> = end.outputs.iter().map(|output| output.md5.as_str()).collect();
    assert_eq!(found, [md5_hex(b"final\n")], "{}", end.stderr);
}

/// What an output and seven other names of it are called, and a small one.
fn many() -> Vec<SlotFile> {
    let named = |number: u32| SlotFile {
        name: format!("output_{number}"),
        open_name: format!("out_{number}"),
        ..output(false)
    };
    (1..=9).map(named).collect()
}

#[test]
fn r6_10_names_of_one_file_make_no_copies_beyond_what_the_files_of_a_job_may_hold() {
    if !is_root() {
        return;
    }
    for is_early in [true, false] {
        let bench = bench(true);
        let asks = if is_early { "for n in 1 2 3 4 5 6 7 8 9; do : > boinc_ufr_out_$n; done" } else { ":" };
        let mut setup = bench.script(&format!(
            "cd fallow_outputs; head -c 2000000 /dev/zero > output_1; \
             for n in 2 3 4 5 6 7 8; do ln output_1 output_$n; done; echo small > output_9; cd ..; \
             {asks}; {} : > ready; {WAIT}; echo 0 > boinc_finish_called",
            asked()
        ));
        (setup.files, setup.disk_max) = (many(), Bytes(3_000_000));
        let place = bench.data.project(&setup.url);
        bench.supervisor.start_task(setup);
        let held = || {
            let all = std::fs::read_dir(&place).unwrap().flatten().map(|entry| entry.metadata().unwrap());
            all.filter(std::fs::Metadata::is_file).map(|data| data.len()).sum::<u64>()
        };
        if is_early {
            // The last that was asked for.
            early(&bench, "output_9");
            assert!(held() < 3_000_000, "{} are held early", held());
        }
        ready(&bench);
        go(&bench);
        let end = ended(&bench);
        assert!(held() < 3_000_000, "{} are held", held());
        // Those that were not taken fail the job for what its files hold.
        let taken = end.outputs.iter().map(|output| (output.name.as_str(), !output.md5.is_empty()));
        let expected =
            [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|number| (format!("output_{number}"), [1, 9].contains(&number)));
        assert!(taken.eq(expected.iter().map(|(name, is)| (name.as_str(), *is))), "{:?}", end.outputs);
    }
}

#[test]
fn r6_10_an_output_that_somebody_has_open_does_not_change_once_it_is_taken() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    // So that the job of another slot can come to it.
    let mut setup = bench.script(&format!(
        "{TO}; echo right > $to; chmod 777 . fallow_outputs; chmod 666 $to; : > ready; {WAIT}; echo 0 > boinc_finish_called"
    ));
    setup.files = vec![output(false)];
    let place = bench.data.project(&setup.url).join("output_1");
    bench.supervisor.start_task(setup);
    ready(&bench);
    let mut held = std::fs::File::options().write(true).open(bench.data.slot(SLOT).join(OUTPUT)).unwrap();
    go(&bench);
    let end = ended(&bench);
    held.write_all(b"wrong").unwrap();
    assert_eq!(std::fs::read(&place).unwrap(), b"right\n");
    assert_eq!((end.outputs.len(), std::fs::metadata(&place).unwrap().uid()), (1, 0), "{}", end.stderr);
    assert_eq!(end.outputs[0].md5, md5_hex(b"right\n"));
}

#[test]
fn r6_10_an_output_that_grows_while_it_is_taken_is_the_agents_or_none() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let mut setup = bench.script(&format!(
        "{TO}; head -c 100000000 /dev/zero > $to; ln $to kept; : > ready; {WAIT}; echo 0 > boinc_finish_called"
    ));
    setup.files = vec![output(false)];
    let place = bench.data.project(&setup.url).join("output_1");
    bench.supervisor.start_task(setup);
    ready(&bench);
    let mut held = std::fs::File::options().append(true).open(bench.data.slot(SLOT).join("kept")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writes = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        // Not without end, should nothing be taken for minutes.
        move || {
            for _ in (0..100_000_000).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                held.write_all(&[1]).unwrap();
            }
        }
    });
    go(&bench);
    let end = ended(&bench);
    let uid = std::fs::metadata(&place).map(|data| data.uid()).ok();
    is_over.store(true, Ordering::Relaxed);
    writes.join().unwrap();
    assert!(!uid.is_some_and(is_jobs), "{uid:?} {:?}", end.outputs);
    assert_eq!(end.outputs.is_empty(), uid.is_none(), "{:?}", end.outputs);
}

#[test]
fn r4_8_an_output_that_was_sent_early_counts_once() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let mut setup = bench.script(&format!(
        "{TO}; head -c 3000000 /dev/urandom > $to; : > boinc_ufr_out; {} {WAIT}; exit 3",
        asked()
    ));
    setup.files = vec![output(false)];
    bench.supervisor.start_task(setup);
    early(&bench, "output_1");
    go(&bench);
    let end = ended(&bench);
    assert!((3_000_000..4_000_000).contains(&end.disk_usage.0), "{}", end.disk_usage);
    assert!(bench.data.project(&project()).join("output_1").exists());
}

#[test]
fn r6_2_a_message_that_waits_to_be_taken_is_no_other_than_the_one_that_is_written_meanwhile() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let told = say(6, "<have_new_trickle_up/>\\n");
    // As an agent leaves the first that had no space for it.
    let setup = bench.script(&format!(
        "echo one > fallow_taking_trickle_up.xml; echo two > trickle_up.xml; {told} {WAIT}; exit 3"
    ));
    let place = bench.data.project(&setup.url);
    bench.supervisor.start_task(setup);
    let found = [1, 2].map(|_| {
        let name = bench.next("a message", |event| match event {
            Event::TrickleFound { name, .. } => Some(name),
            Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
            _ => None,
        });
        std::fs::read(place.join(name)).unwrap()
    });
    go(&bench);
    ended(&bench);
    assert_eq!(found, [b"one\n", b"two\n"]);
}

#[test]
fn r6_10_what_a_job_keeps_by_other_names_of_an_output_stays_and_the_output_is_a_copy() {
    if !is_root() {
        return;
    }
    let bench = bench(true);
    let told = say(6, "<have_new_trickle_up/>\\n");
    let mut setup = bench.script(&format!(
        "{TO}; echo right > $to; mkdir deep; ln $to deep/checkpoint; ln $to trickle_up.xml; : > ready; {WAIT}; \
         echo 0 > boinc_finish_called; {told}"
    ));
    setup.files = vec![output(false)];
    let place = bench.data.project(&setup.url);
    bench.supervisor.start_task(setup);
    ready(&bench);
    go(&bench);
    // Its last message is taken after its outputs, or just before its end.
    let mut message = None;
    let end = bench.next("an end", |event| match event {
        Event::TrickleFound { name, .. } => {
            message = Some(name);
            None
        }
        Event::TaskEnded { end, .. } => Some(end),
        Event::TaskStartFailed { reason, .. } => panic!("not started: {reason}"),
        _ => None,
    });
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert_eq!((end.outputs.len(), read(&place.join("output_1"))), (1, b"right\n".to_vec()));
    let taken = std::fs::metadata(place.join("output_1")).unwrap();
    assert_eq!((taken.uid(), taken.nlink()), (0, 1));
    assert_eq!(read(&bench.data.slot(SLOT).join("deep/checkpoint")), b"right\n");
    assert_eq!(read(&place.join(message.expect("a message"))), b"right\n");
}
