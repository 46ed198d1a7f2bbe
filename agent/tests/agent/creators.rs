//! Directories under names that the agent takes away, in which somebody goes on creating files for as long as
//! he lives.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fallow_agent::supervise::Delivery;
use fallow_boinc::runtime::exit::Ended;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, open, openat};

use crate::daemon::{Daemon, command};
use crate::messages::say;
use crate::spinning;
use crate::supervision::{Bench, JOB, SLOT};
use crate::support::wait_for;

/// Names that each of them uses, again and again: more than can be removed while it waits for its turn at the
/// CPU.
const NAMES: u64 = 4_000;

/// Threads that create files in directories, wherever these are moved to, until this is dropped. In each
/// directory there are three of them, so that who removes what they make is never done with it.
struct Creators {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Creators {
    fn in_directories(dirs: &[&Path]) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for dir in dirs {
            let dir = Arc::new(open(*dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap());
            for thread in 0..3 {
                let (dir, end) = (Arc::clone(&dir), Arc::clone(&end));
                threads.push(std::thread::spawn(move || {
                    let mut numbers = (0..NAMES).cycle();
                    while !end.load(Ordering::Relaxed) {
                        let name = format!("{thread}.{}", numbers.next().unwrap());
                        let _ = openat(dir.as_fd(), name, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
                    }
                }));
            }
        }
        Self { end, threads }
    }
}

impl Drop for Creators {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Tells how names leave a directory.
struct Watch(OwnedFd);

impl Watch {
    fn of(dir: &Path) -> Self {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, dir, WatchFlags::MOVED_FROM | WatchFlags::DELETE).unwrap();
        Self(watch)
    }

    /// Waits until these names have left. They must have been moved away: what is removed in its place takes
    /// as long as somebody goes on filling it.
    fn were_moved(&self, mut names: BTreeSet<&str>) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        wait_for(&format!("the end of {names:?}"), || {
            while let Ok(event) = events.next() {
                let name = event.file_name().unwrap().to_str().unwrap();
                if names.remove(name) {
                    assert!(
                        event.events().contains(ReadFlags::MOVED_FROM),
                        "{name} was removed in its place"
                    );
                }
            }
            names.is_empty().then_some(())
        });
    }
}

#[test]
fn r6_10_a_job_that_goes_on_creating_files_under_the_agents_names_stops_no_look() {
    let mut bench = Bench::new();
    let slot = bench.data.slot(SLOT);
    let names = ["trickle_up.xml", "boinc_ufs_out"];
    let told = say(6, "<have_new_trickle_up/>\\n");
    let setup = bench.script(&format!(
        "mkdir {}; : > made; while [ ! -f go ]; do sleep 0.1; done; {told} sleep 1000",
        names.join(" ")
    ));
    bench.supervisor.start_task(setup);
    wait_for("the directories", || slot.join("made").exists().then_some(()));
    let paths = names.map(|name| slot.join(name));
    let watch = Watch::of(&slot);
    let creators = Creators::in_directories(&paths.each_ref().map(|path| path.as_path()));
    for path in &paths {
        wait_for("files", || path.join("0.9").exists().then_some(()));
    }
    std::fs::write(slot.join("go"), "").unwrap();
    bench.supervisor.deliver(JOB, SLOT, Delivery::UploadStatus { open_name: "out".into(), status: 0 });
    watch.were_moved(names.into());
    let told = || std::fs::read(slot.join("boinc_ufs_out")).is_ok_and(|text| text == b"<status>0</status>\n");
    wait_for("the status", || told().then_some(()));
    bench.sample("a look after that", |_| true);
    bench.supervisor.stop(Duration::ZERO);
    assert!(matches!(bench.ended().exit, Ended::Signal { number: 9, .. }));
    bench.supervisor.join();
    drop(creators);
}

#[test]
fn r6_10_a_project_in_whose_directory_files_go_on_appearing_is_detached_at_once() {
    let server = spinning::project("litter", "sleep 1000", "");
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let daemon = Daemon::start(dir);
    spinning::attach(dir, &server);
    let place = wait_for("the project's directory", || {
        std::fs::read_dir(dir.join("projects")).ok()?.flatten().next().map(|entry| entry.path())
    });
    std::fs::create_dir(place.join("litter")).unwrap();
    let creators = Creators::in_directories(&[&place.join("litter")]);
    wait_for("many files", || place.join(format!("litter/0.{}", NAMES - 1)).exists().then_some(()));
    let watch = Watch::of(&dir.join("projects"));
    let mut detach = command(dir, &["detach", &server.url("")]).spawn().unwrap();
    let status = wait_for("the detachment", || detach.try_wait().unwrap());
    assert!(status.success(), "{status}");
    watch.were_moved([place.file_name().unwrap().to_str().unwrap()].into());
    let mut ask = command(dir, &["status"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    assert!(wait_for("an answer after that", || ask.try_wait().unwrap()).success());
    drop((creators, daemon));
}
