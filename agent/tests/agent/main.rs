//! The agent's shell against the real world: real processes, real sockets, the real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod attach;
mod confinement;
mod confirmation;
mod copies;
mod creators;
mod cut_off;
mod daemon;
mod deaf;
mod disk;
mod disk_reports;
mod document_words;
mod gpus;
mod groups;
mod guard;
mod guest;
mod hiding;
mod host;
mod hostile;
mod hostile_groups;
mod hostile_jobs;
#[path = "../../../shared/tls/tests/support/incoming.rs"]
mod incoming;
mod job_outputs;
mod job_users;
mod link;
mod messages;
mod output_size;
mod owner;
mod people;
mod preferences;
mod private_tmp;
mod proxied;
#[path = "../../../shared/tls/tests/support/proxy.rs"]
mod proxy;
mod required_groups;
mod same_path;
mod small_disk;
mod spinning;
mod supervision;
mod support;
mod terminal;
mod time_bound;
mod transfers;
mod turns;
mod wayland;
mod x11;
mod yielding;
