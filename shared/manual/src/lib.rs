//! The manual page of a command line: one page for all commands, made from the same text as `--help`.
//!
//! Every command that is not hidden has its usage, its options and what its help says at the end, its
//! examples. What the help of the whole says at its end becomes sections: a part that begins with `Title:` is
//! one of that name. clap's own maker of pages writes a page for each command, and points from one to the
//! other.
//!
//! Omitted: pages in other forms, and writing them to files.
#![forbid(unsafe_code)]

use clap::{Arg, Command};
use roff::{Roff, bold, roman};

/// What a page has beside the text of the help.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// What lies where, for the section FILES, with a sentence that says where all of it is.
    pub files: Option<(&'a str, &'a [(&'a str, &'a str)])>,
    /// The section for what stands at the end of the help without a title. Without it, it is left out.
    pub untitled: Option<&'a str>,
}

/// The page, in the language of `man`.
pub fn page(command: &Command, version: &str, extra: Extra<'_>) -> String {
    let mut command = command.clone();
    command.build();
    let name = command.get_name();
    let mut page = Roff::new();
    let source = format!("{name} {version}");
    control(&mut page, "TH", &[&name.to_uppercase(), "1", "", &source, "Fallow"]);
    section(&mut page, "NAME");
    paragraph(&mut page, &format!("{name} - {}", text(command.get_about()).trim_start_matches("The ")));
    section(&mut page, "SYNOPSIS");
    paragraph(&mut page, &format!("{name} COMMAND [OPTIONS]"));
    section(&mut page, "COMMANDS");
    command.get_subcommands().for_each(|sub| describe(&mut page, sub));
    if let Some((intro, files)) = extra.files {
        section(&mut page, "FILES");
        paragraph(&mut page, intro);
        files.iter().for_each(|(name, what)| item(&mut page, name, what));
    }
    for part in text(command.get_after_help()).split("\n\n") {
        match (part.split_once(":\n"), extra.untitled) {
            (Some((title, text)), _) => {
                section(&mut page, &title.to_uppercase());
                verbatim(&mut page, text);
            }
            (None, Some(title)) => {
                section(&mut page, title);
                paragraph(&mut page, part);
            }
            (None, None) => {}
        }
    }
    page.render()
}

fn describe(page: &mut Roff, command: &Command) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usages: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    let path = command.get_bin_name().unwrap_or_default();
    control(page, "SS", &[if let [usage] = usages[..] { usage } else { path }]);
    let about = text(command.get_long_about().or(command.get_about()));
    paragraph(page, &format!("{}.", about.trim_end_matches('.')));
    if usages.len() > 1 {
        verbatim(page, &usages.join("\n"));
    }
    for argument in command.get_arguments().filter(|argument| shows(argument)) {
        item(page, &term(argument), &meaning(argument));
    }
    // The help of a group shows the examples of those in it.
    let after = text(command.get_after_help());
    if !after.is_empty() && !command.has_subcommands() {
        control(page, "PP", &[]);
        verbatim(page, &after);
    }
    command.get_subcommands().for_each(|sub| describe(page, sub));
}

fn shows(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

/// An argument as one types it.
fn term(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.first().map_or_else(String::new, ToString::to_string);
    match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => value,
    }
}

/// What an argument means, and what it is where it is not given.
fn meaning(argument: &Arg) -> String {
    let mut meaning = text(argument.get_long_help().or(argument.get_help()));
    let takes_value = argument.get_action().takes_values();
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(" ");
    if takes_value && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        meaning += &format!(" [default: {defaults}]");
    }
    if let Some(name) = argument.get_env() {
        meaning += &format!(" [env: {}]", name.to_string_lossy());
    }
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes_value && !values.is_empty() && !argument.is_hide_possible_values_set() {
        meaning += &format!(" [possible values: {}]", values.join(", "));
    }
    meaning
}

fn text(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// A request. Unlike texts, its arguments are written as they are: hyphens that can be pasted are made here,
/// and an argument that is empty would be none.
fn control(page: &mut Roff, name: &str, arguments: &[&str]) {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| match argument.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq") {
            empty if empty.is_empty() => "\"\"".to_owned(),
            argument => argument,
        })
        .collect();
    page.control(name, arguments.iter().map(String::as_str));
}

fn section(page: &mut Roff, title: &str) {
    control(page, "SH", &[title]);
}

fn paragraph(page: &mut Roff, text: &str) {
    control(page, "PP", &[]);
    page.text([roman(text)]);
}

fn item(page: &mut Roff, term: &str, text: &str) {
    control(page, "TP", &[]);
    page.text([bold(term)]);
    page.text([roman(text)]);
}

/// Lines as they are.
fn verbatim(page: &mut Roff, text: &str) {
    control(page, "nf", &[]);
    page.text([roman(text.trim_end())]);
    control(page, "fi", &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let path = Arg::new("dir").long("dir").value_name("DIR").default_value("./data").help("Where it is");
        let run =
            Command::new("run").about("Runs.").arg(path).after_help("Examples:\n  tool run\n  .hidden 'x'");
        let add = Command::new("add").about("Adds one").after_help("Example:\n  tool items add");
        let items =
            Command::new("items").about("Items").subcommand(add).after_help("Example:\n  tool items add");
        let secret = Command::new("secret").about("Hidden").hide(true);
        let after = "Exit status:\n  0  done\n\nIt looks at HOME.";
        let tool = Command::new("tool").about("The tool of tools").after_help(after);
        tool.subcommand(run).subcommand(items).subcommand(secret)
    }

    #[test]
    fn the_page_has_every_command_that_shows_and_every_section() {
        let extra = Extra { files: Some(("In it:", &[("a-b", "a file")])), untitled: Some("ENVIRONMENT") };
        let page = page(&command(), "1.0", extra);
        for part in [
            ".TH TOOL 1 \"\" \"tool 1.0\" Fallow\n",
            "tool \\- tool of tools\n",
            ".SS \"tool run [OPTIONS]\"\n",
            ".SS \"tool items add\"\n",
            "\\fB\\-\\-dir DIR\\fR\nWhere it is [default: ./data]\n",
            ".SH FILES\n",
            "\\fBa\\-b\\fR\na file\n",
            ".SH \"EXIT STATUS\"\n.nf\n  0  done\n",
            ".SH ENVIRONMENT\n.PP\nIt looks at HOME.\n",
        ] {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
        assert!(!page.contains("secret") && !page.contains("(1)"), "{page}");
        assert_eq!(
            page.matches("tool items add").count(),
            2,
            "a group's examples are those of its commands: {page}"
        );
    }

    #[test]
    fn what_has_no_title_is_left_out_where_no_section_is_for_it() {
        assert!(!page(&command(), "1.0", Extra::default()).contains("HOME"));
    }

    #[test]
    fn no_text_is_a_request() {
        let page = page(&command(), "1.0", Extra::default());
        let requests = ["TH", "SH", "SS", "PP", "TP", "nf", "fi", "ie", "el"];
        for line in page.lines().filter(|line| line.starts_with('.')) {
            assert!(requests.iter().any(|name| line[1..].starts_with(name)), "{line}");
        }
        assert!(page.contains("  .hidden \\*(Aqx\\*(Aq\n"), "{page}");
    }
}
