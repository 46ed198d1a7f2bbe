//! The fleet contract: what crosses the wire between agent, coordinator and operator.
//!
//! The types under `v1` are generated from the `.proto` files and hold whatever somebody sent. What agents
//! and coordinators say to each other is turned into domain types here, once for both sides, and back:
//! [`fleet`]. Reading checks, because what arrives is untrusted. What only operators' tools and the
//! coordinator say to each other the coordinator turns into types of its own.

pub mod codec;
pub mod fleet;
pub mod layout;
pub mod operator;
mod weight;

/// The version of the fleet protocol that both sides name in their first message.
pub const PROTOCOL: u32 = 2;

/// The `.proto` files with their comments: a `FileDescriptorSet` of protobuf, encoded.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
