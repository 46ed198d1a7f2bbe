//! What a BOINC application written in Rust links against.
