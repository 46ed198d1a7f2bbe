//! Round numbers along an axis.

/// Round values from `low` to `high`, at most `most` of them, with the labels they need.
pub(crate) fn linear(low: f64, high: f64, most: usize) -> Vec<(f64, String)> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return vec![(low, label(low, 1.0))];
    }
    let mut step = 1e-9;
    // Twelve decades around 1 are enough for every axis here; the bound is there for what is not.
    'search: for decade in -6..=12 {
        for factor in [1.0, 2.0, 5.0] {
            step = factor * power_of_ten(decade);
            if span / step < most.max(2) as f64 {
                break 'search;
            }
        }
    }
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|n| (n as f64 * step, label(n as f64 * step, step))).collect()
}

/// Decades from `low` to `high`, with what lies between them unlabelled.
pub(crate) fn logarithmic(low: f64, high: f64) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    for decade in -6..=12 {
        for factor in 1..10_u32 {
            let value = f64::from(factor) * power_of_ten(decade);
            if value >= low * (1.0 - 1e-9) && value <= high * (1.0 + 1e-9) {
                let name = if factor == 1 { label(value, value) } else { String::new() };
                ticks.push((value, name));
            }
        }
    }
    ticks
}

/// The top of an axis of fractions that begins at 0: the least round one that has room for all.
pub(crate) fn top(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    [0.1, 0.2, 0.5].into_iter().find(|top| most <= *top).unwrap_or(if most <= 1.0 { 1.0 } else { most })
}

fn power_of_ten(decade: i32) -> f64 {
    (0..decade.unsigned_abs()).fold(1.0, |power, _| if decade < 0 { power / 10.0 } else { power * 10.0 })
}

/// With as many decimals as the step needs.
fn label(value: f64, step: f64) -> String {
    let decimals = (0..6).find(|decimals| {
        let scaled = step * power_of_ten(*decimals);
        (scaled - scaled.round()).abs() < 1e-6 && scaled.round() >= 1.0
    });
    format!("{:.*}", decimals.unwrap_or(6) as usize, value + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<(f64, String)>) -> Vec<String> {
        ticks.into_iter().map(|(_, label)| label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(labels(linear(1.0, 20.0, 11)), ["2", "4", "6", "8", "10", "12", "14", "16", "18", "20"]);
        assert_eq!(labels(linear(0.0, 0.5, 6)), ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(labels(linear(1.0, 60.0, 8)), ["10", "20", "30", "40", "50", "60"]);
        assert_eq!(labels(linear(3.0, 3.0, 8)), ["3"]);
        assert_eq!(labels(logarithmic(1.0, 1000.0)), ["1", "10", "100", "1000"]);
    }

    #[test]
    fn an_axis_of_fractions_ends_at_a_round_one() {
        assert_eq!(top([0.03, 0.0].into_iter()), 0.1);
        assert_eq!(top([0.3].into_iter()), 0.5);
        assert_eq!(top([0.51].into_iter()), 1.0);
    }
}
