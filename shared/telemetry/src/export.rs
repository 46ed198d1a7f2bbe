//! Export by OTLP/gRPC: providers for the three signals, and the layer that feeds them.

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::LogRecord;
use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLoggerProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Runtime;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::reported::{Reachability, Reported};
use crate::{Service, TelemetryError};

/// How long the end of a daemon waits for what is queued: long for a collector that is there, short for an
/// operator.
const PATIENCE: Duration = Duration::from_secs(3);

/// The collector to export to, if the environment names one.
pub(crate) fn endpoint() -> Option<String> {
    let disabled = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT")
        .ok()
        .filter(|endpoint| !disabled && !endpoint.trim().is_empty())
}

/// The collector's name is looked up in a thread. One is there from the start and stays: a connection that
/// gets none later would be lost for good.
const THREAD_STAYS: Duration = Duration::from_hours(24 * 365);

/// The three providers and the runtime that their connections live on.
#[derive(Debug)]
pub(crate) struct Exporters {
    tracer: SdkTracerProvider,
    meter: SdkMeterProvider,
    logger: SdkLoggerProvider,
    runtime: Runtime,
}

impl Exporters {
    pub(crate) fn start(endpoint: &str, service: &Service) -> Result<Self, TelemetryError> {
        // A runtime apart from the daemon's: export goes on while the daemon's is being shut down, and needs
        // no more than the one thread.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .thread_keep_alive(THREAD_STAYS)
            .enable_all()
            .build()
            .map_err(TelemetryError::Runtime)?;
        runtime.spawn_blocking(|| ());
        let entered = runtime.enter();
        let bad = |source| TelemetryError::BadExporter { endpoint: endpoint.to_owned(), source };
        let spans = SpanExporter::builder().with_tonic().build().map_err(bad)?;
        let metrics = MetricExporter::builder().with_tonic().build().map_err(bad)?;
        let logs = LogExporter::builder().with_tonic().build().map_err(bad)?;
        drop(entered);

        let resource = service.resource();
        let reachability = Reachability::new(endpoint);
        let tracer = SdkTracerProvider::builder()
            .with_resource(resource.clone())
            .with_batch_exporter(Reported { inner: spans, reachability: reachability.clone() })
            .build();
        let meter = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_periodic_exporter(Reported { inner: metrics, reachability: reachability.clone() })
            .build();
        let logger = SdkLoggerProvider::builder()
            .with_resource(resource)
            .with_log_processor(Timestamps)
            .with_batch_exporter(Reported { inner: logs, reachability })
            .build();
        opentelemetry::global::set_meter_provider(meter.clone());
        Ok(Self { tracer, meter, logger, runtime })
    }

    /// Feeds spans and events to the exporters.
    pub(crate) fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let spans = tracing_opentelemetry::layer().with_tracer(self.tracer.tracer("fallow"));
        let events = OpenTelemetryTracingBridge::new(&self.logger);
        spans.with_filter(own()).and_then(events.with_filter(exported())).boxed()
    }

    /// Sends what is queued, for a bounded time.
    pub(crate) fn stop(self) {
        let Self { tracer, meter, logger, runtime } = self;
        let (done, wait) = mpsc::channel();
        // On a thread of its own, because the SDK's own limits do not hold for every signal.
        let flusher = std::thread::Builder::new().name("otlp-flush".to_owned()).spawn(move || {
            // Nobody is left to tell of a failure here; a lost collector was reported when it was lost.
            let _ = tracer.shutdown_with_timeout(PATIENCE);
            let _ = logger.shutdown_with_timeout(PATIENCE);
            let _ = meter.shutdown_with_timeout(PATIENCE);
            let _ = done.send(());
        });
        if flusher.is_ok() {
            let _ = wait.recv_timeout(PATIENCE);
        }
        // Not dropped: dropping a runtime inside another panics.
        runtime.shutdown_background();
    }
}

/// Says of each log record when it was made: the bridge says only when it saw it, and many readers go by the
/// other.
#[derive(Debug)]
struct Timestamps;

impl LogProcessor for Timestamps {
    fn emit(&self, record: &mut SdkLogRecord, _: &InstrumentationScope) {
        if let Some(seen) = record.observed_timestamp() {
            record.set_timestamp(seen);
        }
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Spans that are exported: those of Fallow's own crates, whose names are few and hold nothing of what is
/// asked for.
fn own() -> Targets {
    Targets::new().with_target("fallow", LevelFilter::INFO)
}

/// What is exported: all but what the export itself would cause, which would go round for ever.
fn exported() -> Targets {
    let own = [
        "h2",
        "hyper",
        "hyper_util",
        "tonic",
        "tower",
        "opentelemetry",
        "opentelemetry_sdk",
        "opentelemetry_otlp",
    ];
    let off = own.map(|target| (target, LevelFilter::OFF));
    Targets::new().with_default(LevelFilter::INFO).with_targets(off)
}
