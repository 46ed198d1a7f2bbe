//! The library's thread: ten times a second it obeys the client, and once a second it reports and looks for
//! it.

use fallow_boinc::runtime::channel::{Channel, Channels};
use fallow_boinc::runtime::exit::ABORTED_BY_CLIENT;
use fallow_boinc::runtime::message::{Heartbeat, ProcessControl};

use crate::clock::sleep_one_tick;
use crate::files;
use crate::link::Link;
use crate::watch::ClientWatch;

/// Ticks between two statuses, and between two looks for the client.
const SECOND: u64 = 10;
/// Without a process to watch, a client that has sent nothing for 30 s is gone (BOINC).
const SILENCE_MAX: u64 = 30 * SECOND;

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Quit,
    Abort,
    ClientGone,
}

impl Leave {
    const fn code(self) -> i32 {
        match self {
            Self::Quit | Self::ClientGone => 0,
            Self::Abort => ABORTED_BY_CLIENT,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Quit => "the client asks to quit",
            Self::Abort => "the client asks to abort",
            Self::ClientGone => "the client is gone",
        }
    }
}

/// Turns for as long as the process lives.
pub(crate) fn run(link: &Link, watch: Option<&ClientWatch>) -> ! {
    let mut pulse = Pulse::default();
    loop {
        sleep_one_tick();
        pulse.turn(link, watch);
        if let Some(leave) = pulse.leave
            && link.try_exit()
        {
            eprintln!("{}: exiting with {}", leave.words(), leave.code());
            std::process::exit(leave.code());
        }
    }
}

#[derive(Debug, Default)]
struct Pulse {
    tick: u64,
    /// The tick of the last heartbeat.
    heard: u64,
    leave: Option<Leave>,
}

impl Pulse {
    fn turn(&mut self, link: &Link, watch: Option<&ClientWatch>) {
        self.tick += 1;
        link.count_tick();
        if let Some(channels) = link.channels() {
            self.listen(link, channels);
        }
        if self.tick.is_multiple_of(SECOND) {
            link.send_status();
            if self.leave.is_none() && self.client_is_gone(link, watch) {
                self.leave = Some(Leave::ClientGone);
            }
        }
    }

    fn listen(&mut self, link: &Link, channels: Channels<'_>) {
        if let Some(beat) = channels.receive(Channel::Heartbeat).and_then(|text| Heartbeat::parse(&text)) {
            self.heard = self.tick;
            link.set_network_suspended(beat.network_suspended);
        }
        let message = channels.receive(Channel::ControlRequest).and_then(|text| ProcessControl::parse(&text));
        match message {
            Some(ProcessControl::Suspend) => link.set_suspended(true),
            Some(ProcessControl::Resume) => link.set_suspended(false),
            Some(ProcessControl::Quit) => self.leave = Some(Leave::Quit),
            Some(ProcessControl::Abort) => self.leave = Some(Leave::Abort),
            Some(ProcessControl::RereadAppInfo) => {
                // The client may be about to replace the file: one that cannot be read changes nothing.
                if let Some(data) = files::init_data() {
                    link.set_init_data(Some(data));
                }
            }
            None => (),
        }
    }

    fn client_is_gone(&self, link: &Link, watch: Option<&ClientWatch>) -> bool {
        match watch {
            Some(client) => client.is_gone(),
            None => link.channels().is_some() && self.tick - self.heard > SILENCE_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    fn link() -> (tempfile::TempDir, Mapping, Link) {
        let dir = tempfile::tempdir().unwrap();
        let client = Mapping::create(&dir.path().join("boinc_mmap_file")).unwrap();
        let ours = Mapping::open(&dir.path().join("boinc_mmap_file")).unwrap();
        (dir, client, Link::new(Some(ours), None))
    }

    #[test]
    fn a_client_without_a_number_is_gone_after_30_s_of_silence() {
        let (_dir, client, link) = link();
        let mut pulse = Pulse::default();
        let turns = |pulse: &mut Pulse, count: u64| (0..count).for_each(|_| pulse.turn(&link, None));
        turns(&mut pulse, SILENCE_MAX);
        assert_eq!(pulse.leave, None);
        assert!(client.channels().send(Channel::Heartbeat, &Heartbeat::default().text()));
        turns(&mut pulse, SILENCE_MAX);
        assert_eq!(pulse.leave, None);
        turns(&mut pulse, 2 * SECOND);
        assert_eq!(pulse.leave, Some(Leave::ClientGone));
    }

    #[test]
    fn a_standalone_application_waits_for_nobody() {
        let link = Link::new(None, None);
        let mut pulse = Pulse::default();
        (0..10 * SILENCE_MAX).for_each(|_| pulse.turn(&link, None));
        assert_eq!(pulse.leave, None);
    }

    #[test]
    fn a_status_is_sent_once_a_second_and_an_unread_one_is_not_replaced() {
        let (_dir, client, link) = link();
        let mut pulse = Pulse::default();
        (1..SECOND).for_each(|_| pulse.turn(&link, None));
        assert_eq!(client.channels().receive(Channel::AppStatus), None);
        pulse.turn(&link, None);
        link.set_fraction(0.5);
        (0..SECOND).for_each(|_| pulse.turn(&link, None));
        let text = client.channels().receive(Channel::AppStatus).unwrap();
        assert!(!text.contains("fraction_done"), "{text}");
        (0..SECOND).for_each(|_| pulse.turn(&link, None));
        let text = client.channels().receive(Channel::AppStatus).unwrap();
        assert!(text.contains("<fraction_done>5.000000e-01</fraction_done>"), "{text}");
    }

    #[test]
    fn garbage_in_the_channel_is_passed_over() {
        let (_dir, client, link) = link();
        let mut pulse = Pulse::default();
        assert!(client.channels().send(Channel::ControlRequest, "<dance/>"));
        pulse.turn(&link, None);
        assert!(!client.channels().is_full(Channel::ControlRequest));
        assert_eq!(pulse.leave, None);
    }
}
