//! How slow the other side may be.
//!
//! Model: a file may take as long as it needs, provided that in every five minutes a little of it comes or
//! goes (the stock client's rule: ten bytes a second). It holds one of its project's own places meanwhile,
//! nothing else. A page or an RPC is waited for by whoever decides what comes next, so its time is bounded as
//! a whole: five minutes, and more for what has come, at the speed of a slow but honest line; an hour at the
//! most, whatever comes.

use std::time::Duration;

use tokio::time::Instant;

/// The bounds on time. The defaults are right for everybody; tests take shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the other side may say nothing (BOINC: `http_transfer_timeout`).
    pub stall: Duration,
    /// Slower than this, in bytes a second over that time, is as good as nothing (BOINC:
    /// `http_transfer_timeout_bps`).
    pub slowest: u64,
    /// A page or an RPC gets a further second for every so many bytes transferred.
    pub line: u64,
    /// The longest that a page or an RPC takes.
    pub longest_call: Duration,
    /// How long a connection that is not in use is kept for the next request. Servers keep one for a minute,
    /// or a few seconds: it is closed here first, so that none is asked over a connection that it is about to
    /// close, and an agent that has nothing to say holds no place.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(300),
            slowest: 10,
            line: 1_000,
            longest_call: Duration::from_secs(3_600),
            idle: Duration::from_secs(15),
        }
    }
}

/// What is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A page, an RPC, a question.
    Call,
    /// A file.
    File,
}

/// How far a transfer has come, and until when it may go on.
#[derive(Debug)]
pub(super) struct Pace {
    limits: Limits,
    kind: Kind,
    /// Of a call when it began, of a file when it was last fast enough.
    since: Instant,
    moved: u64,
}

impl Pace {
    pub(super) fn new(limits: Limits, kind: Kind, now: Instant) -> Self {
        Self { limits, kind, since: now, moved: 0 }
    }

    /// It is given up then, unless more has come.
    pub(super) fn until(&self) -> Instant {
        let Limits { stall, line, longest_call, .. } = self.limits;
        self.since
            + match self.kind {
                Kind::File => stall,
                Kind::Call => longest_call.min(stall + Duration::from_secs(self.moved / line)),
            }
    }

    /// Takes note of what has come or gone.
    pub(super) fn note(&mut self, now: Instant, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
        if self.kind == Kind::File && self.moved >= self.limits.slowest * self.limits.stall.as_secs() {
            *self = Self::new(self.limits, self.kind, now);
        }
    }

    /// We ourselves did not listen for so long.
    pub(super) fn pause(&mut self, time: Duration) {
        self.since += time;
    }

    /// For whoever is told that it was given up.
    pub(super) fn why(&self, now: Instant) -> String {
        match self.kind {
            Kind::File => format!("no answer, or hardly any, for {} s", self.limits.stall.as_secs()),
            Kind::Call => {
                format!("too slow: {} bytes in {} s", self.moved, now.duration_since(self.since).as_secs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(300);

    #[test]
    fn a_file_that_drips_has_no_more_time_than_one_that_stopped() {
        let start = Instant::now();
        let mut pace = Pace::new(Limits::default(), Kind::File, start);
        for second in 1..300 {
            pace.note(start + Duration::from_secs(second), 9);
        }
        assert_eq!(pace.until(), start + STALL);
        pace.note(start + Duration::from_secs(299), 3_000);
        assert_eq!(pace.until(), start + Duration::from_secs(299) + STALL);
    }

    #[test]
    fn an_rpc_that_drips_ends_after_minutes_and_one_over_a_slow_line_comes_through() {
        let start = Instant::now();
        let ended_after = |bytes_per_second: u64| {
            let mut pace = Pace::new(Limits::default(), Kind::Call, start);
            (1..100_000)
                .find(|&second| {
                    let now = start + Duration::from_secs(second);
                    let is_over = now > pace.until();
                    pace.note(now, bytes_per_second);
                    is_over
                })
                .unwrap()
        };
        assert!(ended_after(20) < 310, "{}", ended_after(20));
        // A thousand jobs, 3 MB, over 8 kbit/s.
        assert!(ended_after(1_000) > 3_000, "{}", ended_after(1_000));
        assert!(ended_after(1_000_000) <= 3_601);
    }
}
