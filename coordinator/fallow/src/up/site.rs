//! The directory of a demonstration, the executables, and what an earlier run decided.

use std::path::{Path, PathBuf};

use fallow_daemon::file;
use fallow_daemon::file_lock::{FileLock, LockError};
use fallow_domain::ExitCode;

use super::UpArguments;
use super::space;
use super::workload::DemoSize;
use crate::cli::Failure;

/// What shows that a directory is a demonstration's: the work that was cut for it. Written before anything
/// else.
const MARK: &str = "up.json";
/// What may lie in a directory that is to become one: what a start leaves that came no further, and what file
/// systems put into a new volume.
const NOTHING: [&str; 3] = ["up.lock", "up.json.new", "lost+found"];

/// Where a demonstration happens.
pub(super) struct DemoDirectory {
    dir: PathBuf,
    /// Where the executables are.
    binaries: PathBuf,
    /// The work.
    pub(super) wanted: DemoSize,
    _lock: FileLock,
}

impl DemoDirectory {
    /// Makes or opens the directory.
    pub(super) fn prepare(arguments: &UpArguments) -> Result<Self, Failure> {
        let unusable = |source| {
            if let Some(file) = arguments.dir.ancestors().find(|path| path.exists() && !path.is_dir()) {
                let text =
                    format!("{} is not a directory: give another --dir, or move it away", file.display());
                return Failure::bad_input(text);
            }
            let text = format!(
                "the directory {} cannot be made or written: check its owner, mode and free space, or give another --dir",
                arguments.dir.display()
            );
            Failure::caused(ExitCode::NoSpace, text, source)
        };
        require_own(&arguments.dir)?;
        std::fs::create_dir_all(&arguments.dir).map_err(unusable)?;
        let dir = std::fs::canonicalize(&arguments.dir).map_err(unusable)?;
        let lock = lock(&dir)?;
        let binaries = binaries()?;
        // A directory of an earlier run has taken its space already.
        if !dir.join(MARK).exists() {
            let size = |name| std::fs::metadata(binaries.join(name)).map_or(0, |metadata| metadata.len());
            space::require(&dir, &space::Need::of(arguments.agents, [size("mersenne"), size("totient")]))?;
        }
        let wanted = remembered(&dir, arguments)?;
        Ok(Self { dir, binaries, wanted, _lock: lock })
    }

    /// The directory, canonical.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The coordinator's directory.
    pub(super) fn coordinator(&self) -> PathBuf {
        self.dir.join("coordinator")
    }

    /// An agent's directory.
    pub(super) fn agent(&self, number: u32) -> PathBuf {
        self.dir.join(format!("agent-{number}"))
    }

    /// An executable.
    pub(super) fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }
}

/// Refuses a directory of somebody else: what is stopped and killed at the end must be what was started here.
fn require_own(dir: &Path) -> Result<(), Failure> {
    if dir.join(MARK).exists() {
        return Ok(());
    }
    // What cannot be looked into is told of by what comes next.
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    let is_something = |name: &String| !NOTHING.contains(&name.as_str());
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let Some(found) = names.filter(is_something).min() else { return Ok(()) };
    let is_coordinator = |dir: &Path| ["store", "operator.token"].iter().any(|name| dir.join(name).exists());
    let shown = dir.display();
    let what = if is_coordinator(dir) {
        format!("{shown} is the directory of a coordinator that `fallow up` did not make")
    } else if is_coordinator(&dir.join("coordinator")) {
        format!("{shown} holds a coordinator that `fallow up` did not make")
    } else {
        format!("{shown} is not empty (it holds {found}) and `fallow up` did not make it")
    };
    let advice = "give another --dir, one that is empty or does not exist, such as --dir ./fallow-demo";
    Err(Failure::bad_input(format!("{what}: {advice}")))
}

fn lock(dir: &Path) -> Result<FileLock, Failure> {
    let path = dir.join("up.lock");
    FileLock::take(&path).map_err(|refused| match refused {
        LockError::InUse(holder) => {
            let holder = holder.map_or_else(String::new, |pid| format!(" as process {pid}"));
            let dir = dir.display();
            let text = format!(
                "another `fallow up` runs in {dir}{holder}: stop it with Ctrl-C there, or give another --dir"
            );
            Failure::new(ExitCode::InUse, text)
        }
        LockError::Io(error) => {
            let text = format!("cannot write {}: check its directory", path.display());
            Failure::caused(ExitCode::NoSpace, text, error)
        }
    })
}

