//! What a daemon says about itself: the resource of all it exports.

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;

/// A running daemon, in the words of OpenTelemetry's semantic conventions (`service.*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `service.name`: `fallow-agent` or `fallow-coordinator`.
    pub name: &'static str,
    /// `service.version`: the crate's.
    pub version: &'static str,
    /// `service.instance.id`: the agent's or coordinator's id, the same after a restart.
    pub instance_id: String,
}

impl Service {
    /// The resource, with what the operator put into the environment added and taking precedence.
    pub(crate) fn resource(&self) -> Resource {
        let own = [
            KeyValue::new("service.namespace", "fallow"),
            KeyValue::new("service.name", self.name),
            KeyValue::new("service.version", self.version),
            KeyValue::new("service.instance.id", self.instance_id.clone()),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ];
        let environment = Resource::builder().build();
        let name_given = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
            || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|list| list.contains("service.name="));
        let kept = own.into_iter().filter(|pair| {
            let fallback = pair.key == Key::from_static_str("service.name") && !name_given;
            fallback || environment.get(&pair.key).is_none()
        });
        Resource::builder().with_attributes(kept).build()
    }
}
