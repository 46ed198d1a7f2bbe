//! What is stored stays readable, whatever becomes of the parsers that it came through.
//!
//! `stored.json` holds one record of every kind, as they were written when what projects say was still stored
//! in the form of the parsers; what has come later stands in it as it was written first. Accounts and metrics
//! are those of a host that had worked for forty minutes: of the metrics, the tables of hours and days are
//! empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fallow_domain::{
    AccountKey, Bytes, Device, DocumentVersion, Duration, FleetDocument, Flops, Fraction, Instant, JobId,
    KeyFingerprint, OwnerLimits, PerType, Preferences, ProjectAssignment, ProjectId, ResourceType,
    ResourceTypes, Share, SlotId, Usage,
};
use fallow_policy::backoff::Wait;
use fallow_policy::completion::DurationCorrection;
use fallow_policy::on_time::OnTime;
use fallow_policy::rpc_timing::RpcState;
use fallow_policy::transfer_backoff::TransferBackoff;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use serde_json::Value;

use super::{NOW, speed, url};
use crate::accounts::Ledger;
use crate::described::{
    Application, ApplicationVersion, CoprocessorUse, FileDescription, FileReference, JobDescription, Workunit,
};
use crate::end_state::EndState;
use crate::record::{Record, restore};
use crate::state::{
    File, FileStatus, Given, Identity, Job, Meta, Outcome, Process, Project, Run, Stage, State, Transfer,
};
use crate::versions::VersionKey;
use crate::{Direction, FileKey, RequiredSignature};

const STORED: &str = include_str!("stored.json");
const ID: ProjectId = ProjectId(3);
const PLATFORM: &str = "x86_64-pc-linux-gnu";

fn text(text: &str) -> String {
    text.to_owned()
}

fn flops(flops: f64) -> Option<Flops> {
    Some(Flops::new(flops).unwrap())
}

fn secs(secs: i64) -> Duration {
    Duration::from_secs(secs)
}

fn owner() -> OwnerLimits {
    OwnerLimits {
        suspended: true,
        cpu_fraction: Some(Fraction::clamped(0.5)),
        cpu_time_fraction: Some(Fraction::clamped(0.25)),
        memory_fraction: Some(Fraction::clamped(0.75)),
        disk_fraction: Some(Fraction::clamped(0.125)),
        excluded_devices: BTreeSet::from([Device::new(ResourceType::Amd, 2).unwrap()]),
    }
}

fn document() -> FleetDocument {
    let assigned = ProjectAssignment {
        name: text("mersenne"),
        url: url("a"),
        account_key: AccountKey::new("0123456789abcdef0123456789abcdef"),
        share: Share::new(7.0).unwrap(),
        code_sign_key: Some(KeyFingerprint::new([0xa5; 32])),
        without: ResourceTypes::default(),
    };
    let excluded_devices = BTreeSet::from([Device::new(ResourceType::Nvidia, 1).unwrap()]);
    let preferences = Preferences { excluded_devices, suspended: true, ..Preferences::default() };
    FleetDocument {
        content: String::new(),
        version: DocumentVersion(8),
        projects: vec![assigned],
        preferences,
    }
}

fn meta() -> Meta {
    Meta {
        next_project: 4,
        next_job: 12,
        owner: owner(),
        document: Some(document()),
        document_applied_at: NOW,
        document_refused: Some((DocumentVersion(9), text("a share is negative"))),
        // Who wrote this could not say it yet.
        fleet: None,
        // Nor this.
        trial: None,
        rolled_back: Vec::new(),
        snoozed_until: None,
        declined: BTreeSet::from([url("b")]),
        draws: 41,
    }
}

fn identity() -> Identity {
    Identity {
        user_id: 11,
        team_id: 12,
        user_name: text("a user"),
        team_name: text("a team"),
        cross_project_id: text("fedcba9876543210fedcba9876543210"),
        user_total_credit: 1.5,
        user_expavg_credit: 2.5,
        host_total_credit: 3.5,
        host_expavg_credit: 4.5,
        venue: text("home"),
        project_preferences: text("<resource_share>75</resource_share>\n<no_cuda>1</no_cuda>"),
        global_preferences: String::new(),
        global_preferences_at: None,
    }
}

/// How it stands with a project that has asked for a delay, and whose schedulers, jobs and work have failed.
fn rpc() -> RpcState {
    let rng = &mut Pcg64Mcg::seed_from_u64(1);
    let mut rpc = RpcState::attached();
    rpc.on_request_delay(NOW, secs(60));
    rpc.on_failure(NOW, rng);
    rpc.on_job_failure(NOW, rng);
    rpc.on_work_reply(NOW, 0, rng);
    rpc
}

