//! What the agent's container was made with, if it is in one.
//!
//! Model: what makes a container says so in a file, in the environment of its first process or in the names
//! of its control groups; whatever is found first counts. Ordinary users cannot read that environment.

use std::path::Path;

use super::{name, text};
use crate::proc;

/// Parts of names of control groups, and what names them so.
const IN_GROUPS: [(&str, &str); 5] = [
    ("libpod", "podman"),
    ("docker", "docker"),
    ("kubepods", "kubernetes"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
];

/// So much of an environment is looked at, in bytes.
const ENVIRONMENT_MAX: u64 = 64 << 10;

/// What it is called when nothing says more than that it is there.
const SOME: &str = "container-other";

/// The container of a system whose files are below `root`. None in none, or where nothing tells.
pub(super) fn of(root: &Path) -> Option<String> {
    if root.join("run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    if root.join(".dockerenv").exists() {
        return Some("docker".to_owned());
    }
    said(root).or_else(|| in_groups(root)).or_else(|| in_kernel(root))
}

/// What it says of itself: systemd writes down for all to read what it was told.
fn said(root: &Path) -> Option<String> {
    let written = text(root, "run/systemd/container");
    // Where the first process is somebody's own, that may be as long as he likes.
    let environment = proc::start_of(root.join("proc/1/environ"), ENVIRONMENT_MAX).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    let told = environment.split('\0').find_map(|one| one.strip_prefix("container="));
    let said = if written.is_empty() { told? } else { &written };
    Some(name(said).unwrap_or_else(|| SOME.to_owned()))
}

fn in_groups(root: &Path) -> Option<String> {
    let groups = text(root, "proc/1/cgroup");
    let named = IN_GROUPS.iter().find(|(part, _)| groups.contains(part))?;
    Some(named.1.to_owned())
}

/// Windows' own Linux is a container in a virtual machine, and its kernel says so.
fn in_kernel(root: &Path) -> Option<String> {
    let release = text(root, "proc/sys/kernel/osrelease");
    (release.contains("WSL") || release.contains("Microsoft")).then(|| "wsl".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::system;
    use super::*;

    #[test]
    fn r6_2_a_container_is_called_by_what_made_it() {
        let check = |files: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(of(system(files).path()).as_deref(), expected, "{files:?}");
        };
        check(&[], None);
        check(&[(".dockerenv", "")], Some("docker"));
        check(&[("run/.containerenv", ""), (".dockerenv", "")], Some("podman"));
        check(&[("proc/1/environ", "A=1\0container=lxc\0")], Some("lxc"));
        check(&[("run/systemd/container", "systemd-nspawn\n")], Some("systemd-nspawn"));
        check(&[("proc/1/environ", "container=\u{1b}[2J\0")], Some(SOME));
        check(&[("proc/1/environ", "mycontainer=no\0")], None);
        check(&[("proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n")], Some("kubernetes"));
        check(&[("proc/1/cgroup", "0::/init.scope\n")], None);
        check(&[("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")], Some("wsl"));
        check(&[("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n")], None);
    }
}
