//! The metrics and attributes of Fallow: one list, so that dashboards and both daemons mean the same.
//!
//! Named `fallow.<noun>.<noun>` where OpenTelemetry has no convention; units in UCUM.

use opentelemetry::metrics::{
    AsyncInstrument, Counter, Gauge, Histogram, Meter, ObservableCounter, ObservableGauge,
};

/// A metric: name, unit, meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name, such as `fallow.tasks`.
    pub name: &'static str,
    /// Unit in UCUM, such as `s` or `{task}`.
    pub unit: &'static str,
    /// What it says, for people.
    pub description: &'static str,
}

/// Tasks on a host now. Gauge. Attributes: [`TASK_STATE`], [`PROJECT`].
pub const TASKS: Metric = Metric { name: "fallow.tasks", unit: "{task}", description: "Tasks by state" };
/// Jobs of a project's server, or of a host's queue, now. Gauge. Attributes: [`JOB_STATE`], [`PROJECT`].
pub const JOBS: Metric = Metric { name: "fallow.jobs", unit: "{job}", description: "Jobs by state" };
/// CPU seconds used by tasks, as the kernel counts them. Counter. Attributes: [`PROJECT`], [`OUTCOME`].
pub const CPU_TIME: Metric =
    Metric { name: "fallow.cpu.time", unit: "s", description: "CPU time of tasks by project and outcome" };
/// Short-term debt (R2.1). Gauge. Attribute: [`PROJECT`].
pub const DEBT: Metric =
    Metric { name: "fallow.debt", unit: "s", description: "Processing owed to a project, in CPU seconds" };
/// Scheduler RPCs made or served. Counter. Attributes: [`PROJECT`], [`OUTCOME`].
pub const RPCS: Metric =
    Metric { name: "fallow.rpcs", unit: "{rpc}", description: "Scheduler RPCs by outcome" };
/// Bytes moved. Counter. Attributes: [`PROJECT`], [`DIRECTION`].
pub const TRANSFERRED: Metric =
    Metric { name: "fallow.transfer.size", unit: "By", description: "Bytes of files transferred" };
/// Agents whose stream is open. Gauge.
pub const AGENTS_CONNECTED: Metric =
    Metric { name: "fallow.agents.connected", unit: "{agent}", description: "Agents whose stream is open" };
/// Version of the fleet's document: wanted on the coordinator, running on an agent. Gauge.
pub const DOCUMENT_VERSION: Metric =
    Metric { name: "fallow.document.version", unit: "1", description: "Version of the fleet document" };
/// What an agent and its projects may use of the disk (R4.1). Gauge.
pub const DISK_LIMIT: Metric = Metric {
    name: "fallow.disk.limit",
    unit: "By",
    description: "What agent and projects may use of the disk",
};
/// What they use. Gauge.
pub const DISK_USED: Metric =
    Metric { name: "fallow.disk.used", unit: "By", description: "What agent and projects use of the disk" };
/// What has to be freed until computing goes on (R4.8). Gauge.
pub const DISK_MISSING: Metric = Metric {
    name: "fallow.disk.missing",
    unit: "By",
    description: "What has to be freed on the disk until computing goes on",
};
/// What was deleted for want of space, or because nothing owned it (R4.13). Counter, since the agent's start.
pub const DISK_DELETED: Metric =
    Metric { name: "fallow.disk.deleted", unit: "By", description: "Bytes of files that were deleted" };
/// The same in files. Counter, since the agent's start.
pub const DISK_DELETED_FILES: Metric =
    Metric { name: "fallow.disk.deleted.files", unit: "{file}", description: "Files that were deleted" };
/// Jobs given back for want of space (R4.8). Counter, since the agent's start.
pub const DISK_GIVEN_BACK: Metric = Metric {
    name: "fallow.disk.given_back",
    unit: "{job}",
    description: "Jobs given back to their servers for want of space on the disk",
};
/// R5.30. Gauge.
pub const IDLENESS: Metric = Metric {
    name: "fallow.idleness",
    unit: "1",
    description: "Fraction of available time without a runnable job",
};
/// R5.31. Gauge.
pub const WASTE: Metric = Metric {
    name: "fallow.waste",
    unit: "1",
    description: "Fraction of used time spent on jobs that miss their deadline",
};
/// R5.32. Gauge.
pub const SHARE_VIOLATION: Metric = Metric {
    name: "fallow.share_violation",
    unit: "1",
    description: "Distance of processing received from shares",
};
/// R5.35. Gauge.
pub const SHARE_DEVIATION: Metric = Metric {
    name: "fallow.share_deviation",
    unit: "1",
    description: "Distance of processing received from what shares make of what projects could supply",
};
/// R5.33. Gauge.
pub const MONOTONY: Metric = Metric {
    name: "fallow.monotony",
    unit: "1",
    description: "How rarely the host switches between projects",
};

/// Time that a call of the operator's API took. Histogram. The name, unit and attributes are OpenTelemetry's
/// own convention (`rpc.method`, `rpc.response.status_code`, `rpc.system.name`), so it is not among [`ALL`].
pub const CALL_DURATION: Metric =
    Metric { name: "rpc.server.call.duration", unit: "s", description: "Duration of operators' calls" };

