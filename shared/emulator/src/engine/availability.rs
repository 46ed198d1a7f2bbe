//! Something that is on and off in turn: the host, a project's server, or what several servers depend on.
//!
//! An on/off process is taken as running for ever: at the beginning it is on with the probability that is its
//! fraction, and since exponential lengths have no memory, the first change is as far away as from any other
//! moment.

use std::sync::Arc;

use fallow_domain::{Duration, Instant};

use super::random::Stream;
use crate::scenario::{Availability, OfficeHours, Trace};

/// Where a process stands, and when it changes. It is moved on by being asked; time only goes forward.
#[derive(Clone, Debug)]
pub(crate) struct OnOff {
    source: Source,
    on: bool,
    /// When it changes next; `FAR_FUTURE` for never.
    changes_at: Instant,
    /// How often it has changed so far.
    changes: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Always,
    Drawn {
        on: Duration,
        off: Duration,
        stream: Stream,
    },
    ByHours(Calendar),
    /// Recordings may be long, and many hosts follow the same one.
    Recorded {
        trace: Arc<Trace>,
        beginning: Instant,
    },
}

/// Days to look ahead for the next one that is not missed.
const LOOK_AHEAD: u32 = 100_000;
const DAY: Duration = Duration::from_hours(24);

/// Where in the week a process by hours stands.
#[derive(Clone, Debug)]
struct Calendar {
    hours: OfficeHours,
    stream: Stream,
    /// The midnight of the next day to look at, and which day of the week that is.
    midnight: Instant,
    weekday: usize,
    /// When the present on interval ends, or the last one ended.
    ends: Instant,
}

impl Calendar {
    /// From when it is on next; until when is in `ends`. `FAR_FUTURE` for never.
    fn next_on(&mut self) -> Instant {
        let OfficeHours { days, from, to, jitter, absent } = self.hours;
        for _ in 0..LOOK_AHEAD {
            let (midnight, is_one) = (self.midnight, days[self.weekday]);
            (self.midnight, self.weekday) = (midnight + DAY, (self.weekday + 1) % days.len());
            if !is_one {
                continue;
            }
            let is_absent = absent.get() > 0.0 && self.stream.unit() <= absent.get();
            let mut shift = || match jitter.is_positive() {
                true => jitter.mul_f64(2.0 * self.stream.unit() - 1.0),
                false => Duration::ZERO,
            };
            let (begins, ends) = (midnight + from + shift(), midnight + to + shift());
            // One day's may reach into the next.
            let begins = begins.max(self.ends);
            if !is_absent && begins < ends {
                self.ends = ends;
                return begins;
            }
        }
        Instant::FAR_FUTURE
    }
}

impl OnOff {
    /// A process that begins at `beginning`.
    pub(crate) fn new(availability: &Availability, beginning: Instant, mut stream: Stream) -> Self {
        let always = |on| Self { source: Source::Always, on, changes_at: Instant::FAR_FUTURE, changes: 0 };
        match availability {
            Availability::Always => always(true),
            Availability::OnOff { fraction, .. } if fraction.get() >= 1.0 => always(true),
            Availability::OnOff { fraction, .. } if fraction.get() <= 0.0 => always(false),
            Availability::OnOff { fraction, mean } => {
                let on = stream.unit() <= fraction.get();
                let off = mean.mul_f64((1.0 - fraction.get()) / fraction.get());
                let changes_at = beginning + stream.exponential(if on { *mean } else { off });
                Self { source: Source::Drawn { on: *mean, off, stream }, on, changes_at, changes: 0 }
            }
            Availability::Hours(hours) => {
                // The last day of the week before: its hours may go over midnight.
                let (midnight, weekday) = (beginning - DAY, hours.days.len() - 1);
                let mut calendar = Calendar { hours: *hours, stream, midnight, weekday, ends: beginning };
                let begins = calendar.next_on();
                let on = begins <= beginning;
                let changes_at = if on { calendar.ends } else { begins };
                Self { source: Source::ByHours(calendar), on, changes_at, changes: 0 }
            }
            Availability::Trace(trace) => {
                let (on, next) = trace.at(Duration::ZERO);
                let changes_at = next.map_or(Instant::FAR_FUTURE, |next| beginning + next);
                let source = Source::Recorded { trace: Arc::new(trace.clone()), beginning };
                Self { source, on, changes_at, changes: 0 }
            }
        }
    }

    /// Whether it is on at `now`.
    pub(crate) fn is_on(&mut self, now: Instant) -> bool {
        while self.changes_at <= now {
            self.change();
        }
        self.on
    }

