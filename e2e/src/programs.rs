//! The programs under test, as the sources beside this test make them.
//!
//! Cargo builds a package's own programs before its tests, and no other package's: whoever ran this package's
//! tests alone would test programs of yesterday, or none. So each test process asks Cargo for them, once,
//! before it first starts one. Cargo's own lock lets test processes beside each other take turns, and where
//! all is fresh it is done in a second.
//!
//! A test process starts links of its own to what was built then. Who edits sources while tests run, and
//! starts others, has the programs built anew: those that run go on with what they began with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The programs by name, and who removes them.
struct Programs {
    paths: BTreeMap<String, PathBuf>,
    /// Ends with this process, however that ends.
    _remover: Child,
}

/// A program of this workspace, built from its present sources with the profile of the test.
///
/// # Panics
/// When it cannot be built; Cargo says why on standard error.
pub fn binary(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<Result<Programs, String>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(build).as_ref().unwrap_or_else(|wrong| panic!("{wrong}"));
    programs.paths.get(name).unwrap_or_else(|| panic!("this workspace has no program {name}")).clone()
}

/// Builds all programs of the workspace, and makes links to them.
fn build() -> Result<Programs, String> {
    let mut cargo = cargo(&std::env::current_exe().unwrap(), env!("E2E_TARGET"));
    let shown = format!("{cargo:?}");
    let output = cargo.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the programs under test cannot be built, see above: {shown}: {}",
            output.status
        ));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?));
    link(built.collect()).map_err(|error| format!("cannot make links to the programs under test: {error}"))
}

/// Links to programs, in a directory of their own beside them that goes with this process.
fn link(built: BTreeMap<String, PathBuf>) -> std::io::Result<Programs> {
    let beside = built.values().next().and_then(|path| path.parent()).unwrap_or(Path::new("."));
    // All in one directory: some look for others beside themselves.
    let dir = tempfile::Builder::new().prefix("e2e-").tempdir_in(beside)?;
    let mut paths = BTreeMap::new();
    for (name, program) in built {
        let own = dir.path().join(program.file_name().unwrap_or(OsStr::new(&name)));
        std::fs::hard_link(&program, &own)?;
        paths.insert(name, own);
    }
    Ok(Programs { paths, _remover: remover(&dir.keep())? })
}

/// Removes a directory when its input ends, which is when this process does: nothing else has the other end.
/// In a process group of its own, so that Ctrl-C does not end it before.
fn remover(dir: &Path) -> std::io::Result<Child> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read -r line; rm -rf -- \"$1\"", "sh"]).arg(dir).current_dir("/");
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}

/// The command that builds them where `test` and its own dependencies were built for `target`:
/// DIR/PROFILE/deps/NAME, or DIR/TARGET/PROFILE/deps/NAME where Cargo was told a target. DIR is Cargo's build
/// directory where it has one apart.
fn cargo(test: &Path, target: &str) -> Command {
    let profile = test.ancestors().nth(2).unwrap();
    let mut dir = profile.parent().unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What Cargo tells a test about its own package would have crates built again that look at such
    // variables, and once more by the next Cargo that is not called by a test.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_", "OUT_DIR"]
            .iter()
            .any(|start| name.starts_with(start))
        {
            cargo.env_remove(&variable);
        }
    }
    // A test beside them, and so the features that tests ask of common dependencies: a build of the whole
    // workspace's tests has made just these programs then.
    cargo.args(["build", "--workspace", "--bins", "--test", "house", "--locked"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    if dir.file_name() == Some(OsStr::new(target)) {
        cargo.args(["--target", target]);
        dir = dir.parent().unwrap();
    }
    cargo.arg("--target-dir").arg(dir);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_built_where_and_for_what_their_test_was() {
        let said = |test: &str| -> Vec<String> {
            let command = cargo(Path::new(test), "x86_64-unknown-linux-gnu");
            let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
            let from = words.iter().position(|word| word.starts_with("--target")).unwrap();
            words[from..].to_vec()
        };
        assert_eq!(said("/t/debug/deps/up-1"), ["--target-dir", "/t", "--profile", "dev"]);
        assert_eq!(
            said("/t/x86_64-unknown-linux-gnu/release/deps/up-1"),
            ["--target", "x86_64-unknown-linux-gnu", "--target-dir", "/t", "--profile", "release"]
        );
    }

    #[test]
    fn what_cargo_tells_a_test_of_its_package_is_not_told_to_the_cargo_that_builds() {
        let cargo = cargo(Path::new("/t/debug/deps/up-1"), "");
        let removed: Vec<_> =
            cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "OUT_DIR"] {
            assert!(std::env::var_os(name).is_none() || removed.contains(&OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_test_process_has_programs_of_its_own_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "built").unwrap();
        let mut programs = link([("program".to_owned(), program.clone())].into()).unwrap();
        let own = programs.paths["program"].clone();
        // As Cargo does it when it builds anew.
        std::fs::remove_file(&program).unwrap();
        std::fs::write(&program, "built anew").unwrap();
        assert_eq!(std::fs::read_to_string(&own).unwrap(), "built");
        // The end of this process closes its end of the pipe.
        drop(programs._remover.stdin.take());
        programs._remover.wait().unwrap();
        assert!(!own.parent().unwrap().exists() && program.exists());
    }
}
