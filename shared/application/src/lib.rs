//! What a BOINC application written in Rust links against (R6.2).
//!
//! A volunteer client starts an application in a directory of its own, a *slot*, and talks to it through
//! shared memory. This library is the application's end of that: it reports progress, obeys suspend, resume,
//! quit and abort, says when to checkpoint, finds the files that the client has laid out, and ends the
//! process by itself when the client is gone. It works under the stock BOINC client (7 and 8) and under
//! `fallow-agent`; without a client the same program runs standalone, which is how one tries it out.
//!
//! ```no_run
//! use fallow_application::Application;
//!
//! let app = Application::start()?;
//! let input = std::fs::read_to_string(fallow_application::resolve("in")?)?;
//! let steps = input.trim().parse::<u64>()?;
//! for step in 0..steps {
//!     // ... compute a little, a tenth of a second at most ...
//!     app.fraction_done(step as f64 / steps as f64);
//!     if app.time_to_checkpoint() {
//!         app.save_checkpoint("checkpoint".as_ref(), &step.to_string())?;
//!     }
//! }
//! fallow_application::write_output("out", b"result\n")?;
//! app.finish(0)
//! # ; #[allow(unreachable_code)] Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program whose work is a range from one number to another needs only its steps: [`program`] is all the
//! rest.
//!
//! # The contract
//! Call [`Application::fraction_done`] (or [`Application::poll`]) from every computing thread at least ten
//! times a second: **that is where a suspended application stops.** BOINC's own library stops threads with
//! signals; here a thread stops only where it says, so that no lock is held while it sleeps. Quit, abort and
//! the death of the client need no cooperation: a thread of the library ends the process, at any moment but
//! inside [`Application::uninterrupted`].
//!
//! # What it does when
//! - *suspend*: computing threads sleep at their next call, the process stays; *resume* wakes them.
//! - *quit*: exit code 0 and no finish file; the client starts the application again later.
//! - *abort*: exit code 194.
//! - *client gone*: looked for every second; exit code 0. Without a `client_pid`, after 30 s with no
//!   heartbeat.
//! - *another instance in the slot*: waits 35 s for its lock, then asks to be started again in 600 s.
//! - *no `init_data.xml`, or one that cannot be read*: standalone.
//!
//! Time is counted in ticks of 100 ms that the library's thread has lived through, not by a clock: a machine
//! that slept, or a process that was stopped, has missed no heartbeat.
//!
//! # Left out
//! SysV shared memory (a project gets the mapped file because the API version is in the executable, see
//! [`API_VERSION`]), graphics, trickle messages, and catching of crashes: a panic ends with Rust's code 101,
//! a wild pointer with its signal, and the client reports both as errors.

mod application;
pub mod checkpoint;
mod clock;
mod error;
mod files;
mod link;
mod lock;
pub mod mapping;
pub mod program;
mod tick;
mod watch;

pub use application::{API_VERSION, Application};
pub use checkpoint::write_atomically;
pub use error::StartError;
pub use files::{resolve, write_output};

/// What a client has told the application, and the types in it.
pub use fallow_boinc::runtime::{exit, init_data::AppInitData};
pub use fallow_domain::Duration;
