//! The messages of the channel as values.
//!
//! Ignored when received: the `<fpops_per_cpu_sec>` family and `<intops_...>` of `app_status`, which old
//! applications send to claim credit, and `<sporadic_ca>`/`<sporadic_ac>` of sporadic applications.

use fallow_domain::{Bytes, Duration, Fraction};

use super::text::{element, exponential, flag, number};

/// What a client tells an application to do ([`super::channel::Channel::ControlRequest`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessControl {
    /// Stop computing, stay in memory.
    Suspend,
    /// Compute again.
    Resume,
    /// Exit with 0 and no finish file; you will be started again from your last checkpoint.
    Quit,
    /// Exit with [`super::exit::ABORTED_BY_CLIENT`]; your work is not wanted any more.
    Abort,
    /// `init_data.xml` has changed: read it again.
    RereadAppInfo,
}

impl ProcessControl {
    /// The text that says so.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Suspend => "<suspend/>",
            Self::Resume => "<resume/>",
            Self::Quit => "<quit/>",
            Self::Abort => "<abort/>",
            Self::RereadAppInfo => "<reread_app_info/>",
        }
    }

    /// What a text says; none if it says nothing known.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Suspend, Self::Resume, Self::Quit, Self::Abort, Self::RereadAppInfo]
            .into_iter()
            .find(|message| text.contains(message.text()))
    }
}

/// A client's sign of life, once a second ([`super::channel::Channel::Heartbeat`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heartbeat {
    /// Memory in use by the application, as the client measures it (BOINC: `wss`).
    pub wss: Bytes,
    /// Memory that the application may use (BOINC: `max_wss`).
    pub max_wss: Bytes,
    /// The application shall not use the network now.
    pub network_suspended: bool,
}

impl Heartbeat {
    /// The text that says so.
    pub fn text(&self) -> String {
        let network = if self.network_suspended { "<network_suspended/>" } else { "" };
        let (wss, max_wss) = (exponential(self.wss.as_f64()), exponential(self.max_wss.as_f64()));
        format!("<heartbeat/><wss>{wss}</wss><max_wss>{max_wss}</max_wss>{network}")
    }

    /// What a text says; none if it is no heartbeat. Sizes that are missing are 0, as with old clients.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = |name| number(text, name).map_or(Bytes::default(), Bytes::from_f64);
        flag(text, "heartbeat").then(|| Self {
            wss: bytes("wss"),
            max_wss: bytes("max_wss"),
            network_suspended: flag(text, "network_suspended"),
        })
    }
}

/// How far an application is, once a second ([`super::channel::Channel::AppStatus`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AppStatus {
    /// CPU time of the job over all starts of the application.
    pub current_cpu_time: Duration,
    /// The same at its last checkpoint. A change of it is how a client learns of a checkpoint.
    pub checkpoint_cpu_time: Duration,
    /// Part of the job that is done, if the application says.
    pub fraction_done: Option<Fraction>,
    /// The application waits for the network.
    pub want_network: bool,
    /// Another process that does the work, such as a virtual machine.
    pub other_pid: Option<u32>,
    /// Memory in use, from applications whose work the client cannot measure.
    pub wss: Option<Bytes>,
}

impl AppStatus {
    /// The text that says so.
    pub fn text(&self) -> String {
        let mut text = format!(
            "<current_cpu_time>{}</current_cpu_time>\n<checkpoint_cpu_time>{}</checkpoint_cpu_time>\n",
            exponential(self.current_cpu_time.as_secs_f64()),
            exponential(self.checkpoint_cpu_time.as_secs_f64()),
        );
        if let Some(fraction) = self.fraction_done {
            text += &format!("<fraction_done>{}</fraction_done>\n", exponential(fraction.get()));
        }
        if self.want_network {
            text += "<want_network>1</want_network>\n";
        }
        if let Some(pid) = self.other_pid {
            text += &format!("<other_pid>{pid}</other_pid>\n");
        }
        if let Some(wss) = self.wss {
            text += &format!("<wss>{}</wss>\n", exponential(wss.as_f64()));
        }
        text
    }

    /// What a text says; none without both CPU times, for a time taken for 0 would look like a checkpoint.
    /// CPU times below 0 become 0, fractions out of range the nearest one in it.
    pub fn parse(text: &str) -> Option<Self> {
        let time = |name| Some(Duration::from_secs_f64(number(text, name)?.max(0.0)));
        Some(Self {
            current_cpu_time: time("current_cpu_time")?,
            checkpoint_cpu_time: time("checkpoint_cpu_time")?,
            fraction_done: number(text, "fraction_done").map(Fraction::clamped),
            want_network: flag(text, "want_network"),
            other_pid: element(text, "other_pid").and_then(|pid| pid.parse().ok()).filter(|&pid| pid != 0),
            wss: number(text, "wss").map(Bytes::from_f64),
        })
    }
}

/// Something lies in the slot for the client to take ([`super::channel::Channel::TrickleUp`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrickleUp {
    /// [`super::files::TRICKLE_UP`] holds a message to the server.
    pub new_trickle_up: bool,
    /// A `boinc_ufr_NAME` asks to upload the output NAME early.
    pub new_upload_file: bool,
}

