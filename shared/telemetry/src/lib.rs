//! Logging and OpenTelemetry set-up for the daemons (R6.7).
//!
//! Purpose: one call at the start of a daemon, [`init`], and everything said with `tracing` goes to standard
//! error and, where a collector is named, to it; the metrics of [`names`] likewise.
//!
//! Model. Environment variables decide, as operators of other OpenTelemetry programs expect:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FALLOW_LOG` | level or filter of the log (`debug`, `info,fallow_agent=trace`); default `info` |
//! | `FALLOW_LOG_FORMAT` | `compact` (default, for people) or `json` (one object a line) |
//! | `NO_COLOR` | not empty: no colours; there are none either where standard error is no terminal |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | collector, such as `http://127.0.0.1:4317`; unset: nothing is exported |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | replace and add to what the daemon says about itself |
//! | `OTEL_METRIC_EXPORT_INTERVAL` | milliseconds between exports of metrics, default 60000 |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is exported |
//! | other `OTEL_BSP_...`, `OTEL_BLRP_...`, `OTEL_TRACES_SAMPLER...`, `OTEL_EXPORTER_OTLP_HEADERS`, `..._TIMEOUT` | as the OpenTelemetry SDK defines them |
//!
//! The exporters run on a small runtime and threads of their own with bounded queues: a collector that is
//! slow or gone costs the daemon nothing, loses what does not fit, and is logged once when it goes and once
//! when it is back.
//!
//! An exception in `shared/`: this room knows tokio, sockets and the environment, because that is what it
//! sets up. Omitted: OTLP over HTTP or TLS (a local collector forwards), Prometheus scraping, exemplars, log
//! files (the service manager keeps them).
#![forbid(unsafe_code)]

mod export;
mod log;
pub mod names;
pub mod propagation;
mod rate_limit;
mod reported;
mod service;

pub use opentelemetry;
pub use opentelemetry::KeyValue;
pub use opentelemetry::metrics::Meter;
pub use rate_limit::RateLimit;
pub use service::Service;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use export::Exporters;

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `FALLOW_LOG` is no filter.
    #[error(
        "FALLOW_LOG={given:?} is not a log filter: give a level (error, warn, info, debug, trace) or target=level pairs joined by commas"
    )]
    BadFilter {
        /// What was given.
        given: String,
        /// Where it goes wrong.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// `FALLOW_LOG_FORMAT` is no format.
    #[error("FALLOW_LOG_FORMAT={0:?} is not a log format: give compact or json")]
    BadFormat(String),
    /// The collector's address, or another `OTEL_` variable, is unusable.
    #[error(
        "OTEL_EXPORTER_OTLP_ENDPOINT={endpoint:?} cannot be used: give an address such as http://127.0.0.1:4317, or unset it"
    )]
    BadExporter {
        /// The endpoint given.
        endpoint: String,
        /// What the exporter said.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The exporters' runtime did not start.
    #[error("the exporters' runtime did not start")]
    Runtime(#[source] std::io::Error),
    /// [`init`] was called before in this process.
    #[error("telemetry was set up already in this process")]
    Twice,
}

/// Keeps telemetry going; on [`Guard::shutdown`] or drop what is queued is sent, for at most three seconds.
#[derive(Debug)]
#[must_use = "telemetry ends when the guard is dropped"]
pub struct Guard {
    exporters: Option<Exporters>,
}

/// Sets up logging and, if a collector is named, export, for this whole process.
///
/// May be called inside or outside a tokio runtime.
pub fn init(service: &Service) -> Result<Guard, TelemetryError> {
    let log = log::layer()?;
    let exporters = export::endpoint().map(|endpoint| Exporters::start(&endpoint, service)).transpose()?;
    // A list and not `Option`: an absent layer beside a filtered one switches everything off.
    let mut layers = vec![log];
    layers.extend(exporters.as_ref().map(Exporters::layer));
    tracing_subscriber::registry().with(layers).try_init().map_err(|_| TelemetryError::Twice)?;
    Ok(Guard { exporters })
}

impl Guard {
    /// Sends what is queued and ends; waits for at most three seconds.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(exporters) = self.exporters.take() {
            exporters.stop();
        }
    }
}

/// The meter of a part of the program, such as `"fallow_agent"`. Does nothing where nothing is exported.
///
/// Instruments made before [`init`] stay silent: call this afterwards.
#[must_use]
pub fn meter(name: &'static str) -> Meter {
    opentelemetry::global::meter(name)
}
