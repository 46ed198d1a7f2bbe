//! Local control: a socket in the data directory, one line of JSON each way.
//!
//! Who may speak: the user that the agent runs as, and root. The file's mode says so, and the kernel's word on the
//! peer is checked besides.

pub mod client;
pub mod protocol;
pub mod server;
pub mod status;
