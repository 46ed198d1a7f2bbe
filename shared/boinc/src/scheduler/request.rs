//! The scheduler request: a client's credentials, its state, its host, its jobs and what it wants.

use std::fmt;

use fallow_domain::{AccountKey, Duration, PerType};

use super::{
    AppVersionRef, DiskUsage, GlobalPreferences, HostCoprocessors, HostInfo, InProgressResult, NetStats,
    OtherResult, ReportedResult, StickyFile, TimeStats, TrickleUp, block,
};
use crate::FormatError;
use crate::names::is_file_name;
use crate::xml::{Reader, Tag, Writer};

/// Platforms that are kept of a request beside the primary one. Clients name a handful.
const PLATFORMS_MAX: usize = 32;
/// The longest name of a reported job that is kept although no job can have it, in bytes.
const UNKNOWN_NAME_MAX: usize = 1_024;
/// The longest name of a platform that is kept, in bytes: BOINC's clients and servers hold no longer ones.
const PLATFORM_NAME_MAX: usize = 255;

/// A client's version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Release.
    pub release: u32,
}

impl ClientVersion {
    /// Reads `8.3.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let version = Self { major: next()?, minor: next()?, release: next()? };
        numbers.next().is_none().then_some(version)
    }

    /// The number that servers compare: 10000 times the major plus 100 times the minor number plus the
    /// release.
    pub fn number(self) -> u64 {
        u64::from(self.major) * 10_000 + u64::from(self.minor) * 100 + u64::from(self.release)
    }

    /// Takes one of the three elements that make it up, and says whether `tag` was one.
    pub(crate) fn take<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "core_client_major_version" => reader.set(tag, &mut self.major)?,
            "core_client_minor_version" => reader.set(tag, &mut self.minor)?,
            "core_client_release" => reader.set(tag, &mut self.release)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn put(self, writer: &mut Writer) {
        writer.value("core_client_major_version", &self.major);
        writer.value("core_client_minor_version", &self.minor);
        writer.value("core_client_release", &self.release);
    }
}

impl fmt::Display for ClientVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// A request to a project's scheduler (BOINC: `scheduler_request`).
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerRequest {
    /// The account key.
    pub authenticator: AccountKey,
    /// The host's number at this project, 0 until it has one.
    pub hostid: u64,
    /// Rises by one with every request; 0 without a host number.
    pub rpc_seqno: u64,
    /// The client's version (BOINC: three elements `core_client_...`).
    pub client_version: ClientVersion,
    /// This project's share over the sum of all shares.
    pub resource_share_fraction: f64,
    /// The same over projects with runnable jobs.
    pub rrs_fraction: f64,
    /// The same over projects that can have runnable jobs.
    pub prrs_fraction: f64,
    /// The factor that corrects estimates of durations.
    pub duration_correction_factor: f64,
    /// True if several clients may run on the host.
    pub allow_multiple_clients: bool,
    /// True if applications run in a sandbox.
    pub sandbox: bool,
    /// True if no new jobs are wanted.
    pub dont_send_work: bool,
    /// Work wanted, in instance-seconds; today the same as [`SchedulerRequest::cpu_req_secs`].
    pub work_req_seconds: f64,
    /// CPU work wanted, in instance-seconds; 0 for none.
    pub cpu_req_secs: f64,
    /// Idle CPUs to fill.
    pub cpu_req_instances: f64,
    /// Time until a CPU is free of jobs whose deadlines are in danger.
    pub estimated_delay: Duration,
    /// True if the client knows plan classes.
    pub client_cap_plan_class: bool,
    /// The client's primary platform.
    pub platform_name: String,
    /// Other platforms that it runs, each once. Of a request no more are kept than any client names.
    pub alt_platforms: Vec<String>,
    /// The project's code-signing key that it holds, in text form.
    pub code_sign_key: Option<String>,
    /// The preferences in effect (BOINC: `working_global_preferences`).
    pub global_preferences: Option<GlobalPreferences>,
    /// The oldest known identity of this user over all projects. Servers overwrite theirs with it: echo,
    /// never invent.
    pub cross_project_id: String,
    /// Availability.
    pub time_stats: TimeStats,
    /// Network speeds.
    pub net_stats: NetStats,
    /// The machine.
    pub host_info: HostInfo,
    /// Disk space.
    pub disk_usage: DiskUsage,
    /// Its coprocessors, and the work wanted for them.
    pub coprocs: Vec<HostCoprocessors>,
    /// Finished jobs that it reports.
    pub results: Vec<ReportedResult>,
    /// Names of others that it reports: no job can have them, so that no server sent any. Those that cannot
    /// be written are left out.
    pub unknown_results: Vec<String>,
    /// Messages from its jobs.
    pub trickles: Vec<TrickleUp>,
    /// Files that it keeps without a job.
    pub sticky_files: Vec<StickyFile>,
    /// Application versions that it has.
    pub app_versions: Vec<AppVersionRef>,
    /// All jobs that it holds and does not report. `None` says nothing about them; an empty list says that
    /// there are none.
    pub other_results: Option<Vec<OtherResult>>,
    /// All jobs in progress, of all projects, for projects that asked for the full workload.
    pub in_progress_results: Option<Vec<InProgressResult>>,
    /// Text that the host's owner wants projects to see.
    pub client_opaque: Option<String>,
    /// The kind of client.
    pub client_brand: Option<String>,
}

