//! The agent's data directory: what lies where in it, and the lock that makes it one process's own.
//!
//! ```text
//! lock           held while the agent runs
//! daemon.json    process id, its start, control socket; absent after a clean end
//! control.sock   local control
//! identity.json  who the agent is in its fleet (0600)
//! identity.key   its private key there (0600)
//! separation.json  that this agent becomes another host, and who (0600); separation.key before that
//! store/         the client's records
//! projects/STEM/ a project's files (BOINC's layout; a second project of the same STEM has STEM.2/);
//!                parts of downloads in .partial/
//! slots/N/       a running or preempted task's directory (BOINC's layout), its record beside it in N.json
//! preferences.toml  what the owner allows; beside it BOINC's global_prefs_override.xml and cc_config.xml
//! trash/         what jobs left in their slots, to be removed when there is time
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};

use fallow_daemon::file;
use fallow_daemon::file_lock::{FileLock, LockError};
use fallow_domain::{MasterUrl, SlotId};
use fallow_store::Kind;
use serde::{Deserialize, Serialize};

use crate::error::AgentError;
use crate::modes;
use crate::owner;
use crate::trash::Trash;
use crate::users::Users;

/// The directory of the files of projects.
pub(crate) const PROJECTS: &str = "projects";
/// That of slots.
pub(crate) const SLOTS: &str = "slots";
/// That of what is to be removed.
pub(crate) const TRASH: &str = "trash";

/// The data directory, by its absolute path, the names of projects' directories in it where they are not
/// BOINC's, the place for what is to be removed, its own place once that was asked for, and the users that
/// jobs run as, where these are others than the agent's.
#[derive(Clone, Debug)]
pub struct DataDir(
    PathBuf,
    Arc<RwLock<BTreeMap<MasterUrl, String>>>,
    Trash,
    Arc<OnceLock<Place>>,
    Arc<OnceLock<Users>>,
);

/// A directory as the system numbers it: its device and its inode.
pub type Place = (u64, u64);

/// `daemon.json` of an agent.
pub type DaemonFile = fallow_daemon::DaemonFile<Told>;

/// Where an agent is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its control socket.
    pub control_socket: PathBuf,
}

impl DataDir {
    /// The directory at `path`, which need not exist.
    pub fn at(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let trash = Trash::at(path.join(TRASH));
        Self(path, Arc::default(), trash, Arc::default(), Arc::default())
    }

    /// From now on jobs run as these users, who are let through its directories.
    pub fn run_jobs_as(&self, users: Users) {
        let _ = self.4.set(users);
    }

    /// The users that jobs run as, where these are others than the agent's.
    pub fn users(&self) -> Option<&Users> {
        self.4.get()
    }

    /// Where it is, as it was when that was asked for first; none where it cannot be looked at.
    pub fn place(&self) -> Option<Place> {
        if let Some(place) = self.3.get() {
            return Some(*place);
        }
        let data = self.0.metadata().ok()?;
        Some(*self.3.get_or_init(|| (data.dev(), data.ino())))
    }

