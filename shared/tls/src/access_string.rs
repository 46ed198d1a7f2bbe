//! What an administrator hands over so that somebody can reach the coordinator: one line without blanks.
//!
//! ```text
//! fallow-enrol-1/lab.example.org:24001,10.0.0.5:24001/AUTHORITY/SECRET/CHECK
//! ```
//! AUTHORITY is the fingerprint of the fleet's certificate authority and SECRET what proves a right, 64
//! hexadecimal digits each. CHECK is the beginning of the SHA-256 of all before it: a string that was cut or
//! mistyped is told from a wrong one, before anybody is connected to. Labels, number of uses and end of an
//! enrolment token stay with the coordinator.
//!
//! Where the fleet's documents are signed, an enrolment token begins with `fallow-enrol-2`, and the public
//! keys of the organisation stand before CHECK, with commas between them. An agent that knows nothing of
//! signatures does not take it.

use std::fmt;
use std::str::FromStr;

use fallow_domain::{OrganisationKey, hex};

use crate::{Address, Fingerprint};

/// What a string is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Agents become hosts of the fleet by it.
    Enrolment,
    /// Operators' tools show it.
    Operator,
}

impl Purpose {
    const fn word(self) -> &'static str {
        match self {
            Self::Enrolment => "fallow-enrol-1",
            Self::Operator => "fallow-operator-1",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enrolment => "an enrolment token",
            Self::Operator => "an operator's token",
        })
    }
}

/// Where a coordinator is, what proves that it is the one, and a secret that proves a right there.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessString {
    /// What it is for.
    pub purpose: Purpose,
    /// Where the coordinator is reached, to be tried in this order. One at least, 16 at most.
    pub addresses: Vec<Address>,
    /// The fleet's authority.
    pub authority: Fingerprint,
    /// 64 hexadecimal digits.
    pub secret: String,
    /// The keys by which the fleet's documents are signed: of an enrolment token, where they are. Eight at
    /// most.
    pub organisation: Vec<OrganisationKey>,
}

/// Addresses in one string.
const ADDRESSES_MAX: usize = 16;
/// Keys of an organisation in one string.
const KEYS_MAX: usize = 8;
/// What an enrolment token with keys begins with.
const WITH_KEYS: &str = "fallow-enrol-2";
/// Digits of the check.
const CHECK: usize = 8;

/// Why a text is no access string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessStringError {
    /// Something else altogether.
    #[error(
        "this is not {0}: one begins with {word}/ and is one line; copy the whole line",
        word = .0.word()
    )]
    Other(Purpose),
    /// It is for something else.
    #[error("this is {found}, and {wanted} is needed here")]
    OtherPurpose {
        /// What it is.
        found: Purpose,
        /// What it should be.
        wanted: Purpose,
    },
    /// Of a release to come.
    #[error("this token is of a newer release: bring this program to the coordinator's release")]
    Newer,
    /// Its check does not fit.
    #[error("this token was cut short or changed on the way: copy the whole line once more")]
    Changed,
}

impl AccessString {
    /// Reads a text that has to be for this purpose. Blanks around it do not count.
    ///
    /// # Errors
    /// [`AccessStringError`].
    pub fn parse(text: &str, wanted: Purpose) -> Result<Self, AccessStringError> {
        let text = text.trim();
        let purposes = [Purpose::Enrolment, Purpose::Operator];
        let (word, rest) = text.split_once('/').ok_or(AccessStringError::Other(wanted))?;
        let is_signed = word == WITH_KEYS;
        let found = purposes.into_iter().find(|purpose| purpose.word() == word);
        let Some(found) = found.or(is_signed.then_some(Purpose::Enrolment)) else {
            let is_newer = purposes.iter().any(|purpose| {
                let stem = purpose.word().trim_end_matches(|c: char| c.is_ascii_digit());
                word.strip_prefix(stem).is_some_and(|number| number.parse::<u32>().is_ok())
            });
            return Err(if is_newer { AccessStringError::Newer } else { AccessStringError::Other(wanted) });
        };
        let (body, check) = rest.rsplit_once('/').ok_or(AccessStringError::Changed)?;
        if check_of(word, body) != check {
            return Err(AccessStringError::Changed);
        }
        if found != wanted {
            return Err(AccessStringError::OtherPurpose { found, wanted });
        }
        Self::read_body(found, is_signed, body).ok_or(AccessStringError::Changed)
    }

