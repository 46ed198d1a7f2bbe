//! Inputs that hosts keep for all workunits that read them (R4.11; BOINC: `sticky`): one name, one content,
//! for ever.
//!
//! Clients hold such a file under its name, so it never changes. Whoever submits sends its content once, and
//! its fingerprint instead of it from then on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fallow_boinc::signature::md5_hex;
use fallow_daemon::lock;
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

/// The most kept files of which something is remembered: with more of them, all are read anew.
const KNOWN_MAX: usize = 20_000;

/// What was learned of kept files when they were last read, by their names: each piece of a submission may
/// name all of them, and they are not read anew for each.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(Mutex<BTreeMap<String, (Unchanged, Fingerprint)>>);

/// By which a file is taken for the one that was read: its number, length, and the time of its last change.
type Unchanged = (u64, u64, i64, i64);

#[derive(Clone, Debug)]
struct Fingerprint {
    nbytes: u64,
    md5: String,
    sha256: String,
}

impl Fingerprint {
    fn of(content: &[u8]) -> Self {
        Self { nbytes: content.len() as u64, md5: md5_hex(content), sha256: sha256(content) }
    }
}

impl Fingerprints {
    /// A file's, which is read if need be; none where there is none.
    fn read(&self, name: &str, path: &Path) -> Result<Option<Fingerprint>, ProjectError> {
        let unchanged = |file: Metadata| (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        let there = match std::fs::metadata(path) {
            Ok(file) => unchanged(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ProjectError::file("read", path)(error)),
        };
        if let Some((_, known)) = lock(&self.0).get(name).filter(|(known, _)| *known == there) {
            return Ok(Some(known.clone()));
        }
        let content = std::fs::read(path).map_err(ProjectError::file("read", path))?;
        let fingerprint = Fingerprint::of(&content);
        let mut all = lock(&self.0);
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        all.insert(name.to_owned(), (there, fingerprint.clone()));
        Ok(Some(fingerprint))
    }

    /// A file is removed.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

/// The sticky inputs of a piece's workunits, by the names under which they are kept.
pub(super) struct StickyInputs<'a> {
    layout: &'a Layout,
    fingerprints: &'a Fingerprints,
    files: BTreeMap<String, File>,
    /// Those that were written for this piece.
    written: Vec<PathBuf>,
}

struct File {
    name: String,
    fingerprint: Fingerprint,
    is_there: bool,
}

impl<'a> StickyInputs<'a> {
    pub(super) fn new(layout: &'a Layout, fingerprints: &'a Fingerprints) -> Self {
        Self { layout, fingerprints, files: BTreeMap::new(), written: Vec::new() }
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
                let there = self.fingerprints.read(&name, &self.layout.download(&name))?;
                let is_there = there.is_some();
                let fingerprint = match there {
                    Some(there) => there,
                    None if input.sha256.is_empty() => Fingerprint::of(&input.content),
                    None if check_only => {
                        Fingerprint { nbytes: 0, md5: String::new(), sha256: given.clone() }
                    }
                    None => {
                        let expected = "the input's content, as nothing is kept under this name yet";
                        return Err(Invalid::new(WHAT, &input.keep_as, expected).into());
                    }
                };
                place.insert(File { name, fingerprint, is_there })
            }
        };
        if file.fingerprint.sha256 == given {
            return Ok(());
        }
        let expected = "a name that no other content has: a file that hosts keep never changes";
        Err(Invalid::new(WHAT, &input.keep_as, expected).into())
    }

    /// The lengths of the files that are still to be written.
    pub(super) fn to_write(&self) -> impl Iterator<Item = u64> {
        self.files.values().filter(|file| !file.is_there).map(|file| file.fingerprint.nbytes)
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
        Ok((file.name.clone(), file.fingerprint.nbytes, file.fingerprint.md5.clone()))
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
