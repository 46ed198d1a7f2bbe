//! `fallow operators`: who may do what (R6.10).

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use fallow_coordinator::roles::Role;
use fallow_proto::operator::v1::{
    CreateOperatorRequest, ListOperatorsRequest, NamedOperator, OperatorRole, RevokeOperatorRequest,
};
use fallow_tls::Purpose;
use serde_json::json;

use super::connect::Target;
use super::reach;
use super::table::{self, Column::Text};
use super::why::Why;
use super::{Failure, print, print_json, print_table, tokens};

pub(crate) const EXAMPLE: &str = "\
Example:
  (umask 077; fallow operators create ann --role viewer >ann.token)
  fallow hosts --operator-token-file ann.token
  fallow operators list
  fallow operators revoke ann

A viewer sees all but secrets. A submitter gives work to the projects that he is
named for, and sees those alone. An operator does the daily work: shares,
preferences, groups, labels, projects, enrolment tokens, work. An administrator
may do everything: operators, the audit log, taking hosts out, the end of the
coordinator. Whoever can read operator.token in the coordinator's directory is
an administrator without being listed.";

const CREATE: &str = "\
Example:
  (umask 077; fallow operators create ann --role operator >ann.token)
  fallow operators create bob --role submitter --project sieve --expires 30d

The token is one line. It says where the coordinator is and what it is known by:
whoever has it needs nothing else (--operator-token-file). It is shown here and
nowhere else: only the hash of its secret is kept. The audit log has what its
holder does under this name.";

const LIST: &str = "\
Example:
  fallow operators list
  fallow operators list --json";

const REVOKE: &str = "\
Example:
  fallow operators revoke ann --message 'left the institute'

The token is good for nothing from now on, and a call that it is in ends within
a second. Then another one can be made under the same name. Enrolment tokens
that its holder made are good as before: `fallow tokens list`.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Gives somebody a token of his own, with a role.
    #[command(after_help = CREATE)]
    Create(Create),
    /// Lists operators with tokens of their own.
    #[command(after_help = LIST)]
    List(List),
    /// Ends an operator's token.
    #[command(after_help = REVOKE)]
    Revoke(Revoke),
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// What he is called: 1 to 32 lower-case letters and digits, with dots, dashes and underscores between
    /// them.
    name: String,
    /// What he may do.
    #[arg(long, value_parser = PossibleValuesParser::new(Role::ALL.map(Role::word)))]
    role: String,
    /// A submitter's project; may be given more than once.
    #[arg(long = "project", value_name = "NAME")]
    projects: Vec<String>,
    /// How long the token is good, such as 12h or 90d; 366d at most.
    #[arg(long, default_value = "90d", value_name = "TIME", value_parser = tokens::expires)]
    expires: Duration,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
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
    /// What he is called.
    name: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(create) => make(create).await,
        Command::List(list) => show(list).await,
        Command::Revoke(Revoke { name, why, target, json }) => {
            let request = why.of(RevokeOperatorRequest { name: name.clone() });
            target.connect().await?.revoke_operator(request).await?;
            if json {
                return print_json(&json!({ "name": name, "revoked": true }));
            }
            print(&format!("The token of operator {name} is good for nothing any more.\n"))
        }
    }
}

async fn make(create: Create) -> Result<(), Failure> {
    let mut client = create.target.connect().await?;
    let request = CreateOperatorRequest {
        name: create.name,
        role: to_wire(&create.role).into(),
        projects: create.projects,
        life_micros: tokens::micros(create.expires),
    };
    let made = client.create_operator(create.why.of(request)).await?.into_inner();
    if create.json {
        let now = fallow_daemon::clock::now().as_micros();
        let operator = made.operator.map(|operator| as_json(&operator, now));
        return print_json(&json!({ "operator": operator, "token": made.access }));
    }
    print(&format!("{}\n", made.access))?;
    reach::tell_of_token(&made.access, Purpose::Operator);
    Ok(())
}

async fn show(list: List) -> Result<(), Failure> {
    let mut client = list.target.connect().await?;
    let operators = client.list_operators(ListOperatorsRequest {}).await?.into_inner().operators;
    let now = fallow_daemon::clock::now();
    if list.json {
        let all: Vec<_> = operators.iter().map(|one| as_json(one, now.as_micros())).collect();
        return print_json(&json!({ "operators": all }));
    }
    let columns = ["operator", "role", "good for", "projects"].map(Text);
    let row = |operator: &NamedOperator| {
        let left = operator.expires_at_micros.saturating_sub(now.as_micros());
        let good_for = match state(operator, now.as_micros()) {
            "good" => table::micros(left),
            over => over.to_owned(),
        };
        vec![operator.name.clone(), word(operator).to_owned(), good_for, some(&operator.projects)]
    };
    let nothing = "No operators yet: `fallow operators create NAME --role ROLE` makes one.";
    print_table(operators.is_empty(), nothing, || {
        table::render(&columns, operators.iter().map(row).collect())
    })
}

/// As many names as fit beside the rest in 80 columns; `--json` has all.
fn some(projects: &[String]) -> String {
    const ROOM: usize = 18;
    let all = projects.join(" ");
    match (projects, all.chars().count() <= ROOM) {
        ([], _) => "all".to_owned(),
        (_, true) => all,
        ([first, others @ ..], false) => {
            let and = if others.is_empty() { String::new() } else { format!(" +{}", others.len()) };
            let room = ROOM.saturating_sub(and.chars().count());
            let first = match first.chars().count() <= room {
                true => first.clone(),
                false => format!("{}…", first.chars().take(room.saturating_sub(1)).collect::<String>()),
            };
            format!("{first}{and}")
        }
    }
}

fn state(operator: &NamedOperator, now: i64) -> &'static str {
    match () {
        () if operator.revoked_at_micros != 0 => "revoked",
        () if operator.expires_at_micros <= now => "expired",
        () => "good",
    }
}

fn to_wire(word: &str) -> OperatorRole {
    match Role::ALL.into_iter().find(|role| role.word() == word) {
        Some(Role::Viewer) => OperatorRole::Viewer,
        Some(Role::Submitter) => OperatorRole::Submitter,
        Some(Role::Operator) => OperatorRole::Operator,
        Some(Role::Administrator) => OperatorRole::Administrator,
        None => OperatorRole::Unspecified,
    }
}

/// A role of a newer coordinator is said to be one.
fn word(operator: &NamedOperator) -> &'static str {
    match operator.role() {
        OperatorRole::Viewer => Role::Viewer.word(),
        OperatorRole::Submitter => Role::Submitter.word(),
        OperatorRole::Operator => Role::Operator.word(),
        OperatorRole::Administrator => Role::Administrator.word(),
        OperatorRole::Unspecified => "unknown",
    }
}

fn as_json(operator: &NamedOperator, now: i64) -> serde_json::Value {
    json!({
        "name": operator.name,
        "role": word(operator),
        "projects": operator.projects,
        "state": state(operator, now),
        "made_at": table::instant(operator.made_at_micros),
        "made_by": operator.made_by,
        "expires_at": table::instant(operator.expires_at_micros),
        "revoked_at": table::instant(operator.revoked_at_micros),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_of_a_submitter_are_shortened_and_what_is_left_out_is_counted() {
        let names = |names: &[&str]| some(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&[]), "all");
        assert_eq!(names(&["sieve", "totient"]), "sieve totient");
        assert_eq!(names(&["sieve", "totient", "mersenne-large"]), "sieve +2");
        assert_eq!(names(&[&"x".repeat(60)]).chars().count(), 18);
        assert_eq!(names(&[&"x".repeat(60), "y"]).chars().count(), 18);
    }
}
