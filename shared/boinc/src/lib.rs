//! BOINC's formats: bytes in, typed values out, and back.

pub mod runtime;
