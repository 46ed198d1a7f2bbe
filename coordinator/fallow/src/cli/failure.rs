//! Why a command failed: a text for people and an exit status for scripts.

use std::error::Error;
use std::fmt;

use fallow_coordinator::daemon::StartError;
use fallow_daemon::causes;
use fallow_domain::{ExitCode, Invalid};
use tonic::{Code, Status};

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    code: ExitCode,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// With a text that says what, where and what to do.
    pub fn new(code: ExitCode, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), source: None }
    }

    /// With the error behind it.
    pub fn caused(
        code: ExitCode,
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { code, what: what.into(), source: Some(Box::new(source)) }
    }

    /// Input that means nothing.
    pub fn bad_input(what: impl Into<String>) -> Self {
        Self::new(ExitCode::BadInput, what)
    }

    /// A fault of the system or the program.
    pub fn internal(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::caused(ExitCode::Internal, what, source)
    }

    /// A file that cannot be used.
    #[must_use]
    pub fn file(action: &str, path: &std::path::Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let code = match source.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::IsADirectory => ExitCode::BadInput,
            _ => ExitCode::NoSpace,
        };
        Self::caused(code, format!("cannot {action} {}", path.display()), source)
    }

    /// A place that cannot be written to, whatever the reason: what is written is no input. Says what to do
    /// about it.
    #[must_use]
    pub fn unwritable(what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let advice = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "make room there, or write elsewhere"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "write elsewhere, or have it made writable for you"
            }
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                "a part of that path is a file: write elsewhere, or move the file away"
            }
            _ => "write elsewhere",
        };
        let code = match error.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => ExitCode::BadInput,
            _ => ExitCode::NoSpace,
        };
        Self::new(code, format!("{what}: {error}; {advice}"))
    }

    /// The exit status.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        self.code
    }

    /// From what the coordinator answered.
    #[must_use]
    pub fn of_status(status: &Status) -> Self {
        // Only a status that was made on this side has a cause.
        if let Some(cause) = status.source() {
            let text = format!("the coordinator does not answer: {}", causes::innermost(cause));
            return Self::new(ExitCode::Unreachable, text);
        }
        let code = match status.code() {
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange => ExitCode::BadInput,
            Code::Unauthenticated | Code::PermissionDenied => ExitCode::Refused,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => ExitCode::Unreachable,
            Code::ResourceExhausted => ExitCode::NoSpace,
            Code::DataLoss => ExitCode::BadStore,
            _ => ExitCode::Internal,
        };
        let what = match code {
            ExitCode::Unreachable => format!("the coordinator does not answer: {}", status.message()),
            _ => status.message().to_owned(),
        };
        Self::new(code, what)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {}", causes::line(&**source)),
            None => Ok(()),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::of_status(&status)
    }
}

impl From<Invalid> for Failure {
    fn from(error: Invalid) -> Self {
        Self::bad_input(error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(error.exit_code(), causes::line(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_coordinator_answers_decides_the_exit_status() {
        for (status, code) in [
            (Status::not_found("x"), 3),
            (Status::invalid_argument("x"), 3),
            (Status::permission_denied("x"), 5),
            (Status::unavailable("x"), 4),
            (Status::data_loss("x"), 7),
            (Status::resource_exhausted("x"), 8),
            (Status::unknown("x"), 1),
        ] {
            assert_eq!(Failure::of_status(&status).code().number(), code);
        }
    }
}
