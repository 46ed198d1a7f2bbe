//! What projects say of their applications, files and jobs, as the client keeps and stores it.
//!
//! **Model.** A server's reply is converted once, when it arrives (`from_reply.rs`), and from then on nothing
//! depends on how it was written. A request is written from these (`request.rs`). So a parser can change, and
//! what hosts have stored stays readable.
//!
//! **Stored.** Each is part of a record of the store (`record.rs`). In the store fields have the names of
//! BOINC's elements, whatever they are called here; those do not change without a migration
//! (`tests/stored.rs`).

mod application;
mod file;
mod from_reply;
mod job;

pub(crate) use application::{Application, ApplicationVersion, CoprocessorUse};
pub(crate) use file::{FileDescription, FileReference};
pub(crate) use job::{JobDescription, Workunit};
