//! The scheduler reply: what a project tells a client, and the jobs that it gives it.

use fallow_domain::{Duration, Instant};

use super::request::list;
use super::{
    App, AppVersion, FileInfo, FileRef, Message, ResultJob, RssFeed, TrickleDown, Workunit, block, name_in,
};
use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// Most files, versions, workunits, jobs, names and messages in one reply: ten thousand jobs with five files
/// each, twice. Each takes more memory here than on the wire, down to 40 bytes there.
const ENTRIES_MAX: usize = 150_000;

/// A reply of a project's scheduler (BOINC: `scheduler_reply`). Every element may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerReply {
    /// The server's version, such as 803 for 8.3.
    pub scheduler_version: Option<u32>,
    /// True if estimates of durations are not to be corrected by the client's factor.
    pub dont_use_dcf: bool,
    /// The project's master URL, as it knows itself.
    pub master_url: Option<String>,
    /// No other request before this time has passed.
    pub request_delay: Duration,
    /// Another request when this time has passed, even if there is nothing to say.
    pub next_rpc_delay: Option<Duration>,
    /// For the users.
    pub messages: Vec<Message>,
    /// True if the project is down: a failure, and nothing but the delay counts.
    pub project_is_down: bool,
    /// The project's name.
    pub project_name: Option<String>,
    /// The user's number.
    pub userid: Option<u64>,
    /// The user's name.
    pub user_name: Option<String>,
    /// The user's credit.
    pub user_total_credit: Option<f64>,
    /// The user's recent average credit.
    pub user_expavg_credit: Option<f64>,
    /// When the account was made.
    pub user_create_time: Option<Instant>,
    /// MD5 of the user's email address.
    pub email_hash: Option<String>,
    /// The user's identity over all projects, to be echoed.
    pub cross_project_id: Option<String>,
    /// The identity under which statistics are exported.
    pub external_cpid: Option<String>,
    /// When the identity over all projects was made.
    pub cpid_time: Option<Instant>,
    /// The host's number; only for a host that is new to the project.
    pub hostid: Option<u64>,
    /// The host's credit.
    pub host_total_credit: Option<f64>,
    /// The host's recent average credit.
    pub host_expavg_credit: Option<f64>,
    /// The user's name for the place where the host stands.
    pub host_venue: Option<String>,
    /// When the host was first seen.
    pub host_create_time: Option<Instant>,
    /// The team's number.
    pub teamid: Option<u64>,
    /// The team's name.
    pub team_name: Option<String>,
    /// Where debugging symbols are.
    pub symstore: Option<String>,
    /// Disk space in bytes that the project would like.
    pub desired_disk_usage: Option<f64>,
    /// The user's preferences, byte for byte.
    pub global_preferences: Option<String>,
    /// The user's preferences for this project, byte for byte.
    pub project_preferences: Option<String>,
    /// Links for the user, byte for byte.
    pub gui_urls: Option<String>,
    /// The project's code-signing key, in text form.
    pub code_sign_key: Option<String>,
    /// Its signature by the key before it.
    pub code_sign_key_signature: Option<String>,
    /// Jobs whose reports have arrived.
    pub result_acks: Vec<String>,
    /// Jobs to abort.
    pub result_aborts: Vec<String>,
    /// Jobs to abort if they have not started.
    pub result_aborts_if_not_started: Vec<String>,
    /// Applications.
    pub apps: Vec<App>,
    /// Files, before whatever refers to them.
    pub files: Vec<FileInfo>,
    /// True if of its files those of low priority are deleted first (R4.6; BOINC:
    /// `deletion_policy_priority`).
    pub deletion_policy_priority: bool,
    /// True if of its files those past their date are deleted first (R4.6; BOINC: `deletion_policy_expire`).
    pub deletion_policy_expire: bool,
    /// True if the project sends jobs for which its own files would have to go (R4.10; BOINC:
    /// `delete_from_self`).
    pub delete_from_self: bool,
    /// True if the next request is to tell all files that the host keeps without a job (R4.11; BOINC:
    /// `request_file_list`).
    pub request_file_list: bool,
    /// Files that need not be kept any longer (BOINC: `delete_file_info`).
    pub deleted_files: Vec<String>,
    /// Application versions.
    pub app_versions: Vec<AppVersion>,
    /// Workunits.
    pub workunits: Vec<Workunit>,
    /// Jobs given to the host (BOINC: `result`). One that the client holds already updates its deadline.
    pub results: Vec<ResultJob>,
    /// Resource types that the project has no applications for, such as `CPU`.
    pub no_rsc_apps: Vec<String>,
    /// True if the jobs' messages have arrived.
    pub message_ack: bool,
    /// Messages to running jobs.
    pub trickle_downs: Vec<TrickleDown>,
    /// Where jobs' messages go, if not to the scheduler.
    pub trickle_up_urls: Vec<String>,
    /// Feeds of news. `None` says nothing about them.
    pub rss_feeds: Option<Vec<RssFeed>>,
    /// Files for people, to be kept in the project's directory (BOINC: `project_files`). `None` says nothing
    /// about them.
    pub project_files: Option<Vec<FileRef>>,
    /// True if the project wants to hear of jobs of all projects from now on.
    pub send_full_workload: bool,
    /// True if none of the project's applications needs a CPU to speak of.
    pub non_cpu_intensive: bool,
    /// True if jobs must not start unless the memory that they may need is there.
    pub strict_memory_bound: bool,
    /// True if the project has ended.
    pub ended: bool,
    /// The log of availability is wanted from this time on.
    pub send_time_stats_log: Option<Instant>,
    /// The log of jobs is wanted from this time on.
    pub send_job_log: Option<Instant>,
}

