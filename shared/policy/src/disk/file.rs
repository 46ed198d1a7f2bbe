//! What is known of a file: its attributes with their defaults (R4.7), and what protects it (R4.5).

use std::fmt;

use fallow_domain::{Bytes, Duration, Instant};

/// A file that a [`super::DiskUse`] knows: given in order of arrival there, never used again. Breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(super) u64);

/// How dearly a project wants a file kept, from 1 (low, the default) to 5 (high) (BOINC: `priority`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u8);

impl Priority {
    /// 1, the default.
    pub const LOW: Self = Self(1);
    /// 3.
    pub const MEDIUM: Self = Self(3);
    /// 5.
    pub const HIGH: Self = Self(5);

    /// The level nearest to what a server wrote.
    pub fn nearest(level: i64) -> Self {
        Self(level.clamp(1, 5) as u8)
    }
    /// From 1 to 5.
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::LOW
    }
}

/// What a file is, as far as deleting goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    /// Its size: while it arrives what it will have, else what was found on the disk (R4.12).
    pub size: Bytes,
    /// Its priority.
    pub priority: Priority,
    /// When it arrived.
    pub arrived: Instant,
    /// When its project no longer cares for it. It acts only where the project chose expiration.
    pub expires: Instant,
    /// When a job last used it.
    pub last_used: Instant,
}

impl FileAttributes {
    /// Expiration of a file whose project set none (R4.7).
    pub const LIFETIME_DEFAULT: Duration = Duration::from_hours(60 * 24);

    /// A file that arrives now, with the defaults of R4.7.
    pub fn arriving(size: Bytes, now: Instant) -> Self {
        let expires = now + Self::LIFETIME_DEFAULT;
        Self { size, priority: Priority::LOW, arrived: now, expires, last_used: now }
    }

    /// With the priority that its project set (BOINC: `priority`).
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// With the lifetime that its project set (BOINC: `exp_days`); fewer than none is none.
    #[must_use]
    pub fn with_lifetime_days(self, days: f64) -> Self {
        Self { expires: self.arrived + Duration::from_days_f64(days).max(Duration::ZERO), ..self }
    }
}

/// How far a job is, as far as its files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobStage {
    /// It waits, or its files are on their way; the first to be given back for want of space (R4.8).
    Queued,
    /// It is a task: running or preempted.
    Running,
    /// It is finished; its server has not acknowledged the report.
    Unacknowledged,
}

/// What keeps a file beside jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// It is being downloaded or uploaded.
    Transfer,
    /// It is a key by which signatures are checked.
    SigningKey,
    /// It belongs to an application version in use.
    AppInUse,
}

/// Why a file is not to be deleted (R4.5). In order of R4's goals: the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// A finished job refers to it, and its server has not acknowledged the report.
    UnacknowledgedJob,
    /// A task refers to it.
    RunningJob,
    /// A queued job refers to it.
    QueuedJob,
    /// Something else keeps it.
    Held(Hold),
}

/// What protects one file, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Protections {
    queued: u32,
    running: u32,
    unacknowledged: u32,
    transfer: bool,
    signing_key: bool,
    app_in_use: bool,
}

impl Protections {
    pub(super) fn refer(&mut self, stage: JobStage) {
        let count = self.count(stage);
        *count = count.saturating_add(1);
    }

    pub(super) fn unrefer(&mut self, stage: JobStage) {
        let count = self.count(stage);
        *count = count.saturating_sub(1);
    }

    pub(super) fn set(&mut self, hold: Hold, held: bool) {
        match hold {
            Hold::Transfer => self.transfer = held,
            Hold::SigningKey => self.signing_key = held,
            Hold::AppInUse => self.app_in_use = held,
        }
    }

    pub(super) fn strongest(&self) -> Option<Protection> {
        [
            (self.unacknowledged > 0, Protection::UnacknowledgedJob),
            (self.running > 0, Protection::RunningJob),
            (self.queued > 0, Protection::QueuedJob),
            (self.transfer, Protection::Held(Hold::Transfer)),
            (self.signing_key, Protection::Held(Hold::SigningKey)),
            (self.app_in_use, Protection::Held(Hold::AppInUse)),
        ]
        .into_iter()
        .find_map(|(holds, why)| holds.then_some(why))
    }

    /// Whether it is in transfer and nothing else keeps it.
    pub(super) fn only_transfer(&self) -> bool {
        *self == Self { transfer: true, ..Self::default() }
    }

    /// How many queued jobs keep it, if nothing else does. A transfer is none of its own: it is the download
    /// for them, and is cancelled when the last of them is given back. (Uploads belong to jobs that are
    /// finished.)
    pub(super) fn only_queued(&self) -> Option<u32> {
        let others = Self { queued: 0, transfer: false, ..*self };
        (self.queued > 0 && others.strongest().is_none()).then_some(self.queued)
    }

    fn count(&mut self, stage: JobStage) -> &mut u32 {
        match stage {
            JobStage::Queued => &mut self.queued,
            JobStage::Running => &mut self.running,
            JobStage::Unacknowledged => &mut self.unacknowledged,
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnacknowledgedJob => "a finished job needs it until its server acknowledges the report",
            Self::RunningJob => "a task uses it",
            Self::QueuedJob => "a queued job needs it",
            Self::Held(Hold::Transfer) => "it is being transferred",
            Self::Held(Hold::SigningKey) => "it is a signing key",
            Self::Held(Hold::AppInUse) => "it belongs to an application in use",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_7_a_file_has_low_priority_and_sixty_days_unless_its_project_says_otherwise() {
        let now = Instant::from_secs_f64(1e9);
        let file = FileAttributes::arriving(Bytes(5), now);
        assert_eq!((file.priority, file.last_used), (Priority::LOW, now));
        assert_eq!(file.expires - now, Duration::from_days_f64(60.0));
        let set = file.with_priority(Priority::nearest(4)).with_lifetime_days(2.0);
        assert_eq!((set.priority.level(), set.expires - now), (4, Duration::from_days_f64(2.0)));
    }

    #[test]
    fn r4_7_what_a_server_cannot_mean_becomes_the_nearest_that_it_can() {
        let levels: Vec<u8> =
            [i64::MIN, 0, 1, 3, 5, 6, i64::MAX].map(|level| Priority::nearest(level).level()).into();
        assert_eq!(levels, [1, 1, 1, 3, 5, 5, 5]);
        let file = FileAttributes::arriving(Bytes(5), Instant::EPOCH);
        for (days, expires) in
            [(-3.0, Instant::EPOCH), (f64::NAN, Instant::EPOCH), (1e300, Instant::FAR_FUTURE)]
        {
            assert_eq!(file.with_lifetime_days(days).expires, expires);
        }
    }

    #[test]
    fn r4_5_the_strongest_protection_is_named_and_all_have_to_end() {
        let mut protections = Protections::default();
        assert_eq!(protections.strongest(), None);
        protections.set(Hold::AppInUse, true);
        protections.refer(JobStage::Queued);
        assert_eq!(protections.strongest(), Some(Protection::QueuedJob));
        assert_eq!(protections.only_queued(), None);
        protections.set(Hold::AppInUse, false);
        protections.set(Hold::Transfer, true);
        assert_eq!(protections.only_queued(), Some(1));
        protections.set(Hold::Transfer, false);
        protections.refer(JobStage::Unacknowledged);
        assert_eq!(protections.strongest(), Some(Protection::UnacknowledgedJob));
        protections.unrefer(JobStage::Unacknowledged);
        protections.unrefer(JobStage::Queued);
        assert_eq!(protections.strongest(), None);
    }
}
