//! An exporter that tells the operator once when the collector goes, and once when it is back.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Whether the collector answers; shared by the exporters of all three signals, which fail together.
#[derive(Debug, Clone)]
pub(crate) struct Reachability {
    endpoint: Arc<str>,
    is_lost: Arc<AtomicBool>,
}

impl Reachability {
    pub(crate) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), is_lost: Arc::default() }
    }

    fn note(&self, result: OTelSdkResult) -> OTelSdkResult {
        let was_lost = self.is_lost.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_lost => tracing::warn!(
                endpoint = %self.endpoint,
                error = error as &dyn Error,
                "the collector does not take telemetry; carrying on without, and trying again"
            ),
            Ok(()) if was_lost => {
                tracing::info!(endpoint = %self.endpoint, "the collector takes telemetry again");
            }
            _ => {}
        }
        result
    }
}

/// An exporter whose failures are noted.
#[derive(Debug)]
pub(crate) struct Reported<E> {
    pub(crate) inner: E,
    pub(crate) reachability: Reachability,
}

impl<E: SpanExporter> SpanExporter for Reported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.reachability.note(self.inner.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Reported<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.reachability.note(self.inner.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Reported<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.reachability.note(self.inner.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}
