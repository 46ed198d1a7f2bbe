//! What can go wrong with keys, certificates and connections.

use crate::Address;

/// A key or certificate cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// In making or reading one.
    #[error("a key or certificate cannot be made or read")]
    Certificate(#[from] rcgen::Error),
    /// In using one.
    #[error("a key or certificate cannot be used")]
    Use(#[from] rustls::Error),
    /// A certificate of another form than ours.
    #[error("this is no certificate of a fleet ({0})")]
    Foreign(&'static str),
}

/// Why there is no connection to a coordinator.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no address to connect to.
    #[error("no address of a coordinator is known")]
    NoAddress,
    /// Nobody answers.
    #[error("no coordinator answers at {address}")]
    Unreachable {
        /// Where.
        address: Address,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What answers proves to be no coordinator of this fleet.
    #[error(
        "what answers at {address} is not this fleet's coordinator: its certificate is of another authority. Nothing secret was \
         sent to it. See whether the address is right; if the fleet's authority was made anew, hosts must enrol again"
    )]
    OtherAuthority {
        /// Where.
        address: Address,
    },
    /// Its certificate is of the authority, and not valid now.
    #[error(
        "the certificate of the coordinator at {address} is not valid now: see whether the clocks of this machine and of the \
         coordinator's are right"
    )]
    NotValidNow {
        /// Where.
        address: Address,
        /// Which limit was crossed.
        #[source]
        source: rustls::Error,
    },
    /// It does not speak TLS, or not as a coordinator does.
    #[error(
        "{address}: something answers there, but it is not a coordinator's gRPC port: a coordinator has another port for its \
         projects; daemon.json in its directory names both, the right one as \"fleet\""
    )]
    NoCoordinator {
        /// Where.
        address: Address,
        /// What was wrong.
        #[source]
        source: std::io::Error,
    },
}
