//! A walk over all groups below one, however many there are and however deep they lie: a job may make more
//! than can be gone through in the time that there is, and deeper than there are descriptors.

use std::ffi::{CStr, CString};
use std::io;
use std::time::Instant;

use super::directory::{Directory, in_time};

/// What is done with each group on the way.
pub(super) trait Visit {
    /// With one that is to come, by its name, seen from the one above it. Whether to go on below it.
    fn before(&mut self, above: &Directory, name: &CStr) -> bool;
    /// With one when all that was below it is done.
    fn after(&mut self, above: &Directory, name: &CStr);
    /// One could not be opened.
    fn missed(&mut self, error: io::Error);
}

/// One that the walk is in, and those below it that are to come.
struct Level {
    name: CString,
    below: Vec<CString>,
}

/// Goes over the groups of these names below `top`, and all that are below them. Two are open at a time.
///
/// # Errors
/// `TimedOut`: it was not through by then. Others: the way back was lost, for what it was in is gone.
pub(super) fn walk(
    top: &Directory,
    names: Vec<CString>,
    by: Instant,
    visit: &mut impl Visit,
) -> io::Result<()> {
    // `top` has no name.
    let mut levels = vec![Level { name: CString::default(), below: names }];
    let mut at: Option<Directory> = None;
    while let Some(level) = levels.last_mut() {
        in_time(by)?;
        let here = at.as_ref().unwrap_or(top);
        let Some(next) = level.below.pop() else {
            let done = levels.pop().map(|level| level.name).unwrap_or_default();
            let back = match levels.len() {
                0 => return Ok(()),
                1 => None,
                _ => Some(here.child("..")?),
            };
            visit.after(back.as_ref().unwrap_or(top), &done);
            at = back;
            continue;
        };
        if !visit.before(here, &next) {
            continue;
        }
        let inner = here.child(next.as_c_str()).and_then(|inner| Ok((inner.names(by)?, inner)));
        match inner {
            Ok((below, inner)) => {
                levels.push(Level { name: next, below });
                at = Some(inner);
            }
            Err(error) => visit.missed(error),
        }
    }
    Ok(())
}