    /// Makes the directory if need be and takes its lock.
    ///
    /// # Errors
    /// [`AgentError::InUse`] when another process has it, [`AgentError::Directory`] when it cannot be made
    /// or written, [`AgentError::BadInput`] when it is no directory, or not an agent's and not empty either.
    pub fn lock(&self) -> Result<FileLock, AgentError> {
        // A job may have closed it to its own user: whose it is could not be seen.
        modes::open_up(self);
        let is_an_agents = match self.check_owner() {
            Err(coordinators @ AgentError::BadInput { .. }) => return Err(coordinators),
            other => other,
        };
        if self.0.exists() && !self.0.is_dir() {
            let dir = self.0.display();
            let what = format!("{dir} is not a directory: give another --dir, or move it away");
            return Err(AgentError::bad_input(what));
        }
        let fail = |source| AgentError::Directory { dir: self.0.clone(), source };
        if self.0.exists() {
            // First: of another user's directory nothing else is to be said.
            self.require_owner().map_err(fail)??;
        }
        // What could not be looked at of a directory of this user's own.
        is_an_agents?;
        self.check_own()?;
        // No access for others: account keys lie here.
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&self.0).map_err(fail)?;
        self.require_owner().map_err(fail)??;
        modes::open_all(self);
        let lock = FileLock::take(&self.0.join("lock")).map_err(|refused| match refused {
            LockError::InUse(holder) => AgentError::InUse { dir: self.0.clone(), holder },
            LockError::Io(source) => fail(source),
        })?;
        self.check_whole()?;
        modes::put_all_right(self);
        // One that was made beforehand may be open to others; earlier versions made the lock by their mask.
        file::close(&self.0, 0o027).map_err(fail)?;
        let _ = file::close(&self.0.join("lock"), 0o022).map_err(fail)?;
        // Account keys lie in it. The directory itself may be one that somebody made with another mode, so
        // what is secret is closed by itself.
        let closed = fs::Permissions::from_mode(0o700);
        fs::create_dir_all(self.store())
            .and_then(|()| fs::set_permissions(self.store(), closed))
            .map_err(fail)?;
        self.make_usable().map_err(fail)?;
        Ok(lock)
    }

    /// Refuses a directory that is another user's, who could put other files in the place of those in it.
    fn require_owner(&self) -> io::Result<Result<(), AgentError>> {
        let is_own = fs::metadata(&self.0)?.uid() == rustix::process::geteuid().as_raw();
        Ok(is_own.then_some(()).ok_or_else(|| {
            AgentError::bad_input(format!(
                "{} belongs to another user, who could change what the agent runs from there: make it this user's own (chown), or \
                 name another directory with --dir",
                self.0.display()
            ))
        }))
    }

    /// Makes the directories that jobs are run in, for this user alone whatever the process's mask is: who
    /// writes there says what is run, and what came of it. Opens up those that a job has closed, and closes
    /// those that others may enter: a job runs as the same user, and files in them have the modes that it
    /// gave them.
    ///
    /// # Errors
    /// The system's.
    pub fn make_usable(&self) -> io::Result<()> {
        modes::keep(self);
        for sub in [&self.projects(), &self.slots(), self.trash().path()] {
            make_closed(sub)?;
            // Where it is a link that an administrator made, or another user's, he opens and closes it.
            let _ = crate::tree::open_up(rustix::fs::CWD, sub);
            match self.users().filter(|_| sub != self.trash().path()) {
                Some(users) => users.let_pass(sub)?,
                None if is_directory(sub) => drop(file::close(sub, closed_to(sub))),
                None => {}
            }
        }
        self.users().map_or(Ok(()), |users| {
            users.close_projects(&self.projects());
            users.let_pass(&self.0)
        })
    }

    /// Opens up a project's directory, which a job may have closed: that one runs as the same user, also
    /// where it is another project's.
    pub fn open_project(&self, url: &MasterUrl) {
        // What cannot be done shows in what is then done there.
        let _ = self.make_usable();
        let _ = crate::tree::open_up(rustix::fs::CWD, self.project(url));
        let _ = crate::tree::open_up(rustix::fs::CWD, self.partial(url));
    }

    /// Sees to it that the directory is no coordinator's, by its store or, where that does not say whose it
    /// is, by the files that only a coordinator has. Touches nothing.
    ///
    /// # Errors
    /// [`AgentError::BadInput`]; or [`AgentError::Store`] when the store's word cannot be read.
    pub fn check_owner(&self) -> Result<(), AgentError> {
        let witness = match Kind::of(&self.store())? {
            Some(Kind::Agent) => None,
            Some(Kind::Coordinator) => Some("store/kind"),
            None => ["operator.token", "up.json"].into_iter().find(|name| self.0.join(name).exists()),
        };
        match witness {
            None => Ok(()),
            Some(witness) => Err(AgentError::bad_input(format!(
                "{0} is a coordinator's directory ({witness} in it says so), not an agent's: nothing in it was changed; name \
                 another directory with --dir",
                self.0.display()
            ))),
        }
    }

    /// Sees to it that the directory is an agent's or nobody's: one with an agent's store or identity in it,
    /// or with nothing but what an agent makes. Any other may be shared by many, and is not to be closed to
    /// them. Touches nothing.
    fn check_own(&self) -> Result<(), AgentError> {
        // What another user put there says nothing: the directory may be one that all may write to.
        let user = rustix::process::geteuid().as_raw();
        let is_mine = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|data| data.uid() == user);
        if is_mine(self.store().join("sled")) || is_mine(self.identity()) {
            return Ok(());
        }
        let foreign = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let foreign = foreign.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_own = |name: &String| OWN_NAMES.contains(&name.as_str()) || name.ends_with(".log");
        match foreign.into_iter().find(|name| !is_own(name)) {
            None => Ok(()),
            Some(name) => Err(AgentError::bad_input(format!(
                "{} is not an agent's directory, and not empty ({} is in it): nothing in it was changed; name a directory of \
                 the agent's own with --dir, empty or not there yet",
                self.0.display(),
                crate::files::shown(&name)
            ))),
        }
    }

    /// Sees to it that a directory that an agent worked in still has its store. Made anew beside the rest,
    /// it would take this host for another one, and forget jobs, projects and the owner's suspension without
    /// a word.
    fn check_whole(&self) -> Result<(), AgentError> {
        let has_entries = |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        if has_entries(&self.store().join("sled")) {
            return Ok(());
        }
        let has_store = self.store().exists();
        let is_sign = |path: &Path| has_entries(path) || (!has_store && path.is_dir());
        let mut signs = Vec::new();
        if self.identity().exists() {
            signs.push("identity.json");
        }
        for (path, name) in [(self.projects(), "projects/"), (self.slots(), "slots/")] {
            if is_sign(&path) {
                signs.push(name);
            }
        }
        if signs.is_empty() {
            return Ok(());
        }
        Err(AgentError::damaged(format!(
            "an agent worked in {0} before (there is {1}), but its store {2} is missing: restore {2} from a copy; or start \
             over in another, empty directory (move {0} away as a whole), with a new token if it is to join a fleet",
            self.0.display(),
            signs.join(", "),
            self.store().display()
        )))
    }

    /// The beginning of the marks of all processes of its agent: `PATH:PLACE:`. In containers two directories
    /// can have the same path, and never the same place.
    pub fn mark(&self) -> String {
        let (device, inode) = self.place().unwrap_or_default();
        format!("{}:{device:x}.{inode:x}:", self.0.display())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// What people on the host call the agent: the name of its directory, with what no name should have made
    /// visible, for the coordinator takes no such name. Empty for the usual one, by which the agents of all
    /// hosts would be called alike: the host's own name says more.
    pub fn called(&self) -> String {
        let name = self.0.file_name().map(|name| crate::files::shown(&name.to_string_lossy()));
        name.filter(|name| name != USUAL).unwrap_or_default()
    }
    /// Where the store is.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }
    /// The control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
    /// The agent's identity.
    pub fn identity(&self) -> PathBuf {
        self.0.join("identity.json")
    }
    /// The agent's private key.
    pub fn identity_key(&self) -> PathBuf {
        self.0.join("identity.key")
    }
    /// That the agent becomes another host, and who.
    pub fn separation(&self) -> PathBuf {
        self.0.join("separation.json")
    }
    /// The private key that it is to have then.
    pub fn separation_key(&self) -> PathBuf {
        self.0.join("separation.key")
    }
    /// The files of all projects.
    pub fn projects(&self) -> PathBuf {
        self.0.join(PROJECTS)
    }
    /// A project's files.
    pub fn project(&self, url: &MasterUrl) -> PathBuf {
        self.projects().join(self.project_name(url))
    }
    /// The name of a project's directory: BOINC's, unless the client gave it another one.
    pub fn project_name(&self, url: &MasterUrl) -> String {
        let names = fallow_daemon::read(&self.1);
        names.get(url).cloned().unwrap_or_else(|| url.stem())
    }
    /// Takes note of the directory that the client gave a project.
    pub fn name_project(&self, url: &MasterUrl, directory: &str) {
        let mut names = fallow_daemon::write(&self.1);
        if directory == url.stem() {
            names.remove(url);
        } else {
            names.insert(url.clone(), directory.to_owned());
        }
    }
    /// Parts of a project's files that are not complete yet.
    pub fn partial(&self, url: &MasterUrl) -> PathBuf {
        self.project(url).join(PARTIAL)
    }
    /// All slots.
    pub fn slots(&self) -> PathBuf {
        self.0.join(SLOTS)
    }
    /// One slot.
    pub fn slot(&self, slot: SlotId) -> PathBuf {
        self.slots().join(slot.to_string())
    }
    /// What is to be removed when there is time.
    pub const fn trash(&self) -> &Trash {
        &self.2
    }
    /// The record beside a slot: not in it, where the application has its own business.
    pub fn slot_record(&self, slot: SlotId) -> PathBuf {
        self.slots().join(format!("{slot}.json"))
    }

    /// Writes `daemon.json`.
    ///
    /// # Errors
    /// [`AgentError::Directory`].
    pub fn write_daemon_file(&self) -> Result<(), AgentError> {
        let file = DaemonFile::new(Told { control_socket: self.control_socket() });
        whatever_lies_there(&DaemonFile::path(&self.0), || file.write(&self.0))
            .map_err(|source| AgentError::Directory { dir: self.0.clone(), source })
    }

    /// Reads `daemon.json`; none if there is none that can be read.
    pub fn daemon_file(&self) -> Option<DaemonFile> {
        DaemonFile::read(&self.0).ok()
    }

    /// Takes `daemon.json` and the control socket away, at a clean end.
    pub fn remove_daemon_files(&self) {
        DaemonFile::remove(&self.0);
        let _ = fs::remove_file(self.control_socket());
    }
}

