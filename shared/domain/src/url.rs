//! A project's master URL in canonical form: the project's identity on a host.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A canonical master URL: scheme, host in lower case, no doubled slashes, a slash at the end, and (as BOINC
/// clients insist) a dot in it, which is why `http://localhost/` is refused and `http://127.0.0.1/` is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MasterUrl(String);

const EXPECTED: &str = "an http or https URL with a dot in it, such as http://127.0.0.1:8080/project/";

impl MasterUrl {
    /// Brings a URL into canonical form.
    ///
    /// # Errors
    /// [`Invalid`] when it has another scheme, no dot after the scheme, white space or control characters,
    /// or more than 255 characters.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
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
        let url = Self(url);
        // The directory of nothing but dots is that of all projects, or one above it.
        let is_above = url.stem().bytes().all(|byte| byte == b'.');
        if url.0.len() > 255 || is_above { Err(bad()) } else { Ok(url) }
    }

    /// The URL as text, ending in a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the project's directory and the stem of its files: what follows the scheme, with every
    /// character outside `[A-Za-z0-9.-_]` turned into `_`, and trailing `_` dropped.
    pub fn stem(&self) -> String {
        let rest = self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest);
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
        rest.chars().map(safe).collect::<String>().trim_end_matches('_').to_owned()
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
        Self::parse(&text)
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
    fn the_stem_names_the_project_directory() {
        assert_eq!(MasterUrl::parse("http://127.0.0.1:8123/").unwrap().stem(), "127.0.0.1_8123");
        assert_eq!(
            MasterUrl::parse("http://127.0.0.1:8080/anchor/").unwrap().stem(),
            "127.0.0.1_8080_anchor"
        );
    }
}
