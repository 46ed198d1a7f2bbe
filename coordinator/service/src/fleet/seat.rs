//! Whose link counts where two processes have one identity (R6.10): a decision, without clock or connection.
//!
//! An agent draws a number at each start, its boot, and says it in each Hello. A connection with the same
//! boot is the same process again, and takes over. One with another boot is that process after a restart, or
//! a copy of it: a disk image that was started twice. Which of the two shows when the process that has the
//! link is asked whether it is there. So a link is never taken from a process that answers.

/// A process that has a host's identity, as its connection and its Hello show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Drawn at its start; empty of an older agent, which cannot be asked.
    pub(super) boot: Vec<u8>,
    /// What stands for the id of its machine; empty where it has none.
    pub(super) machine: Vec<u8>,
    /// Its address; empty where it is not known.
    pub(super) from: String,
}

/// Who has the link of a host, or had it last.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// Counts those who took it.
    number: u64,
    holder: Option<Process>,
}

/// What comes of a wish for the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is the caller's, under this number.
    Taken(u64),
    /// Another process has it, under this number, and has to be asked whether it is there.
    Held(u64, Process),
}

impl Seat {
    /// The number of whoever has the link, or had it last.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the process that has the link is this one: only it knows its boot.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        self.holder.as_ref().is_some_and(|holder| !holder.boot.is_empty() && holder.boot == process.boot)
    }

    /// Somebody wants the link. `silent` is the number of a holder who was asked and did not answer.
    pub(super) fn claim(&mut self, process: &Process, silent: Option<u64>) -> Claim {
        let can_be_asked = |holder: &&Process| !holder.boot.is_empty();
        let other = self.holder.as_ref().filter(can_be_asked).filter(|holder| holder.boot != process.boot);
        match other {
            Some(other) if silent != Some(self.number) => Claim::Held(self.number, other.clone()),
            _ => {
                self.number += 1;
                self.holder = Some(process.clone());
                Claim::Taken(self.number)
            }
        }
    }

    /// The link that has this number is over.
    pub(super) fn leave(&mut self, number: u64) {
        if self.number == number {
            self.holder = None;
        }
    }

    /// Whether the link that had this number is over, or another's by now.
    pub(super) const fn is_left(&self, number: u64) -> bool {
        self.number != number || self.holder.is_none()
    }
}

impl Process {
    /// What their machines' ids say of two processes with one identity, in words.
    pub(super) fn machine_beside(&self, other: &Self) -> &'static str {
        match (self.machine.is_empty() || other.machine.is_empty(), self.machine == other.machine) {
            (true, _) => "on a machine without an id, or beside one",
            (false, true) => "on the same machine, or one with a copied id",
            (false, false) => "on another machine",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(boot: &str) -> Process {
        Process { boot: boot.into(), machine: Vec::new(), from: String::new() }
    }

    #[test]
    fn r6_10_the_same_process_takes_over_from_itself_at_once() {
        let mut seat = Seat::default();
        assert_eq!(seat.claim(&process("a"), None), Claim::Taken(1));
        assert!(seat.is_of(&process("a")) && !seat.is_of(&process("b")) && !seat.is_of(&process("")));
        assert_eq!(seat.claim(&process("a"), None), Claim::Taken(2));
        seat.leave(1);
        assert!(seat.is_left(1) && !seat.is_left(2), "the older link's end is not the newer's");
    }

    #[test]
    fn r6_10_another_process_takes_over_only_from_one_that_is_silent_or_has_left() {
        let mut seat = Seat::default();
        seat.claim(&process("a"), None);
        let held = Claim::Held(1, process("a"));
        assert_eq!(seat.claim(&process("b"), None), held);
        assert_eq!(seat.claim(&process("b"), Some(0)), held, "another holder's silence says nothing");
        assert_eq!(seat.claim(&process("b"), Some(1)), Claim::Taken(2));
        // Of two that have asked in vain at the same time, one has it.
        assert_eq!(seat.claim(&process("c"), Some(1)), Claim::Held(2, process("b")));
        seat.leave(2);
        assert_eq!(seat.claim(&process("c"), None), Claim::Taken(3));
    }

    #[test]
    fn r6_10_an_older_agent_that_cannot_be_asked_is_taken_over_from_and_takes_over_from_nobody_who_answers() {
        let mut seat = Seat::default();
        for (time, boot) in ["", "", "a"].into_iter().enumerate() {
            assert_eq!(seat.claim(&process(boot), None), Claim::Taken(time as u64 + 1));
        }
        assert_eq!(seat.claim(&process(""), None), Claim::Held(3, process("a")));
        assert_eq!(seat.claim(&process(""), Some(3)), Claim::Taken(4));
    }

    #[test]
    fn r6_10_ids_of_machines_tell_copies_on_other_machines_where_both_are_known() {
        let on = |machine: &str| Process { machine: machine.into(), ..process("a") };
        assert_eq!(on("m").machine_beside(&on("n")), "on another machine");
        assert!(on("m").machine_beside(&on("m")).starts_with("on the same machine"));
        assert!(on("").machine_beside(&on("")).starts_with("on a machine without an id"));
    }
}
