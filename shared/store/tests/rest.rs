//! A store at rest costs nothing. A test binary of its own, for the engine has threads for a whole process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: failures are panics, and the threads that they watch are real"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fallow_store::{Batch, SledStore, Store};

/// How often each thread of the engine has slept.
fn wake_ups() -> BTreeMap<String, u64> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|thread| thread.path());
    let named = threads.filter_map(|thread| {
        let name = std::fs::read_to_string(thread.join("comm")).ok()?;
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((name.trim().to_owned(), count.trim().parse().ok()?))
    });
    named.filter(|(name, _)| name.starts_with("sled-io-")).collect()
}

#[test]
fn r6_2_no_thread_of_a_store_at_rest_wakes_and_all_are_there_for_the_next_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    assert!(store.apply_durable(Batch::new().put("a", "1")).unwrap().is_applied());
    // What the batch has woken goes to sleep again, sooner or later: three seconds are to come in which
    // nothing wakes. With a look each second there are none.
    let end = Instant::now() + Duration::from_secs(60);
    // They name themselves when they first run.
    let mut before = wake_ups();
    while before.len() < 7 {
        assert!(Instant::now() < end, "{before:?}");
        std::thread::sleep(Duration::from_millis(20));
        before = wake_ups();
    }
    loop {
        std::thread::sleep(Duration::from_secs(3));
        let now = wake_ups();
        if now == before {
            break;
        }
        assert!(Instant::now() < end, "{before:?} became {now:?}");
        before = now;
    }
    assert!(store.apply_durable(Batch::new().put("b", "2")).unwrap().is_applied());
    assert!(wake_ups() != before, "somebody wrote it");
    assert_eq!(store.get(b"b").unwrap().unwrap(), b"2");
}
