//! Between the operator contract and the projects' own types.

use std::path::PathBuf;

use fallow_domain::agent_state::{HostState, Phase};
use fallow_domain::{Bytes, Duration, Flops, Instant, Invalid, Labels, ResourceType, Usage};
use fallow_fleet::{Contents, DocumentSet};
use fallow_proto::fleet::{disk, host, project, task};
use fallow_proto::operator::v1 as wire;
use fallow_work_server::{
    CanonicalResult, JobReport, JobView, NewAppVersion, NewInput, NewWorkunit, NoWork, Outcome, OutputSpec,
    ProjectInfo, Rules, SUBMIT_MAX, ServerState, SubmissionPiece, SubmissionStatus, Validation,
    WorkunitStatus, WorkunitView,
};
use prost::Message as _;
use tonic::Status;

use crate::fleet::Host;
use crate::fleet::token::Token;

/// Bytes of an answer that lists hosts, but for what each of them is at least: half of what tools take.
pub(super) const HOSTS_BYTES: usize = 32 << 20;

/// A host as far as there is room for it: what one holds must not keep operators from seeing the others.
pub(super) fn within(whole: wire::Host, room: &mut usize) -> wire::Host {
    match room.checked_sub(whole.encoded_len()) {
        Some(left) => {
            *room = left;
            whole
        }
        None => {
            let mut cut = wire::Host {
                tasks: Vec::new(),
                projects: Vec::new(),
                disk_decisions: Vec::new(),
                is_cut: true,
                ..whole
            };
            if let Some(state) = &mut cut.state {
                state.declined_urls.clear();
                state.owner_word = None;
                if let Some(owner) = &mut state.owner {
                    owner.excluded_devices.clear();
                }
            }
            cut
        }
    }
}

/// An agent with what it says of itself.
pub(super) fn host(host: &Host, set: &DocumentSet, contents: &mut Contents<'_>) -> wire::Host {
    let Host { agent, connected, last_seen, applied_sequence, state, projects, tasks, .. } = host;
    let Host { disk_decisions, labels, copy_of, .. } = host;
    let revoked = host.revoked.as_ref();
    wire::Host {
        agent_id: agent.0.clone(),
        connected: *connected,
        last_seen_micros: last_seen.as_micros(),
        applied_sequence: *applied_sequence,
        state: Some(host::to_wire(state)),
        projects: projects.iter().map(project::to_wire).collect(),
        tasks: tasks.iter().map(task::to_wire).collect(),
        revoked_at_micros: revoked.map_or(0, |revoked| revoked.at.as_micros()),
        revoked_reason: revoked.map(|revoked| revoked.reason.clone()).unwrap_or_default(),
        certificate_until_micros: host.certificate_until.as_micros(),
        has_old_content: revoked.is_none() && has_old_content(host, set, contents),
        wanted_version: set.fleet.version.0,
        labels: labels_to_wire(labels),
        tasks_held: tasks.len() as u64,
        tasks_running: tasks.iter().filter(|task| task.phase == Some(Phase::Running)).count() as u64,
        is_cut: false,
        follows_unknown: false,
        disk_decisions: disk_decisions.iter().map(disk::decision_to_wire).collect(),
        copy_of: copy_of.as_ref().map(|copy| copy.agent.0.clone()).unwrap_or_default(),
        copy_note: copy_of.as_ref().map(|copy| copy.note.clone()).unwrap_or_default(),
    }
}

/// Whether a host follows the newest version, but other content than that has for its labels.
fn has_old_content(host: &Host, set: &DocumentSet, contents: &mut Contents<'_>) -> bool {
    let HostState { document_version, document_content, .. } = &host.state;
    // Older agents do not say what they follow.
    *document_version == set.fleet.version
        && !document_content.is_empty()
        && contents.for_labels(&host.labels).is_ok_and(|wanted| wanted.as_str() != document_content)
}

/// An enrolment token, without its secret.
pub(super) fn token(token: &Token) -> wire::Token {
    wire::Token {
        id: token.id.clone(),
        made_at_micros: token.made_at.as_micros(),
        expires_at_micros: token.expires_at.as_micros(),
        uses: token.uses,
        used: token.used,
        labels: labels_to_wire(&token.labels),
        revoked: token.revoked,
    }
}

