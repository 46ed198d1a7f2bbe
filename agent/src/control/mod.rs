//! Local control: a socket in the data directory, one line of JSON each way.
//!
//! Who may speak: the user that the agent runs as, and root. The file's mode says so, and the kernel's word
//! on the peer is checked besides. Jobs run as that user too, and are kept from connecting. Where they are
//! not, since they may use the network or the system has no filters, they are told from others by what they
//! cannot do. Another socket, if an administrator wants it, is for people of the machine (`people`).

pub mod client;
pub mod disk;
pub mod for_people;
pub mod hints;
pub mod machine;
pub mod notices;
pub mod people;
pub mod places;
pub mod preferences;
pub mod protocol;
pub mod server;
pub mod status;
mod status_text;
pub mod summary;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The longest path of a socket (`sun_path` with its end).
const PATH_MAX: usize = 107;

/// A path to the same socket that fits into the kernel's address of one, whatever directory it lies in: by
/// way of the directory's descriptor, which has to stay open while the path is used.
///
/// # Errors
/// When the directory of a path that is too long cannot be opened.
pub fn short_path(socket: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Ok((socket.to_owned(), None));
    };
    if socket.as_os_str().len() <= PATH_MAX {
        return Ok((socket.to_owned(), None));
    }
    let dir = File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((short, Some(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_in_a_directory_of_any_depth_is_bound_and_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("control.sock");
        assert!(UnixListener::bind(&socket).is_err(), "too long for the kernel as it is");
        let (short, _dir) = short_path(&socket).unwrap();
        let _listener = UnixListener::bind(short).unwrap();
        let (short, _dir) = short_path(&socket).unwrap();
        UnixStream::connect(short).unwrap();
        let plain = Path::new("/tmp/control.sock");
        assert_eq!(short_path(plain).unwrap().0, plain);
    }
}
