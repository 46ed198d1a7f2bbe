//! The scenarios of `fallow evaluate --labs`, in the program itself: hosts and projects of real labs.
//!
//! There are two sets. Policies are tuned on the one, and judged on the other, from seeds that are not those
//! of the first. Whoever tunes on the second has nothing left to judge by.

use fallow_emulator::scenario::{Files, Scenario};

use crate::cli::Failure;

/// A set of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabSet {
    /// To tune policies on.
    Tuning,
    /// To judge them on.
    Judging,
}

/// Traces that scenarios name.
const TRACES: [(&str, &str); 2] = [
    ("../traces/moves.csv", include_str!("../../../labs/traces/moves.csv")),
    ("../traces/office.csv", include_str!("../../../labs/traces/office.csv")),
];

/// The files of a set, by their names without the extension.
macro_rules! texts {
    ($set:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../labs/", $set, "/", $name, ".toml")))),*]
    };
}

const TUNING: &[(&str, &str)] = texts!("tuning":
    "t01-slack15" "t02-slack3-mix5" "t03-office" "t04-longoff" "t05-rare20" "t06-down" "t07-gpu"
    "t08-estimates" "t09-connect1d" "t10-finite" "t11-64cores" "t12-20projects" "t13-onedown");

const JUDGING: &[(&str, &str)] = texts!("judging":
    "j01-classroom" "j02-nights" "j03-laptop" "j04-flicker" "j05-campus" "j06-64threads" "j07-gpu-long"
    "j08-gpu-lacking" "j09-batches" "j10-estimates" "j11-dialup" "j12-moves" "j13-first-days"
    "j14-first-week" "j15-half-down" "j16-small-jobs" "j17-weekends" "j18-one-tight");

impl LabSet {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Tuning, Self::Judging];

    /// Its name on the command line and in files.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tuning => "tuning",
            Self::Judging => "judging",
        }
    }

    /// How far its seeds are from those of the first set.
    pub(super) const fn seeds_from(self) -> u64 {
        match self {
            Self::Tuning => 0,
            Self::Judging => 1_000,
        }
    }

    const fn texts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tuning => TUNING,
            Self::Judging => JUDGING,
        }
    }

    /// The names of its scenarios.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        self.texts().iter().map(|(name, _)| *name)
    }

    /// Its scenarios, those of them that `wanted` names.
    pub(super) fn scenarios(self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Scenario>, Failure> {
        let read = |(name, text): &(&str, &str)| {
            let loaded = Scenario::parse(&format!("{name}.toml"), text, &TRACES as &dyn Files);
            let failed = |wrong| Failure::internal(format!("the built-in scenario {name} is wrong"), wrong);
            Ok(loaded.map_err(failed)?.scenario)
        };
        self.texts().iter().filter(|(name, _)| wanted(name)).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_folder_is_built_in_under_its_own_name_and_reads_without_a_warning() {
        for set in LabSet::ALL {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("labs").join(set.name());
            let mut there: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            there.sort();
            assert_eq!(there, set.names().collect::<Vec<_>>());
            for (name, text) in set.texts() {
                let loaded = Scenario::parse(name, text, &TRACES).unwrap();
                assert_eq!(loaded.warnings, [], "{name}");
                assert_eq!(loaded.scenario.name, *name);
            }
        }
    }

    #[test]
    fn no_scenario_is_in_both_sets_and_there_are_enough_to_judge_by() {
        let [tuning, judging] = LabSet::ALL.map(|set| set.scenarios(|_| true).unwrap());
        assert!(tuning.len() == 13 && judging.len() >= 12);
        for scenario in &judging {
            let same = |other: &&Scenario| other.host == scenario.host || other.projects == scenario.projects;
            assert_eq!(tuning.iter().find(same).map(|other| &other.name), None, "{}", scenario.name);
        }
    }
}
