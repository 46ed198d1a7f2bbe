//! What a scheduler's reply means, taken whole: the key first, for it says what else of the reply may be
//! taken; then in BOINC's order: who we are there, messages, applications, files, versions, workunits, jobs,
//! acknowledgements, aborts.
//!
//! What its user set for all projects is kept, and heard where no coordinator's document holds.
//!
//! Passed over: feeds, links for graphical tools, and a change of the master URL other than a notice.
//!
//! The delay until the next contact is taken from it too (R1.3).

use fallow_boinc::runtime::exit;
use fallow_boinc::scheduler::{SchedulerReply, type_of};
use fallow_boinc::signature::PublicKey;
use fallow_domain::{Duration, Instant, MasterUrl, PerType, ProjectId, printable};
use fallow_policy::backoff::Wait;

use crate::machine::Client;
use crate::record::Record;
use crate::state::{Deletes, Project};
use crate::{Cause, FileKey, NoticeLevel};

/// Longest name of a user, a team, a project (BOINC's buffers). Longer ones count as not sent, as there.
pub(crate) const NAME_MAX: usize = 255;
/// Longest preferences of a user for a project, for they are stored whenever something about the project
/// changes.
const PREFERENCES_MAX: usize = 64 << 10;
/// However soon a project wants to hear of us (BOINC: `SCHEDULER_RPC_POLL_PERIOD`, how often the stock
/// client looks).
const NEXT_RPC_DELAY_MIN: Duration = Duration::from_secs(5);

/// When a project is asked again that shows another key than the fleet's documents name.
const OTHER_KEY_DELAY: Duration = Duration::from_hours(1);

impl Client {
    /// Takes in the code-signing key of a reply, which is acted on afterwards. Of a project that shows
    /// another key than the document names, nothing could be run: its work is left to it, and it is asked
    /// again later.
    pub(crate) fn take_key(&mut self, id: ProjectId, reply: &mut SchedulerReply) {
        if !self.apply_key(id, reply) {
            (reply.results, reply.workunits) = (Vec::new(), Vec::new());
            (reply.apps, reply.app_versions) = (Vec::new(), Vec::new());
            (reply.files, reply.deleted_files) = (Vec::new(), Vec::new());
            reply.request_delay = reply.request_delay.max(OTHER_KEY_DELAY);
        }
    }

    /// Acts on a reply. Returns how many new jobs it brought, by the type that they count for.
    pub(crate) fn apply_reply(&mut self, id: ProjectId, mut reply: SchedulerReply) -> PerType<u32> {
        self.apply_messages(id, &reply);
        self.apply_identity(id, &reply);
        let arrived = self.take_work(id, &mut reply);
        self.apply_acks(id, &reply.result_acks);
        for name in reply.result_aborts {
            self.abort_by_project(id, name, false);
        }
        for name in reply.result_aborts_if_not_started {
            self.abort_by_project(id, name, true);
        }
        self.apply_trickles(id, reply.trickle_downs);
        self.drop_old_versions(id);
        // It may have asked for a delay of hours, and would be asked by all hosts of a house at once after a
        // power cut.
        self.mark_durable(Record::Project(id));
        arrived
    }

    fn apply_identity(&mut self, id: ProjectId, reply: &SchedulerReply) {
        let now = self.now();
        let before = self.site_of(id);
        let told = self.edit_project(id, |project| {
            if take_identity(project, reply, now) {
                project.read_web_preferences();
            }
            // None at all is no wish to hear of us at once, and then again at once (BOINC).
            let delay = reply.next_rpc_delay.filter(|delay| delay.is_positive());
            project.contact_by = delay.map(|delay| Wait::new(now, delay.max(NEXT_RPC_DELAY_MIN)));
            (project.settle_share().then_some(project.share), project.url.clone())
        });
        if self.site_of(id) != before {
            self.site_preferences_changed();
        }
        let Some((share, ours)) = told else { return };
        if let Some(share) = share {
            self.tell_share(id, share);
        }
        let is_other = |url: &&String| MasterUrl::parse(url).is_ok_and(|url| url != ours);
        if let Some(theirs) = reply.master_url.as_ref().filter(is_other) {
            let text = format!(
                "the project calls itself {theirs}, but is attached as {ours}: attach to the new URL"
            );
            self.notice(NoticeLevel::Warn, Some(id), text);
        }
    }

    /// What its user set for all projects there, and at which venue this host is; compared only.
    fn site_of(&self, id: ProjectId) -> Option<(String, String)> {
        let identity = &self.state.projects.get(&id)?.identity;
        let is_silent = identity.global_preferences.is_empty();
        (!is_silent).then(|| (identity.global_preferences.clone(), identity.venue.clone()))
    }

