//! Where the coordinator listens, on ports that stay the same, and by which URL its projects are known.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use fallow_store::{Batch, Format, Store, no_migration};
use fallow_tls::Address;
use rand::TryRng as _;
use rand::rngs::SysRng;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::projects_url::{self, Served, Wanted};
use super::{Options, StartError};

const FORMAT: Format = Format { name: "addresses", version: 1, migrate: no_migration };
const KEY: &[u8] = b"daemon/addresses";
/// Free ports are looked for here: below the range from which the system takes ports for outgoing
/// connections, any of which could have taken ours by the time of a restart.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Connections that may wait to be accepted; the kernel's own limit is usually the same.
const BACKLOG: i32 = 4_096;
/// Ports tried before the system is asked for one.
const TRIES: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredAddresses {
    grpc: SocketAddr,
    http: SocketAddr,
    /// By which the projects are known; none in what earlier versions stored: it follows from `http` then.
    #[serde(default)]
    projects_url: Option<String>,
    /// Somebody asked for that URL: it does not follow from where the coordinator listens.
    #[serde(default)]
    is_url_asked: bool,
    /// Where agents reach the coordinator, as it was said last; empty where it follows from `grpc`.
    #[serde(default)]
    advertise: Vec<String>,
}

/// Where to listen, and what to tell agents: what is asked for, or else what it was.
pub(super) struct Places {
    pub(super) listen: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) advertise: Vec<Address>,
}

/// This machine's own, any port.
const OWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Finds them. What is left out at a start is as it was at the one before.
pub(super) fn places(store: &dyn Store, options: &Options) -> Result<Places, StartError> {
    let kept = kept(store)?;
    let kept = kept.as_ref();
    let advertise = match options.advertise.is_empty() {
        false => options.advertise.clone(),
        true => kept
            .map(|kept| kept.advertise.iter().filter_map(|text| text.parse().ok()).collect())
            .unwrap_or_default(),
    };
    Ok(Places {
        listen: options.listen.unwrap_or_else(|| kept.map_or(OWN, |kept| kept.grpc)),
        http: options.http.unwrap_or_else(|| kept.map_or(OWN, |kept| kept.http)),
        advertise,
    })
}

