//! `fallow completions` and `fallow man`: made from the command line's own definition.

use clap::{Args, Command};
use clap_complete::Shell;
use fallow_manual::{Extra, page};

use super::{Failure, print};

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fallow completions bash > /etc/bash_completion.d/fallow")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn completions(arguments: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "fallow", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// One page says it all.
pub(crate) fn man(command: &Command) -> Result<(), Failure> {
    let extra = Extra { untitled: Some("ENVIRONMENT"), ..Extra::default() };
    print(&page(command, env!("CARGO_PKG_VERSION"), extra))
}
