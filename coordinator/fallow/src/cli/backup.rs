//! `fallow backup` and `fallow restore`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, IsTerminal as _, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode as ProcessExit;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use fallow_coordinator::backup::{self, Settled};
use fallow_coordinator::daemon::{self, DaemonFile};
use fallow_daemon::file;
use fallow_domain::printable::shell_path;
use fallow_domain::{Bytes, DocumentVersion, ExitCode};
use fallow_proto::operator::v1::{BackupRequest, BeginTermRequest, RestoreRequest};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;
use tokio::signal::unix::SignalKind;

use super::connect::{Target, author, root};
use super::{Failure, print, print_json, runs, submit, table, warn, why};

/// How long a coordinator may take to begin anew.
const RESTART: Duration = Duration::from_secs(120);
/// How long a backup may take: it may be of many gigabytes.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  fallow backup /var/backups/fallow.tar
  fallow backup fallow.tar --force --message 'before the upgrade'

The coordinator goes on working; the backup is of one instant. It holds all that
the coordinator's directory does, the fleet's keys too: keep it as safe as that.
Only who can read that directory can make one.")]
pub(crate) struct Backup {
    /// Where to write it: a tar file, for your user only.
    file: PathBuf,
    /// Replace a file that is there.
    #[arg(long)]
    force: bool,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a sentence.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).args(["file", "new_term"]))]
#[command(after_help = "\
Examples:
  fallow restore /var/backups/fallow.tar --dir /var/lib/fallow-coordinator
  fallow restore --new-term --dir /var/lib/fallow-coordinator

The coordinator's directory becomes what the backup holds; what was there is
moved to replaced-... beside it. Whoever was taken out of the fleet since, and
tokens that were spent, stay so if the old directory can be read, and the audit
log goes on. If the coordinator runs, it restarts by itself. To put a backup on
another machine, give it an empty directory, and say where hosts reach it
with `fallow coordinator run --listen ... --advertise ...`.

Documents begin a new term: hosts take them, also if they follow newer versions
than the backup has. With --new-term only that is done: for a coordinator whose
directory was put back by other means, such as a snapshot of its disk.")]
pub(crate) struct Restore {
    /// The backup; - for standard input.
    file: Option<PathBuf>,
    /// Put nothing back, only begin a new term of the documents: all hosts take what the coordinator says
    /// from then on, and this cannot be undone.
    #[arg(long)]
    new_term: bool,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of sentences.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn backup(arguments: Backup) -> Result<ProcessExit, Failure> {
    let Backup { file, force, message, target, json } = arguments;
    let refused = |why: &str| Failure::bad_input(format!("{} {why}", file.display()));
    match file.symlink_metadata() {
        Ok(there) if !there.is_file() => {
            return Err(refused("is no plain file: nothing was written; choose another name"));
        }
        Ok(_) if !force => {
            return Err(refused(
                "is there already: nothing was written; choose another name, or say --force",
            ));
        }
        _ => {}
    }
    let unwritable =
        |error: &io::Error| Failure::unwritable(&format!("cannot write {}", file.display()), error);
    let (mut interrupt, mut terminate) =
        (submit::listen(SignalKind::interrupt())?, submit::listen(SignalKind::terminate())?);
    let mut new = NewFile::beside(&file).map_err(|error| unwritable(&error))?;
    let taken = tokio::select! {
        taken = take(&target, message, &mut new.file, &unwritable) => Some(taken?),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some(bytes) = taken else {
        warn(&format!("interrupted: {} was not written", file.display()));
        return Ok(runs::INTERRUPTED.into());
    };
    match new.put(&file, force) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(refused(
                "has been made meanwhile, and was left as it is: choose another name, or say --force",
            ));
        }
        put => put.map_err(|error| unwritable(&error))?,
    }
    match json {
        true => print_json(&json!({ "file": file, "bytes": bytes }))?,
        false => print(&format!(
            "{}: a backup of {}. It holds the fleet's keys: keep it where nobody else can read it.\n",
            file.display(),
            Bytes(bytes)
        ))?,
    }
    Ok(ExitCode::Success.into())
}

