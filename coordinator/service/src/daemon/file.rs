//! What a running coordinator's `daemon.json` tells.

use std::net::SocketAddr;

use fallow_tls::{Address, AddressError};
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
    /// The fleet's port, as it is reached on the coordinator's own machine.
    ///
    /// # Errors
    /// [`AddressError`] when the file names none.
    pub fn local_fleet(&self) -> Result<Address, AddressError> {
        let address: Address = self.fleet.parse()?;
        match address.host() {
            "0.0.0.0" => format!("127.0.0.1:{}", address.port()).parse(),
            "::" => format!("[::1]:{}", address.port()).parse(),
            _ => Ok(address),
        }
    }

    pub(super) fn new(grpc: SocketAddr, http: &str) -> Self {
        Self {
            fleet: format!("https://{grpc}"),
            http: http.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
