//! The manual page: one page for all commands, made from the same text as `--help`.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;

/// What lies where, for the section FILES.
const FILES: [(&str, &str); 6] = [
    ("daemon.json", "process id and control socket of the running agent"),
    ("control.sock", "where commands reach it; for its owner and root only"),
    ("identity.json", "who the agent is in its fleet, with its secret"),
    ("store/", "everything that it knows: projects, jobs, the owner's word"),
    ("projects/", "the projects' files, a directory for each, as BOINC has them"),
    ("slots/", "the directories in which tasks run"),
];

/// The page, in the language of `man`.
pub fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut out = String::new();
    let _ = writeln!(
        out,
        ".TH FALLOW\\-AGENT 1 \"\" \"fallow\\-agent {}\" \"Fallow\"",
        env!("CARGO_PKG_VERSION")
    );
    section(&mut out, "NAME");
    let about = cli.get_about().map(ToString::to_string).unwrap_or_default();
    paragraph(&mut out, &format!("fallow-agent - {}", about.trim_start_matches("The ")));
    section(&mut out, "SYNOPSIS");
    paragraph(&mut out, "fallow-agent COMMAND [OPTIONS]");
    section(&mut out, "COMMANDS");
    for command in
        cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        describe(&mut out, command.clone());
    }
    section(&mut out, "FILES");
    paragraph(&mut out, "In the agent's data directory, which --dir names:");
    for (name, what) in FILES {
        item(&mut out, name, what);
    }
    let general = cli.get_after_help().map(ToString::to_string).unwrap_or_default();
    for part in general.split("\n\n") {
        // What has no title says where this page is.
        if let Some((title, text)) = part.split_once(":\n") {
            section(&mut out, &title.to_uppercase());
            verbatim(&mut out, text);
        }
    }
    out
}

fn describe(out: &mut String, mut command: Command) {
    let usage = command.render_usage().to_string();
    let _ = writeln!(out, ".SS \"{}\"", escaped(usage.trim_start_matches("Usage: ")));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    paragraph(out, &format!("{about}."));
    for argument in
        command.get_arguments().filter(|argument| !argument.is_hide_set() && argument.get_id() != "help")
    {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let variable = argument.get_env().map(|name| format!(" [env: {}]", name.to_string_lossy()));
        item(out, &term(argument), &format!("{help}{}", variable.unwrap_or_default()));
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(out, ".PP");
    verbatim(out, &after);
}

fn term(argument: &Arg) -> String {
    let value =
        argument.get_value_names().and_then(|names| names.first()).map_or(String::new(), ToString::to_string);
    let takes_value = argument.get_action().takes_values();
    match argument.get_long() {
        Some(long) if takes_value => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => value,
    }
}

fn section(out: &mut String, title: &str) {
    let _ = writeln!(out, ".SH \"{}\"", escaped(title));
}

fn paragraph(out: &mut String, text: &str) {
    let _ = writeln!(out, ".PP\n{}", escaped(text));
}

fn item(out: &mut String, term: &str, text: &str) {
    let _ = writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(text));
}

/// Lines as they are.
fn verbatim(out: &mut String, text: &str) {
    out.push_str(".nf\n");
    for line in text.lines() {
        let _ = writeln!(out, "{}", escaped(line));
    }
    out.push_str(".fi\n");
}

/// As `man` shows it unchanged: hyphens that can be pasted, no line that begins like a command.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_has_every_command_with_its_examples_and_names_no_other_page() {
        let page = page();
        for part in ["NAME", "SYNOPSIS", "COMMANDS", "FILES", "EXAMPLES", "EXIT STATUS"] {
            assert!(page.contains(&format!(".SH \"{part}\"\n")), "{part}");
        }
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(
                page.contains(&format!(".SS \"fallow\\-agent {}", command.get_name())),
                "{}",
                command.get_name()
            );
        }
        assert!(page.contains("\\-\\-coordinator http://127.0.0.1:4000 \\-\\-token\\-file token\n"));
        assert!(page.contains("130 for Ctrl\\-C"));
        assert!(!page.contains("(1)") && !page.contains("guard"), "{page}");
    }
}
