//! Trace context across process boundaries, in W3C form (`00-<trace>-<span>-<flags>`).
//!
//! Fleet messages carry it as one string, gRPC calls and maps of headers under the key `traceparent`. What
//! comes in is untrusted: anything but a valid context is ignored, because a broken trace is no reason to
//! refuse a message. `tracestate` is not carried: nothing here reads it.

use std::collections::BTreeMap;

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";

/// The current span's context, to be sent along; `None` where nothing is traced (no collector is named).
#[must_use]
pub fn current_traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// A given span's context.
#[must_use]
pub fn traceparent_of(span: &Span) -> Option<String> {
    let mut map = BTreeMap::new();
    inject_into(span, &mut MapInjector(&mut map));
    map.remove(TRACEPARENT)
}

/// Makes `span` a child of the context received. Call it before the span is first entered; afterwards, and
/// with anything that is no context, it does nothing. Returns whether it did.
pub fn set_parent(span: &Span, traceparent: &str) -> bool {
    let map = BTreeMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    set_parent_from(span, &MapExtractor(&map))
}

/// Puts the current span's context into a map of headers.
pub fn inject(map: &mut BTreeMap<String, String>) {
    inject_into(&Span::current(), &mut MapInjector(map));
}

/// Makes `span` a child of the context in a map of headers, as [`set_parent`].
pub fn extract(span: &Span, map: &BTreeMap<String, String>) -> bool {
    set_parent_from(span, &MapExtractor(map))
}

/// Puts the current span's context into the metadata of a gRPC request.
pub fn inject_metadata(metadata: &mut MetadataMap) {
    inject_into(&Span::current(), &mut MetadataInjector(metadata));
}

/// Makes `span` a child of the context in the metadata of a gRPC request, as [`set_parent`].
pub fn extract_metadata(span: &Span, metadata: &MetadataMap) -> bool {
    set_parent_from(span, &MetadataExtractor(metadata))
}

fn inject_into(span: &Span, injector: &mut dyn Injector) {
    TraceContextPropagator::new().inject_context(&span.context(), injector);
}

fn set_parent_from(span: &Span, extractor: &dyn Extractor) -> bool {
    // Extracted from an empty context: the default would mix in the caller's current one.
    let parent =
        TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), extractor);
    parent.span().span_context().is_valid() && span.set_parent(parent).is_ok()
}

struct MapInjector<'a>(&'a mut BTreeMap<String, String>);

impl Injector for MapInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        // The propagator also sets an empty tracestate.
        if !value.is_empty() {
            self.0.insert(key.to_owned(), value);
        }
    }
}

struct MapExtractor<'a>(&'a BTreeMap<String, String>);

impl Extractor for MapExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

struct MetadataInjector<'a>(&'a mut MetadataMap);

impl Injector for MetadataInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let (Ok(key), Ok(value)) =
            (MetadataKey::from_bytes(key.as_bytes()), MetadataValue::try_from(value))
        {
            self.0.insert(key, value);
        }
    }
}

struct MetadataExtractor<'a>(&'a MetadataMap);

impl Extractor for MetadataExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        // Only asked for by propagators that search; the one used here names its keys.
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::info_span;
    use tracing_subscriber::layer::SubscriberExt;

    const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traced<T>(work: impl FnOnce() -> T) -> T {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work)
    }

    #[test]
    fn r6_7_a_span_with_a_parent_from_a_message_is_in_its_trace() {
        traced(|| {
            let span = info_span!("apply");
            assert!(set_parent(&span, SENT));
            let own = traceparent_of(&span).unwrap();
            assert_eq!(own[3..35], SENT[3..35]);
            assert_ne!(own[36..52], SENT[36..52]);
        });
    }

    #[test]
    fn r6_7_context_survives_a_map_and_grpc_metadata() {
        traced(|| {
            let outer = info_span!("change");
            let _entered = outer.enter();
            let (mut map, mut metadata) = (BTreeMap::new(), MetadataMap::new());
            inject(&mut map);
            inject_metadata(&mut metadata);
            assert_eq!(map.keys().collect::<Vec<_>>(), ["traceparent"]);
            let trace = current_traceparent().unwrap()[3..35].to_owned();
            for adopt in [&(|span: &Span| extract(span, &map)) as &dyn Fn(&Span) -> bool, &|span| {
                extract_metadata(span, &metadata)
            }] {
                let inner = info_span!(parent: None, "agent");
                assert!(adopt(&inner));
                assert_eq!(traceparent_of(&inner).unwrap()[3..35], trace);
            }
        });
    }

    #[test]
    fn anything_but_a_context_is_ignored() {
        traced(|| {
            for text in
                ["", "00-zz", "00-00000000000000000000000000000000-0000000000000000-01", &"9".repeat(10_000)]
            {
                assert!(!set_parent(&info_span!("apply"), text), "{text}");
            }
        });
        assert_eq!(current_traceparent(), None);
    }
}
