//! Something that is on and off in turn: the host, or a project's server.
//!
//! An on/off process is taken as running for ever: at the beginning it is on with the probability that is its
//! fraction, and since exponential lengths have no memory, the first change is as far away as from any other
//! moment.

use fallow_domain::{Duration, Instant};

use super::random::Stream;
use crate::scenario::{Availability, Trace};

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
    Drawn { on: Duration, off: Duration, stream: Stream },
    Recorded { trace: Trace, beginning: Instant },
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
            Availability::Trace(trace) => {
                let (on, next) = trace.at(Duration::ZERO);
                let changes_at = next.map_or(Instant::FAR_FUTURE, |next| beginning + next);
                let source = Source::Recorded { trace: trace.clone(), beginning };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::TraceChange;
    use fallow_domain::Fraction;

    const DAY: Duration = Duration::from_hours(24);

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
