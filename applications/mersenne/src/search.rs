//! The search through a range, one step at a time, so that it can stop anywhere and go on from there.

use std::fmt::Write;

use fallow_application::checkpoint::{Unusable, seal, unseal};
use fallow_application::program::Work;
use num_bigint::BigUint;

use crate::cost::test_flops;
use crate::lucas_lehmer::Test;
use crate::primes::primes_in;
use crate::range::Range;
use crate::report::{Report, digest};

/// Program and version of the checkpoint's format.
const KIND: &str = "mersenne checkpoint 1";

/// A search at some point.
#[derive(Clone, Debug)]
pub struct Search {
    range: Range,
    exponents: Vec<u32>,
    /// How many of the exponents are done; `test` is of the next.
    tested: usize,
    test: Option<Test>,
    found: Vec<u32>,
    residues: u64,
    /// What the exponents cost that are done, and all of them.
    cost_done: f64,
    cost_total: f64,
}

impl Search {
    fn from_body(range: Range, body: &str) -> Option<Self> {
        let mut lines = body.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if value("range")? != range.to_string() {
            return None;
        }
        let mut search = Self::new(range);
        search.tested = value("tested")?.parse().ok()?;
        search.residues = u64::from_str_radix(value("residues")?, 16).ok()?;
        search.found = value("found")?.split_whitespace().map(|p| p.parse().ok()).collect::<Option<_>>()?;
        let step = value("step")?.parse().ok()?;
        let s = BigUint::parse_bytes(value("s")?.as_bytes(), 16)?;
        search.test = match search.exponents.get(search.tested) {
            Some(&exponent) => Some(Test::resume(exponent, step, s)?),
            None if search.tested == search.exponents.len() => None,
            None => return None,
        };
        search.cost_done = search.exponents.iter().take(search.tested).copied().map(test_flops).sum();
        Some(search)
    }

    /// The exponent that is being tested; none at the end.
    pub fn exponent(&self) -> Option<u32> {
        self.test.as_ref().map(Test::exponent)
    }

    /// The result; none before the end.
    pub fn report(&self) -> Option<Report> {
        if self.test.is_some() {
            return None;
        }
        Some(Report {
            range: self.range,
            found: self.found.clone(),
            tested: u32::try_from(self.tested).ok()?,
            residues: self.residues,
        })
    }
}

impl Work for Search {
    const NAME: &'static str = "mersenne";
    const USAGE: &'static str = "usage: mersenne [--from A --to B]\n\
    Tests all prime exponents from A to B, or those that the file \"in\" names with \"from=A to=B\",\n\
    and writes the file \"out\". Runs under a BOINC client, or alone.";
    type Range = Range;

    fn new(range: Range) -> Self {
        let exponents = primes_in(range.from(), range.to());
        Self {
            range,
            test: exponents.first().copied().map(Test::new),
            cost_total: exponents.iter().copied().map(test_flops).sum(),
            exponents,
            tested: 0,
            found: Vec::new(),
            residues: 0,
            cost_done: 0.0,
        }
    }

    fn resume(range: Range, checkpoint: &str) -> Result<Self, Unusable> {
        let body = unseal(KIND, checkpoint)?;
        Self::from_body(range, body).ok_or(Unusable::Unfit("it is of another range, or says what cannot be"))
    }

    fn advance(&mut self) {
        let Some(test) = &mut self.test else { return };
        test.advance();
        if !test.is_done() {
            return;
        }
        let exponent = test.exponent();
        self.residues = digest(self.residues, exponent, test.residue());
        if test.is_prime() {
            self.found.push(exponent);
        }
        self.cost_done += test_flops(exponent);
        self.tested += 1;
        self.test = self.exponents.get(self.tested).copied().map(Test::new);
    }

    fn fraction_done(&self) -> f64 {
        let Some(test) = &self.test else { return 1.0 };
        let part = f64::from(test.step()) / f64::from(test.steps().max(1));
        (self.cost_done + part * test_flops(test.exponent())) / self.cost_total
    }

