//! What each host of a fleet is asked for, and why (R6.4): decisions as pure functions.
//!
//! Operators keep one document for the whole fleet, and groups: each chooses hosts by their labels
//! ([`Selector`]) and says in a file ([`Change`]) what is different for them. All of it together is a
//! [`DocumentSet`]; of the set and a host's labels follows what that host is asked for ([`Effective`]), each
//! value with its origin and with what it prevailed over.
//!
//! Order, low to high: built-in defaults, the fleet-wide document, groups by their precedence. The highest
//! that says a value wins; lists are one value; projects are merged by their names. At the end stand the
//! limits of the host's owner, which only tighten.
//!
//! An organisation may sign a set with a key that its coordinator does not have; hosts that know the public
//! part of it follow nothing else ([`Trust`], R6.10).
#![forbid(unsafe_code)]

mod caution;
mod change;
mod content;
mod difference;
mod effective;
mod facts;
mod file;
mod group;
mod preference;
mod relabel;
mod selector;
mod set;
mod signed;
mod utc;

pub use caution::cautions;
pub use change::{Change, ChangeError, FILE_BYTES_MAX, GroupText, ReadChange};
pub use content::{ContentHash, Contents};
pub use difference::{ValueChange, differences};
pub use effective::{Effective, Origin, Resolved, Wish};
pub use facts::labels_of;
pub use group::{Foreign, Group, GroupName, Groups, GroupsChanged, PRECEDENCE_MAX, ProjectWish};
pub use preference::{PREFERENCE_KEYS, Preference};
pub use relabel::LabelEdit;
pub use selector::{SELECTOR_MAX, Selector};
pub use set::{DocumentSet, GROUPS_MAX, SetProblem};
pub use signed::{
    Accepted, KeyPair, KeyPairError, NotAccepted, NotSignable, SIGNED_BYTES_MAX, SIGNED_KEYS_MAX,
    SaidDifference, Statement, StatementError, Trust, content_of, is_signed_by, said_differences, signable,
    signed_form, values_of,
};
pub use utc::utc;
