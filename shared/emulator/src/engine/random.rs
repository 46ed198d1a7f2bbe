//! Random numbers that are the same on every machine, in a stream of its own for each thing that draws
//! (R5.12).
//!
//! A stream begins at a hash of the run's seed and the *name* of what draws. So a project that is added, left
//! out or put elsewhere in the list reshuffles nobody else's numbers, and two policies meet the very same
//! host and jobs.
//!
//! The generator is SplitMix64: a counter and a mixing function, in whole numbers. Exponential and normal
//! draws need a logarithm and a square root. The root is exact by the rules of floating-point arithmetic; the
//! logarithm of a platform's library is not, so there is one here.

use fallow_domain::Duration;
use fallow_policy::math::exp_minus;

use crate::scenario::TrueFlops;

/// The golden ratio as a fraction of 2^64: the step of SplitMix64's counter.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    state: u64,
    /// A normal draw left over from the last pair.
    spare: Option<f64>,
}

impl Stream {
    /// The stream of what these words name, together: such as a project's name and what is drawn for it.
    pub(crate) fn named(seed: u64, words: &[&str]) -> Self {
        // FNV-1a over the words, each closed by a byte that no text contains.
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in words.iter().flat_map(|word| word.bytes().chain([0xFF])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        Self { state: mix(mix(seed.wrapping_add(STEP)) ^ hash), spare: None }
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Evenly from 0 to 1, never 0.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds exactly.
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed length of this mean, at least a microsecond.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-ln(self.unit())).max(Duration::from_micros(1))
    }

    /// Normal with mean 0 and deviation 1, by Marsaglia's polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }

    /// A size above zero. Normal ones that are not are drawn again (R5.11).
    pub(crate) fn size(&mut self, sizes: &TrueFlops) -> f64 {
        let TrueFlops { mean, deviation, log_deviation } = *sizes;
        if log_deviation > 0.0 {
            // The mean of exp(s N) is exp(s^2 / 2), for a normal N.
            return mean.get() * exp(log_deviation * (self.normal() - 0.5 * log_deviation));
        }
        if deviation.get() <= 0.0 {
            return mean.get();
        }
        loop {
            let size = mean.get() + deviation.get() * self.normal();
            if size > 0.0 && size.is_finite() {
                return size;
            }
        }
    }
}

/// SplitMix64's mixing function: every bit of the result depends on every bit of `z`.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The natural logarithm of a finite number above zero that is not subnormal.
///
/// x is m times a power of two, with m near 1; ln m = 2 artanh((m - 1) / (m + 1)), whose series is short
/// there.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7FF) as i64 - 1023;
    let mut m = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) | 0x3FF0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    // |s| is below 0.172, so the twelfth term is below the last bit.
    let mut series = 0.0;
    for odd in (0_u32..12).rev() {
        series = series * square + 1.0 / f64::from(2 * odd + 1);
    }
    2.0 * s * series + exponent as f64 * std::f64::consts::LN_2
}

/// The exponential function, for an `x` from -700 to 700; the nearest of these for any other.
fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    if x < 0.0 { exp_minus(-x) } else { 1.0 / exp_minus(x) }
}

#[cfg(test)]
mod tests {
    use fallow_domain::Flops;

    use super::*;

    #[test]
    fn our_exponential_agrees_with_the_platforms_on_both_sides_of_zero() {
        for i in -600_i32..600 {
            let x = f64::from(i) * 0.1;
            assert!((exp(x) - x.exp()).abs() <= 1e-10 * x.exp(), "{x}");
        }
    }

    #[test]
    fn r5_11_log_normal_sizes_have_the_mean_and_the_spread_that_were_asked_for() {
        let sizes = TrueFlops { log_deviation: 0.5, ..TrueFlops::all(Flops::new(1e13).unwrap()) };
        let mut stream = Stream::named(1, &["sizes"]);
        let drawn: Vec<f64> = (0..200_000).map(|_| stream.size(&sizes)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / drawn.len() as f64;
        let logs = || drawn.iter().map(|size| size.ln());
        let log_mean = mean(&mut logs());
        let log_deviation = mean(&mut logs().map(|log| (log - log_mean).powi(2))).sqrt();
        assert!((mean(&mut drawn.iter().copied()) / 1e13 - 1.0).abs() < 0.005);
        assert!((log_deviation - 0.5).abs() < 0.005, "{log_deviation}");
    }

    #[test]
    fn our_logarithm_agrees_with_the_platforms() {
        for i in 1..200_000_u32 {
            let x = f64::from(i) * 0.000_37;
            assert!((ln(x) - x.ln()).abs() <= 4e-15 * x.ln().abs().max(0.01), "{x}");
        }
        assert_eq!(ln(1.0), 0.0);
        assert!((ln(1e-300) + 690.775_527_898_213_7).abs() < 1e-9);
    }

    #[test]
    fn r5_12_streams_are_the_same_everywhere_and_each_name_has_another() {
        // These numbers must never change: recorded results would.
        let mut stream = Stream::named(1, &["host", "availability"]);
        let first: Vec<u64> = (0..2).map(|_| stream.bits()).collect();
        assert_eq!(first, FIRST);
        let of = |seed, words: &[&str]| Stream::named(seed, words).bits();
        assert_ne!(of(1, &["p1"]), of(2, &["p1"]));
        assert_ne!(of(1, &["p1"]), of(1, &["p2"]));
        assert_ne!(of(1, &["p1", "x"]), of(1, &["p1x"]));
    }
    const FIRST: [u64; 2] = [8_200_089_897_448_792_591, 15_018_706_205_665_455_252];

    #[test]
    fn r5_11_draws_have_the_mean_and_the_spread_that_were_asked_for() {
        let mut stream = Stream::named(7, &["test"]);
        let n = 200_000;
        let mean = Duration::from_secs(1000);
        let lengths: Vec<f64> = (0..n).map(|_| stream.exponential(mean).as_secs_f64()).collect();
        let average = lengths.iter().sum::<f64>() / f64::from(n);
        assert!((average - 1000.0).abs() < 10.0, "{average}");
        // A part of 1/e is longer than the mean.
        let longer = lengths.iter().filter(|length| **length > 1000.0).count() as f64 / f64::from(n);
        assert!((longer - 0.367_879).abs() < 0.005, "{longer}");
        let normal: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
        let average = normal.iter().sum::<f64>() / f64::from(n);
        let variance = normal.iter().map(|x| (x - average) * (x - average)).sum::<f64>() / f64::from(n);
        assert!(average.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{average} {variance}");
    }

    #[test]
    fn r5_11_sizes_of_zero_or_less_are_drawn_again() {
        let (mean, wide) = (Flops::new(1e9).unwrap(), Flops::new(1e12).unwrap());
        let mut stream = Stream::named(3, &["sizes"]);
        assert!((0..10_000).all(|_| stream.size(&TrueFlops::normal(mean, wide)) > 0.0));
        let before = stream.bits();
        let mut again = stream.clone();
        assert_eq!(stream.size(&TrueFlops::all(mean)), 1e9);
        assert_eq!((stream.bits(), before), (again.bits(), before), "equal sizes draw nothing");
    }
}
