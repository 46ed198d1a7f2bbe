//! Directories that each job has for itself where programs expect everybody's: `/tmp`, `/var/tmp` and
//! `/dev/shm` (R6.10).
//!
//! Model: the first two lead to one directory in the job's slot, so what lies there counts as the slot's and
//! goes with it; the last is memory that goes with the job's last process. A place in which the agent's own
//! directory lies stays as it is, for the job has to reach its slot by it; so does one that is a link. A
//! root agent's job that has a user of its own sees in `/proc` only what is its own, too. Where root may not
//! mount anything, such a job makes the rest of it as an ordinary user's would.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fallow_domain::Bytes;

use super::shortage::{Shortage, is_refusal};
use crate::dir::{PROJECTS, SLOTS};
use crate::owner::{JobUser, Owner};
use crate::sys::{By, OwnPlaces};

/// The directory in a slot that its job has as `/tmp` and `/var/tmp`.
pub(crate) const TEMPORARY: &CStr = c".fallow_tmp";

/// Where programs put files for a while.
pub(crate) const FILES: [&str; 2] = ["/tmp", "/var/tmp"];
/// Where they put memory that has a name.
const MEMORY: &str = "/dev/shm";

/// How long a host that could not give them is not asked again, if nothing else is said.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// The same where the system had not enough of something to try it.
const SHORT: Duration = Duration::from_secs(10);

/// The least that a job's memory with a name may hold, and how many files it may have there.
const MEMORY_MIN: Bytes = Bytes::from_mebibytes(64);
const MEMORY_FILES: u32 = 1 << 16;

/// What is mounted in `/proc` and hides nothing of it.
const IN_PROC: [&str; 3] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/xen"];

/// What jobs of this host have for themselves.
#[derive(Clone, Debug)]
pub(super) struct Places {
    files: Vec<PathBuf>,
    memory: Option<PathBuf>,
    /// Those that stay as they are.
    left_out: Vec<&'static str>,
    /// The agent's directory.
    dir: PathBuf,
    /// Who tries them for users of jobs, where these have users of their own.
    nobody: Option<JobUser>,
    /// How long a host that could not give them is not asked again.
    again: Duration,
    looked: Arc<Mutex<Looked>>,
}

#[derive(Debug)]
struct Looked {
    /// How jobs can have them, or why not.
    found: Result<Way, String>,
    at: Instant,
    /// How long it is not looked again then.
    again: Duration,
    shortage: Shortage,
}

/// How the system gives them.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By the agent's own right. Whether `/proc` of jobs with a user shows these what is theirs alone, too.
    Agents { hides: bool },
    /// By the right of jobs' own users: the agent is root's, and may not mount anything.
    Users,
}

impl Places {
    /// Looks what jobs of an agent whose data lies in `dir` can have. Where they have users of their own, the
    /// system may give them to `nobody`, another such user.
    pub(super) fn probe(dir: &Path, nobody: Option<JobUser>) -> Self {
        let given = [dir.to_path_buf(), dir.join(PROJECTS), dir.join(SLOTS)];
        // Jobs are told the names that were given, and links in these lead elsewhere.
        let real = given.iter().filter_map(|path| fs::canonicalize(path).ok());
        let own: Vec<PathBuf> = real.chain(given.iter().cloned()).collect();
        let can_be = |place: &&str| {
            let is_itself = fs::canonicalize(place).is_ok_and(|real| real == Path::new(place));
            is_itself && Path::new(place).is_dir() && !own.iter().any(|own| own.starts_with(place))
        };
        let (files, mut left_out): (Vec<_>, Vec<_>) = FILES.into_iter().partition(can_be);
        let memory = Some(MEMORY).filter(can_be);
        left_out.extend(memory.is_none().then_some(MEMORY));
        let places = Self {
            files: files.into_iter().map(PathBuf::from).collect(),
            memory: memory.map(PathBuf::from),
            left_out,
            dir: dir.to_path_buf(),
            nobody,
            again: LOOK_AGAIN,
            looked: Arc::new(Mutex::new(Looked {
                found: Err(String::new()),
                at: Instant::now(),
                again: LOOK_AGAIN,
                shortage: Shortage::default(),
            })),
        };
        places.look();
        places
    }

