//! The summation over a range, one segment at a time, so that it can stop between two and go on from there.

use std::fmt::Write;

use fallow_application::checkpoint::{Unusable, seal, unseal};
use fallow_application::program::Work;

use crate::range::Range;
use crate::report::{ROW, Report};
use crate::sieve::{SEGMENT, Sieve};

/// Program and version of the checkpoint's format.
const KIND: &str = "totient checkpoint 1";

/// A summation at some point.
#[derive(Clone, Debug)]
pub struct Summation {
    range: Range,
    sieve: Sieve,
    /// The numbers that are behind, from the first on.
    done: u64,
    /// The rows so far; the last one may be incomplete.
    rows: Vec<u128>,
}

impl Summation {
    /// The next number.
    pub const fn next(&self) -> u64 {
        self.range.from() + self.done
    }

    /// The result; none before the end.
    pub fn report(&self) -> Option<Report> {
        (self.done == self.range.len()).then(|| Report { range: self.range, rows: self.rows.clone() })
    }
}

impl Work for Summation {
    const NAME: &'static str = "totient";
    const USAGE: &'static str = "usage: totient [--from A --to B]\n\
    Sums phi over the numbers from A to B, or those that the file \"in\" names with \"from=A to=B\",\n\
    and writes the file \"out\". Runs under a BOINC client, or alone.";
    type Range = Range;

    fn new(range: Range) -> Self {
        Self { range, sieve: Sieve::new(range.to()), done: 0, rows: Vec::new() }
    }

    fn resume(range: Range, checkpoint: &str) -> Result<Self, Unusable> {
        let body = unseal(KIND, checkpoint)?;
        let (done, rows) =
            read(range, body).ok_or(Unusable::Unfit("it is of another range, or says what cannot be"))?;
        Ok(Self { done, rows, ..Self::new(range) })
    }

    fn advance(&mut self) {
        let len = SEGMENT.min(self.range.len() - self.done);
        if len == 0 {
            return;
        }
        let sum = self.sieve.sum(self.range.from() + self.done, len);
        // A row is a whole number of segments.
        match self.rows.last_mut() {
            Some(row) if !self.done.is_multiple_of(ROW) => *row += sum,
            _ => self.rows.push(sum),
        }
        self.done += len;
    }

    fn fraction_done(&self) -> f64 {
        // Numbers within one range cost the same.
        self.done as f64 / self.range.len() as f64
    }

    fn checkpoint(&self) -> String {
        let mut body = format!("range {}\ndone {}", self.range, self.done);
        for row in &self.rows {
            // Writing to a String cannot fail.
            let _ = write!(body, "\nrow {row}");
        }
        seal(KIND, &body)
    }

    fn output(&self) -> Option<String> {
        self.report().map(|report| report.write())
    }

    fn describe(range: Range) -> String {
        format!("numbers {} to {}", range.from(), range.to())
    }

    fn place(&self) -> String {
        format!("n={}", self.next())
    }
}

/// The numbers done and the rows that a checkpoint names.
fn read(range: Range, body: &str) -> Option<(u64, Vec<u128>)> {
    let mut lines = body.lines();
    let is_same = lines.next()?.strip_prefix("range ")? == range.to_string();
    let done: u64 = lines.next()?.strip_prefix("done ")?.parse().ok()?;
    let rows: Vec<u128> = lines.map(|line| line.strip_prefix("row ")?.parse().ok()).collect::<Option<_>>()?;
    let is_between_segments = done == range.len() || (done < range.len() && done.is_multiple_of(SEGMENT));
    (is_same && is_between_segments && rows.len() as u64 == done.div_ceil(ROW)).then_some((done, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finished(mut summation: Summation) -> Report {
        loop {
            match summation.report() {
                Some(report) => return report,
                None => summation.advance(),
            }
        }
    }

    #[test]
    fn the_sum_up_to_a_million_is_the_known_one() {
        let report = finished(Summation::new(Range::new(1, 1_000_000).unwrap()));
        assert_eq!(report.total(), 303_963_552_392);
    }

    #[test]
    fn a_checkpoint_of_another_range_or_with_a_wrong_number_is_not_used() {
        let range = Range::new(1, 2_000_000).unwrap();
        let mut summation = Summation::new(range);
        summation.advance();
        let checkpoint = summation.checkpoint();
        let other = Range::new(1, 2_000_001).unwrap();
        assert!(matches!(Summation::resume(other, &checkpoint), Err(Unusable::Unfit(_))));
        let body = unseal(KIND, &checkpoint).unwrap();
        for (from, to) in [("done 524288", "done 524289"), ("done 524288", "done 20000000"), ("row", "rho")] {
            let wrong = seal(KIND, &body.replace(from, to));
            assert!(matches!(Summation::resume(range, &wrong), Err(Unusable::Unfit(_))), "{to}");
        }
        assert!(Summation::resume(range, "").is_err());
    }

    #[test]
    fn rows_are_sums_of_their_own_numbers() {
        // Across the end of a row, in which the sieve does most of the work of a test in this file.
        let (from, to) = (1_000_000, 1_000_000 + ROW + SEGMENT / 2);
        let report = finished(Summation::new(Range::new(from, to).unwrap()));
        assert_eq!(report.rows.len(), 2);
        let second = finished(Summation::new(Range::new(from + ROW, to).unwrap()));
        assert_eq!(report.rows[1], second.total());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn a_resumed_summation_gives_the_same_bytes(from in 1_u64..1_000_000, len in 1_u64..1_500_000, stop in 0..4) {
            let range = Range::new(from, from + len).unwrap();
            let mut summation = Summation::new(range);
            (0..stop).for_each(|_| summation.advance());
            let resumed = Summation::resume(range, &summation.checkpoint()).unwrap();
            prop_assert_eq!(finished(resumed).write(), finished(Summation::new(range)).write());
        }
    }

    proptest! {
        #[test]
        fn no_checkpoint_harms_the_reader(body in "[a-z 0-9\\n=]{0,200}") {
            let range = Range::new(2, 130).unwrap();
            let _ = Summation::resume(range, &seal(KIND, &body));
            let _ = Summation::resume(range, &body);
        }
    }
}
