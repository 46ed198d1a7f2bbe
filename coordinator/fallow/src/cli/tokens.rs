//! `fallow tokens`.

use clap::{Args, Subcommand};
use fallow_proto::operator::v1::CreateTokensRequest;
use serde_json::json;

use super::connect::Target;
use super::{Failure, print, print_json, units};

pub(crate) const EXAMPLE: &str = "\
Example:
  fallow tokens create > token
  fallow-agent run --dir lab/agent-1 --token-file token \\
      --coordinator http://127.0.0.1:24001

A token enrols one agent, once. It is shown here and nowhere else: only its
hash is kept.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Makes enrolment tokens, one a line.
    #[command(after_help = EXAMPLE)]
    Create(Create),
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// How many.
    #[arg(long, default_value_t = 1, value_parser = units::count(1, 10_000), allow_negative_numbers = true)]
    count: u32,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    let Command::Create(create) = command;
    let mut client = create.target.connect().await?;
    let request = CreateTokensRequest { count: create.count };
    let tokens = client.create_tokens(request).await?.into_inner().tokens;
    if create.json {
        return print_json(&json!({ "tokens": tokens }));
    }
    print(&tokens.iter().map(|token| format!("{token}\n")).collect::<String>())
}
