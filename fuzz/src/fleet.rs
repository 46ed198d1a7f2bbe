//! What coordinator, agents and their owners' tools send each other.

use fallow_agent::control::protocol::{Request, Response};
use fallow_agent::fleet::convert;
use fallow_domain::{Device, FleetDocument};
use fallow_proto::fleet::v1 as wire;
use prost::Message;

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target::new("fleet_document", "", |bytes| {
        let Ok(document) = wire::Document::decode(bytes) else { return };
        if let Ok(document) = convert::document(document) {
            document.check().unwrap();
            let text = serde_json::to_string(&document).unwrap();
            assert_eq!(serde_json::from_str::<FleetDocument>(&text).unwrap(), document);
        }
    }),
    Target::new("fleet_messages", "", |bytes| {
        if let Ok(message) = wire::FromAgent::decode(bytes) {
            assert!(wire::FromAgent::decode(message.encode_to_vec().as_slice()).is_ok());
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
