//! The agent: the shell that turns the client on a host, with or without a coordinator (R6.1).
//!
//! It makes no decision. The client (`fallow-client`) says what to do and why; this crate does it and tells
//! what happened:
//!
//! ```text
//!   supervise  tasks as processes      ─┐                    ┌─►  supervise, transfer
//!   transfer   HTTP with projects      ─┤  Input             │ Action
//!   fleet      link to the coordinator ─┼────────►  engine ──┼─►  records (stored before anything is done)
//!   control    the owner's commands    ─┤  owns the Client   │
//!   clock      wake-up, signals        ─┘                    └─►  fleet (what changed), metrics, log
//! ```
//!
//! Beside it runs the [`guard`], a process that outlives the agent by some seconds so that nothing goes on
//! computing after a `kill -9`. Left out: Windows and macOS, Apple's GPUs.

pub mod account;
pub mod brand;
pub mod cgroup;
pub mod cli;
pub mod commands;
pub mod confine;
pub mod control;
pub mod dir;
pub mod engine;
pub mod error;
pub mod files;
pub mod fleet;
pub mod fleeting;
pub mod guard;
pub mod host;
pub mod input;
pub mod manual;
pub(crate) mod modes;
pub mod nameless;
pub mod owner;
pub mod preferences;
pub mod proc;
pub mod records;
pub mod scan;
pub mod supervise;
pub mod sys;
pub(crate) mod taking;
pub mod ticket;
pub mod transfer;
pub mod trash;
pub mod tree;
pub mod users;
pub mod walk;
