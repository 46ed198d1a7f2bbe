//! How long a host computes without a chance to get work: what work held ahead insures against.
//!
//! A drought begins when work is wanted and nobody who might have any can be asked, or when the network may
//! not be used. It ends when work comes: somebody who is asked now and then and has none does not end it.
//! Whether something idles meanwhile makes no difference, so that a host that was insured well enough does
//! not forget why. Only time in which it computes counts.
//!
//! Not a drought is what no work held ahead would help: a job that is too large for what is free, or projects
//! whose jobs would all be late.

use fallow_domain::{Duration, PerType, ResourceType};
use serde::{Deserialize, Serialize};

use crate::math::exp_minus;

/// A drought is forgotten by a factor e in so much on-time.
const MEMORY: Duration = Duration::from_hours(30 * 24);

/// The droughts of each type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Droughts(PerType<Drought>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Drought {
    /// The longest of late, as far as it is remembered.
    longest: Duration,
    /// The one that goes on.
    now: Duration,
}

impl Droughts {
    /// There never was one.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// The host computed for so long, and there was no chance to get work of these types.
    pub fn observe(&mut self, length: Duration, unserved: &PerType<bool>) {
        if !length.is_positive() {
            return;
        }
        for (kind, drought) in self.0.iter_mut() {
            if unserved[kind] {
                drought.now += length;
                drought.longest = drought.longest.max(drought.now);
            }
            if drought.longest > drought.now {
                let kept = exp_minus(length.as_secs_f64() / MEMORY.as_secs_f64());
                drought.longest = drought.longest.mul_f64(kept).max(drought.now);
            }
        }
    }

    /// Work of a type came.
    pub fn end(&mut self, kind: ResourceType) {
        self.0[kind].now = Duration::ZERO;
    }

    /// The longest of late, of each type.
    pub fn longest(&self) -> PerType<Duration> {
        self.0.map(|_, drought| drought.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceType::Cpu;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn the_longest_drought_is_told_and_slowly_forgotten() {
        let (unserved, served) = (PerType::cpu(true), PerType::default());
        let mut droughts = Droughts::default();
        let longest = |droughts: &Droughts| droughts.longest()[Cpu];
        droughts.observe(HOUR, &unserved);
        droughts.observe(HOUR, &served);
        droughts.observe(HOUR, &unserved);
        assert_eq!(longest(&droughts), HOUR * 2, "one drought: somebody was asked meanwhile, in vain");
        droughts.end(Cpu);
        droughts.observe(HOUR, &unserved);
        assert!(longest(&droughts) > HOUR.mul_f64(1.99), "a shorter one changes nothing");
        droughts.end(Cpu);
        for _ in 0..60 {
            droughts.observe(HOUR * 24, &served);
        }
        let left = longest(&droughts);
        assert!((HOUR.mul_f64(0.2)..HOUR.mul_f64(0.3)).contains(&left), "{left} after two months");
        droughts.observe(HOUR, &unserved);
        assert_eq!(longest(&droughts), HOUR);
    }

    #[test]
    fn time_that_did_not_pass_is_no_drought() {
        let mut droughts = Droughts::default();
        droughts.observe(Duration::ZERO - HOUR, &PerType::cpu(true));
        droughts.observe(HOUR, &PerType::default());
        droughts.end(Cpu);
        assert!(droughts.are_none());
    }
}
