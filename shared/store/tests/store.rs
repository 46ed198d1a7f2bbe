//! What the store promises, tried on real directories and real processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics, and the processes they wait for are real"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fallow_store::{Batch, BatchResult, KeyRange, SledStore, Store, StoreError};
use proptest::prelude::*;

fn open(dir: &Path) -> SledStore {
    SledStore::open(dir).unwrap()
}

fn put(store: &dyn Store, key: &str, value: &str) -> u64 {
    match store.apply(Batch::new().put(key, value)).unwrap() {
        BatchResult::Applied { revision } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

#[test]
fn what_was_written_is_there_after_reopening_in_key_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for key in ["job/2", "job/1", "host/9", "job/10"] {
        put(&store, key, key);
    }
    drop(store);
    let store = open(dir.path());
    let keys: Vec<Vec<u8>> = store.scan_prefix(b"job/").unwrap().into_iter().map(|entry| entry.0).collect();
    assert_eq!(keys, [&b"job/1"[..], b"job/10", b"job/2"]);
    assert_eq!(store.get(b"host/9").unwrap().unwrap(), b"host/9");
    assert_eq!(store.get(b"host/8").unwrap(), None);
}

#[test]
fn a_scan_goes_on_where_the_last_page_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..25 {
        put(&store, &format!("k{number:02}"), "v");
    }
    let (mut range, mut seen) = (KeyRange::prefix(b"k"), 0);
    loop {
        let page = store.scan(&range, 10).unwrap();
        let Some((last, _)) = page.last() else { break };
        seen += page.len();
        range = range.after(last);
    }
    assert_eq!(seen, 25);
    assert!(store.scan(&KeyRange::between("k20", "k10"), 10).unwrap().is_empty());
}

#[test]
fn a_batch_whose_precondition_fails_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, "owner", "a");
    let taken = Batch::new().put("other", "x").require_absent("owner");
    assert_eq!(
        store.apply(taken).unwrap(),
        BatchResult::Conflict { key: b"owner".to_vec(), found: Some(b"a".to_vec()) }
    );
    let changed = Batch::new().put("owner", "c").require_value("owner", "b");
    assert!(!store.apply_durable(changed).unwrap().is_applied());
    assert_eq!(store.get(b"other").unwrap(), None);
    let right = Batch::new().put("owner", "b").require_value("owner", "a").require_absent("other");
    assert!(store.apply(right).unwrap().is_applied());
    assert_eq!(store.get(b"owner").unwrap().unwrap(), b"b");
}

#[test]
fn writers_in_many_threads_never_lose_an_increment() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(open(dir.path()));
    put(&*store, "n", "0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| increment(&*store)));
        }
    });
    assert_eq!(store.get(b"n").unwrap().unwrap(), b"200");
}

