//! Whether this host is a machine of its own, and what on it could run other systems (R6.2).
//!
//! Names are those of systemd (`systemd-detect-virt`), for people know them. What is said here is for people
//! and for choosing hosts: a hypervisor can hide, and who runs one can have it say anything.

mod container;
mod hypervisor;
mod programs;

use std::path::Path;

use fallow_domain::Virtualization;

pub use programs::Programs;

/// Longest name that is taken over from a file of the system, in bytes.
const NAME_MAX: usize = 32;

/// What the files of the system tell, in a moment: the hypervisor and the container. Programs are looked for
/// by [`Programs`].
pub fn look(root: &Path) -> Virtualization {
    Virtualization {
        hypervisor: hypervisor::of(root, hypervisor::from_cpu().as_deref()).unwrap_or_default(),
        container: container::of(root).unwrap_or_default(),
        ..Virtualization::default()
    }
}

/// The text of a file below `root`; empty where it cannot be read.
fn text(root: &Path, path: &str) -> String {
    std::fs::read(root.join(path))
        .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A name that a file of the system gives, if it is one word such as `systemd-nspawn`.
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    ((1..=NAME_MAX).contains(&text.len()) && text.chars().all(is_word)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system whose files are these.
    pub(super) fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn r6_2_what_this_machine_says_of_itself_fits_together() {
        let found = look(Path::new("/"));
        let flags = text(Path::new("/"), "proc/cpuinfo");
        let is_virtual = flags.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
        // A machine whose CPUs say so is one; of others files may say it.
        assert!(!is_virtual || !found.hypervisor.is_empty(), "{found:?}");
        if Path::new("/.dockerenv").exists() {
            assert_eq!(found.container, "docker");
        }
    }

    #[test]
    fn r6_2_only_a_word_is_taken_for_a_name() {
        assert_eq!(name(" systemd-nspawn\n").as_deref(), Some("systemd-nspawn"));
        for text in ["", "a b", "\u{1b}[2J", &"x".repeat(NAME_MAX + 1), "a\nb"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }
}
