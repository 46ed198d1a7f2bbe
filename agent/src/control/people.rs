//! The socket for people of the machine who do not administer it (R6.4): whoever may open it sees the status
//! and may have the machine rest for a while. Who may open it says the directory in which an administrator
//! has it: its group, which the socket gets if the directory hands its group on (mode 2750).

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::UnixListener;

use super::server::{Door, bind};

/// Where the service has it.
const USUAL: &str = "/run/fallow-agent/people.sock";

/// Where it is, for whoever asks.
pub fn place() -> PathBuf {
    let given = std::env::var_os("FALLOW_PEOPLE_SOCKET").filter(|path| !path.is_empty());
    given.map_or_else(|| PathBuf::from(USUAL), PathBuf::from)
}

/// What a user of the machine is called: his name where its list of users has him.
pub fn user_name(user: u32) -> String {
    let listed = crate::proc::text("/etc/passwd").unwrap_or_default();
    name_in(&listed, user).unwrap_or_else(|| format!("user {user}"))
}

fn name_in(passwd: &str, user: u32) -> Option<String> {
    let named = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(user)).then(|| name.to_owned())
    };
    passwd.lines().find_map(named).filter(|name| !name.is_empty())
}

/// The socket as long as the agent has it.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    /// Device and inode: what lies there later may be another's.
    place: Option<(u64, u64)>,
}

impl Opened {
    fn at(path: &Path) -> Self {
        Self { place: place_of(path), path: path.to_path_buf() }
    }

    /// Takes it away, if it is still the one that was opened.
    pub fn remove(&self) {
        if self.place.is_some() && place_of(&self.path) == self.place {
            // Whoever asks is told by what is left that nobody listens.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn place_of(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|there| (there.dev(), there.ino()))
}

/// Whether a program listens on a socket, be it too busy to answer.
pub fn is_heard(path: &Path) -> bool {
    let called = || -> io::Result<()> {
        let (short, _dir) = super::short_path(path)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let caller = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(connect(&caller, &SocketAddrUnix::new(&short)?)?)
    };
    called().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
}

/// Opens it. Where it cannot be, the log says why, and the agent goes on without it: its work matters more.
pub fn open(path: &Path) -> Option<(UnixListener, Opened)> {
    let without = |why: &str| {
        let socket = path.display();
        tracing::warn!(
            "people who do not administer this machine can neither see what the agent does nor pause it: their socket {socket} \
             cannot be opened ({why})"
        );
        None
    };
    // Also under the name that it has until it is ready: whatever lies there would go.
    for there in [path, &path.with_extension("new")] {
        if there.symlink_metadata().is_ok_and(|there| !there.file_type().is_socket()) {
            return without(&format!("{} is something else", there.display()));
        }
    }
    // What is left over, nobody listens on.
    if is_heard(path) {
        return without("another program listens on it: give each agent a socket of its own");
    }
    match bind(path, Door::People) {
        Ok(listener) => Some((listener, Opened::at(path))),
        Err(error) => without(&fallow_daemon::causes::line(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_a_user_is_called_by_his_name_and_else_by_his_number() {
        let listed = "root:x:0:0:root:/root:/bin/sh\nann:x:1001:100::/home/ann:/bin/sh\nodd\n:x:7:7::/:\n";
        assert_eq!(name_in(listed, 1001).as_deref(), Some("ann"));
        assert_eq!((name_in(listed, 7), name_in(listed, 100)), (None, None));
        assert_eq!(user_name(u32::MAX - 1), format!("user {}", u32::MAX - 1));
    }
}