/// Labels as people write them.
pub(super) fn labels_to_wire(labels: &Labels) -> Vec<String> {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// A submission, or a piece of one, with its project.
pub(super) fn piece(wire: wire::SubmitRequest) -> Result<(String, SubmissionPiece), Status> {
    let wire::SubmitRequest { project, workunits: given, key, digest, total, offset, check_only } = wire;
    if given.len() > SUBMIT_MAX {
        // Before anything is made of them.
        let error = Invalid::new("number of workunits", given.len(), "at most 1,000 at a time");
        return Err(Status::invalid_argument(error.to_string()));
    }
    let mut workunits = Vec::with_capacity(given.len());
    for (at, workunit) in given.into_iter().enumerate() {
        workunits.push(new_workunit(workunit).map_err(|error| {
            let place = offset.saturating_add(at as u64).saturating_add(1);
            Status::invalid_argument(format!("workunit {place} of the submission: {error}"))
        })?);
    }
    let total = if total == 0 { workunits.len() as u64 } else { total };
    Ok((project, SubmissionPiece { key, digest, total, offset, check_only, workunits }))
}

/// With how many agents are enrolled, how many of them count as one with others, and how many accounts
/// outside the fleet asked for work lately.
pub(super) fn taken(
    taken: SubmissionStatus,
    (agents, copied_agents): (u64, u64),
    accounts_outside: u64,
) -> wire::SubmitReply {
    wire::SubmitReply {
        names: taken.names,
        taken: taken.taken,
        begun_at_micros: taken.begun_at.map_or(0, Instant::as_micros),
        known: taken.known,
        agents,
        accounts_outside,
        copied_agents,
        nobody_has_project: String::new(),
    }
}

/// A workunit to be added; zeros and empty texts stand for defaults.
pub(super) fn new_workunit(wire: wire::NewWorkunit) -> Result<NewWorkunit, Invalid> {
    let flops = Flops::new(wire.flops_estimate)?;
    if flops.get() <= 0.0 {
        let expected = "a number above 0: clients plan by it";
        return Err(Invalid::new("estimate of floating-point operations", wire.flops_estimate, expected));
    }
    let mut workunit = NewWorkunit::new(wire.application, flops);
    let default = workunit.rules;
    let quorum = if wire.quorum == 0 { default.quorum } else { wire.quorum };
    let initial_jobs =
        if wire.initial_jobs == 0 { quorum.max(default.initial_jobs) } else { wire.initial_jobs };
    let some = |value: u32, otherwise: u32| if value == 0 { otherwise } else { value };
    workunit.rules = Rules {
        quorum,
        initial_jobs,
        max_error_jobs: some(wire.max_error_jobs, default.max_error_jobs),
        max_total_jobs: some(wire.max_total_jobs, default.max_total_jobs.max(initial_jobs.saturating_mul(3))),
    };
    workunit.name = wire.name;
    workunit.command_line = wire.command_line;
    workunit.inputs = wire
        .inputs
        .into_iter()
        .map(|input| NewInput {
            open_name: input.open_name,
            content: input.content,
            keep_as: input.keep_as,
            sha256: input.sha256,
        })
        .collect();
    let output_max = Bytes::from_mebibytes(10);
    workunit.outputs = wire
        .outputs
        .into_iter()
        .map(|output| OutputSpec {
            open_name: output.open_name,
            max_bytes: if output.max_bytes == 0 { output_max } else { Bytes(output.max_bytes) },
        })
        .collect();
    if wire.flops_bound != 0.0 {
        workunit.flops_bound = Flops::new(wire.flops_bound)?;
    }
    if wire.memory_bound_bytes != 0 {
        workunit.memory_bound = Bytes(wire.memory_bound_bytes);
    }
    if wire.disk_bound_bytes != 0 {
        workunit.disk_bound = Bytes(wire.disk_bound_bytes);
    }
    if wire.delay_bound_micros != 0 {
        workunit.delay_bound = Duration::from_micros(wire.delay_bound_micros);
    }
    if !wire.comparator.is_empty() {
        workunit.comparator = wire.comparator;
    }
    Ok(workunit)
}

/// A version whose files have been received and lie at these places.
pub(super) fn app_version(
    wire: wire::AddAppVersionRequest,
    files: Vec<PathBuf>,
) -> Result<NewAppVersion, Invalid> {
    let cpus = if wire.cpus == 0.0 { 1.0 } else { wire.cpus };
    let coprocessor = match wire.coprocessor.as_str() {
        "" => None,
        name => {
            let kind = ResourceType::from_name(name).filter(|kind| kind.is_coprocessor());
            let expected = "nvidia, amd, intel or apple";
            Some((
                kind.ok_or_else(|| Invalid::new("kind of coprocessor", name, expected))?,
                wire.coprocessor_count,
            ))
        }
    };
    let signatures = wire.files.into_iter().map(|file| file.signature).collect();
    Ok(NewAppVersion {
        signatures,
        application: wire.application,
        friendly_name: wire.friendly_name,
        version: wire.version,
        platform: wire.platform,
        files,
        usage: Usage { cpus, coprocessor },
        needs_network: wire.needs_network,
    })
}

pub(super) fn refusal(refusal: NoWork) -> wire::Refusal {
    wire::Refusal {
        at_micros: refusal.at.as_micros(),
        host_id: refusal.host,
        host_name: refusal.host_name,
        agent_id: refusal.agent.map(|agent| agent.0).unwrap_or_default(),
        // Whoever knows the fleet adds it.
        agent_name: String::new(),
        reason: refusal.reason,
    }
}

pub(super) fn settings(info: &ProjectInfo) -> wire::ProjectSettings {
    let setting = |(key, value): (&str, String)| wire::Setting { key: key.to_owned(), value };
    wire::ProjectSettings {
        name: info.name.clone(),
        url: info.url.to_string(),
        settings: info.settings.list().into_iter().map(setting).collect(),
        code_sign_key: info.code_sign_key.to_string(),
        code_sign_key_is_elsewhere: info.is_signed_elsewhere,
    }
}

pub(super) fn workunit(project: &str, view: WorkunitView) -> wire::Workunit {
    wire::Workunit {
        project: project.to_owned(),
        name: view.name,
        application: view.application,
        state: workunit_state(view.state).words().to_owned(),
        error: view.error,
        quorum: view.quorum,
        canonical_job: view.canonical_job,
        jobs: view.jobs.into_iter().map(job).collect(),
        state_value: workunit_state(view.state).into(),
    }
}

pub(super) fn job_report(project: &str, report: JobReport) -> wire::JobReport {
    wire::JobReport {
        job: Some(job(report.job)),
        project: project.to_owned(),
        workunit: report.workunit,
        workunit_state: workunit_state(report.workunit_state).words().to_owned(),
        workunit_state_value: workunit_state(report.workunit_state).into(),
        workunit_error: report.workunit_error,
        application: report.application,
        command_line: report.command_line,
        version: report.version,
        platform: report.platform,
        stderr: report.stderr,
        nobody_has_project: String::new(),
    }
}

fn workunit_state(state: WorkunitStatus) -> wire::WorkunitState {
    match state {
        WorkunitStatus::Active => wire::WorkunitState::Active,
        WorkunitStatus::Validated => wire::WorkunitState::Validated,
        WorkunitStatus::Failed => wire::WorkunitState::Failed,
    }
}

fn job_state(state: ServerState) -> wire::JobState {
    match state {
        ServerState::Unsent => wire::JobState::Unsent,
        ServerState::InProgress => wire::JobState::InProgress,
        ServerState::Over => wire::JobState::Over,
    }
}

fn job_outcome(outcome: Option<Outcome>) -> wire::JobOutcome {
    match outcome {
        None => wire::JobOutcome::Unspecified,
        Some(Outcome::Success) => wire::JobOutcome::Success,
        Some(Outcome::Error) => wire::JobOutcome::Error,
        Some(Outcome::Late) => wire::JobOutcome::Late,
        Some(Outcome::NotNeeded) => wire::JobOutcome::NotNeeded,
        Some(Outcome::Aborted) => wire::JobOutcome::Aborted,
    }
}

fn job_validation(validation: Option<Validation>) -> wire::JobValidation {
    match validation {
        None => wire::JobValidation::Unspecified,
        Some(Validation::Valid) => wire::JobValidation::Valid,
        Some(Validation::Invalid) => wire::JobValidation::Invalid,
        Some(Validation::Inconclusive) => wire::JobValidation::Inconclusive,
    }
}

fn job(view: JobView) -> wire::Job {
    let micros = |instant: Option<Instant>| instant.map_or(0, Instant::as_micros);
    let (state, outcome) = (job_state(view.state), job_outcome(view.outcome));
    let validation = job_validation(view.validation);
    wire::Job {
        name: view.name,
        // For who knows no other form of them.
        state: state.words().to_owned(),
        outcome: outcome.words().to_owned(),
        validation: validation.words().to_owned(),
        state_value: state.into(),
        outcome_value: outcome.into(),
        validation_value: validation.into(),
        host_id: view.host_id,
        host_name: view.host_name,
        waits_for: view.waits_for,
        waits_until_micros: micros(view.waits_until),
        agent_id: view.agent.map(|agent| agent.0).unwrap_or_default(),
        agent_name: String::new(),
        sent_at_micros: micros(view.sent_at),
        deadline_micros: micros(view.deadline),
        received_at_micros: micros(view.received_at),
        cpu_time_micros: view.cpu_time.as_micros(),
        exit_status: view.exit_status,
        times_sent: view.times_sent.into(),
        copied_hosts: view.copied_hosts,
    }
}

pub(super) fn result(view: CanonicalResult) -> wire::CanonicalResult {
    let output = |output: fallow_work_server::OutputContent| wire::OutputContent {
        open_name: output.open_name,
        content: output.content,
    };
    wire::CanonicalResult {
        workunit: view.workunit,
        job: view.job,
        agreeing_hosts: view.agreeing_hosts,
        outputs: view.outputs.into_iter().map(output).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_of_a_workunit_gets_defaults_that_hold_together() {
        let wire = wire::NewWorkunit {
            application: "a".into(),
            flops_estimate: 1e9,
            quorum: 3,
            ..Default::default()
        };
        let workunit = new_workunit(wire).unwrap();
        assert!(workunit.rules.check().is_ok());
        assert_eq!((workunit.rules.quorum, workunit.rules.initial_jobs), (3, 3));
        assert_eq!(workunit.comparator, "bytewise");
    }

    #[test]
    fn a_workunit_of_no_size_or_an_absurd_one_is_refused() {
        for flops_estimate in [0.0, -1.0, f64::NAN] {
            let wire = wire::NewWorkunit { application: "a".into(), flops_estimate, ..Default::default() };
            assert!(new_workunit(wire).is_err());
        }
    }
}
