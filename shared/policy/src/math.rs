//! The one function of a mathematics library that the policies need, the same on every machine (R5.12).

/// `exp(-x)` for `x` of 0 or more; 0 for a very large `x`, and 1 for NaN or a negative `x`.
///
/// `x` is halved until it is small, where a Taylor polynomial is exact to the last few bits, and the result
/// is squared as often. The relative error stays below 1e-11 for every `x` under 700.
pub fn exp_minus(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return 1.0;
    }
    if x > 700.0 {
        return 0.0;
    }
    let mut halvings = 0_u32;
    let mut small = x;
    while small > 0.125 {
        small *= 0.5;
        halvings += 1;
    }
    // Horner's rule over 1 - s + s^2/2! - ...; ten terms reach 1e-17 at s = 1/8.
    let mut result = 1.0;
    for n in [10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        result = 1.0 - small / n * result;
    }
    for _ in 0..halvings {
        result *= result;
    }
    result
}

/// `exp(-x)`, and `(1 - exp(-x)) / x`, the mean of a decay that runs over `x` time constants: 1 for an `x` of
/// 0.
pub(crate) fn decay(x: f64) -> (f64, f64) {
    let left = exp_minus(x);
    (left, if x < 1e-5 { 1.0 - 0.5 * x.max(0.0) } else { (1.0 - left) / x })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_exponential_agrees_with_the_platforms() {
        for i in 0..7000 {
            let x = f64::from(i) * 0.1;
            let expected = (-x).exp();
            assert!((exp_minus(x) - expected).abs() <= 1e-11 * expected, "{x}");
        }
        assert_eq!((exp_minus(f64::NAN), exp_minus(-1.0), exp_minus(1e9)), (1.0, 1.0, 0.0));
    }

    #[test]
    fn the_mean_decay_is_smooth_near_zero() {
        let mean_decay = |x| decay(x).1;
        assert!((mean_decay(1.0e-5) - mean_decay(0.999e-5)).abs() < 1e-7);
        assert!((mean_decay(1.0) - 0.632_120_558_828_557_7).abs() < 1e-12);
    }
}
