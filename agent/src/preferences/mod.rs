//! The files of this host that say what it may do: reading them, and the owner's commands about his own
//! (R6.4). What they come to together is `fallow-preferences`' to say.

mod app_config;
mod edit;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fallow_boinc::scheduler::PreferenceFile;
use fallow_client::PreferenceFiles;
use fallow_preferences::{OwnerFile, Said, client_config, of_override};

use crate::dir::DataDir;

pub use app_config::read_app_configs;
pub use edit::{check, edit, give_template};

/// The owner's file, in the data directory.
pub const OWNER_FILE: &str = "preferences.toml";
/// BOINC's.
pub const OVERRIDE_FILE: &str = "global_prefs_override.xml";
/// Likewise.
pub const CLIENT_CONFIG: &str = "cc_config.xml";

/// Longest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// Makes of a file's path and content what it says, or what is wrong with it.
type Reads<'a> = &'a dyn Fn(&str, &[u8]) -> Result<Said, String>;

/// Reads all files of a data directory. One that is not there says nothing; one that cannot be read is among
/// the troubles.
pub fn read_all(dir: &DataDir) -> PreferenceFiles {
    let mut files = PreferenceFiles::default();
    let mut take = |name: &str, read: Reads<'_>| {
        let path = dir.path().join(name);
        let said = match content(&path) {
            Ok(None) => return None,
            Ok(Some(content)) => read(&path.display().to_string(), &content),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        };
        said.map_err(|trouble| files.troubles.push(trouble)).ok()
    };
    let owner = take(OWNER_FILE, &owner);
    let overrides = take(OVERRIDE_FILE, &|path, content| {
        let file = PreferenceFile::parse(content, "").map_err(|error| format!("{path}: {error}"))?;
        if let Some(element) = file.unread.first() {
            return Err(format!("{path}: what stands in <{element}> is no value of it"));
        }
        Ok(of_override(&file, &mut |note| tracing::warn!(path, "{note}")))
    });
    let client_config = take(CLIENT_CONFIG, &|path, content| {
        client_config(content).map_err(|error| format!("{path}: {error}"))
    });
    PreferenceFiles { owner, overrides, client_config, ..files }
}

fn owner(path: &str, content: &[u8]) -> Result<Said, String> {
    let text = std::str::from_utf8(content).map_err(|error| format!("{path} is no text: {error}"))?;
    OwnerFile::read(path, text).map(|file| file.0).map_err(|found| found.to_string())
}

/// Opens a file without waiting for somebody who would write into a pipe of that name.
fn open(path: &Path) -> io::Result<File> {
    let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(at_once).open(path)
}

/// What stands in a file; nothing where there is none.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not an ordinary file"));
    }
    let mut content = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut content)?;
    match content.len() as u64 > FILE_MAX {
        true => Err(io::Error::other("it is longer than 1 MiB")),
        false => Ok(Some(content)),
    }
}