    /// The same, whose host is asked again so long after it could not give them.
    #[must_use]
    pub(super) fn asked_again(self, after: Duration) -> Self {
        {
            let mut looked = self.looked();
            looked.again = looked.again.min(after);
        }
        Self { again: after, ..self }
    }

    /// The layer: by what, or why not. `has_users` says whether jobs have users of their own.
    pub(super) fn state(&self, has_users: bool) -> Result<String, String> {
        if !self.can_be() {
            return Err(format!("none of {} can be a job's own", self.left_out.join(", ")));
        }
        let way = self.looked().found.clone()?;
        if !has_users && matches!(way, Way::Users) {
            return Err("the system gives them to users of jobs alone, and jobs have none".to_owned());
        }
        let places = self.files.iter().chain(&self.memory).map(|place| place.display().to_string());
        let mut why = format!("its own {}", places.collect::<Vec<_>>().join(", "));
        if has_users && matches!(way, Way::Agents { hides: true }) {
            why += ", and in /proc what is its own";
        }
        if !self.left_out.is_empty() {
            why += &format!(" (not {})", self.left_out.join(", "));
        }
        Ok(why)
    }

    /// What a job has that runs as `user`, or as the agent's own, has its project's files in `project`, and
    /// needs so much memory. None where the host does not give it; that is looked at anew after a while.
    pub(super) fn of_job(&self, user: Option<JobUser>, project: &Path, memory: Bytes) -> Option<OwnPlaces> {
        if !self.can_be() {
            return None;
        }
        self.look_again();
        let way = self.looked().found.clone().ok()?;
        let owner = user.as_ref().map_or_else(Owner::own, |user| user.owner);
        let hides = user.is_some() && matches!(way, Way::Agents { hides: true });
        let by = match way {
            Way::Agents { .. } => By::own(),
            Way::Users => By::Becoming(user?),
        };
        let mut made = self.made_for((by, owner), TEMPORARY, hides, memory);
        // Somebody may have made a link of it.
        let project = fs::canonicalize(project).unwrap_or_else(|_| project.to_path_buf());
        let holds = |place: &CString| project.starts_with(OsStr::from_bytes(place.as_bytes()));
        made.shown_at.retain(|place| !holds(place));
        made.memory = made.memory.filter(|(place, _)| !holds(place));
        Some(made)
    }

    /// Where jobs cannot have them, looks anew if that is due.
    pub(super) fn look_again(&self) {
        if self.due_in() == Some(Duration::ZERO) {
            self.look();
        }
    }