/// Why an address is listened at: what can be done when it is taken depends on it.
#[derive(Clone, Copy)]
enum Use {
    /// It is kept, for these.
    Kept(&'static str),
    /// It was asked for with this option.
    Asked(&'static str),
}

/// Refuses addresses that cannot be served at, and at a first start ports that are taken: nothing is made
/// then. Later ones find that out when they listen, after they know who holds the directory.
pub(super) fn check(options: &Options) -> Result<(), StartError> {
    let (listen, http) = (options.listen.unwrap_or(OWN), options.http.unwrap_or(OWN));
    if !http.is_ipv4() {
        return Err(StartError::NotIpv4(http));
    }
    let is_same = listen.port() != 0 && listen == http;
    if is_same {
        return Err(StartError::SameAddress(http));
    }
    if !options.dir.join("store").exists() {
        let _ = projects_url::served(&Wanted {
            url: options.projects_url.as_deref(),
            behind_proxy: options.projects_behind_proxy,
            // Which port it will be changes nothing.
            listens: SocketAddr::new(http.ip(), http.port().max(1)),
            advertised: &options.advertise,
            plain: options.allow_plain_http,
        })?;
        for (option, address) in [("--listen", listen), ("--http", http)] {
            if address.port() != 0 {
                drop(listener(address, Use::Asked(option))?);
            }
        }
    }
    Ok(())
}

/// Binds both addresses, and keeps them for the next start.
pub(super) fn bind(store: &dyn Store, places: &Places) -> Result<(TcpListener, TcpListener), StartError> {
    let (listen, http) = (places.listen, places.http);
    let kept = kept(store)?;
    let is_fixed = has_projects(store);
    if let Some(StoredAddresses { http: kept, .. }) = kept
        && is_fixed
        && is_elsewhere(http, kept)
    {
        return Err(StartError::AddressFixed { asked: http, kept });
    }
    let kept = kept.as_ref();
    let grpc_kept = kept.map(|kept| kept.grpc).filter(|kept| listen.port() == 0 && kept.ip() == listen.ip());
    // A port that is asked for where it was kept already is as the kept one: agents know it.
    let grpc_is_kept = kept.is_some_and(|kept| listen.port() == 0 || kept.grpc == listen);
    let grpc_use = if grpc_is_kept { Use::Kept("agents and operators") } else { Use::Asked("--listen") };
    let http_use = if kept.is_some() && is_fixed { Use::Kept("its projects") } else { Use::Asked("--http") };
    let grpc = listener(grpc_kept.unwrap_or(listen), grpc_use)?;
    let http_kept = kept.map(|kept| kept.http).filter(|kept| is_fixed || !is_elsewhere(http, *kept));
    let http_asked = http;
    let http = listener(http_kept.unwrap_or(http), http_use)?;
    let projects_url = kept.and_then(|kept| kept.projects_url.clone());
    // A URL that was asked for before may lead nowhere if the projects are served elsewhere now. That is kept
    // with the new address: this start may yet fail, and the next one finds nothing moved.
    let is_moved = kept.is_some_and(|kept| is_elsewhere(http_asked, kept.http));
    let is_url_asked = kept.is_some_and(|kept| kept.is_url_asked && !is_moved);
    let advertise = places.advertise.iter().map(ToString::to_string).collect();
    let (grpc_at, http_at) = (local(&grpc)?, local(&http)?);
    let now = StoredAddresses { grpc: grpc_at, http: http_at, projects_url, is_url_asked, advertise };
    if kept != Some(&now) {
        keep(store, &now)?;
    }
    Ok((grpc, http))
}

/// Whether projects are asked to be served elsewhere than before.
fn is_elsewhere(asked: SocketAddr, kept: SocketAddr) -> bool {
    asked.ip() != kept.ip() || asked.port() != 0 && asked.port() != kept.port()
}

/// The URL by which the projects are known: the kept one, or the one that is asked for at a first start,
/// which is kept then.
pub(super) fn projects_url(
    store: &dyn Store,
    asked: Option<&str>,
    decide: impl Fn(Option<&str>) -> Result<Served, StartError>,
) -> Result<Served, StartError> {
    let kept = kept(store)?;
    let of_before = |kept: &StoredAddresses| format!("http://{}", kept.http);
    // As long as there is none, nobody knows any project by anything. What earlier versions served was known
    // by its address.
    let known = kept.as_ref().filter(|_| has_projects(store));
    let known = known.map(|kept| kept.projects_url.clone().unwrap_or_else(|| of_before(kept)));
    let asked = asked.map(|asked| asked.trim_end_matches('/'));
    if let (Some(asked), Some(known)) = (asked, &known)
        && asked != known
    {
        return Err(StartError::UrlFixed { asked: asked.to_owned(), kept: known.clone() });
    }
    // What somebody asked for holds also at the starts before the first project.
    let of_earlier = kept.as_ref().filter(|kept| kept.is_url_asked);
    let of_earlier = of_earlier.and_then(|kept| kept.projects_url.as_deref());
    let served = decide(known.as_deref().or(asked).or(of_earlier))?;
    if let Some(kept) = kept {
        let is_url_asked = kept.is_url_asked || asked.is_some();
        let projects_url = Some(served.url.clone());
        if (&kept.projects_url, kept.is_url_asked) != (&projects_url, is_url_asked) {
            keep(store, &StoredAddresses { projects_url, is_url_asked, ..kept })?;
        }
    }
    Ok(served)
}

fn has_projects(store: &dyn Store) -> bool {
    store.scan_prefix(b"project/").is_ok_and(|found| !found.is_empty())
}

fn kept(store: &dyn Store) -> Result<Option<StoredAddresses>, StartError> {
    let stored = store.get(KEY)?;
    Ok(stored.map(|value| FORMAT.read(KEY, &value)).transpose()?)
}

fn keep(store: &dyn Store, addresses: &StoredAddresses) -> Result<(), StartError> {
    let _ = store.apply_durable(Batch::new().put(KEY, FORMAT.write(KEY, addresses)?))?;
    Ok(())
}

pub(super) fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.local_addr().map_err(|source| StartError::Listen { address: unknown, source })
}

fn listener(address: SocketAddr, why: Use) -> Result<TcpListener, StartError> {
    let listener = match address.port() {
        0 => free(address.ip()),
        _ => listen_at(address),
    };
    let listener = listener.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            let hint = format!("`ss -ltnp sport = :{}` names it", address.port());
            match why {
                Use::Kept(what) => StartError::PortInUse { address, what, hint },
                Use::Asked(option) => StartError::PortTaken { address, option, hint },
            }
        }
        _ => StartError::Listen { address, source },
    })?;
    listener.set_nonblocking(true).map_err(|source| StartError::Listen { address, source })?;
    Ok(listener)
}