/// How servers begin what they say when jobs would be late on a host.
const LATE_REFUSAL: &str = "Tasks won't finish in time";

/// How a server of ours begins what it says when a host has its part of a small batch.
pub const PART_REFUSAL: &str = "This computer has its part";

impl SchedulerReply {
    /// Whether the server has jobs that it did not send because they are spread over hosts, of which this one
    /// has its part. Only a server of ours says so.
    pub fn gives_a_part(&self) -> bool {
        self.messages.iter().any(|message| message.text.trim_start().starts_with(PART_REFUSAL))
    }

    /// Whether the server has jobs that it did not send because they would be late on this host. It says so
    /// in words only.
    pub fn refuses_late_jobs(&self) -> bool {
        self.messages.iter().any(|message| message.text.trim_start().starts_with(LATE_REFUSAL))
    }

    /// Reads a reply. What stands before the start tag is passed over.
    ///
    /// # Errors
    /// [`FormatError`] when there is no complete reply in `body`, or something in it has a name that could
    /// not be a file's. Never half a reply.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("scheduler reply", body);
        let root = reader.root("scheduler_reply")?;
        let mut reply = Self::default();
        let mut entries = 0;
        while let Some(tag) = reader.next_child(&root)? {
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(reader.error_at(&tag, format!("at most {ENTRIES_MAX} elements in a reply")));
            }
            // What is known to nobody is passed over alone: BOINC's clients obey what stands in an unknown
            // element.
            let _known = reply.take_work(&mut reader, &tag)?
                || reply.take_order(&mut reader, &tag)?
                || reply.take_account(&mut reader, &tag)?
                || reply.take_block(&mut reader, &tag)?;
        }
        reply.request_delay = reply.request_delay.max(Duration::ZERO);
        Ok(reply)
    }

    fn take_work<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "app" => self.apps.push(App::read(reader, tag)?),
            "file_info" => self.files.push(FileInfo::read(reader, tag)?),
            "app_version" => self.app_versions.push(AppVersion::read(reader, tag)?),
            "workunit" => self.workunits.push(Workunit::read(reader, tag)?),
            "result" => self.results.push(ResultJob::read(reader, tag)?),
            "result_ack" => self.result_acks.extend(name_in(reader, tag)?),
            "result_abort" => self.result_aborts.extend(name_in(reader, tag)?),
            "result_abort_if_not_started" => {
                self.result_aborts_if_not_started.extend(name_in(reader, tag)?);
            }
            "delete_file_info" => self.take_deleted_file(reader, tag)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Servers write `<delete_file_info>NAME</delete_file_info>`; older ones put the name into an element of
    /// its own.
    fn take_deleted_file<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<(), FormatError> {
        let mut ahead = reader.clone();
        match ahead.text(tag)? {
            Some(name) => {
                self.deleted_files.push(name.into_owned());
                *reader = ahead;
            }
            None => self.deleted_files.extend(name_in(reader, tag)?),
        }
        Ok(())
    }

    fn take_order<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "scheduler_version" => reader.set(tag, &mut self.scheduler_version)?,
            "dont_use_dcf" => reader.set(tag, &mut self.dont_use_dcf)?,
            "master_url" => reader.set(tag, &mut self.master_url)?,
            "request_delay" => reader.set(tag, &mut self.request_delay)?,
            "next_rpc_delay" => reader.set(tag, &mut self.next_rpc_delay)?,
            "message" => self.messages.push(Message::read(reader, tag)?),
            "project_is_down" => reader.set(tag, &mut self.project_is_down)?,
            "hostid" => reader.set(tag, &mut self.hostid)?,
            "no_rsc_apps" => reader.push(tag, &mut self.no_rsc_apps)?,
            "no_cpu_apps" => self.take_no_apps(reader, tag, "CPU")?,
            "no_cuda_apps" => self.take_no_apps(reader, tag, "NVIDIA")?,
            "no_ati_apps" => self.take_no_apps(reader, tag, "ATI")?,
            "message_ack" => reader.set(tag, &mut self.message_ack)?,
            "deletion_policy_priority" => reader.set(tag, &mut self.deletion_policy_priority)?,
            "deletion_policy_expire" => reader.set(tag, &mut self.deletion_policy_expire)?,
            "delete_from_self" => reader.set(tag, &mut self.delete_from_self)?,
            "request_file_list" => reader.set(tag, &mut self.request_file_list)?,
            "trickle_down" => self.trickle_downs.push(TrickleDown::read(reader, tag)?),
            "send_full_workload" => reader.set(tag, &mut self.send_full_workload)?,
            "non_cpu_intensive" => reader.set(tag, &mut self.non_cpu_intensive)?,
            "strict_memory_bound" => reader.set(tag, &mut self.strict_memory_bound)?,
            "ended" => reader.set(tag, &mut self.ended)?,
            "send_time_stats_log" => reader.set(tag, &mut self.send_time_stats_log)?,
            "send_job_log" => reader.set(tag, &mut self.send_job_log)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_no_apps<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        tag: &Tag<'a>,
        kind: &str,
    ) -> Result<(), FormatError> {
        let mut is_so = false;
        reader.set(tag, &mut is_so)?;
        if is_so {
            self.no_rsc_apps.push(kind.to_owned());
        }
        Ok(())
    }

    fn take_account<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "project_name" => reader.set(tag, &mut self.project_name)?,
            "userid" => reader.set(tag, &mut self.userid)?,
            "user_name" => reader.set(tag, &mut self.user_name)?,
            "user_total_credit" => reader.set(tag, &mut self.user_total_credit)?,
            "user_expavg_credit" => reader.set(tag, &mut self.user_expavg_credit)?,
            "user_create_time" => reader.set(tag, &mut self.user_create_time)?,
            "email_hash" => reader.set(tag, &mut self.email_hash)?,
            "cross_project_id" => reader.set(tag, &mut self.cross_project_id)?,
            "external_cpid" => reader.set(tag, &mut self.external_cpid)?,
            "cpid_time" => reader.set(tag, &mut self.cpid_time)?,
            "host_total_credit" => reader.set(tag, &mut self.host_total_credit)?,
            "host_expavg_credit" => reader.set(tag, &mut self.host_expavg_credit)?,
            "host_venue" => reader.set(tag, &mut self.host_venue)?,
            "host_create_time" => reader.set(tag, &mut self.host_create_time)?,
            "teamid" => reader.set(tag, &mut self.teamid)?,
            "team_name" => reader.set(tag, &mut self.team_name)?,
            "symstore" => reader.set(tag, &mut self.symstore)?,
            "desired_disk_usage" => reader.set(tag, &mut self.desired_disk_usage)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_block<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
        match tag.name {
            "global_preferences" => self.global_preferences = Some(trimmed(reader, tag)?),
            "project_preferences" => self.project_preferences = Some(trimmed(reader, tag)?),
            "gui_urls" => self.gui_urls = Some(trimmed(reader, tag)?),
            "code_sign_key" => self.code_sign_key = block(reader, tag)?,
            "code_sign_key_signature" => self.code_sign_key_signature = block(reader, tag)?,
            "rss_feeds" => self.rss_feeds = Some(RssFeed::read_list(reader, tag)?),
            "project_files" => self.project_files = Some(list(reader, tag, "file_ref", FileRef::read)?),
            "trickle_up_urls" => {
                while let Some(url) = reader.next_child(tag)? {
                    match url.name {
                        "url" => reader.push(&url, &mut self.trickle_up_urls)?,
                        _ => reader.skip(&url)?,
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes the reply: what is said about the project and the account, then the jobs, each after what it
    /// refers to.
    pub fn write(&self) -> String {
        let mut writer = Writer::with_capacity(
            2_048 + 512 * (self.files.len() + self.workunits.len()) + 384 * self.results.len(),
        );
        // No indentation for the parts: a reply of a thousand jobs is long enough.
        writer.line("<scheduler_reply>");
        self.write_order(&mut writer);
        self.write_account(&mut writer);
        self.write_blocks(&mut writer);
        self.write_work(&mut writer);
        writer.line("</scheduler_reply>");
        writer.finish()
    }

    fn write_order(&self, w: &mut Writer) {
        w.value("scheduler_version", &self.scheduler_version);
        w.flag("dont_use_dcf", self.dont_use_dcf);
        w.value("master_url", &self.master_url);
        w.value("request_delay", &self.request_delay);
        w.value("next_rpc_delay", &self.next_rpc_delay);
        self.messages.iter().for_each(|message| message.write(w));
        w.flag("project_is_down", self.project_is_down);
        self.no_rsc_apps.iter().for_each(|kind| w.text("no_rsc_apps", kind));
        w.flag("message_ack", self.message_ack);
        w.flag("send_full_workload", self.send_full_workload);
        w.flag("non_cpu_intensive", self.non_cpu_intensive);
        w.flag("strict_memory_bound", self.strict_memory_bound);
        w.flag("ended", self.ended);
        w.flag("deletion_policy_priority", self.deletion_policy_priority);
        w.flag("deletion_policy_expire", self.deletion_policy_expire);
        w.flag("delete_from_self", self.delete_from_self);
        w.flag("request_file_list", self.request_file_list);
        w.value("send_time_stats_log", &self.send_time_stats_log);
        w.value("send_job_log", &self.send_job_log);
    }

    fn write_account(&self, w: &mut Writer) {
        w.value("project_name", &self.project_name);
        w.value("userid", &self.userid);
        w.value("user_name", &self.user_name);
        w.value("user_total_credit", &self.user_total_credit);
        w.value("user_expavg_credit", &self.user_expavg_credit);
        w.value("user_create_time", &self.user_create_time);
        w.value("email_hash", &self.email_hash);
        w.value("cross_project_id", &self.cross_project_id);
        w.value("external_cpid", &self.external_cpid);
        w.value("cpid_time", &self.cpid_time);
        w.value("hostid", &self.hostid);
        w.value("host_total_credit", &self.host_total_credit);
        w.value("host_expavg_credit", &self.host_expavg_credit);
        w.value("host_venue", &self.host_venue);
        w.value("host_create_time", &self.host_create_time);
        w.value("teamid", &self.teamid);
        w.value("team_name", &self.team_name);
        w.value("symstore", &self.symstore);
        w.value("desired_disk_usage", &self.desired_disk_usage);
    }

    fn write_blocks(&self, w: &mut Writer) {
        w.raw_if_any("global_preferences", self.global_preferences.as_deref());
        w.raw_if_any("project_preferences", self.project_preferences.as_deref());
        w.raw_if_any("gui_urls", self.gui_urls.as_deref());
        w.raw_if_any("code_sign_key", self.code_sign_key.as_deref());
        w.raw_if_any("code_sign_key_signature", self.code_sign_key_signature.as_deref());
        self.trickle_downs.iter().for_each(|trickle| trickle.write(w));
        if !self.trickle_up_urls.is_empty() {
            w.nested("trickle_up_urls", |w| self.trickle_up_urls.iter().for_each(|url| w.text("url", url)));
        }
        if let Some(feeds) = &self.rss_feeds {
            w.nested("rss_feeds", |w| feeds.iter().for_each(|feed| feed.write(w)));
        }
        if let Some(files) = &self.project_files {
            w.nested("project_files", |w| files.iter().for_each(|file| file.write(w)));
        }
    }

    fn write_work(&self, w: &mut Writer) {
        for (element, names) in [
            ("result_ack", &self.result_acks),
            ("result_abort", &self.result_aborts),
            ("result_abort_if_not_started", &self.result_aborts_if_not_started),
        ] {
            names.iter().for_each(|name| w.nested(element, |w| w.text("name", name)));
        }
        self.deleted_files.iter().for_each(|name| w.text("delete_file_info", name));
        self.apps.iter().for_each(|app| app.write(w));
        self.files.iter().for_each(|file| file.write(w));
        self.app_versions.iter().for_each(|version| version.write(w));
        self.workunits.iter().for_each(|workunit| workunit.write(w));
        self.results.iter().for_each(|job| job.write(w));
    }
}

/// A raw block without the white space around it.
fn trimmed(reader: &mut Reader<'_>, tag: &Tag<'_>) -> Result<String, FormatError> {
    Ok(reader.raw_text(tag)?.trim().to_owned())
}
