//! What a job gives back: a text that is the same byte for byte on every host that has done the work.

use crate::range::Range;

/// First line of an output; the number is the version of its format.
const HEADING: &str = "mersenne 1";

/// The result of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The range.
    pub range: Range,
    /// The exponents of Mersenne primes in it, in rising order.
    pub found: Vec<u32>,
    /// How many exponents were tested: the primes in the range.
    pub tested: u32,
    /// A digest of the last residue of each test. It costs the whole work to know it, so two hosts that agree
    /// on it have both done it.
    pub residues: u64,
}

impl Report {
    /// The output's text.
    pub fn write(&self) -> String {
        let mut text = format!("{HEADING}\nrange {} {}\n", self.range.from(), self.range.to());
        for exponent in &self.found {
            text += &format!("exponent {exponent}\n");
        }
        text + &format!("tested {}\nresidues {:016x}\n", self.tested, self.residues)
    }

    /// Reads an output; none if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix(HEADING)?.strip_prefix('\n')?.lines();
        let (from, to) = lines.next()?.strip_prefix("range ")?.split_once(' ')?;
        let range = Range::new(from.parse().ok()?, to.parse().ok()?).ok()?;
        let mut found = Vec::new();
        let tested = loop {
            let line = lines.next()?;
            match line.strip_prefix("exponent ") {
                Some(exponent) => found.push(exponent.parse().ok()?),
                None => break line.strip_prefix("tested ")?.parse().ok()?,
            }
        };
        let residues = u64::from_str_radix(lines.next()?.strip_prefix("residues ")?, 16).ok()?;
        let report = Self { range, found, tested, residues };
        // Whatever else it may say, an output is what we would have written.
        (report.write() == text).then_some(report)
    }
}

/// The digest after one more test: each step mixes all bits so far with the new ones, so neither order nor
/// any single residue can be swapped.
pub(crate) const fn digest(before: u64, exponent: u32, residue: u64) -> u64 {
    let mixed = (before.rotate_left(17) ^ residue).wrapping_add(exponent as u64);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_reads_as_it_is_written_and_not_otherwise() {
        let report =
            Report { range: Range::new(2, 20).unwrap(), found: vec![2, 3, 5], tested: 8, residues: 0xabc };
        let text = report.write();
        assert_eq!(
            text,
            "mersenne 1\nrange 2 20\nexponent 2\nexponent 3\nexponent 5\ntested 8\nresidues 0000000000000abc\n"
        );
        assert_eq!(Report::parse(&text), Some(report));
        for len in 0..text.len() {
            assert_eq!(Report::parse(&text[..len]), None, "{len}");
        }
        assert_eq!(Report::parse(&format!("{text}more\n")), None);
        assert_eq!(Report::parse(&text.replace("abc", "ABC")), None);
    }
}
