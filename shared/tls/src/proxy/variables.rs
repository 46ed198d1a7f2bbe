//! What the environment says of proxies.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hyper_util::client::proxy::matcher::Matcher;

use super::{Known, Named, Proxies};

/// The first one that is set and not empty counts, as in curl.
const HTTPS: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
/// Not in capitals: a web server hands a header called `Proxy` to its programs under that name.
const HTTP: [&str; 1] = ["http_proxy"];
const ALL: [&str; 2] = ["all_proxy", "ALL_PROXY"];
const NO: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// The port of a proxy that is named without one: http's own.
const PORT: u16 = 80;

/// Variables of the environment that are to name proxies and do not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadProxies(Vec<(&'static str, String)>);

impl fmt::Display for BadProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (variable, why)) in self.0.iter().enumerate() {
            let between = if number == 0 { "" } else { "; " };
            write!(f, "{between}the environment variable {variable} cannot be used: {why}")?;
        }
        Ok(())
    }
}

/// Reads the variables; `get` says what one holds.
pub(super) fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Proxies, BadProxies> {
    let mut bad = Vec::new();
    let first = |names: &[&'static str]| {
        let set = names.iter().map(|&name| (name, get(name)));
        set.filter_map(|(name, value)| Some((name, value?))).find(|(_, value)| !value.is_empty())
    };
    let mut proxy = |names: &[&'static str]| {
        let (variable, value) = first(names).or_else(|| first(&ALL))?;
        let read = value.to_str().ok_or("it is no text".to_owned()).and_then(|text| named(variable, text));
        read.map_err(|why| bad.push((variable, why))).ok()
    };
    let (https, http) = (proxy(&HTTPS), proxy(&HTTP));
    // One that counts for both is told of once.
    bad.dedup();
    if bad.is_empty() && https.is_none() && http.is_none() {
        return Ok(Proxies::default());
    }
    let without = first(&NO).map_or(Ok(Some(String::new())), |(variable, value)| {
        let read = value.to_str().ok_or("it is no text".to_owned()).and_then(without);
        read.map_err(|why| (variable, why))
    });
    match without {
        Ok(Some(without)) if bad.is_empty() => {
            let url = |named: &Option<Named>| named.as_ref().map_or("", |named| &named.url).to_owned();
            let matcher = Matcher::builder().https(url(&https)).http(url(&http)).no(without).build();
            Ok(Proxies(Some(Arc::new(Known { https, http, matcher }))))
        }
        Ok(None) if bad.is_empty() => Ok(Proxies::default()),
        Ok(_) => Err(BadProxies(bad)),
        Err(found) => {
            bad.push(found);
            Err(BadProxies(bad))
        }
    }
}

/// The proxy that a value names, or why it names none. The value is not told: it may hold a password.
fn named(variable: &'static str, value: &str) -> Result<Named, String> {
    let bad = |why: &str| {
        let form = "give it as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT";
        Err(format!("it {why}; {form}, or unset it"))
    };
    let value = value.trim();
    let rest = match value.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some(_) => return bad("begins with another scheme, and proxies are spoken to by http:// only"),
        None => value,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, host) = match rest.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, rest),
    };
    if rest.contains(['/', '?', '#', '\\']) || user.is_some_and(|user| user.contains('@')) {
        return bad(
            "has more than a user, a password, a host and a port: within user and password, / is written %2F, ? %3F, # %23, \
             \\ %5C and @ %40",
        );
    }
    let has_port = !host.ends_with(']') && host.contains(':');
    let address = if has_port { host.parse() } else { format!("{host}:{PORT}").parse() };
    let Ok(address) = address else {
        return bad("has no host, by name or number, with a port from 1 to 65535");
    };
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let url = format!("http://{user}{address}/");
    // Who decides reads what is not a URL as no proxy at all.
    let probe = Matcher::builder().https(&url).build();
    let some_host = tonic::codegen::http::Uri::from_static("https://fallow.invalid/");
    if probe.intercept(&some_host).is_none() {
        return bad(
            "has characters in its user or password that are written as % and two hexadecimal digits",
        );
    }
    Ok(Named { variable, address, url })
}

