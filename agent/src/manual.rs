//! The agent's manual page.

use clap::CommandFactory;
use fallow_manual::Extra;

use crate::cli::Cli;

/// What lies where, for the section FILES.
const FILES: [(&str, &str); 7] = [
    ("preferences.toml", "what the owner of the host allows; it only tightens"),
    ("daemon.json", "process id and control socket of the running agent"),
    ("control.sock", "where commands reach it; for its owner and root only"),
    ("identity.json", "who the agent is in its fleet, with its secret"),
    ("store/", "everything that it knows: projects, jobs, the owner's word"),
    ("projects/", "the projects' files, a directory for each, as BOINC has them"),
    ("slots/", "the directories in which tasks run"),
];

/// The page, in the language of `man`.
pub fn page() -> String {
    let files = Some(("In the agent's data directory, which --dir names:", &FILES[..]));
    fallow_manual::page(&Cli::command(), env!("CARGO_PKG_VERSION"), Extra { files, untitled: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_has_every_command_with_its_examples_and_names_no_other_page() {
        let page = page();
        for part in ["NAME", "SYNOPSIS", "COMMANDS", "FILES", "EXAMPLES", "EXIT STATUS"] {
            let unquoted = page.replace('"', "");
            assert!(unquoted.contains(&format!(".SH {part}\n")), "{part}");
        }
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(
                page.contains(&format!(".SS \"fallow\\-agent {}", command.get_name())),
                "{}",
                command.get_name()
            );
        }
        assert!(page.contains("run \\-\\-token\\-file token\n"));
        assert!(page.contains("130 for Ctrl\\-C"));
        assert!(!page.contains("(1)") && !page.contains("guard"), "{page}");
    }
}
