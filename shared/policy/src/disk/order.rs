//! The order in which a project's files are deleted (R4.6), and why a file is the next.
//!
//! Where the project chose expiration, expired files come first, the oldest date first. The others follow by
//! level, the lowest first: only files up to a level that is raised step by step may be deleted at all
//! (R4.4). Within a level they come in order of arrival where the project chose priority, else by last use,
//! the oldest first. Files that are still equal are ordered by last use, then arrival, then id.

use std::fmt;

use fallow_domain::{Duration, Instant};

use super::file::{FileAttributes, FileId, Priority};

/// The orders of deletion that a project chose; neither is least recently used, the default (R4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionChoice {
    /// Within a level in order of arrival (BOINC: `deletion_policy_priority`).
    pub priority: bool,
    /// What is past its date goes first (BOINC: `deletion_policy_expire`).
    pub expiration: bool,
}

/// The level of expired files: below every priority.
pub(super) const EXPIRED: u8 = 0;

/// The highest level.
pub(super) const LEVEL_MAX: u8 = 5;

/// A file's place in the order of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// [`EXPIRED`] or the priority.
    pub(super) level: u8,
    first: Instant,
    second: Instant,
    /// The file.
    pub(super) file: FileId,
}

impl DeletionChoice {
    /// Whether a file has outlived its date; the date itself still counts.
    pub(super) fn is_expired(self, file: &FileAttributes, now: Instant) -> bool {
        self.expiration && file.expires < now
    }

    pub(super) fn rank(self, id: FileId, file: &FileAttributes, now: Instant) -> Rank {
        let (level, first, second) = if self.is_expired(file, now) {
            (EXPIRED, file.expires, file.last_used)
        } else if self.priority {
            (file.priority.level(), file.arrived, file.last_used)
        } else {
            (file.priority.level(), file.last_used, file.arrived)
        };
        Rank { level, first, second, file: id }
    }

    pub(super) fn why_next(self, file: &FileAttributes, now: Instant) -> WhyNext {
        let priority = file.priority;
        if self.is_expired(file, now) {
            WhyNext::Expired { since: now.since(file.expires) }
        } else if self.priority {
            WhyNext::FirstOfLevel { priority, age: now.since(file.arrived) }
        } else {
            WhyNext::LeastRecentlyUsed { priority, unused: now.since(file.last_used) }
        }
    }
}

/// Why a file goes before the others of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNext {
    /// It is past the date until which its project wanted it.
    Expired {
        /// For so long.
        since: Duration,
    },
    /// It came first of those with the lowest priority.
    FirstOfLevel {
        /// That priority.
        priority: Priority,
        /// Time since it came.
        age: Duration,
    },
    /// It has not been used for the longest of those with the lowest priority.
    LeastRecentlyUsed {
        /// That priority.
        priority: Priority,
        /// Time since it was used.
        unused: Duration,
    },
}

impl fmt::Display for WhyNext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { since } => write!(f, "expired {since} ago"),
            Self::FirstOfLevel { priority, age } => write!(f, "priority {priority}, arrived {age} ago"),
            Self::LeastRecentlyUsed { priority, unused } => {
                write!(f, "priority {priority}, not used for {unused}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::Bytes;

    fn at(days: i64) -> Instant {
        Instant::EPOCH + Duration::from_hours(24 * days)
    }

    /// Rows: priority, arrived, expires, last used, in days. Returns the order of deletion on day 100.
    fn order(choice: DeletionChoice, rows: &[(i64, i64, i64, i64)]) -> Vec<u64> {
        let file = |(id, row): (u64, &(i64, i64, i64, i64))| {
            let attributes = FileAttributes {
                size: Bytes(1),
                priority: Priority::nearest(row.0),
                arrived: at(row.1),
                expires: at(row.2),
                last_used: at(row.3),
            };
            choice.rank(FileId(id), &attributes, at(100))
        };
        let mut ranks: Vec<Rank> = (0..).zip(rows).map(file).collect();
        ranks.sort();
        ranks.into_iter().map(|rank| rank.file.0).collect()
    }

    const LRU: DeletionChoice = DeletionChoice { priority: false, expiration: false };
    const PRIORITY: DeletionChoice = DeletionChoice { priority: true, expiration: false };
    const EXPIRATION: DeletionChoice = DeletionChoice { priority: false, expiration: true };

    #[test]
    fn r4_6_least_recently_used_goes_first_and_is_the_default() {
        assert_eq!(DeletionChoice::default(), LRU);
        assert_eq!(order(LRU, &[(1, 1, 50, 90), (1, 2, 60, 70), (1, 3, 200, 80)]), [1, 2, 0]);
    }

    #[test]
    fn r4_6_priority_deletes_the_lowest_level_first_and_within_it_in_order_of_arrival() {
        let rows = [(3, 1, 200, 90), (1, 5, 200, 70), (1, 3, 200, 95), (5, 0, 200, 1)];
        assert_eq!(order(PRIORITY, &rows), [2, 1, 0, 3]);
    }

    #[test]
    fn r4_6_expiration_deletes_what_is_past_its_date_first_and_the_oldest_date_first() {
        let rows = [(1, 1, 200, 50), (5, 1, 99, 90), (1, 1, 80, 99), (1, 1, 100, 40)];
        assert_eq!(order(EXPIRATION, &rows), [2, 1, 3, 0]);
    }

    #[test]
    fn r4_6_last_use_orders_what_the_chosen_policy_leaves_equal() {
        assert_eq!(order(PRIORITY, &[(1, 4, 200, 9), (1, 4, 200, 7), (1, 4, 200, 8)]), [1, 2, 0]);
        assert_eq!(
            order(EXPIRATION, &[(1, 4, 50, 9), (1, 4, 50, 7), (1, 5, 200, 8), (1, 4, 200, 3)]),
            [1, 0, 3, 2]
        );
        assert_eq!(order(LRU, &[(1, 4, 50, 9), (1, 3, 50, 9), (1, 3, 50, 9)]), [1, 2, 0]);
    }

    #[test]
    fn r4_7_expiration_acts_only_where_the_project_chose_it() {
        let rows = [(1, 1, 2, 90), (1, 2, 200, 70)];
        assert_eq!(order(LRU, &rows), [1, 0]);
        assert_eq!(order(EXPIRATION, &rows), [0, 1]);
    }
}
