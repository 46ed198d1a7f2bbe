//! The HTTP proxy on the way out, where a network lets nobody out but through one (R6.10).
//!
//! Model: the environment names proxies as it does for curl ([`Proxies::from_environment`]). It is read once,
//! at the start, and a value that means nothing is an error then. [`Proxies::towards`] says which proxy leads
//! to a host, if one does. The fleet link asks it for a tunnel (`tunnel`), and speaks TLS within it: who is
//! at its end is proved as without a proxy, so one that opens TLS is refused. Names are the proxy's to
//! resolve. This very machine is never reached through a proxy.
//!
//! Omitted: proxies that are themselves spoken to over TLS or SOCKS, and other credentials than Basic ones.

mod tunnel;
mod variables;

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use hyper_util::client::proxy::matcher::Matcher;
use tonic::codegen::http::{HeaderValue, Uri};

use crate::Address;
pub use tunnel::ProxyFault;
pub(crate) use tunnel::open;
pub use variables::BadProxies;

/// Which proxies lead where. The default has none.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<Known>>);

struct Known {
    https: Option<Named>,
    http: Option<Named>,
    /// Knows the same two, and what is to be reached without them.
    matcher: Matcher,
}

/// A proxy, as a variable of the environment names it.
#[derive(Clone, PartialEq, Eq)]
struct Named {
    variable: &'static str,
    address: Address,
    /// As HTTP clients want it: with user and password.
    url: String,
}

/// A proxy that leads to some host. Shown, it is its host and port: what it wants to know of its users is
/// never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    named: Named,
    credentials: Option<HeaderValue>,
}

impl Proxies {
    /// Those that the environment of this process names: `https_proxy` or `HTTPS_PROXY` for https and the
    /// fleet link, `http_proxy` for plain http, in small letters only as curl has it, and `all_proxy` or
    /// `ALL_PROXY` for what these say nothing of. Small letters prevail. `no_proxy` or `NO_PROXY` lists what
    /// is reached without: names of hosts and domains, numbers, networks as in `10.0.0.0/8`, or `*`.
    ///
    /// # Errors
    /// [`BadProxies`] names the variables that cannot be understood, and never what they hold.
    pub fn from_environment() -> Result<Self, BadProxies> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// The same for other variables, whose values `get` gives.
    ///
    /// # Errors
    /// As [`Proxies::from_environment`].
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, BadProxies> {
        variables::read(get)
    }

    /// The proxy that leads to a host, given by name or number, by this scheme, `https` or `http`.
    #[must_use]
    pub fn towards(&self, scheme: &str, host: &str) -> Option<Proxy> {
        let known = self.0.as_ref()?;
        let host = host.strip_suffix('.').unwrap_or(host);
        if crate::is_this_host(host) {
            return None;
        }
        let is_bare_number = host.contains(':') && !host.starts_with('[');
        let host = if is_bare_number { format!("[{host}]") } else { host.to_owned() };
        // What is no host in a URL cannot be connected to either.
        let intercept = known.matcher.intercept(&format!("{scheme}://{host}/").parse::<Uri>().ok()?)?;
        let named = if scheme == "https" { &known.https } else { &known.http };
        let credentials = intercept.basic_auth().cloned();
        named.clone().map(|named| Proxy { named, credentials })
    }
}

impl Proxy {
    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.named.address
    }

    /// Which variable of the environment names it.
    #[must_use]
    pub const fn variable(&self) -> &'static str {
        self.named.variable
    }

    /// Its URL for an HTTP client, with user and password. It must not be shown.
    #[must_use]
    pub fn secret_url(&self) -> &str {
        &self.named.url
    }

    /// The value of `Proxy-Authorization`, where a user is given.
    pub(crate) const fn credentials(&self) -> Option<&HeaderValue> {
        self.credentials.as_ref()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named.address.fmt(f)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |named: &Option<Named>| named.as_ref().map(|named| named.address.to_string());
        let shown = self.0.as_ref().map(|known| (address(&known.https), address(&known.http)));
        f.debug_tuple("Proxies").field(&shown).finish()
    }
}
