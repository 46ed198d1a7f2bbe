//! Whether a project's application files still are what its project signed: looked at right before each
//! start.
//!
//! Model: jobs run as the same user as the agent, so one could put other bytes into another project's
//! program. Each file is opened once, and nothing is believed of its name. While it is looked at, a lease
//! keeps others from opening it for writing; a file that somebody has open for writing, or mapped so, cannot
//! be leased, and is replaced by a copy that nobody else has. Its MD5 is worked out and compared with the
//! signature. The program is executed from the very descriptor that was looked at, its lease still held.
//!
//! So that a large application is not read at every start, MD5 sums are remembered with the file's stamp,
//! size and times. An ordinary user cannot set the change time; what was written since shows in it, provided
//! that nobody had the file open for writing when it was noted, which the lease makes sure of, and that the
//! clock had moved on since the last change, which is waited for. Where a file system has no leases, or does
//! not note writes to mapped pages (tmpfs), nothing is remembered.
//!
//! Left out: libraries and scripts are opened by the application later, by name, and could be changed between
//! this look and then; and on kernels before 6.14, where a program executed from a descriptor would show
//! under that descriptor's number, it is executed by name and its name looked at again afterwards. Only
//! keeping jobs apart closes both.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fallow_boinc::names;
use fallow_boinc::signature::{PublicKey, md5_of};
use fallow_client::{ApplicationFile, StartFault, TaskSetup};
use fallow_domain::Bytes;

use super::Context;
use super::slot::StartFailure;
use crate::dir::{self, PARTIAL};
use crate::files::{open_plain, remove, shown_path};
use crate::sys::Lease;

/// How long a writer that is about to close the file, a download perhaps, is waited for.
const WRITER: Duration = Duration::from_millis(500);
/// A change this recent may share its time stamp with the next one.
const SETTLED: Duration = Duration::from_millis(50);
/// Files that are remembered at most.
const KNOWN_MAX: usize = 10_000;
/// The type of tmpfs (`TMPFS_MAGIC`).
const TMPFS: u64 = 0x0102_1994;

/// What a file was when it was last looked at: its device, inode, size, and times of modification and of
/// change.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// A file, and the lease on it where there can be one.
type LookedAt = (File, Option<Lease>);

/// MD5 sums of files that were looked at, and whose turn it is to make a copy of one.
#[derive(Debug, Default)]
pub(super) struct Known {
    sums: Mutex<BTreeMap<FileStamp, String>>,
    copying: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>>,
}

/// A program that is what it should be.
#[derive(Debug)]
pub(super) struct Program {
    /// Its content.
    pub(super) file: File,
    /// Nobody writes to it before it is executed; then the kernel sees to that.
    _lease: Option<Lease>,
    path: PathBuf,
}

impl Program {
    /// Whether its name still leads to it. Where that cannot be seen, as when a job has closed a directory on
    /// the way, nothing says that it does not.
    pub(super) fn is_in_place(&self) -> bool {
        let place = |data: fs::Metadata| (data.dev(), data.ino());
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(file), Ok(named)) => place(file) == place(named),
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }
}

/// Looks at all files of a task. Gives its program, or says which files are to be fetched again.
pub(super) fn verify(context: &Context, known: &Known, setup: &TaskSetup) -> Result<Program, StartFailure> {
    let project = context.dir.project(&setup.url);
    let mut wrong: Vec<(String, String)> = Vec::new();
    let mut program = None;
    for expected in &setup.application {
        let path = project.join(&expected.name);
        match known.look(expected, &path).map_err(|error| StartFailure::from_io("look at", &path, &error))? {
            Ok(looked_at) if expected.name == setup.program => program = Some(looked_at),
            Ok(_) => {}
            Err(why) => wrong.push((expected.name.clone(), why)),
        }
    }
    let path = project.join(&setup.program);
    if program.is_none() && wrong.is_empty() {
        let what = format!("nobody has signed its program {}", setup.program);
        return Err(StartFailure::new(StartFault::Job, what));
    }
    let inputs = setup.files.iter().filter(|file| !file.output && names::is_file_name(&file.name));
    for input in inputs.filter(|file| !setup.application.iter().any(|known| known.name == file.name)) {
        if !fs::symlink_metadata(project.join(&input.name)).is_ok_and(|data| data.is_file()) {
            wrong.push((input.name.clone(), "it is gone from the disk".to_owned()));
        }
    }
    match program {
        Some((file, lease)) if wrong.is_empty() => Ok(Program { file, _lease: lease, path }),
        _ => {
            let what =
                wrong.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ");
            let names = wrong.into_iter().map(|(name, _)| name).collect();
            Err(StartFailure::new(StartFault::Files(names), what))
        }
    }
}

