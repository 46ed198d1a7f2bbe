//! The programs under test, as the sources beside this test make them.
//!
//! Cargo builds a package's own programs before its tests, and no other package's: whoever ran this package's tests alone
//! would test programs of yesterday, or none. So each test process asks Cargo for them, once, before it first starts one.
//! Cargo's own lock lets test processes beside each other take turns, and where all is fresh it is done in a second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// A program of this workspace, built from its present sources with the profile of the test.
///
/// # Panics
/// When it cannot be built; Cargo says why on standard error.
pub fn binary(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<Result<BTreeMap<String, PathBuf>, String>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(build).as_ref().unwrap_or_else(|wrong| panic!("{wrong}"));
    programs.get(name).unwrap_or_else(|| panic!("this workspace has no program {name}")).clone()
}

/// Builds all programs of the workspace, and gives them by name.
fn build() -> Result<BTreeMap<String, PathBuf>, String> {
    let mut cargo = cargo(&std::env::current_exe().unwrap());
    let shown = format!("{cargo:?}");
    let output = cargo.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the programs under test cannot be built, see above: {shown}: {}",
            output.status
        ));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect())
}

/// The command that builds them where `test`, TARGET/PROFILE/deps/NAME, and its own dependencies were built.
fn cargo(test: &Path) -> Command {
    let profile = test.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What Cargo tells a test about its own package would have crates built again that look at such variables.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"].iter().any(|start| name.starts_with(start)) {
            cargo.env_remove(&variable);
        }
    }
    // A test beside them, and so the features that tests ask of common dependencies: a build of the whole workspace's
    // tests has made just these programs then.
    cargo.args(["build", "--workspace", "--bins", "--test", "house", "--locked"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    cargo.arg("--profile").arg(match profile.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    });
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::inherit());
    cargo
}

/// The name and path of the program that a message of Cargo's is about, if it is about one.
fn executable(message: &Value) -> Option<(String, PathBuf)> {
    let is_program = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "bin");
    let path = PathBuf::from(message["executable"].as_str().filter(|_| is_program)?);
    Some((message["target"]["name"].as_str()?.to_owned(), path))
}
