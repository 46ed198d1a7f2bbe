//! How long a host computes within times to come, in a few numbers that it can tell a server.

use crate::Duration;

/// Rows of a table, at most.
pub const ON_TIME_ROWS_MAX: usize = 32;
/// The longest time to come that one can tell of.
const LENGTH_MAX: Duration = Duration::from_hours(24 * 366);

/// What a host has of a time to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnTimeWithin {
    /// The time, from now on.
    pub length: Duration,
    /// Of it the time that the host surely computes.
    pub sure: Duration,
    /// And the time that it possibly computes.
    pub possible: Duration,
}

/// The time that a host computes within times to come, the shortest first. Neither figure falls from one row
/// to the next, and none is longer than its row's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnTimeTable(Vec<OnTimeWithin>);

impl OnTimeTable {
    /// From rows in order of length. None if there are none, or too many, or what they say cannot be.
    pub fn new(rows: Vec<OnTimeWithin>) -> Option<Self> {
        let mut before =
            OnTimeWithin { length: Duration::ZERO, sure: Duration::ZERO, possible: Duration::ZERO };
        let mut follows = |row: &OnTimeWithin| {
            let OnTimeWithin { length, sure, possible } = std::mem::replace(&mut before, *row);
            length < row.length
                && row.length <= LENGTH_MAX
                && sure <= row.sure
                && possible <= row.possible
                && row.sure <= row.possible
                && row.possible <= row.length
        };
        ((1..=ON_TIME_ROWS_MAX).contains(&rows.len()) && rows.iter().all(&mut follows)).then_some(Self(rows))
    }

    /// Its rows.
    pub fn rows(&self) -> &[OnTimeWithin] {
        &self.0
    }

    /// The time that the host surely computes within a time to come.
    pub fn sure(&self, length: Duration) -> Duration {
        self.within(length, |row| row.sure)
    }

    /// The time that it possibly computes.
    pub fn possible(&self, length: Duration) -> Duration {
        self.within(length, |row| row.possible)
    }

    /// Between two rows a straight line, and behind the last one the share of time that it has.
    fn within(&self, length: Duration, of: impl Fn(&OnTimeWithin) -> Duration) -> Duration {
        let secs = |duration: Duration| duration.as_secs_f64();
        let wanted = secs(length).max(0.0);
        let above = self.0.partition_point(|row| row.length < length);
        let below = above.checked_sub(1).and_then(|place| self.0.get(place));
        let (from, had) = below.map_or((0.0, 0.0), |row| (secs(row.length), secs(of(row))));
        let on = match self.0.get(above) {
            Some(row) => had + (secs(of(row)) - had) * (wanted - from) / (secs(row.length) - from),
            None => had * wanted / from.max(1e-6),
        };
        Duration::from_secs_f64(on).min(length.max(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn row(length: i64, sure: i64, possible: i64) -> OnTimeWithin {
        OnTimeWithin { length: HOUR * length, sure: HOUR * sure, possible: HOUR * possible }
    }

    #[test]
    fn between_rows_on_time_grows_evenly_and_behind_the_last_at_its_mean() {
        let table = OnTimeTable::new(vec![row(2, 1, 2), row(10, 5, 6)]).unwrap();
        let hours = |length: f64| {
            let length = HOUR.mul_f64(length);
            (table.sure(length).as_secs_f64() / 3_600.0, table.possible(length).as_secs_f64() / 3_600.0)
        };
        assert_eq!(
            [hours(-1.0), hours(0.0), hours(1.0), hours(2.0)],
            [(0.0, 0.0), (0.0, 0.0), (0.5, 1.0), (1.0, 2.0)]
        );
        assert_eq!([hours(6.0), hours(10.0), hours(20.0)], [(3.0, 4.0), (5.0, 6.0), (10.0, 12.0)]);
    }

    #[test]
    fn what_cannot_be_is_no_table() {
        let is_table = |rows: &[OnTimeWithin]| OnTimeTable::new(rows.to_vec()).is_some();
        assert!(is_table(&[row(1, 0, 0)]) && is_table(&[row(1, 0, 1), row(2, 0, 1)]));
        for bad in [
            vec![],
            vec![row(0, 0, 0)],
            vec![row(1, 0, 2)],
            vec![row(3, 2, 1)],
            vec![row(3, -1, 1)],
            vec![row(2, 1, 1), row(2, 1, 1)],
            vec![row(2, 1, 1), row(3, 0, 1)],
            vec![row(2, 1, 2), row(3, 1, 1)],
            vec![row(1_000_000, 1, 1)],
            (1..40).map(|hours| row(hours, 0, 0)).collect(),
        ] {
            assert!(!is_table(&bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn on_time_grows_with_the_time_and_is_never_longer(
            rows in prop::collection::vec((1_i64..100, 0_i64..100, 0_i64..100), 1..32),
            one in -1.0..4_000.0_f64, other in prop_oneof![-1.0..4_000.0_f64, Just(1e7)],
        ) {
            let (mut rows_of, mut last) = (Vec::new(), row(0, 0, 0));
            for (length, sure, possible) in rows {
                let length = last.length + HOUR * length;
                let possible = (last.possible + HOUR * possible).min(length);
                let sure = (last.sure + HOUR * sure).min(possible);
                last = OnTimeWithin { length, sure, possible };
                rows_of.push(last);
            }
            let Some(table) = OnTimeTable::new(rows_of) else { return Ok(()) };
            let (one, other) = (HOUR.mul_f64(one.min(other)), HOUR.mul_f64(one.max(other)));
            // A microsecond may be lost to rounding.
            let hair = Duration::from_micros(1);
            for of in [OnTimeTable::sure, OnTimeTable::possible] {
                prop_assert!(of(&table, one) <= of(&table, other) + hair);
                prop_assert!(of(&table, other) <= other.max(Duration::ZERO));
            }
            prop_assert!(table.sure(one) <= table.possible(one) + hair);
        }
    }
}
