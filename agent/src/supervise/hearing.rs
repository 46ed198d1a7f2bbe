//! Whether an application hears what it is told (R6.2).
//!
//! One made with BOINC's library reads each message within a second, and says how far it is. Another, such
//! as a script, does neither, ever. That it leaves a message unread says nothing of how it is: it is stopped
//! where others rest, and killed where others leave, but not taken for stuck. Nor is one with the library
//! that hangs before it reads its first message: only the bound on its time ends that.

use fallow_boinc::runtime::channel::Channels;
use fallow_boinc::runtime::control::ControlQueue;
use fallow_boinc::runtime::message::ProcessControl;
use fallow_domain::{Duration, Instant};

/// How long the first message is unread before nobody is taken to be there who reads.
const DEAF_AFTER: Duration = Duration::from_secs(5);

/// What a task is told, and whether it hears it.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    queue: ControlQueue,
    /// It said something, at some time.
    speaks: bool,
    is_deaf: bool,
}

impl Hearing {
    /// Adds a message: see [`ControlQueue::push`].
    pub(super) fn push(&mut self, message: ProcessControl) {
        self.queue.push(message);
    }

    /// Sends what can be sent: see [`ControlQueue::turn`].
    pub(super) fn turn(&mut self, channels: Channels<'_>, now: Instant) {
        self.queue.turn(channels, now);
    }

    /// It was stopped until now: see [`ControlQueue::excuse`].
    pub(super) fn excuse(&mut self, now: Instant) {
        self.queue.excuse(now);
    }

    /// A look, and whether it has said something since the last one. While it is stopped it reads nothing.
    pub(super) fn look(&mut self, says: bool, is_stopped: bool, now: Instant) {
        self.speaks |= says;
        if is_stopped {
            return;
        }
        let was_heard = self.speaks || self.queue.was_read();
        self.is_deaf = !was_heard && (self.is_deaf || self.queue.unread_for(now) >= DEAF_AFTER);
    }

    /// Whether it has never read a message nor said anything, although it has had the time to.
    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Whether it used to hear and does not now, or has spoilt its channel.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let used_to_hear = self.speaks || self.queue.was_read();
        self.queue.is_stuck(now) && (used_to_hear || self.queue.is_blocked())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;

    use fallow_boinc::runtime::channel::{Channel, FILE_LEN};

    use super::*;

    fn at(secs: i64) -> Instant {
        Instant::EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn r6_2_who_never_read_a_message_is_deaf_and_not_stuck_and_who_did_is_the_other_way_round() {
        for (reads, speaks) in [(false, false), (true, false), (false, true)] {
            let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect();
            let channels = Channels::new(&memory).unwrap();
            let mut hearing = Hearing::default();
            hearing.look(speaks, false, at(0));
            for message in [ProcessControl::Suspend, ProcessControl::Resume] {
                hearing.push(message);
                hearing.turn(channels, at(1));
                if reads && message == ProcessControl::Suspend {
                    assert!(channels.receive(Channel::ControlRequest).is_some());
                }
            }
            let hears = reads || speaks;
            let looks = [(5, false), (6, !hears), (182, !hears)];
            for (second, is_deaf) in looks {
                hearing.turn(channels, at(second));
                hearing.look(false, false, at(second));
                assert_eq!(hearing.is_deaf(), is_deaf, "reads: {reads}, speaks: {speaks}, after {second} s");
            }
            hearing.turn(channels, at(190));
            assert_eq!(hearing.is_stuck(at(190)), hears, "reads: {reads}, speaks: {speaks}");
            // It was stopped meanwhile, and still nobody reads.
            hearing.excuse(at(190));
            hearing.look(false, false, at(191));
            assert_eq!(hearing.is_deaf(), !hears);
            // It begins to speak: a library that took its time.
            hearing.look(true, false, at(192));
            assert!(!hearing.is_deaf());
        }
    }

    #[test]
    fn r6_2_the_time_in_which_a_task_was_stopped_does_not_make_it_deaf() {
        let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect();
        let channels = Channels::new(&memory).unwrap();
        let mut hearing = Hearing::default();
        hearing.push(ProcessControl::Suspend);
        hearing.turn(channels, at(0));
        (1..30).for_each(|second| hearing.look(false, true, at(second)));
        hearing.excuse(at(30));
        hearing.look(false, false, at(30));
        assert!(!hearing.is_deaf());
        hearing.look(false, false, at(35));
        assert!(hearing.is_deaf());
    }
}
