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

pub(super) fn man(command: &Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    let fail = |error| Failure::internal("the manual page cannot be made", error);
    clap_mangen::Man::new(command.clone()).render(&mut out).map_err(fail)?;
    // The commands' own pages follow, so that one file says it all.
    for sub in command.get_subcommands() {
        let page = clap_mangen::Man::new(sub.clone().bin_name(format!("fallow {}", sub.get_name())));
        page.render_synopsis_section(&mut out).map_err(fail)?;
        page.render_description_section(&mut out).map_err(fail)?;
        page.render_options_section(&mut out).map_err(fail)?;
    }
    print(&String::from_utf8_lossy(&out))
}
