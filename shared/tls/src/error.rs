//! What can go wrong with keys, certificates and connections.

use crate::Address;
use crate::proxy::{Proxy, ProxyFault};

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
         sent to it. See whether the address is right; if the fleet's authority was made anew, hosts must enrol again{}",
        opened_by(.proxy.as_ref())
    )]
    OtherAuthority {
        /// Where.
        address: Address,
        /// The proxy on the way.
        proxy: Option<Proxy>,
    },
    /// The proxy on the way does not lead there.
    #[error("{}", proxy_text(.proxy, .address, .fault))]
    Proxy {
        /// The proxy.
        proxy: Proxy,
        /// Where it was to lead.
        address: Address,
        /// What is wrong with it.
        fault: ProxyFault,
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

impl ConnectError {
    /// True when trying again soon may help without anybody's doing.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Proxy { fault, .. } => fault.may_pass(),
            Self::NoAddress
            | Self::OtherAuthority { .. }
            | Self::NotValidNow { .. }
            | Self::NoCoordinator { .. } => false,
        }
    }
}

fn opened_by(proxy: Option<&Proxy>) -> String {
    proxy.map_or_else(String::new, |proxy| {
        format!(
            ". Or the proxy at {proxy} ({}) opens TLS: ask for this address to be left alone, or set NO_PROXY",
            proxy.variable()
        )
    })
}

fn proxy_text(proxy: &Proxy, address: &Address, fault: &ProxyFault) -> String {
    let variable = proxy.variable();
    match fault {
        ProxyFault::Unreachable(source) => format!(
            "the proxy at {proxy} does not answer ({source}): see whether {variable} names the right one, or set NO_PROXY to reach \
             {address} without it"
        ),
        ProxyFault::Silent(patience) => format!(
            "the proxy at {proxy} ({variable}) was asked for CONNECT to {address} and said nothing within {} s: see whether the \
             coordinator runs and can be reached from there",
            patience.as_secs()
        ),
        ProxyFault::Ended(source) => format!(
            "the proxy at {proxy} ({variable}) was asked for CONNECT to {address} and ended the connection ({source}): see \
             whether {variable} names an HTTP proxy"
        ),
        ProxyFault::NotHttp(why) => {
            format!("{proxy} is no HTTP proxy ({why}): see whether {variable} names the right host and port")
        }
        ProxyFault::Refused { status: 407, knew_user: true } => format!(
            "the proxy at {proxy} does not take the user and the password in {variable} for CONNECT to {address} (407): see \
             whether they are right"
        ),
        ProxyFault::Refused { status: 407, knew_user: false } => format!(
            "the proxy at {proxy} wants a user and a password for CONNECT to {address} (407): give them in {variable}, as \
             http://USER:PASSWORD@{proxy}"
        ),
        ProxyFault::Refused { status, .. } if *status >= 500 => format!(
            "the proxy at {proxy} ({variable}) did not get through to {address} ({status}): see whether the coordinator runs and \
             can be reached from there"
        ),
        ProxyFault::Refused { status, .. } => format!(
            "the proxy at {proxy} ({variable}) refused CONNECT to {address} ({status}): ask for that port to be allowed, or set \
             NO_PROXY to reach it directly"
        ),
        ProxyFault::Cut(source) => format!(
            "no coordinator answers at {address}: the proxy at {proxy} ({variable}) opened the way, and the connection ended \
             ({source}); see whether the coordinator runs"
        ),
    }
}
