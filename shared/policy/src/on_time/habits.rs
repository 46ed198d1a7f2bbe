//! At which hours of the week a host is on.

use std::sync::OnceLock;

use fallow_domain::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::math::exp_minus;

const HOURS_OF_DAY: usize = 24;
const HOURS_OF_WEEK: usize = 7 * HOURS_OF_DAY;
const HOUR_SECS: f64 = 3_600.0;

/// Hours of the week fade by a factor e in six weeks, hours of the day and the share of all time in two.
const WEEK_MEMORY: f64 = 6.0;
const DAY_MEMORY: f64 = 14.0;
const ALL_MEMORY: f64 = 14.0 * HOURS_OF_DAY as f64;

/// As many hours of the broader habit count beside what was seen of an hour of the week, or of the day.
const BROADER: f64 = 0.5;
/// Errors of what habits foretell fade by a factor e in so many hours: four weeks.
const ERROR_MEMORY: f64 = 4.0 * HOURS_OF_WEEK as f64;
/// A finer habit is followed only where it foretells better by so much.
const BETTER: f64 = 0.9;
/// A host of which nothing was seen counts as on, as if that had been seen for so many hours.
const PRIOR: f64 = 1.0;
/// No hour is taken to be off for certain.
const LEAST: f64 = 0.02;

/// Hours seen and hours on, the old ones faded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f32, f32)", into = "(f32, f32)")]
struct Cell {
    seen: f32,
    on: f32,
}

impl From<(f32, f32)> for Cell {
    fn from((seen, on): (f32, f32)) -> Self {
        Self { seen, on }
    }
}

impl From<Cell> for (f32, f32) {
    fn from(cell: Cell) -> Self {
        (cell.seen, cell.on)
    }
}

impl Cell {
    /// Takes in a part of an hour. `memory` is in hours seen.
    fn learn(&mut self, hours: f64, on: f64, memory: f64) {
        let keep = exp_minus(hours / memory);
        self.seen = (f64::from(self.seen) * keep + hours) as f32;
        self.on = (f64::from(self.on) * keep + hours * on) as f32;
    }

    /// The share on, with `weight` hours of a broader share.
    fn share(&self, broader: f64, weight: f64) -> f64 {
        (f64::from(self.on) + weight * broader) / (f64::from(self.seen) + weight)
    }
}

/// The share of time that a host is on, by the hour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Habits {
    all: Cell,
    day: Vec<Cell>,
    week: Vec<Cell>,
    /// Squared errors of what each of them foretold, the old ones faded: all time, hours of the day, hours of
    /// the week.
    errors: [f64; 3],
    /// What is expected of each hour, once somebody has asked since it was learned last.
    #[serde(skip)]
    expected: OnceLock<Expected>,
}

/// What was worked out already makes no difference.
impl PartialEq for Habits {
    fn eq(&self, other: &Self) -> bool {
        let learned = |of: &Self| (of.all, of.errors);
        learned(self) == learned(other) && self.day == other.day && self.week == other.week
    }
}

impl Default for Habits {
    fn default() -> Self {
        let cells = |count| vec![Cell::default(); count];
        Self {
            all: Cell::default(),
            day: cells(HOURS_OF_DAY),
            week: cells(HOURS_OF_WEEK),
            errors: [0.0; 3],
            expected: OnceLock::new(),
        }
    }
}

impl Habits {
    /// Takes in half an hour, counted from the epoch, and the part of it that the host was on.
    pub(super) fn learn(&mut self, slot: i64, on: f64) {
        let hour = slot.div_euclid(2).rem_euclid(HOURS_OF_WEEK as i64) as usize;
        let keep = exp_minus(0.5 / ERROR_MEMORY);
        let foretold = self.shares(hour);
        for (error, foretold) in self.errors.iter_mut().zip(foretold) {
            *error = *error * keep + (on - foretold) * (on - foretold);
        }
        self.all.learn(0.5, on, ALL_MEMORY);
        if let Some(cell) = self.day.get_mut(hour % HOURS_OF_DAY) {
            cell.learn(0.5, on, DAY_MEMORY);
        }
        if let Some(cell) = self.week.get_mut(hour) {
            cell.learn(0.5, on, WEEK_MEMORY);
        }
        self.expected = OnceLock::new();
    }

    pub(super) fn is_sound(&self) -> bool {
        let is_sound =
            |cell: &Cell| (0.0..=1e9).contains(&cell.seen) && cell.on >= 0.0 && cell.on <= cell.seen + 1.0;
        let are_counted = self.day.len() == HOURS_OF_DAY && self.week.len() == HOURS_OF_WEEK;
        let mut all = [&self.all].into_iter().chain(&self.day).chain(&self.week);
        are_counted && all.all(is_sound) && self.errors.iter().all(|error| error.is_finite())
    }

    /// Of all time.
    pub(super) fn share(&self) -> f64 {
        self.all.share(1.0, PRIOR)
    }

    /// What is expected of each hour of the week.
    pub(super) fn expected_by_hour(&self) -> &Expected {
        self.expected.get_or_init(|| self.expect())
    }

    fn expect(&self) -> Expected {
        let habit = self.best();
        let mut before = [0.0; HOURS_OF_WEEK + 1];
        for hour in 0..HOURS_OF_WEEK {
            let share = self.shares(hour)[habit];
            before[hour + 1] = before[hour] + share.max(LEAST) * HOUR_SECS;
        }
        Expected { before }
    }

    /// The share on in an hour of the week, by each habit: of all time, of the hour of the day, of the hour
    /// of the week.
    fn shares(&self, hour: usize) -> [f64; 3] {
        let cell = |cells: &[Cell], place: usize| cells.get(place).copied().unwrap_or_default();
        let all = self.share();
        let of_day = cell(&self.day, hour % HOURS_OF_DAY).share(all, BROADER);
        [all, of_day, cell(&self.week, hour).share(of_day, BROADER)]
    }

    /// The habit that foretells best; the broader one where a finer one is hardly better.
    fn best(&self) -> usize {
        let [all, day, week] = self.errors;
        match () {
            () if week < BETTER * day.min(all) => 2,
            () if day < BETTER * all => 1,
            () => 0,
        }
    }
}

/// Seconds that the host is expected to be on, from the beginning of the week to each hour of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    before: [f64; HOURS_OF_WEEK + 1],
}

impl Expected {
    /// Seconds on in so many half hours from one that is counted from the epoch.
    pub(super) fn of_slots(&self, begins: i64, slots: usize) -> f64 {
        let hours = |slot: i64| slot as f64 / 2.0;
        self.upto(hours(begins + slots as i64)) - self.upto(hours(begins))
    }

    /// Seconds on within a window.
    pub(super) fn of_window(&self, from: Instant, length: Duration) -> f64 {
        let hours = |at: Instant| at.since(Instant::EPOCH).as_secs_f64() / HOUR_SECS;
        self.upto(hours(from + length)) - self.upto(hours(from))
    }

    /// From the epoch.
    fn upto(&self, hours: f64) -> f64 {
        let weeks = (hours / HOURS_OF_WEEK as f64).floor();
        let within = (hours - weeks * HOURS_OF_WEEK as f64).clamp(0.0, HOURS_OF_WEEK as f64);
        let hour = (within as usize).min(HOURS_OF_WEEK - 1);
        let (begin, end) = (self.before[hour], self.before[hour + 1]);
        weeks * self.before[HOURS_OF_WEEK] + begin + (end - begin) * (within - hour as f64)
    }
}
