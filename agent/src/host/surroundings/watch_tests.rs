//! From what the kernel tells to what the client hears. An event of the kernel is of the kind that a socket
//! has for urgent data, so that one stands in for its file.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use rustix::net::SendFlags;
use tokio::sync::mpsc;

use super::*;

const SOON: StdDuration = StdDuration::from_secs(30);

fn memory() -> LooksFor {
    LooksFor { memory: true, ..LooksFor::default() }
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
        let places = Places {
            power: dir.path().join("power"),
            memory: dir.path().join("meminfo"),
            pressure: dir.path().join("pressure"),
            traffic: dir.path().join("dev"),
            interfaces: dir.path().join("net"),
            every: StdDuration::from_hours(1),
            mark: "none".to_owned(),
        };
        let (wanted, wants) = channel::channel(LooksFor::default());
        tokio::spawn(watch(places, Arc::new(|| Bytes(70)), tell, wants, open));
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
        tokio::time::timeout(SOON, self.told.recv()).await.unwrap().unwrap()
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
async fn r6_4_what_was_moved_over_the_network_is_told_beside_the_agents_own_as_long_as_that_is_wanted() {
    let mut host = Host::new(500);
    let counters = "eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n";
    std::fs::write(host.dir.path().join("dev"), counters).unwrap();
    host.wanted.send_replace(LooksFor { network: true, ..LooksFor::default() });
    let moved = NetworkMoved { all: Bytes(120), ours: Bytes(70) };
    assert_eq!(host.hears().await.network_moved, Some(moved));
    host.wanted.send_replace(LooksFor::default());
    assert_eq!(host.hears().await.network_moved, None);
}
