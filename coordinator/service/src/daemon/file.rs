//! What a running coordinator's `daemon.json` tells.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// `daemon.json` of a coordinator.
pub type DaemonFile = fallow_daemon::DaemonFile<Addresses>;

/// Where a coordinator is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Where agents and operators' tools connect to.
    pub fleet: String,
    /// Where its projects are.
    pub http: String,
    /// Its version.
    pub version: String,
}

impl Addresses {
    pub(super) fn new(grpc: SocketAddr, http: SocketAddr) -> Self {
        Self {
            fleet: format!("http://{grpc}"),
            http: format!("http://{http}"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
