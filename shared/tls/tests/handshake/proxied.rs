//! The same over a proxy of HTTP.

use fallow_tls::{Proxies, ProxyFault};

use super::proxy::{Manner, TestProxy};
use super::*;

/// Nobody else knows this name.
const LAB: &str = "lab.invalid";
const PASSWORD: &str = "hunter2";
/// As `alice` and this password are sent.
const ALICE: &str = "Basic YWxpY2U6aHVudGVyMg==";

fn proxies(proxy: &TestProxy, user: &str, without: &str) -> Proxies {
    let url = format!("http://{user}{}", proxy.address());
    Proxies::from_variables(|name| match name {
        "HTTPS_PROXY" => Some(url.clone().into()),
        "NO_PROXY" => Some(without.into()),
        _ => None,
    })
    .unwrap()
}

impl Fleet {
    fn named(&self, host: &str) -> Address {
        format!("{host}:{}", self.address.port()).parse().unwrap()
    }
}

/// Why there is no connection through this proxy, in all its words.
async fn refused(fleet: &Fleet, proxy: &TestProxy, user: &str) -> (ConnectError, String) {
    let connector = fleet.connector(None).through(proxies(proxy, user, ""));
    let error = connector.connect(&fleet.named(LAB)).await.unwrap_err();
    let mut text = format!("{error:?} {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        text += &format!(" {source:?} {source}");
        cause = source.source();
    }
    for secret in [PASSWORD, "alice", ALICE] {
        assert!(!text.contains(secret), "{text}");
    }
    (error, text)
}

#[tokio::test]
async fn r6_10_a_host_is_known_through_a_proxy_as_without_one_and_the_name_is_the_proxys_to_resolve() {
    let mut fleet = Fleet::start(now()).await;
    let proxy = TestProxy::start(Manner::Wants(ALICE));
    let key = HostKey::generate().unwrap();
    let proxies = proxies(&proxy, &format!("alice:{PASSWORD}@"), "");
    let host = fleet.connector(Some(fleet.host(&key, now()))).through(proxies);
    fleet.address = fleet.named(LAB);
    let Peer::Host(shown) = fleet.greeted(&host).await else { panic!("nobody") };
    assert_eq!(shown.key, key.fingerprint());
    assert_eq!(proxy.asked(), [format!("CONNECT {}", fleet.address)]);
}

/// `0.0.0.0` is this machine, and no address that is known to be.
#[tokio::test]
async fn r6_10_what_is_listed_and_this_machine_are_reached_without_the_proxy() {
    let mut fleet = Fleet::start(now()).await;
    let proxy = TestProxy::start(Manner::Open);
    let local = fleet.address.clone();
    let mut asked = 0;
    for (address, without, is_through) in [
        (local, "", false),
        (fleet.named("localhost"), "", false),
        (fleet.named("0.0.0.0"), "", true),
        (fleet.named("0.0.0.0"), "0.0.0.0/8", false),
        (fleet.named("0.0.0.0"), "*", false),
    ] {
        let connector = fleet.connector(None).through(proxies(&proxy, "", without));
        fleet.address = address;
        fleet.greeted(&connector).await;
        asked += usize::from(is_through);
        assert_eq!(proxy.asked().len(), asked, "{} {without}", fleet.address);
    }
}

#[tokio::test]
async fn r6_10_a_proxy_that_opens_tls_is_refused_as_another_authority() {
    let fleet = Fleet::start(now()).await;
    let in_the_middle = Fleet::start(now()).await;
    let proxy = TestProxy::start(Manner::Elsewhere(in_the_middle.address.port()));
    let (error, text) = refused(&fleet, &proxy, &format!("alice:{PASSWORD}@")).await;
    assert!(matches!(error, ConnectError::OtherAuthority { .. }), "{text}");
    assert!(text.contains(&format!("the proxy at {} (HTTPS_PROXY) opens TLS", proxy.address())), "{text}");
}

#[tokio::test]
async fn r6_10_a_proxy_that_leads_nowhere_is_named_with_what_it_said_and_what_to_do() {
    let fleet = Fleet::start(now()).await;
    let (user, place) = (format!("alice:{PASSWORD}@"), fleet.named(LAB));
    let proxy = TestProxy::start(Manner::Wants("Basic of another"));
    let at = proxy.address();
    for (manner, user, says) in [
        (
            Manner::Says("HTTP/1.1 403 Forbidden\r\n\r\n"),
            user.as_str(),
            format!(
                "the proxy at {at} (HTTPS_PROXY) refused CONNECT to {place} (403): ask for that port to be allowed, or set NO_PROXY"
            ),
        ),
        (
            Manner::Says("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
            &user,
            format!("the proxy at {at} (HTTPS_PROXY) did not get through to {place} (503)"),
        ),
        (
            Manner::Wants("Basic of another"),
            &user,
            format!("the proxy at {at} does not take the user and the password in HTTPS_PROXY"),
        ),
        (
            Manner::Wants("Basic of another"),
            "",
            format!("wants a user and a password for CONNECT to {place} (407): give them in HTTPS_PROXY"),
        ),
        (
            Manner::Says("HTTP/1.1 200 OK\r\n\r\n"),
            &user,
            format!("no coordinator answers at {place}: the proxy at {at} (HTTPS_PROXY) opened the way"),
        ),
        (Manner::Says(""), &user, "and ended the connection".to_owned()),
        (Manner::Endless, &user, format!("{at} is no HTTP proxy (the head of its answer has no end)")),
    ] {
        proxy.becomes(manner);
        let (error, text) = refused(&fleet, &proxy, user).await;
        assert!(matches!(error, ConnectError::Proxy { .. }) && text.contains(&says), "{text}, not {says}");
    }
}

#[tokio::test]
async fn r6_10_where_no_proxy_listens_nobody_is_reached_directly_instead() {
    let fleet = Fleet::start(now()).await;
    // Bound and not listened at: connections to it are refused, and nobody else gets it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let proxies = Proxies::from_variables(|name| (name == "ALL_PROXY").then(|| url.clone().into())).unwrap();
    let connector = fleet.connector(None).through(proxies);
    let error = connector.connect(&fleet.named("0.0.0.0")).await.unwrap_err();
    let is_unreachable = matches!(&error, ConnectError::Proxy { fault: ProxyFault::Unreachable(_), .. });
    assert!(is_unreachable && error.may_pass() && error.to_string().contains("ALL_PROXY"), "{error}");
}
