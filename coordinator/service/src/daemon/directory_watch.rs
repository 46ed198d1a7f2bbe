//! Whether the coordinator's directory is still the one that it was.

use std::io;
use std::path::Path;
use std::time::Duration;

use fallow_telemetry::RateLimit;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

static UNSEEN: RateLimit = RateLimit::new();

/// What tells a directory from another one of the same name: device and inode.
pub(super) type DirectoryId = (u64, u64);

/// Returns when a directory is not the one that it was, at two looks in a row. A look that fails says nothing
/// of it: a disk or a network may be away for a moment.
pub(super) async fn replaced(dir: &Path, was: Option<DirectoryId>) {
    let mut looks = tokio::time::interval(LOOK);
    let mut is_suspect = false;
    loop {
        looks.tick().await;
        let is_another = match directory_id(dir) {
            Ok(found) => found != was,
            Err(error) => {
                if let Some(times) = UNSEEN.allow() {
                    let dir = dir.display();
                    tracing::warn!(%dir, %error, times, "whether the directory is still there cannot be seen");
                }
                false
            }
        };
        if is_another && is_suspect {
            return;
        }
        is_suspect = is_another;
    }
}

/// The id of a directory; none if there is no directory.
///
/// # Errors
/// When that cannot be seen.
pub(super) fn directory_id(dir: &Path) -> io::Result<Option<DirectoryId>> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(dir) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_cannot_be_looked_at_is_not_taken_for_a_removed_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, store) = (dir.path().join("real"), dir.path().join("store"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &store).unwrap();
        let was = directory_id(&store).unwrap();
        // A name that leads to itself: every look fails.
        std::fs::remove_file(&store).unwrap();
        symlink(&store, &store).unwrap();
        timeout(LOOK + LOOK / 2, replaced(&store, was)).await.unwrap_err();
        std::fs::remove_file(&store).unwrap();
        timeout(LOOK * 60, replaced(&store, was)).await.unwrap();
    }
}
