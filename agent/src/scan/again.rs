//! What a file is that may have come, grown or gone since it was looked at.

use std::path::Path;

use fallow_client::{FileFound, FileKey};
use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;

use super::known::coming_name;
use super::{found, is_absence};
use crate::dir::{PARTIAL, packed_name};
use crate::walk::Counted;

/// What a file is by now in its project's directory `project`; or else what there is of it among the parts of
/// downloads. These are looked at first: a part may become the whole file at any time.
///
/// # Errors
/// The system's, where it cannot be said what is there.
pub fn look_again(project: &Path, key: &FileKey) -> Result<Vec<FileFound>, Errno> {
    let parts = project.join(PARTIAL);
    let mut found = Vec::new();
    // In the order in which one becomes the next, so that none is missed: see `transfer::download`.
    for name in [coming_name(&key.name), packed_name(&key.name), key.name.clone()] {
        found.extend(look(&parts.join(name), key, true)?);
    }
    Ok(look(&project.join(&key.name), key, false)?.map_or(found, |whole| vec![whole]))
}

fn look(path: &Path, key: &FileKey, is_part: bool) -> Result<Option<FileFound>, Errno> {
    let data = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(errno) if is_absence(errno) => return Ok(None),
        data => data?,
    };
    let is_plain = FileType::from_raw_mode(data.st_mode) == FileType::RegularFile;
    let usage = Counted::default().count(&data);
    Ok(is_plain.then(|| found(key.clone(), &data, usage.blocks, is_part)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fallow_domain::{Bytes, ProjectId};

    use super::*;

    #[test]
    fn r4_1_a_file_that_is_looked_at_once_more_is_its_parts_until_it_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let key = FileKey { project: ProjectId(3), name: "f".to_owned() };
        let parts = place.path().join(PARTIAL);
        let looked = || {
            let found = look_again(place.path(), &key).unwrap();
            assert!(found.iter().all(|file| file.key == key && file.blocks > Bytes(0)));
            found.into_iter().map(|file| (file.length, file.is_part)).collect::<Vec<_>>()
        };
        assert_eq!(looked(), []);
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("f"), [1; 700]).unwrap();
        assert_eq!(looked(), [(Bytes(700), true)]);
        fs::write(parts.join(coming_name("f")), [1; 30]).unwrap();
        assert_eq!(looked(), [(Bytes(30), true), (Bytes(700), true)]);
        // What has come compressed is whole now, and about to be expanded.
        fs::rename(parts.join(coming_name("f")), parts.join(packed_name("f"))).unwrap();
        assert_eq!(looked(), [(Bytes(30), true), (Bytes(700), true)]);
        fs::rename(parts.join("f"), place.path().join("f")).unwrap();
        assert_eq!(looked(), [(Bytes(700), false)]);
        fs::remove_file(place.path().join("f")).unwrap();
        assert_eq!(looked(), [(Bytes(30), true)]);
    }
}
