//! `fallow preferences`.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use fallow_domain::{
    Bytes, Device, DocumentVersion, Duration, ExitCode, Fraction, Hours, Invalid, MasterUrl, Preferences,
    RequiredLayer,
};
use fallow_fleet::Preference;
use fallow_proto::fleet::preferences::{from_wire, to_set};
use fallow_proto::fleet::v1::Document;
use fallow_proto::operator::v1::{DocumentReply, GetDocumentRequest, SetPreferencesRequest};
use serde_json::json;
use tonic::Code;

use super::connect::Target;
use super::going_out::{self, GoingOut};
use super::local_preferences::{self, LocalChanges};
use super::table::{self, Column::Text};
use super::{Failure, changes, overruled, print, print_json, units, why};

/// A change is tried so often when others change the document at the same time.
const ATTEMPTS: u32 = 20;

const EXAMPLE: &str = "\
Examples:
  fallow preferences
  fallow preferences show --json
  fallow preferences set --cpu-fraction 50% --buffer-min 2h
  fallow preferences set --suspended true
  fallow preferences set --cpu-fraction 10% --dry-run
  fallow preferences set --excluded-devices nvidia:0,nvidia:1
  fallow preferences set --hours 'mon-fri 18:00-08:00, sat-sun'
  fallow preferences set --run-in-use true --idle-after 10m
  fallow preferences set --required-layers files,calls
  fallow preferences set --run-on-batteries true --battery-charge-min 50%
  fallow preferences set --exclusive-programs matlab,blender --upload-max 1MB

What is not named stays as it is. The owner of a host can suspend it and exclude
devices there (fallow-agent suspend, fallow-agent exclude), and nobody can undo
that from here. Hours are those of each host's own clock; a stretch that ends
earlier than it begins does so on the next day. Hosts rest while somebody uses
them, unless --run-in-use says otherwise.";

