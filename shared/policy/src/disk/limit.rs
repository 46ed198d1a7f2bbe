//! The total limit: how much of the volume the owner lets the agent and its projects use (R4.1).
//!
//! There are three bounds, and the smallest holds. The third follows from the free space of the volume, which
//! others change too. So the volume is measured again every ten minutes, and before large writes. What the
//! agent itself writes or deletes between two measurements does not change that bound: free space and the
//! agent's usage change by the same number of bytes.

use std::fmt;

use fallow_domain::{Bytes, Duration, Fraction, Instant, Invalid, LocalPreferences, Preferences};

/// A measurement this old is made again (R4.1).
pub const MEASURE_PERIOD: Duration = Duration::from_mins(10);

/// A write of this size is big: the volume is measured before it (R4.1). Smaller ones are, too, when they
/// take more than a tenth of what was free. 64 MiB is written in about a second, in which other users of the
/// volume matter.
pub const BIG_WRITE: Bytes = Bytes::from_mebibytes(64);

/// A measurement serves big writes for this long, so that many at once do not measure each for itself.
const BIG_WRITE_FRESH: Duration = Duration::from_secs(5);

/// What the owner allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnerDisk {
    /// At most this many bytes, if there is such a limit (BOINC: `disk_max_used_gb`).
    pub used_max: Option<Bytes>,
    /// At most this part of the volume (BOINC: `disk_max_used_pct`).
    pub fraction: Fraction,
    /// Leave this much free (BOINC: `disk_min_free_gb`).
    pub free_min: Bytes,
}

impl From<(&Preferences, &LocalPreferences)> for OwnerDisk {
    fn from((preferences, local): (&Preferences, &LocalPreferences)) -> Self {
        Self {
            used_max: local.disk_max,
            fraction: preferences.disk_fraction,
            free_min: preferences.disk_free_min,
        }
    }
}

impl OwnerDisk {
    /// The most of a disk of this size, whatever is free.
    pub fn most_of(&self, size: Bytes) -> Bytes {
        // `as` truncates: a limit is never rounded up. Sizes of volumes are exact in 53 bits.
        let part = Bytes((size.as_f64() * self.fraction.get()) as u64);
        self.used_max.map_or(part, |most| most.min(part))
    }
}

/// The volume that holds the agent's data, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    at: Instant,
    size: Bytes,
    free: Bytes,
    ours: Bytes,
}

/// Why the volume has to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureReason {
    /// The measurement is older than [`MEASURE_PERIOD`].
    Old {
        /// Its age.
        age: Duration,
    },
    /// The clock was set back to before the measurement.
    ClockBack,
    /// A big write is to come.
    BigWrite {
        /// Its size.
        bytes: Bytes,
    },
}

impl Volume {
    /// A measurement: the volume's `size`, what is `free` there, and what the agent and its projects occupied
    /// (`ours`) at the same moment. That is what is really there: space that is only reserved for files on
    /// their way is still free on the volume, and counting it twice would promise it twice.
    ///
    /// # Errors
    /// [`Invalid`] for figures that no volume has. They would make the agent delete files for nothing: keep
    /// the former measurement instead.
    pub fn measured(at: Instant, size: Bytes, free: Bytes, ours: Bytes) -> Result<Self, Invalid> {
        if size == Bytes(0) {
            return Err(Invalid::new("size of the volume", size, "more than nothing"));
        }
        if free > size {
            return Err(Invalid::new("free space", free, "no more than the size of the volume"));
        }
        Ok(Self { at, size, free, ours })
    }

    /// When it was measured.
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// The volume's size.
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// What was free there.
    pub const fn free(&self) -> Bytes {
        self.free
    }

    /// The same measurement after the clock was set back to before it.
    #[must_use]
    pub const fn as_of(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// Whether to measure again now, before a write of `write` bytes (0 for none).
    pub fn is_due(&self, now: Instant, write: Bytes) -> Option<MeasureReason> {
        let age = now.since(self.at);
        if now < self.at {
            Some(MeasureReason::ClockBack)
        } else if age >= MEASURE_PERIOD {
            Some(MeasureReason::Old { age })
        } else if (write >= BIG_WRITE || write.0 > self.free.0 / 10) && age >= BIG_WRITE_FRESH {
            Some(MeasureReason::BigWrite { bytes: write })
        } else {
            None
        }
    }

    /// When the next measurement is due without any write.
    pub fn due_at(&self) -> Instant {
        self.at + MEASURE_PERIOD
    }
}

/// Which of the owner's bounds is the smallest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The maximum of bytes used.
    UsedMax,
    /// The part of the volume that may be used.
    Fraction {
        /// That part.
        fraction: Fraction,
        /// The volume's size.
        size: Bytes,
    },
    /// The space to be left free.
    FreeMin {
        /// That space.
        free_min: Bytes,
        /// What is missing of it although nothing may be used: others fill the volume.
        short: Bytes,
        /// The volume's size.
        size: Bytes,
    },
}