/// What nobody may do in a directory that jobs are run in. Jobs of an earlier life may still run, as users of
/// their own, and read what they are to read; nobody else has their group.
fn closed_to(sub: &Path) -> u32 {
    let is_jobs = fs::metadata(sub).is_ok_and(|data| owner::is_jobs(data.gid()));
    if is_jobs { 0o067 } else { 0o077 }
}

/// The name of the directory that an agent has if nobody says which.
pub const USUAL: &str = "fallow-agent";

/// What an agent makes in its directory before it has a store, what a volume of its own begins with, and
/// what whoever starts it puts there for it (`fallow up`: `log`); beside that, what ends in `.log`.
const OWN_NAMES: [&str; 16] = [
    "preferences.toml",
    "global_prefs_override.xml",
    "cc_config.xml",
    "identity.key",
    "lock",
    "store",
    PROJECTS,
    SLOTS,
    TRASH,
    "daemon.json",
    "daemon.json.new",
    "control.sock",
    "control.new",
    "lost+found",
    "log",
    "token",
];

/// Makes a directory of a project's, with those above it, for this user alone.
///
/// # Errors
/// The system's.
pub fn make_closed(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Name of the directory for parts, within a project's.
pub const PARTIAL: &str = ".partial";

/// What the names of copies begin with that are made among the parts. No file of a project may have such a
/// name.
const COPY: &str = "%copy-";

/// The name of a file's copy among the parts, while it is made: as long for all names.
pub fn copy_name(name: &OsStr) -> String {
    format!("{COPY}{}", fallow_boinc::signature::md5_hex(name.as_bytes()))
}

/// The name among the parts of a file that has come compressed and is whole. No file of a project may have
/// such a name.
pub fn packed_name(name: &str) -> String {
    format!("%packed-{}", fallow_boinc::signature::md5_hex(name.as_bytes()))
}

/// Deletes the copies that an earlier life of the agent has not completed.
pub fn remove_copies(parts: &Path) {
    for entry in fs::read_dir(parts).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(COPY.as_bytes()) {
            // A directory of that name is a job's doing, and in nobody's way before a copy is made.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a file so that a reader sees the old content or the new one, and never a part.
///
/// # Errors
/// The system's.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    whatever_lies_there(path, || file::write_whole(path, content, mode))
}

/// Writes a file whole, by `write`. Directories in its way go: jobs may have put them there.
fn whatever_lies_there(path: &Path, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    write().or_else(|error| {
        let squatters = [path, &file::beside(path)].map(Path::to_path_buf);
        let squatters: Vec<_> = squatters.into_iter().filter(|path| is_directory(path)).collect();
        if squatters.is_empty() {
            return Err(error);
        }
        squatters.iter().try_for_each(|squatter| take_away(squatter))?;
        write()
    })
}

/// Whether it is a directory, and no link to one.
fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_dir())
}