/// Without a subcommand they are shown.
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
    /// Shows what agents may do.
    #[command(after_help = EXAMPLE)]
    Show(Show),
    /// Changes what agents may do, for the whole fleet.
    #[command(after_help = EXAMPLE)]
    Set(Box<Set>),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Set {
    #[command(flatten)]
    changes: Changes,
    /// Why, for the history of documents.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    how: GoingOut,
    /// Change nothing, only say what would change, and for how many hosts.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
struct Changes {
    /// Part of the CPUs, such as 50%; at least one CPU is used.
    #[arg(long, value_parser = units::fraction)]
    cpu_fraction: Option<Fraction>,
    /// Part of each second that jobs may run.
    #[arg(long, value_parser = units::fraction)]
    cpu_time_fraction: Option<Fraction>,
    /// Keep at least this much work, such as 2h; by the default policies both together are the most that is
    /// kept, and mostly there is less.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    buffer_min: Option<Duration>,
    /// And up to this much more.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    buffer_additional: Option<Duration>,
    /// Switch between projects about this often.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    scheduling_period: Option<Duration>,
    /// Ask jobs to checkpoint at most this often.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    checkpoint_period: Option<Duration>,
    /// Keep preempted tasks in memory.
    #[arg(long)]
    leave_in_memory: Option<bool>,
    /// No computing at all.
    #[arg(long)]
    suspended: Option<bool>,
    /// Part of the memory that jobs may use.
    #[arg(long, value_parser = units::fraction)]
    memory_fraction: Option<Fraction>,
    /// Part of the disk that may be used.
    #[arg(long, value_parser = units::fraction)]
    disk_fraction: Option<Fraction>,
    /// Space to leave free on the disk, such as 1GiB.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    disk_free_min: Option<u64>,
    /// Minimum time between periods of network activity.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    connection_interval: Option<Duration>,
    /// Devices that must not be used on any host, all of them, such as nvidia:0,amd:1; or none.
    #[arg(long, value_parser = devices, value_name = "DEVICES")]
    excluded_devices: Option<Excluded>,
    /// When hosts may compute, by their own clocks, such as "mon-fri 18:00-08:00, sat-sun"; or always.
    #[arg(long)]
    hours: Option<Hours>,
    /// Compute also while somebody uses the host.
    #[arg(long)]
    run_in_use: Option<bool>,
    /// Use GPUs also then, where --run-in-use is true.
    #[arg(long)]
    run_gpu_in_use: Option<bool>,
    /// So long after the last key or movement nobody uses the host any more, such as 3m.
    #[arg(long, value_parser = units::time, value_name = "TIME")]
    idle_after: Option<Duration>,
    /// Layers of confinement without which hosts compute nothing, all of them, such as files,calls; or all,
    /// or none.
    #[arg(long, value_parser = layers, value_name = "LAYERS")]
    required_layers: Option<Required>,
    /// The only projects whose jobs may use the network where a host's owner allows it, by their URLs; or
    /// all, or none.
    #[arg(long, value_parser = projects, value_name = "URLS")]
    jobs_network: Option<Networked>,
    #[command(flatten)]
    local: LocalChanges,
}

#[derive(Clone, Debug)]
struct Excluded(BTreeSet<Device>);

fn devices(text: &str) -> Result<Excluded, Invalid> {
    Device::read_list(text).map(Excluded)
}

#[derive(Clone, Debug)]
struct Required(BTreeSet<RequiredLayer>);

fn layers(text: &str) -> Result<Required, Invalid> {
    RequiredLayer::read_list(text).map(Required)
}

#[derive(Clone, Debug)]
struct Networked(Option<BTreeSet<MasterUrl>>);

fn projects(text: &str) -> Result<Networked, Invalid> {
    let urls: Vec<&str> = text.split([',', ' ']).filter(|url| !url.is_empty()).collect();
    match urls.as_slice() {
        ["all"] => Ok(Networked(None)),
        ["none"] => Ok(Networked(Some(BTreeSet::new()))),
        [] => Err(Invalid::new("project URL", text, "URLs of projects, or all, or none")),
        urls => {
            let urls: Result<_, _> = urls.iter().map(|url| MasterUrl::parse(url)).collect();
            urls.map(|urls| Networked(Some(urls)))
        }
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        let Self {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval,
            excluded_devices,
            hours,
            run_in_use,
            run_gpu_in_use,
            idle_after,
            required_layers,
            jobs_network,
            local,
        } = self;
        let fractions = [cpu_fraction, cpu_time_fraction, memory_fraction, disk_fraction];
        let times = [
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            connection_interval,
            idle_after,
        ];
        let switches = [leave_in_memory, suspended, run_in_use, run_gpu_in_use];
        fractions.iter().all(|given| given.is_none())
            && times.iter().all(|given| given.is_none())
            && switches.iter().all(|given| given.is_none())
            && disk_free_min.is_none()
            && excluded_devices.is_none()
            && hours.is_none()
            && required_layers.is_none()
            && jobs_network.is_none()
            && local.is_empty()
    }

    fn apply(&self, to: &mut Preferences) {
        let Self {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval,
            excluded_devices,
            hours,
            run_in_use,
            run_gpu_in_use,
            idle_after,
            required_layers,
            jobs_network,
            local,
        } = self;
        // All of them, so that none is without an option.
        *to = Preferences {
            cpu_fraction: cpu_fraction.unwrap_or(to.cpu_fraction),
            cpu_time_fraction: cpu_time_fraction.unwrap_or(to.cpu_time_fraction),
            buffer_min: buffer_min.unwrap_or(to.buffer_min),
            buffer_additional: buffer_additional.unwrap_or(to.buffer_additional),
            scheduling_period: scheduling_period.unwrap_or(to.scheduling_period),
            checkpoint_period: checkpoint_period.unwrap_or(to.checkpoint_period),
            leave_in_memory: leave_in_memory.unwrap_or(to.leave_in_memory),
            suspended: suspended.unwrap_or(to.suspended),
            memory_fraction: memory_fraction.unwrap_or(to.memory_fraction),
            disk_fraction: disk_fraction.unwrap_or(to.disk_fraction),
            disk_free_min: disk_free_min.map_or(to.disk_free_min, Bytes),
            connection_interval: connection_interval.unwrap_or(to.connection_interval),
            excluded_devices: match excluded_devices {
                Some(Excluded(devices)) => devices.clone(),
                None => std::mem::take(&mut to.excluded_devices),
            },
            hours: hours.clone().unwrap_or_else(|| std::mem::take(&mut to.hours)),
            run_in_use: run_in_use.unwrap_or(to.run_in_use),
            run_gpu_in_use: run_gpu_in_use.unwrap_or(to.run_gpu_in_use),
            idle_after: idle_after.unwrap_or(to.idle_after),
            required_layers: match required_layers {
                Some(Required(layers)) => layers.clone(),
                None => std::mem::take(&mut to.required_layers),
            },
            jobs_network: match jobs_network {
                Some(Networked(projects)) => projects.clone(),
                None => to.jobs_network.take(),
            },
            local: local.apply(&to.local),
        };
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => list(arguments.show).await,
        Some(Command::Show(show)) => list(show).await,
        Some(Command::Set(set)) => change(*set).await,
    }
}

async fn list(show: Show) -> Result<(), Failure> {
    let mut client = show.target.connect().await?;
    let reply = client.get_document(GetDocumentRequest::default()).await?.into_inner();
    going_out::tell(&mut client, reply.rollout).await;
    print_document(&reply.document.unwrap_or_default(), show.json)
}

async fn change(set: Set) -> Result<(), Failure> {
    let Set { changes, message, how, dry_run, show } = set;
    if changes.is_empty() {
        let text = "nothing is named that is to be set: name a preference and its value, such as `fallow preferences set --cpu-fraction 50%`; `fallow preferences` lists them";
        return Err(Failure::new(ExitCode::Usage, text));
    }
    let mut client = show.target.connect().await?;
    let mut attempts = 1..=ATTEMPTS;
    loop {
        // An emergency starts from what is known to be good.
        let asked = GetDocumentRequest { released: how.emergency };
        let document = client.get_document(asked).await?.into_inner().document.unwrap_or_default();
        let before = from_wire(&document.preferences.unwrap_or_default())?;
        let mut preferences = before.clone();
        changes.apply(&mut preferences);
        check(&before, &preferences)?;
        let request = SetPreferencesRequest {
            preferences: Some(to_set(&preferences)),
            emergency: how.emergency,
            message: message.clone(),
            made_from: document.version,
        };
        let overtaken = if dry_run {
            match client.preview_preferences(request).await {
                Err(status) if status.code() == Code::Aborted => status,
                reply => {
                    changes::preview(&reply?.into_inner(), show.json)?;
                    going_out::tell_waiting(&mut client).await;
                    return Ok(());
                }
            }
        } else {
            match client.set_preferences(request).await {
                Err(status) if status.code() == Code::Aborted => status,
                reply => {
                    let DocumentReply { document, rollout, changed_hosts, unchanged, cautions } =
                        reply?.into_inner();
                    let document = document.unwrap_or_default();
                    let has = from_wire(&document.preferences.clone().unwrap_or_default())?;
                    let keys: Vec<_> =
                        differing(&before, &has).map(|(_, is)| format!("preferences.{}", is.key())).collect();
                    overruled::tell(&mut client, &keys).await;
                    let taken = require_taken(&preferences, &has);
                    going_out::tell_change(&mut client, rollout, unchanged && taken.is_ok()).await;
                    match show.json {
                        true => print_document(&document, true)?,
                        false => print(&changed(&before, &has, document.version))?,
                    }
                    changes::tell_cautions(&cautions);
                    going_out::tell_at_once(&mut client, rollout, changed_hosts, &how).await;
                    return taken;
                }
            }
        };
        // Somebody else was faster: his change stays, and this one follows it.
        if attempts.next().is_none() {
            return Err(overtaken.into());
        }
    }
}

fn print_document(document: &Document, as_json: bool) -> Result<(), Failure> {
    let preferences = from_wire(&document.preferences.clone().unwrap_or_default())?;
    if as_json {
        return print_json(&to_json(document.version, &preferences));
    }
    let rows = rows(&preferences).into_iter().map(|(name, value)| vec![name, value]).collect();
    let table = table::render(&[Text("preference"), Text("value")], rows);
    print(&format!("{table}document version {}\n", DocumentVersion(document.version)))
}

/// What a change has made different, and the version that says so.
fn changed(before: &Preferences, after: &Preferences, version: u64) -> String {
    let row = |(was, is): (Preference, Preference)| vec![option_of(&is), was.to_string(), is.to_string()];
    let rows: Vec<_> = differing(before, after).map(row).collect();
    let table = match rows.is_empty() {
        true => String::new(),
        false => table::render(&[Text("preference"), Text("before"), Text("now")], rows),
    };
    format!("{table}document version {}\n", DocumentVersion(version))
}

/// The preferences that differ, as they were and as they are.
fn differing(before: &Preferences, after: &Preferences) -> impl Iterator<Item = (Preference, Preference)> {
    let pairs = Preference::all_of(before).into_iter().zip(Preference::all_of(after));
    pairs.filter(|(before, after)| before != after)
}

/// Refuses values that nobody can mean, all at once and by their options.
fn check(before: &Preferences, after: &Preferences) -> Result<(), Failure> {
    let wrong = differing(before, after)
        .filter_map(|(_, is)| Some(format!("--{}: {}", option_of(&is), is.check().err()?)));
    let wrong: Vec<_> = wrong.collect();
    if !wrong.is_empty() {
        return Err(Failure::bad_input(wrong.join("\n")));
    }
    Ok(after.check_document()?)
}

/// A coordinator passes over what it does not know.
fn require_taken(asked: &Preferences, has: &Preferences) -> Result<(), Failure> {
    let lost: Vec<_> = differing(asked, has).map(|(asked, _)| option_of(&asked)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let text = format!(
        "the coordinator did not take {}: renew it first, it is older than this command",
        lost.join(", ")
    );
    Err(Failure::new(ExitCode::BadInput, &text))
}

/// Each preference, by the name of its option, as it is shown everywhere.
fn rows(preferences: &Preferences) -> Vec<(String, String)> {
    let all = Preference::all_of(preferences).into_iter();
    all.map(|one| (option_of(&one), one.to_string())).collect()
}

fn option_of(preference: &Preference) -> String {
    preference.key().replace('_', "-")
}

fn to_json(version: u64, preferences: &Preferences) -> serde_json::Value {
    let Preferences {
        cpu_fraction,
        cpu_time_fraction,
        buffer_min,
        buffer_additional,
        scheduling_period,
        checkpoint_period,
        leave_in_memory,
        suspended,
        memory_fraction,
        disk_fraction,
        disk_free_min,
        connection_interval,
        excluded_devices,
        hours,
        run_in_use,
        run_gpu_in_use,
        idle_after,
        required_layers,
        jobs_network,
        local,
    } = preferences;
    let mut all = json!({
        "cpu_fraction": cpu_fraction.get(),
        "cpu_time_fraction": cpu_time_fraction.get(),
        "buffer_min_seconds": buffer_min.as_secs_f64(),
        "buffer_additional_seconds": buffer_additional.as_secs_f64(),
        "scheduling_period_seconds": scheduling_period.as_secs_f64(),
        "checkpoint_period_seconds": checkpoint_period.as_secs_f64(),
        "leave_in_memory": leave_in_memory,
        "suspended": suspended,
        "memory_fraction": memory_fraction.get(),
        "disk_fraction": disk_fraction.get(),
        "disk_free_min_bytes": disk_free_min.0,
        "connection_interval_seconds": connection_interval.as_secs_f64(),
        "excluded_devices": excluded_devices,
        "hours": hours,
        "run_in_use": run_in_use,
        "run_gpu_in_use": run_gpu_in_use,
        "idle_after_seconds": idle_after.as_secs_f64(),
        "required_layers": required_layers,
        "jobs_network": jobs_network,
    });
    if let Some(all) = all.as_object_mut() {
        local_preferences::add_json(local, all);
    }
    json!({ "document_version": version, "preferences": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_what_an_older_coordinator_passes_over_is_named_and_what_differs_in_its_last_digits_is_shown() {
        let had = Preferences::default();
        let mut asked = had.clone();
        asked.local.upload_max = Some(Bytes(100_000));
        asked.local.run_on_batteries = true;
        assert!(require_taken(&asked, &asked).is_ok());
        let said = require_taken(&asked, &had).unwrap_err().to_string();
        assert!(said.contains("did not take run-on-batteries, upload-max: renew it"), "{said}");
        assert_eq!(changed(&had, &had, 7), "document version 7\n");
        let near = Preferences { cpu_fraction: Fraction::clamped(0.999_999_9), ..had.clone() };
        assert!(changed(&had, &near, 8).contains("cpu-fraction"));
    }
}