impl Default for SchedulerRequest {
    fn default() -> Self {
        Self {
            authenticator: AccountKey::new(String::new()),
            hostid: 0,
            rpc_seqno: 0,
            client_version: ClientVersion::default(),
            resource_share_fraction: 1.0,
            rrs_fraction: 1.0,
            prrs_fraction: 1.0,
            duration_correction_factor: 1.0,
            allow_multiple_clients: false,
            sandbox: false,
            dont_send_work: false,
            work_req_seconds: 0.0,
            cpu_req_secs: 0.0,
            cpu_req_instances: 0.0,
            estimated_delay: Duration::ZERO,
            client_cap_plan_class: true,
            platform_name: String::new(),
            alt_platforms: Vec::new(),
            code_sign_key: None,
            global_preferences: None,
            cross_project_id: String::new(),
            time_stats: TimeStats::default(),
            net_stats: NetStats::default(),
            host_info: HostInfo::default(),
            disk_usage: DiskUsage::default(),
            coprocs: Vec::new(),
            results: Vec::new(),
            unknown_results: Vec::new(),
            trickles: Vec::new(),
            sticky_files: Vec::new(),
            app_versions: Vec::new(),
            other_results: None,
            in_progress_results: None,
            client_opaque: None,
            client_brand: None,
        }
    }
}

impl SchedulerRequest {
    /// All platforms that the client runs, the primary one first.
    pub fn platforms(&self) -> impl Iterator<Item = &str> {
        let others = self.alt_platforms.iter().filter(|name| **name != self.platform_name);
        std::iter::once(self.platform_name.as_str()).chain(others.map(String::as_str))
    }

    /// What is asked for of each type of processor: seconds of work, and instances that have none. What a
    /// client asks for that knows no types is `work_req_seconds` alone.
    pub fn asked(&self) -> (PerType<f64>, PerType<f64>) {
        let mut seconds = PerType::cpu(self.cpu_req_secs);
        let mut instances = PerType::cpu(self.cpu_req_instances);
        for coprocessors in &self.coprocs {
            if let Some(kind) = coprocessors.resource_type() {
                seconds[kind] = coprocessors.req_secs;
                instances[kind] = coprocessors.req_instances;
            }
        }
        (seconds, instances)
    }

