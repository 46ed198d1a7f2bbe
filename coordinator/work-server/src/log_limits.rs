//! How often a project says in the log what becomes of jobs on hosts (R6.10): hosts can cause each of these
//! lines as often as they like, also by doing nothing. One of each kind is written in ten seconds at most;
//! its `times` is how often that happened since the one before.

use fallow_telemetry::RateLimit;

/// The rate limit of each kind of line.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    pub(crate) registered: RateLimit,
    pub(crate) not_awaited: RateLimit,
    pub(crate) aborts: RateLimit,
    pub(crate) failed: RateLimit,
    pub(crate) lost: RateLimit,
    pub(crate) sent_again: RateLimit,
    pub(crate) late: RateLimit,
}