    /// The key that the document in force names, and no other. Where it names none, the first code-signing
    /// key is taken on trust; a later one only with a signature by the one held. A key held that proves
    /// nothing, as an older version took it, is as none. Says whether work may be taken: not from who shows
    /// another key than the document names.
    fn apply_key(&mut self, id: ProjectId, reply: &SchedulerReply) -> bool {
        let Some(project) = self.state.projects.get(&id) else { return true };
        // Who brings work and shows no key, where one is required and none was shown before, is as one who
        // shows another.
        let can_run =
            project.required_key.is_none() || project.code_sign_key.is_some() || reply.results.is_empty();
        let unshown = project.required_key.filter(|_| !can_run);
        let Some(offered) = &reply.code_sign_key else {
            if let Some(required) = unshown {
                let text = format!(
                    "the project shows no code-signing key, and the fleet's documents name {required}: no job is taken"
                );
                self.notice(NoticeLevel::Error, Some(id), text);
            }
            return can_run;
        };
        let signature = reply.code_sign_key_signature.as_deref().unwrap_or_default();
        let key = match PublicKey::parse(offered) {
            Ok(key) => key,
            Err(error) => {
                let no_job = if can_run { "" } else { ", nor is a job" };
                let text = format!(
                    "the project sent a code-signing key that proves nothing, and it is not taken{no_job}: {error}"
                );
                self.notice(NoticeLevel::Error, Some(id), text);
                return can_run;
            }
        };
        if let Some(required) = project.required_key.filter(|required| *required != key.fingerprint()) {
            let text = format!(
                "the project's code-signing key is {}, and the fleet's documents name {required}: nothing of it is run, and no job is taken",
                key.fingerprint()
            );
            self.notice(NoticeLevel::Error, Some(id), text);
            return false;
        }
        let accepted = match &project.code_sign_key {
            // What the documents name needs nobody else's word.
            _ if project.required_key.is_some() => true,
            None => true,
            Some(held) if PublicKey::parse(held).is_err() => true,
            Some(held) => held.trim() == offered.trim() || replaces(held, offered, signature),
        };
        if accepted {
            self.edit_project(id, |project| project.code_sign_key = Some(offered.clone()));
        } else {
            let text = "the project sent another code-signing key without a signature by the one held; the old key stays";
            self.notice(NoticeLevel::Error, Some(id), text);
        }
        true
    }

    fn apply_acks(&mut self, id: ProjectId, names: &[String]) {
        let reported = self.carried.take_jobs(id);
        for name in names {
            let key = FileKey { project: id, name: name.clone() };
            let Some(job) = self.state.jobs.named(&key) else { continue };
            // An acknowledgement of something that was not reported is a server's mistake that would cost a
            // job.
            if reported.contains(&job) {
                self.forget_job(job, true);
            }
        }
    }

    fn abort_by_project(&mut self, id: ProjectId, name: String, unless_started: bool) {
        let Some(job) = self.state.jobs.named(&FileKey { project: id, name }) else { return };
        let begun = self.state.jobs.get(&job).is_some_and(|job| job.run.begun);
        if !(unless_started && begun) {
            self.abort_job(job, exit::ABORTED_BY_PROJECT, &Cause::AbortedByProject);
        }
    }
}

/// Whether the key held says that the new one takes its place.
fn replaces(held: &str, new: &str, signature: &str) -> bool {
    PublicKey::parse(held).is_ok_and(|key| key.verify_key(new, signature))
}

/// What a reply says of the project, of us there, and of the work that it has. Says whether what its user
/// set there is something else than before: each reply says it again.
fn take_identity(project: &mut Project, reply: &SchedulerReply, now: Instant) -> bool {
    let short = |text: &&String| text.len() <= NAME_MAX;
    fn set<T: Clone + PartialEq>(place: &mut T, value: Option<&T>) -> bool {
        let Some(value) = value.filter(|value| **value != *place) else { return false };
        place.clone_from(value);
        true
    }
    // The coordinator's name for a project stays; a project attached by hand takes its own.
    if !project.from_document {
        let name = reply.project_name.as_ref().map(|name| printable::line(name, NAME_MAX));
        set(&mut project.name, name.as_ref().filter(|name| !name.is_empty()));
    }
    let who = &mut project.identity;
    set(&mut who.user_id, reply.userid.as_ref());
    set(&mut who.team_id, reply.teamid.as_ref());
    set(&mut who.user_name, reply.user_name.as_ref().filter(short));
    set(&mut who.team_name, reply.team_name.as_ref().filter(short));
    set(&mut who.cross_project_id, reply.cross_project_id.as_ref().filter(short));
    set(&mut who.user_total_credit, reply.user_total_credit.as_ref());
    set(&mut who.user_expavg_credit, reply.user_expavg_credit.as_ref());
    set(&mut who.host_total_credit, reply.host_total_credit.as_ref());
    set(&mut who.host_expavg_credit, reply.host_expavg_credit.as_ref());
    let is_moved = set(&mut who.venue, reply.host_venue.as_ref().filter(short));
    let preferences = reply.project_preferences.as_ref().filter(|block| block.len() <= PREFERENCES_MAX);
    let is_set = set(&mut who.project_preferences, preferences);
    // An older one, as a project may have it that was not told of a newer one, says nothing new.
    let global = reply.global_preferences.as_ref().filter(|block| block.len() <= PREFERENCES_MAX);
    if set(&mut who.global_preferences, global) {
        who.global_preferences_at = Some(now);
    }
    if let Some(hostid) = reply.hostid.filter(|hostid| *hostid != 0) {
        project.hostid = hostid;
        project.rpc_seqno = 0;
    }
    project.dont_use_dcf = reply.dont_use_dcf;
    project.send_full_workload |= reply.send_full_workload;
    project.deletes =
        Deletes { by_priority: reply.deletion_policy_priority, expired_first: reply.deletion_policy_expire };
    project.lacks = PerType::default();
    for kind in reply.no_rsc_apps.iter().filter_map(|name| type_of(name)) {
        project.lacks[kind] = true;
    }
    is_moved || is_set
}
