//! What the system does not give for a layer: whether it refuses it, or is short of something for a moment.

use std::io;
use std::time::{Duration, Instant};

/// A shortage that is met so long after it was met first, and was not over in between, lasts. Jobs that start
/// together meet it together, and a job that could not be started waits for a minute: it is met for the
/// second time then.
const LASTS: Duration = Duration::from_secs(30);
/// One that was not met for so long was over, also where nothing was wanted in between.
const OVER: Duration = Duration::from_mins(5);

/// Whether the system does not give what it said this to. What it is short of at a moment, such as
/// descriptors and memory, it mostly has for the next one.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let passing = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR];
    !error.raw_os_error().is_some_and(|number| passing.contains(&number))
}

/// Since when the system is short of something for a layer, if it is.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// When it was met first, and last.
    met: Option<(Instant, Instant)>,
}

impl Shortage {
    /// Something was not given for this reason. Whether it is to be done without for a while: it is refused,
    /// or the shortage lasts. Else no job would ever start.
    pub(crate) fn is_reason(&mut self, error: &io::Error, now: Instant) -> bool {
        let known = self.met.filter(|(_, last)| now.saturating_duration_since(*last) < OVER);
        let since = known.map_or(now, |(first, _)| first);
        self.met = Some((since, now));
        is_refusal(error) || now.saturating_duration_since(since) >= LASTS
    }

    /// Something was given.
    pub(crate) const fn is_over(&mut self) {
        self.met = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_moments_shortage_is_no_reason_to_go_without_and_one_that_lasts_is() {
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        let short = io::Error::from_raw_os_error(libc::ENOMEM);
        let mut shortage = Shortage::default();
        // Many at once, as at the start of an agent.
        assert!([0, 0, 0, 1, 2].iter().all(|&secs| !shortage.is_reason(&short, after(secs))));
        assert!(shortage.is_reason(&short, after(62)), "the same job, a minute later");
        shortage.is_over();
        assert!(!shortage.is_reason(&short, after(70)));
        assert!(!shortage.is_reason(&short, after(3_670)), "another one, an hour later");
        assert!(shortage.is_reason(&short, after(3_732)));
        // What is refused is refused at once.
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        assert!(shortage.is_reason(&refused, after(3_733)));
    }
}
