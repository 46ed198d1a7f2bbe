//! Terminals: consoles (`/dev/tty1`) and pseudo-terminals (`/dev/pts/0`), of which each login over the
//! network and each window with a shell has one.
//!
//! The kernel notes when something was read from a terminal, and so when somebody typed: the first time after
//! a pause at once, then every eight seconds. Nothing tells of it: one has to look. The list is read anew
//! each time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration as StdDuration, Instant};

use fallow_client::Attention;
use fallow_domain::{Duration, Instant as WallInstant};

use crate::sys;

pub(super) const NAME: &str = "terminals";

/// How often they are looked at while tasks compute ...
const CLOSE: StdDuration = StdDuration::from_secs(1);
/// ... while all that there are rest, so that nobody can be in their way: it is to be known before they go on
/// whether somebody still types ...
const RESTING: StdDuration = StdDuration::from_secs(10);
/// ... and while there are none. They are looked at when one begins, so nothing is missed meanwhile.
const IDLE: StdDuration = StdDuration::from_mins(3);
/// A look may take this part of the time between two.
const COST: u32 = 200;
/// Most terminals that are looked at: as many as the kernel gives out by default.
const TERMINALS_MAX: usize = 4096;

/// All of them.
#[derive(Debug)]
pub(super) struct Terminals {
    dev: PathBuf,
    /// When each was read from, microseconds since the epoch.
    read_at: BTreeMap<OsString, i64>,
    begun: Instant,
    looked_at: Option<Instant>,
    /// The CPU time that a look takes.
    took: StdDuration,
}

impl Terminals {
    /// Those below such a directory as `/dev`.
    pub(super) fn new(dev: PathBuf) -> Self {
        let (begun, read_at) = (Instant::now(), BTreeMap::new());
        Self { dev, read_at, begun, looked_at: None, took: StdDuration::ZERO }
    }

    /// When to look again.
    pub(super) fn due(&self, attention: Attention) -> Instant {
        let period = match attention {
            Attention::Close => CLOSE,
            Attention::Resting => RESTING,
            Attention::Idle => IDLE,
        };
        let period = period.max(self.took.saturating_mul(COST));
        self.looked_at.map_or(self.begun, |at| at + period)
    }

    /// Looks, if it is time to. How long ago somebody typed last, and where, if that is news.
    pub(super) fn look_if_due(
        &mut self,
        now: Instant,
        attention: Attention,
        wall: WallInstant,
    ) -> Option<(Duration, PathBuf)> {
        if now < self.due(attention) {
            return None;
        }
        // By CPU time: on a busy machine a look may wait for its turn, and somebody types all the same.
        let begun = sys::thread_cpu_time();
        let found = self.look();
        let took = begun.and_then(|begun| sys::thread_cpu_time()?.checked_sub(begun));
        (self.looked_at, self.took) = (Some(now), took.unwrap_or_default());
        // Any other time than before: one that a job has set to the future, as it may where it runs as the
        // terminal's user, is not to hide those that come after it.
        let news = found.iter().filter(|(name, at)| self.read_at.get(*name) != Some(*at));
        // One in the future is as good as now: the clock was set back, or it is a job's doing.
        let ago = |at: i64| (wall + Duration::from_secs(1)).since(WallInstant::from_micros(at));
        let ago = news.map(|(name, at)| (ago(*at), name)).min();
        let last = ago.map(|(ago, name)| {
            ((ago - Duration::from_secs(1)).max(Duration::ZERO), PathBuf::from(name.as_os_str()))
        });
        self.read_at = found;
        last
    }

    fn look(&self) -> BTreeMap<OsString, i64> {
        let consoles = names(self.dev.clone()).filter(|(name, _)| is_console(name));
        let pseudo = names(self.dev.join("pts")).filter(|(name, _)| name.parse::<u32>().is_ok());
        let all = consoles.chain(pseudo).take(TERMINALS_MAX);
        let read_at = |(_, path): (String, PathBuf)| {
            // Also one that a test has put there under another name.
            let found = fs::metadata(&path).ok().filter(|found| found.file_type().is_char_device())?;
            let micros = found.atime().saturating_mul(1_000_000).saturating_add(found.atime_nsec() / 1_000);
            Some((path.into_os_string(), micros))
        };
        all.filter_map(read_at).collect()
    }

    /// Whether it senses anything, and what.
    pub(super) fn status(&self) -> (bool, String) {
        match self.read_at.is_empty() {
            true => (true, "there is none yet".to_owned()),
            false => (true, "by when they were read from".to_owned()),
        }
    }
}

fn is_console(name: &str) -> bool {
    name.strip_prefix("tty").is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
}

fn names(dir: PathBuf) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn r6_2_terminals_are_looked_at_each_second_only_while_tasks_compute() {
        let dev = tempfile::tempdir().unwrap();
        let mut terminals = Terminals::new(dev.path().to_path_buf());
        let at = Instant::now() + CLOSE;
        assert!(terminals.due(Attention::Idle) <= at, "the first look is due at once");
        terminals.look_if_due(at, Attention::Idle, WallInstant::EPOCH);
        let waits = [Attention::Close, Attention::Resting, Attention::Idle]
            .map(|attention| terminals.due(attention).duration_since(at).as_secs());
        assert_eq!(waits, [1, 10, 180]);
    }

    #[test]
    fn r6_2_a_time_in_the_future_that_a_job_gave_a_terminal_hides_nobody_who_types_there() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
        let dev = tempfile::tempdir().unwrap();
        fs::create_dir(dev.path().join("pts")).unwrap();
        std::os::unix::fs::symlink(&path, dev.path().join("pts/0")).unwrap();
        let read_at = |tv_sec: i64| {
            let then = Timespec { tv_sec, tv_nsec: 0 };
            utimensat(
                CWD,
                &path,
                &Timestamps { last_access: then, last_modification: then },
                AtFlags::empty(),
            )
        };
        if let Err(error) = read_at(1_000) {
            return println!("skipped: the time of a terminal cannot be set here: {error}");
        }
        let mut terminals = Terminals::new(dev.path().to_path_buf());
        let mut at = Instant::now();
        let mut look = |wall: i64| {
            at += CLOSE * 2;
            let found =
                terminals.look_if_due(at, Attention::Close, WallInstant::from_micros(wall * 1_000_000));
            found.map(|(ago, _)| ago)
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        // From before the clock was set back.
        read_at(9_000).unwrap();
        assert_eq!([look(2_000), look(2_010)], [seconds(0), None]);
        read_at(2_015).unwrap();
        assert_eq!([look(2_020), look(2_030)], [seconds(5), None]);
        // A job's doing, and then somebody types.
        read_at(99_000).unwrap();
        assert_eq!([look(2_040), look(2_050)], [seconds(0), None]);
        read_at(2_055).unwrap();
        assert_eq!(look(2_060), seconds(5));
    }
}
