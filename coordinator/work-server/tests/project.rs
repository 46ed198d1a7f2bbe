//! The lab's own project, over real HTTP: by hand-made requests and by captured ones. The
//! stock client's turn is in `e2e`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "project/bounds.rs"]
mod bounds;
#[path = "project/client.rs"]
mod client;
#[path = "project/copies.rs"]
mod copies;
#[path = "project/crowd.rs"]
mod crowd;
#[path = "project/failed.rs"]
mod failed;
#[path = "project/fixture.rs"]
mod fixture;
#[path = "project/http.rs"]
mod http;
#[path = "project/identity.rs"]
mod identity;
#[path = "project/pages.rs"]
mod pages;
#[path = "project/scheduler.rs"]
mod scheduler;
#[path = "project/signed_elsewhere.rs"]
mod signed_elsewhere;
#[path = "project/spread.rs"]
mod spread;
#[path = "project/stalled.rs"]
mod stalled;
#[path = "project/sticky_inputs.rs"]
mod sticky_inputs;
#[path = "project/types.rs"]
mod types;
#[path = "project/upload.rs"]
mod upload;
#[path = "project/wait.rs"]
mod wait;
