//! What the tests share.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fallow_domain::MasterUrl;

/// The binary under test.
pub(crate) fn agent() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_fallow-agent"))
}

/// A project that is nowhere.
pub(crate) fn project() -> MasterUrl {
    MasterUrl::parse("http://127.0.0.1:9/test/").unwrap()
}

/// What has to come is waited for so long: it costs nothing where it comes, and a machine may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Looks again and again until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True while a process exists that computes or could.
pub(crate) fn is_alive(pid: u32) -> bool {
    fallow_agent::proc::find(pid).is_some_and(|process| !process.zombie)
}

/// Writes a file, with its directories.
pub(crate) fn put(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}
