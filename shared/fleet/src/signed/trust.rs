//! What a host follows: a pure decision about signed documents.

use fallow_domain::{
    Duration, FleetDocument, Instant, Labels, OrganisationKey, ProjectAssignment, SignedDocuments,
};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::{SIGNED_BYTES_MAX, Statement, StatementError};
use crate::{DocumentSet, Effective, utc};

/// How far a signature may lie ahead of the host's clock. One from years ahead would shut out all later ones
/// for good.
const AHEAD: Duration = Duration::from_hours(48);
/// So many former keys are known.
const FORMER_MAX: usize = 64;

/// Whom a host believes, and what it believed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Its fleet: the fingerprint of the authority, 64 hexadecimal digits.
    pub authority: String,
    /// The keys that are good now.
    pub keys: Vec<OrganisationKey>,
    /// The newest statement that it took; none at first.
    #[serde(default)]
    pub newest: Option<String>,
    /// Keys that were good once and have brought in those that are, the latest last: they count for nothing,
    /// and whoever still names one of them means the same organisation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<OrganisationKey>,
}

/// What a host follows from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// What its organisation says.
    pub set: DocumentSet,
    /// Whom it believes from then on. To be stored before the documents are followed.
    pub trust: Trust,
}

/// Why a host does not follow documents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    /// There is no signature.
    #[error(
        "the documents are not signed, and this host follows only what the key {key} of its organisation has signed: \
         `fallow organisation sign`"
    )]
    Unsigned {
        /// The key, or the first of several.
        key: String,
    },
    /// There is a signature, and it is by none of its keys, or of something else.
    #[error(
        "the signature of the documents is not by the key {key} of this host's organisation, or they were changed afterwards: \
         `fallow organisation sign` with that key; if the organisation has another one, enrol this host anew with it"
    )]
    OtherSignature {
        /// The key, or the first of several.
        key: String,
    },
    /// What was signed is no statement.
    #[error("what was signed cannot be read: {0}")]
    Statement(#[from] StatementError),
    /// It is about another fleet.
    #[error("what was signed is for the fleet with the authority {found}, and this host is of another one")]
    OtherFleet {
        /// The fingerprint in it.
        found: String,
    },
    /// This host has followed a later one.
    #[error(
        "the documents were signed at {signed_at}, and this host has followed some that were signed at {newest}: sign them anew"
    )]
    Older {
        /// When these were signed.
        signed_at: String,
        /// When those were.
        newest: String,
    },
    /// It was signed in the future.
    #[error(
        "the documents were signed at {signed_at}, and it is {now} here: set the clock of this host, or of who signed them"
    )]
    Ahead {
        /// When.
        signed_at: String,
        /// The host's time.
        now: String,
    },
    /// It is too late to begin with it.
    #[error("the signature of the documents was good until {good_until}: sign them anew")]
    Expired {
        /// When it ended.
        good_until: String,
    },
    /// The documents are not those of the statement.
    #[error("the documents are not those that were signed")]
    Content,
    /// The documents cannot be read.
    #[error(
        "the signed documents cannot be read ({0}): they may be of a later release than this host's agent"
    )]
    Documents(String),
    /// A project that the documents do not give this host.
    #[error("{url} is to be attached, and what was signed does not give it to this host")]
    Unasked {
        /// Where it is.
        url: String,
    },
    /// No account of a project that the documents give this host.
    #[error("what was signed gives this host {url}, and it was told no account there")]
    NoAccount {
        /// Where it is.
        url: String,
    },
}

/// Whether one of these keys has signed the statement, whatever it says.
#[must_use]
pub fn is_signed_by(signed: &SignedDocuments, keys: &[OrganisationKey]) -> bool {
    let SignedDocuments { statement, signature, .. } = signed;
    keys.iter().any(|key| {
        UnparsedPublicKey::new(&ED25519, key.bytes()).verify(statement.as_bytes(), signature).is_ok()
    })
}

impl Trust {
    /// Of a host that knows these keys and has seen nothing signed yet.
    #[must_use]
    pub fn new(authority: String, keys: Vec<OrganisationKey>) -> Self {
        Self { authority, keys, newest: None, former: Vec::new() }
    }

