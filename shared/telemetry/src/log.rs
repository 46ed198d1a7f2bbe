//! The log on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::TelemetryError;

/// What is logged unless somebody says otherwise.
const DEFAULT: &str = "info";
/// Said before all others: the HTTP/2 library warns of what any client can do as often as he likes. Who
/// wants that names the library.
const ALWAYS: &str = "h2=error";

/// The layer that writes the log, as the environment wants it.
pub(crate) fn layer() -> Result<Box<dyn Layer<Registry> + Send + Sync>, TelemetryError> {
    let filter = filter(std::env::var("FALLOW_LOG").ok().as_deref())?;
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colors = !no_color && std::io::stderr().is_terminal();
    let fmt = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colors);
    // A log that cannot be written (a closed pipe) must not produce more of itself.
    let fmt = fmt.log_internal_errors(false);
    match std::env::var("FALLOW_LOG_FORMAT").as_deref() {
        Err(_) | Ok("" | "compact") => Ok(fmt.compact().with_filter(filter).boxed()),
        Ok("json") => Ok(fmt.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed()),
        Ok(other) => Err(TelemetryError::BadFormat(other.to_owned())),
    }
}

fn filter(given: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let text = given.filter(|text| !text.trim().is_empty()).unwrap_or(DEFAULT);
    EnvFilter::try_new(format!("{ALWAYS},{text}"))
        .map_err(|source| TelemetryError::BadFilter { given: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_level_is_info_and_no_client_fills_the_log_by_the_http_library() {
        for given in [None, Some(" ")] {
            let text = filter(given).unwrap().to_string();
            assert!(text.contains("info") && text.contains("h2=error"), "{text}");
        }
        assert_eq!(filter(Some("fallow_agent=debug")).unwrap().to_string(), "fallow_agent=debug,h2=error");
        assert_eq!(filter(Some("debug,h2=trace")).unwrap().to_string(), "h2=trace,debug");
    }

    #[test]
    fn a_filter_that_is_none_is_named_with_what_to_give() {
        let text = filter(Some("fallow=loud")).unwrap_err().to_string();
        assert!(text.contains("fallow=loud") && text.contains("info"), "{text}");
    }
}
