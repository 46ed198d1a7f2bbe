//! How long instances stand idle without a pause: what work held ahead insures against.

use fallow_domain::{Duration, PerType};
use fallow_policy::math::exp_minus;
use serde::{Deserialize, Serialize};

/// A drought is forgotten by a factor e in so much on-time.
const MEMORY: Duration = Duration::from_hours(30 * 24);
/// Less of an instance does not stand idle.
const IDLE_MIN: f64 = 0.01;

/// Of each type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Droughts(PerType<Drought>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Drought {
    /// The longest of late, as far as it is remembered.
    longest: Duration,
    /// The one that goes on.
    now: Duration,
}

impl Droughts {
    /// Nothing ever stood idle.
    pub(crate) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// The host was on for so long, and these instances stood idle.
    pub(crate) fn observe(&mut self, length: Duration, starved: &PerType<f64>) {
        if !length.is_positive() {
            return;
        }
        for (kind, drought) in self.0.iter_mut() {
            if starved[kind] >= IDLE_MIN {
                drought.now += length;
                drought.longest = drought.longest.max(drought.now);
            } else {
                drought.now = Duration::ZERO;
            }
            if drought.longest > drought.now {
                let kept = exp_minus(length.as_secs_f64() / MEMORY.as_secs_f64());
                drought.longest = drought.longest.mul_f64(kept).max(drought.now);
            }
        }
    }

    /// The longest of late, of each type.
    pub(crate) fn longest(&self) -> PerType<Duration> {
        self.0.map(|_, drought| drought.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn the_longest_drought_is_told_and_slowly_forgotten() {
        let (idle, busy) = (PerType::cpu(1.0), PerType::default());
        let mut droughts = Droughts::default();
        let longest = |droughts: &Droughts| droughts.longest()[fallow_domain::ResourceType::Cpu];
        droughts.observe(HOUR, &idle);
        droughts.observe(HOUR, &idle);
        assert_eq!(longest(&droughts), HOUR * 2, "one drought, seen in two parts");
        droughts.observe(HOUR, &busy);
        droughts.observe(HOUR, &idle);
        assert!(longest(&droughts) > HOUR.mul_f64(1.99), "a shorter one changes nothing");
        for _ in 0..60 {
            droughts.observe(HOUR * 24, &busy);
        }
        let left = longest(&droughts);
        assert!((HOUR.mul_f64(0.2)..HOUR.mul_f64(0.3)).contains(&left), "{left} after two months");
        droughts.observe(HOUR, &idle);
        assert_eq!(longest(&droughts), HOUR);
    }

    #[test]
    fn time_that_did_not_pass_and_a_hair_of_an_instance_are_no_drought() {
        let mut droughts = Droughts::default();
        droughts.observe(Duration::ZERO - HOUR, &PerType::cpu(2.0));
        droughts.observe(HOUR, &PerType::cpu(0.001));
        assert_eq!(droughts, Droughts::default());
    }
}
