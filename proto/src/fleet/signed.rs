//! Signed documents on their way to a host.

use fallow_domain::{Invalid, Labels, SignedDocuments};

use super::v1 as wire;

/// As it is sent to a host with these labels.
#[must_use]
pub fn to_wire(signed: &SignedDocuments, labels: &Labels) -> wire::SignedDocuments {
    let SignedDocuments { statement, signature, documents } = signed.clone();
    let labels = labels.iter().filter(|(name, _)| !name.is_fact());
    let labels = labels.map(|(name, value)| format!("{name}={value}")).collect();
    wire::SignedDocuments { statement, signature, documents, labels }
}

/// What came, and the labels that the host was given.
///
/// # Errors
/// [`Invalid`], where labels are none.
pub fn from_wire(signed: wire::SignedDocuments) -> Result<(SignedDocuments, Labels), Invalid> {
    let wire::SignedDocuments { statement, signature, documents, labels } = signed;
    let labels = Labels::read(labels.iter().map(String::as_str))?;
    Ok((SignedDocuments { statement, signature, documents }, labels))
}
