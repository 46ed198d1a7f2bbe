//! A project's master URL in canonical form: the project's identity on a host (R6.10).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A canonical master URL: scheme, host in lower case, no doubled slashes, a slash at the end, and (as BOINC
/// clients insist, but for an IPv6 address) a dot in it, which is why `http://localhost/` is refused and
/// `http://127.0.0.1/` is not.
///
/// One address has one form, or it would be several projects: host and path are as the URL standard (WHATWG)
/// writes them, without the scheme's own port, and what needs no escape has none (RFC 3986, 6.2.2.2). A
/// server takes it for what was given.
///
/// One that says two things is refused: a path that leaves itself (`..`), a user before the host, a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MasterUrl(String);

const EXPECTED: &str = "an http or https URL with a dot in it, such as http://127.0.0.1:8080/project/";

impl MasterUrl {
    /// Brings a URL into canonical form.
    ///
    /// # Errors
    /// [`Invalid`] when it has another scheme, no dot after the scheme, white space or control characters,
    /// parts that lead elsewhere than they say (`..`, `user@`, `?`), a host that none can have, or more than
    /// 255 characters.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let url = Self::canonical(text)?;
        let standard = url.is_plain().then(|| url.standard()).flatten();
        standard.filter(Self::is_plain).ok_or_else(|| Invalid::new("project URL", text, EXPECTED))
    }

    /// The form that [`parse`](Self::parse) gives this address. A URL that an older version stored may have
    /// another; one that would be refused now is given as it is.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self::parse(&self.0).unwrap_or_else(|_| self.clone())
    }

    /// As the URL standard writes it, if it knows such an address.
    fn standard(&self) -> Option<Self> {
        let url = url::Url::parse(&self.0).ok()?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let text = format!("{}://{}{port}{}", url.scheme(), url.host_str()?, unescaped(url.path()));
        Self::canonical(&text).ok()
    }

    /// Whether it means what a person reads in it, and its directory can be no other than its own.
    fn is_plain(&self) -> bool {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let leads_away = |part: &str| {
            let part = part.to_ascii_lowercase().replace("%2e", ".");
            part == "." || part == ".."
        };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, Some(port)),
            _ => (host, None),
        };
        name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[' || !c.is_ascii())
            && port.is_none_or(|port| port.parse::<u16>().is_ok())
            && !rest.contains(['\\', '?', '#', '@', '>', '\'', '`'])
            && !path.split('/').any(leads_away)
    }

    fn canonical(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("project URL", text, EXPECTED);
        let trimmed = text.trim();
        let lower = trimmed.to_ascii_lowercase();
        let (scheme, rest) = match () {
            () if lower.starts_with("http://") => ("http://", &trimmed[7..]),
            () if lower.starts_with("https://") => ("https://", &trimmed[8..]),
            () if lower.contains("://") => return Err(bad()),
            () => ("http://", trimmed),
        };
        if rest.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"' || c == '<')
            || !(rest.contains('.') || rest.starts_with('['))
        {
            return Err(bad());
        }
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        let host = parts.next().ok_or_else(bad)?.to_ascii_lowercase();
        let mut url = format!("{scheme}{host}/");
        for part in parts {
            url.push_str(part);
            url.push('/');
        }
        if url.len() > 255 { Err(bad()) } else { Ok(Self(url)) }
    }

    /// Whether it is the same place, reached by http or by https (BOINC: `urls_match`).
    #[must_use]
    pub fn is_place_of(&self, other: &Self) -> bool {
        fn place(url: &MasterUrl) -> Option<&str> {
            url.0.split_once("://").map(|(_, place)| place)
        }
        place(self) == place(other)
    }

    /// The URL as text, ending in a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// BOINC's name for the project's directory and the stem of its files: what follows the scheme, with
    /// every character outside `[A-Za-z0-9.-_]` turned into `_`, and trailing `_` dropped. Two projects can
    /// have the same.
    pub fn stem(&self) -> String {
        let rest = self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest);
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
        let stem = rest.chars().map(safe).collect::<String>().trim_end_matches('_').to_owned();
        // An older version stored URLs that would name the directory above.
        if stem.trim_matches('.').is_empty() { format!("_{stem}") } else { stem }
    }
}

/// A path without the escapes that nothing needs, those that are needed in capitals. One with a `%` that
/// begins no escape is left alone: taken for an escape afterwards, it would mean something else.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else { return path.to_owned() };
        match char::from(byte) {
            plain if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => text.push(plain),
            _ => text += &format!("%{byte:02X}"),
        }
        text += part.get(2..).unwrap_or_default();
    }
    text
}

