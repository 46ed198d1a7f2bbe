//! A BOINC client's data directory as a scenario (R5.11): `client_state.xml`, `global_prefs.xml` and
//! `global_prefs_override.xml`.
//!
//! **What the files do not say** is assumed, and said in the notes:
//!
//! | missing | taken |
//! | --- | --- |
//! | length of the simulation | 100 days |
//! | lengths of on intervals (only their part of the time is recorded) | 8 h on average |
//! | speed of a CPU, of a coprocessor | 1e9, 1e12 FLOPS |
//! | memory, disk, network | enough for everything |
//! | preferences | those of a client without any |
//! | jobs of a project with none queued | those of the base scenario: 13,000 s on one of its CPUs, 9 days to the deadline |
//! | true sizes of jobs | estimates × the project's duration correction factor |
//! | when a project's server is there | always |
//! | checkpoints, failures | nothing is lost, none |
//!
//! **Left out:** suspended projects and jobs, jobs that failed or were aborted, hours of the day and other
//! programs' load in the preferences. A project that is to send no more work has no jobs but those queued.

mod project;

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fallow_boinc::FormatError;
use fallow_boinc::client_state::{ClientState, overlay_preferences};
use fallow_boinc::scheduler::{GlobalPreferences, HostCoprocessors};
use fallow_domain::{Bytes, Duration, Fraction, Speed};

use super::{
    Availability, Bandwidth, ClientModel, CoprocessorKind, CoprocessorModel, FileError, Files, HostModel,
    OffKind, Problem, Scenario, Severity,
};

/// A scenario taken from a data directory.
#[derive(Clone, Debug, PartialEq)]
pub struct FromBoinc {
    /// The scenario. It has no errors.
    pub scenario: Scenario,
    /// What was assumed and what was left out, a sentence each.
    pub notes: Vec<String>,
}

/// A data directory that is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum BoincError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not what it should be.
    #[error("{file} is not a BOINC client's")]
    Format {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Nothing could be simulated.
    #[error(
        "there is no project in client_state.xml that computes: expected at least one that is not suspended"
    )]
    NoProject,
    /// The figures in it make no sense together.
    #[error("the state of the client makes no sense: {0}")]
    Unsound(Problem),
}

const STATE: &str = "client_state.xml";
const PREFERENCES: &str = "global_prefs.xml";
const OVERRIDE: &str = "global_prefs_override.xml";

/// Mean length of an on interval: a working day.
const ON_MEAN: Duration = Duration::from_hours(8);
/// Off for less than this part of the time is a restart or two.
const ALWAYS: f64 = 0.999;
const CPU_SPEED: f64 = 1e9;
const COPROCESSOR_SPEED: f64 = 1e12;

impl Scenario {
    /// Takes host, projects, queue and preferences from the data directory that `files` are of.
    ///
    /// # Errors
    /// [`BoincError`] when there is no `client_state.xml`, a file cannot be read, or there is nothing to
    /// simulate.
    pub fn from_boinc(files: &dyn Files) -> Result<FromBoinc, BoincError> {
        let content = files.read(STATE)?;
        let state =
            ClientState::parse(&content).map_err(|source| BoincError::Format { file: STATE, source })?;
        let mut notes = Vec::new();
        let client = client(&preferences(files, &mut notes)?, &mut notes);
        let host = host(&state, &mut notes);
        let projects = project::projects(&state, &host, &mut notes);
        if projects.is_empty() {
            return Err(BoincError::NoProject);
        }
        let name = name_of(&state.host.domain_name, "host", &mut BTreeSet::new());
        let duration = Scenario::base().duration;
        let scenario =
            Scenario { name, duration, hosts: NonZeroU32::MIN, host, client, projects, outages: Vec::new() };
        match scenario.check().into_iter().find(|finding| finding.severity == Severity::Error) {
            Some(finding) => Err(BoincError::Unsound(finding)),
            None => Ok(FromBoinc { scenario, notes }),
        }
    }
}

/// A name that a scenario can have, near to `name`, and not among `taken`, to which it is added.
fn name_of(name: &str, otherwise: &str, taken: &mut BTreeSet<String>) -> String {
    let bad = |c: char| c.is_control() || matches!(c, '.' | '=' | '*' | ',' | '/' | '\\');
    let clean: String = name.trim().chars().map(|c| if bad(c) { '_' } else { c }).take(60).collect();
    let clean = if clean.trim().is_empty() { otherwise } else { clean.trim() };
    let mut unique = clean.to_owned();
    let mut number = 2;
    while !taken.insert(unique.clone()) {
        unique = format!("{clean} {number}");
        number += 1;
    }
    unique
}