    fn key(&self) -> String {
        self.keys.first().map(OrganisationKey::short).unwrap_or_default()
    }

    /// Decides about what a coordinator sent.
    ///
    /// # Errors
    /// [`NotAccepted`]; nothing changes then.
    pub fn accept(&self, offered: Option<&SignedDocuments>, now: Instant) -> Result<Accepted, NotAccepted> {
        let offered = offered.ok_or_else(|| NotAccepted::Unsigned { key: self.key() })?;
        let SignedDocuments { statement: text, signature: _, documents } = offered;
        if !is_signed_by(offered, &self.keys) {
            return Err(NotAccepted::OtherSignature { key: self.key() });
        }
        let statement = Statement::parse(text)?;
        if statement.authority != self.authority {
            return Err(NotAccepted::OtherFleet { found: statement.authority });
        }
        if self.newest.as_ref() != Some(text) {
            self.require_later(&statement, now)?;
        }
        if documents.len() > SIGNED_BYTES_MAX || !statement.covers(documents) {
            return Err(NotAccepted::Content);
        }
        let set =
            serde_json::from_str(documents).map_err(|error| NotAccepted::Documents(error.to_string()))?;
        let Statement { authority, keys, .. } = statement;
        let mut former: Vec<_> = self.former.iter().chain(&self.keys).copied().collect();
        former.retain(|key| !keys.contains(key));
        former.drain(..former.len().saturating_sub(FORMER_MAX));
        Ok(Accepted { set, trust: Self { authority, keys, newest: Some(text.clone()), former } })
    }

    /// Whether a key is one of the organisation that the host believes: good now, or once.
    #[must_use]
    pub fn knows(&self, key: &OrganisationKey) -> bool {
        self.keys.contains(key) || self.former.contains(key)
    }

    fn require_later(&self, statement: &Statement, now: Instant) -> Result<(), NotAccepted> {
        let Statement { signed_at, good_until, .. } = *statement;
        // What was stored was parsed before.
        let newest = self.newest.as_ref().and_then(|text| Statement::parse(text).ok());
        match newest.map(|newest| newest.signed_at) {
            Some(newest) if signed_at <= newest => {
                Err(NotAccepted::Older { signed_at: utc(signed_at), newest: utc(newest) })
            }
            _ if signed_at.since(now) > AHEAD => {
                Err(NotAccepted::Ahead { signed_at: utc(signed_at), now: utc(now) })
            }
            _ if good_until < now => Err(NotAccepted::Expired { good_until: utc(good_until) }),
            _ => Ok(()),
        }
    }
}

impl NotAccepted {
    /// Whether it may be accepted when the clock shows another time.
    #[must_use]
    pub const fn is_untimely(&self) -> bool {
        matches!(self, Self::Ahead { .. } | Self::Expired { .. })
    }
}

impl Accepted {
    /// What a host with these labels follows: what its organisation says, under the number and with the
    /// accounts that its coordinator sent.
    ///
    /// # Errors
    /// [`NotAccepted`], where the coordinator's projects are others.
    pub fn document(&self, labels: &Labels, sent: &FleetDocument) -> Result<FleetDocument, NotAccepted> {
        let mut document = Effective::of(&self.set, labels).document(&self.set);
        let is_asked =
            |project: &&ProjectAssignment| document.projects.iter().any(|one| one.url == project.url);
        if let Some(project) = sent.projects.iter().find(|project| !is_asked(project)) {
            return Err(NotAccepted::Unasked { url: project.url.to_string() });
        }
        for project in &mut document.projects {
            let same = sent.projects.iter().find(|one| one.url == project.url);
            let same = same.ok_or_else(|| NotAccepted::NoAccount { url: project.url.to_string() })?;
            project.account_key = same.account_key.clone();
        }
        let document = FleetDocument { version: sent.version, content: sent.content.clone(), ..document };
        document.check().map_err(|error| NotAccepted::Documents(error.to_string()))?;
        Ok(document)
    }
}