impl Bound {
    /// The owner's preference that it comes from.
    pub const fn preference(&self) -> &'static str {
        match self {
            Self::UsedMax => "disk_max",
            Self::Fraction { .. } => "disk_fraction",
            Self::FreeMin { .. } => "disk_free_min",
        }
    }

    /// What makes it wider, after `Free so much on the disk or`; or all that helps, where no space does.
    pub(crate) fn widen(&self, to_free: Bytes) -> String {
        match self {
            Self::UsedMax | Self::Fraction { .. } => {
                format!("Free {to_free} on the disk or raise {}", self.preference())
            }
            Self::FreeMin { free_min, size, .. } if free_min >= size => format!(
                "Nothing that is freed is enough: disk_free_min is {free_min}, and the whole volume has {size}. Have \
                 the agent work on a larger volume, or lower disk_free_min: beside a coordinator by `fallow preferences set`, else by \
                 disk_min_free_gb in global_prefs_override.xml, for preferences.toml only tightens"
            ),
            Self::FreeMin { .. } => format!("Free {to_free} on the disk or lower disk_free_min"),
        }
    }
}

/// What the agent and all its projects may use together, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TotalLimit {
    /// The limit.
    pub bytes: Bytes,
    /// The bound that gave it.
    pub bound: Bound,
}

impl TotalLimit {
    /// What is missing of the space that is to stay free, although nothing may be used.
    pub const fn short(&self) -> Bytes {
        match self.bound {
            Bound::FreeMin { short, .. } => short,
            Bound::UsedMax | Bound::Fraction { .. } => Bytes(0),
        }
    }

    /// The smallest of the three bounds (R4.1).
    pub fn new(owner: &OwnerDisk, volume: &Volume) -> Self {
        let size = volume.size;
        // `as` truncates: a limit is never rounded up. Sizes of volumes are exact in 53 bits.
        let part = Bytes((size.as_f64() * owner.fraction.get()) as u64);
        let beside_others = Bytes(volume.free.plus(volume.ours).0.saturating_sub(owner.free_min.0));
        let mut limit = Self { bytes: part, bound: Bound::Fraction { fraction: owner.fraction, size } };
        if beside_others < limit.bytes {
            let free_min = owner.free_min;
            let short = Bytes(free_min.0.saturating_sub(volume.free.plus(volume.ours).0));
            limit = Self { bytes: beside_others, bound: Bound::FreeMin { free_min, short, size } };
        }
        match owner.used_max {
            Some(bytes) if bytes < limit.bytes => Self { bytes, bound: Bound::UsedMax },
            _ => limit,
        }
    }
}

impl fmt::Display for TotalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.bytes, self.bound)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsedMax => write!(f, "the most that may be used"),
            Self::Fraction { fraction, size } => {
                write!(f, "{:.0}% of the disk's {size}", fraction.get() * 100.0)
            }
            Self::FreeMin { free_min, .. } => write!(f, "what leaves {free_min} of the disk free"),
        }
    }
}