/// What is reached without a proxy, as the matcher wants it; none for everything.
fn without(value: &str) -> Result<Option<String>, String> {
    let mut entries = Vec::new();
    for entry in value.split([',', ' ', '\t', '\n']).filter(|entry| !entry.is_empty()) {
        if entry == "*" {
            return Ok(None);
        }
        // Written for other programs: all that is below a domain is meant by the domain alone.
        let bare = entry.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(entry);
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        let bare = bare.strip_prefix('[').and_then(|number| number.strip_suffix(']')).unwrap_or(bare);
        let is_good = match bare.split_once('/') {
            Some((number, bits)) => is_network(number, bits),
            None if bare.contains(':') => bare.parse::<Ipv6Addr>().is_ok(),
            None => bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
        };
        if !is_good || bare.is_empty() {
            // In front of an @ a password may stand.
            let shown: String = entry.rsplit('@').next().unwrap_or_default().chars().take(100).collect();
            return Err(format!(
                "{shown:?} in it is no host, domain, number or network: give them without ports, as in \
                 \"lab.example.org,.example.com,10.0.0.5,10.0.0.0/8,fd00::/8\", or * for all"
            ));
        }
        entries.push(bare);
    }
    Ok(Some(entries.join(",")))
}

fn is_network(number: &str, bits: &str) -> bool {
    let longest = match number.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, BadProxies> {
        read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    fn way(variables: &[(&str, &str)], scheme: &str, host: &str) -> String {
        let proxy = proxies(variables).unwrap().towards(scheme, host);
        proxy.map_or_else(|| "direct".to_owned(), |proxy| format!("{} {proxy}", proxy.variable()))
    }

    #[test]
    fn r6_10_variables_name_proxies_as_they_do_for_curl() {
        let lab = "lab.example.org";
        let check = |variables: &[(&str, &str)], https: &str, http: &str| {
            assert_eq!(way(variables, "https", lab), https, "{variables:?}");
            assert_eq!(way(variables, "http", lab), http, "{variables:?}");
        };
        check(&[], "direct", "direct");
        check(&[("HTTPS_PROXY", "http://p:1")], "HTTPS_PROXY p:1", "direct");
        check(&[("https_proxy", "p:1"), ("HTTPS_PROXY", "http://q:1")], "https_proxy p:1", "direct");
        check(&[("https_proxy", ""), ("HTTPS_PROXY", "HTTP://Q/")], "HTTPS_PROXY q:80", "direct");
        check(&[("http_proxy", "http://p:1")], "direct", "http_proxy p:1");
        // Anybody can make a web server set this one.
        check(&[("HTTP_PROXY", "http://p:1")], "direct", "direct");
        check(
            &[("ALL_PROXY", "http://[fd00::1]:3128")],
            "ALL_PROXY [fd00::1]:3128",
            "ALL_PROXY [fd00::1]:3128",
        );
        check(&[("all_proxy", "p"), ("http_proxy", "q:8")], "all_proxy p:80", "http_proxy q:8");
        // What is not used is not judged.
        check(
            &[("ALL_PROXY", "socks5://s:1"), ("http_proxy", "p:1"), ("https_proxy", "q:1")],
            "https_proxy q:1",
            "http_proxy p:1",
        );
        check(&[("NO_PROXY", "http://nonsense")], "direct", "direct");
    }

    #[test]
    fn r6_10_hosts_domains_numbers_networks_and_everything_can_be_reached_without_a_proxy() {
        let is_direct = |list: &str, host: &str| {
            way(&[("HTTPS_PROXY", "p:1"), ("NO_PROXY", list)], "https", host) == "direct"
        };
        for (list, host) in [
            ("lab.example.org", "lab.example.org"),
            ("other.example.com, example.org", "lab.example.org"),
            ("other.example.com .example.org", "lab.example.org"),
            ("*.example.org", "lab.example.org"),
            ("LAB.example.org.", "lab.example.org."),
            ("10.0.0.5", "10.0.0.5"),
            ("10.0.0.0/8", "10.200.0.5"),
            ("fd00::/8", "fd00::5"),
            ("[fd00::5]", "[fd00::5]"),
            ("*", "10.0.0.5"),
            ("*", "lab.example.org"),
        ] {
            assert!(is_direct(list, host), "{list}: {host}");
        }
        for (list, host) in [
            ("lab.example.org", "lab2.example.org"),
            ("ab.example.org", "lab.example.org"),
            ("10.0.0.0/8", "11.0.0.5"),
            ("10.0.0.0/8", "10.0.0.5.example.org"),
            ("", "lab.example.org"),
        ] {
            assert!(!is_direct(list, host), "{list}: {host}");
        }
    }

    #[test]
    fn r6_10_this_machine_is_never_reached_through_a_proxy() {
        for scheme in ["https", "http"] {
            for host in ["localhost", "localhost.", "127.0.0.1", "127.8.0.1", "::1", "[::1]"] {
                assert_eq!(way(&[("ALL_PROXY", "http://p:1")], scheme, host), "direct", "{host}");
            }
        }
    }

    #[test]
    fn r6_10_a_value_that_names_no_proxy_is_an_error_that_names_the_variable_and_not_the_value() {
        for bad in [
            "http://",
            "http://:3128",
            "http://alice:hunter2@",
            "https://alice:hunter2@p:1",
            "socks5://p:1080",
            "http://p:0",
            "http://p:99999",
            "http://p:x",
            "http://fd00::1:80",
            "http://alice:hunter2@p:1/way",
            "http://alice:hunt/er2@p:1",
            "http://alice:hunt@er2@p:1",
            "http://alice:hunt er2@p:1",
            "http://alice:hunt\"er2@p:1",
            "http://p p:1",
        ] {
            let error = proxies(&[("HTTPS_PROXY", bad)]).unwrap_err().to_string();
            assert!(error.contains("variable HTTPS_PROXY cannot be used: it "), "{bad}: {error}");
            assert!(error.contains("http://HOST:PORT"), "{error}");
            assert!(!error.contains("hunt") && !error.contains("alice"), "{error}");
        }
        for bad in
            ["10.0.0.0/33", "fd00::/129", "10.0.0/8", "lab.example.org:24001", "http://lab", "*.", "a*"]
        {
            let error = proxies(&[("all_proxy", "p:1"), ("no_proxy", bad)]).unwrap_err().to_string();
            assert!(error.contains("variable no_proxy cannot be used: ") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn r6_10_all_that_is_wrong_with_the_variables_is_said_at_once() {
        let error = proxies(&[("HTTPS_PROXY", "http://"), ("http_proxy", "x:y"), ("NO_PROXY", "a:1")]);
        let error = error.unwrap_err().to_string();
        assert_eq!(error.matches("cannot be used").count(), 3, "{error}");
        let error = proxies(&[("ALL_PROXY", "http://")]).unwrap_err().to_string();
        assert_eq!(error.matches("cannot be used").count(), 1, "{error}");
    }

    #[test]
    fn r6_10_user_and_password_are_handed_to_the_proxy_and_shown_to_nobody() {
        let proxies = proxies(&[("HTTPS_PROXY", "http://alice:hun%40ter2@p:1")]).unwrap();
        let proxy = proxies.towards("https", "lab.example.org").unwrap();
        // The base64 of alice:hun@ter2.
        assert_eq!(proxy.credentials().unwrap(), "Basic YWxpY2U6aHVuQHRlcjI=");
        assert_eq!(proxy.secret_url(), "http://alice:hun%40ter2@p:1/");
        let shown = format!("{proxies:?} {proxy:?} {proxy} {:?}", proxy.credentials());
        for secret in ["hun", "alice", "YWxp"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
