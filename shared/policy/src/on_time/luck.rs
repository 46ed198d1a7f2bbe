//! How much of the on-time that habits make one expect there really is, in windows of some lengths.

use serde::{Deserialize, Serialize};

use super::Sureness;
use crate::math::exp_minus;

/// Lengths of windows, in half hours: up to three weeks, each a third longer than the one before.
pub(super) const LENGTHS: [usize; 23] =
    [1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 114, 152, 202, 270, 360, 480, 640, 850, 1_008];
/// The longest of them.
pub(super) const SLOTS_MAX: usize = LENGTHS[LENGTHS.len() - 1];

/// Parts of what was expected, in steps of this size; the last bin holds all that is more.
const STEP: f64 = 0.05;
const BINS: usize = 48;
/// Windows fade by a factor e in so many half hours: a month.
const MEMORY: f64 = 30.0 * 48.0;
/// A guess counts as much as so many windows that do not overlap.
const GUESS_WEIGHT: f64 = 0.5;

impl Sureness {
    /// The part of windows that had less.
    fn less(self) -> f64 {
        match self {
            Self::Sure => 0.05,
            Self::Even => 0.5,
            Self::Possible => 0.7,
            Self::Hope => 0.97,
        }
    }

    /// What is guessed of a host that was not seen for long.
    fn guess(self) -> f64 {
        match self {
            Self::Sure => 0.8,
            Self::Even => 0.95,
            Self::Possible => 1.0,
            Self::Hope => 1.2,
        }
    }
}

/// Windows of one length, by the part of the expected on-time that they had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Histogram {
    bins: Vec<f32>,
    sum: f64,
    /// What the next window counts: more than the last, so that those before count for less.
    weight: f64,
}

impl Histogram {
    fn learn(&mut self, part: f64) {
        if self.bins.is_empty() {
            (self.bins, self.sum, self.weight) = (vec![0.0; BINS], 0.0, 1.0);
        }
        let bin = ((part / STEP) as usize).min(BINS - 1);
        if let Some(bin) = self.bins.get_mut(bin) {
            *bin += self.weight as f32;
        }
        self.sum += self.weight;
        self.weight /= exp_minus(1.0 / MEMORY);
        if self.weight > 1e6 {
            let scale = 1.0 / self.weight;
            self.bins.iter_mut().for_each(|bin| *bin *= scale as f32);
            self.sum = self.bins.iter().map(|bin| f64::from(*bin)).sum();
            self.weight = 1.0;
        }
    }

    fn is_sound(&self) -> bool {
        let are_counted = self.bins.is_empty() || self.bins.len() == BINS;
        let mut numbers = self.bins.iter().map(|bin| f64::from(*bin)).chain([self.sum, self.weight]);
        are_counted && numbers.all(|number| (0.0..=1e12).contains(&number))
    }

    /// How many windows there are, faded.
    fn windows(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    /// The part that so many of them had less than.
    fn quantile(&self, less: f64) -> f64 {
        let mut left = less * self.sum;
        for (place, bin) in self.bins.iter().enumerate() {
            let bin = f64::from(*bin);
            if bin > 0.0 && left <= bin {
                return (place as f64 + left / bin) * STEP;
            }
            left -= bin;
        }
        BINS as f64 * STEP
    }
}

/// The histograms of all lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Luck(Vec<Histogram>);

impl Luck {
    pub(super) fn is_sound(&self) -> bool {
        (self.0.is_empty() || self.0.len() == LENGTHS.len()) && self.0.iter().all(Histogram::is_sound)
    }

    /// Takes in a window of the length at a place of [`LENGTHS`].
    pub(super) fn learn(&mut self, place: usize, on_secs: f64, expected_secs: f64) {
        if self.0.len() < LENGTHS.len() {
            self.0.resize(LENGTHS.len(), Histogram::default());
        }
        if let Some(histogram) = self.0.get_mut(place) {
            histogram.learn(on_secs / expected_secs.max(1.0));
        }
    }

    /// The part of the expected on-time that a window of so many half hours has, as surely as is asked for.
    pub(super) fn quantile(&self, slots: f64, sureness: Sureness) -> f64 {
        let above = LENGTHS.iter().position(|length| *length as f64 >= slots);
        let above = above.unwrap_or(LENGTHS.len() - 1);
        let below = above.saturating_sub(1);
        let (low, high) = (LENGTHS[below] as f64, LENGTHS[above] as f64);
        let part = if high > low { ((slots - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
        let (at_low, at_high) = (self.of_length(below, sureness), self.of_length(above, sureness));
        at_low + (at_high - at_low) * part
    }

    fn of_length(&self, place: usize, sureness: Sureness) -> f64 {
        let Some(histogram) = self.0.get(place) else { return sureness.guess() };
        // Windows that overlap tell the same story.
        let windows = histogram.windows() / LENGTHS[place] as f64;
        let seen = if windows > 0.0 { histogram.quantile(sureness.less()) } else { 0.0 };
        (windows * seen + GUESS_WEIGHT * sureness.guess()) / (windows + GUESS_WEIGHT)
    }
}
