//! Recorded files are compared with those on the disk, after a crash and at any other time (R4.12).
//!
//! A crash between planning, deleting and recording leaves one of three traces. None of them needs a journal:
//! - a plan that was not carried out: nothing has happened;
//! - a record whose file is gone: the file is *missing*;
//! - a file without a record, because it was not recorded yet or its record was deleted first: an *orphan*.
//!
//! The size of a file on the disk is believed over the recorded one.
//!
//! Orphans are removed after a grace period, so that a file written a moment before its record, or put there
//! by hand, is not lost at once. Until then they count as usage of their project. The period begins with the
//! first scan that saw the file. The caller keeps [`Orphans`] between scans; if it loses them, the period
//! begins again.
//!
//! The cost of a scan grows with the number of files, so it is made at start, and rarely afterwards.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Bytes, Duration, Instant, ProjectId};

/// How long a file without an owner stays. An hour is far longer than any record follows its file, and short
/// enough that what a crash leaves takes no space for a day.
pub const ORPHAN_GRACE: Duration = Duration::from_hours(1);

/// Where a file is: the project whose folder it is in, if there is such a project, and its path in there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileLocation {
    /// The project; `None` for folders of projects that are no longer attached.
    pub project: Option<ProjectId>,
    /// Its name, or its path where there is no project.
    pub name: String,
}

/// What the record says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is whole and has this size.
    Whole(Bytes),
    /// It is on its way and will have this size: nothing or a part of it may be there.
    Arriving(Bytes),
}

/// Files without an owner and since when they have been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans(BTreeMap<FileLocation, Instant>);

impl Orphans {
    /// As the file system says: each file has been there since it was last changed, by its own account. So
    /// the period goes on over a restart, and nobody has to remember anything. (A job cannot set when a file
    /// was changed but by changing it.)
    pub fn since(changed: impl IntoIterator<Item = (FileLocation, Instant)>) -> Self {
        Self(changed.into_iter().collect())
    }
}

/// What differs, and what is to be done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Recorded files that are not as recorded.
    pub mismatches: Vec<Mismatch>,
    /// Orphans to remove now, by location.
    pub remove: Vec<OrphanRemoval>,
    /// What orphans that stay for now use, by project.
    pub orphaned: BTreeMap<Option<ProjectId>, Bytes>,
    /// What to hand in at the next scan.
    pub orphans: Orphans,
    /// When the next orphan is to be removed.
    pub again_at: Option<Instant>,
}

/// A recorded file that is not as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It has another size, which is to be believed.
    Resized {
        /// The file.
        location: FileLocation,
        /// Its size in the record.
        recorded: Bytes,
        /// Its size on the disk.
        found: Bytes,
    },
    /// It is not there.
    Missing {
        /// The file.
        location: FileLocation,
        /// Its size in the record.
        recorded: Bytes,
    },
}

/// An orphan to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanRemoval {
    /// The file.
    pub location: FileLocation,
    /// Its size.
    pub bytes: Bytes,
    /// How long it has been seen without an owner.
    pub age: Duration,
}

/// Compares what is recorded with what was found at `now`; `orphans` is what the former scan returned.
pub fn reconcile(
    recorded: &BTreeMap<FileLocation, Recorded>,
    found: &BTreeMap<FileLocation, Bytes>,
    orphans: &Orphans,
    now: Instant,
) -> Reconciliation {
    let mismatches =
        recorded.iter().filter_map(|(location, record)| mismatch(location, *record, found.get(location)));
    let mut result = Reconciliation { mismatches: mismatches.collect(), ..Reconciliation::default() };
    for (location, bytes) in found.iter().filter(|(location, _)| !recorded.contains_key(*location)) {
        // A clock that was set back begins the period again; it would else last until it has caught up.
        let since = orphans.0.get(location).copied().unwrap_or(now).min(now);
        let age = now.since(since);
        if age >= ORPHAN_GRACE {
            result.remove.push(OrphanRemoval { location: location.clone(), bytes: *bytes, age });
        } else {
            let sum = result.orphaned.entry(location.project).or_default();
            *sum = sum.plus(*bytes);
            let due = since + ORPHAN_GRACE;
            result.again_at = Some(result.again_at.map_or(due, |at| at.min(due)));
        }
        // One that is removed stays an orphan until it is gone: a removal that fails is tried again.
        result.orphans.0.insert(location.clone(), since);
    }
    result
}

fn mismatch(location: &FileLocation, record: Recorded, found: Option<&Bytes>) -> Option<Mismatch> {
    let location = location.clone();
    match (record, found.copied()) {
        (Recorded::Whole(recorded), None) => Some(Mismatch::Missing { location, recorded }),
        (Recorded::Whole(recorded), Some(found)) if found != recorded => {
            Some(Mismatch::Resized { location, recorded, found })
        }
        // Its whole size is reserved while it arrives, so a part is no news; more than the whole is.
        (Recorded::Arriving(recorded), Some(found)) if found > recorded => {
            Some(Mismatch::Resized { location, recorded, found })
        }
        _ => None,
    }
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.project {
            Some(project) => write!(f, "{} of project {project}", self.name),
            None => write!(f, "{} of no project", self.name),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resized { location, recorded, found } => {
                write!(f, "{location} has {found} and not the {recorded} recorded; the disk is believed")
            }
            Self::Missing { location, recorded } => {
                write!(f, "{location} ({recorded}) is recorded and not there")
            }
        }
    }
}

