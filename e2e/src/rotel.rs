//! rotel: a real OTLP collector that prints what it gets.
//!
//! It is found by `FALLOW_ROTEL`, in `PATH`, or where `e2e/peers/install.sh` puts it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::{PATIENCE, free_port, peers_required, wait_for};

/// A running collector that prints what it gets.
pub struct Rotel {
    process: Child,
    lines: mpsc::Receiver<String>,
    /// Where it listens for OTLP over gRPC.
    pub endpoint: String,
    _files: tempfile::TempDir,
}

impl Rotel {
    /// Starts it; `None`, said on standard output, where there is none and none is required.
    ///
    /// # Panics
    /// When none is there and `FALLOW_REQUIRE_PEERS` is 1, or it does not listen.
    pub fn start() -> Option<Self> {
        let Some(program) = find_rotel() else {
            let missing = "rotel is not installed (e2e/peers/install.sh installs it)";
            assert!(!peers_required(), "{missing}");
            println!("skipped: {missing}");
            return None;
        };
        let files = tempfile::tempdir().unwrap();
        let (grpc, http) = (free_port(), free_port());
        let mut process = Command::new(program)
            .arg("start")
            .args(["--debug-log", "traces", "--debug-log", "metrics", "--debug-log", "logs"])
            .args(["--debug-log-verbosity", "detailed", "--exporter", "blackhole"])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
            .arg("--pid-file")
            .arg(files.path().join("pid"))
            .arg("--log-file")
            .arg(files.path().join("log"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        forward(process.stdout.take().unwrap(), sender.clone());
        forward(process.stderr.take().unwrap(), sender);
        wait_for("rotel to listen", PATIENCE, || TcpStream::connect(("127.0.0.1", grpc)).ok());
        Some(Self { process, lines, endpoint: format!("http://127.0.0.1:{grpc}"), _files: files })
    }

    /// All it printed until `done` is content with it; ends it.
    ///
    /// # Panics
    /// When that takes longer than `at_most`.
    pub fn everything_until(&mut self, what: &str, at_most: Duration, done: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + at_most;
        let mut got = String::new();
        while !done(&got) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => got.push_str(&(line + "\n")),
                Err(_) => panic!("not within {at_most:?}: {what}; the collector got:\n{got}"),
            }
            // Whole batches at once: looking at each line would be quadratic.
            got.extend(self.lines.try_iter().map(|line| line + "\n"));
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        got.extend(self.lines.iter().map(|line| line + "\n"));
        got
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn forward(from: impl Read + Send + 'static, to: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
}

fn find_rotel() -> Option<PathBuf> {
    let given = std::env::var_os("FALLOW_ROTEL").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("rotel"));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let peers = std::env::var_os("FALLOW_PEERS").map(PathBuf::from);
    let installed = peers.or(cache.map(|cache| cache.join("fallow/peers"))).map(|peers| peers.join("rotel"));
    given.into_iter().chain(in_path).chain(installed).find(|program| program.is_file())
}