    /// When it changes next, as seen at the time it was last asked about; `FAR_FUTURE` for never.
    pub(crate) fn changes_at(&self) -> Instant {
        self.changes_at
    }

    /// How often it has changed: two equal answers mean that it stood as it was all the time between.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn change(&mut self) {
        let at = self.changes_at;
        let was = self.on;
        match &mut self.source {
            Source::Always => self.changes_at = Instant::FAR_FUTURE,
            Source::Drawn { on, off, stream } => {
                self.on = !self.on;
                self.changes_at = at + stream.exponential(if self.on { *on } else { *off });
            }
            Source::ByHours(calendar) => {
                self.on = !self.on;
                self.changes_at = if self.on { calendar.ends } else { calendar.next_on() };
            }
            Source::Recorded { trace, beginning } => {
                let (on, next) = trace.at(at - *beginning);
                self.on = on;
                self.changes_at = next.map_or(Instant::FAR_FUTURE, |next| *beginning + next);
            }
        }
        // A recording may name a change that changes nothing.
        self.changes += u64::from(self.on != was);
    }
}

/// Several things that something depends on: it is on while all of them are.
#[derive(Clone, Debug)]
pub(crate) struct AllOn(Vec<OnOff>);

impl AllOn {
    pub(crate) fn new(all: impl Iterator<Item = OnOff>) -> Self {
        Self(all.collect())
    }

    /// Whether it is on at `now`.
    pub(crate) fn is_on(&mut self, now: Instant) -> bool {
        // Each is asked, so that each moves on.
        let mut all = true;
        for one in &mut self.0 {
            all &= one.is_on(now);
        }
        all
    }

