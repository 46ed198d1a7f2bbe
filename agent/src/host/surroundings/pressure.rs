//! Memory pressure, as the kernel tells it when it is so (PSI): programs had to wait for memory.
//!
//! Nobody asks for it: a trigger is written into the kernel's file, and an event comes at most once in two
//! seconds, which is the shortest that it allows users other than root. It is there only while tasks wait in
//! memory that could leave it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::host::owner::SensorStatus;
use crate::sys;

/// Programs waited for 150 ms in two seconds, some of them.
const TRIGGER: &[u8] = b"some 150000 2000000\0";

/// A trigger, as long as it is open.
pub(super) struct Pressure(AsyncFd<OwnedFd>);

impl Pressure {
    /// Asks the kernel for it, by its file `/proc/pressure/memory`.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let shown = path.display();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|error| format!("the kernel tells nothing of it: {shown}: {error}"))?;
        let refused = |error| format!("the kernel takes no trigger: {shown}: {error}");
        file.write_all(TRIGGER).map_err(refused)?;
        Self::of(file.into()).map_err(refused)
    }

    pub(super) fn of(file: OwnedFd) -> std::io::Result<Self> {
        sys::urgent_later(file).map(Self)
    }

    /// Comes back when it is felt: true; or when the kernel tells no more of it: false.
    pub(super) async fn felt(&self) -> bool {
        match self.0.ready(Interest::PRIORITY).await {
            Ok(mut guard) if !guard.ready().is_read_closed() => {
                guard.clear_ready();
                true
            }
            Ok(_) | Err(_) => false,
        }
    }
}

/// How it stands, for `fallow-agent status`.
pub(super) fn status(path: &Path) -> SensorStatus {
    let (on, what) = match Pressure::open(path) {
        Ok(_) => (true, "the kernel tells when programs wait for memory".to_owned()),
        Err(why) => (false, why),
    };
    SensorStatus { sensor: "memory pressure".to_owned(), on, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SendFlags;
    use std::time::Duration;

    /// The kernel's events are of the kind that a socket has for urgent data.
    #[tokio::test]
    async fn r6_4_each_event_of_the_kernel_is_felt_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        receiver.set_nonblocking(true).unwrap();
        let pressure = Pressure::of(receiver.into()).unwrap();
        for _ in 0..2 {
            let early = tokio::time::timeout(Duration::from_millis(50), pressure.felt()).await;
            assert!(early.is_err(), "nothing was sent yet");
            rustix::net::send(&sender, b"!", SendFlags::OOB).unwrap();
            assert!(tokio::time::timeout(Duration::from_secs(30), pressure.felt()).await.unwrap());
        }
    }

    #[tokio::test]
    async fn r6_4_what_the_kernel_does_not_tell_is_off_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let missing = status(&dir.path().join("memory"));
        assert!(!missing.on && missing.what.starts_with("the kernel tells nothing of it"), "{missing:?}");
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let plain = status(&plain);
        assert!(!plain.on && plain.what.starts_with("the kernel takes no trigger"), "{plain:?}");
        // Where this kernel has it, it is on.
        let real = Path::new("/proc/pressure/memory");
        assert_eq!(status(real).on, OpenOptions::new().read(true).write(true).open(real).is_ok());
    }
}
