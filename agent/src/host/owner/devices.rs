//! Input devices: `/dev/input/event*`, as the kernel's `evdev` interface has them.
//!
//! What counts is a key or button, a relative movement (a mouse), and a touch. Not switches (a lid), not
//! sensors of movement or light, which are never still. What is typed is neither kept nor looked at.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use fallow_domain::printable;
use rustix::fs::inotify;

use crate::sys;

pub(super) const NAME: &str = "input devices";

/// Most devices that are listened to.
const DEVICES_MAX: usize = 256;
/// How soon the list is read again after it has changed.
const SETTLED: StdDuration = StdDuration::from_secs(1);
/// How often it is read where nothing tells of changes.
const UNWATCHED: StdDuration = StdDuration::from_secs(60);
/// A device that has said something else than input is not listened to for so long.
const REST: StdDuration = StdDuration::from_millis(50);
/// Most events that are taken at once; the kernel keeps fewer of one device.
const TAKEN_MAX: usize = 4096;

/// Types of events, and codes (`linux/input-event-codes.h`).
const EV_KEY: u16 = 1;
const EV_REL: u16 = 2;
const EV_ABS: u16 = 3;
const BTN_TOUCH: usize = 0x14a;

/// An event: the time, then type, code and value.
const EVENT_LEN: usize = size_of::<libc::timeval>() + 8;

/// What a device had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Input,
    /// Nothing, or nothing that counts.
    Nothing,
}

/// All that can be read.
#[derive(Debug)]
pub(super) struct Devices {
    dir: PathBuf,
    /// Tells of devices that come and go.
    changes: Option<OwnedFd>,
    open: BTreeMap<PathBuf, Device>,
    /// Why one of the others cannot be read.
    trouble: Option<String>,
    others: usize,
    rescan_at: Instant,
}

#[derive(Debug)]
struct Device {
    file: File,
    /// It has a surface that is touched.
    is_touched: bool,
    rests_until: Option<Instant>,
}

impl Devices {
    pub(super) fn new(dir: PathBuf) -> Self {
        let (open, rescan_at) = (BTreeMap::new(), Instant::now());
        Self { dir, changes: None, open, trouble: None, others: 0, rescan_at }
    }

    /// When there is something to be done, or one is to be listened to again.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let rest = self.open.values().filter_map(|device| device.rests_until);
        rest.filter(|until| now < *until).fold(self.rescan_at, Instant::min)
    }

    /// Reads the list again if that is due. True if it was.
    pub(super) fn rescan_if_due(&mut self, now: Instant) -> bool {
        if now < self.rescan_at {
            return false;
        }
        if self.changes.is_none() {
            self.changes = watch(&self.dir).ok();
        }
        let period = if self.changes.is_some() { StdDuration::from_secs(3600) } else { UNWATCHED };
        self.rescan_at = now + period;
        self.rescan();
        true
    }

    fn rescan(&mut self) {
        let is_device =
            |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"event"));
        let listed: Vec<PathBuf> = match fs::read_dir(&self.dir) {
            Ok(entries) => {
                let paths = entries.flatten().map(|entry| entry.path());
                paths.filter(|path| is_device(path)).take(DEVICES_MAX).collect()
            }
            Err(error) => {
                self.trouble = Some(format!("{}: {error}", self.dir.display()));
                Vec::new()
            }
        };
        self.open.retain(|path, _| listed.contains(path));
        self.others = 0;
        if !listed.is_empty() {
            self.trouble = None;
        }
        for path in listed {
            if self.open.contains_key(&path) {
                continue;
            }
            match open(&path) {
                Ok(Some(device)) => drop(self.open.insert(path, device)),
                Ok(None) => {}
                Err(error) => {
                    self.others += 1;
                    self.trouble = Some(format!("{}: {error}", path.display()));
                }
            }
        }
    }

    /// Whether whatever is done with devices here is sensed: of a gamepad alone, which is its user's, nobody
    /// learns that somebody types.
    pub(super) fn sees_all(&self) -> bool {
        !self.open.is_empty() && self.others == 0
    }

    /// Whether it senses anything, and what it has or why not.
    pub(super) fn status(&self) -> (bool, String) {
        let trouble = self.trouble.as_deref();
        match (self.open.len(), self.others) {
            (0, 0) => (false, trouble.unwrap_or("none that has keys, moves or is touched").to_owned()),
            (0, _) => {
                let why = trouble.unwrap_or_default();
                (false, format!("{why} (the agent's user has to be in the group `input`)"))
            }
            (count, 0) => (true, format!("{count} of them")),
            (count, others) => {
                let why = trouble.unwrap_or_default();
                (true, format!("{count} of them; {others} cannot be read ({why})"))
            }
        }
    }

    /// What tells of devices that come and go.
    pub(super) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// Some came or went, or may be read by others now.
    pub(super) fn note_changes(&mut self, now: Instant) {
        if let Some(changes) = &self.changes {
            let mut buffer = [0; 4096];
            while rustix::io::read(changes, &mut buffer[..]).is_ok_and(|len| len > 0) {}
        }
        // Not before the rules for it have been applied, and not each time where many come.
        self.rescan_at = self.rescan_at.min(now + SETTLED);
    }

    /// Those that are to be listened to now.
    pub(super) fn listened(&self, now: Instant) -> Vec<(PathBuf, BorrowedFd<'_>)> {
        let open = self.open.iter().filter(|(_, device)| device.rests_until.is_none_or(|until| until <= now));
        open.map(|(path, device)| (path.clone(), device.file.as_fd())).collect()
    }

    /// Takes what a device has.
    pub(super) fn take(&mut self, path: &Path, now: Instant) -> Seen {
        let Some(device) = self.open.get_mut(path) else { return Seen::Nothing };
        match device.drain() {
            Ok(Seen::Input) => {
                device.rests_until = None;
                Seen::Input
            }
            Ok(Seen::Nothing) => {
                device.rests_until = Some(now + REST);
                Seen::Nothing
            }
            // It was pulled out.
            Err(_) => {
                self.open.remove(path);
                self.rescan_at = self.rescan_at.min(now + SETTLED);
                Seen::Nothing
            }
        }
    }
}

