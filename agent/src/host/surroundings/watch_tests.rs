//! From what the kernel tells to what the client hears. An event of the kernel is of the kind that a socket
//! has for urgent data, so that one stands in for its file.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fallow_domain::Bytes;
use fallow_policy::other_network::NetworkMoved;
use rustix::net::SendFlags;
use tokio::sync::mpsc;

use super::*;

const SOON: StdDuration = StdDuration::from_secs(30);

fn memory() -> LooksFor {
    LooksFor { memory: true, ..LooksFor::default() }
}

/// All in one directory.
fn places(dir: &Path) -> Places {
    Places {
        power: dir.join("power"),
        memory: dir.join("meminfo"),
        pressure: dir.join("pressure"),
        traffic: dir.join("dev"),
        interfaces: dir.join("net"),
        routes: dir.to_owned(),
        every: StdDuration::from_hours(1),
        mark: "none".to_owned(),
    }
}

async fn hear<T>(told: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(SOON, told.recv()).await.unwrap().unwrap()
}

/// Whoever looks, and what tells it of memory pressure. Of a thousand parts of the memory so many can be had.
struct Host {
    dir: tempfile::TempDir,
    wanted: channel::Sender<LooksFor>,
    kernel: TcpStream,
    opened: mpsc::UnboundedReceiver<()>,
    told: mpsc::UnboundedReceiver<Surroundings>,
}

impl Host {
    fn new(available: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kernel = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        kernel.set_read_timeout(Some(SOON)).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        receiver.set_nonblocking(true).unwrap();
        let file = Mutex::new(Some(receiver));
        let (say_opened, opened) = mpsc::unbounded_channel();
        let open = move |_: &Path| {
            let pressure = Pressure::of(file.lock().unwrap().take()?.into()).unwrap();
            say_opened.send(()).unwrap();
            Some(pressure)
        };
        let (say, told) = mpsc::unbounded_channel();
        let tell: Tell = Arc::new(move |event| match event {
            Event::SurroundingsSeen(seen) => say.send(seen).is_ok(),
            other => panic!("{other:?}"),
        });
        let (wanted, wants) = channel::channel(LooksFor::default());
        tokio::spawn(watch(places(dir.path()), tell, wants, (open, look, programs::running)));
        let host = Self { dir, wanted, kernel, opened, told };
        host.has(available);
        host
    }

    fn has(&self, available: u32) {
        let text = format!("MemTotal: 1000 kB\nMemAvailable: {available} kB\n");
        std::fs::write(self.dir.path().join("meminfo"), text).unwrap();
    }

    /// The kernel tells that programs wait for memory.
    fn presses(&self) {
        rustix::net::send(&self.kernel, b"!", SendFlags::OOB).unwrap();
    }

    async fn opens(&mut self) {
        tokio::time::timeout(SOON, self.opened.recv()).await.unwrap().unwrap();
    }

    async fn hears(&mut self) -> Surroundings {
        hear(&mut self.told).await
    }
}

#[tokio::test]
async fn r6_4_memory_is_told_to_be_short_whenever_programs_wait_for_it_while_little_could_be_had() {
    let mut host = Host::new(200);
    host.wanted.send_replace(memory());
    host.opens().await;
    for _ in 0..2 {
        host.presses();
        assert!(host.hears().await.memory_short);
    }
    // Where there is plenty, somebody waits in a control group of his own: what was said is taken back.
    host.has(500);
    host.presses();
    assert!(!host.hears().await.memory_short);
}

#[tokio::test]
async fn r6_4_the_kernel_tells_nothing_more_once_no_task_could_leave_memory() {
    let mut host = Host::new(500);
    host.wanted.send_replace(memory());
    host.opens().await;
    host.wanted.send_replace(LooksFor::default());
    let mut kernel = host.kernel.try_clone().unwrap();
    let end = tokio::task::spawn_blocking(move || kernel.read(&mut [0])).await.unwrap();
    assert!(matches!(end, Ok(0)), "its file is still open: {end:?}");
}