    /// How long until that is due. None where jobs have them.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let looked = self.looked();
        (self.can_be() && looked.found.is_err()).then(|| looked.again.saturating_sub(looked.at.elapsed()))
    }

    /// A job could not be given them. Whether jobs go without for a while.
    pub(super) fn lack(&self, why: &io::Error) -> bool {
        let goes_without = self.looked().shortage.is_reason(why, Instant::now());
        if goes_without {
            self.found(Err(said(why)), self.again);
        }
        goes_without
    }

    /// A job was given them.
    pub(super) fn had(&self) {
        self.looked().shortage.is_over();
    }

    /// Whether any place of this host can be a job's own.
    fn can_be(&self) -> bool {
        !self.files.is_empty() || self.memory.is_some()
    }

    fn look(&self) {
        match self.tried() {
            Ok(way) => self.found(Ok(way), self.again),
            Err(error) if is_refusal(&error) => self.found(Err(said(&error)), self.again),
            Err(error) => self.found(Err(format!("it could not be tried: {error}")), SHORT.min(self.again)),
        }
    }

    fn found(&self, found: Result<Way, String>, again: Duration) {
        let mut looked = self.looked();
        (looked.found, looked.at, looked.again) = (found, Instant::now(), again);
    }

    fn looked(&self) -> std::sync::MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// The system's, where it gives none.
    fn tried(&self) -> io::Result<Way> {
        let attempt = |whose, hides| {
            // Never executed: the attempt ends before.
            let mut command = Command::new("/");
            command.current_dir(&self.dir);
            self.made_for(whose, c".", hides, MEMORY_MIN).try_out(command)
        };
        let agents = |hides| attempt((By::own(), Owner::own()), hides).map(|()| Way::Agents { hides });
        if rustix::process::geteuid().is_root() && shows_all_of_proc() {
            match agents(true) {
                Err(error) if is_refusal(&error) => {}
                tried => return tried,
            }
        }
        match (agents(false), &self.nobody) {
            (Err(error), Some(user)) if is_refusal(&error) => {
                attempt((By::Becoming(user.clone()), user.owner), false).map(|()| Way::Users)
            }
            (tried, _) => tried,
        }
    }

    /// `whose`: by what right the process makes them, and whose they are.
    fn made_for(&self, whose: (By, Owner), shown: &CStr, hides_processes: bool, most: Bytes) -> OwnPlaces {
        let (by, owner) = whose;
        let memory = self.memory.as_deref().and_then(|place| {
            let (uid, gid) = (owner.uid.as_raw(), owner.gid.as_raw());
            let size = most.max(MEMORY_MIN).0;
            let options = format!("mode=1777,uid={uid},gid={gid},size={size},nr_inodes={MEMORY_FILES}");
            Some((named(place)?, CString::new(options).ok()?))
        });
        OwnPlaces {
            by,
            shown: shown.to_owned(),
            shown_at: self.files.iter().filter_map(|place| named(place)).collect(),
            memory,
            hides_processes,
        }
    }
}

fn named(place: &Path) -> Option<CString> {
    CString::new(place.as_os_str().as_bytes()).ok()
}

fn said(error: &io::Error) -> String {
    if !is_refusal(error) {
        return format!("the system is short of something for them, and was before: {error}");
    }
    let users = "where user.max_user_namespaces or kernel.unprivileged_userns_clone is 0, AppArmor keeps programs from them, or a \
                 service has RestrictNamespaces=";
    let by = match rustix::process::geteuid().is_root() {
        true => format!(
            "as in a container, or below another root: root without CAP_SYS_ADMIN has none, and users of jobs have none {users}"
        ),
        false => format!("as {users}"),
    };
    format!("the system gives no namespace for them: {error}, {by}")
}

/// Whether `/proc` of this system shows all that is in it: a container hides some of it from its programs by
/// mounts, which another `/proc` would not have.
fn shows_all_of_proc() -> bool {
    crate::proc::text("/proc/self/mountinfo").is_ok_and(|mounts| !covers_proc(&mounts))
}

