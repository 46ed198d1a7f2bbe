//! The socket for people of the machine who do not administer it (R6.4): whoever may open it sees the status
//! and may have the machine rest for a while. Who may open it says the directory in which an administrator
//! has it: its group, which the socket gets if the directory hands its group on (mode 2750).

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use super::server::{Door, bind};

/// Where the service has it.
const USUAL: &str = "/run/fallow-agent/people.sock";

/// Where it is, for whoever asks.
pub fn place() -> PathBuf {
    let given = std::env::var_os("FALLOW_PEOPLE_SOCKET").filter(|path| !path.is_empty());
    given.map_or_else(|| PathBuf::from(USUAL), PathBuf::from)
}

/// Opens it. Where it cannot be, the log says why, and the agent goes on without it: its work matters more.
pub fn open(path: &Path) -> Option<UnixListener> {
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
    match bind(path, Door::People) {
        Ok(listener) => Some(listener),
        Err(error) => without(&fallow_daemon::causes::line(&error)),
    }
}
