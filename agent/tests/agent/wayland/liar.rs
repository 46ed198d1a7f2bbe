//! What passes for a compositor, and says what it likes: byte by byte, for no library says such things.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A socket of a test's own.
pub(super) struct Liar {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Liar {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("wayland-9")).unwrap();
        Self { dir, listener }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("wayland-9")
    }

    /// The next one who calls.
    pub(super) fn caller(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }
}

/// An event of an object, or a request to it.
pub(super) fn message(object: u32, opcode: u16, arguments: &[u8]) -> Vec<u8> {
    let len = u32::try_from(8 + arguments.len()).unwrap();
    let mut all = [object, len << 16 | u32::from(opcode)].map(u32::to_ne_bytes).concat();
    all.extend_from_slice(arguments);
    all
}

pub(super) fn number(number: u32) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}

/// What `wl_registry` says of something that there is. The first object that a caller makes is that.
pub(super) fn offer(name: u32, interface: &str, version: u32) -> Vec<u8> {
    let mut text = interface.as_bytes().to_vec();
    text.push(0);
    let len = number(u32::try_from(text.len()).unwrap());
    text.resize(text.len().next_multiple_of(4), 0);
    message(2, 0, &[number(name), len, text, number(version)].concat())
}

/// Goes with a caller as far as an honest compositor would: gives the object that tells who is idle.
pub(super) fn listened_to(caller: &mut UnixStream) -> u32 {
    // wl_display.sync, the second object.
    let done = message(3, 0, &number(0));
    let all = [offer(1, "ext_idle_notifier_v1", 2), offer(2, "wl_seat", 8), done].concat();
    caller.write_all(&all).unwrap();
    loop {
        let mut head = [0; 8];
        caller.read_exact(&mut head).unwrap();
        let words = [&head[..4], &head[4..]].map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let mut arguments = vec![0; (words[1] >> 16) as usize - 8];
        caller.read_exact(&mut arguments).unwrap();
        // ext_idle_notifier_v1.get_input_idle_notification(object, milliseconds, seat)
        if words[1] & 0xffff == 2 && arguments.len() == 12 {
            return u32::from_ne_bytes(arguments[..4].try_into().unwrap());
        }
    }
}