fn covers_proc(mountinfo: &str) -> bool {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| place.starts_with("/proc/")).any(|place| !IN_PROC.contains(&place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_place_that_the_agents_directory_lies_in_or_that_is_a_link_stays_everybodys() {
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let places = Places::probe(dir.path(), None);
        assert!(!places.files.contains(&PathBuf::from("/tmp")), "{places:?}");
        assert!(places.left_out.contains(&"/tmp"), "{places:?}");
        let elsewhere = Places::probe(Path::new("/usr"), None);
        assert_eq!(elsewhere.files.first(), Some(&PathBuf::from("/tmp")), "{elsewhere:?}");
        if let Ok(why) = places.state(true) {
            assert!(why.contains("(not /tmp"), "{why}");
        }
    }

    fn of_job(places: &Places) -> Option<OwnPlaces> {
        places.of_job(None, Path::new("/usr/project"), Bytes(0))
    }

    #[test]
    fn r6_10_where_a_job_could_not_be_given_them_the_next_goes_without_and_after_a_while_it_is_looked_again()
    {
        let places = Places::probe(Path::new("/usr"), None);
        if of_job(&places).is_none() {
            println!("skipped: {:?}", places.state(false));
            return;
        }
        assert_eq!(places.due_in(), None);
        places.lack(&io::Error::from_raw_os_error(libc::ENOSPC));
        places.look_again();
        assert!(of_job(&places).is_none());
        assert!(places.due_in().is_some_and(|due| due > Duration::ZERO && due <= LOOK_AGAIN), "{places:?}");
        assert!(places.state(false).unwrap_err().contains("No space left"), "{places:?}");
        let Some(before) = Instant::now().checked_sub(LOOK_AGAIN) else { return };
        places.looked().at = before;
        assert!(of_job(&places).is_some(), "{places:?}");
        assert!(places.state(false).is_ok());
        // Where no job may start without them, none does: then it is looked at by itself.
        places.lack(&io::Error::from_raw_os_error(libc::ENOSPC));
        places.looked().at = before;
        places.look_again();
        assert!(places.state(false).is_ok() && places.due_in().is_none(), "{places:?}");
    }

    #[test]
    fn r6_10_a_moments_shortage_takes_them_from_no_job_and_one_that_lasts_keeps_none_from_starting() {
        let places = Places::probe(Path::new("/usr"), None);
        if of_job(&places).is_none() {
            println!("skipped: {:?}", places.state(false));
            return;
        }
        let short = || io::Error::from_raw_os_error(libc::ENOMEM);
        assert!(!places.lack(&short()) && !places.lack(&short()));
        assert!(of_job(&places).is_some());
        let Some(before) = Instant::now().checked_sub(Duration::from_secs(60)) else { return };
        // Met first a minute ago, and over since.
        places.had();
        places.looked().shortage.is_reason(&short(), before);
        places.had();
        assert!(!places.lack(&short()));
        places.had();
        places.looked().shortage.is_reason(&short(), before);
        assert!(places.lack(&short()) && of_job(&places).is_none());
        let why = places.state(false).unwrap_err();
        assert!(why.contains("short of something") && why.contains("Cannot allocate memory"), "{why}");
        // The job that waits for its next try has had it by then.
        assert!(places.due_in().is_some_and(|due| due > Duration::from_secs(120)), "{places:?}");
    }

    #[test]
    fn r6_10_a_job_whose_projects_directory_is_a_link_into_a_place_has_that_as_it_is() {
        let there = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let here = tempfile::tempdir().unwrap();
        let link = here.path().join("project");
        std::os::unix::fs::symlink(there.path(), &link).unwrap();
        let places = Places::probe(Path::new("/usr"), None);
        let Some(made) = places.of_job(None, &link, Bytes(0)) else { return };
        assert!(!made.shown_at.contains(&c"/var/tmp".to_owned()), "{made:?}");
        assert!(made.shown_at.contains(&c"/tmp".to_owned()), "{made:?}");
        // What is only called like one lies elsewhere.
        let made = places.of_job(None, Path::new("/tmpfoo/project"), Bytes(0)).unwrap();
        assert!(made.shown_at.contains(&c"/tmp".to_owned()), "{made:?}");
    }

    #[test]
    fn r6_10_a_proc_of_which_a_container_hides_something_is_not_made_anew() {
        let plain =
            "22 1 0:20 / /proc rw - proc proc rw\n30 22 0:30 / /proc/sys/fs/binfmt_misc rw - autofs a rw\n";
        assert!(!covers_proc(plain));
        assert!(!covers_proc(&format!("{plain}41 22 0:31 / /proc/fs/nfsd rw - nfsd nfsd rw\n")));
        assert!(covers_proc(&format!("{plain}40 22 0:5 /null /proc/kcore rw - tmpfs tmpfs rw\n")));
    }
}
