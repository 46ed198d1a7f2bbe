//! A real compositor without a screen (KWin), and somebody at its keyboard.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use wayland_client::globals::{GlobalListContents, registry_queue_init};
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_seat::WlSeat;
use wayland_client::{Connection, Dispatch, EventQueue, QueueHandle, delegate_noop};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notification_v1::{
    self, ExtIdleNotificationV1,
};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notifier_v1::ExtIdleNotifierV1;
use wayland_protocols_plasma::fake_input::client::org_kde_kwin_fake_input::OrgKdeKwinFakeInput;

use crate::support::wait_for;

/// A compositor without a screen, and somebody at its keyboard.
pub(super) struct Compositor {
    process: Child,
    dir: tempfile::TempDir,
    keyboard: Option<Mutex<Keyboard>>,
}

struct Keyboard {
    queue: EventQueue<Idle>,
    fake: OrgKdeKwinFakeInput,
    notifier: ExtIdleNotifierV1,
    seat: WlSeat,
    idle: Idle,
}

/// Whether nobody has used it for a second and a half, by its own word.
#[derive(Default)]
struct Idle(bool);

impl Drop for Compositor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SOCKET: &str = "wayland-test";

impl Compositor {
    pub(super) fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        // The installed one has a capability that containers do not give; a copy has none.
        let program = dir.path().join("kwin_wayland");
        if std::fs::copy("/usr/bin/kwin_wayland", &program).is_err() {
            let missing = "kwin_wayland is missing: e2e/peers/install.sh installs it";
            assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(), "{missing}");
            println!("skipped: {missing}");
            return None;
        }
        let mut command = Command::new(&program);
        command.args(["--virtual", "--width", "64", "--height", "64", "--no-lockscreen", "--socket", SOCKET]);
        command.env("XDG_RUNTIME_DIR", dir.path()).env("HOME", dir.path()).env_remove("WAYLAND_DISPLAY");
        // Keys from others than a keyboard; and it draws without a graphics card.
        command.env("KWIN_WAYLAND_NO_PERMISSION_CHECKS", "1").env("LIBGL_ALWAYS_SOFTWARE", "1");
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut compositor = Self { process, dir, keyboard: None };
        let keyboard = wait_for("the compositor", || Keyboard::of(&compositor.socket()));
        compositor.keyboard = Some(Mutex::new(keyboard));
        Some(compositor)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// A key goes down and up.
    pub(super) fn key(&self) {
        let keyboard = &mut *self.keyboard.as_ref().unwrap().lock().unwrap();
        for state in [1, 0] {
            keyboard.fake.keyboard_key(30, state);
        }
        keyboard.queue.roundtrip(&mut keyboard.idle).unwrap();
    }

    /// Waits until nobody has used it for a second and a half, by its own word.
    pub(super) fn wait_for_pause(&self) {
        let Keyboard { queue, notifier, seat, idle, .. } =
            &mut *self.keyboard.as_ref().unwrap().lock().unwrap();
        // Asked anew each time: what it is asked while it starts gets lost.
        let asked = notifier.get_idle_notification(1_500, seat, &queue.handle(), ());
        idle.0 = false;
        wait_for("a pause", || {
            queue.roundtrip(idle).unwrap();
            idle.0.then_some(())
        });
        asked.destroy();
    }
}

impl Keyboard {
    fn of(socket: &Path) -> Option<Self> {
        let connection = Connection::from_socket(UnixStream::connect(socket).ok()?).ok()?;
        let (globals, mut queue) = registry_queue_init::<Idle>(&connection).ok()?;
        let handle = queue.handle();
        let fake: OrgKdeKwinFakeInput = globals.bind(&handle, 4..=4, ()).ok()?;
        fake.authenticate("test".to_owned(), "somebody types".to_owned());
        let seat: WlSeat = globals.bind(&handle, 1..=1, ()).ok()?;
        let notifier: ExtIdleNotifierV1 = globals.bind(&handle, 1..=1, ()).ok()?;
        let mut idle = Idle::default();
        queue.roundtrip(&mut idle).ok()?;
        Some(Self { queue, fake, notifier, seat, idle })
    }
}

impl Dispatch<ExtIdleNotificationV1, ()> for Idle {
    fn event(
        idle: &mut Self,
        _: &ExtIdleNotificationV1,
        event: ext_idle_notification_v1::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        idle.0 = matches!(event, ext_idle_notification_v1::Event::Idled);
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Idle {
    fn event(
        _: &mut Self,
        _: &WlRegistry,
        _: wl_registry::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
    }
}

delegate_noop!(Idle: ignore WlSeat);
delegate_noop!(Idle: ExtIdleNotifierV1);
delegate_noop!(Idle: OrgKdeKwinFakeInput);
