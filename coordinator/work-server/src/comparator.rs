//! When two jobs' output files count as the same: named comparators that a workunit chooses from.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use fallow_domain::Invalid;

/// Says whether two output files of the same open name agree.
type Compare = fn(&Path, &Path) -> io::Result<bool>;

/// The comparators there are, with what they say.
pub const COMPARATORS: [(&str, &str); 2] = [
    ("bytewise", "equal byte for byte"),
    ("numeric-lines", "equal but for numbers that differ by less than one part in a billion"),
];

/// How far two numbers may be apart, relative to the larger one.
const RELATIVE: f64 = 1e-9;
/// And absolutely, for numbers that should be 0.
const ABSOLUTE: f64 = 1e-12;
/// A longer line is compared byte for byte in pieces of this length; bounds memory.
const LINE_MAX: u64 = 1 << 20;

/// The comparator of this name.
pub(crate) fn find(name: &str) -> Result<Compare, Invalid> {
    match name {
        "bytewise" => Ok(bytewise),
        "numeric-lines" => Ok(numeric_lines),
        _ => Err(Invalid::new("comparator", name, "bytewise or numeric-lines")),
    }
}

fn bytewise(a: &Path, b: &Path) -> io::Result<bool> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (BufReader::with_capacity(1 << 16, a), BufReader::with_capacity(1 << 16, b));
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        if left.is_empty() || right.is_empty() {
            return Ok(left.is_empty() && right.is_empty());
        }
        let len = left.len().min(right.len());
        if left[..len] != right[..len] {
            return Ok(false);
        }
        a.consume(len);
        b.consume(len);
    }
}

fn numeric_lines(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (BufReader::new(File::open(a)?), BufReader::new(File::open(b)?));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        let ends = (
            a.by_ref().take(LINE_MAX).read_until(b'\n', &mut left)?,
            b.by_ref().take(LINE_MAX).read_until(b'\n', &mut right)?,
        );
        match ends {
            (0, 0) => return Ok(true),
            (0, _) | (_, 0) => return Ok(false),
            _ if !lines_agree(&left, &right) => return Ok(false),
            _ => {}
        }
    }
}

fn lines_agree(a: &[u8], b: &[u8]) -> bool {
    let words = |line: &[u8]| -> Vec<Vec<u8>> {
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let (a, b) = (words(a), words(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || numbers_agree(a, b))
}

fn numbers_agree(a: &[u8], b: &[u8]) -> bool {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<f64>().ok().filter(|n| n.is_finite());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= ABSOLUTE.max(RELATIVE * a.abs().max(b.abs())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, a: &str, b: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let (left, right) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&left, a).unwrap();
        std::fs::write(&right, b).unwrap();
        find(name).unwrap()(&left, &right).unwrap()
    }

    #[test]
    fn bytewise_means_every_byte() {
        let long = "x".repeat(200_000);
        assert!(check("bytewise", &long, &long));
        assert!(!check("bytewise", &long, &format!("{long}x")));
        assert!(!check("bytewise", "a 1\n", "a  1\n"));
        assert!(check("bytewise", "", ""));
    }

    #[test]
    fn numeric_lines_forgive_rounding_and_blanks_but_nothing_else() {
        for (a, b, agree) in [
            ("x 1.0\n", "x  1.00000000001\n", true),
            ("0\n", "1e-13\n", true),
            ("x 1.0\n", "x 1.001\n", false),
            ("x 1\n", "y 1\n", false),
            ("1\n2\n", "1\n", false),
            ("1 2\n", "1\n2\n", false),
            ("NaN\n", "NaN\n", true),
            ("NaN\n", "1\n", false),
        ] {
            assert_eq!(check("numeric-lines", a, b), agree, "{a:?} {b:?}");
        }
    }

    #[test]
    fn an_unknown_comparator_is_refused_with_the_known_ones() {
        assert!(find("fuzzy").unwrap_err().to_string().contains("numeric-lines"));
    }
}
