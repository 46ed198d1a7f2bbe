//! A project's master URL in canonical form: the project's identity on a host.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A canonical master URL: scheme, host in lower case, no doubled slashes, a slash at the end, and (as BOINC
/// clients insist) a dot in it, which is why `http://localhost/` is refused and `http://127.0.0.1/` is not.
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
    /// [`Invalid`] when it has another scheme, no dot after the scheme, white space or control characters, parts that
    /// lead elsewhere than they say (`..`, `user@`, `?`), or more than 255 characters.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let url = Self::canonical(text)?;
        if url.is_plain() { Ok(url) } else { Err(Invalid::new("project URL", text, EXPECTED)) }
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
            || !rest.contains('.')
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

    /// The URL as text, ending in a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// BOINC's name for the project's directory and the stem of its files: what follows the scheme, with every
    /// character outside `[A-Za-z0-9.-_]` turned into `_`, and trailing `_` dropped. Two projects can have the same.
    pub fn stem(&self) -> String {
        let rest = self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest);
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
        let stem = rest.chars().map(safe).collect::<String>().trim_end_matches('_').to_owned();
        // An older version stored URLs that would name the directory above.
        if stem.trim_matches('.').is_empty() { format!("_{stem}") } else { stem }
    }
}

impl fmt::Display for MasterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl TryFrom<String> for MasterUrl {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        // What an older version stored must not keep a store from being opened.
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
