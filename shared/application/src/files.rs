//! Files of the slot, by the names under which the application knows them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::runtime::{files, softlink};

/// The file behind an open name: what its soft link names, or the name itself if it is an ordinary file or
/// not there (a standalone output).
///
/// # Errors
/// When the file is there but cannot be read.
pub fn resolve(open_name: &str) -> io::Result<PathBuf> {
    resolve_in(Path::new(""), open_name)
}

/// Writes an output under its open name, through its soft link, and makes sure that it is on the disk.
///
/// # Errors
/// When it cannot be written.
pub fn write_output(open_name: &str, content: &[u8]) -> io::Result<()> {
    // Not renamed into place: a file left beside it in the project's directory would be nobody's to remove,
    // and the finish file alone says that an output is whole.
    let mut file = File::create(resolve(open_name)?)?;
    file.write_all(content)?;
    file.sync_all()
}

fn resolve_in(slot: &Path, open_name: &str) -> io::Result<PathBuf> {
    let path = slot.join(open_name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path),
        Err(error) => return Err(error),
    };
    let mut first_bytes = Vec::new();
    file.take(softlink::READ_MAX as u64).read_to_end(&mut first_bytes)?;
    Ok(softlink::resolve(&first_bytes).map_or(path, |target| slot.join(target)))
}

/// What the client says; none, after a word about it, if there is no client or its words cannot be read.
pub(crate) fn init_data() -> Option<AppInitData> {
    let bytes = match std::fs::read(files::INIT_DATA) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            eprintln!("cannot open {}: {error}", files::INIT_DATA);
            return None;
        }
    };
    AppInitData::read(&bytes).inspect_err(|error| eprintln!("{error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_projects_file_and_an_ordinary_file_to_itself() {
        let slot = tempfile::tempdir().unwrap();
        std::fs::write(slot.path().join("in"), softlink::write("../../projects/p/job_in")).unwrap();
        std::fs::write(slot.path().join("plain"), "from=2 to=5\n").unwrap();
        let resolved = |name| resolve_in(slot.path(), name).unwrap();
        assert_eq!(resolved("in"), slot.path().join("../../projects/p/job_in"));
        assert_eq!(resolved("plain"), slot.path().join("plain"));
        assert_eq!(resolved("absent"), slot.path().join("absent"));
    }
}