fn preferences(files: &dyn Files, notes: &mut Vec<String>) -> Result<GlobalPreferences, BoincError> {
    let mut preferences = GlobalPreferences::default();
    let mut none = true;
    for file in [PREFERENCES, OVERRIDE] {
        match files.read(file) {
            Ok(content) => {
                overlay_preferences(&mut preferences, &content)
                    .map_err(|source| BoincError::Format { file, source })?;
                none = false;
            }
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
    }
    if none {
        notes.push(format!("There is no {PREFERENCES}: the preferences are those of a client without any."));
    }
    Ok(preferences)
}

/// Preferences as BOINC's client would follow them: values out of range are brought into it.
fn client(theirs: &GlobalPreferences, notes: &mut Vec<String>) -> ClientModel {
    let ours = theirs.to_domain_noting(&mut |note| notes.push(format!("The preferences' {note}")));
    if ours.suspended {
        notes.push("The preferences allow no hours to compute in: they are passed over.".into());
    }
    ClientModel::from(&ours)
}

fn host(state: &ClientState, notes: &mut Vec<String>) -> HostModel {
    let base = HostModel::default();
    let info = &state.host;
    let own: u64 = state.projects.iter().fold(0, |sum, project| sum.saturating_add(project.disk_usage.0));
    let free = Bytes::from_f64(info.d_free);
    HostModel {
        cpus: NonZeroU32::new(info.p_ncpus.min(100_000)).unwrap_or(NonZeroU32::MIN),
        flops: speed(info.p_fpops, CPU_SPEED, "a CPU", notes).unwrap_or(base.flops),
        available: available(state, notes),
        off: OffKind::Shutdown,
        connection_interval: Duration::ZERO,
        coprocessors: coprocessors(&state.coprocessors, notes),
        memory: size(Bytes::from_f64(info.m_nbytes)),
        // What others have on the disk is not there for the client.
        disk: size(free).map(|free| free.plus(Bytes(own))).and_then(size),
        download: bandwidth(state.net_stats.bwdown),
        upload: bandwidth(state.net_stats.bwup),
    }
}

/// A size that is known, and that a scenario file can hold.
fn size(bytes: Bytes) -> Option<Bytes> {
    (bytes.0 > 0 && bytes.0 < 1 << 53).then_some(bytes)
}

fn bandwidth(bytes_per_second: f64) -> Option<Bandwidth> {
    let whole = bytes_per_second.round().clamp(0.0, 1e12) as u64;
    Bandwidth::from_bytes_per_second(whole)
}

fn speed(given: f64, otherwise: f64, what: &str, notes: &mut Vec<String>) -> Option<Speed> {
    Speed::new(given).ok().or_else(|| {
        notes.push(format!("The speed of {what} is not known: {otherwise:e} FLOPS are assumed."));
        Speed::new(otherwise).ok()
    })
}

fn available(state: &ClientState, notes: &mut Vec<String>) -> Availability {
    // Both are -1 while unknown.
    let known = |fraction: f64| if (0.0..=1.0).contains(&fraction) { fraction } else { 1.0 };
    let fraction = known(state.time_stats.on_frac) * known(state.time_stats.active_frac);
    if fraction >= ALWAYS {
        return Availability::Always;
    }
    notes.push(format!(
        "The host computes {:.1}% of the time; lengths of its intervals are not recorded: 8 h on average are assumed.",
        fraction * 100.0
    ));
    Availability::OnOff { fraction: Fraction::clamped(fraction.max(0.001)), mean: ON_MEAN }
}

fn coprocessors(given: &[HostCoprocessors], notes: &mut Vec<String>) -> Vec<CoprocessorModel> {
    let mut models: Vec<CoprocessorModel> = Vec::new();
    for own in given {
        let kind = own.resource_type().and_then(CoprocessorKind::from_resource);
        let Some(count) = NonZeroU32::new(own.count.min(1000)) else { continue };
        match kind {
            Some(kind) if models.iter().all(|model| model.kind != kind) => {
                if let Some(flops) = speed(own.peak_flops, COPROCESSOR_SPEED, kind.name(), notes) {
                    models.push(CoprocessorModel { kind, count, flops });
                }
            }
            _ => notes.push("A coprocessor of another kind is left out.".into()),
        }
    }
    models
}
