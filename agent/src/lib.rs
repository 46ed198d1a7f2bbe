//! The agent: the shell that turns the client on a host.
