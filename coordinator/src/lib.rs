//! The coordinator, the lab's own project, and the operators' command line.

pub mod project;