fn project() -> Project {
    let app = Application {
        name: text("app"),
        user_friendly_name: text("An <application>"),
        non_cpu_intensive: true,
        fraction_done_exact: true,
        sporadic: true,
    };
    let mut project = Project {
        id: ID,
        url: url("a"),
        name: text("A project"),
        account_key: AccountKey::new("00112233445566778899aabbccddeeff"),
        share: Share::new(20.0).unwrap(),
        chosen_share: Some(Share::new(30.0).unwrap()),
        directory: Some(text("127.0.0.1_a_2")),
        from_document: true,
        detach_when_done: true,
        scheduler_urls: vec![text("http://127.0.0.1/a/cgi"), text("http://127.0.0.1/a/cgi2")],
        rpc: rpc(),
        hostid: 77,
        rpc_seqno: 5,
        code_sign_key: Some(text("1024\nabc.")),
        required_key: Some(KeyFingerprint::new([0x5a; 32])),
        without: [ResourceType::Amd].into_iter().collect(),
        correction: DurationCorrection::new(1.25),
        dont_use_dcf: true,
        send_full_workload: true,
        contact_by: Some(Wait::new(NOW, secs(600))),
        identity: identity(),
        apps: BTreeMap::from([(text("app"), app)]),
        lacks: PerType::from_fn(|kind| kind == ResourceType::Intel),
        job_time: Some(secs(3_600)),
        deletes: Default::default(),
        barred: Default::default(),
        web: Default::default(),
    };
    project.read_web_preferences();
    project
}

fn version_key() -> VersionKey {
    let (app, platform, plan_class) = (text("app"), text(PLATFORM), text("cuda"));
    VersionKey { project: ID, app, platform, plan_class, number: 105 }
}

fn version() -> ApplicationVersion {
    let library = FileReference { file_name: text("lib"), copy_file: true, ..FileReference::default() };
    ApplicationVersion {
        app: text("app"),
        number: 105,
        platform: text(PLATFORM),
        plan_class: text("cuda"),
        api_version: Some(text("8.1.0")),
        files: vec![file_ref("program", "run"), library],
        cpus: 0.125,
        speed: Some(speed(2.5e9)),
        command_line: text("--fast"),
        coprocessor: Some(CoprocessorUse { kind: text("CUDA"), count: 0.5 }),
        file_prefix: text("../"),
        dont_throttle: true,
        is_wrapper: true,
        needs_network: true,
    }
}

fn file_ref(name: &str, open_name: &str) -> FileReference {
    FileReference {
        file_name: text(name),
        open_name: Some(text(open_name)),
        main_program: true,
        copy_file: true,
        optional: true,
    }
}

fn workunit() -> Workunit {
    Workunit {
        name: text("wu"),
        app: text("app"),
        flops_estimate: flops(1e12),
        flops_bound: flops(1e14),
        memory_bound: Some(Bytes(250_000_000)),
        disk_bound: Some(Bytes(500_000_000)),
        command_line: text("--from 1 --to 'a b'"),
        files: vec![file_ref("in", "input.txt")],
    }
}

fn info(name: &str) -> FileDescription {
    FileDescription {
        name: text(name),
        download_urls: vec![text("http://127.0.0.1/d/1"), text("http://127.0.0.1/d/2")],
        upload_urls: vec![text("http://127.0.0.1/file_upload_handler")],
        gzipped_urls: vec![text("http://127.0.0.1/d/1.gz")],
        gzipped_nbytes: Some(Bytes(70)),
        md5: Some(text("900150983cd24fb0d6963f7d28e17f72")),
        nbytes: Some(Bytes(100)),
        max_nbytes: Some(Bytes(1_000)),
        executable: true,
        signature_required: true,
        signature: Some(text("12ab\n34cd.")),
        xml_signature: Some(text("<sig>\n56ef.")),
        sticky: true,
        sticky_lifetime: Some(secs(86_400)),
        priority: Some(3),
        expires_after: Some(Duration::from_days_f64(7.1)),
        gzip_when_done: true,
        generated_locally: true,
        upload_when_present: true,
    }
}

fn file(name: &str, status: FileStatus, direction: Direction) -> File {
    let mut backoff = TransferBackoff::new(NOW);
    backoff.on_failure(NOW, &mut Pcg64Mcg::seed_from_u64(2));
    File {
        info: info(name),
        signed: true,
        status,
        proof: Some(RequiredSignature { signature: text("98."), key: text("1024\nabc.") }),
        found: Some((Bytes(101), text("0cc175b9c0f1b6a831c399e269772661"))),
        stale: Bytes(17),
        transfer: Some(Transfer { direction, url_index: 1, backoff, active: false }),
        kept: Default::default(),
    }
}