impl Device {
    fn drain(&mut self) -> io::Result<Seen> {
        let mut buffer = [0; EVENT_LEN * 64];
        let (mut seen, mut taken) = (Seen::Nothing, 0);
        while taken < TAKEN_MAX {
            match self.file.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    let events = buffer[..len].chunks_exact(EVENT_LEN);
                    taken += len / EVENT_LEN;
                    if events.map(kind).any(|kind| self.counts(kind)) {
                        seen = Seen::Input;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(seen)
    }

    fn counts(&self, kind: u16) -> bool {
        kind == EV_KEY || kind == EV_REL || kind == EV_ABS && self.is_touched
    }
}

/// A device in words: what it calls itself, where the kernel tells that, and its node.
pub(super) fn described(path: &Path) -> String {
    let node = path.file_name().unwrap_or_default().to_string_lossy();
    let name = crate::proc::text(format!("/sys/class/input/{node}/device/name")).unwrap_or_default();
    match name.trim() {
        "" => format!("the input device {node}"),
        name => format!("the input device {node} ({})", printable::line(name, 80)),
    }
}

/// The type of an event.
fn kind(event: &[u8]) -> u16 {
    let at = EVENT_LEN - 8;
    u16::from_ne_bytes([event[at], event[at + 1]])
}

/// A device that has input; none that has not.
fn open(path: &Path) -> io::Result<Option<Device>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let Ok(types) = sys::input_bits(file.as_fd(), 0) else {
        // It is no such device, but something that a test has put there: a keyboard.
        return Ok(Some(Device { file, is_touched: false, rests_until: None }));
    };
    let keys = sys::input_bits(file.as_fd(), EV_KEY).unwrap_or([0; sys::INPUT_BITS_LEN]);
    if !has(&types, EV_KEY.into()) && !has(&types, EV_REL.into()) {
        return Ok(None);
    }
    Ok(Some(Device { file, is_touched: has(&keys, BTN_TOUCH), rests_until: None }))
}

fn has(bits: &[u8], number: usize) -> bool {
    bits.get(number / 8).is_some_and(|byte| byte >> (number % 8) & 1 == 1)
}

fn watch(dir: &Path) -> io::Result<OwnedFd> {
    use inotify::{CreateFlags, WatchFlags};
    let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let what = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ATTRIB | WatchFlags::MOVED_TO;
    inotify::add_watch(&fd, dir, what | WatchFlags::ONLYDIR)?;
    Ok(fd)
}