impl Known {
    /// Looks at one file. The inner error says what is wrong with it.
    fn look(&self, expected: &ApplicationFile, path: &Path) -> io::Result<Result<LookedAt, String>> {
        let mut file = match open_plain(path) {
            Ok(file) => file,
            Err(error) if is_ours(&error) => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let leased = match lease(&file) {
            Ok(lease) => Some(lease),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (own, lease) = self.replace(file, path)?;
                file = own;
                lease
            }
            Err(_) => None,
        };
        let before = stamp(&file)?;
        let seen = leased.as_ref().and_then(|_| self.recall(&before));
        let (md5, is_new) = match seen {
            Some(md5) => (md5, false),
            None => (md5_of(&file)?.0, true),
        };
        if stamp(&file)? != before {
            return Ok(Err("it changes while it is looked at".to_owned()));
        }
        if let Some(why) = problem(expected, &md5, Bytes(before.2)) {
            return Ok(Err(why));
        }
        if is_new && leased.is_some() && settled(&before) && !is_tmpfs(&file) {
            self.remember(before, md5);
        }
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if expected.executable && mode != 0o755 {
            file.set_permissions(fs::Permissions::from_mode(0o755))?;
        }
        Ok(Ok((file, leased)))
    }

    /// Somebody has a file open for writing: puts a copy of our own in its place. One at a time for each
    /// file; who comes second finds the copy.
    fn replace(&self, file: File, path: &Path) -> io::Result<LookedAt> {
        let turn = {
            let mut copying = fallow_daemon::lock(&self.copying);
            copying.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(copying.entry(path.to_path_buf()).or_default())
        };
        let _turn = fallow_daemon::lock(&turn);
        let there = open_plain(path).unwrap_or(file);
        if let Ok(lease) = Lease::take(&there) {
            return Ok((there, Some(lease)));
        }
        tracing::warn!(path = shown_path(path), "somebody has it open for writing: making a copy of our own");
        let own = own_copy(&there, path)?;
        let lease = lease(&own).ok();
        Ok((own, lease))
    }

    fn recall(&self, stamp: &FileStamp) -> Option<String> {
        fallow_daemon::lock(&self.sums).get(stamp).cloned()
    }

    fn remember(&self, stamp: FileStamp, md5: String) {
        let mut known = fallow_daemon::lock(&self.sums);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(stamp, md5);
    }
}

/// A lack of something that the agent has only so much of says nothing about a file.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::INTR))
}

/// Takes a lease, and waits for a writer that is about to be gone.
fn lease(file: &File) -> io::Result<Lease> {
    const ROUND: Duration = Duration::from_millis(10);
    let mut left = WRITER;
    loop {
        match Lease::take(file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !left.is_zero() => {
                std::thread::sleep(ROUND);
                left = left.saturating_sub(ROUND);
            }
            taken => return taken,
        }
    }
}

/// Puts a copy in the place of a file, so that whoever has the old one open has something else.
fn own_copy(mut file: &File, path: &Path) -> io::Result<File> {
    let parts = path.with_file_name(PARTIAL);
    crate::dir::make_closed(&parts)?;
    let copy = parts.join(dir::copy_name(path.file_name().unwrap_or_default()));
    remove(&copy)?;
    let mut target = File::options().write(true).create_new(true).open(&copy)?;
    io::copy(&mut file, &mut target)?;
    target.set_permissions(file.metadata()?.permissions())?;
    drop(target);
    let own = open_plain(&copy)?;
    fs::rename(&copy, path)?;
    Ok(own)
}

fn stamp(file: &File) -> io::Result<FileStamp> {
    let data = file.metadata()?;
    let (modified, changed) = ((data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec()));
    Ok((data.dev(), data.ino(), data.size(), modified, changed))
}