/// A file beside the one that it is to become, with a name of its own: nobody else writes it, and nothing
/// that is there gives way to it. It goes if nothing becomes of it.
struct NewFile {
    place: PathBuf,
    file: File,
    is_put: bool,
}

impl NewFile {
    fn beside(file: &Path) -> io::Result<Self> {
        let place = file.with_file_name(format!(".fallow-backup-{}.part", ulid::Ulid::new()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place)?;
        Ok(Self { place, file, is_put: false })
    }

    /// It is on the medium, and has its name then. What is called so gives way only if it may.
    fn put(mut self, to: &Path, replaces: bool) -> io::Result<()> {
        self.file.sync_all()?;
        match replaces {
            true => std::fs::rename(&self.place, to)?,
            false => rename_if_free(&self.place, to)?,
        }
        self.is_put = true;
        file::sync_directory_of(to)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_put {
            // A full disk gets its room back. What went wrong is told anyway.
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

/// Renames a file, where nothing else has the name.
fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can do that in one step.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

/// Writes what comes. Gives how much that was.
async fn take(
    target: &Target,
    message: String,
    out: &mut File,
    unwritable: &impl Fn(&io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut client = target.connect_for(LONGEST).await?;
    let mut parts = client.backup(BackupRequest { message }).await?.into_inner();
    let progress = Progress::new(None, "backed up");
    let mut bytes = 0;
    while let Some(part) = parts.message().await? {
        out.write_all(&part.bytes).map_err(|error| unwritable(&error))?;
        bytes += part.bytes.len() as u64;
        progress.tell(bytes);
    }
    Ok(bytes)
}

pub(crate) async fn restore(arguments: Restore) -> Result<(), Failure> {
    let Restore { file, new_term: _, message, target, json } = arguments;
    match file {
        Some(file) => put_back(&file, message, &target, json).await,
        None => {
            let mut client = target.connect().await?;
            let begun = client.begin_term(BeginTermRequest { message }).await?.into_inner();
            let version = DocumentVersion(begun.document_version);
            if json {
                return print_json(&json!({
                    "document_version": version.0,
                    "term": version.term(),
                    "without_version": begun.without_version,
                }));
            }
            if begun.without_version > 0 {
                warn(&format!(
                    "version {} had not gone out to all hosts, and is not in it: whoever made that change makes it again",
                    DocumentVersion(begun.without_version)
                ));
            }
            print(&match version.0 {
                0 => "There are no documents yet: nothing had to be done.\n".to_owned(),
                _ => format!("Term {} of the documents begins, with version {version}.\n", version.term()),
            })
        }
    }
}

async fn put_back(file: &Path, message: String, target: &Target, json: bool) -> Result<(), Failure> {
    if target.coordinator.is_some() {
        return Err(Failure::bad_input(
            "a backup is put back on the coordinator's own machine: name its directory with --dir, not its address",
        ));
    }
    let dir = place(&target.dir);
    // For people alone: what leads there may be closed to who owns it (`go_on_as`).
    let shown = if dir == Path::new(HERE) { std::env::current_dir() } else { std::path::absolute(&dir) };
    let shown = shown.map_err(|error| Failure::file("find", &dir, error))?;
    let (opened, size) = open(file)?;
    if let Some(owner) = other_owner(&dir)? {
        return Err(go_on_as(owner, opened, &dir, &message, json));
    }
    let unpacked = {
        let dir = dir.clone();
        tokio::task::spawn_blocking(move || {
            let progress = Progress::new(size, "read");
            let from = Told { inner: BufReader::new(opened), bytes: 0, progress };
            daemon::unpack(from, &dir, &author(), &message)
        })
    };
    let unpacked = unpacked.await.map_err(|died| Failure::internal("the backup is not read", died))??;
    let put = match DaemonFile::read(&dir) {
        Ok(daemon) if daemon.is_alive() => restart(&dir, &unpacked.id, &daemon, target).await.map(|()| None),
        _ => {
            let (dir, id) = (dir.clone(), unpacked.id.clone());
            let settled = tokio::task::spawn_blocking(move || {
                let _ = backup::arm(&dir, &id)?;
                daemon::settle(&dir)
            });
            let settled =
                settled.await.map_err(|died| Failure::internal("the backup is not put back", died))?;
            settled.map_err(Failure::from)
        }
    };
    let settled = put.inspect_err(|_| {
        // What was not handed over is of no use to anybody. The first failure is the one to tell.
        if backup::pending(&dir).is_ok_and(|waiting| waiting.is_none()) {
            let _ = backup::disarm(&dir);
        }
    })?;
    let made_at = table::instant(unpacked.made_at.as_micros());
    let is_replaced = backup::replaced(&dir, &unpacked.id).exists();
    let replaced = backup::replaced(&shown, &unpacked.id);
    if json {
        return print_json(&json!({
            "dir": shown,
            "made_at": made_at,
            "replaced": is_replaced.then_some(replaced),
            "records": unpacked.records,
            "files": unpacked.files,
            "restarted": settled.is_none(),
        }));
    }
    let mut text = format!("The coordinator in {} is as it was at {made_at}.\n", shown.display());
    text += "Of its documents a new term begins: hosts take what it says from now on, all of them at once; those \
             that ask for signatures when it is signed (`fallow organisation sign`).\n";
    if !is_replaced {
        text += "Nothing was there before: who was taken out of the fleet since the backup has to be taken out again \
                 (`fallow hosts revoke`, `fallow operators revoke`, `fallow tokens revoke`). If `fallow hosts` says \
                 then that hosts follow versions which this coordinator does not have, say `fallow restore \
                 --new-term`.\n";
    }
    match &settled {
        None => text += "It has begun anew, and runs.\n",
        Some(Settled { lost: Some(why), .. }) => {
            text += &format!(
                "What was there could not be read ({why}): whoever was taken out of the fleet since the backup \
                 has to be taken out again (`fallow hosts revoke`), and tokens that were ended have to be ended \
                 again.\n"
            );
        }
        Some(_) => text += &format!("Start it: fallow coordinator run --dir {}\n", shell_path(&shown)),
    }
    if is_replaced {
        text += &format!("What was there is in {}: delete that when all is well.\n", replaced.display());
    }
    print(&text)
}

/// The coordinator's own directory, by what people name: it, or that of `fallow up`.
fn place(dir: &Path) -> PathBuf {
    let within = dir.join("coordinator");
    let is_own = dir.join("operator.token").exists() || dir.join("store").exists();
    if within.exists() || (!is_own && *dir == root()) { within } else { dir.to_path_buf() }
}

/// The backup, and its size where that is known: a file, or `-` for standard input.
fn open(file: &Path) -> Result<(File, Option<u64>), Failure> {
    let fail = |error| Failure::file("read", file, error);
    if file == Path::new("-") {
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(fail)?;
        return Ok((input.into(), None));
    }
    let opened = File::open(file).map_err(fail)?;
    let metadata = opened.metadata().map_err(fail)?;
    Ok((opened, metadata.is_file().then_some(metadata.len())))
}

/// The user and group whose a coordinator's directory is, if that is not the one who runs this, but could be:
/// files of another user would keep the coordinator from starting.
fn other_owner(dir: &Path) -> Result<Option<(u32, u32)>, Failure> {
    let own = rustix::process::geteuid();
    match dir.metadata() {
        Ok(metadata) if metadata.uid() == own.as_raw() => Ok(None),
        Ok(metadata) if own.is_root() => Ok(Some((metadata.uid(), metadata.gid()))),
        Ok(_) => Err(Failure::new(
            ExitCode::Refused,
            format!(
                "{} is another user's: run this as the user whom its coordinator runs as, or as root",
                dir.display()
            ),
        )),
        Err(_) => Ok(None),
    }
}

/// Where a process is, whatever is closed to it on the way there.
const HERE: &str = "/proc/self/cwd";

/// Root goes on as the owner of the directory, with no more rights than he has: what he may have put there
/// leads nowhere else. He goes on within the directory: systemd closes what leads to that of a service to
/// everybody but root. Returns only if that fails.
fn go_on_as((user, group): (u32, u32), backup: File, dir: &Path, message: &str, json: bool) -> Failure {
    if let Err(error) = std::env::set_current_dir(dir) {
        return Failure::file("go to", dir, error);
    }
    let mut command = std::process::Command::new("/proc/self/exe");
    command.args(["restore", "-", "--dir", HERE]).arg(format!("--message={message}"));
    if json {
        command.arg("--json");
    }
    let error = command.stdin(backup).uid(user).gid(group).exec();
    Failure::internal("the backup cannot be put back as the owner of the coordinator's directory", error)
}

/// Has a running coordinator begin anew, and waits until it has.
async fn restart(dir: &Path, id: &str, before: &DaemonFile, target: &Target) -> Result<(), Failure> {
    let mut client = target.connect().await?;
    let _ = client.restore(RestoreRequest { id: id.to_owned() }).await?;
    let end = Instant::now() + RESTART;
    loop {
        let is_over = backup::pending(dir).is_ok_and(|waiting| waiting.is_none());
        if is_over && DaemonFile::read(dir).is_ok_and(|daemon| daemon.is_alive()) {
            return match backup::replaced(dir, id).exists() {
                true => Ok(()),
                false => Err(Failure::bad_input(
                    "the backup could not be put in place, and the coordinator goes on as it was before: its log says why",
                )),
            };
        }
        // It begins anew as the same process.
        if !before.is_alive() {
            let text = format!(
                "the coordinator in {} has ended, and did not begin anew: its log says why; `fallow coordinator run` tries it again",
                dir.display()
            );
            return Err(Failure::new(ExitCode::Unreachable, text));
        }
        if Instant::now() > end {
            return Err(Failure::new(
                ExitCode::Unreachable,
                format!(
                    "the coordinator in {} has not begun anew within {}: its log says why; `fallow coordinator run` tries it again",
                    dir.display(),
                    humantime::format_duration(RESTART)
                ),
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A reader that tells how far it is.
struct Told<R> {
    inner: R,
    bytes: u64,
    progress: Progress,
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        self.progress.tell(self.bytes);
        Ok(count)
    }
}

/// A bar on a terminal, a plain line now and then elsewhere; both on standard error.
struct Progress {
    bar: Option<ProgressBar>,
    what: &'static str,
    last: std::cell::Cell<Instant>,
}

impl Progress {
    fn new(total: Option<u64>, what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
            let template = match total {
                Some(_) => "{prefix} {bar:30} {bytes} of {total_bytes}, {eta} left",
                None => "{spinner} {prefix} {bytes}, {bytes_per_sec}",
            };
            // No colours: NO_COLOR has nothing to take away.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(what);
            bar
        });
        Self { bar, what, last: std::cell::Cell::new(Instant::now()) }
    }

    fn tell(&self, bytes: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(bytes),
            None if self.last.get().elapsed() >= LINES => {
                self.last.set(Instant::now());
                // Nobody is told when nobody reads it.
                let _ = writeln!(io::stderr(), "fallow: {} {}", Bytes(bytes), self.what);
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn r6_9_two_backups_to_one_name_are_each_whole_and_the_second_does_not_replace_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (to, of_somebody) = (dir.path().join("b.tar"), dir.path().join("b.tar.part"));
        std::fs::write(&of_somebody, "precious").unwrap();
        let begin = |content: &str| {
            let mut new = NewFile::beside(&to).unwrap();
            new.file.write_all(content.as_bytes()).unwrap();
            new
        };
        for (replaces, expected) in [(false, "the second"), (true, "the first")] {
            let first = begin("the first");
            begin("the second").put(&to, replaces).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), "the second");
            assert_eq!(first.put(&to, replaces).is_ok(), replaces);
            assert_eq!(std::fs::read_to_string(&to).unwrap(), expected);
            assert_eq!(names(dir.path()), ["b.tar", "b.tar.part"]);
            std::fs::remove_file(&to).unwrap();
        }
        drop(begin("broken off"));
        assert_eq!(names(dir.path()), ["b.tar.part"]);
        assert_eq!(std::fs::read_to_string(&of_somebody).unwrap(), "precious");
    }
}
