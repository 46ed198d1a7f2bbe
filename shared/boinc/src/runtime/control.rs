//! The client's queue of control messages for one application.
//!
//! Model: the channel holds one message, so a client queues. A suspend cancels a waiting resume and the other
//! way round, for only the last of them matters. An application that leaves a message unread for 180 s is
//! taken for stuck: it is killed and started again, if it ever read one.

use std::collections::VecDeque;

use fallow_domain::{Duration, Instant};

use super::channel::{Channel, Channels};
use super::message::ProcessControl;

/// How long a message may stay unread before the application is killed and restarted (BOINC: 180 s).
pub const UNREAD_MAX: Duration = Duration::from_secs(180);

/// Messages that wait for the application to read the one before.
#[derive(Clone, Debug, Default)]
pub struct ControlQueue {
    waiting: VecDeque<ProcessControl>,
    /// When the message that is now in the channel was put there, until it is read.
    unread_since: Option<Instant>,
    /// The first one that waits could not even be put there.
    unsent: bool,
    was_read: bool,
}

impl ControlQueue {
    /// Adds a message. It is sent by the next [`Self::turn`] that finds the channel empty.
    pub fn push(&mut self, message: ProcessControl) {
        let cancelled = match message {
            ProcessControl::Suspend => Some(ProcessControl::Resume),
            ProcessControl::Resume => Some(ProcessControl::Suspend),
            _ => None,
        };
        // A second message of the same kind would say nothing new; so the queue holds five at most.
        self.waiting.retain(|&other| Some(other) != cancelled && other != message);
        self.waiting.push_back(message);
    }

    /// Sends the next message if the last one has been read. To be called every second, and after a push.
    pub fn turn(&mut self, channels: Channels<'_>, now: Instant) {
        if channels.is_full(Channel::ControlRequest) {
            self.unread_since.get_or_insert(now);
            return;
        }
        self.was_read |= self.unread_since.is_some() && !self.unsent;
        // One that could not be put there goes on waiting: an application that has spoilt its channel reads
        // nothing.
        let since = self.unread_since.take().filter(|_| std::mem::take(&mut self.unsent));
        let Some(&message) = self.waiting.front() else { return };
        if channels.send(Channel::ControlRequest, message.text()) {
            self.waiting.pop_front();
            self.unread_since = Some(now);
        } else {
            self.unsent = true;
            self.unread_since = since.or(Some(now));
        }
    }

    /// The application was stopped until now: that it has read nothing meanwhile is not its fault.
    pub fn excuse(&mut self, now: Instant) {
        self.unread_since = self.unread_since.map(|_| now);
    }

    /// Whether the application has read any message.
    pub fn was_read(&self) -> bool {
        self.was_read
    }

    /// How long the message in the channel has been unread by now; zero if there is none.
    pub fn unread_for(&self, now: Instant) -> Duration {
        self.unread_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Whether the channel takes no messages.
    pub fn is_blocked(&self) -> bool {
        self.unsent
    }

    /// True when the application has left a message unread for [`UNREAD_MAX`].
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.unread_since.is_some_and(|since| now.since(since) > UNREAD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::FILE_LEN;
    use super::ProcessControl::{Quit, Resume, Suspend};
    use super::*;
    use std::sync::atomic::AtomicU8;

    fn at(secs: i64) -> Instant {
        Instant::EPOCH + Duration::from_secs(secs)
    }

    fn received(channels: Channels<'_>) -> Option<ProcessControl> {
        ProcessControl::parse(&channels.receive(Channel::ControlRequest)?)
    }

    #[test]
    fn messages_arrive_one_by_one_and_in_order() {
        let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect();
        let channels = Channels::new(&memory).unwrap();
        let mut queue = ControlQueue::default();
        queue.push(Suspend);
        queue.turn(channels, at(0));
        queue.push(Quit);
        queue.turn(channels, at(1));
        assert_eq!(received(channels), Some(Suspend));
        queue.turn(channels, at(2));
        assert_eq!(received(channels), Some(Quit));
        queue.turn(channels, at(3));
        assert_eq!(received(channels), None);
    }

    #[test]
    fn a_suspend_cancels_a_waiting_resume_and_the_other_way_round() {
        let mut queue = ControlQueue::default();
        for message in [Resume, Suspend, Resume, Quit, Resume] {
            queue.push(message);
        }
        assert_eq!(queue.waiting, [Quit, Resume]);
    }

    #[test]
    fn an_application_whose_channel_cannot_be_written_is_stuck_too() {
        struct Spoilt;
        impl super::super::channel::ChannelMemory for Spoilt {
            fn read(&self, _: usize, _: &mut [u8]) -> bool {
                false
            }
            fn write(&self, _: usize, _: &[u8]) -> bool {
                false
            }
        }
        let mut queue = ControlQueue::default();
        queue.push(Suspend);
        for second in 10..=190 {
            queue.turn(Channels::over(&Spoilt), at(second));
            assert!(!queue.is_stuck(at(second)), "{second}");
        }
        assert!(queue.is_stuck(at(191)));
    }

    #[test]
    fn an_application_that_reads_nothing_for_180_s_is_stuck() {
        let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect();
        let channels = Channels::new(&memory).unwrap();
        let mut queue = ControlQueue::default();
        queue.push(Suspend);
        queue.turn(channels, at(10));
        queue.turn(channels, at(100));
        assert!(!queue.is_stuck(at(190)));
        assert!(queue.is_stuck(at(191)));
        queue.excuse(at(191));
        assert!(!queue.is_stuck(at(371)) && queue.is_stuck(at(372)));
        assert_eq!(received(channels), Some(Suspend));
        queue.turn(channels, at(192));
        assert!(!queue.is_stuck(at(1_000)));
    }
}