impl fmt::Display for MasterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl TryFrom<String> for MasterUrl {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        // What an older version stored must not keep a store from being opened, and two of its projects stay
        // two.
        Self::canonical(&text)
    }
}
impl From<MasterUrl> for String {
    fn from(url: MasterUrl) -> Self {
        url.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_takes_the_form_that_boinc_gives_it() {
        for (given, canonical) in [
            ("127.0.0.1:8080/anchor", "http://127.0.0.1:8080/anchor/"),
            ("HTTP://Example.ORG//a//B/", "http://example.org/a/B/"),
            ("https://example.org", "https://example.org/"),
        ] {
            assert_eq!(MasterUrl::parse(given).unwrap().as_str(), canonical);
        }
    }

    #[test]
    fn urls_that_a_client_refuses_are_refused() {
        for bad in ["http://localhost:8123/", "ftp://example.org/", "", "http://", "http://a b.c/"] {
            assert!(MasterUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn r6_10_no_url_has_a_directory_above_its_own() {
        for bad in ["http://./", "http://../", "..", "http://.?/", "http://..//_/"] {
            assert!(MasterUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_url_that_means_something_else_than_it_says_is_refused() {
        for bad in [
            "http://h.org/../x/",
            "http://h.org/a/%2E%2e/x/",
            "http://h.org/./x/",
            "http://../",
            "http://._/",
            "http://.._/",
            "http://good.org@evil.org/",
            "http://h.org:99999/",
            "http://h.org:/",
            "http://h.org/a?b=c.d/",
            "http://h.org/a#b/",
            "http://h.org\\a/",
        ] {
            assert!(MasterUrl::parse(bad).is_err(), "{bad}");
        }
        for good in
            ["http://[::1]:80/a.b/", "https://h.org:8443/~ada/my%20project/", "http://h.org/a..b/...x/"]
        {
            assert!(MasterUrl::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn r6_10_every_spelling_of_an_address_is_one_project() {
        let spellings: [(&str, &[&str]); 6] = [
            (
                "http://127.0.0.1:24802/good/",
                &[
                    "http://127.0.0.1:24802/%67ood/",
                    "http://127.1:24802/good/",
                    "http://0x7f.0.0.1:024802/g%6F%6fd",
                    "http://0177.1:24802//good",
                ],
            ),
            ("http://h.org/~ada/a%2Fb/", &["HTTP://H.org:80/%7eada/a%2fb", "h.%6Frg:0080/%7Eada/a%2Fb/"]),
            ("https://h.org/p/", &["https://h.org:443/p/", "https://H.ORG/%70/"]),
            ("http://h.org:443/p/", &["http://h.org:00443/p/"]),
            ("http://xn--mnchen-3ya.de/%C3%A4/", &["http://München.de/ä/", "http://m%C3%BCnchen.de/%c3%a4/"]),
            ("http://[::1]:8080/p/", &["http://[0:0::1]:8080/p/", "http://[::0.0.0.1]:08080/p/"]),
        ];
        for (form, spellings) in spellings {
            for spelling in spellings.iter().chain([&form]) {
                assert_eq!(MasterUrl::parse(spelling).unwrap().as_str(), form, "{spelling}");
            }
        }
        for two in [["http://h.org/p/", "https://h.org/p/"], ["http://h.org/p/", "http://h.org/P/"]] {
            assert_ne!(MasterUrl::parse(two[0]), MasterUrl::parse(two[1]));
        }
    }

    #[test]
    fn a_percent_sign_that_begins_no_escape_does_not_become_one() {
        for text in
            ["http://h.org/%%34%31/", "http://h.org/%2541/", "http://h.org/%+f/", "http://h.org/100%/"]
        {
            assert_eq!(MasterUrl::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_host_that_nobody_can_have_is_refused() {
        for bad in [
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://h.org%2Fa/",
            "http://h%40evil.org/",
            "http://[::g]/",
        ] {
            assert!(MasterUrl::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_form_of_a_url_is_its_own_form_and_is_read_from_a_store(
            text in "(https?://)?[a-zA-Z0-9.%\\[\\]:äß。-]{1,12}(:0?[0-9]{1,4})?(/[a-zA-Z0-9.%~|{ä+&/-]{0,12}){0,2}",
        ) {
            if let Ok(url) = MasterUrl::parse(&text) {
                prop_assert_eq!(MasterUrl::parse(url.as_str()), Ok(url.clone()));
                prop_assert_eq!(MasterUrl::try_from(String::from(url.clone())), Ok(url));
            }
        }
    }

    #[test]
    fn a_url_of_an_older_store_keeps_its_form_until_it_is_renewed() {
        let old: MasterUrl = "http://H.org:80/%70/".to_owned().try_into().unwrap();
        assert_eq!((old.as_str(), old.renewed().as_str()), ("http://h.org:80/%70/", "http://h.org/p/"));
        let refused: MasterUrl = "http://../".to_owned().try_into().unwrap();
        assert_eq!(refused.renewed(), refused);
    }

    #[test]
    fn what_is_stored_is_read_again_and_names_no_directory_above() {
        let url: MasterUrl = "http://../".to_owned().try_into().unwrap();
        assert_eq!(url.stem(), "_..");
    }

    #[test]
    fn the_stem_names_the_project_directory() {
        assert_eq!(MasterUrl::parse("http://127.0.0.1:8123/").unwrap().stem(), "127.0.0.1_8123");
        assert_eq!(
            MasterUrl::parse("http://127.0.0.1:8080/anchor/").unwrap().stem(),
            "127.0.0.1_8080_anchor"
        );
    }
}
