//! `fallow tokens`: what machines enrol with (R6.10).

use std::time::Duration;

use clap::{Args, Subcommand};
use fallow_proto::operator::v1::{CreateTokensRequest, ListTokensRequest, RevokeTokenRequest, Token};
use fallow_tls::Purpose;
use serde_json::json;

use super::connect::Target;
use super::reach;
use super::table::{self, Column::Text};
use super::why::Why;
use super::{Failure, print, print_json, print_table, units};

pub(crate) const EXAMPLE: &str = "\
Example:
  (umask 077; fallow tokens create >token)
  fallow-agent run --dir lab/agent-1 --token-file token
  (umask 077; fallow tokens create --uses 400 --label site=brno >token)

A token is one line. It says where the coordinator is and what it is known by,
so that an agent trusts no other. It is shown here and nowhere else: only the
hash of its secret is kept. Whoever has it can enrol machines until it is spent
or has expired.";

const LIST: &str = "\
Example:
  fallow tokens list";

const REVOKE: &str = "\
Example:
  fallow tokens revoke 1f0c5a4b9e77
  fallow tokens revoke 1f0c5a4b9e77 --message 'it was on a lost stick'

Nobody enrols by it any more. Hosts that did stay: `fallow hosts revoke` takes
those out of the fleet.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Makes enrolment tokens, one a line.
    #[command(after_help = EXAMPLE)]
    Create(Create),
    /// Lists the tokens that were made, without their secrets.
    #[command(after_help = LIST)]
    List(List),
    /// Ends a token.
    #[command(after_help = REVOKE)]
    Revoke(Revoke),
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// How many.
    #[arg(long, default_value_t = 1, value_parser = units::count(1, 10_000), allow_negative_numbers = true)]
    count: u32,
    /// How many machines may enrol with each.
    #[arg(long, default_value_t = 1, value_parser = units::count(1, 1_000_000), allow_negative_numbers = true)]
    uses: u32,
    /// How long each is good, such as 12h or 7d.
    #[arg(long, default_value = "7d", value_name = "TIME", value_parser = expires)]
    expires: Duration,
    /// A label of the machines that enrol with it, such as room=12; may be given more than once.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// Its id, as `fallow tokens list` shows it.
    id: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

/// For how long something is good: 366 days at most.
pub(super) fn expires(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let time = humantime::parse_duration(text).map_err(|_| "expected a time such as 12h or 7d")?;
    let (low, high) = (Duration::from_secs(1), Duration::from_secs(366 * 86_400));
    match (low..=high).contains(&time) {
        true => Ok(time),
        false => Err(units::Unacceptable("expected from 1s to 366d".to_owned()).into()),
    }
}

pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(create) => make(create).await,
        Command::List(list) => show(list).await,
        Command::Revoke(Revoke { id, why, target, json }) => {
            let request = why.of(RevokeTokenRequest { id: id.clone() });
            target.connect().await?.revoke_token(request).await?;
            if json {
                return print_json(&json!({ "id": id, "revoked": true }));
            }
            print(&format!("Token {id} enrols nobody any more.\n"))
        }
    }
}

async fn make(create: Create) -> Result<(), Failure> {
    let mut client = create.target.connect().await?;
    let request = CreateTokensRequest {
        count: create.count,
        uses: create.uses,
        life_micros: micros(create.expires),
        labels: create.labels,
    };
    let tokens = client.create_tokens(create.why.of(request)).await?.into_inner().strings;
    if create.json {
        return print_json(&json!({ "tokens": tokens }));
    }
    print(&tokens.iter().map(|token| format!("{token}\n")).collect::<String>())?;
    if let Some(token) = tokens.first() {
        reach::tell_of_token(token, Purpose::Enrolment);
    }
    Ok(())
}

async fn show(list: List) -> Result<(), Failure> {
    let mut tokens =
        list.target.connect().await?.list_tokens(ListTokensRequest {}).await?.into_inner().tokens;
    // The newest is the last, as in other lists.
    tokens.sort_by_key(|token| token.made_at_micros);
    let now = fallow_daemon::clock::now().as_micros();
    if list.json {
        let all: Vec<_> = tokens.iter().map(|token| as_json(token, now)).collect();
        return print_json(&json!({ "tokens": all }));
    }
    let columns = ["id", "state", "used", "expires", "made", "labels"].map(Text);
    let row = |token: &Token| {
        let left = Duration::from_micros(token.expires_at_micros.saturating_sub(now).max(0).unsigned_abs());
        vec![
            token.id.clone(),
            state(token, now).to_owned(),
            format!("{} of {}", token.used, token.uses),
            if left.is_zero() { "-".to_owned() } else { format!("in {}", table::micros(micros(left))) },
            table::ago(token.made_at_micros, fallow_daemon::clock::now()),
            token.labels.join(" "),
        ]
    };
    let nothing = "No tokens yet: `fallow tokens create` makes one.";
    print_table(tokens.is_empty(), nothing, || table::render(&columns, tokens.iter().map(row).collect()))
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn state(token: &Token, now: i64) -> &'static str {
    match () {
        () if token.revoked => "revoked",
        () if token.used >= token.uses => "spent",
        () if token.expires_at_micros <= now => "expired",
        () => "open",
    }
}

fn as_json(token: &Token, now: i64) -> serde_json::Value {
    json!({
        "id": token.id,
        "state": state(token, now),
        "uses": token.uses,
        "used": token.used,
        "expires_at": table::instant(token.expires_at_micros),
        "made_at": table::instant(token.made_at_micros),
        "labels": token.labels,
    })
}