fn free(ip: IpAddr) -> std::io::Result<TcpListener> {
    for _ in 0..TRIES {
        let Ok(random) = SysRng.try_next_u32() else { break };
        // The remainder is below the range's length, so it fits.
        let port = PORTS.start + (random % u32::from(PORTS.end - PORTS.start)) as u16;
        if let Ok(listener) = listen_at(SocketAddr::new(ip, port)) {
            return Ok(listener);
        }
    }
    listen_at(SocketAddr::new(ip, 0))
}

/// As the standard library's, with a longer queue: after a restart a whole fleet connects at once, and
/// connections that find the queue full are reset.
fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::SledStore;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// At these addresses.
    fn bound(
        store: &SledStore,
        listen: SocketAddr,
        http: SocketAddr,
    ) -> Result<(TcpListener, TcpListener), StartError> {
        bind(store, &Places { listen, http, advertise: Vec::new() })
    }

    fn options(listen: &str, http: &str) -> Options {
        Options { listen: Some(at(listen)), http: Some(at(http)), ..Options::at("d") }
    }

    #[test]
    fn r6_10_both_ports_may_be_on_any_address() {
        for (listen, http) in
            [("0.0.0.0:0", "10.0.0.1:0"), ("[::]:0", "127.0.0.1:0"), ("192.168.1.1:0", "192.168.1.1:0")]
        {
            check(&options(listen, http)).unwrap();
        }
        // All addresses, as long as it is known by which name clients reach them.
        let named = Options {
            advertise: vec!["lab.example.org:24001".parse().unwrap()],
            ..options("0.0.0.0:0", "0.0.0.0:0")
        };
        check(&named).unwrap();
        let error = check(&options("[::1]:0", "[::1]:0")).unwrap_err();
        assert!(error.to_string().contains("not an IPv4 address"), "{error}");
    }

    #[test]
    fn a_start_that_says_no_addresses_takes_those_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let first = Options {
            advertise: vec!["lab.example.org:24001".parse().unwrap()],
            ..options("127.0.0.2:0", "127.0.0.3:0")
        };
        let (grpc, http) = bind(&store, &places(&store, &first).unwrap()).unwrap();
        let at = (local(&grpc).unwrap(), local(&http).unwrap());
        drop((grpc, http));
        let next = places(&store, &Options::at("d")).unwrap();
        assert_eq!(((next.listen, next.http), &next.advertise), (at, &first.advertise));
        let (grpc, http) = bind(&store, &next).unwrap();
        assert_eq!((local(&grpc).unwrap(), local(&http).unwrap()), at);
    }

    #[test]
    fn r6_8_the_url_of_projects_is_kept_and_another_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let (_, http) = bound(&store, at("127.0.0.1:0"), at("127.0.0.1:0")).unwrap();
        let same = local(&http).unwrap();
        drop(http);
        let project = Batch::new().put(b"project/p".to_vec(), b"x".to_vec());
        let decide = |url: Option<&str>| {
            let url = url.unwrap_or("http://127.0.0.1:9").to_owned();
            Ok(Served { url, plain_url: None, allows_plain: true, behind_proxy: false })
        };
        // Until there is a project it may be another one.
        projects_url(&store, Some("https://early.example.org"), decide).unwrap();
        // That somebody says again what was said before moves nothing.
        for asked in [same, at("127.0.0.1:0")] {
            drop(bound(&store, at("127.0.0.1:0"), asked).unwrap());
            assert_eq!(projects_url(&store, None, decide).unwrap().url, "https://early.example.org");
        }
        // But elsewhere that URL may lead nowhere, also for the start after one that failed.
        let elsewhere = at("127.0.0.2:0");
        let refused = |_: Option<&str>| Err(StartError::NotIpv4(elsewhere));
        drop(bound(&store, at("127.0.0.1:0"), elsewhere).unwrap());
        assert!(projects_url(&store, None, refused).is_err());
        drop(bound(&store, at("127.0.0.1:0"), elsewhere).unwrap());
        assert_eq!(projects_url(&store, None, decide).unwrap().url, "http://127.0.0.1:9");
        let first = projects_url(&store, Some("https://lab.example.org/"), decide).unwrap();
        let _ = store.apply_durable(project).unwrap();
        assert_eq!(first.url, "https://lab.example.org");
        assert_eq!(projects_url(&store, None, decide).unwrap(), first);
        let other = projects_url(&store, Some("https://other.example.org"), decide).unwrap_err();
        assert!(other.to_string().contains("leave it out"), "{other}");
        drop(bound(&store, at("127.0.0.1:0"), elsewhere).unwrap());
        assert_eq!(projects_url(&store, None, decide).unwrap(), first);
    }

    #[test]
    fn a_port_that_is_taken_at_a_first_start_is_told_with_the_option_that_gives_another() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().map(|at| (at, taken)).unwrap();
        for (listen, http, option) in
            [(taken.0, at("127.0.0.1:0"), "--listen"), (at("127.0.0.1:0"), taken.0, "--http")]
        {
            let error = bound(&store, listen, http).unwrap_err();
            assert_eq!(error.exit_code().number(), 6);
            let text = error.to_string();
            assert!(
                text.contains(&format!("another port with {option}")) && !text.contains("keeps"),
                "{text}"
            );
        }
    }

    #[test]
    fn one_port_for_agents_and_projects_is_refused() {
        let same = "127.0.0.1:24001";
        let error = check(&options(same, same)).unwrap_err();
        assert_eq!(error.exit_code().number(), 3);
        assert!(error.to_string().contains("both name 127.0.0.1:24001"), "{error}");
    }

    #[test]
    fn ports_are_kept_and_a_taken_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        let any = at("127.0.0.1:0");
        let (grpc, http) = bound(&store, any, any).unwrap();
        let first = (local(&grpc).unwrap(), local(&http).unwrap());
        let taken = bound(&store, any, any).unwrap_err();
        assert!(matches!(&taken, StartError::PortInUse { address, .. } if *address == first.0), "{taken}");
        assert_eq!(taken.exit_code().number(), 6);
        drop((grpc, http));
        let (grpc, http) = bound(&store, any, any).unwrap();
        assert_eq!((local(&grpc).unwrap(), local(&http).unwrap()), first);
        let _ = store.apply_durable(Batch::new().put(b"project/p".to_vec(), b"x".to_vec())).unwrap();
        let moved = bound(&store, any, at("127.0.0.1:19999")).unwrap_err();
        assert!(matches!(moved, StartError::AddressFixed { .. }), "{moved}");
    }
}
