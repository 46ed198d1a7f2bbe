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
        let own = own.into_iter().chain(host());
        let environment = Resource::builder().build();
        let name_given = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
            || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|list| list.contains("service.name="));
        let kept = own.filter(|pair| {
            let fallback = pair.key == Key::from_static_str("service.name") && !name_given;
            fallback || environment.get(&pair.key).is_none()
        });
        Resource::builder().with_attributes(kept).build()
    }
}

/// The machine, in the words of the conventions for `host.*` and `os.*`, as far as it says.
fn host() -> Vec<KeyValue> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let of_release = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let attributes = [
        ("host.name", read("/proc/sys/kernel/hostname")),
        ("host.id", read("/etc/machine-id")),
        ("host.arch", arch().to_owned()),
        ("os.type", std::env::consts::OS.to_owned()),
        ("os.name", of_release("NAME")),
        ("os.version", of_release("VERSION_ID")),
        ("os.description", of_release("PRETTY_NAME")),
    ];
    let known = attributes.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(key, value)| KeyValue::new(key, value)).collect()
}

/// The convention's word for this machine's kind of CPU.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_7_what_is_exported_says_on_which_machine() {
        let service = Service { name: "fallow-agent", version: "1", instance_id: "a".into() };
        let resource = service.resource();
        let text = |key: &'static str| {
            resource.get(&Key::from_static_str(key)).map(|value| value.to_string()).unwrap_or_default()
        };
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(text("host.name"), name.trim());
        assert_eq!(text("os.type"), "linux");
        if let Ok(id) = std::fs::read_to_string("/etc/machine-id") {
            assert_eq!(text("host.id"), id.trim());
        }
    }
}
