//! The removal of groups, with all that a job may have made below them.

use std::ffi::{CStr, CString};
use std::io;
use std::time::{Duration, Instant};

use super::directory::Directory;
use super::walk::{Visit, walk};
use super::{Group, LOOK};

impl Group {
    /// Removes a group below this one, with all that are below that. What has a process stays, and hands no
    /// controllers on any more: so the group above can take its own back, and processes again.
    ///
    /// # Errors
    /// The system's, above all `ResourceBusy`: a process is in it. `TimedOut`: by then not all was removed.
    pub fn remove(&self, name: &str, by: Instant) -> io::Result<()> {
        let mut removal = Removal { first_error: None };
        let gone_through = walk(&self.dir, vec![CString::new(name)?], by, &mut removal);
        // What stays is of more interest than the time.
        removal.first_error.map_or(gone_through, Err)
    }

    /// Removes a group below this one that has neither a process nor a group below it.
    ///
    /// # Errors
    /// The system's, above all `ResourceBusy`: it has.
    pub fn remove_empty(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    /// Removes a group below this one as soon as its last process is gone.
    ///
    /// # Errors
    /// As [`Self::remove`], if something is left in it after so long.
    pub fn remove_within(&self, name: &str, patience: Duration) -> io::Result<()> {
        let by = Instant::now() + patience;
        let mut in_the_way = None;
        loop {
            let Err(error) = self.remove(name, by) else { return Ok(()) };
            let may_pass = match error.kind() {
                // A job may have closed it once more, or have removed one of its own meanwhile.
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy => {
                    true
                }
                // What was in the way before is of more interest than the time.
                io::ErrorKind::TimedOut => return Err(in_the_way.unwrap_or(error)),
                _ => false,
            };
            if !may_pass || Instant::now() >= by {
                return Err(error);
            }
            in_the_way = Some(error);
            std::thread::sleep(LOOK);
        }
    }

    /// Hands no controllers on to the groups below it any more, if none of them does.
    pub fn take_controllers_back(&self) {
        take_back(&self.dir);
    }
}

struct Removal {
    first_error: Option<io::Error>,
}

impl Visit for Removal {
    fn before(&mut self, above: &Directory, name: &CStr) -> bool {
        // Most have nothing below them.
        above.remove(name).is_err()
    }

    fn after(&mut self, above: &Directory, name: &CStr) {
        let Err(error) = above.remove(name) else { return };
        if let Ok(left) = above.child(name) {
            take_back(&left);
        }
        self.missed(error);
    }

    fn missed(&mut self, error: io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.first_error.get_or_insert(error);
        }
    }
}

fn take_back(group: &Directory) {
    const FILE: &str = "cgroup.subtree_control";
    let handed_on = group.file(FILE, false).and_then(|file| super::read(&file)).unwrap_or_default();
    for controller in handed_on.split_whitespace() {
        // One by one, for each that is still handed on below stays.
        let _ = group.file(FILE, true).and_then(|file| super::write(&file, &format!("-{controller}")));
    }
}