    /// Reads a request. A job or a file in it whose name cannot be one is passed over, as one that no server
    /// knows: what stands beside it still counts.
    ///
    /// # Errors
    /// [`FormatError`] when there is no complete request in `body`.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("scheduler request", body);
        let root = reader.root("scheduler_request")?;
        let mut request = Self::default();
        while let Some(tag) = reader.next_child(&root)? {
            let known = request.client_version.take(&mut reader, &tag)?
                || request.take_value(&mut reader, &tag)?
                || request.take_part(&mut reader, &tag)?;
            if !known {
                reader.skip(&tag)?;
            }
        }
        Ok(request)
    }

    fn take_value<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "authenticator" => {
                if let Some(key) = reader.text(tag)? {
                    self.authenticator = AccountKey::new(key);
                }
            }
            "hostid" => reader.set(tag, &mut self.hostid)?,
            "rpc_seqno" => reader.set(tag, &mut self.rpc_seqno)?,
            "resource_share_fraction" => reader.set(tag, &mut self.resource_share_fraction)?,
            "rrs_fraction" => reader.set(tag, &mut self.rrs_fraction)?,
            "prrs_fraction" => reader.set(tag, &mut self.prrs_fraction)?,
            "duration_correction_factor" => reader.set(tag, &mut self.duration_correction_factor)?,
            "allow_multiple_clients" => reader.set(tag, &mut self.allow_multiple_clients)?,
            "sandbox" => reader.set(tag, &mut self.sandbox)?,
            "dont_send_work" => reader.set(tag, &mut self.dont_send_work)?,
            "work_req_seconds" => reader.set(tag, &mut self.work_req_seconds)?,
            "cpu_req_secs" => reader.set(tag, &mut self.cpu_req_secs)?,
            "cpu_req_instances" => reader.set(tag, &mut self.cpu_req_instances)?,
            "estimated_delay" => reader.set(tag, &mut self.estimated_delay)?,
            "client_cap_plan_class" => reader.set(tag, &mut self.client_cap_plan_class)?,
            "platform_name" => reader.set(tag, &mut self.platform_name)?,
            "cross_project_id" => reader.set(tag, &mut self.cross_project_id)?,
            "client_opaque" => reader.set(tag, &mut self.client_opaque)?,
            "client_brand" => reader.set(tag, &mut self.client_brand)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_part<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "alt_platform" => {
                let name = super::name_in(reader, tag)?;
                self.add_platform(name);
            }
            "code_sign_key" => self.code_sign_key = block(reader, tag)?,
            "working_global_preferences" => self.take_preferences(reader, tag)?,
            "time_stats" => self.time_stats.fill(reader, tag)?,
            "net_stats" => self.net_stats.fill(reader, tag)?,
            "host_info" => self.host_info.fill(reader, tag)?,
            "disk_usage" => self.disk_usage = DiskUsage::read(reader, tag)?,
            "coprocs" => self.coprocs = HostCoprocessors::read_all(reader, tag)?,
            "result" => {
                let result = ReportedResult::read(reader, tag)?;
                self.add_result(result);
            }
            "msg_from_host" => self.trickles.push(TrickleUp::read(reader, tag)?),
            "file_info" => {
                let file = StickyFile::read(reader, tag)?;
                self.sticky_files.extend(is_file_name(&file.name).then_some(file));
            }
            "app_versions" => self.app_versions = list(reader, tag, "app_version", AppVersionRef::read)?,
            "other_results" => {
                let mut held = list(reader, tag, "other_result", OtherResult::read)?;
                held.retain(|job| is_file_name(&job.name));
                self.other_results = Some(held);
            }
            "in_progress_results" => {
                self.in_progress_results = Some(list(reader, tag, "ip_result", InProgressResult::read)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add_result(&mut self, result: ReportedResult) {
        let can_be_written = |name: &String| {
            !name.is_empty()
                && name.len() <= UNKNOWN_NAME_MAX
                && name.trim() == name
                && !name.contains(char::is_control)
        };
        match is_file_name(&result.name) {
            true => self.results.push(result),
            false => self.unknown_results.extend(Some(result.name).filter(can_be_written)),
        }
    }

    fn add_platform(&mut self, name: Option<String>) {
        let is_new = |name: &String| name.len() <= PLATFORM_NAME_MAX && !self.alt_platforms.contains(name);
        let new = name.filter(|name| self.alt_platforms.len() < PLATFORMS_MAX && is_new(name));
        self.alt_platforms.extend(new);
    }

    fn take_preferences<'a>(&mut self, reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<(), FormatError> {
        while let Some(tag) = reader.next_child(parent)? {
            if tag.name == "global_preferences" {
                self.global_preferences.get_or_insert_default().fill(reader, &tag)?;
            } else {
                reader.skip(&tag)?;
            }
        }
        Ok(())
    }

    /// Writes the request, in the order that BOINC's clients use.
    pub fn write(&self) -> String {
        let mut writer = Writer::with_capacity(8_192 + 1_024 * self.results.len());
        writer.nested("scheduler_request", |w| {
            self.write_values(w);
            self.write_state(w);
            self.write_lists(w);
        });
        writer.finish()
    }

    fn write_values(&self, w: &mut Writer) {
        w.text("authenticator", self.authenticator.reveal());
        w.value("hostid", &self.hostid);
        w.value("rpc_seqno", &self.rpc_seqno);
        self.client_version.put(w);
        w.value("resource_share_fraction", &self.resource_share_fraction);
        w.value("rrs_fraction", &self.rrs_fraction);
        w.value("prrs_fraction", &self.prrs_fraction);
        w.value("duration_correction_factor", &self.duration_correction_factor);
        w.value("allow_multiple_clients", &self.allow_multiple_clients);
        w.value("sandbox", &self.sandbox);
        w.value("dont_send_work", &self.dont_send_work);
        w.value("work_req_seconds", &self.work_req_seconds);
        w.value("cpu_req_secs", &self.cpu_req_secs);
        w.value("cpu_req_instances", &self.cpu_req_instances);
        w.value("estimated_delay", &self.estimated_delay);
        w.value("client_cap_plan_class", &self.client_cap_plan_class);
        w.text("platform_name", &self.platform_name);
        for platform in &self.alt_platforms {
            w.nested("alt_platform", |w| w.text("name", platform));
        }
        w.raw_if_any("code_sign_key", self.code_sign_key.as_deref());
    }

    fn write_state(&self, w: &mut Writer) {
        if let Some(preferences) = &self.global_preferences {
            w.nested("working_global_preferences", |w| {
                w.nested("global_preferences", |w| preferences.put(w));
            });
        }
        w.text("cross_project_id", &self.cross_project_id);
        w.nested("time_stats", |w| self.time_stats.put(w));
        w.nested("net_stats", |w| self.net_stats.put(w));
        w.nested("host_info", |w| self.host_info.put(w));
        self.disk_usage.write(w);
        HostCoprocessors::write_all(&self.coprocs, w);
    }

    fn write_lists(&self, w: &mut Writer) {
        self.results.iter().for_each(|result| result.write(w));
        self.unknown_results.iter().for_each(|name| w.nested("result", |w| w.text("name", name)));
        self.trickles.iter().for_each(|trickle| trickle.write(w));
        self.sticky_files.iter().for_each(|file| file.write(w));
        w.nested("app_versions", |w| self.app_versions.iter().for_each(|version| version.write(w)));
        if let Some(jobs) = &self.other_results {
            w.nested("other_results", |w| jobs.iter().for_each(|job| job.write(w)));
        }
        if let Some(jobs) = &self.in_progress_results {
            w.nested("in_progress_results", |w| jobs.iter().for_each(|job| job.write(w)));
        }
        w.value("client_opaque", &self.client_opaque);
        w.value("client_brand", &self.client_brand);
    }
}

/// Reads the children `name` of `parent`.
pub(super) fn list<'a, T>(
    reader: &mut Reader<'a>,
    parent: &Tag<'a>,
    name: &str,
    read: impl Fn(&mut Reader<'a>, &Tag<'a>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let mut items = Vec::new();
    while let Some(tag) = reader.next_child(parent)? {
        if tag.name == name {
            items.push(read(reader, &tag)?);
        } else {
            reader.skip(&tag)?;
        }
    }
    Ok(items)
}
