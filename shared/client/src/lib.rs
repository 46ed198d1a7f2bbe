//! The client as a pure state machine: events and time in, effects with reasons out.