/// Upper ends of the buckets of durations, in seconds, as the convention has them: those of the SDK are made
/// for milliseconds.
const SECONDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// All metrics of Fallow's own, for documentation and dashboards.
pub const ALL: [Metric; 19] = [
    TASKS,
    JOBS,
    CPU_TIME,
    DEBT,
    RPCS,
    TRANSFERRED,
    AGENTS_CONNECTED,
    DOCUMENT_VERSION,
    DISK_LIMIT,
    DISK_USED,
    DISK_MISSING,
    DISK_DELETED,
    DISK_DELETED_FILES,
    DISK_GIVEN_BACK,
    IDLENESS,
    WASTE,
    SHARE_VIOLATION,
    SHARE_DEVIATION,
    MONOTONY,
];

/// Attribute: the project's master URL, which is the same in both daemons and at every time.
pub const PROJECT: &str = "fallow.project";
/// Attribute: the project's name, for people, beside its master URL where it is known.
pub const PROJECT_NAME: &str = "fallow.project.name";
/// Attribute: running, preempted, ...
pub const TASK_STATE: &str = "fallow.task.state";
/// Attribute: the state of a job.
pub const JOB_STATE: &str = "fallow.job.state";
/// Attribute: how it ended (`success`, `failure`, ...).
pub const OUTCOME: &str = "fallow.outcome";
/// Attribute: `up` or `down`.
pub const DIRECTION: &str = "fallow.direction";
/// Attribute: a host's agent id.
pub const AGENT: &str = "fallow.agent";

impl Metric {
    /// A gauge of whole numbers.
    #[must_use]
    pub fn u64_gauge(&self, meter: &Meter) -> Gauge<u64> {
        meter.u64_gauge(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    /// A gauge of fractions.
    #[must_use]
    pub fn f64_gauge(&self, meter: &Meter) -> Gauge<f64> {
        meter.f64_gauge(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    /// A gauge that is asked at each export: it reports only what exists then, so a project that is gone
    /// vanishes.
    pub fn observed(
        &self,
        meter: &Meter,
        observe: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) -> ObservableGauge<f64> {
        meter
            .f64_observable_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(observe)
            .build()
    }

    /// A counter that is asked at each export for its running total, kept elsewhere: a restart of the daemon
    /// loses nothing of it.
    pub fn observed_total(
        &self,
        meter: &Meter,
        observe: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) -> ObservableCounter<f64> {
        meter
            .f64_observable_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(observe)
            .build()
    }

    /// A histogram of durations in seconds.
    #[must_use]
    pub fn seconds_histogram(&self, meter: &Meter) -> Histogram<f64> {
        let histogram =
            meter.f64_histogram(self.name).with_unit(self.unit).with_description(self.description);
        histogram.with_boundaries(SECONDS.to_vec()).build()
    }

    /// A counter of whole numbers.
    #[must_use]
    pub fn u64_counter(&self, meter: &Meter) -> Counter<u64> {
        meter.u64_counter(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    /// A counter of fractions, such as seconds.
    #[must_use]
    pub fn f64_counter(&self, meter: &Meter) -> Counter<f64> {
        meter.f64_counter(self.name).with_unit(self.unit).with_description(self.description).build()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
    use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
    use opentelemetry_sdk::metrics::{SdkMeterProvider, Temporality};

    use super::*;

    #[test]
    fn every_name_is_fallows_own_and_stands_once() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| name.starts_with("fallow.")));
    }

    /// What an exporter is given of a histogram: unit, bounds, counts.
    type Exported = (String, Vec<f64>, Vec<u64>);

    /// Keeps the histograms that it is given.
    #[derive(Clone, Default)]
    struct Histograms(Arc<Mutex<Vec<Exported>>>);

    impl PushMetricExporter for Histograms {
        async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
            for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
                if let AggregatedMetrics::F64(MetricData::Histogram(histogram)) = metric.data() {
                    let of_point = histogram.data_points().map(|point| {
                        (metric.unit().to_owned(), point.bounds().collect(), point.bucket_counts().collect())
                    });
                    self.0.lock().unwrap().extend(of_point);
                }
            }
            Ok(())
        }
        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }
        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
        fn temporality(&self) -> Temporality {
            Temporality::Cumulative
        }
    }

    #[test]
    fn r6_7_calls_of_milliseconds_and_of_seconds_are_told_apart() {
        let histograms = Histograms::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(histograms.clone()).build();
        let calls = CALL_DURATION.seconds_histogram(&provider.meter("test"));
        let durations = [0.002, 0.02, 0.2, 2.0, 20.0];
        durations.iter().for_each(|seconds| calls.record(*seconds, &[]));
        provider.force_flush().unwrap();
        let exported = histograms.0.lock().unwrap().remove(0);
        assert_eq!((exported.0.as_str(), exported.1), ("s", SECONDS.to_vec()));
        assert_eq!(
            exported.2.iter().filter(|count| **count == 1).count(),
            durations.len(),
            "{:?}",
            exported.2
        );
        provider.shutdown().unwrap();
    }
}