/// The agent and the applications lie beside this executable.
fn binaries() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let own = own.map_err(|error| Failure::internal("cannot find this program's own file", error))?;
    let dir = own.parent().unwrap_or(Path::new("/")).to_path_buf();
    let missing: Vec<_> = ["fallow", "fallow-agent", "mersenne", "totient"]
        .into_iter()
        .filter(|name| !dir.join(name).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(dir);
    }
    let text = format!(
        "{} has no {}: build everything with `cargo build --release`, or install it all in one directory",
        dir.display(),
        missing.join(" and no ")
    );
    Err(Failure::bad_input(text))
}

/// The work of this directory: as it was cut at first, or as asked for now.
fn remembered(dir: &Path, arguments: &UpArguments) -> Result<DemoSize, Failure> {
    let path = dir.join(MARK);
    let asked = DemoSize::new(arguments.exponents, arguments.quick);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let kept: DemoSize = serde_json::from_slice(&bytes).map_err(|error| {
                let text =
                    format!("{} is not what was written there: delete {}", path.display(), dir.display());
                Failure::caused(ExitCode::BadStore, text, error)
            })?;
            let asks = arguments.exponents.is_some() || arguments.quick;
            if asks && kept != asked {
                let (from, to) = kept.exponents;
                let text = format!(
                    "{} holds a run over the exponents {from}..{to}{}: leave --exponents and --quick out to continue it, or give another --dir",
                    dir.display(),
                    if kept.quick { " with --quick" } else { "" }
                );
                return Err(Failure::bad_input(text));
            }
            Ok(kept)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = serde_json::to_vec_pretty(&asked).unwrap_or_default();
            file::write_whole(&path, &text, 0o644).map_err(|error| Failure::file("write", &path, error))?;
            Ok(asked)
        }
        Err(error) => Err(Failure::file("read", &path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(exponents: Option<(u64, u64)>, quick: bool) -> UpArguments {
        UpArguments { agents: 3, exponents, quick, until_done: true, dir: "unused".into(), json: false }
    }

    #[test]
    fn an_earlier_run_is_continued_and_other_work_in_its_directory_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = remembered(dir.path(), &asking(Some((2, 100)), true)).unwrap();
        assert_eq!(remembered(dir.path(), &asking(None, false)).unwrap(), first);
        let failure = remembered(dir.path(), &asking(Some((2, 200)), true)).unwrap_err();
        assert_eq!(failure.code(), ExitCode::BadInput);
        assert!(failure.to_string().contains("2..100 with --quick"), "{failure}");
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused_and_nothing_is_written_there() {
        let refused = |dir: &Path, said: &str| {
            let names = || std::fs::read_dir(dir).unwrap().count();
            let before = names();
            let failure =
                DemoDirectory::prepare(&UpArguments { dir: dir.to_path_buf(), ..asking(None, true) }).err();
            let failure = failure.unwrap();
            assert_eq!(failure.code(), ExitCode::BadInput);
            let text = failure.to_string();
            assert!(text.contains(said) && text.contains("give another --dir"), "{text}");
            assert_eq!(names(), before);
        };
        let clone = tempfile::tempdir().unwrap();
        std::fs::create_dir(clone.path().join(".git")).unwrap();
        refused(clone.path(), "is not empty (it holds .git)");
        let lab = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(lab.path().join("coordinator/store")).unwrap();
        refused(lab.path(), "holds a coordinator that `fallow up` did not make");
        refused(&lab.path().join("coordinator"), "is the directory of a coordinator");
    }

    #[test]
    fn an_empty_directory_and_one_of_an_earlier_run_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lost+found")).unwrap();
        let _held = lock(dir.path()).unwrap();
        assert!(require_own(dir.path()).is_ok());
        assert!(require_own(&dir.path().join("not-there-yet")).is_ok());
        remembered(dir.path(), &asking(None, true)).unwrap();
        std::fs::create_dir_all(dir.path().join("coordinator/store")).unwrap();
        assert!(require_own(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_has_one_supervisor_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert_eq!(lock(dir.path()).unwrap_err().code(), ExitCode::InUse);
        drop(held);
        assert!(lock(dir.path()).is_ok());
    }
}