fn increment(store: &dyn Store) {
    loop {
        let old = String::from_utf8(store.get(b"n").unwrap().unwrap()).unwrap();
        let new = (old.parse::<u32>().unwrap() + 1).to_string();
        if store.apply(Batch::new().require_value("n", old).put("n", new)).unwrap().is_applied() {
            return;
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    PutIfAbsent(u8, Vec<u8>),
    PutPair(u8, u8, Vec<u8>),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        4 => (0..12u8, value()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (0..12u8).prop_map(Step::Delete),
        2 => (0..12u8, value()).prop_map(|(key, value)| Step::PutIfAbsent(key, value)),
        2 => (0..12u8, 0..12u8, value()).prop_map(|(a, b, value)| Step::PutPair(a, b, value)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..40)
}

#[test]
fn a_store_that_was_just_closed_opens_although_its_engine_is_still_about_to_go() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), "key", "value");
    let path = dir.path().join("sled/db").canonicalize().unwrap();
    let file = fs::File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // The engine is about to go until whoever opens the store has opened its file too.
    let is_open = move || {
        let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let here = all.filter(|entry| fs::read_link(entry.path()).is_ok_and(|leads_to| leads_to == path));
        here.count() > 1
    };
    let holder = std::thread::spawn(move || {
        while !is_open() {
            std::thread::yield_now();
        }
        drop(file);
    });
    assert_eq!(open(dir.path()).get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    holder.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_behaves_as_an_ordered_map(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    prop_assert!(store.apply(Batch::new().put([key], value.clone())).unwrap().is_applied());
                    model.insert(vec![key], value);
                }
                Step::Delete(key) => {
                    prop_assert!(store.apply(Batch::new().delete([key])).unwrap().is_applied());
                    model.remove(&vec![key]);
                }
                Step::PutIfAbsent(key, value) => {
                    let batch = Batch::new().require_absent([key]).put([key], value.clone());
                    let free = !model.contains_key(&vec![key]);
                    prop_assert_eq!(store.apply(batch).unwrap().is_applied(), free);
                    model.entry(vec![key]).or_insert(value);
                }
                Step::PutPair(a, b, value) => {
                    let batch = Batch::new().put([a], value.clone()).put([b], value.clone());
                    prop_assert!(store.apply(batch).unwrap().is_applied());
                    model.insert(vec![a], value.clone());
                    model.insert(vec![b], value);
                }
                Step::Reopen => {
                    drop(store);
                    store = open(dir.path());
                }
            }
            let all: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(store.scan(&KeyRange::all(), usize::MAX).unwrap(), all);
        }
    }
}

// ---- Other processes. The test binary starts itself again; the variables say as what.

const CHILD_DIR: &str = "FALLOW_STORE_TEST_DIR";
const CHILD_SMALL: &str = "FALLOW_STORE_TEST_SMALL_VOLUME";
const CHILD_HOLDS: &str = "FALLOW_STORE_TEST_HOLDS";

/// Run as a child only: writes batches of ten keys for ever, saying the number of each that was acknowledged.
#[test]
fn child_that_writes_until_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = SledStore::open(dir).unwrap();
    if std::env::var_os(CHILD_HOLDS).is_some() {
        println!("\nacknowledged 0");
        // Ends when the parent closes our standard input, or kills us.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let filler = "x".repeat(500);
    for round in last_round(&store) + 1.. {
        let mut batch = Batch::new();
        for slot in 0..10 {
            batch.add_put(format!("slot/{slot}"), format!("{round} {filler}"));
        }
        let durable = round % 16 == 0;
        let outcome = if durable { store.apply_durable(batch) } else { store.apply(batch) };
        assert!(outcome.unwrap().is_applied());
        println!("\nacknowledged {round}");
    }
}

fn child(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_that_writes_until_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The round all ten slots are of; panics if they differ, which is a batch torn apart.
fn last_round(store: &dyn Store) -> u64 {
    let rounds: Vec<u64> = store
        .scan_prefix(b"slot/")
        .unwrap()
        .iter()
        .map(|(_, value)| std::str::from_utf8(value).unwrap().split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(rounds.is_empty() || rounds.len() == 10, "a part of a batch: {rounds:?}");
    assert!(rounds.windows(2).all(|pair| pair[0] == pair[1]), "a part of a batch: {rounds:?}");
    rounds.first().copied().unwrap_or(0)
}

#[test]
fn r6_9_a_killed_process_leaves_whole_batches_and_all_that_were_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for kill in 0..8 {
        let mut process = child(dir.path()).spawn().unwrap();
        let mut acknowledged = before;
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // Killed at another place of its work each time, far enough on for the engine to reuse its segments.
        while acknowledged < before + 40 + 37 * kill {
            let line = lines.next().unwrap().unwrap();
            if let Some(round) = line.strip_prefix("acknowledged ") {
                acknowledged = round.parse().unwrap();
            }
        }
        process.kill().unwrap();
        // At once: the dying process may still hold its lock for a moment.
        let store = open(dir.path());
        process.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(round) = line.strip_prefix("acknowledged ").and_then(|round| round.parse().ok()) {
                acknowledged = round;
            }
        }
        let found = last_round(&store);
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "acknowledged {acknowledged}, found {found}"
        );
        before = found;
    }
}

