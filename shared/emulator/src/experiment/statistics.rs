//! What several seeds say together: a mean and how sure it is.
//!
//! Seeds are independent draws of the same experiment, few of them, with a spread that is not known
//! beforehand: the interval is Student's. It needs nothing but square roots, which are exact everywhere, so
//! that the same seeds give the same bytes on any machine (R5.12).

/// A mean of several values with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// How many values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The interval is the mean and this much to either side; none for a single value, which says nothing of
    /// its spread.
    pub half_width: Option<f64>,
}

impl Sample {
    /// Of values that are all finite; none of no values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half_width = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            let error = (squares / (count - 1) as f64 / count as f64).sqrt();
            student(count - 1) * error
        });
        Some(Self { count, mean, half_width })
    }

    /// The interval's ends; the mean twice for a single value.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let half = self.half_width.unwrap_or(0.0);
        (self.mean - half, self.mean + half)
    }
}

/// Student's t: 97.5 % of the distribution with so many degrees of freedom lie below it.
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    match degrees.checked_sub(1).and_then(|row| TABLE.get(row)) {
        Some(t) => *t,
        // The normal distribution's quantile and the first two terms of its expansion in 1/degrees; from 31
        // on it is right to the table's three decimals.
        None if degrees > 0 => {
            let (z, n) = (1.959_964_f64, degrees as f64);
            let cube = z * z * z;
            z + (cube + z) / (4.0 * n) + (5.0 * cube * z * z + 16.0 * cube + 3.0 * z) / (96.0 * n * n)
        }
        None => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_13_mean_and_interval_are_those_of_students_distribution() {
        // Mean 3, standard deviation sqrt(2.5), t(4) = 2.776.
        let sample = Sample::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(sample.mean, 3.0);
        assert!((sample.half_width.unwrap() - 1.963).abs() < 0.001, "{sample:?}");
        let (low, high) = sample.interval();
        assert!((low - 1.037).abs() < 0.001 && (high - 4.963).abs() < 0.001);
    }

    #[test]
    fn a_single_value_has_no_interval_and_no_value_no_mean() {
        assert_eq!(Sample::of(&[0.5]), Some(Sample { count: 1, mean: 0.5, half_width: None }));
        assert_eq!(Sample::of(&[]), None);
    }

    #[test]
    fn equal_values_are_certain() {
        assert_eq!(Sample::of(&[0.25; 7]).unwrap().half_width, Some(0.0));
    }

    #[test]
    fn t_falls_to_the_normal_quantile_without_a_step() {
        // Published values.
        for (degrees, t) in [(31, 2.040), (40, 2.021), (60, 2.000), (120, 1.980), (100_000, 1.960)] {
            assert!((student(degrees) - t).abs() < 0.000_6, "{degrees}: {}", student(degrees));
        }
        assert!((1..200).all(|degrees| student(degrees) > student(degrees + 1)));
    }
}
