//! The CPUs that GPU jobs keep from CPU jobs while a simulation goes on (R3.8).
//!
//! Of all that they use only whole CPUs count: the fraction may exceed the CPUs (R2.5).

/// CPUs used from times on.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// Times with the difference that they make; sorted once it is asked for.
    changes: Vec<(f64, f64)>,
    sorted: bool,
    /// How many have been passed, and their sum.
    passed: usize,
    sum: f64,
}

impl Taken {
    pub(super) fn clear(&mut self) {
        self.changes.clear();
        (self.sorted, self.passed, self.sum) = (false, 0, 0.0);
    }

    pub(super) fn add(&mut self, time: f64, more: f64) {
        if more.abs() > 1e-9 {
            self.changes.push((time, more));
        }
    }

    /// Whether no whole CPU can ever be taken.
    pub(super) fn is_nothing(&self) -> bool {
        let most: f64 = self.changes.iter().map(|(_, more)| more.max(0.0)).sum();
        most + 1e-6 < 1.0
    }

    /// Whole CPUs taken at a time; times must not fall from call to call.
    pub(super) fn at(&mut self, time: f64) -> f64 {
        if !self.sorted {
            self.changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            self.sorted = true;
        }
        while let Some((from, more)) = self.changes.get(self.passed)
            && *from <= time
        {
            self.sum += more;
            self.passed += 1;
        }
        (self.sum + 1e-6).floor().max(0.0)
    }

    /// When something may change next; never is infinite.
    pub(super) fn next_after(&self, time: f64) -> f64 {
        let next = self.changes.get(self.passed);
        next.map_or(f64::INFINITY, |(from, _)| from.max(time))
    }
}
