//! The scheduler RPC.
