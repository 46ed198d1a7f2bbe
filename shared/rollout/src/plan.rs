//! In which waves a version goes out, and how long each is watched.

use std::fmt;
use std::str::FromStr;

use fallow_domain::{Duration, Fraction, Invalid};
use fallow_fleet::GroupName;
use serde::{Deserialize, Serialize};

use crate::{Gate, Gates};

/// Waves of a plan at most.
pub const WAVES_MAX: usize = 20;
/// The shortest time that a wave is watched.
pub const SOAK_MIN: Duration = Duration::from_secs(5);
/// The longest.
pub const SOAK_MAX: Duration = Duration::from_hours(24 * 30);
/// Hosts that a wave may count out: they are remembered one by one.
const COUNTED_MAX: u32 = 10_000;

const EXPECTED: &str = "waves parted by commas, each larger than the one before: numbers of hosts (1), parts of the fleet (10%) or names of \
                        groups; all hosts follow in the end";

/// A wave: so many hosts have the version then, in all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Wave {
    /// So many hosts, of a machine and its copies one as long as there are other machines that are there.
    Hosts(u32),
    /// Such a part of the fleet.
    Part(Fraction),
    /// The hosts of a group, beside those of the waves before.
    Group(GroupName),
}

impl Wave {
    /// All hosts.
    pub const ALL: Self = Self::Part(Fraction::ONE);
}

impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(count) => count.fmt(f),
            Self::Part(part) => write!(f, "{}%", shortest(part.get() * 100.0)),
            Self::Group(name) => name.fmt(f),
        }
    }
}

/// Without the noise of a part that was given in percent.
fn shortest(percent: f64) -> f64 {
    (percent * 1e6).round() / 1e6
}

impl FromStr for Wave {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("wave", text, EXPECTED);
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
            // Finer than a machine in a hundred million means nothing.
            let part = Fraction::new(shortest(percent) / 100.0).ok().filter(|part| part.get() > 0.0);
            return part.map(Self::Part).ok_or_else(bad);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let count = text.parse().ok().filter(|count| (1..=COUNTED_MAX).contains(count));
            return count.map(Self::Hosts).ok_or_else(bad);
        }
        text.parse().map(Self::Group).map_err(|_| bad())
    }
}

impl From<Wave> for String {
    fn from(wave: Wave) -> Self {
        wave.to_string()
    }
}

impl TryFrom<String> for Wave {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

/// How versions go out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The waves, the last of which is all hosts.
    pub waves: Vec<Wave>,
    /// How long each is watched before the next.
    pub soak: Duration,
    /// What a version is judged by.
    pub gates: Gates,
    /// A change that makes more hosts different than that waits for a second person; none: no change does.
    pub approval_over: Option<u64>,
}

impl Plan {
    /// A plan that is judged by all gates. All hosts are the last wave, named or not.
    ///
    /// # Errors
    /// [`Invalid`] for waves that are none, do not grow or are too many, and a time out of range.
    pub fn new(waves: &str, soak: Duration) -> Result<Self, Invalid> {
        let bad = || Invalid::new("waves", waves, EXPECTED);
        let mut read: Vec<Wave> = Vec::new();
        for wave in waves.split(',').map(str::trim) {
            let wave: Wave = wave.parse()?;
            let grows = |before: &Wave| match (before, &wave) {
                (Wave::Hosts(before), Wave::Hosts(now)) => before < now,
                (Wave::Part(before), Wave::Part(now)) => before.get() < now.get(),
                (Wave::Group(before), Wave::Group(now)) => before != now,
                // After a part, a number of hosts would mean nothing in a larger fleet.
                (Wave::Part(_), Wave::Hosts(_)) => false,
                _ => *before != Wave::ALL,
            };
            if !read.iter().all(grows) {
                return Err(bad());
            }
            read.push(wave);
        }
        if read.last() != Some(&Wave::ALL) {
            read.push(Wave::ALL);
        }
        if read.len() > WAVES_MAX {
            return Err(bad());
        }
        if !(SOAK_MIN..=SOAK_MAX).contains(&soak) {
            return Err(Invalid::new("soak time", soak, "5s to 30d"));
        }
        Ok(Self { waves: read, soak, gates: Gates::default(), approval_over: None })
    }

    /// The waves as they are written.
    #[must_use]
    pub fn written(&self) -> String {
        self.waves.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Plan {
    /// All of it: who takes away what guards a fleet is seen by that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waves of {}, {} each", self.written(), self.soak)?;
        let without: Vec<_> = Gate::ALL.into_iter().filter(|gate| !self.gates.has(*gate)).collect();
        for (at, gate) in without.iter().enumerate() {
            write!(f, "{}{gate}", if at == 0 { ", not judged by " } else { ", " })?;
        }
        match self.approval_over {
            Some(most) => write!(f, "; a second person for more than {}", crate::hosts(most as usize)),
            None => f.write_str("; no second person"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(text: &str) -> Result<String, Invalid> {
        Plan::new(text, Duration::from_mins(10)).map(|plan| plan.written())
    }

    #[test]
    fn r6_5_waves_are_numbers_parts_and_groups_that_grow_and_end_with_all_hosts() {
        assert_eq!(waves("1,10%,100%").unwrap(), "1,10%,100%");
        assert_eq!(waves("1, 5, staff, 12.5%").unwrap(), "1,5,staff,12.5%,100%");
        assert_eq!(waves("33.222222222222222222%").unwrap(), "33.222222%,100%");
        for bad in [
            "",
            "0",
            "-1",
            "10%,5%",
            "10%,10%",
            "5,5",
            "10%,20",
            "100%,staff",
            "0%",
            "101%",
            "nan%",
            "a,a",
            "1,,2",
        ] {
            assert!(waves(bad).is_err(), "{bad}");
        }
        let many: Vec<String> = (1..30).map(|n| n.to_string()).collect();
        assert!(waves(&many.join(",")).is_err());
        for soak in [Duration::ZERO, Duration::from_secs(4), Duration::from_hours(24 * 31)] {
            assert!(Plan::new("1", soak).is_err());
        }
    }

    #[test]
    fn r6_5_a_plan_is_read_back_as_it_was_written() {
        let plan = Plan::new("1,staff,33.3%", Duration::from_mins(10)).unwrap();
        let stored = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
    }

    #[test]
    fn r6_5_a_plan_says_all_that_guards_a_fleet() {
        let plan = Plan::new("1,100%", Duration::from_mins(10)).unwrap();
        assert_eq!(plan.to_string(), "waves of 1,100%, 10 min each; no second person");
        let gates = Gates::without(&[Gate::Idle, Gate::Failed]);
        let plan = Plan { gates, approval_over: Some(100), ..plan };
        let all = "waves of 1,100%, 10 min each, not judged by idle, failed; a second person for more than 100 hosts";
        assert_eq!(plan.to_string(), all);
    }
}