#[test]
fn r6_9_a_second_process_is_refused_with_the_first_ones_id() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = child(dir.path()).env(CHILD_HOLDS, "1").spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("acknowledged")));
    let error = SledStore::open(dir.path()).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { holder: Some(pid), .. } if *pid == holder.id()), "{error}");
    assert!(error.to_string().contains(&format!("process {}", holder.id())));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    drop(open(dir.path()));
}

#[test]
fn a_second_store_in_the_same_process_is_refused_too() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    assert!(matches!(SledStore::open(dir.path()), Err(StoreError::InUse { .. })));
    drop(first);
    drop(open(dir.path()));
}

#[test]
fn a_place_that_cannot_be_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for place in [file.join("store"), file] {
        let error = SledStore::open(&place).unwrap_err();
        assert!(error.to_string().contains(&place.display().to_string()), "{error}");
    }
}

/// Run as a child only, in a mount namespace of its own with a small volume on `FALLOW_STORE_TEST_DIR`.
#[test]
fn child_on_a_small_volume() {
    let Ok(dir) = std::env::var(CHILD_SMALL) else { return };
    let volume = Path::new(&dir);
    let store = open(&volume.join("store"));
    let value = "v".repeat(10_000);
    let mut written = 0;
    let mut of_files = None;
    let error = loop {
        if of_files.is_none() && !fallow_store::leaves_enough(volume, 20_000, 0).unwrap() {
            of_files = Some(written);
        }
        match store.apply(Batch::new().yielding().put(format!("k{written:05}"), value.as_str())) {
            Ok(outcome) => assert!(outcome.is_applied()),
            Err(error) => break error,
        }
        written += 1;
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    // Files end before: they are in the way of nobody's news.
    assert!(of_files.is_some_and(|of_files| of_files < written - 10), "{of_files:?} of {written}");
    // Whoever is in charge still has room, for some dozens of changes.
    let before = written;
    let error = loop {
        match store.apply(Batch::new().put(format!("k{written:05}"), value.as_str())) {
            Ok(outcome) => assert!(outcome.is_applied()),
            Err(error) => break error,
        }
        written += 1;
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(before > 100 && written >= before + 20, "{before} {written}");
    // What is there can still be read, and the store goes on once there is space.
    assert_eq!(store.scan_prefix(b"k").unwrap().len(), written);
    let bigger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(volume).status().unwrap();
    assert!(bigger.success());
    put(&store, "after", "space");
    drop(store);
    let store = open(&volume.join("store"));
    assert_eq!(store.scan_prefix(b"k").unwrap().len(), written);
    assert_eq!(store.get(b"after").unwrap().unwrap(), b"space");
    drop(store);
    // The same volume, mounted read-only.
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(volume).status().unwrap().success());
    for place in ["store", "another"] {
        let error = SledStore::open(volume.join(place)).unwrap_err();
        assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    }
    println!("\nacknowledged all");
}

#[test]
fn r4_12_a_full_volume_is_an_ordinary_error_and_the_store_goes_on_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=8m none "$1" && shift && exec "$@""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_on_a_small_volume", "--nocapture", "--test-threads=1"])
        .env(CHILD_SMALL, dir.path())
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no `unshare` to make a small volume with");
        return;
    };
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !said.contains("running 1 test") {
        println!("skipped: no small volume can be mounted here: {log}");
        return;
    }
    assert!(said.contains("acknowledged all"), "{said}{log}");
}

