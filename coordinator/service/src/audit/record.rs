//! What is said of one deed.

use std::fmt;

use fallow_domain::{AgentId, printable};
use serde::{Deserialize, Serialize};

/// Bytes of each text of a record but the message.
const TEXT: usize = 500;
/// Bytes of an operator's message.
const MESSAGE: usize = 1_000;

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// Whoever has the coordinator's own token. The name is what his tool says: nobody has checked it. It
    /// holds an `@`, or is "operator" where his tool says none.
    Operator(String),
    /// An operator by a token of his own, with the name that was given to it.
    Named(String),
    /// The coordinator by itself.
    Coordinator,
    /// A host, by its certificate, or by the one that it has just been given.
    Agent(AgentId),
    /// Somebody who has shown nothing that is known.
    Stranger,
}

impl Default for Actor {
    /// An operator without a name.
    fn default() -> Self {
        Self::Operator(String::new())
    }
}

impl Actor {
    /// What he is called: an operator's name, an agent's id, or a word for the others.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Operator(name) | Self::Named(name) => name,
            Self::Coordinator => "coordinator",
            Self::Agent(id) => &id.0,
            Self::Stranger => "stranger",
        }
    }
}

/// The kinds of deeds, with the words for each, which stand in the chain: they are added to, never changed.
macro_rules! actions {
    ($($(#[$doc:meta])+ $action:ident = $words:literal,)+) => {
        /// What was done, or asked for in vain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Action {
            $($(#[$doc])+ $action,)+
        }

        impl Action {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$action),+];

            /// In words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$action => $words,)+
                }
            }
        }
    };
}

actions! {
    /// Enrolment tokens were made.
    TokensCreated = "tokens created",
    /// A token was ended.
    TokenRevoked = "token revoked",
    /// A host joined the fleet.
    Enrolled = "enrolled",
    /// A copy of a host became a host of its own.
    HostCopied = "host copied",
    /// Somebody wanted to join and was refused.
    EnrolmentRefused = "enrolment refused",
    /// Somebody wanted a link, or a newer certificate, and was refused.
    LinkRefused = "link refused",
    /// Somebody spoke without TLS at a port that speaks it, and was turned away.
    PlainRefused = "plain text refused",
    /// Somebody showed a certificate of another authority, or one that cannot be used.
    CertificateRefused = "certificate refused",
    /// A host was taken out of the fleet.
    HostRevoked = "host revoked",
    /// A host is not listed any more.
    HostForgotten = "host forgotten",
    /// Labels of a host were changed.
    HostLabelled = "host labelled",
    /// A new version of the documents was made.
    DocumentChanged = "document changed",
    /// An organisation's signature of a version came.
    DocumentSigned = "document signed",
    /// It was said by which keys documents are signed.
    OrganisationSet = "organisation set",
    /// A host did not take documents for what they are signed by.
    DocumentRefused = "document refused",
    /// It was said how changes go out.
    RolloutPlanned = "rollout planned",
    /// A rollout went on.
    RolloutStepped = "rollout",
    /// A rollout was taken back.
    RolloutTakenBack = "rollout taken back",
    /// A project was made.
    ProjectCreated = "project created",
    /// Settings of a project were changed.
    ProjectChanged = "project changed",
    /// A version of an application was added.
    AppVersionAdded = "app version added",
    /// Work was submitted: all of it, or a piece.
    Submitted = "submitted",
    /// A backup was made.
    BackedUp = "backed up",
    /// A backup took the coordinator's place.
    Restored = "restored",
    /// A new term of the documents began.
    TermBegun = "term begun",
    /// Something secret of the coordinator's was open to other users when it started.
    FoundOpen = "found open",
    /// The coordinator was stopped.
    Shutdown = "shutdown",
    /// Somebody called as an operator without the right token, or with one that was revoked or has expired.
    OperatorRefused = "operator refused",
    /// An operator wanted what his role does not allow.
    NotAllowed = "not allowed",
    /// Somebody became an operator.
    OperatorCreated = "operator created",
    /// An operator's token was ended.
    OperatorRevoked = "operator revoked",
}

impl Action {
    /// From its words.
    #[must_use]
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.words() == words)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    #[default]
    Done,
    /// It was not, and why.
    Refused(String),
}

/// A deed, without its place in the log. All texts are on one line and short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who.
    pub actor: Actor,
    /// The address at the other end of the connection; empty where there is none.
    pub from: String,
    /// What.
    pub action: Action,
    /// Of or to what.
    pub object: String,
    /// What was so before, where that is short; else empty.
    pub before: String,
    /// What is so now; likewise.
    pub after: String,
    /// Why, in the operator's words.
    pub message: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl Record {
    /// Something that was done.
    #[must_use]
    pub fn new(actor: Actor, from: &str, action: Action, object: &str) -> Self {
        Self {
            actor,
            from: from.to_owned(),
            action,
            object: printable::line(object, TEXT),
            before: String::new(),
            after: String::new(),
            message: String::new(),
            outcome: Outcome::Done,
        }
    }

    /// With what was so before and what is so now.
    #[must_use]
    pub fn changed(self, before: &str, after: &str) -> Self {
        Self { before: printable::line(before, TEXT), after: printable::line(after, TEXT), ..self }
    }

    /// With why.
    #[must_use]
    pub fn because(self, message: &str) -> Self {
        Self { message: printable::line(message, MESSAGE), ..self }
    }

    /// The same, refused.
    #[must_use]
    pub fn refused(self, why: &str) -> Self {
        Self { outcome: Outcome::Refused(printable::line(why, TEXT)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_found_by_its_words_and_no_two_share_them() {
        for &action in Action::ALL {
            assert_eq!(Action::from_words(action.words()), Some(action));
        }
        assert_eq!(Action::from_words("tokens"), None);
    }

    #[test]
    fn texts_of_a_record_are_on_one_line_and_have_an_end() {
        let record = Record::new(Actor::Stranger, "", Action::Enrolled, &"x\n".repeat(1_000));
        let record = record.changed("a\nb", "c").because(&"y".repeat(5_000)).refused("no\nwhy");
        assert_eq!((record.object.len() <= TEXT, record.message.len()), (true, MESSAGE));
        assert_eq!((record.before.contains('\n'), record.object.contains('\n')), (false, false));
        assert_eq!(record.outcome, Outcome::Refused("no\u{fffd}why".to_owned()));
    }
}
