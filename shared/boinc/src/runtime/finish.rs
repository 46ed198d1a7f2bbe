//! The files with which an application says why it exits.

use fallow_domain::Duration;

/// `boinc_finish_called`: the application has done its job, with this status.
///
/// Line 1 is the status, line 2 a message if there is one, line 3 `notice` if the message is for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finish {
    /// What the application will exit with; 0 for success.
    pub status: i32,
    /// What it has to say.
    pub message: Option<String>,
    /// True if the user shall see the message.
    pub notice: bool,
}

/// `boinc_temporary_exit`: start me again, but later.
///
/// Line 1 is the delay in seconds, line 2 the reason, line 3 `notice` if the reason is for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryExit {
    /// When to start again.
    pub delay: Duration,
    /// Why.
    pub reason: String,
    /// True if the user shall see the reason.
    pub notice: bool,
}

/// The longest delay that an application can ask for; anything out of range becomes [`DELAY_DEFAULT`].
const DELAY_MAX_S: i64 = 86_400;
/// BOINC's delay for those who name none.
const DELAY_DEFAULT: Duration = Duration::from_secs(300);

impl Finish {
    /// Success without a message.
    pub const SUCCESS: Self = Self { status: 0, message: None, notice: false };

    /// The file's text.
    pub fn write(&self) -> String {
        match &self.message {
            None => format!("{}\n", self.status),
            Some(message) => format!("{}\n{}\n{}\n", self.status, line(message), notice(self.notice)),
        }
    }

    /// What the file says. Its presence alone says that the application finished, so nothing is unreadable; a
    /// status that is none is 0, as BOINC reads it.
    pub fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines().map(str::trim);
        Self {
            status: lines.next().and_then(|status| status.parse().ok()).unwrap_or(0),
            message: lines.next().filter(|message| !message.is_empty()).map(str::to_owned),
            notice: lines.next() == Some("notice"),
        }
    }
}

impl TemporaryExit {
    /// The file's text.
    pub fn write(&self) -> String {
        let secs = self.delay.as_micros() / 1_000_000;
        format!("{secs}\n{}\n{}\n", line(&self.reason), notice(self.notice))
    }

    /// What the file says; none without a second line, which BOINC takes for absent.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines().map(str::trim);
        let secs = lines.next()?.parse().ok().filter(|secs| (0..=DELAY_MAX_S).contains(secs));
        Some(Self {
            delay: secs.map_or(DELAY_DEFAULT, Duration::from_secs),
            reason: lines.next()?.to_owned(),
            notice: lines.next() == Some("notice"),
        })
    }
}

/// A text that stays within its line.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

const fn notice(notice: bool) -> &'static str {
    if notice { "notice" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_finish_file_holds_the_status_and_perhaps_a_message() {
        assert_eq!(Finish::SUCCESS.write(), "0\n");
        let finish = Finish { status: 3, message: Some("no input".into()), notice: true };
        assert_eq!(finish.write(), "3\nno input\nnotice\n");
        assert_eq!(Finish::read(finish.write().as_bytes()), finish);
        assert_eq!(Finish::read(b""), Finish::SUCCESS);
    }

    #[test]
    fn a_temporary_exit_without_a_second_line_is_absent() {
        assert_eq!(TemporaryExit::read(b"60\n"), None);
        assert_eq!(TemporaryExit::read(b""), None);
        let read = TemporaryExit::read(b"60\nslot is locked\n").unwrap();
        assert_eq!(read.delay, Duration::from_secs(60));
        assert_eq!((read.reason.as_str(), read.notice), ("slot is locked", false));
    }

    #[test]
    fn a_delay_out_of_range_becomes_five_minutes() {
        for text in ["-1\nx\n", "86401\nx\n", "soon\nx\n", "\nx\n"] {
            assert_eq!(TemporaryExit::read(text.as_bytes()).unwrap().delay, DELAY_DEFAULT, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn both_files_read_as_they_are_written(
            status: i32, message in prop::option::of("[!-~][ -~]{0,40}[!-~]"), notice: bool,
            secs in 0_i64..=86_400, reason in "[!-~][ -~]{0,40}[!-~]",
        ) {
            let finish = Finish { status, notice: notice && message.is_some(), message };
            prop_assert_eq!(Finish::read(finish.write().as_bytes()), finish);
            let exit = TemporaryExit { delay: Duration::from_secs(secs), reason, notice };
            prop_assert_eq!(TemporaryExit::read(exit.write().as_bytes()), Some(exit));
        }

        #[test]
        fn no_bytes_harm_the_readers(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (Finish::read(&bytes), TemporaryExit::read(&bytes));
        }
    }
}