/// As a process leaves it that is killed while it opens the store.
#[test]
fn r6_9_a_summary_of_the_log_that_a_killed_process_left_unfinished_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        put(&open(dir.path()), &format!("k{round}"), "v");
    }
    let engine = dir.path().join("sled");
    let summaries: Vec<String> =
        files(dir.path()).into_iter().filter(|name| name.contains("snap.")).collect();
    let [summary] = &summaries[..] else { panic!("{summaries:?}") };
    let whole = fs::read(dir.path().join(summary)).unwrap();
    for length in [0, 1, 12, whole.len() / 2, whole.len() - 1, whole.len()] {
        let unfinished = engine.join("snap.00000000000FFFFF.generating");
        fs::write(&unfinished, &whole[..length]).unwrap();
        let store = SledStore::open(dir.path()).unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        assert_eq!(store.scan_prefix(b"k").unwrap().len(), 3, "{length} bytes");
        assert!(!unfinished.exists());
    }
}

/// Whatever is done to its files, a store opens with exactly what was written, or says that it is
/// corrupted.
#[test]
fn r6_9_damage_is_an_error_and_never_a_panic_or_a_loss_unsaid() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = open(&whole);
    for number in 0..300 {
        put(&store, &format!("key/{:03}", number % 100), &format!("{number} {}", "v".repeat(200)));
    }
    let expected = store.scan(&KeyRange::all(), usize::MAX).unwrap();
    drop(store);
    let (mut sound, mut refused) = (0, 0);
    for file in files(&whole) {
        let length = fs::metadata(whole.join(&file)).unwrap().len() as usize;
        for damage in damages(length) {
            let copy = dir.path().join("copy");
            copy_all(&whole, &copy);
            let mut bytes = fs::read(copy.join(&file)).unwrap();
            damage.apply(&mut bytes);
            fs::write(copy.join(&file), bytes).unwrap();
            match SledStore::open(&copy).and_then(|store| store.scan(&KeyRange::all(), usize::MAX)) {
                Ok(found) => {
                    assert!(found == expected, "{damage:?} in {file} went unnoticed");
                    sound += 1;
                }
                Err(StoreError::Corrupted { .. }) => refused += 1,
                Err(other) => panic!("{damage:?} in {file}: {other}"),
            }
            fs::remove_dir_all(&copy).unwrap();
        }
    }
    assert!(refused > 20, "{refused} refused, {sound} sound");
}

#[derive(Debug)]
enum Damage {
    Flip(usize),
    Zero(usize, usize),
    Cut(usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Flip(place) => bytes[place] ^= 0x41,
            Self::Zero(from, to) => bytes[from..to].fill(0),
            Self::Cut(length) => bytes.truncate(length),
        }
    }
}

fn damages(length: usize) -> Vec<Damage> {
    if length == 0 {
        return Vec::new();
    }
    let spread = |parts: usize| (0..parts).map(move |part| part * (length - 1) / parts.max(2) + part.min(1));
    let mut out: Vec<Damage> = spread(24).map(|place| Damage::Flip(place.min(length - 1))).collect();
    out.extend(spread(6).map(|from| Damage::Zero(from.min(length - 1), (from + 4096).min(length))));
    out.extend(spread(6).map(Damage::Cut));
    out
}

fn files(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = ["witness".to_owned()].into();
    for entry in fs::read_dir(root.join("sled")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            names.push(format!("sled/{}", entry.file_name().to_str().unwrap()));
        }
    }
    names.sort();
    names
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn damaged_settings_of_the_engine_are_an_error_and_never_overlooked() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), "k", "v");
    let path = dir.path().join("sled/conf");
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[14] ^= 1;
    let mut crc = whole.clone();
    *crc.last_mut().unwrap() ^= 0x80;
    for damaged in [flipped, crc, whole[..4].to_vec(), Vec::new()] {
        fs::write(&path, &damaged).unwrap();
        let Err(error) = SledStore::open(dir.path()) else { panic!("it is damaged") };
        assert!(
            matches!(error, StoreError::Corrupted { .. }) && error.to_string().contains("sled/conf"),
            "{error}"
        );
    }
    fs::remove_file(&path).unwrap();
    assert!(SledStore::open(dir.path()).is_err());
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(dir.path()).get(b"k").unwrap().unwrap(), b"v");
}