    /// How often any of them has changed: two equal answers mean that it stood as it was all the time
    /// between.
    pub(crate) fn changes(&self) -> u64 {
        self.0.iter().map(OnOff::changes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::TraceChange;
    use fallow_domain::Fraction;

    fn process(fraction: f64, mean: i64, seed: u64) -> OnOff {
        let availability =
            Availability::OnOff { fraction: Fraction::clamped(fraction), mean: Duration::from_secs(mean) };
        OnOff::new(&availability, Instant::EPOCH, Stream::named(seed, &["test"]))
    }
    /// On time, on intervals and off intervals over a length of time.
    fn measure(mut process: OnOff, length: Duration) -> (f64, u64, u64) {
        let (mut now, end) = (Instant::EPOCH, Instant::EPOCH + length);
        let (mut on_time, mut ons, mut offs) = (Duration::ZERO, 0, 0);
        while now < end {
            let on = process.is_on(now);
            let next = process.changes_at().min(end);
            on_time += if on { next - now } else { Duration::ZERO };
            ons += u64::from(on);
            offs += u64::from(!on);
            now = next;
        }
        (on_time.as_secs_f64() / length.as_secs_f64(), ons, offs)
    }

    #[test]
    fn r5_11_an_on_off_process_has_the_fraction_and_the_mean_interval_that_were_asked_for() {
        for (fraction, mean) in [(0.8, 1_000), (0.2, 1_000), (0.95, 86_400), (0.99, 3_600)] {
            let length = Duration::from_secs(mean * 40_000);
            let (measured, ons, _) = measure(process(fraction, mean, 1), length);
            assert!((measured - fraction).abs() < 0.01, "{fraction}: {measured}");
            let mean_on = measured * length.as_secs_f64() / ons as f64;
            assert!((mean_on / mean as f64 - 1.0).abs() < 0.02, "{mean}: {mean_on}");
        }
    }

    #[test]
    fn a_process_begins_on_as_often_as_it_is_on() {
        let begins_on = (0..4_000).filter(|seed| process(0.2, 1_000, *seed).is_on(Instant::EPOCH)).count();
        assert!((700..900).contains(&begins_on), "{begins_on}");
    }

    #[test]
    fn it_does_not_matter_how_often_a_process_is_asked() {
        let (mut often, mut seldom) = (process(0.7, 600, 5), process(0.7, 600, 5));
        let asked: Vec<bool> =
            (0..100_000).map(|n| often.is_on(Instant::EPOCH + Duration::from_secs(7 * n))).collect();
        for n in (0..100_000_usize).step_by(1_000) {
            let at = Instant::EPOCH + Duration::from_secs(7 * n as i64);
            assert_eq!(seldom.is_on(at), asked[n]);
        }
    }

    fn hours(days: [u8; 7], from: i64, to: i64) -> OfficeHours {
        let (from, to) = (Duration::from_hours(from), Duration::from_hours(to));
        let days = days.map(|day| day == 1);
        OfficeHours { days, from, to, jitter: Duration::ZERO, absent: Fraction::ZERO }
    }
    fn by_hours(hours: OfficeHours, seed: u64) -> OnOff {
        OnOff::new(&Availability::Hours(hours), Instant::EPOCH, Stream::named(seed, &["test"]))
    }
    /// The hours, from the beginning, at which a process changes in two weeks.
    fn changes(mut process: OnOff) -> Vec<f64> {
        let mut changes = Vec::new();
        loop {
            let at = process.changes_at();
            if at > Instant::EPOCH + DAY * 14 {
                return changes;
            }
            process.is_on(at);
            changes.push((at - Instant::EPOCH).as_secs_f64() / 3_600.0);
        }
    }

    #[test]
    fn r5_11_office_hours_are_kept_from_monday_on_and_may_go_over_midnight() {
        let week = hours([1, 0, 0, 0, 0, 1, 0], 9, 17);
        assert_eq!(changes(by_hours(week, 1)), [9.0, 17.0, 129.0, 137.0, 177.0, 185.0, 297.0, 305.0]);
        let mut nights = by_hours(hours([0, 0, 0, 0, 0, 0, 1], 22, 30), 1);
        assert!(nights.is_on(Instant::EPOCH), "since Sunday");
        assert_eq!(changes(nights), [6.0, 166.0, 174.0, 334.0]);
        let (measured, ons, _) = measure(by_hours(hours([1; 7], 0, 24), 1), DAY * 20);
        assert_eq!((measured, ons), (1.0, 20), "day follows day without a gap");
    }

    #[test]
    fn r5_11_office_hours_vary_by_their_jitter_and_are_missed_as_often_as_asked_for() {
        let jitter = Duration::from_mins(30);
        let absent = Fraction::clamped(0.25);
        let hours = OfficeHours { jitter, absent, ..hours([1, 1, 1, 1, 1, 0, 0], 9, 17) };
        let (mut process, end) = (by_hours(hours, 3), Instant::EPOCH + DAY * 7_000);
        let (mut ons, mut sum, mut most) = (0, 0.0_f64, 0.0_f64);
        while process.changes_at() < end {
            let at = process.changes_at();
            let is_on = process.is_on(at);
            let hour = (at - Instant::EPOCH).as_secs_f64() / 3_600.0 % 24.0;
            let off = (hour - if is_on { 9.0 } else { 17.0 }).abs();
            ons += i32::from(is_on);
            (sum, most) = (sum + off, most.max(off));
        }
        assert!(most <= 0.5 && (sum / f64::from(2 * ons) - 0.25).abs() < 0.01, "{most} {sum}");
        assert!((f64::from(ons) / 5_000.0 - 0.75).abs() < 0.02, "{ons} of 5,000 days");
        let fraction = Availability::Hours(hours).fraction().get();
        let (measured, _, _) = measure(by_hours(hours, 3), DAY * 7_000);
        assert!((measured - fraction).abs() < 0.005, "{measured} {fraction}");
    }

    #[test]
    fn r5_11_what_depends_on_several_things_is_on_while_all_are() {
        let each = [hours([1; 7], 8, 18), hours([1; 7], 12, 24)].map(|hours| by_hours(hours, 1));
        let mut all = AllOn::new(each.into_iter());
        let on: Vec<i64> =
            (0..24).filter(|hour| all.is_on(Instant::EPOCH + Duration::from_hours(*hour))).collect();
        assert_eq!(on, [12, 13, 14, 15, 16, 17]);
        assert_eq!(all.changes(), 3);
    }

    #[test]
    fn r5_11_a_recorded_trace_is_followed_and_begins_anew_at_its_end() {
        let change = |hour, on| TraceChange { at: Duration::from_hours(hour), on };
        let changes = vec![change(0, false), change(8, true), change(20, false)];
        let nightly = Trace { file: "t.csv".into(), changes, end: Some(DAY) };
        let process =
            OnOff::new(&Availability::Trace(nightly), Instant::EPOCH, Stream::named(1, &["unused"]));
        let (measured, ons, _) = measure(process.clone(), DAY * 10);
        assert_eq!((measured, ons), (0.5, 10));
        let mut process = process;
        process.is_on(Instant::EPOCH + DAY * 10 - Duration::from_secs(1));
        assert_eq!(process.changes(), 20);
    }
}
