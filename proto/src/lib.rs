//! The fleet contract: what crosses the wire between agent, coordinator and operator.
//!
//! Generated code only. What arrives in these types is untrusted: each side turns it into domain types of its own
//! before it decides anything by it.
#![allow(missing_docs, unreachable_pub, clippy::all)]

/// The link between an agent and its coordinator.
pub mod fleet {
    pub mod v1 {
        tonic::include_proto!("fallow.fleet.v1");
    }
}

/// What operators' tools ask of a coordinator.
pub mod operator {
    pub mod v1 {
        tonic::include_proto!("fallow.operator.v1");
    }
}

/// The version of the fleet protocol that both sides name in their first message.
pub const PROTOCOL: u32 = 1;
