//! Stored records: plain structs as JSON in their envelope.

use fallow_store::{Format, StoreError};

/// A record in its envelope. Records are plain structs, whose serialisation cannot fail.
pub(crate) fn json<T: serde::Serialize>(format: Format, value: &T) -> Vec<u8> {
    format.wrap(&serde_json::to_vec(value).unwrap_or_default())
}

/// A record out of its envelope.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    format: Format,
    key: &[u8],
    stored: &[u8],
) -> Result<T, StoreError> {
    let bytes = format.open(key, stored)?;
    serde_json::from_slice(&bytes).map_err(|error| bad_value(format, key, &error))
}

/// The error for a record that its parser does not understand.
pub(crate) fn bad_value(format: Format, key: &[u8], error: &dyn std::error::Error) -> StoreError {
    StoreError::BadValue {
        key: key.escape_ascii().to_string(),
        format: format.name,
        detail: error.to_string(),
    }
}
