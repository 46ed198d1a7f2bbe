//! `fallow rollout`: how changes of documents reach the hosts (R6.5).

use std::time::Duration;

use clap::{Args, Subcommand};
use fallow_domain::{DocumentVersion, Duration as Span, ExitCode};
use fallow_proto::operator::v1::{
    GetDocumentRequest, ListRolloutsReply, ListRolloutsRequest, OrderRolloutRequest, Rollout, RolloutOrder,
    RolloutPhase, RolloutPlan, RolloutStep, SetRolloutPlanRequest,
};
use serde_json::{Value, json};

use super::connect::Target;
use super::going_out;
use super::table::{self, Column::Number, Column::Text};
use super::{Failure, print, print_json, print_table, screen, units, why};
use crate::printable;

const EXAMPLE: &str = "\
Examples:
  fallow rollout plan --waves 1,10%,100% --soak 30m
  fallow preferences set --cpu-fraction 50%
  fallow rollout watch
  fallow rollout abort --message 'too much for room 12'

With a plan, each change of shares, preferences, groups and projects goes out in
waves. After each wave its hosts are watched, beside those that it has not
reached: if it harms, all hosts get back what they had, by itself. Without a
plan, and with --emergency, a change goes to all hosts at once.
docs/rollouts.md says what is compared.";

const PLAN_EXAMPLE: &str = "\
Examples:
  fallow rollout plan
  fallow rollout plan --waves 1,10%,100% --soak 30m
  fallow rollout plan --waves test-room,20% --soak 1h --approval-over 100
  fallow rollout plan --waves 1,100% --soak 10m --without offered,idle
  fallow rollout plan --at-once

A wave is a number of hosts, a part of the fleet, or the name of a group; each
is larger than the one before, and all hosts are the last. What is judged:
  refused    hosts refuse the version
  lost       their link is lost
  offered    they offer fewer CPUs
  idle       their CPUs compute less
  cut-off    a project is not reached any more
  failed     most of their jobs fail
  wasted     CPU time of their jobs is lost
  shares     shares are violated more
  tightened  their owners tighten limits";

