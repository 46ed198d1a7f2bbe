//! Euler's phi of a segment of numbers at once.
//!
//! phi(n) is the product over the prime powers p^k that divide n exactly of (p - 1)·p^(k-1). The sieve
//! multiplies that together for all primes up to the square root, along with the part of n that they make up;
//! what is left of n is 1 or one large prime. So a number takes one division, and the rest is multiplication.

/// Numbers per segment: two tables of 4 MiB. Some milliseconds of work, so that whoever turns the sieve can
/// listen in between.
pub const SEGMENT: u64 = 1 << 19;

/// The primes that are needed, and room for a segment.
#[derive(Clone, Debug)]
pub struct Sieve {
    primes: Vec<u64>,
    /// The part of each number that its small primes make up.
    known: Vec<u64>,
    /// phi of that part.
    phi: Vec<u64>,
}

impl Sieve {
    /// A sieve for numbers up to `to`.
    pub fn new(to: u64) -> Self {
        let room = SEGMENT as usize;
        Self { primes: primes_up_to(to.isqrt()), known: vec![1; room], phi: vec![1; room] }
    }

    /// The sum of phi over `from..from + len`, where `len` is [`SEGMENT`] at most, and the last number is
    /// within what the sieve was made for.
    pub fn sum(&mut self, from: u64, len: u64) -> u128 {
        let len = len.min(SEGMENT);
        let (known, phi) = (&mut self.known[..len as usize], &mut self.phi[..len as usize]);
        known.fill(1);
        phi.fill(1);
        let last = from + len - 1;
        for &prime in self.primes.iter().take_while(|&&prime| prime * prime <= last) {
            let (mut power, mut factor) = (prime, prime - 1);
            // Each power of the prime adds one factor to its multiples: p - 1 the first, p every other.
            loop {
                let first = (power - from % power) % power;
                for at in (first..len).step_by(power as usize) {
                    known[at as usize] *= prime;
                    phi[at as usize] *= factor;
                }
                if power > last / prime {
                    break;
                }
                power *= prime;
                factor = prime;
            }
        }
        (from..)
            .zip(known)
            .zip(phi)
            .map(|((number, known), phi)| u128::from(*phi * large(number, *known)))
            .sum()
    }
}

/// phi of what is left of a number: 1, or a prime.
const fn large(number: u64, known: u64) -> u64 {
    if known == number { 1 } else { number / known - 1 }
}

fn primes_up_to(to: u64) -> Vec<u64> {
    let len = to as usize + 1;
    let mut composite = vec![false; len];
    for number in (2..len).take_while(|number| number * number < len) {
        if !composite[number] {
            (number * number..len).step_by(number).for_each(|multiple| composite[multiple] = true);
        }
    }
    (2..len).filter(|&number| !composite[number]).map(|number| number as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn phi(number: u64) -> u128 {
        Sieve::new(number).sum(number, 1)
    }

    /// By the definition.
    fn coprime_below(number: u64) -> u128 {
        const fn gcd(a: u64, b: u64) -> u64 {
            if b == 0 { a } else { gcd(b, a % b) }
        }
        (1..=number).filter(|&other| gcd(number, other) == 1).count() as u128
    }

    #[test]
    fn phi_counts_the_coprime_numbers() {
        for number in 1..500 {
            assert_eq!(phi(number), coprime_below(number), "{number}");
        }
    }

    #[test]
    fn sums_are_the_known_ones() {
        for (to, sum) in [(1, 1), (10, 32), (100, 3_044), (1_000, 304_192), (100_000, 3_039_650_754)] {
            assert_eq!(Sieve::new(to).sum(1, to), sum);
        }
    }

    #[test]
    fn large_primes_and_powers_are_right() {
        assert_eq!(phi(999_999_999_989), 999_999_999_988);
        assert_eq!(phi(1 << 40), 1 << 39);
        assert_eq!(phi(10_000_000_000_000), 4_000_000_000_000);
        assert_eq!(phi(999_983 * 999_983), 999_983 * 999_982);
        assert_eq!(phi(999_983 * 1_000_003), 999_982 * 1_000_002);
    }

    proptest! {
        // Each makes a sieve of some hundred thousand primes.
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_range_sums_to_its_parts(from in 1_u64..10_u64.pow(13) - 5_000, len in 2_u64..2_000, cut in 1_u64..2_000) {
            let cut = 1 + cut % (len - 1);
            let mut sieve = Sieve::new(from + len);
            let parts = sieve.sum(from, cut) + sieve.sum(from + cut, len - cut);
            prop_assert_eq!(sieve.sum(from, len), parts);
        }
    }
}
