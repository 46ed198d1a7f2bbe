//! Inputs that hosts keep for all workunits that read them (R4.11; BOINC: `sticky`): one name, one content,
//! for ever.
//!
//! Clients hold such a file under its name, so it never changes. Whoever submits sends its content once, and
//! its fingerprint instead of it from then on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use fallow_boinc::signature::md5_hex;
use fallow_domain::{Invalid, hex};
use ring::digest::{SHA256, digest};
use tracing::warn;

use super::error::ProjectError;
use super::layout::{Layout, leave_space, remove_if_there, write_by};
use super::operator_types::NewInput;

/// Before the name under which such an input is kept, in the name of its file.
pub(crate) const KEPT: &str = "kept_";
/// What errors call the name of a sticky input.
const WHAT: &str = "name under which an input is kept";

/// The sticky inputs of a piece's workunits, by the names under which they are kept.
pub(super) struct StickyInputs<'a> {
    layout: &'a Layout,
    files: BTreeMap<String, File>,
    /// Those that were written for this piece.
    written: Vec<PathBuf>,
}

struct File {
    name: String,
    nbytes: u64,
    md5: String,
    sha256: String,
    is_there: bool,
}

impl File {
    fn new(name: String, content: &[u8], is_there: bool) -> Self {
        let (nbytes, md5, sha256) = (content.len() as u64, md5_hex(content), sha256(content));
        Self { name, nbytes, md5, sha256, is_there }
    }
}

impl<'a> StickyInputs<'a> {
    pub(super) fn new(layout: &'a Layout) -> Self {
        Self { layout, files: BTreeMap::new(), written: Vec::new() }
    }

    /// Takes note of a sticky input of the next workunit, whose name was checked. Its content must be that of
    /// the file of this name, and of all inputs of this name before it; one that is only named by its
    /// fingerprint must have come before. Of a submission that is merely checked it may come yet.
    pub(super) fn add(&mut self, input: &NewInput, check_only: bool) -> Result<(), ProjectError> {
        let given = match input.sha256.as_str() {
            "" => sha256(&input.content),
            given => given.to_owned(),
        };
        let file = match self.files.entry(input.keep_as.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let name = format!("{KEPT}{}", input.keep_as);
                place.insert(match read(&self.layout.download(&name))? {
                    Some(there) => File::new(name, &there, true),
                    None if input.sha256.is_empty() => File::new(name, &input.content, false),
                    None if check_only => {
                        let sha256 = given.clone();
                        File { name, nbytes: 0, md5: String::new(), sha256, is_there: false }
                    }
                    None => {
                        let expected = "the input's content, as nothing is kept under this name yet";
                        return Err(Invalid::new(WHAT, &input.keep_as, expected).into());
                    }
                })
            }
        };
        if file.sha256 == given {
            return Ok(());
        }
        let expected = "a name that no other content has: a file that hosts keep never changes";
        Err(Invalid::new(WHAT, &input.keep_as, expected).into())
    }

    /// The lengths of the files that are still to be written.
    pub(super) fn to_write(&self) -> impl Iterator<Item = u64> {
        self.files.values().filter(|file| !file.is_there).map(|file| file.nbytes)
    }

    /// Puts an input that was taken note of where clients get it, if it is not there. Gives its file's name,
    /// size and MD5.
    pub(super) fn write(&mut self, input: &NewInput) -> Result<(String, u64, String), ProjectError> {
        let Some(file) = self.files.get_mut(&input.keep_as) else {
            return Err(Invalid::new(WHAT, &input.keep_as, "a name that was checked").into());
        };
        if !file.is_there {
            let path = self.layout.download(&file.name);
            // Others may name it from now on: there whole, or not at all.
            // Beside it, `.new` behind its name may be another input's name.
            let new = self.layout.incoming().join(&file.name);
            leave_space(&self.layout.downloads(), input.content.len() as u64, 1)?;
            write_by(&path, &new, &input.content, 0o644)?;
            file.is_there = true;
            self.written.push(path);
        }
        Ok((file.name.clone(), file.nbytes, file.md5.clone()))
    }

    /// Removes what was written for workunits that no record will speak of: the name is not taken by that.
    pub(super) fn take_back(self) {
        for path in self.written {
            if let Err(error) = remove_if_there(&path) {
                warn!(path = %path.display(), %error, "cannot delete a sticky input that no workunit uses");
            }
        }
    }
}

fn sha256(content: &[u8]) -> String {
    hex(digest(&SHA256, content).as_ref())
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ProjectError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ProjectError::file("read", path)(error)),
    }
}
