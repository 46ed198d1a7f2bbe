//! A real X server without a screen (Xvfb), and keys that it takes for real ones (XTEST).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use x11rb::connection::Connection;
use x11rb::protocol::sync::ConnectionExt as _;
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

/// A server without a screen, and somebody at its keyboard.
pub(crate) struct Server {
    process: Child,
    pub(crate) keyboard: RustConnection,
    /// Its name, such as `:1`.
    pub(crate) display: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub(crate) fn start() -> Option<Self> {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "64x64x8", "-nolisten", "tcp", "-noreset"]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut process) = process else {
            assert!(
                std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(),
                "Xvfb is missing: e2e/peers/install.sh installs it"
            );
            println!("skipped: Xvfb is missing (e2e/peers/install.sh installs it)");
            return None;
        };
        let mut number = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let (keyboard, _) = RustConnection::connect(Some(&display)).unwrap();
        keyboard.sync_initialize(3, 1).unwrap().reply().unwrap();
        Some(Self { process, keyboard, display })
    }

    /// A key goes down and up.
    pub(crate) fn key(&self) {
        for what in [2, 3] {
            self.keyboard.xtest_fake_input(what, 38, 0, x11rb::NONE, 0, 0, 0).unwrap();
        }
        self.keyboard.flush().unwrap();
    }
}
