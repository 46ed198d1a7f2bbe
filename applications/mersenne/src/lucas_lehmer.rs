//! The Lucas-Lehmer test: M = 2^p - 1 is prime exactly if s becomes 0 after p - 2 steps of s := s² - 2 mod M,
//! from s = 4.
//!
//! Reduction needs no division: 2^p is 1 modulo M, so the bits from p upwards are added to those below.

use num_bigint::BigUint;

/// One exponent's test, at some step.
#[derive(Clone, Debug)]
pub struct Test {
    exponent: u32,
    step: u32,
    s: BigUint,
    modulus: BigUint,
}

impl Test {
    /// The test of 2^`exponent` - 1 at its beginning. The exponent must be prime for the answer to mean
    /// anything.
    pub fn new(exponent: u32) -> Self {
        let modulus = (BigUint::from(1_u32) << exponent) - 1_u32;
        // The test is for odd primes. 2 has no steps to do, and 2² - 1 = 3 is prime.
        let s = if exponent <= 2 { BigUint::ZERO } else { BigUint::from(4_u32) % &modulus };
        Self { exponent, step: 0, s, modulus }
    }

    /// The same test at a later step; none if no test can stand there.
    pub fn resume(exponent: u32, step: u32, s: BigUint) -> Option<Self> {
        let test = Self::new(exponent);
        (step <= test.steps() && s < test.modulus).then_some(Self { step, s, ..test })
    }

    /// Does one step. Nothing happens after the last one.
    pub fn advance(&mut self) {
        if self.is_done() {
            return;
        }
        let mut square = &self.s * &self.s;
        while square.bits() > u64::from(self.exponent) {
            square = (&square >> self.exponent) + (square & &self.modulus);
        }
        // M itself is the other way to write 0.
        if square == self.modulus {
            square = BigUint::ZERO;
        }
        let two = BigUint::from(2_u32);
        self.s = if square < two { square + &self.modulus - two } else { square - two };
        self.step += 1;
    }

    /// The exponent.
    pub const fn exponent(&self) -> u32 {
        self.exponent
    }

    /// Steps done.
    pub const fn step(&self) -> u32 {
        self.step
    }

    /// Steps in all.
    pub const fn steps(&self) -> u32 {
        self.exponent.saturating_sub(2)
    }

    /// True after the last step.
    pub const fn is_done(&self) -> bool {
        self.step >= self.steps()
    }

    /// True if the test is done and the number is prime.
    pub fn is_prime(&self) -> bool {
        self.is_done() && self.s == BigUint::ZERO
    }

    /// The number that the steps work on, from 0 to M - 1.
    pub const fn s(&self) -> &BigUint {
        &self.s
    }

    /// The low 64 bits of s: after the last step, hard to know without having done them.
    pub fn residue(&self) -> u64 {
        self.s.iter_u64_digits().next().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primes::primes_in;

    fn done(exponent: u32) -> Test {
        let mut test = Test::new(exponent);
        while !test.is_done() {
            test.advance();
        }
        test
    }

    #[test]
    fn the_mersenne_primes_are_the_known_ones() {
        let found: Vec<u32> = primes_in(2, 1_300).into_iter().filter(|&p| done(p).is_prime()).collect();
        assert_eq!(found, [2, 3, 5, 7, 13, 17, 19, 31, 61, 89, 107, 127, 521, 607, 1_279]);
    }

    #[test]
    fn a_step_is_what_the_definition_says() {
        for exponent in [3, 5, 7, 11, 13, 31, 61] {
            let modulus = (1_u128 << exponent) - 1;
            let (mut test, mut s) = (Test::new(exponent), 4 % modulus);
            while !test.is_done() {
                test.advance();
                s = (s * s + modulus - 2) % modulus;
                assert_eq!(test.s(), &BigUint::from(s), "exponent {exponent}, step {}", test.step());
            }
            assert_eq!(u128::from(test.residue()), s);
        }
    }

    #[test]
    fn a_test_resumes_only_where_a_test_can_stand() {
        assert!(Test::resume(7, 5, BigUint::from(126_u32)).is_some());
        assert!(Test::resume(7, 6, BigUint::ZERO).is_none());
        assert!(Test::resume(7, 5, BigUint::from(127_u32)).is_none());
    }
}
