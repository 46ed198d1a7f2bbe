//! Why something is done, for the audit log: of commands whose requests have no place for it (R6.10).

use clap::Args;
use fallow_coordinator::operator::{MESSAGE, MESSAGE_BYTES, encoded};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use super::units::Unacceptable;

/// Of commands that change something else than documents.
#[derive(Args, Debug, Default)]
pub(crate) struct Why {
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = message)]
    message: String,
}

/// Words for the audit log, of as many bytes as it keeps.
pub(super) fn message(text: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    match text.len() {
        0..=MESSAGE_BYTES => Ok(text.to_owned()),
        bytes => {
            let text = format!("it has {bytes} bytes: expected {MESSAGE_BYTES} at most");
            Err(Unacceptable(text).into())
        }
    }
}

impl Why {
    /// A request that says it.
    pub(super) fn of<T>(&self, request: T) -> Request<T> {
        let mut request = Request::new(request);
        let message: Option<MetadataValue<Ascii>> = encoded(&self.message).parse().ok();
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            request.metadata_mut().insert(MESSAGE, message);
        }
        request
    }
}