fn files() -> [File; 4] {
    let failed = FileStatus::Failed(-224, text("it is not there"));
    [
        file("in", FileStatus::Absent, Direction::Download),
        file("lib", FileStatus::Present, Direction::Download),
        file("out", FileStatus::Uploaded, Direction::Upload),
        file("program", failed, Direction::Download),
    ]
}

fn run() -> Run {
    Run {
        charged: secs(1),
        charged_coprocessor: secs(2),
        base: secs(3),
        process_cpu: secs(4),
        live: true,
        starts: 5,
        checkpoint_cpu: secs(6),
        checkpoint_said: secs(7),
        elapsed: secs(8),
        checkpoint_elapsed: secs(9),
        end_elapsed: secs(10),
        fraction_done: 0.75,
        checkpoint_fraction: 0.5,
        working_set: Bytes(11),
        peak_working_set: Bytes(12),
        disk_usage: Bytes(13),
        swap: Default::default(),
        swapped: Default::default(),
        swap_exits: 0,
        swap_vain: 0,
        elapsed_base: Default::default(),
        disk_held: Default::default(),
        premature_exits: 14,
        quick_exits: 15,
        failed_starts: 16,
        made_room: 17,
        not_before: NOW + secs(18),
        slice_since: NOW + secs(19),
        devices: Default::default(),
        begun: true,
        ran: true,
        checkpoint_at: Some(NOW + secs(20)),
    }
}

fn jobs() -> Vec<Job> {
    let stages = [Stage::Downloading, Stage::Runnable, Stage::Uploading, Stage::Reporting];
    stages.into_iter().zip(8..).map(|(stage, id)| job(id, stage)).collect()
}

fn job(id: u64, stage: Stage) -> Job {
    let outcome = Outcome {
        exit_status: -197,
        state: EndState::Aborted,
        message: Some(text("why")),
        stderr: text("said"),
        at: NOW,
    };
    Job {
        id: JobId(id),
        project: ID,
        result: JobDescription {
            name: format!("wu_{id}"),
            workunit: text("wu"),
            report_deadline: Instant::from_secs_f64(1_800_000_000.5),
            files: vec![file_ref("out", "output.txt")],
            platform: text(PLATFORM),
            version_number: 105,
            plan_class: text("cuda"),
            report_immediately: true,
        },
        version: version_key(),
        received_at: NOW,
        usage: Usage { cpus: 0.125, coprocessor: Some((ResourceType::Nvidia, 0.5)) },
        declared: None,
        flops_estimate: Flops::new(1e12).unwrap(),
        speed: speed(2.5e9),
        elapsed_max: secs(40_000),
        stage,
        slot: Some(SlotId(id as u32)),
        run: run(),
        outcome: Some(outcome),
        process: Process::None,
        given: Given::default(),
    }
}

/// What `stored.json` holds, but for accounts and metrics.
fn expected() -> State {
    let mut state = State { host: meta().into(), ..State::default() };
    state.projects.insert(project());
    state.versions.insert(version_key(), version());
    state.workunits.insert(FileKey { project: ID, name: text("wu") }, workunit());
    for file in files() {
        state.files.insert(FileKey { project: ID, name: file.info.name.clone() }, file);
    }
    jobs().into_iter().for_each(|job| state.jobs.insert(job));
    state
}

/// All that is stored of a client, as JSON by key.
fn written(state: &State, ledger: &Ledger) -> BTreeMap<String, Value> {
    let mut records = vec![Record::Meta, Record::Ledger, Record::Metrics, Record::OnTime];
    records.extend(ledger.experience().keys().copied().map(Record::Experience));
    records.extend(state.projects.keys().copied().map(Record::Project));
    records.extend(state.versions.keys().cloned().map(Record::Version));
    records.extend(state.workunits.keys().cloned().map(Record::Workunit));
    records.extend(state.files.keys().cloned().map(Record::File));
    records.extend(state.jobs.keys().copied().map(Record::Job));
    let change = |record: Record| {
        let change = record.change(state, ledger);
        let value = change.value.unwrap();
        assert_eq!(value[0], b'1');
        (String::from_utf8(change.key).unwrap(), serde_json::from_slice(&value[1..]).unwrap())
    };
    records.into_iter().map(change).collect()
}

