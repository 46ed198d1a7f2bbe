//! What coordinator, agents and their owners' tools send each other.

use fallow_agent::control::protocol::{Request, Response};
use fallow_domain::agent_state::Entry;
use fallow_domain::{Device, FleetDocument};
use fallow_proto::fleet::{document, entry, entry_key, v1 as wire};
use prost::Message;

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target::new("fleet_document", "", |bytes| {
        let Ok(document) = wire::Document::decode(bytes) else { return };
        if let Ok(document) = document::from_wire(document) {
            document.check().unwrap();
            assert_eq!(document::from_wire(document::to_wire(&document)).unwrap(), document);
            let text = serde_json::to_string(&document).unwrap();
            assert_eq!(serde_json::from_str::<FleetDocument>(&text).unwrap(), document);
        }
    }),
    Target::new("fleet_messages", "", |bytes| {
        if let Ok(message) = wire::FromAgent::decode(bytes) {
            assert!(wire::FromAgent::decode(message.encode_to_vec().as_slice()).is_ok());
            let (entries, removed) = match message.body {
                Some(wire::from_agent::Body::Snapshot(snapshot)) => (snapshot.entries, Vec::new()),
                Some(wire::from_agent::Body::Delta(delta)) => (delta.entries, delta.removed),
                _ => (Vec::new(), Vec::new()),
            };
            for entry in entries.into_iter().filter_map(|entry| entry::from_wire(entry).ok()) {
                let again = entry::from_wire(entry::to_wire(&entry)).unwrap();
                assert_eq!(again.key(), entry.key());
                let text = serde_json::to_string(&again).unwrap();
                assert_eq!(serde_json::from_str::<Entry>(&text).unwrap().key(), entry.key());
            }
            for text in removed {
                let Ok(key) = entry_key::from_wire(&text) else { continue };
                assert_eq!(entry_key::to_wire(&key), text);
            }
        }
        if let Ok(message) = wire::FromCoordinator::decode(bytes) {
            assert!(wire::FromCoordinator::decode(message.encode_to_vec().as_slice()).is_ok());
        }
    }),
    Target::new("control_socket", "", |bytes| {
        if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
            let text = serde_json::to_vec(&request).unwrap();
            assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        }
        let _ = serde_json::from_slice::<Response>(bytes);
    }),
    Target::new("device", "", |bytes| {
        if let Ok(device) = String::from_utf8_lossy(bytes).parse::<Device>() {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
    }),
];
