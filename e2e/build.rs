//! Tells the tests for which target they were built: where Cargo's directories lie depends on it.

fn main() {
    println!("cargo::rustc-env=E2E_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}
