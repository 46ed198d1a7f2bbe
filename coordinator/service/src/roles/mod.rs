//! Operators with tokens of their own, and what each may do (R6.10).
//!
//! - [`rights`]: what a call needs and which roles have that, pure: the specification of the roles.
//! - [`operator`]: one operator: his name, role, projects and end, pure.
//! - [`registry`]: all of them, in the store and at hand.
//!
//! Whoever owns the coordinator's directory is an administrator by the permissions of its files, whatever
//! stands here: the last resort when every token is lost ([`Caller::Owner`]).

pub mod operator;
pub mod registry;
pub mod rights;

pub use operator::{Caller, Operator, OperatorName, Refusal};
pub use registry::{OperatorError, OperatorTerms, Operators};
pub use rights::{Right, Role};
