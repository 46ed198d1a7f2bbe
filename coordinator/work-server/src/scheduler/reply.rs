//! The reply to a scheduler request that was carried out.

use std::collections::BTreeSet;

use fallow_boinc::scheduler as wire;
use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::md5_hex;
use fallow_daemon::lock;
use fallow_domain::{Bytes, Duration, Flops, Instant, MasterUrl, ResourceType, Speed};

use super::{ReplyContent, SCHEDULER_VERSION, SentJob, external_cpid};
use crate::catalog::Catalog;
use crate::error::ProjectError;
use crate::host_limits::HostCapacity;
use crate::names::output_name;
use crate::project::Project;
use crate::records::{self, Account, Host, Version, VersionFile};
use crate::settings::DeletionPolicy;

/// Platforms that there are. A client on one of them may find an application here tomorrow; any other name is
/// a mistake.
const PLATFORMS: [&str; 18] = [
    "aarch64-android-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "anonymous",
    "arm-android-linux-gnu",
    "arm-unknown-linux-gnueabihf",
    "arm64-apple-darwin",
    "armv6l-unknown-linux-gnueabihf",
    "armv7l-unknown-linux-gnueabihf",
    "i686-apple-darwin",
    "i686-pc-linux-gnu",
    "loongarch64-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64-unknown-linux-gnu",
    "windows_arm64",
    "windows_intelx86",
    "windows_x86_64",
    "x86_64-apple-darwin",
    "x86_64-pc-linux-gnu",
];

/// Whether any of the client's platforms is one.
pub(super) fn is_known_platform(request: &SchedulerRequest, catalog: &Catalog) -> bool {
    request.platforms().any(|platform| PLATFORMS.contains(&platform) || catalog.knows_platform(platform))
}

/// Writes the reply.
pub(super) fn write(
    project: &Project,
    request: &SchedulerRequest,
    account: &Account,
    content: ReplyContent,
    url: &MasterUrl,
    now: Instant,
) -> Result<String, ProjectError> {
    let settings = project.settings();
    let catalog = project.catalog();
    let capacity = HostCapacity::of(request, &catalog);
    let (of_account, of_host) = content.credit;
    let (request_file_list, deleted_files) = {
        let (holders, host) = (lock(&project.holders), &content.host.id);
        (holders.is_list_wanted(host), holders.to_delete(host).map(str::to_owned).collect())
    };
    let mut reply = SchedulerReply {
        scheduler_version: Some(SCHEDULER_VERSION),
        // Estimates come from what jobs took on this host; clients of today correct them better than by a
        // factor.
        dont_use_dcf: true,
        master_url: Some(url.to_string()),
        request_delay: records::delay(&settings, &content.host),
        messages: content.messages,
        project_name: Some(project.long_name()),
        userid: Some(account.id),
        user_name: Some(account.name.clone()),
        user_total_credit: Some(of_account.total),
        user_expavg_credit: Some(of_account.recent_at(now)),
        user_create_time: Some(account.created_at),
        email_hash: Some(md5_hex(&account.email)),
        cross_project_id: Some(account.cross_project_id.clone()),
        external_cpid: Some(external_cpid(account)),
        hostid: content.tell_host_id.then_some(content.host.id),
        host_total_credit: Some(of_host.total),
        host_expavg_credit: Some(of_host.recent_at(now)),
        host_venue: Some(String::new()),
        host_create_time: Some(content.host.created_at),
        team_name: Some(String::new()),
        code_sign_key: request
            .code_sign_key
            .is_none()
            .then(|| project.signing_keys.code_sign_public().to_owned()),
        result_acks: content.acks,
        result_aborts: content.aborts,
        result_aborts_if_not_started: content.aborts_if_not_started,
        no_rsc_apps: lacking(&catalog, &capacity),
        request_file_list,
        deleted_files,
        next_rpc_delay: come_again(project, &content.host, now),
        deletion_policy_priority: settings.deletion_policy == DeletionPolicy::Priority,
        deletion_policy_expire: settings.deletion_policy == DeletionPolicy::Expiration,
        delete_from_self: settings.delete_from_self,
        message_ack: !request.trickles.is_empty(),
        // Some policies judge by all jobs that the host has (R5.6).
        send_full_workload: settings.send.policy.needs_workload(),
        ..SchedulerReply::default()
    };
    let mut known = BTreeSet::new();
    for sent in content.jobs {
        let speed = content.experience.speed(&capacity, &sent.version);
        add_version(project, url, Speed::new(speed).ok(), &sent.version, &mut known, &mut reply);
        add_job(project, url, &sent, speed / capacity.speed_of(sent.version.usage), &mut reply)?;
    }
    if content.is_part {
        reply.results.iter_mut().for_each(|job| job.report_immediately = true);
    }
    Ok(reply.write())
}

/// The resource types that there are no versions for on this host's platforms (R3.12): its client need not
/// ask for them.
fn lacking(catalog: &Catalog, capacity: &HostCapacity) -> Vec<String> {
    let types = catalog.types(&capacity.platforms);
    types.iter().filter(|(_, has)| !**has).map(|(kind, _)| wire::type_name(kind).to_owned()).collect()
}

/// When a host that asked in vain shall come again.
fn come_again(project: &Project, host: &Host, now: Instant) -> Option<Duration> {
    let mut idle_hosts = lock(&project.idle_hosts);
    if !host.waiting {
        idle_hosts.served(host.id);
        return None;
    }
    // New hosts of an account that were never let in count as one (`new_hosts`).
    let waiting = match (&host.agent, host.last_request) {
        (None, None) => u64::MAX - host.account,
        _ => host.id,
    };
    idle_hosts.wait(waiting, project.settings().poll, now, jitter(host.id, now))
}

