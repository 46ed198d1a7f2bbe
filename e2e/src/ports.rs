//! Ports for programs that cannot be told to take any.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of which the kernel gives out none by itself, where it is set up as usual: nobody's connection takes
/// one of them before the program that it is for.
const FIRST: u16 = 16_384;
const COUNT: u16 = 16_000;

/// A port of this machine that nobody listens on, and that was not given before by this process.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Processes begin at different places.
    let begin = (std::process::id().wrapping_mul(257) % u32::from(COUNT)) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = (0..COUNT).map(|_| FIRST + (begin + GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT);
    ports.into_iter().find(is_free).expect("a free port")
}
