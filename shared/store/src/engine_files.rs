//! The engine's own files, where its recovery needs help.

use std::io::ErrorKind;
use std::path::Path;

use crate::StoreError;

/// The engine's settings as it writes them: text, and its CRC. They are the same in every store.
const SETTINGS: &[u8] = b"segment_size: 524288\nuse_compression: false\nversion: 0.34\nv\x19Q\xc1";

/// The engine only logs that its settings are damaged, and goes on with what is left of them. It writes them
/// before anything else, so that beside data they are whole.
pub(crate) fn check_settings(dir: &Path, folder: &Path) -> Result<(), StoreError> {
    let has_data = std::fs::metadata(folder.join("db")).is_ok_and(|data| data.len() > 0);
    match std::fs::read(folder.join("conf")) {
        Ok(settings) if settings == SETTINGS => Ok(()),
        Ok(_) if has_data => Err(StoreError::corrupted(dir, "its engine's settings (sled/conf) are damaged")),
        Err(error) if has_data && error.kind() == ErrorKind::NotFound => {
            Err(StoreError::corrupted(dir, "its engine's settings (sled/conf) are missing"))
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(StoreError::from_io(dir, "read the settings of its engine", error))
        }
        _ => Ok(()),
    }
}

/// While the engine writes a summary of its log, which each start does, the file has this ending; when it
/// is whole, the ending is taken off, and only then older ones are removed.
const UNFINISHED: &str = ".generating";

/// Removes summaries that a killed process or a power cut left unfinished. The engine's recovery takes one
/// for the newest summary and calls the store corrupted, although the one before it is still there, or the
/// whole log. Nobody may have the engine open.
pub(crate) fn remove_unfinished(dir: &Path, folder: &Path) -> Result<(), StoreError> {
    let fail = |source| StoreError::from_io(dir, "remove what its engine left unfinished", source);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(UNFINISHED) {
            std::fs::remove_file(entry.path()).map_err(fail)?;
        }
    }
    Ok(())
}
