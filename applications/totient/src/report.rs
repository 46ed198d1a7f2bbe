//! What a job gives back: a text that is the same byte for byte on every host that has done the work.

use crate::range::Range;
use crate::sieve::SEGMENT;

/// First line of an output; the number is the version of its format.
const HEADING: &str = "totient 1";

/// Numbers per row of the table.
pub const ROW: u64 = 32 * SEGMENT;

/// The result of a range: the sum of phi over it, and how it comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The range.
    pub range: Range,
    /// The sums of one row of numbers after the other; the last one may be shorter.
    pub rows: Vec<u128>,
}

impl Report {
    /// The sum over the whole range.
    pub fn total(&self) -> u128 {
        self.rows.iter().sum()
    }

    /// The output's text.
    pub fn write(&self) -> String {
        let mut text = format!("{HEADING}\nrange {} {}\n", self.range.from(), self.range.to());
        let mut from = self.range.from();
        for sum in &self.rows {
            let to = (from + ROW - 1).min(self.range.to());
            text += &format!("sum {from} {to} {sum}\n");
            from = to + 1;
        }
        text + &format!("total {}\n", self.total())
    }

    /// Reads an output; none if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix(HEADING)?.strip_prefix('\n')?.lines();
        let (from, to) = lines.next()?.strip_prefix("range ")?.split_once(' ')?;
        let range = Range::new(from.parse().ok()?, to.parse().ok()?).ok()?;
        let rows = lines
            .map_while(|line| line.strip_prefix("sum "))
            .map(|row| row.rsplit_once(' ')?.1.parse().ok())
            .collect::<Option<Vec<u128>>>()?;
        let report = Self { range, rows };
        // Whatever else it may say, an output is what we would have written.
        let is_complete = report.rows.len() as u64 == range.len().div_ceil(ROW);
        (is_complete && report.write() == text).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_reads_as_it_is_written_and_not_otherwise() {
        let report = Report { range: Range::new(5, ROW + 10).unwrap(), rows: vec![1_234, 56] };
        let text = report.write();
        assert_eq!(
            text,
            "totient 1\nrange 5 16777226\nsum 5 16777220 1234\nsum 16777221 16777226 56\ntotal 1290\n"
        );
        assert_eq!(Report::parse(&text), Some(report));
        for len in 0..text.len() {
            assert_eq!(Report::parse(&text[..len]), None, "{len}");
        }
        assert_eq!(Report::parse(&format!("{text}more\n")), None);
    }
}
