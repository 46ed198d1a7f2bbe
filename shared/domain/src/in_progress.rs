//! A job in progress, as whoever plans with a host's work sees it.

use crate::{Duration, Instant, Usage};

/// A job that a host already has, from any project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InProgress {
    /// Its deadline.
    pub deadline: Instant,
    /// Its estimated running time left.
    pub remaining: Duration,
    /// What it uses.
    pub usage: Usage,
}