/// Not for ever: somebody may go on creating files there.
fn take_away(path: &Path) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(1);
    match crate::tree::remove_until(path, Some(Instant::now() + PATIENCE))? {
        true => Ok(()),
        false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
    }
}

/// Where the data directory is when nobody says: `/var/lib/fallow-agent` for root, else below the user's
/// state directory.
pub fn default_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/fallow-agent");
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)
        .unwrap_or_else(|| PathBuf::from("."))
        .join(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_11_an_agent_in_the_usual_directory_is_called_as_its_host_and_others_as_their_directories() {
        let called = |dir: &str| DataDir::at(Path::new(dir)).called();
        assert_eq!(["/var/lib/fallow-agent", "/home/ann/.local/state/fallow-agent"].map(called), ["", ""]);
        assert_eq!(called("lab/agent-1"), "agent-1");
        assert_eq!(
            called("lab/a\nb\u{1b}[2J"),
            "a\u{fffd}b\u{fffd}[2J",
            "the coordinator refuses control characters"
        );
    }

    #[test]
    fn a_directory_belongs_to_one_at_a_time_and_the_second_learns_whose_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(&dir.path().join("agent"));
        let first = data.lock().unwrap();
        let error = data.lock().unwrap_err();
        assert!(
            matches!(&error, AgentError::InUse { holder: Some(pid), .. } if *pid == std::process::id()),
            "{error}"
        );
        drop(first);
        data.lock().unwrap();
    }

    #[test]
    fn a_path_through_a_file_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let error = DataDir::at(&dir.path().join("file/agent")).lock().unwrap_err();
        assert!(error.to_string().contains("file/agent"), "{error}");
    }

    #[test]
    fn a_record_is_written_where_a_job_has_put_directories() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.json");
        for squatter in [&path, &file::beside(&path)] {
            fs::create_dir_all(squatter.join("deeper")).unwrap();
            write_atomically(&path, b"{}", 0o600).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"{}");
        }
    }

    #[test]
    fn r6_10_a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away.
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        let Err(error) = DataDir::at(dir.path()).lock() else { panic!("it was taken") };
        assert_eq!(error.exit_code().number(), 3);
        assert!(error.to_string().contains("belongs to another user"), "{error}");
        assert!(!dir.path().join("store").exists());
    }

    #[test]
    fn r6_10_a_directory_made_beforehand_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Whoever starts it may have begun its log there.
        fs::write(dir.path().join("log"), "").unwrap();
        let _lock = DataDir::at(dir.path()).lock().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(dir.path()), mode(&dir.path().join("store"))), (0o750, 0o700));
    }

    #[test]
    fn r6_10_nobody_else_gets_at_what_jobs_run_and_leave_whatever_the_modes_were_before() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let places = [data.projects(), data.slots(), data.trash().path().to_path_buf()];
        let lock_file = dir.path().join("lock");
        fs::create_dir_all(data.store().join("sled/db")).unwrap();
        drop(data.lock().unwrap());
        assert_eq!(places.each_ref().map(|place| mode(place)), [0o700; 3], "where they are new");
        for path in places.iter().chain([&lock_file]) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        drop(data.lock().unwrap());
        assert_eq!(places.each_ref().map(|place| mode(place)), [0o700; 3], "where they were open");
        assert_eq!(mode(&lock_file) & 0o022, 0);
        // An administrator's, on another volume for example.
        let elsewhere = tempfile::tempdir().unwrap();
        fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir(&places[0]).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &places[0]).unwrap();
        drop(data.lock().unwrap());
        assert_eq!(mode(elsewhere.path()), 0o755);
    }

    #[test]
    fn r6_10_a_start_leaves_jobs_of_an_earlier_life_the_way_to_what_they_read_and_nobody_else() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root has users for jobs.
        }
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        fs::create_dir_all(data.store().join("sled/db")).unwrap();
        drop(data.lock().unwrap());
        let places = [dir.path().to_path_buf(), data.projects(), data.slots()];
        for path in &places {
            std::os::unix::fs::chown(path, None, Some(owner::FIRST)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o717)).unwrap();
        }
        drop(data.lock().unwrap());
        let modes = places.each_ref().map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [0o710; 3]);
    }

    #[test]
    fn r6_10_an_agent_starts_whatever_a_job_has_put_in_the_way_of_its_daemon_file() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        for squatter in ["daemon.json", "daemon.json.new"] {
            let _ = fs::remove_file(dir.path().join("daemon.json"));
            fs::create_dir_all(dir.path().join(squatter).join("deeper")).unwrap();
            data.write_daemon_file().unwrap();
            assert!(data.daemon_file().unwrap().is_alive());
        }
    }
}
