//! Which file may be loaded as a library of a driver's, and which directory may stand for sysfs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Looks whether a file may be loaded that the owner of the host named: it becomes part of a process that
/// runs with the agent's rights, so nobody but root and the agent's own user may have written it.
///
/// # Errors
/// In words: what is wrong with it, and what to do.
pub fn check(path: &Path) -> Result<(), String> {
    trusted(path, "loaded as a driver's library", |file| match file.is_file() {
        true => Ok(()),
        false => Err("it is no file"),
    })
}

/// Looks whether a directory may stand for sysfs.
///
/// # Errors
/// In words: what is wrong with it, and what to do.
pub fn check_dir(path: &Path) -> Result<(), String> {
    trusted(path, "taken for sysfs", |file| match file.is_dir() {
        true => Ok(()),
        false => Err("it is no directory"),
    })
}

fn trusted(path: &Path, what: &str, kind: fn(&Metadata) -> Result<(), &'static str>) -> Result<(), String> {
    let refuse = |why: String| format!("{} is not {what}: {why}", path.display());
    if !path.is_absolute() {
        return Err(refuse("give its whole path, from / on".to_owned()));
    }
    let file = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    kind(&file).map_err(|why| refuse(why.to_owned()))?;
    let me = rustix::process::geteuid().as_raw();
    match () {
        () if file.uid() != 0 && file.uid() != me => Err(refuse(format!(
            "it belongs to user {}, and what is used here has to be root's or the agent's own",
            file.uid()
        ))),
        () if file.mode() & 0o022 != 0 => {
            Err(refuse("others than its owner may write to it (chmod go-w helps)".to_owned()))
        }
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn r3_15_a_library_that_others_may_write_to_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libnvidia-ml.so.1");
        assert!(check(&path).unwrap_err().contains("No such file"));
        std::fs::write(&path, "").unwrap();
        for (mode, may) in [(0o644, true), (0o755, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(&path).is_ok(), may, "{mode:o}");
        }
        assert!(check(dir.path()).unwrap_err().contains("no file"));
        assert!(check_dir(&path).unwrap_err().contains("no directory"));
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(check_dir(dir.path()).unwrap_err().contains("chmod go-w"));
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_dir(dir.path()).is_ok() && check_dir(Path::new("/sys")).is_ok());
        assert!(check(Path::new("libnvidia-ml.so.1")).unwrap_err().contains("whole path"));
    }
}