/// A number from 0 to 1 that looks random from host to host and time to time.
fn jitter(host: u64, now: Instant) -> f64 {
    let mixed = (host.rotate_left(32) ^ now.as_micros().unsigned_abs()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as f64 / f64::from(1_u32 << 24)
}

/// The application, its version and files, once each. A client that has them already takes them again without
/// harm.
fn add_version(
    project: &Project,
    url: &MasterUrl,
    flops: Option<Speed>,
    version: &Version,
    known: &mut BTreeSet<(String, String, ResourceType)>,
    reply: &mut SchedulerReply,
) {
    if !known.insert((version.application.clone(), version.platform.clone(), version.kind())) {
        return;
    }
    if let Some(app) = project.catalog().apps.get(&version.application)
        && !reply.apps.iter().any(|there| there.name == app.name)
    {
        reply.apps.push(wire::App {
            name: app.name.clone(),
            user_friendly_name: app.friendly_name.clone(),
            ..wire::App::default()
        });
    }
    reply.files.extend(version.files.iter().map(|file| version_file(url, file)));
    let file_ref = |(position, file): (usize, &VersionFile)| wire::FileRef {
        file_name: file.name.clone(),
        open_name: file.open_name.clone(),
        main_program: position == 0,
        ..wire::FileRef::default()
    };
    reply.app_versions.push(wire::AppVersion {
        app_name: version.application.clone(),
        version_num: version.version,
        platform: version.platform.clone(),
        api_version: version.api_version.clone(),
        files: version.files.iter().enumerate().map(file_ref).collect(),
        plan_class: version.plan_class().to_owned(),
        avg_ncpus: version.usage.cpus,
        coproc: version
            .usage
            .coprocessor
            .map(|(kind, count)| wire::Coprocessor { kind: wire::type_name(kind).to_owned(), count }),
        flops,
        needs_network: version.needs_network,
        ..wire::AppVersion::default()
    });
}

fn version_file(url: &MasterUrl, file: &VersionFile) -> wire::FileInfo {
    wire::FileInfo {
        name: file.name.clone(),
        download_urls: vec![download_url(url, &file.name)],
        md5_cksum: Some(file.md5.clone()),
        nbytes: Some(Bytes(file.nbytes)),
        executable: file.executable,
        file_signature: Some(file.signature.clone()),
        ..wire::FileInfo::default()
    }
}

/// Adds a job of a version that is told to be `faster` than the host's benchmark by so much. Its bound is
/// raised by as much, or clients, which divide it by that speed, would end jobs that are longer than those
/// before them.
fn add_job(
    project: &Project,
    url: &MasterUrl,
    sent: &SentJob,
    faster: f64,
    reply: &mut SchedulerReply,
) -> Result<(), ProjectError> {
    let SentJob { workunit, index, version } = sent;
    let mut inputs = Vec::with_capacity(workunit.inputs.len());
    for input in &workunit.inputs {
        reply.files.push(wire::FileInfo {
            name: input.file_name.clone(),
            download_urls: vec![download_url(url, &input.file_name)],
            md5_cksum: Some(input.md5.clone()),
            nbytes: Some(Bytes(input.nbytes)),
            sticky: input.sticky,
            ..wire::FileInfo::default()
        });
        inputs.push(file_ref(&input.file_name, &input.open_name));
    }
    reply.workunits.push(wire::Workunit {
        name: workunit.name.clone(),
        app_name: workunit.application.clone(),
        rsc_fpops_est: Some(workunit.flops_estimate),
        rsc_fpops_bound: Flops::new(workunit.flops_bound.get() * faster.max(1.0)).ok(),
        rsc_memory_bound: Some(workunit.memory_bound),
        rsc_disk_bound: Some(workunit.disk_bound),
        command_line: workunit.command_line.clone(),
        files: inputs,
    });
    let name = workunit.job_name(*index);
    let mut outputs = Vec::with_capacity(workunit.outputs.len());
    for (position, output) in workunit.outputs.iter().enumerate() {
        let file_name = output_name(&name, position);
        reply.files.push(wire::FileInfo {
            upload_urls: vec![format!("{url}file_upload_handler")],
            max_nbytes: Some(output.max_bytes),
            xml_signature: Some(project.signing_keys.sign_upload(&file_name, output.max_bytes)?),
            generated_locally: true,
            upload_when_present: true,
            name: file_name.clone(),
            ..wire::FileInfo::default()
        });
        outputs.push(file_ref(&file_name, &output.open_name));
    }
    let deadline = workunit.jobs.get(*index as usize).and_then(|job| job.deadline);
    reply.results.push(wire::ResultJob {
        name,
        wu_name: workunit.name.clone(),
        report_deadline: deadline.unwrap_or(Instant::FAR_FUTURE),
        files: outputs,
        platform: version.platform.clone(),
        version_num: version.version,
        plan_class: version.plan_class().to_owned(),
        report_immediately: project.settings().report_immediately,
    });
    Ok(())
}

fn file_ref(file_name: &str, open_name: &str) -> wire::FileRef {
    wire::FileRef {
        file_name: file_name.to_owned(),
        open_name: Some(open_name.to_owned()),
        ..wire::FileRef::default()
    }
}

fn download_url(url: &MasterUrl, file: &str) -> String {
    // Names of files are plain: they need no escapes.
    format!("{url}download/{file}")
}