impl fmt::Display for MeasureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old { age } => write!(f, "the disk was last measured {age} ago"),
            Self::ClockBack => write!(f, "the clock was set back to before the last measurement"),
            Self::BigWrite { bytes } => write!(f, "{bytes} are to be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn at(secs: i64) -> Instant {
        Instant::EPOCH + Duration::from_secs(secs)
    }

    fn volume(size: u64, free: u64, ours: u64) -> Volume {
        Volume::measured(at(1_000), Bytes(size * GB), Bytes(free * GB), Bytes(ours * GB)).unwrap()
    }

    #[test]
    fn r4_1_the_smallest_of_three_bounds_holds_and_says_which_it_is() {
        let check = |used_max: Option<u64>, fraction, free_min, volume, limit: u64, words: &str| {
            let owner = OwnerDisk {
                used_max: used_max.map(|gb| Bytes(gb * GB)),
                fraction: Fraction::clamped(fraction),
                free_min: Bytes(free_min * GB),
            };
            let found = TotalLimit::new(&owner, &volume);
            assert_eq!(found.bytes, Bytes(limit * GB), "{found}");
            assert!(found.to_string().contains(words), "{found}");
        };
        check(Some(20), 0.9, 1, volume(100, 80, 0), 20, "the most that may be used");
        check(Some(60), 0.5, 1, volume(100, 80, 0), 50, "50% of the disk's 100 GB");
        check(Some(40), 0.9, 10, volume(100, 40, 5), 35, "leaves 10 GB");
        check(None, 0.5, 1, volume(100, 80, 0), 50, "50% of the disk's 100 GB");
        check(None, 0.9, 10, volume(100, 40, 5), 35, "leaves 10 GB");
        // Others filled the disk: what is ours already exceeds the limit.
        check(None, 0.9, 10, volume(100, 2, 30), 22, "of the disk free");
        check(None, 0.9, 10, volume(100, 0, 3), 0, "of the disk free");
        let owner = OwnerDisk { used_max: None, fraction: Fraction::ONE, free_min: Bytes(10 * GB) };
        let short = |free, ours| TotalLimit::new(&owner, &volume(100, free, ours)).short();
        assert_eq!((short(0, 3), short(8, 3), short(80, 3)), (Bytes(7 * GB), Bytes(0), Bytes(0)));
    }

    #[test]
    fn r4_8_what_helps_against_a_limit_is_said_by_its_preference_and_not_where_it_cannot_help() {
        let helps = |used_max: Option<u64>, fraction, free_min, size| {
            let (used_max, free_min) = (used_max.map(|gb| Bytes(gb * GB)), Bytes(free_min * GB));
            let owner = OwnerDisk { used_max, fraction: Fraction::clamped(fraction), free_min };
            TotalLimit::new(&owner, &volume(size, 1, 0)).bound.widen(Bytes(20 * GB))
        };
        assert_eq!(helps(Some(0), 1.0, 0, 100), "Free 20 GB on the disk or raise disk_max");
        assert_eq!(helps(None, 0.001, 0, 100), "Free 20 GB on the disk or raise disk_fraction");
        assert_eq!(helps(None, 1.0, 10, 100), "Free 20 GB on the disk or lower disk_free_min");
        let small = helps(None, 1.0, 60, 50);
        assert!(
            small.starts_with("Nothing that is freed is enough") && small.contains("has 50 GB"),
            "{small}"
        );
    }

    #[test]
    fn r4_1_what_we_write_ourselves_does_not_move_the_limit() {
        let owner = OwnerDisk { used_max: None, fraction: Fraction::ONE, free_min: Bytes(GB) };
        let (before, after) =
            (TotalLimit::new(&owner, &volume(100, 40, 5)), TotalLimit::new(&owner, &volume(100, 30, 15)));
        assert_eq!(before, after);
    }

    #[test]
    fn r4_1_the_volume_is_measured_every_ten_minutes_and_before_big_writes() {
        let volume = volume(100, 40, 5);
        let check = |now, write, due: Option<MeasureReason>| assert_eq!(volume.is_due(at(now), write), due);
        check(1_599, Bytes(0), None);
        check(1_600, Bytes(0), Some(MeasureReason::Old { age: MEASURE_PERIOD }));
        check(999, Bytes(0), Some(MeasureReason::ClockBack));
        check(1_010, BIG_WRITE, Some(MeasureReason::BigWrite { bytes: BIG_WRITE }));
        check(1_001, BIG_WRITE, None);
        check(1_010, Bytes(1_000), None);
        assert_eq!(volume.due_at(), at(1_600));
        let full = Volume::measured(at(1_000), Bytes(GB), Bytes(5_000), Bytes(0)).unwrap();
        assert_eq!(
            full.is_due(at(1_010), Bytes(1_000)),
            Some(MeasureReason::BigWrite { bytes: Bytes(1_000) })
        );
    }

    #[test]
    fn r4_1_figures_that_no_volume_has_are_refused() {
        assert!(Volume::measured(at(0), Bytes(0), Bytes(0), Bytes(0)).is_err());
        assert!(Volume::measured(at(0), Bytes(1), Bytes(2), Bytes(0)).is_err());
    }
}
