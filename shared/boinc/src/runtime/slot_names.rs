//! Which files of a job can lie in one slot, beside each other and beside those of client and application
//! library (R6.8: a project refuses what cannot lie there).
//!
//! A slot is a directory that the client fills with links and copies under their open names. What client and
//! library write there has names of its own ([`super::files`]): a job's file of such a name is overwritten,
//! or is taken for the runtime's. And no file can lie where another one lies, or is the directory of another
//! one.
//!
//! Names are compared as the file systems of all hosts would: capital letters make no difference on many of
//! them, nor do dots and spaces at the end of a part.
//!
//! Left out: letters that Unicode can write in two ways, which some systems take for one.

use std::collections::BTreeMap;

use super::files;

/// Names that client and application library have in a slot. `.new` is what the library writes before it
/// renames.
const OF_RUNTIME: [&str; 12] = [
    files::INIT_DATA,
    files::CHANNEL,
    files::LOCK,
    files::FINISH,
    "boinc_finish_called.new",
    files::TEMPORARY_EXIT,
    "boinc_temporary_exit.new",
    files::SETUP_COMPLETE,
    files::STDERR,
    files::TRICKLE_UP,
    // BOINC's own client keeps its record of a task there.
    "boinc_task_state.xml",
    // Fallow's agent has a job's own `/tmp` there.
    ".fallow_tmp",
];
/// What such names begin with.
const RUNTIME_BEGINS: [&str; 3] = [files::TRICKLE_DOWN, files::UPLOAD_REQUEST, files::UPLOAD_STATUS];

/// Why a file cannot lie in a slot under its open name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotClash {
    /// Client or application library write a file of this name.
    #[error(
        "open name {name:?} is the BOINC client's or its library's own in every job's directory: choose another"
    )]
    Runtime {
        /// The file's open name.
        name: String,
    },
    /// Another file has the same place.
    #[error("open name {name:?} has the same place as {other:?}, another file of {owner}: choose another")]
    Same {
        /// The file's open name.
        name: String,
        /// The other file's.
        other: String,
        /// Whose that is.
        owner: Owner,
    },
    /// One of two files would have to be the directory of the other.
    #[error(
        "open name {name:?} cannot be beside {other:?}, another file of {owner}: one would have to be a directory with the other in it; choose another"
    )]
    Inside {
        /// The file's open name.
        name: String,
        /// The other file's.
        other: String,
        /// Whose that is.
        owner: Owner,
    },
}

/// Whose files they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Inputs and outputs of a job.
    #[default]
    Job,
    /// Files that come with an application's version.
    Application,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Job => "the job",
            Self::Application => "the application",
        })
    }
}

/// Open names of files that lie in one slot.
#[derive(Clone, Debug, Default)]
pub struct SlotNames {
    owner: Owner,
    /// As they are written, by how they are compared.
    names: BTreeMap<String, String>,
}

impl SlotNames {
    /// None yet; all will be of this owner.
    pub fn of(owner: Owner) -> Self {
        Self { owner, names: BTreeMap::new() }
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`SlotClash`] if it has no place beside those that are there.
    pub fn add(&mut self, name: &str) -> Result<(), SlotClash> {
        self.check(name)?;
        self.names.insert(compared(name), name.to_owned());
        Ok(())
    }

    /// Adds files of which nothing is expected: one that clashes with another replaces it or lies beside it.
    pub fn note<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.names.extend(names.into_iter().map(|name| (compared(name), name.to_owned())));
    }

    /// Whether a file has a place of its own beside these. Takes time by the logarithm of their number.
    ///
    /// # Errors
    /// [`SlotClash`] if it has not.
    pub fn check(&self, name: &str) -> Result<(), SlotClash> {
        let place = compared(name);
        if is_of_runtime(&place) {
            return Err(SlotClash::Runtime { name: name.to_owned() });
        }
        let (name, owner) = (name.to_owned(), self.owner);
        if let Some(other) = self.names.get(&place).cloned() {
            return Err(SlotClash::Same { name, other, owner });
        }
        let above = place.match_indices('/').find_map(|(end, _)| self.names.get(&place[..end]));
        let within = format!("{place}/");
        let below = self.names.range(within.clone()..).next();
        let below = below.filter(|(other, _)| other.starts_with(&within)).map(|(_, other)| other);
        match above.or(below).cloned() {
            Some(other) => Err(SlotClash::Inside { name, other, owner }),
            None => Ok(()),
        }
    }
}

/// Whether client or library write to this place, or need it for a file.
fn is_of_runtime(place: &str) -> bool {
    let first = place.split('/').next().unwrap_or_default();
    OF_RUNTIME.contains(&first) || RUNTIME_BEGINS.iter().any(|begin| first.starts_with(begin))
}

/// The same for all names that share a place on some host.
fn compared(name: &str) -> String {
    let part = |part: &str| match part.trim_end_matches(['.', ' ']) {
        "" => part.to_lowercase(),
        trimmed => trimmed.to_lowercase(),
    };
    name.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_8_each_file_of_a_slot_has_a_place_of_its_own() {
        let mut names = SlotNames::default();
        for good in ["in", "in.txt", "data/in", "data/in2/x", "boinc_results", "stdout.txt", "stderr.txt.gz"]
        {
            names.add(good).unwrap();
        }
        for (bad, other) in [("IN", "in"), ("in.", "in"), ("Data/in ", "data/in")] {
            let same = SlotClash::Same { name: bad.into(), other: other.into(), owner: Owner::Job };
            assert_eq!(names.check(bad), Err(same));
        }
        for (bad, other) in
            [("in/x", "in"), ("data", "data/in"), ("data/in/x", "data/in"), ("data/in2", "data/in2/x")]
        {
            let inside = SlotClash::Inside { name: bad.into(), other: other.into(), owner: Owner::Job };
            assert_eq!(names.check(bad), Err(inside));
        }
        names.add("data/in3").unwrap();
    }

    #[test]
    fn r6_8_names_of_the_runtime_are_for_no_file_of_a_job() {
        for bad in [
            "init_data.xml",
            "INIT_DATA.XML",
            "stderr.txt",
            "boinc_ufr_out",
            "boinc_lockfile/x",
            "trickle_down_1",
        ] {
            let clash = SlotNames::default().add(bad);
            assert_eq!(clash, Err(SlotClash::Runtime { name: bad.into() }));
        }
        SlotNames::default().add("x/init_data.xml").unwrap();
    }
}
