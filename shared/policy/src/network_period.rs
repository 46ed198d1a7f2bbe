//! Periods of network activity (R1.13).
//!
//! A host with a connection interval above zero is not always connected, or its owner does not want it to be.
//! What needs the network is gathered. When the interval is over and something is needed, a *period* begins,
//! in which everything is done. The next period begins one interval after the beginning of this one. A period
//! ends when nothing is needed any more, and after `PERIOD_MAX` at the latest: a server that sends a little
//! each time cannot keep it open.
//!
//! A period begins before the interval is over for one of two reasons. A user or the coordinator asks for it.
//! Or a deadline would be missed by waiting: this counts from a day before the deadline, the time from which
//! a finished job is due for reporting (R1.8). Everything is done in such a period too, and the next one
//! begins an interval later.
//!
//! The state is stored. After a restart, or when the clock was set, no wait is longer than the interval
//! (R1.12).

use std::fmt;

use fallow_domain::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::backoff::Wait;

/// A period ends after this at the latest, or after half the interval if that is less.
pub const PERIOD_MAX: Duration = Duration::from_hours(1);

/// A deadline that would pass while the host waits breaks the interval this long before.
pub const DEADLINE_MARGIN: Duration = Duration::from_hours(24);

/// What the host needs the network for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkNeeds {
    /// Anything at all: work, reports, transfers, master pages.
    pub any: bool,
    /// The earliest deadline among jobs that are finished and not yet reported.
    pub deadline: Option<Instant>,
    /// A user or the coordinator asked for it, and it has not been done.
    pub requested: bool,
}

/// Why the network may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyConnected {
    /// There is no interval.
    Always,
    /// The interval is over.
    IntervalOver,
    /// A deadline would be missed.
    Deadline,
    /// Somebody asked for it.
    Requested,
}

/// Whether the network may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It may.
    Open(WhyConnected),
    /// It may not; ask again then, or when what is needed changes.
    Closed {
        /// When the next period may begin, as far as can be told now.
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Period {
    why: WhyConnected,
    /// Its greatest length.
    ends: Wait,
}

/// The periods of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPeriods {
    /// The interval since the last period began.
    interval: Option<Wait>,
    open: Option<Period>,
}

impl NetworkPeriods {
    /// Takes note of the time and of what is needed, begins or ends a period, and says whether the network
    /// may be used. To be called on every turn.
    pub fn poll(&mut self, now: Instant, interval: Duration, needs: &NetworkNeeds) -> Connection {
        if !interval.is_positive() {
            *self = Self::default();
            return Connection::Open(WhyConnected::Always);
        }
        self.observe(now, interval);
        if self.open.is_some_and(|period| !period.ends.holds(now) || !(needs.any || needs.requested)) {
            self.open = None;
        }
        if let Some(period) = self.open {
            return Connection::Open(period.why);
        }
        let next = self.interval.map_or(now, |wait| now + wait.left(now));
        let rescue =
            needs.deadline.filter(|deadline| *deadline < next).map(|deadline| deadline - DEADLINE_MARGIN);
        let why = match () {
            () if needs.requested => WhyConnected::Requested,
            () if needs.any && next <= now => WhyConnected::IntervalOver,
            () if rescue.is_some_and(|at| at <= now) => WhyConnected::Deadline,
            () => return Connection::Closed { until: rescue.map_or(next, |at| at.min(next)).max(now) },
        };
        self.interval = Some(Wait::new(now, interval));
        self.open = Some(Period { why, ends: Wait::new(now, PERIOD_MAX.min(interval / 2)) });
        Connection::Open(why)
    }

    /// A clock that jumped back lengthens no wait; an interval that was made shorter holds at once.
    fn observe(&mut self, now: Instant, interval: Duration) {
        if let Some(wait) = &mut self.interval {
            wait.observe(now);
            if wait.left(now) > interval {
                *wait = Wait::new(now, interval);
            }
        }
        if let Some(period) = &mut self.open {
            period.ends.observe(now);
        }
    }
}

