//! logind as python3-dbusmock has it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// logind on a bus of its own.
pub(crate) struct Logind {
    bus: Child,
    pub(crate) mock: Child,
    pub(crate) address: String,
}

impl Drop for Logind {
    fn drop(&mut self) {
        for child in [&mut self.mock, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Logind {
    pub(crate) fn start(dir: &Path) -> Option<Self> {
        let mut logind = Self::bus_alone(dir)?;
        logind.start_again();
        Some(logind)
    }

    /// A bus without it: something else that ends at once is in its place.
    pub(crate) fn bus_alone(dir: &Path) -> Option<Self> {
        let there =
            Command::new("/usr/bin/python3").args(["-c", "import dbusmock"]).stderr(Stdio::null()).status();
        let has_bus = Command::new("dbus-daemon").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) || !has_bus.is_ok_and(|status| status.success()) {
            assert!(
                std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(),
                "python3-dbusmock is missing: e2e/peers/install.sh installs it"
            );
            println!("skipped: python3-dbusmock is missing (e2e/peers/install.sh installs it)");
            return None;
        }
        let mut bus = Command::new("dbus-daemon");
        bus.args(["--session", "--nofork", "--print-address=1", "--address"]);
        bus.arg(format!("unix:path={}", dir.join("bus").display()));
        let mut bus = bus.stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let mock = Command::new("true").spawn().unwrap();
        Some(Self { bus, mock, address })
    }

    /// It is started again, and knows of no session.
    pub(crate) fn start_again(&mut self) {
        let _ = self.mock.wait();
        let mut mock = Command::new("/usr/bin/python3");
        mock.args(["-m", "dbusmock", "--system", "--template", "logind"]);
        mock.env("DBUS_SYSTEM_BUS_ADDRESS", &self.address).stdout(Stdio::null());
        self.mock = mock.spawn().unwrap();
        let begin = Instant::now();
        while self.tell("", "o.ListSessions(dbus_interface='org.freedesktop.login1.Manager')").is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "logind does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has an object do something. None where it could not.
    pub(crate) fn tell(&self, path: &str, what: &str) -> Option<()> {
        self.asks(path, what).stderr(Stdio::null()).status().unwrap().success().then_some(())
    }

    /// A program that has an object do something: `o` is the object, `m` the mock that it is.
    pub(crate) fn asks(&self, path: &str, what: &str) -> Command {
        let program = format!(
            "import dbus, sys
b = dbus.bus.BusConnection(sys.argv[1])
o = b.get_object('org.freedesktop.login1', '/org/freedesktop/login1{path}')
m = dbus.Interface(o, 'org.freedesktop.DBus.Mock')
{what}"
        );
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", &program, &self.address]);
        command
    }

    pub(crate) fn session(&self, properties: &str) {
        self.tell("/session/c1", &format!("m.UpdateProperties('', {properties})")).unwrap();
    }
}