    fn checkpoint(&self) -> String {
        let mut body =
            format!("range {}\ntested {}\nresidues {:016x}\nfound", self.range, self.tested, self.residues);
        for exponent in &self.found {
            // Writing to a String cannot fail.
            let _ = write!(body, " {exponent}");
        }
        // "found" alone would lose its blank where there is nothing to name.
        body += if self.found.is_empty() { " \n" } else { "\n" };
        let (step, s) = self.test.as_ref().map_or((0, BigUint::ZERO), |test| (test.step(), test.s().clone()));
        let _ = write!(body, "step {step}\ns {s:x}");
        seal(KIND, &body)
    }

    fn output(&self) -> Option<String> {
        self.report().map(|report| report.write())
    }

    fn describe(range: Range) -> String {
        format!("exponents {} to {}", range.from(), range.to())
    }

    fn place(&self) -> String {
        self.exponent().map_or_else(|| "the end".to_owned(), |exponent| format!("p={exponent}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finished(mut search: Search) -> Report {
        loop {
            match search.report() {
                Some(report) => return report,
                None => search.advance(),
            }
        }
    }

    #[test]
    fn a_range_gives_its_mersenne_primes() {
        let report = finished(Search::new(Range::new(2, 700).unwrap()));
        assert_eq!(report.found, [2, 3, 5, 7, 13, 17, 19, 31, 61, 89, 107, 127, 521, 607]);
        assert_eq!(report.tested, 125);
    }

    #[test]
    fn an_output_is_the_same_on_every_host() {
        let text = finished(Search::new(Range::new(2, 130).unwrap())).write();
        assert!(text.ends_with("exponent 127\ntested 31\nresidues 68ca685c541f4465\n"), "{text}");
    }

    #[test]
    fn a_range_without_primes_is_done_at_once() {
        let search = Search::new(Range::new(24, 28).unwrap());
        assert_eq!(search.fraction_done(), 1.0);
        assert_eq!(finished(search).tested, 0);
    }

    #[test]
    fn the_fraction_rises_from_nothing_to_one() {
        let mut search = Search::new(Range::new(2, 200).unwrap());
        let mut before = 0.0;
        assert_eq!(search.fraction_done(), before);
        while search.report().is_none() {
            search.advance();
            let now = search.fraction_done();
            assert!(now >= before && now <= 1.000_001, "{before} {now}");
            before = now;
        }
        assert_eq!(before, 1.0);
    }

    #[test]
    fn a_checkpoint_of_another_range_or_with_a_wrong_number_is_not_used() {
        let range = Range::new(2, 130).unwrap();
        let checkpoint = Search::new(range).checkpoint();
        assert!(matches!(Search::resume(Range::new(2, 131).unwrap(), &checkpoint), Err(Unusable::Unfit(_))));
        let body = unseal(KIND, &checkpoint).unwrap();
        for (from, to) in [("tested 0", "tested 32"), ("step 0", "step 1"), ("s 0", "s ff")] {
            let wrong = seal(KIND, &body.replace(from, to));
            assert!(matches!(Search::resume(range, &wrong), Err(Unusable::Unfit(_))), "{to}");
        }
        assert!(Search::resume(range, "").is_err());
    }

    proptest! {
        #[test]
        fn a_resumed_search_gives_the_same_bytes(stops in prop::collection::vec(0_usize..3_000, 1..6)) {
            let range = Range::new(2, 130).unwrap();
            let mut search = Search::new(range);
            for steps in stops {
                (0..steps).for_each(|_| search.advance());
                search = Search::resume(range, &search.checkpoint()).unwrap();
            }
            prop_assert_eq!(finished(search).write(), finished(Search::new(range)).write());
        }

        #[test]
        fn no_checkpoint_harms_the_reader(body in "[a-z 0-9\\n=]{0,200}") {
            let range = Range::new(2, 130).unwrap();
            let _ = Search::resume(range, &seal(KIND, &body));
            let _ = Search::resume(range, &body);
        }
    }
}