impl fmt::Display for WhyConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "there is no connection interval",
            Self::IntervalOver => "the connection interval is over",
            Self::Deadline => "a deadline would be missed by waiting",
            Self::Requested => "it was requested",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const C: Duration = Duration::from_hours(48);
    const ALL: NetworkNeeds = NetworkNeeds { any: true, deadline: None, requested: false };
    const NONE: NetworkNeeds = NetworkNeeds { any: false, deadline: None, requested: false };

    fn at(hours: i64) -> Instant {
        Instant::from_secs_f64(1.8e9) + Duration::from_hours(hours)
    }
    fn open(connection: Connection) -> bool {
        matches!(connection, Connection::Open(_))
    }

    #[test]
    fn r1_13_needs_are_gathered_and_met_in_one_period_per_interval() {
        let mut periods = NetworkPeriods::default();
        assert_eq!(periods.poll(at(0), C, &ALL), Connection::Open(WhyConnected::IntervalOver));
        assert!(open(periods.poll(at(0), C, &ALL)), "all is done in it");
        assert_eq!(periods.poll(at(0), C, &NONE), Connection::Closed { until: at(48) });
        assert_eq!(periods.poll(at(1), C, &ALL), Connection::Closed { until: at(48) });
        assert!(open(periods.poll(at(48), C, &ALL)));
    }

    #[test]
    fn r1_13_a_period_without_end_ends() {
        let mut periods = NetworkPeriods::default();
        assert!(open(periods.poll(at(0), C, &ALL)));
        assert!(open(periods.poll(at(1) - Duration::from_secs(1), C, &ALL)));
        assert_eq!(periods.poll(at(1), C, &ALL), Connection::Closed { until: at(48) });
    }

    #[test]
    fn r1_13_an_interval_of_zero_is_always_connected() {
        let mut periods = NetworkPeriods::default();
        assert_eq!(periods.poll(at(0), Duration::ZERO, &NONE), Connection::Open(WhyConnected::Always));
    }

    #[test]
    fn r1_13_a_users_request_breaks_the_interval_and_the_next_is_an_interval_away() {
        let mut periods = NetworkPeriods::default();
        periods.poll(at(0), C, &ALL);
        periods.poll(at(0), C, &NONE);
        let requested = NetworkNeeds { requested: true, ..ALL };
        assert_eq!(periods.poll(at(10), C, &requested), Connection::Open(WhyConnected::Requested));
        assert_eq!(periods.poll(at(10), C, &NONE), Connection::Closed { until: at(58) });
    }

    #[test]
    fn r1_13_a_deadline_that_would_be_missed_breaks_the_interval() {
        let mut periods = NetworkPeriods::default();
        periods.poll(at(0), C, &ALL);
        periods.poll(at(0), C, &NONE);
        let with = |deadline| NetworkNeeds { deadline: Some(at(deadline)), ..ALL };
        assert_eq!(periods.poll(at(1), C, &with(50)), Connection::Closed { until: at(48) }, "no need to");
        assert_eq!(periods.poll(at(1), C, &with(40)), Connection::Closed { until: at(16) });
        assert_eq!(periods.poll(at(16), C, &with(40)), Connection::Open(WhyConnected::Deadline));
    }

    #[test]
    fn r1_13_periods_survive_being_stored_and_an_interval_made_shorter_holds_at_once() {
        let mut periods = NetworkPeriods::default();
        periods.poll(at(0), C, &ALL);
        periods.poll(at(0), C, &NONE);
        let stored = serde_json::to_string(&periods).unwrap();
        let mut restored: NetworkPeriods = serde_json::from_str(&stored).unwrap();
        assert_eq!(restored, periods);
        assert_eq!(restored.poll(at(1), C / 2, &ALL), Connection::Closed { until: at(25) });
    }

    proptest! {
        #[test]
        fn r1_12_no_interval_is_waited_for_longer_than_itself_under_any_clock_jumps(
            turns in prop::collection::vec((1_i64..20, prop::option::of(-4_000_i64..4_000)), 1..200),
        ) {
            let mut periods = NetworkPeriods::default();
            let (mut clock, mut waited) = (at(0), Duration::ZERO);
            for (step, jump) in turns {
                clock = clock + Duration::from_hours(step);
                waited += Duration::from_hours(step);
                if let Some(jump) = jump {
                    clock = clock + Duration::from_hours(jump);
                    waited = Duration::ZERO;
                }
                let connection = periods.poll(clock, C, &ALL);
                if let Connection::Closed { until } = connection {
                    prop_assert!(until - clock <= C && waited < C + Duration::from_hours(20));
                } else {
                    waited = Duration::ZERO;
                }
            }
        }
    }
}
