//! What the metrics of a host are called, in one place for all who show them.

/// One of the metrics of what a host made of its time (R5.30 to R5.33, R5.35): from 0, which is good, to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// R5.30.
    Idleness,
    /// R5.31.
    Waste,
    /// R5.32: against what was due by the work that projects had here.
    ShareViolation,
    /// R5.35: against what was due by what projects could have supplied.
    ShareDeviation,
    /// R5.33.
    Monotony,
}

/// What a figure is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureName {
    /// By programs: its key in JSON, its column in CSV.
    pub key: &'static str,
    /// By people.
    pub name: &'static str,
}

/// Scheduler RPCs per job, which stands beside them (R5.34).
pub const RPCS_PER_JOB: FigureName = FigureName { key: "rpcs_per_job", name: "RPCs per job" };

impl Metric {
    /// All, those of shares side by side.
    pub const ALL: [Self; 5] =
        [Self::Idleness, Self::Waste, Self::ShareViolation, Self::ShareDeviation, Self::Monotony];

    /// What it is called.
    #[must_use]
    pub const fn called(self) -> FigureName {
        let (key, name) = match self {
            Self::Idleness => ("idleness", "idleness"),
            Self::Waste => ("waste", "waste"),
            Self::ShareViolation => ("share_violation", "share violation"),
            Self::ShareDeviation => ("share_deviation", "share deviation"),
            Self::Monotony => ("monotony", "monotony"),
        };
        FigureName { key, name }
    }

    /// Its key in JSON and CSV.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.called().key
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.called().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_name_in_small_letters_without_spaces() {
        for FigureName { key, name } in Metric::ALL.map(Metric::called).into_iter().chain([RPCS_PER_JOB]) {
            assert_eq!(key, name.to_lowercase().replace(' ', "_"));
        }
    }
}