/// Whether a later change would show in the change time.
fn settled(stamp: &FileStamp) -> bool {
    let (secs, nanos) = stamp.4;
    let changed = Duration::new(u64::try_from(secs).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now > changed + SETTLED
}

fn is_tmpfs(file: &File) -> bool {
    rustix::fs::fstatfs(file.as_fd())
        .is_ok_and(|data| u64::try_from(data.f_type).is_ok_and(|kind| kind == TMPFS))
}

/// What is wrong with a file of this content. Nothing that is run goes unsigned.
fn problem(expected: &ApplicationFile, md5: &str, size: Bytes) -> Option<String> {
    if let Some(nbytes) = expected.nbytes.filter(|&nbytes| nbytes != size && nbytes.0 != 0) {
        return Some(format!("it has {} bytes instead of {}", size.0, nbytes.0));
    }
    let proves = |required: &fallow_client::RequiredSignature| {
        PublicKey::parse(&required.key).is_ok_and(|key| key.verify_file(md5, &required.signature))
    };
    let is_signed = expected.signatures.iter().any(proves);
    (!is_signed).then(|| "it is not what its project has signed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_boinc::signature::{PrivateKey, md5_hex};
    use fallow_client::RequiredSignature;
    use std::os::unix::fs::FileExt;

    fn expected(content: &[u8]) -> ApplicationFile {
        static KEY: std::sync::OnceLock<PrivateKey> = std::sync::OnceLock::new();
        // For tests alone: anybody could draw these numbers.
        let mut state = 1_u64;
        let mut fill = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        };
        let key = KEY.get_or_init(|| PrivateKey::generate(&mut fill).unwrap());
        let signature = key.sign_file(&md5_hex(content), &mut |bytes| bytes.fill(7)).unwrap();
        ApplicationFile {
            name: "app".into(),
            nbytes: Some(Bytes(content.len() as u64)),
            signatures: vec![RequiredSignature { signature, key: key.public_key().to_text() }],
            executable: true,
        }
    }

    fn make() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        fs::write(&path, b"right").unwrap();
        let made = stamp(&File::open(&path).unwrap()).unwrap();
        while !settled(&made) {
            std::thread::yield_now();
        }
        (dir, path)
    }

    #[test]
    fn what_was_changed_since_is_seen_also_where_its_sum_was_remembered() {
        let (_dir, path) = make();
        let known = Known::default();
        for _ in 0..2 {
            known.look(&expected(b"right"), &path).unwrap().unwrap();
        }
        let file = File::options().write(true).open(&path).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"wrong", 0).unwrap();
        file.set_modified(modified).unwrap();
        drop(file);
        let why = known.look(&expected(b"right"), &path).unwrap().unwrap_err();
        assert!(why.contains("not what its project has signed"), "{why}");
    }

    #[test]
    fn a_file_that_somebody_holds_open_for_writing_is_replaced_by_a_copy() {
        let (_dir, path) = make();
        let held = File::options().write(true).open(&path).unwrap();
        let known = Known::default();
        let (program, _lease) = known.look(&expected(b"right"), &path).unwrap().unwrap();
        held.write_all_at(b"wrong", 0).unwrap();
        let mut content = [0; 5];
        program.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"right");
        known.look(&expected(b"right"), &path).unwrap().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"right");
    }

    #[test]
    fn r6_10_a_copy_of_a_file_touches_no_download_and_fits_whatever_the_files_name() {
        for name in ["app".to_owned(), "a".repeat(255)] {
            let (dir, path) = make();
            let path = path.with_file_name(&name);
            fs::write(&path, b"right").unwrap();
            let parts = dir.path().join(PARTIAL);
            fs::create_dir_all(&parts).unwrap();
            let download = parts.join("app.own");
            fs::write(&download, b"half").unwrap();
            let _held = File::options().write(true).open(&path).unwrap();
            let looked_at = Known::default().look(&expected(b"right"), &path);
            assert!(matches!(looked_at, Ok(Ok(_))), "{name}: {looked_at:?}");
            assert_eq!(fs::read(&download).unwrap(), b"half", "{name}");
        }
    }

    #[test]
    fn r6_10_starts_at_once_of_a_file_that_is_held_open_for_writing_all_get_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        let content = vec![7; 16 << 20];
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let _held = File::options().write(true).open(&path).unwrap();
        let (known, expected) = (Known::default(), expected(&content));
        let look = || {
            let (program, lease) = known.look(&expected, &path).unwrap().unwrap();
            Program { file: program, _lease: lease, path: path.clone() }
        };
        let programs: Vec<Program> = std::thread::scope(|scope| {
            let looks: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
            looks.into_iter().map(|look| look.join().unwrap()).collect()
        });
        assert!(programs.iter().all(Program::is_in_place));
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
    }

    #[test]
    fn r6_10_what_nobody_signed_and_what_was_signed_of_another_content_are_wrong() {
        let (_dir, path) = make();
        let other = expected(b"other").signatures;
        for signatures in [Vec::new(), other] {
            let unsigned = ApplicationFile { signatures, ..expected(b"right") };
            let why = Known::default().look(&unsigned, &path).unwrap().unwrap_err();
            assert!(why.contains("signed"), "{why}");
        }
    }

    #[test]
    fn a_link_in_place_of_a_file_and_a_missing_one_are_wrong() {
        let (dir, path) = make();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Known::default().look(&expected(b"right"), &link).unwrap().is_err());
        assert!(Known::default().look(&expected(b"right"), &dir.path().join("gone")).unwrap().is_err());
    }

    #[test]
    fn a_program_that_lost_its_mode_gets_it_back() {
        let (_dir, path) = make();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Known::default().look(&expected(b"right"), &path).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
