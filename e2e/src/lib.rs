//! End-to-end tests with real processes, sockets and BOINC peers.
