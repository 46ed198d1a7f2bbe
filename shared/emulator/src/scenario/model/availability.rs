//! When something is there: a host that computes, a project that answers.

use fallow_domain::{Duration, Fraction};

/// When a host or a project is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Availability {
    /// All the time.
    Always,
    /// On and off in turn, lengths drawn from exponential distributions.
    OnOff {
        /// Part of the time that it is on, above 0. The mean off interval follows: `mean × (1 - fraction) /
        /// fraction`.
        fraction: Fraction,
        /// Mean length of an on interval, above zero (R5.15).
        mean: Duration,
    },
    /// At certain hours of certain days.
    Hours(OfficeHours),
    /// As recorded.
    Trace(Trace),
}

/// Hours of the week, as a machine in an office keeps them. A simulation begins on a Monday at midnight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfficeHours {
    /// The days on which it comes on, Monday first; at least one.
    pub days: [bool; 7],
    /// When it comes on, from midnight: less than a day.
    pub from: Duration,
    /// When it goes off, from the same midnight: later, by a day at most.
    pub to: Duration,
    /// It comes on and goes off up to so much earlier or later each day, drawn evenly; less than half of the
    /// time between.
    pub jitter: Duration,
    /// Part of these days on which it stays off, drawn day by day; below 1.
    pub absent: Fraction,
}

/// A recorded history of on and off (R5.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file it came from, as the scenario names it.
    pub file: String,
    /// When it changed, in rising order. Before the first change it is in the other state.
    pub changes: Vec<TraceChange>,
    /// Where the recording ends, later than the last change: from there it begins anew. Without an end, the
    /// last state holds.
    pub end: Option<Duration>,
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceChange {
    /// When, from the beginning of the recording.
    pub at: Duration,
    /// True: on from here.
    pub on: bool,
}

impl Availability {
    /// Part of the time that it is on, in the long run.
    #[must_use]
    pub fn fraction(&self) -> Fraction {
        match self {
            Self::Always => Fraction::ONE,
            Self::OnOff { fraction, .. } => *fraction,
            Self::Hours(hours) => hours.fraction(),
            Self::Trace(trace) => trace.fraction(),
        }
    }
}

impl OfficeHours {
    /// Part of the time that it is on.
    #[must_use]
    pub fn fraction(&self) -> Fraction {
        let days = self.days.iter().filter(|day| **day).count() as f64 * (1.0 - self.absent.get());
        Fraction::clamped(days * (self.to - self.from).as_secs_f64() / (7.0 * 86_400.0))
    }
}

impl Trace {
    /// Whether it is on at `time` from the beginning, and when that changes next, if it ever does. The time
    /// of a change belongs to the new state. A change that falls on the beginning of a repetition and changes
    /// nothing may be named too.
    #[must_use]
    pub fn at(&self, time: Duration) -> (bool, Option<Duration>) {
        let period = self.end.filter(|end| end.is_positive());
        let (round, within) = match period {
            Some(end) if time.is_positive() => {
                let rounds = time.as_micros() / end.as_micros();
                (end * rounds, time - end * rounds)
            }
            _ => (Duration::ZERO, time),
        };
        let passed = self.changes.partition_point(|change| change.at <= within);
        let on = match passed.checked_sub(1).and_then(|last| self.changes.get(last)) {
            Some(change) => change.on,
            None => self.changes.first().is_some_and(|first| !first.on),
        };
        let next = self.changes.get(passed).map(|change| change.at).or(period);
        (on, next.map(|next| round + next))
    }

    /// Part of the time that it is on, over the recording. Without an end the last state counts alone: it
    /// holds for ever.
    #[must_use]
    pub fn fraction(&self) -> Fraction {
        let Some(end) = self.end.filter(|end| end.is_positive()) else {
            let on = self.changes.last().is_some_and(|last| last.on);
            return if on { Fraction::ONE } else { Fraction::ZERO };
        };
        let mut on_time = Duration::ZERO;
        let mut from = Duration::ZERO;
        while from < end {
            let (on, next) = self.at(from);
            let to = next.unwrap_or(end).min(end);
            if to <= from {
                break;
            }
            if on {
                on_time += to - from;
            }
            from = to;
        }
        Fraction::clamped(on_time.as_secs_f64() / end.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(changes: &[(i64, bool)], end: Option<i64>) -> Trace {
        Trace {
            file: "t.csv".into(),
            changes: changes
                .iter()
                .map(|&(at, on)| TraceChange { at: Duration::from_secs(at), on })
                .collect(),
            end: end.map(Duration::from_secs),
        }
    }
    fn at(trace: &Trace, secs: i64) -> (bool, Option<i64>) {
        let (on, next) = trace.at(Duration::from_secs(secs));
        (on, next.map(|next| next.as_micros() / 1_000_000))
    }

    #[test]
    fn a_trace_without_an_end_keeps_its_last_state() {
        let trace = trace(&[(0, true), (10, false), (30, true)], None);
        assert_eq!(at(&trace, 0), (true, Some(10)));
        assert_eq!(at(&trace, 10), (false, Some(30)));
        assert_eq!(at(&trace, 31), (true, None));
        assert_eq!(trace.fraction(), Fraction::ONE);
    }

    #[test]
    fn a_trace_with_an_end_begins_anew_there() {
        let trace = trace(&[(5, false), (20, true)], Some(25));
        assert_eq!(at(&trace, 0), (true, Some(5)));
        assert_eq!(at(&trace, 24), (true, Some(25)));
        assert_eq!(at(&trace, 25), (true, Some(30)));
        assert_eq!(at(&trace, 33), (false, Some(45)));
        assert_eq!(trace.fraction(), Fraction::clamped(0.4));
    }
}