#[tokio::test]
async fn r6_4_where_the_kernel_tells_no_more_of_memory_it_is_looked_by_itself_again() {
    let mut host = Host::new(500);
    host.wanted.send_replace(memory());
    host.opens().await;
    host.has(200);
    host.presses();
    assert!(host.hears().await.memory_short);
    host.has(500);
    host.presses();
    // The next look would be in hours.
    assert!(!host.hears().await.memory_short);
    host.has(50);
    let Host { dir: _dir, wanted: _wanted, kernel, mut told, .. } = host;
    // Closed without a word: what waits hears of an end.
    rustix::net::sockopt::set_socket_linger(&kernel, Some(StdDuration::ZERO)).unwrap();
    drop(kernel);
    assert!(hear(&mut told).await.memory_short);
}

#[tokio::test]
async fn r6_4_a_look_that_fails_is_made_again() {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    let fails_once: Look = |places, wanted, is_pressed| {
        assert!(HAS_FAILED.swap(true, Ordering::Relaxed), "this look fails");
        look(places, wanted, is_pressed)
    };
    let dir = tempfile::tempdir().unwrap();
    let (say, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |event| say.send(event).is_ok());
    let wanted = LooksFor { battery: true, pace: LookPace::Often, number: 1, ..LooksFor::default() };
    let (_wanted, wants) = channel::channel(wanted);
    let places = Places { every: StdDuration::from_millis(1), ..places(dir.path()) };
    tokio::spawn(watch(places, tell, wants, (|_: &Path| None, fails_once, programs::running)));
    let answer = Event::SurroundingsSeen(Surroundings { number: 1, ..Surroundings::default() });
    assert_eq!(format!("{:?}", hear(&mut told).await), format!("{answer:?}"));
}

#[tokio::test]
async fn r6_4_a_question_is_not_answered_before_it_is_known_which_programs_run() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    let scan: Scan = |_, _, _| ENDS.load(Ordering::Relaxed).then_some([None, None]);
    let dir = tempfile::tempdir().unwrap();
    let (say, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |event| say.send(event).is_ok());
    let programs = ["game".to_owned()].into();
    let wanted =
        LooksFor { battery: true, programs, pace: LookPace::Never, number: 1, ..LooksFor::default() };
    let (_wanted, wants) = channel::channel(wanted);
    let power = dir.path().join("power/BAT0");
    let places = Places { every: StdDuration::from_millis(1), ..places(dir.path()) };
    tokio::spawn(watch(places, tell, wants, (|_: &Path| None, look, scan)));
    std::fs::create_dir_all(&power).unwrap();
    for (name, value) in [("type", "Battery"), ("status", "Discharging")] {
        std::fs::write(power.join(name), value).unwrap();
    }
    let mut next = async || match hear(&mut told).await {
        Event::SurroundingsSeen(seen) => (seen.number, seen.on_battery),
        event => panic!("{event:?}"),
    };
    assert_eq!(next().await, (0, true), "what else is seen is told");
    ENDS.store(true, Ordering::Relaxed);
    assert_eq!(next().await, (1, true));
}

#[tokio::test]
async fn r6_4_a_question_that_jobs_wait_for_is_answered_although_nothing_is_new() {
    let mut host = Host::new(500);
    for number in [1, 2] {
        let wanted = LooksFor { battery: true, pace: LookPace::Often, number, ..LooksFor::default() };
        host.wanted.send_replace(wanted);
        assert_eq!(host.hears().await, Surroundings { number, ..Surroundings::default() });
    }
}

