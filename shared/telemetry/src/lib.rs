//! Logging and OpenTelemetry set-up for the daemons.