impl fmt::Display for OrphanRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, bytes, age } = self;
        write!(f, "remove {location} ({bytes}): nothing has owned it for {age}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn location(name: &str) -> FileLocation {
        FileLocation { project: Some(ProjectId(1)), name: name.to_owned() }
    }

    fn at(secs: i64) -> Instant {
        Instant::from_secs_f64(1e9) + Duration::from_secs(secs)
    }

    fn found(files: &[(&str, u64)]) -> BTreeMap<FileLocation, Bytes> {
        files.iter().map(|(name, size)| (location(name), Bytes(*size))).collect()
    }

    #[test]
    fn r4_12_a_files_size_on_the_disk_is_believed_over_its_record() {
        use Recorded::{Arriving, Whole};
        let check = |record, on_disk: Option<u64>, expected: Option<Mismatch>| {
            let recorded = BTreeMap::from([(location("f"), record)]);
            let found = on_disk.map(|size| (location("f"), Bytes(size))).into_iter().collect();
            let result = reconcile(&recorded, &found, &Orphans::default(), at(0));
            assert_eq!(result.mismatches, expected.into_iter().collect::<Vec<_>>());
            assert!(result.remove.is_empty() && result.orphaned.is_empty());
        };
        let resized = |found| {
            Some(Mismatch::Resized { location: location("f"), recorded: Bytes(10), found: Bytes(found) })
        };
        check(Whole(Bytes(10)), Some(10), None);
        check(Whole(Bytes(10)), Some(4), resized(4));
        check(Whole(Bytes(10)), Some(14), resized(14));
        check(
            Whole(Bytes(10)),
            None,
            Some(Mismatch::Missing { location: location("f"), recorded: Bytes(10) }),
        );
        check(Arriving(Bytes(10)), Some(4), None);
        check(Arriving(Bytes(10)), None, None);
        check(Arriving(Bytes(10)), Some(14), resized(14));
    }

    #[test]
    fn r4_12_files_without_an_owner_are_removed_after_a_grace_period() {
        let (nothing, files) = (BTreeMap::new(), found(&[("orphan", 7)]));
        let first = reconcile(&nothing, &files, &Orphans::default(), at(0));
        assert_eq!((first.remove.len(), first.orphaned[&Some(ProjectId(1))]), (0, Bytes(7)));
        assert_eq!(first.again_at, Some(at(3_600)));
        assert!(reconcile(&nothing, &files, &first.orphans, at(3_599)).remove.is_empty());
        let due = reconcile(&nothing, &files, &first.orphans, at(3_600));
        assert_eq!(due.remove.len(), 1);
        assert_eq!(
            due.remove[0].to_string(),
            "remove orphan of project 1 (7 B): nothing has owned it for 1 h"
        );
        // Removing failed: again at the next scan.
        assert_eq!(reconcile(&nothing, &files, &due.orphans, at(3_700)).remove.len(), 1);
        assert_eq!(reconcile(&nothing, &found(&[]), &due.orphans, at(3_700)), Reconciliation::default());
    }

    #[test]
    fn r4_12_a_file_whose_record_follows_is_no_orphan_any_more() {
        let files = found(&[("late", 7)]);
        let first = reconcile(&BTreeMap::new(), &files, &Orphans::default(), at(0));
        let recorded = BTreeMap::from([(location("late"), Recorded::Whole(Bytes(7)))]);
        assert_eq!(reconcile(&recorded, &files, &first.orphans, at(9_999)), Reconciliation::default());
    }

    proptest! {
        /// Files are deleted and the deletions recorded, in any order and stopping anywhere; files arrive and
        /// are recorded likewise. What a scan makes of it is what is on the disk, and what nobody owns goes
        /// in the end.
        #[test]
        fn r4_12_after_a_crash_at_any_point_a_scan_finds_what_is_true(
            files in prop::collection::btree_map(0..30_u8, (any::<bool>(), any::<bool>(), 1..9_u64, 1..9_u64), 0..30),
        ) {
            let location = |name: &u8| location(&name.to_string());
            let recorded: BTreeMap<FileLocation, Recorded> = files
                .iter()
                .filter(|(_, file)| file.0)
                .map(|(name, file)| (location(name), Recorded::Whole(Bytes(file.2))))
                .collect();
            let mut on_disk: BTreeMap<FileLocation, Bytes> =
                files.iter().filter(|(_, file)| file.1).map(|(name, file)| (location(name), Bytes(file.3))).collect();
            let first = reconcile(&recorded, &on_disk, &Orphans::default(), at(0));
            prop_assert!(first.remove.is_empty());
            let mut believed = recorded.clone();
            for mismatch in &first.mismatches {
                match mismatch {
                    Mismatch::Resized { location, found, .. } => {
                        believed.insert(location.clone(), Recorded::Whole(*found))
                    }
                    Mismatch::Missing { location, .. } => believed.remove(location),
                };
            }
            let later = reconcile(&believed, &on_disk, &first.orphans, at(3_600));
            prop_assert!(later.mismatches.is_empty() && later.orphaned.is_empty());
            for removal in &later.remove {
                prop_assert!(!recorded.contains_key(&removal.location), "{}", removal);
                on_disk.remove(&removal.location);
            }
            let owned: BTreeMap<FileLocation, Recorded> =
                on_disk.iter().map(|(location, size)| (location.clone(), Recorded::Whole(*size))).collect();
            prop_assert_eq!(&believed, &owned);
            prop_assert_eq!(reconcile(&believed, &on_disk, &later.orphans, at(3_601)), Reconciliation::default());
        }
    }

    #[test]
    fn r4_12_a_clock_that_is_set_back_begins_the_grace_period_again() {
        let files = found(&[("orphan", 7)]);
        let first = reconcile(&BTreeMap::new(), &files, &Orphans::default(), at(1_000_000));
        let back = reconcile(&BTreeMap::new(), &files, &first.orphans, at(0));
        assert_eq!((back.remove.len(), back.again_at), (0, Some(at(3_600))));
    }
}
