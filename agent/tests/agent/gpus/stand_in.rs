//! A stand-in for NVIDIA's management library, behind the real wrapper: compiled from `nvml.c`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A library of one test's own, and what it tells of.
pub(super) struct StandIn(tempfile::TempDir);

impl StandIn {
    /// One that tells of this, in the words of `nvml.c`.
    pub(super) fn telling(devices: &str) -> Self {
        static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
        let bytes = COMPILED.get_or_init(|| compiled(include_bytes!("nvml.c")));
        let stand_in = Self(tempfile::tempdir().unwrap());
        std::fs::write(stand_in.library(), bytes).unwrap();
        std::fs::set_permissions(stand_in.library(), std::fs::Permissions::from_mode(0o755)).unwrap();
        stand_in.tell(devices);
        stand_in
    }

    /// It tells of something else from now on.
    pub(super) fn tell(&self, devices: &str) {
        let (new, path) = (self.dir().join("devices.new"), self.dir().join("devices"));
        std::fs::write(&new, devices).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    pub(super) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn library(&self) -> PathBuf {
        self.dir().join("libnvidia-ml.so.1")
    }
}

/// The library that this source makes.
pub(super) fn compiled(text: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("library.c"), dir.path().join("library.so"));
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .args([&library, &source])
        .output()
        .expect("a C compiler is needed, as CONTRIBUTING.md says");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(library).unwrap()
}
