//! `fallow completions` and `fallow man`: made from the command line's own definition.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{Failure, print};

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fallow completions bash > /etc/bash_completion.d/fallow")]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(super) fn completions(arguments: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "fallow", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// One page says it all: the commands are in it, each as its own help shows it.
pub(super) fn man(command: &Command) -> Result<(), Failure> {
    let fail = |error| Failure::internal("the manual page cannot be made", error);
    let mut command = command.clone();
    command.build();
    let mut out = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(&mut out).map_err(fail)?;
    page.render_name_section(&mut out).map_err(fail)?;
    page.render_synopsis_section(&mut out).map_err(fail)?;
    page.render_description_section(&mut out).map_err(fail)?;
    let mut text = String::from_utf8_lossy(&out).into_owned();
    let (mut commands, mut examples) = (String::new(), String::new());
    for sub in command.get_subcommands() {
        describe(sub, &format!("fallow {}", sub.get_name()), &mut commands, &mut examples);
    }
    let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.push_str(".SH COMMANDS\n");
    text.push_str(&commands);
    text.push_str(".SH EXAMPLES\n");
    text.push_str(&examples);
    for part in own.split("\n\n") {
        match part.split_once(":\n") {
            Some(("Exit status", codes)) => text.push_str(&format!(".SH EXIT STATUS\n{}", verbatim(codes))),
            Some(_) => {}
            None => text.push_str(&format!(".SH ENVIRONMENT\n{}\n", escaped(part))),
        }
    }
    print(&text)
}

/// A command's help, its examples apart, and the same of those below it.
fn describe(command: &Command, path: &str, commands: &mut String, examples: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    let help = command.clone().after_help("").render_long_help().to_string();
    commands.push_str(&format!(".SS {}\n{}", escaped(path), verbatim(help.trim_end())));
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let is_leaf = !command.has_subcommands();
    if let Some((_, shown)) = after.split_once('\n').filter(|_| is_leaf) {
        examples.push_str(&format!(".SS {}\n{}", escaped(path), verbatim(shown)));
    }
    for sub in command.get_subcommands() {
        describe(sub, &format!("{path} {}", sub.get_name()), commands, examples);
    }
}

/// Lines that stay as they are.
fn verbatim(text: &str) -> String {
    format!(".nf\n{}\n.fi\n", escaped(text))
}

/// Text in which nothing is a request of roff.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_request_of_roff() {
        assert_eq!(escaped(".SH a-b\n'c\\d"), "\\&.SH a\\-b\n\\&'c\\ed");
    }
}
