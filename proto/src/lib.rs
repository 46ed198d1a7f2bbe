//! The fleet contract: what crosses the wire between agent, coordinator and operator.
