//! What an organisation says of its documents, as text of one form.

use fallow_domain::{Instant, OrganisationKey};

use super::content_of;
use crate::ContentHash;

/// Keys that may be good at the same time.
pub const SIGNED_KEYS_MAX: usize = 8;
/// More than the longest statement takes, in bytes.
const STATEMENT_BYTES_MAX: usize = 4_096;
/// The first line: what is signed with the same key for another purpose is no statement.
const TITLE: &str = "Fallow: documents of a fleet, form 1";
const NONE: &str = "none";

/// What an organisation signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The fleet: the fingerprint of its authority, 64 hexadecimal digits. What was signed for one fleet is
    /// nothing to another.
    pub authority: String,
    /// The documents ([`super::signed_form`]), by their SHA-256.
    pub content: ContentHash,
    /// The documents that hosts may be taken back to, when these do harm.
    pub before: Option<ContentHash>,
    /// The keys that hosts are to believe from now on: the one that signs this, or those that follow it.
    pub keys: Vec<OrganisationKey>,
    /// When it was signed. The later one holds.
    pub signed_at: Instant,
    /// Until when a host may begin to follow it.
    pub good_until: Instant,
}

/// Why a text is no statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// It has another form.
    #[error("it is no statement about documents of a fleet, or one of a later release")]
    Form,
    /// It names no key, or more than there may be.
    #[error("it names no key that is good from now on, or more than {SIGNED_KEYS_MAX}")]
    Keys,
}

impl Statement {
    /// The text that is signed.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { authority, content, before, keys, signed_at, good_until } = self;
        let before = before.as_ref().map_or(NONE, ContentHash::as_str);
        let keys = keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        format!(
            "{TITLE}\nfleet {authority}\ncontent {}\nbefore {before}\nkeys {keys}\nsigned {}\nuntil {}\n",
            content.as_str(),
            signed_at.as_micros(),
            good_until.as_micros(),
        )
    }

    /// Reads a text. Only what [`Statement::text`] writes is one, so that one meaning has one text.
    ///
    /// # Errors
    /// [`StatementError`].
    pub fn parse(text: &str) -> Result<Self, StatementError> {
        if text.len() > STATEMENT_BYTES_MAX {
            return Err(StatementError::Form);
        }
        let read = Self::read(text).ok_or(StatementError::Form)?;
        if read.keys.is_empty() || read.keys.len() > SIGNED_KEYS_MAX {
            return Err(StatementError::Keys);
        }
        if read.text() == text { Ok(read) } else { Err(StatementError::Form) }
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let mut value = |name: &str| lines.next()?.strip_prefix(name);
        value(TITLE)?;
        let (authority, content) = (value("fleet ")?, value("content ")?);
        let (before, keys) = (value("before ")?, value("keys ")?);
        let (signed_at, good_until) = (value("signed ")?, value("until ")?);
        let instant = |text: &str| text.parse().ok().map(Instant::from_micros);
        Some(Self {
            authority: authority.to_owned(),
            content: ContentHash::from_digits(content)?,
            before: if before == NONE { None } else { Some(ContentHash::from_digits(before)?) },
            keys: keys.split(' ').map(|key| key.parse().ok()).collect::<Option<_>>()?,
            signed_at: instant(signed_at)?,
            good_until: instant(good_until)?,
        })
    }

    /// Whether it is about these documents, or says that these may be gone back to.
    pub(super) fn covers(&self, documents: &str) -> bool {
        let content = content_of(documents);
        content == self.content || self.before.as_ref() == Some(&content)
    }
}