/// Without a subcommand the newest is shown.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: Show,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists rollouts, oldest first.
    #[command(after_help = EXAMPLE)]
    List(List),
    /// Shows or says how changes go out from now on.
    #[command(after_help = PLAN_EXAMPLE)]
    Plan(Box<Plan>),
    /// Follows the newest rollout until it is over. Status 10 if it is taken back.
    #[command(after_help = EXAMPLE)]
    Watch(Show),
    /// Lets a rollout begin that waits for a second person. Status 5 for whoever made the change.
    #[command(after_help = EXAMPLE)]
    Approve(Order),
    /// Releases no more until it is resumed.
    #[command(after_help = EXAMPLE)]
    Pause(Order),
    /// Watches the wave again, and goes on.
    #[command(after_help = EXAMPLE)]
    Resume(Order),
    /// Releases the next wave now.
    #[command(after_help = EXAMPLE)]
    Promote(Promote),
    /// Gives all hosts back what they had; also after the end, if nothing newer was made.
    #[command(after_help = EXAMPLE, visible_alias = "rollback")]
    Abort(Order),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of text; of watch one a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct List {
    /// The newest so many.
    #[arg(long, default_value_t = 20, value_parser = units::count(1, 100))]
    limit: u32,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
struct Order {
    /// The rollout that is meant: if a newer one has begun meanwhile, nothing is done.
    #[arg(long, value_name = "NUMBER", value_parser = units::count(1, u32::MAX))]
    rollout: Option<u32>,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
struct Promote {
    /// The wave that is meant, counted from 1: if it was released meanwhile, nothing is done.
    #[arg(long, value_name = "WAVE", value_parser = units::count(1, 1_000))]
    wave: Option<u32>,
    #[command(flatten)]
    order: Order,
}

#[derive(Args, Debug)]
struct Plan {
    /// The waves, such as 1,10%,100%. What else is not named stays as it is.
    #[arg(long, value_name = "WAVES", conflicts_with = "at_once")]
    waves: Option<String>,
    /// How long each wave is watched, from 5s to 30d.
    #[arg(long, value_name = "TIME", value_parser = units::time, conflicts_with = "at_once")]
    soak: Option<Span>,
    /// What changes are not judged by, or "none".
    #[arg(long, value_name = "GATES", value_delimiter = ',', conflicts_with = "at_once")]
    without: Vec<String>,
    /// A change that makes more hosts different waits until a second person approves it; "none": no change
    /// does.
    #[arg(long, value_name = "HOSTS", value_parser = approval_over, conflicts_with = "at_once")]
    approval_over: Option<Approval>,
    /// Changes go to all hosts at once.
    #[arg(long)]
    at_once: bool,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    show: Show,
}

/// How many hosts a change may make different without a second person; none: any number.
#[derive(Clone, Copy, Debug)]
struct Approval(Option<u64>);

fn approval_over(text: &str) -> Result<Approval, String> {
    match text {
        "none" => Ok(Approval(None)),
        _ => text
            .parse()
            .map(|most| Approval(Some(most)))
            .map_err(|_| "expected a number of hosts, or none".to_owned()),
    }
}

/// Rollouts among which the one that is watched is looked for.
const KEPT: u32 = 10;
/// Between two looks.
const OFTEN: Duration = Duration::from_millis(500);
/// So long a coordinator is asked again that was there and is not.
const AWAY: Duration = Duration::from_secs(120);
/// A wave is watched so long, if nothing is said.
const USUAL_SOAK: Span = Span::from_mins(30);

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let (order, given) = match arguments.command {
        None => return show_newest(arguments.show).await,
        Some(Command::List(list)) => return show_list(list).await,
        Some(Command::Plan(plan)) => return self::plan(*plan).await,
        Some(Command::Watch(show)) => return watch(show).await,
        Some(Command::Approve(order)) => (RolloutOrder::Approve, Promote { wave: None, order }),
        Some(Command::Pause(order)) => (RolloutOrder::Pause, Promote { wave: None, order }),
        Some(Command::Resume(order)) => (RolloutOrder::Resume, Promote { wave: None, order }),
        Some(Command::Promote(promote)) => (RolloutOrder::Promote, promote),
        Some(Command::Abort(order)) => (RolloutOrder::TakeBack, Promote { wave: None, order }),
    };
    let Promote { wave, order: Order { rollout, message, show } } = given;
    let mut client = show.target.connect().await?;
    let (rollout, wave) = (rollout.map_or(0, u64::from), wave.unwrap_or_default());
    let request = OrderRolloutRequest { order: order.into(), message, rollout, wave };
    let rollout = client.order_rollout(request).await?.into_inner();
    if show.json { print_json(&to_json(&rollout)) } else { print(&to_text(&rollout)) }?;
    // What was there before may have no signature yet: hosts keep what they have until it does.
    going_out::tell_waiting(&mut client).await;
    Ok(())
}

async fn show_newest(show: Show) -> Result<(), Failure> {
    let mut client = show.target.connect().await?;
    let reply = client.list_rollouts(ListRolloutsRequest { limit: 1 }).await?.into_inner();
    let ListRolloutsReply { rollouts, plan } = reply;
    let (newest, plan) = (rollouts.last(), plan.unwrap_or_default());
    if show.json {
        return print_json(&json!({ "plan": plan_json(&plan), "rollout": newest.map(to_json) }));
    }
    let text = newest.map_or_else(|| "Nothing was rolled out yet.\n".to_owned(), to_text);
    print(&format!("{text}{}\n", plan_text(&plan)))?;
    going_out::tell_waiting(&mut client).await;
    Ok(())
}

async fn show_list(list: List) -> Result<(), Failure> {
    let mut client = list.show.target.connect().await?;
    let rollouts =
        client.list_rollouts(ListRolloutsRequest { limit: list.limit }).await?.into_inner().rollouts;
    if list.show.json {
        return print_json(&json!({ "rollouts": rollouts.iter().map(to_json).collect::<Vec<_>>() }));
    }
    let columns = [Number("rollout"), Number("version"), Text("begun"), Text("by"), Text("how it stands")];
    let row = |rollout: &Rollout| {
        vec![
            rollout.number.to_string(),
            DocumentVersion(rollout.version).to_string(),
            seconds(rollout.begun_at_micros),
            rollout.begun_by.clone(),
            phase(rollout).replace('_', " "),
        ]
    };
    let nothing = "Nothing was rolled out so far: `fallow rollout plan --waves 1,10%,100%` makes changes go out in waves.";
    print_table(rollouts.is_empty(), nothing, || table::render(&columns, rollouts.iter().map(row).collect()))
}

async fn plan(plan: Plan) -> Result<(), Failure> {
    let Plan { waves, soak, without, approval_over, at_once, message, show } = plan;
    if waves.as_ref().is_some_and(|waves| waves.trim().is_empty()) {
        let text = "no waves are named: expected such as 1,10%,100%; --at-once is for changes without waves";
        return Err(Failure::bad_input(text));
    }
    let mut client = show.target.connect().await?;
    let stands = client.list_rollouts(ListRolloutsRequest { limit: 1 }).await?.into_inner().plan;
    let stands = stands.unwrap_or_default();
    let is_said = waves.is_some() || soak.is_some() || !without.is_empty() || approval_over.is_some();
    let said = if is_said || at_once {
        let had_one = !stands.waves.is_empty();
        let waves = match waves {
            _ if at_once => String::new(),
            Some(waves) => waves,
            None if had_one => stands.waves,
            None => {
                return Err(Failure::bad_input(
                    "there is no plan yet: name its waves, such as --waves 1,10%,100%",
                ));
            }
        };
        let soak_stands = if had_one { stands.soak_micros } else { USUAL_SOAK.as_micros() };
        let plan = RolloutPlan {
            waves,
            soak_micros: soak.map_or(soak_stands, Span::as_micros),
            without_gates: match without.as_slice() {
                [] => stands.without_gates,
                [none] if none == "none" => Vec::new(),
                _ => without,
            },
            approval_over: approval_over.map_or(stands.approval_over, |approval| approval.0),
        };
        client.set_rollout_plan(SetRolloutPlanRequest { plan: Some(plan), message }).await?.into_inner()
    } else {
        stands
    };
    if show.json { print_json(&plan_json(&said)) } else { print(&format!("{}\n", plan_text(&said))) }
}

/// Follows the newest rollout: each step once, and a line whenever other numbers of hosts have it.
async fn watch(show: Show) -> Result<(), Failure> {
    let mut client = show.target.connect().await?;
    let mut told: Option<RolloutStep> = None;
    let mut counts = String::new();
    let mut number = None;
    let mut away: Option<tokio::time::Instant> = None;
    loop {
        let request = ListRolloutsRequest { limit: if number.is_some() { KEPT } else { 1 } };
        let mut rollouts = match client.list_rollouts(request).await.map_err(Failure::from) {
            Ok(reply) => reply.into_inner().rollouts,
            // It may just be started anew: the rollout goes on then.
            Err(failure)
                if is_away(&failure)
                    && number.is_some()
                    && away.get_or_insert_with(tokio::time::Instant::now).elapsed() < AWAY =>
            {
                tokio::time::sleep(OFTEN).await;
                match show.target.connect().await {
                    Ok(again) => client = again,
                    Err(failure) if is_away(&failure) => {}
                    Err(failure) => return Err(failure),
                }
                continue;
            }
            Err(failure) => return Err(failure),
        };
        away = None;
        // What an earlier rollout came to is no word on a change that no host has yet.
        if number.is_none()
            && rollouts.last().is_none_or(|last| !is_open(last))
            && let Some(version) = going_out::waiting(&mut client).await
        {
            return Err(Failure::bad_input(format!(
                "version {version} waits until it is signed, and nothing goes out: `fallow organisation sign --key FILE`"
            )));
        }
        let Some(last) = rollouts.last() else {
            return print("Nothing was rolled out yet: `fallow rollout plan` says how changes go out.\n");
        };
        if number.is_none() && !is_open(last) {
            let newest = client.get_document(GetDocumentRequest { released: false }).await?.into_inner();
            let is_begun_since = newest.rollout != 0;
            let newest = DocumentVersion(newest.document.map_or(0, |document| document.version));
            if is_begun_since {
                tokio::time::sleep(OFTEN).await;
                continue;
            }
            if newest > DocumentVersion(last.version.max(last.taken_back_by)) {
                // How an older one ended is no word on it.
                let text = format!("No rollout is under way: version {newest} went to all hosts at once.\n");
                let line = json!({ "rollout": null, "document_version": newest.0, "phase": "at_once" });
                return print(&if show.json { format!("{line}\n") } else { text });
            }
        }
        // Another one may begin meanwhile: how the one ends that was asked for is said all the same.
        let number = *number.get_or_insert(last.number);
        let Some(at) = rollouts.iter().position(|rollout| rollout.number == number) else {
            let text = format!("rollout {number} is over for so long that it is not listed any more");
            return Err(Failure::bad_input(text));
        };
        let rollout = rollouts.swap_remove(at);
        if show.json {
            let line = to_json(&rollout).to_string();
            if line != counts {
                print(&format!("{line}\n"))?;
                counts = line;
            }
        } else {
            // The oldest of very many are not kept.
            let after = rollout.steps.iter().rposition(|step| Some(step) == told.as_ref());
            for step in rollout.steps.iter().skip(after.map_or(0, |after| after + 1)) {
                print(&(step_text(step.at_micros, &step.what) + "\n"))?;
            }
            told = rollout.steps.last().cloned();
            let now = counts_text(&rollout);
            if is_open(&rollout) && now != counts {
                print(&format!("{:20}  {now}\n", ""))?;
                counts = now;
            }
        }
        match rollout.phase() {
            RolloutPhase::Completed => return Ok(()),
            RolloutPhase::TakenBack => {
                let text =
                    format!("rollout {} {}", rollout.number, printable::line(&rollout.stands, usize::MAX));
                return Err(Failure::new(ExitCode::TakenBack, text));
            }
            _ => tokio::time::sleep(OFTEN).await,
        }
    }
}

fn is_away(failure: &Failure) -> bool {
    failure.code() == ExitCode::Unreachable
}

fn is_open(rollout: &Rollout) -> bool {
    !matches!(rollout.phase(), RolloutPhase::Completed | RolloutPhase::TakenBack)
}

fn counts_text(rollout: &Rollout) -> String {
    let Rollout { hosts, released_hosts, have_it, off, refusing, .. } = rollout;
    let said =
        |count: u64, one: &str, several: &str| format!("{count} {}", if count == 1 { one } else { several });
    let have = said(*have_it, "has it", "have it");
    let mut text = format!("released to {released_hosts} of {}: {have}", table::counted(*hosts, "host"));
    for (count, one, several) in
        [(*off, "is off", "are off"), (refusing.len() as u64, "refuses it", "refuse it")]
    {
        if count > 0 {
            text += &format!(", {}", said(count, one, several));
        }
    }
    text
}

fn seconds(micros: i64) -> String {
    let instant = table::instant(micros);
    instant.split_once('.').map_or(instant.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A step, with what does not fit in a line below its beginning.
fn step_text(at_micros: i64, what: &str) -> String {
    let at = seconds(at_micros);
    let indent = at.chars().count() + 2;
    let width = screen::width().saturating_sub(indent);
    let text = screen::wrapped(&printable::line(what, usize::MAX), width);
    format!("{at}  {}", text.replace('\n', &format!("\n{:indent$}", "")))
}

fn to_text(rollout: &Rollout) -> String {
    let Rollout { number, version, base_version, begun_by, begun_at_micros, stands, .. } = rollout;
    let mut text = format!(
        "Rollout {number} of version {}, after {}, begun by {begun_by} at {}",
        DocumentVersion(*version),
        DocumentVersion(*base_version),
        seconds(*begun_at_micros)
    );
    text += &format!("\n{}\n", screen::wrapped(&printable::line(stands, usize::MAX), screen::width()));
    if is_open(rollout) {
        text += &format!("{}\n", counts_text(rollout));
    }
    for step in &rollout.steps {
        text += &(step_text(step.at_micros, &step.what) + "\n");
    }
    for refusing in &rollout.refusing {
        let line = format!("{} refuses it: {}", refusing.name, refusing.reason);
        text += &format!("  {}\n", printable::line(&line, usize::MAX));
    }
    printable::lines(&text, usize::MAX)
}

fn phase(rollout: &Rollout) -> &'static str {
    match rollout.phase() {
        RolloutPhase::Waiting => "waiting",
        RolloutPhase::Watching => "watching",
        RolloutPhase::Paused => "paused",
        RolloutPhase::Completed => "completed",
        RolloutPhase::TakenBack => "taken_back",
        RolloutPhase::Unspecified => "unknown",
    }
}

fn to_json(rollout: &Rollout) -> Value {
    let step = |step: &fallow_proto::operator::v1::RolloutStep| json!({ "at": table::instant(step.at_micros), "what": step.what });
    let refusing = |host: &fallow_proto::operator::v1::RefusingHost| json!({ "agent_id": host.agent_id, "name": host.name, "reason": host.reason });
    json!({
        "number": rollout.number,
        "version": rollout.version,
        "base_version": rollout.base_version,
        "plan": plan_json(&rollout.plan.clone().unwrap_or_default()),
        "begun_by": rollout.begun_by,
        "begun_at": table::instant(rollout.begun_at_micros),
        "changes_hosts": rollout.changes_hosts,
        "phase": phase(rollout),
        "stands": rollout.stands,
        "released_waves": rollout.released_waves,
        "waves": rollout.waves,
        "taken_back_by": rollout.taken_back_by,
        "had_it": rollout.had_it,
        "hosts": rollout.hosts,
        "released_hosts": rollout.released_hosts,
        "have_it": rollout.have_it,
        "off": rollout.off,
        "refusing": rollout.refusing.iter().map(refusing).collect::<Vec<_>>(),
        "steps": rollout.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn plan_text(plan: &RolloutPlan) -> String {
    let RolloutPlan { waves, soak_micros, without_gates, approval_over } = plan;
    if waves.is_empty() {
        return "Changes go to all hosts at once (no plan).".to_owned();
    }
    let mut text =
        format!("Changes go out in waves of {waves}, each watched for {}", Span::from_micros(*soak_micros));
    if !without_gates.is_empty() {
        text += &format!(", not judged by: {}", without_gates.join(", "));
    }
    if let Some(most) = approval_over {
        text += &format!("; one for more than {} waits for a second person", table::counted(*most, "host"));
    }
    text + "."
}

fn plan_json(plan: &RolloutPlan) -> Value {
    let RolloutPlan { waves, soak_micros, without_gates, approval_over } = plan;
    if waves.is_empty() {
        return Value::Null;
    }
    json!({
        "waves": waves,
        "soak_seconds": Span::from_micros(*soak_micros).as_secs_f64(),
        "without_gates": without_gates,
        "approval_over": approval_over,
    })
}
