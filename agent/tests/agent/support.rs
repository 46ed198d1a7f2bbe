//! What the tests share.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fallow_boinc::signature::{PrivateKey, md5_hex};
use fallow_client::{ApplicationFile, RequiredSignature};
use fallow_domain::{Bytes, MasterUrl};

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

/// Copies a program by another process: what is open for writing here is so in whatever other tests fork
/// meanwhile, and then it cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").args([from, to]).status().unwrap().success());
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

/// An application of one file that lies in a project's directory, signed by a key of the tests' own. Nothing,
/// if there is no such file.
pub(crate) fn signed(place: &Path, name: &str) -> Vec<ApplicationFile> {
    static KEY: OnceLock<PrivateKey> = OnceLock::new();
    let Ok(content) = std::fs::read(place.join(name)) else { return Vec::new() };
    let random = |bytes: &mut [u8]| File::open("/dev/urandom").unwrap().read_exact(bytes).unwrap();
    let key = KEY.get_or_init(|| PrivateKey::generate(&mut { random }).unwrap());
    let signature = key.sign_file(&md5_hex(&content), &mut { random }).unwrap();
    vec![ApplicationFile {
        name: name.into(),
        nbytes: Some(Bytes(content.len() as u64)),
        signatures: vec![RequiredSignature { signature, key: key.public_key().to_text() }],
        executable: true,
    }]
}
