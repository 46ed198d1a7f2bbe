//! How the binaries end: one table for `fallow` and `fallow-agent`, so that scripts can tell failures apart.

/// A process's exit status. The numbers are part of the command line's contract: they are added to, never
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    /// It did what was asked.
    Success = 0,
    /// A fault of the program or the system that no other code names.
    Internal = 1,
    /// The command line cannot be understood (clap's own code).
    Usage = 2,
    /// A configuration file, a value or other input means nothing: unknown project, negative share.
    BadInput = 3,
    /// The coordinator, the agent or a project does not answer.
    Unreachable = 4,
    /// It answered and refused: wrong or spent token, wrong account key, not allowed.
    Refused = 5,
    /// The directory is in use by another process, or the port is.
    InUse = 6,
    /// The store is corrupted, or of a newer format than this version reads.
    BadStore = 7,
    /// No space left, or the directory is not writable.
    NoSpace = 8,
    /// Jobs failed for good (`fallow up --until-done`).
    JobsFailed = 9,
    /// A rollout was taken back (`fallow rollout watch`).
    TakenBack = 10,
}

impl ExitCode {
    /// Every code, in order.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Internal,
        Self::Usage,
        Self::BadInput,
        Self::Unreachable,
        Self::Refused,
        Self::InUse,
        Self::BadStore,
        Self::NoSpace,
        Self::JobsFailed,
        Self::TakenBack,
    ];

    /// The number the process ends with.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_scripts_know() {
        let numbers: Vec<u8> = ExitCode::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers, (0..11).collect::<Vec<u8>>());
    }
}
