//! Commands that a text names, for somebody who named the agent's directory: as they stand they would ask
//! another agent, or none.

use std::path::Path;

use clap::CommandFactory as _;
use fallow_domain::printable::shell_path;

use crate::cli::Cli;

/// How a text begins to name a command.
const PROGRAM: &str = "fallow-agent ";

/// The text with that directory in each command that takes one.
#[must_use]
pub fn about(dir: &Path, text: &str) -> String {
    let (program, dir) = (Cli::command(), shell_path(dir));
    let mut parts = text.split(PROGRAM);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (words, rest) = part.split_at(words(&program, part).unwrap_or_default());
        all += PROGRAM;
        all += words;
        if !words.is_empty() && !rest.starts_with(" --dir") {
            all += " --dir ";
            all += &dir;
        }
        all += rest;
    }
    all
}

/// How long the words of a command are by which a text begins, if it is one that takes a directory.
fn words(program: &clap::Command, text: &str) -> Option<usize> {
    let (mut command, mut length) = (program, 0);
    loop {
        let rest = &text[length..];
        let Some(rest) = (if length == 0 { Some(rest) } else { rest.strip_prefix(' ') }) else { break };
        let name = rest.split(|one: char| !one.is_ascii_lowercase()).next().unwrap_or_default();
        let Some(found) = command.find_subcommand(name) else { break };
        command = found;
        length = text.len() - rest.len() + name.len();
    }
    let takes = command.get_arguments().any(|argument| argument.get_id() == "dir");
    (length > 0 && takes).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_commands_that_a_text_names_have_the_directory_that_its_reader_named() {
        let of = |text| about(Path::new("lab/agent-1"), text);
        for (text, told) in [
            ("goes on with: fallow-agent resume", "goes on with: fallow-agent resume --dir lab/agent-1"),
            (
                "(fallow-agent preferences reload): x",
                "(fallow-agent preferences reload --dir lab/agent-1): x",
            ),
            ("fallow-agent preferences --why", "fallow-agent preferences --dir lab/agent-1 --why"),
            ("fallow-agent attach URL", "fallow-agent attach --dir lab/agent-1 URL"),
            ("fallow-agent resume\nmore", "fallow-agent resume --dir lab/agent-1\nmore"),
            ("`fallow-agent snooze off` ends", "`fallow-agent snooze --dir lab/agent-1 off` ends"),
            (
                "(fallow-agent status, fallow-agent disk --why)",
                "(fallow-agent status --dir lab/agent-1, fallow-agent disk --dir lab/agent-1 --why)",
            ),
        ] {
            assert_eq!(of(text), told);
        }
    }

    #[test]
    fn r6_4_what_names_no_command_or_has_a_directory_already_stays_as_it_is() {
        for text in [
            "",
            "no projects",
            "fallow-agent ",
            "fallow-agent is light",
            "fallow-agent statuses",
            "fallow-agent 1.0",
            "fallow-agent preferences check FILE",
            "fallow-agent stop --dir other",
            "fallow-agent é",
        ] {
            assert_eq!(about(Path::new("d"), text), text);
        }
    }
}