    fn read_body(purpose: Purpose, is_signed: bool, body: &str) -> Option<Self> {
        let mut parts = body.split('/');
        let (addresses, authority, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let addresses: Vec<_> = addresses.split(',').map(Address::from_str).collect::<Result<_, _>>().ok()?;
        let keys = if is_signed {
            parts.next()?.split(',').map(|key| key.parse().ok()).collect()
        } else {
            Some(Vec::new())
        };
        let organisation: Vec<_> = keys.filter(|keys: &Vec<_>| keys.len() <= KEYS_MAX)?;
        let is_secret = secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_whole = parts.next().is_none() && is_secret && addresses.len() <= ADDRESSES_MAX;
        is_whole.then_some(Self {
            purpose,
            addresses,
            authority: authority.parse().ok()?,
            secret: secret.to_owned(),
            organisation,
        })
    }

    /// The line itself. A secret: it is for files and whoever is meant to have it, never for logs.
    #[must_use]
    pub fn reveal(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().take(ADDRESSES_MAX).map(ToString::to_string).collect();
        let mut word = self.purpose.word();
        let mut body = format!("{}/{}/{}", addresses.join(","), self.authority, self.secret);
        if self.purpose == Purpose::Enrolment && !self.organisation.is_empty() {
            let keys: Vec<_> = self.organisation.iter().take(KEYS_MAX).map(ToString::to_string).collect();
            (word, body) = (WITH_KEYS, format!("{body}/{}", keys.join(",")));
        }
        let check = check_of(word, &body);
        format!("{word}/{body}/{check}")
    }
}

fn check_of(word: &str, body: &str) -> String {
    let text = format!("{word}/{body}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut digits = hex(digest.as_ref());
    digits.truncate(CHECK);
    digits
}

impl fmt::Debug for AccessString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessString")
            .field("purpose", &self.purpose)
            .field("addresses", &self.addresses)
            .field("authority", &self.authority)
            .field("organisation", &self.organisation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> AccessString {
        AccessString {
            purpose: Purpose::Enrolment,
            addresses: vec!["lab.example.org:24001".parse().unwrap(), "[fd00::5]:1".parse().unwrap()],
            authority: Fingerprint::of(b"an authority"),
            secret: "ab".repeat(32),
            organisation: Vec::new(),
        }
    }

    #[test]
    fn r6_10_a_token_of_a_fleet_whose_documents_are_signed_has_the_keys_and_is_no_older_token() {
        let keys = [[7; 32], [9; 32]].map(OrganisationKey::new).to_vec();
        let signed = AccessString { organisation: keys, ..sample() };
        let line = signed.reveal();
        assert!(line.starts_with("fallow-enrol-2/"), "{line}");
        assert_eq!(AccessString::parse(&line, Purpose::Enrolment).unwrap(), signed);
        let cut = line.replace("fallow-enrol-2", "fallow-enrol-1");
        assert_eq!(AccessString::parse(&cut, Purpose::Enrolment), Err(AccessStringError::Changed));
    }

    #[test]
    fn r6_10_a_string_comes_back_and_its_secret_does_not_show() {
        let line = format!("  {}\n", sample().reveal());
        assert_eq!(AccessString::parse(&line, Purpose::Enrolment).unwrap(), sample());
        assert!(!format!("{:?}", sample()).contains("abab"));
    }

    #[test]
    fn r6_10_a_string_that_was_cut_or_changed_anywhere_is_told_from_a_wrong_one() {
        let line = sample().reveal();
        for end in "fallow-enrol-1/".len()..line.len() {
            assert_eq!(
                AccessString::parse(&line[..end], Purpose::Enrolment),
                Err(AccessStringError::Changed),
                "{end}"
            );
        }
        for at in "fallow-enrol-1/".len()..line.len() {
            let mut changed = line.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(AccessString::parse(&changed, Purpose::Enrolment).is_err(), "{changed}");
        }
    }

    #[test]
    fn r6_10_what_is_no_string_or_another_kind_is_called_what_it_is() {
        let old = "ab".repeat(32);
        for (text, said) in [
            ("", "begins with fallow-enrol-1/"),
            (old.as_str(), "begins with fallow-enrol-1/"),
            ("fallow-enrol-3/x/y", "of a newer release"),
            ("fallow-enrol-1/", "cut short"),
        ] {
            let error = AccessString::parse(text, Purpose::Enrolment).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let operator = AccessString { purpose: Purpose::Operator, ..sample() }.reveal();
        let error = AccessString::parse(&operator, Purpose::Enrolment).unwrap_err().to_string();
        assert_eq!(error, "this is an operator's token, and an enrolment token is needed here");
    }
}
