//! Prime numbers up to a bound: a Mersenne number can only be prime if its exponent is.

/// The primes in `from..=to`, in rising order.
pub(crate) fn primes_in(from: u32, to: u32) -> Vec<u32> {
    let len = to as usize + 1;
    let mut composite = vec![false; len];
    for number in (2..len).take_while(|number| number * number < len) {
        if !composite[number] {
            (number * number..len).step_by(number).for_each(|multiple| composite[multiple] = true);
        }
    }
    (from.max(2)..=to).filter(|&number| !composite[number as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primes_are_the_known_ones() {
        assert_eq!(primes_in(0, 30), [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(primes_in(24, 28), [0_u32; 0]);
        assert_eq!(primes_in(9, 2), [0_u32; 0]);
        assert_eq!(primes_in(0, 1), [0_u32; 0]);
        // The counts of primes below powers of ten.
        assert_eq!((primes_in(2, 10_000).len(), primes_in(2, 1_000_000).len()), (1_229, 78_498));
    }
}