#[test]
fn r6_4_a_look_comes_soon_only_where_something_changes_by_itself_that_jobs_depend_on() {
    let every = StdDuration::from_secs(10);
    let minute = StdDuration::from_mins(1);
    let with = |pace, change: fn(&mut LooksFor)| {
        let mut wanted = LooksFor { pace, ..LooksFor::default() };
        change(&mut wanted);
        wanted
    };
    let (often, seldom, never) = (LookPace::Often, LookPace::Seldom, LookPace::Never);
    let programs: fn(&mut LooksFor) = |wanted| wanted.programs = ["game".to_owned()].into();
    let table = [
        // What is wanted; whether there is a battery, and whether the kernel tells of memory.
        (with(often, |wanted| wanted.battery = true), true, false, every),
        (with(seldom, |wanted| wanted.battery = true), true, false, minute),
        (with(often, |wanted| wanted.battery = true), false, false, SELDOM),
        (with(often, programs), false, false, every),
        (with(seldom, programs), false, false, minute),
        (with(often, |wanted| wanted.load = true), false, false, every),
        (with(often, |wanted| wanted.wifi = true), false, false, every),
        (with(seldom, |wanted| wanted.wifi = true), false, false, minute),
        (with(never, |wanted| wanted.memory = true), true, false, every),
        (with(never, |wanted| wanted.memory = true), true, true, minute),
        (with(often, programs), false, true, every),
        (with(often, |_| ()), true, true, SELDOM),
    ];
    for (wanted, has_battery, is_told_of_memory, expected) in table {
        let found = nap(&wanted, every, has_battery, is_told_of_memory);
        assert_eq!(found, expected, "{wanted:?} {has_battery} {is_told_of_memory}");
    }
}

/// A machine whose network can be looked at as long as it is wanted.
struct Network {
    dir: tempfile::TempDir,
    wanted: channel::Sender<bool>,
    told: mpsc::UnboundedReceiver<NetworkMoved>,
}

impl Network {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (say, told) = mpsc::unbounded_channel();
        let tell: Tell = Arc::new(move |event| match event {
            Event::NetworkMoved(moved) => say.send(moved).is_ok(),
            other => panic!("{other:?}"),
        });
        let counters = Counters { traffic: dir.path().join("dev"), interfaces: dir.path().join("net") };
        let (wanted, wants) = channel::channel(false);
        let every = StdDuration::from_secs(10);
        tokio::spawn(network::watch(counters, every, Arc::new(|| Bytes(1_000_000_000)), tell, wants));
        Self { dir, wanted, told }
    }

    fn counts(&self, received: u64) {
        let text = format!("eth0: {received} 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n");
        std::fs::write(self.dir.path().join("dev"), text).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn r6_4_what_was_moved_over_the_network_is_told_beside_the_agents_own_whenever_that_is_wanted() {
    let mut network = Network::new();
    for received in [100, 200] {
        network.counts(received);
        network.wanted.send_replace(true);
        let moved = hear(&mut network.told).await;
        assert_eq!(
            (moved.all, moved.interfaces),
            (Bytes(received + 20), BTreeSet::from(["eth0".to_owned()]))
        );
        // What connections of other tests hold is little beside what is counted.
        assert!(moved.ours > Bytes(500_000_000), "{:?}", moved.ours);
        network.wanted.send_replace(false);
    }
}

#[tokio::test(start_paused = true)]
async fn r6_4_the_second_look_at_the_network_comes_soon_and_all_others_every_five_seconds() {
    let mut network = Network::new();
    network.counts(100);
    network.wanted.send_replace(true);
    let began = tokio::time::Instant::now();
    for after in [0, 2, 7, 12] {
        hear(&mut network.told).await;
        assert_eq!(began.elapsed().as_secs(), after);
    }
}

#[tokio::test]
async fn r6_4_looks_at_the_network_make_none_at_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dev"), "eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n").unwrap();
    let (say, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |event| say.send(event).is_ok());
    let watcher = Watcher::start(places(dir.path()), Arc::new(|| Bytes(0)), tell);
    let wanted = |network| LooksFor { network, load: true, ..LooksFor::default() };
    watcher.attend(wanted(false));
    assert!(matches!(hear(&mut told).await, Event::SurroundingsSeen(_)));
    for _ in 0..3 {
        watcher.attend(wanted(true));
        let heard = hear(&mut told).await;
        assert!(matches!(heard, Event::NetworkMoved(_)), "{heard:?}");
        watcher.attend(wanted(false));
    }
}