impl TrickleUp {
    /// The text that says so.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.new_trickle_up {
            text += "<have_new_trickle_up/>\n";
        }
        if self.new_upload_file {
            text += "<have_new_upload_file/>\n";
        }
        text
    }

    /// What a text says; nothing waits if it says nothing known.
    pub fn parse(text: &str) -> Self {
        Self {
            new_trickle_up: flag(text, "have_new_trickle_up"),
            new_upload_file: flag(text, "have_new_upload_file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_messages_read_as_they_are_written() {
        use ProcessControl::{Abort, Quit, RereadAppInfo, Resume, Suspend};
        for message in [Suspend, Resume, Quit, Abort, RereadAppInfo] {
            assert_eq!(ProcessControl::parse(message.text()), Some(message));
            assert_eq!(ProcessControl::parse(&format!("{}\n", message.text())), Some(message));
        }
        assert_eq!(ProcessControl::parse("<dance/>"), None);
        assert_eq!(ProcessControl::parse(""), None);
    }

    #[test]
    fn a_heartbeat_has_the_form_of_the_stock_client() {
        let beat = Heartbeat { wss: Bytes(1_048_576), max_wss: Bytes(0), network_suspended: true };
        let text = "<heartbeat/><wss>1.048576e+06</wss><max_wss>0.000000e+00</max_wss><network_suspended/>";
        assert_eq!(beat.text(), text);
        assert_eq!(Heartbeat::parse(text), Some(beat));
        assert_eq!(Heartbeat::parse("<heartbeat/>"), Some(Heartbeat::default()));
        assert_eq!(Heartbeat::parse("<wss>1</wss>"), None);
    }

    #[test]
    fn a_status_of_the_stock_library_is_read() {
        let text = "<current_cpu_time>1.500000e+00</current_cpu_time>\n\
                    <checkpoint_cpu_time>5.000000e-01</checkpoint_cpu_time>\n\
                    <want_network>1</want_network>\n<fraction_done>2.500000e-01</fraction_done>\n\
                    <fpops_cumulative>1.0e9</fpops_cumulative>\n<other_pid>42</other_pid>\n";
        let status = AppStatus::parse(text).unwrap();
        assert_eq!(status.current_cpu_time, Duration::from_millis(1_500));
        assert_eq!(status.checkpoint_cpu_time, Duration::from_millis(500));
        assert_eq!(status.fraction_done, Some(Fraction::clamped(0.25)));
        assert_eq!((status.want_network, status.other_pid, status.wss), (true, Some(42), None));
    }

    #[test]
    fn a_status_without_a_checkpoint_time_is_no_status() {
        assert_eq!(AppStatus::parse("<current_cpu_time>1</current_cpu_time>"), None);
    }

    #[test]
    fn absurd_figures_are_brought_into_range() {
        let text = "<current_cpu_time>-5</current_cpu_time><checkpoint_cpu_time>1e300</checkpoint_cpu_time>\
                    <fraction_done>7</fraction_done><other_pid>-3</other_pid>";
        let status = AppStatus::parse(text).unwrap();
        assert_eq!(status.current_cpu_time, Duration::ZERO);
        assert_eq!(status.checkpoint_cpu_time, Duration::MAX);
        assert_eq!((status.fraction_done, status.other_pid), (Some(Fraction::ONE), None));
    }

    #[test]
    fn trickle_flags_read_as_they_are_written() {
        for (new_trickle_up, new_upload_file) in [(true, false), (false, true), (true, true), (false, false)]
        {
            let message = TrickleUp { new_trickle_up, new_upload_file };
            assert_eq!(TrickleUp::parse(&message.text()), message);
        }
    }

    proptest! {
        #[test]
        fn a_status_survives_the_way_through_its_text(
            current in 0_i64..10_000_000, checkpoint in 0_i64..10_000_000, fraction in prop::option::of(0.0..=1.0),
            want_network: bool, other_pid in prop::option::of(1_u32..), wss in prop::option::of(0_u64..1 << 40),
        ) {
            let status = AppStatus {
                // Seven digits are what %e carries.
                current_cpu_time: Duration::from_millis(current),
                checkpoint_cpu_time: Duration::from_millis(checkpoint),
                fraction_done: fraction.map(Fraction::clamped),
                want_network, other_pid, wss: wss.map(Bytes),
            };
            let read = AppStatus::parse(&status.text()).unwrap();
            prop_assert_eq!(read.current_cpu_time, status.current_cpu_time);
            prop_assert_eq!(read.checkpoint_cpu_time, status.checkpoint_cpu_time);
            prop_assert_eq!((read.want_network, read.other_pid), (want_network, other_pid));
            let close = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-6;
            prop_assert!(close(read.fraction_done.map_or(-1.0, Fraction::get), fraction.unwrap_or(-1.0)));
            prop_assert!(close(read.wss.unwrap_or_default().as_f64(), status.wss.unwrap_or_default().as_f64()));
        }

        #[test]
        fn no_text_harms_the_parsers(text in "[<>/a-z_0-9.\\n -]{0,200}") {
            let _ = (ProcessControl::parse(&text), Heartbeat::parse(&text), AppStatus::parse(&text));
            let _ = TrickleUp::parse(&text);
        }
    }
}
