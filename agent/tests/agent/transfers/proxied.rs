//! Projects behind a proxy (R6.10).

use fallow_client::TransferErrorKind;
use fallow_tls::Proxies;

use super::{Bench, Limits, Server, content, http};
use crate::proxy::{Manner, TestProxy};

/// What proxies are told of alice, whose password is hunter2.
const ALICE: &str = "Basic YWxpY2U6aHVudGVyMg==";

fn bench(proxy: &TestProxy, without: &'static str) -> Bench {
    let url = format!("http://alice:hunter2@{}", proxy.address());
    let proxies = Proxies::from_variables(|name| match name {
        "http_proxy" | "HTTPS_PROXY" => Some(url.clone().into()),
        "NO_PROXY" => Some(without.into()),
        _ => None,
    });
    Bench::behind(Limits::default(), proxies.unwrap())
}

#[tokio::test]
async fn r6_10_files_of_projects_come_and_go_through_the_proxy_but_where_none_is_wanted() {
    let server = Server::start(|asked| match asked.head.starts_with("get") {
        true => http("200 OK", "", &content()),
        false => http("200 OK", "", b"<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"),
    });
    let proxy = TestProxy::start(Manner::Wants(ALICE));
    let named = |host: &str, path: &str| server.url(path).replace("127.0.0.1", host);
    let mut bench = bench(&proxy, "0.0.0.0");
    let there = named("project.invalid", "file");
    bench.download(Bench::wanted(there.clone(), &content())).await.unwrap();
    bench.upload(b"result", named("project.invalid", "up")).await.unwrap();
    let through = proxy.asked();
    assert_eq!(through[0], format!("GET {there}"));
    assert!(through.iter().all(|asked| asked.contains(" http://project.invalid:")), "{through:?}");
    assert!(server.asked().iter().all(|asked| asked.head.contains("host: project.invalid")));
    for host in ["127.0.0.1", "0.0.0.0"] {
        bench.download(Bench::wanted(named(host, "file"), &content())).await.unwrap();
    }
    assert_eq!(proxy.asked().len(), through.len());
}

#[tokio::test]
async fn r6_10_a_proxy_that_refuses_is_named_and_never_fails_a_file_for_good() {
    let proxy = TestProxy::start(Manner::Wants("Basic of another"));
    let mut bench = bench(&proxy, "");
    let at = proxy.address();
    for (manner, scheme, says) in [
        (Manner::Wants("Basic of another"), "http", format!("the proxy at {at} wants a user and a password")),
        (
            Manner::Wants("Basic of another"),
            "https",
            format!("through the proxy at {at}, which HTTPS_PROXY names"),
        ),
        (
            Manner::Says("HTTP/1.1 403 Forbidden\r\n\r\n"),
            "https",
            format!("through the proxy at {at}, which HTTPS_PROXY names"),
        ),
        (Manner::Endless, "https", format!("through the proxy at {at}, which HTTPS_PROXY names")),
    ] {
        proxy.becomes(manner);
        let url = format!("{scheme}://project.invalid:9/file");
        let error = bench.download(Bench::wanted(url, &content())).await.unwrap_err();
        assert_eq!(error.kind, TransferErrorKind::Transient, "{error}");
        assert!(error.what.contains(&says), "{error}, not {says}");
        for secret in ["hunter2", "alice", ALICE] {
            assert!(!format!("{error:?}").contains(secret), "{error}");
        }
    }
}
