//! Whether the coordinator's directory is still the one that it was.

use std::io;
use std::path::Path;
use std::time::Duration;

use fallow_telemetry::Seldom;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

static UNSEEN: Seldom = Seldom::new();

/// What tells a directory from another one of the same name: device and inode.
pub(super) type Identity = (u64, u64);

/// Returns when a directory is not the one that it was, at two looks in a row. A look that fails says nothing of it: a
/// disk or a network may be away for a moment.
pub(super) async fn replaced(dir: &Path, was: Option<Identity>) {
    let mut looks = tokio::time::interval(LOOK);
    let mut is_suspect = false;
    loop {
        looks.tick().await;
        let is_another = match identity(dir) {
            Ok(found) => found != was,
            Err(error) => {
                if let Some(times) = UNSEEN.times() {
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

/// What a directory is told by; none if there is none.
///
/// # Errors
/// When that cannot be seen.
pub(super) fn identity(dir: &Path) -> io::Result<Option<Identity>> {
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

    #[tokio::test]
    async fn a_directory_that_cannot_be_looked_at_is_not_taken_for_a_removed_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, store) = (dir.path().join("real"), dir.path().join("store"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &store).unwrap();
        let was = identity(&store).unwrap();
        // A name that leads to itself: every look fails.
        std::fs::remove_file(&store).unwrap();
        symlink(&store, &store).unwrap();
        timeout(LOOK + LOOK / 2, replaced(&store, was)).await.unwrap_err();
        std::fs::remove_file(&store).unwrap();
        timeout(LOOK * 60, replaced(&store, was)).await.unwrap();
    }
}