fn restored(stored: &BTreeMap<String, Value>) -> (State, Ledger) {
    let (mut state, mut ledger) = (State::default(), Ledger::default());
    for (key, value) in stored {
        restore(&mut state, &mut ledger, key.as_bytes(), format!("1{value}").as_bytes()).unwrap();
    }
    (state, ledger)
}

/// Compares by what shows of them, and says where they differ first.
#[track_caller]
fn assert_alike(found: &impl fmt::Debug, expected: &impl fmt::Debug) {
    let (found, expected) = (format!("{found:#?}"), format!("{expected:#?}"));
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "in line {number}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn r6_2_records_that_were_written_in_the_form_of_the_parsers_are_read_as_they_were_meant() {
    let (state, _) = restored(&serde_json::from_str(STORED).unwrap());
    assert_alike(&state, &expected());
}

#[test]
fn r6_2_what_was_read_is_written_in_the_form_in_which_it_was_stored() {
    let mut stored: BTreeMap<String, Value> = serde_json::from_str(STORED).unwrap();
    let (state, ledger) = restored(&stored);
    let written = written(&state, &ledger);
    // How long the host could compute is not looked at any more.
    let accounts = stored.get_mut("ledger").and_then(Value::as_object_mut).unwrap();
    assert!(accounts.remove("unsettled").is_some());
    for (key, value) in &written {
        assert_eq!(Some(value), stored.get(key), "{key}");
    }
    assert!(written.keys().eq(stored.keys()), "nothing that was learned is learned anew");
}

/// Of projects that sent no work an older version knew of a lack of work or of lateness only.
#[test]
fn r5_35_what_older_versions_stored_of_projects_that_sent_no_work_is_read_as_it_was_meant() {
    let (_, ledger) = restored(&serde_json::from_str(STORED).unwrap());
    let has_none = |id, kind| ledger.type_backoffs().has_none(ProjectId(id), kind, NOW, true);
    let [cpu, nvidia, amd, _, _] = ResourceType::ALL;
    assert!(has_none(1, cpu), "it has none now");
    assert!(!has_none(2, cpu) && !has_none(2, nvidia), "they would be late");
    assert!(has_none(2, amd), "it has none for such instances");
}

#[test]
fn r6_2_what_is_written_is_read_as_it_was() {
    let (_, mut ledger) = restored(&serde_json::from_str(STORED).unwrap());
    let state = expected();
    assert!(ledger.count(ID, |totals| totals.rpcs += 5));
    let (later, later_ledger) = restored(&written(&state, &ledger));
    assert_alike(&later, &state);
    assert_alike(&later_ledger, &ledger);
}

#[test]
fn r6_2_a_file_that_was_stored_without_priority_and_lifetime_is_read_as_one_that_has_none() {
    let mut stored: BTreeMap<String, Value> = serde_json::from_str(STORED).unwrap();
    for (_, record) in stored.iter_mut().filter(|(key, _)| key.starts_with("file/")) {
        let info = record[1]["info"].as_object_mut().unwrap();
        assert!(info.remove("priority").is_some() && info.remove("exp_days").is_some());
    }
    let (state, _) = restored(&stored);
    let told: Vec<_> =
        state.files.values().map(|file| (file.info.priority, file.info.expires_after)).collect();
    assert_eq!(told, [(None, None); 4]);
}

#[test]
fn r1_12_what_was_learned_of_the_hosts_hours_is_restored_and_what_is_damaged_of_it_is_learned_anew() {
    let (mut ledger, mut on_time) = (Ledger::default(), OnTime::default());
    on_time.observe(NOW, true);
    on_time.observe(NOW + Duration::from_hours(5), true);
    ledger.restore_on_time(on_time);
    let records = [Record::Ledger, Record::OnTime].map(|record| record.change(&State::default(), &ledger));
    let into =
        |ledger: &mut Ledger, key: &[u8], value: &[u8]| restore(&mut State::default(), ledger, key, value);
    for order in [[0, 1], [1, 0]] {
        let mut restored = Ledger::default();
        for change in order.map(|place: usize| &records[place]) {
            into(&mut restored, &change.key, change.value.as_ref().unwrap()).unwrap();
        }
        assert_eq!(restored.on_time(), ledger.on_time());
    }
    for damaged in ["1{\"past\":[2000]}", "1{\"past\":\"\"}", "1nonsense"] {
        let mut restored = Ledger::default();
        into(&mut restored, b"on_time", damaged.as_bytes()).unwrap();
        assert_eq!(restored.on_time(), Ledger::default().on_time(), "{damaged}");
    }
    assert!(into(&mut Ledger::default(), b"on_time", b"2{}").is_err(), "of a newer version");
}
