//! The organisation that signs documents, as operators see it (R6.10).

use fallow_domain::{Invalid, OrganisationKey, SignedDocuments};
use fallow_proto::operator::v1 as wire;

use crate::document::{Organisation, ToSign};

/// Keys, as operators name them.
pub(super) fn keys(keys: &[String]) -> Result<Vec<OrganisationKey>, Invalid> {
    keys.iter().map(|key| key.parse()).collect()
}

/// What was signed, if a request holds it.
pub(super) fn signed(signed: Option<wire::SignedStatement>) -> Result<SignedDocuments, Invalid> {
    let wire::SignedStatement { statement, signature, documents } =
        signed.ok_or_else(|| Invalid::new("signature", "(none)", "a statement with its signature"))?;
    Ok(SignedDocuments { statement, signature, documents })
}

/// The organisation, with what there is to sign.
pub(super) fn to_wire(
    organisation: &Organisation,
    authority: String,
    to_sign: Option<ToSign>,
) -> wire::Organisation {
    let keys = organisation.keys.iter().map(ToString::to_string).collect();
    let Some(ToSign { version, documents, is_held, before }) = to_sign else {
        return wire::Organisation { keys, authority, ..wire::Organisation::default() };
    };
    let before = before.map(|before| {
        let SignedDocuments { statement, signature, documents } = (*before).clone();
        wire::SignedStatement { statement, signature, documents }
    });
    wire::Organisation { keys, authority, document_version: version.0, waits: is_held, documents, before }
}
