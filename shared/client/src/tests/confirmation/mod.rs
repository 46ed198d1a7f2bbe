//! The trial of a document by a whole client that is turned, killed and put to sleep (R6.5).

mod histories;

use std::collections::BTreeMap;

use fallow_boinc::scheduler::SchedulerReply;
use fallow_boinc::signature::{PrivateKey, PublicKey};
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Fraction, Instant, LocalPreferences,
    Preferences, ProjectAssignment, RequiredLayer, ResourceTypes, Share, SlotId, Usage,
};
use fallow_policy::confinement::HostLayer;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::{NOW, attach_unseen, job, url};
use crate::machine::Client;
use crate::state::Process;
use crate::{ClientConfig, Effect, Event, Startup, Step, TransferError, TransferErrorKind};

const LIMIT: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_secs(10);

/// A host with its store.
struct Host {
    now: Instant,
    client: Client,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    wake_at: Instant,
    notices: Vec<String>,
    /// How often the link was begun anew.
    links: u32,
}

fn config() -> ClientConfig {
    let version = fallow_boinc::scheduler::ClientVersion { major: 8, minor: 3, release: 0 };
    ClientConfig { confirm_within: Some(LIMIT), ..ClientConfig::new(1, version) }
}

fn key(name: &str) -> AccountKey {
    AccountKey::new(if name.ends_with('+') { "1".repeat(32) } else { "0".repeat(32) })
}

/// Names that end with `+` are those of projects with another account.
fn document(version: u64, projects: &[&str], preferences: Preferences) -> FleetDocument {
    let assigned = |name: &&str| ProjectAssignment {
        name: (*name).to_owned(),
        url: url(name.trim_end_matches('+')),
        account_key: key(name),
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    FleetDocument {
        version: DocumentVersion(version),
        content: String::new(),
        projects: projects.iter().map(assigned).collect(),
        preferences,
    }
}

/// Of each version another one, that harms nothing.
fn plain(version: u64) -> FleetDocument {
    let buffer_min = Duration::from_secs(60 + version as i64);
    document(version, &["a"], Preferences { buffer_min, ..Preferences::default() })
}

impl Host {
    fn begin() -> Self {
        let client = Client::restore(config(), []).unwrap();
        let (store, notices) = (BTreeMap::new(), Vec::new());
        let mut host = Self { now: NOW, client, store, wake_at: NOW, notices, links: 0 };
        host.start();
        host
    }

    /// A host that follows version 1.
    fn of_version_1() -> Self {
        let mut host = Self::begin();
        host.offer(plain(1));
        host
    }

    fn start(&mut self) {
        let startup =
            Startup { host: super::host(1), slots: Vec::new(), files: Vec::new(), doomed: Vec::new() };
        self.event(Event::Started(Box::new(startup)));
        self.event(Event::FleetJoined { authority: "one".into() });
    }

    fn event(&mut self, event: Event) {
        let Step { changes, actions, wake_at, .. } = self.client.handle(self.now, event);
        for change in changes {
            match change.value {
                Some(value) => self.store.insert(change.key, value),
                None => self.store.remove(&change.key),
            };
        }
        self.wake_at = wake_at.unwrap();
        for action in actions {
            match action.effect {
                Effect::Notice { text, .. } => self.notices.push(text),
                Effect::LinkAnew => self.links += 1,
                _ => {}
            }
        }
    }

    fn offer(&mut self, document: FleetDocument) {
        self.event(Event::DocumentOffered(document.into()));
    }

    /// What a report names now.
    fn report(&self) -> Event {
        let view = self.client.host_view();
        Event::DocumentAcknowledged { version: view.document_version, taken_at: view.document_applied_at }
    }

    /// A report is made and acknowledged.
    fn acknowledge(&mut self) {
        self.event(self.report());
    }

    /// The agent is up for so long.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.wake_at.min(end);
            self.event(Event::WakeUp);
        }
    }

    /// The host is asleep for so long.
    fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
        self.event(Event::WakeUp);
    }

    /// The agent is killed, and started again after a while.
    fn restart(&mut self, off: Duration) {
        self.now = self.now + off;
        self.client = Client::restore(config(), self.store.clone()).unwrap();
        self.start();
    }

    fn version(&self) -> u64 {
        self.client.host_view().document_version.0
    }

    fn on_trial(&self) -> bool {
        self.client.host_view().is_on_trial
    }

    fn went_back_from(&self) -> Option<(u64, String)> {
        self.client.host_view().rolled_back.map(|one| (one.version.0, one.why))
    }

    fn refused(&self) -> Option<(u64, String)> {
        self.client.host_view().document_refused.map(|(version, why)| (version.0, why))
    }
}

#[test]
fn r6_5_the_first_document_stays_for_there_is_nothing_to_go_back_to() {
    let mut host = Host::of_version_1();
    assert!(!host.on_trial());
    host.pass(LIMIT * 3);
    assert_eq!((host.version(), host.went_back_from()), (1, None));
}

#[test]
fn r6_5_a_version_is_confirmed_by_an_acknowledgement_that_comes_when_the_agent_has_been_up_with_it_for_a_while()
 {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    assert!(host.on_trial());
    host.acknowledge();
    assert!(host.on_trial(), "in the same breath");
    host.pass(Duration::from_secs(31));
    host.acknowledge();
    assert!(!host.on_trial());
    assert!(host.notices.last().unwrap().contains("version 2 of the coordinator's document is confirmed"));
    host.pass(LIMIT * 2);
    assert_eq!((host.version(), host.went_back_from()), (2, None));
}

/// As where a coordinator can store no reports and says nothing of them, and still suspends the fleet.
#[test]
fn r6_5_a_host_that_a_version_suspends_does_not_compute_again_because_nothing_was_acknowledged() {
    let suspended =
        |version| document(version, &["a"], Preferences { suspended: true, ..plain(version).preferences });
    let mut host = Host::of_version_1();
    host.offer(suspended(2));
    host.pass(LIMIT * 3);
    assert_eq!((host.version(), host.links, host.went_back_from()), (2, 0, None));
    assert!(host.client.preferences().suspended && host.on_trial());
    host.restart(Duration::from_secs(5));
    host.pass(LIMIT * 2);
    assert!(host.client.preferences().suspended && host.on_trial());
    // As soon as reports are taken again it is confirmed.
    host.acknowledge();
    assert_eq!((host.version(), host.on_trial()), (2, false));
    // Where the version before it suspends as well, going back undoes nothing of that.
    host.offer(suspended(3));
    host.pass(LIMIT * 2);
    assert_eq!((host.version(), host.links), (2, 1));
    assert!(host.client.preferences().suspended);
}

#[test]
fn r6_5_r6_10_a_host_that_lacks_what_a_version_requires_does_not_compute_again_unacknowledged() {
    let required = |version| {
        let required_layers = [RequiredLayer::all()].into();
        document(version, &["a"], Preferences { required_layers, ..plain(version).preferences })
    };
    let layer = |off: Option<&str>| {
        let off = off.map(str::to_owned);
        Event::LayersSeen(vec![HostLayer { name: "files".to_owned(), off, is_of_all: true }])
    };
    for (off, came_to) in [(Some("no Landlock"), (2, true)), (None, (1, false))] {
        let mut host = Host::of_version_1();
        host.event(layer(off));
        host.offer(required(2));
        host.pass(LIMIT * 3);
        assert_eq!((host.version(), host.client.preferences().suspended), came_to, "{off:?}");
    }
}

#[test]
fn r6_5_a_host_whose_coordinator_acknowledges_nothing_goes_back_to_the_version_that_was_confirmed_last() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    host.pass(LIMIT / 2);
    // Another candidate on top of it is no place to go back to, and has its own time.
    host.offer(plain(3));
    host.pass(LIMIT - LOOK * 2);
    assert_eq!((host.version(), host.links), (3, 0));
    host.pass(LOOK * 3);
    assert_eq!((host.version(), host.links), (1, 1));
    let (version, why) = host.went_back_from().unwrap();
    assert!(version == 3 && why == "the coordinator acknowledged nothing for 10 min of time on", "{why}");
    assert_eq!(host.client.preferences().buffer_min, plain(1).preferences.buffer_min);
    let told =
        "went back from version 3 of the coordinator's document to version 1: the coordinator acknowledged";
    assert!(host.notices.iter().any(|text| text.starts_with(told)), "{:?}", host.notices);
}

#[test]
fn r6_5_time_off_and_asleep_is_not_used_and_a_kill_uses_little_and_no_kill_stops_the_time() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    for _ in 0..10 {
        host.sleep(Duration::from_hours(8));
    }
    host.restart(Duration::from_hours(100));
    // Twenty seconds for each sleep, ten for the kill.
    host.pass(LIMIT - LOOK * 23);
    assert_eq!(host.version(), 2);
    host.pass(LOOK * 3);
    assert_eq!(host.version(), 1);

    let mut host = Host::of_version_1();
    host.offer(plain(2));
    let mut kills = 0;
    while host.version() == 2 {
        host.restart(Duration::from_secs(1));
        host.acknowledge();
        kills += 1;
    }
    assert!((59..=60).contains(&kills), "a version that ends the agent again and again: {kills}");
}

#[test]
fn r6_5_a_clock_that_is_set_uses_next_to_no_time_and_holds_nothing_up() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    host.now = host.now - Duration::from_hours(1_000);
    host.event(Event::WakeUp);
    host.pass(LIMIT / 2);
    host.now = host.now + Duration::from_hours(2_000);
    host.event(Event::WakeUp);
    assert_eq!(host.version(), 2);
    host.pass(LIMIT / 2);
    assert_eq!(host.version(), 1);
}

#[test]
fn r6_5_a_version_that_only_lacked_an_acknowledgement_is_taken_once_more_and_then_refused_for_good() {
    let mut host = Host::of_version_1();
    let goes_back = |host: &mut Host| {
        host.offer(plain(2));
        assert_eq!(host.version(), 2);
        host.pass(LIMIT + LOOK);
        assert_eq!(host.version(), 1);
    };
    goes_back(&mut host);
    // The second time it is acknowledged: it is as if nothing had been.
    host.offer(plain(2));
    host.pass(LOOK * 4);
    host.acknowledge();
    assert_eq!((host.version(), host.on_trial(), host.went_back_from()), (2, false, None));

    let mut host = Host::of_version_1();
    goes_back(&mut host);
    host.restart(Duration::from_secs(1));
    goes_back(&mut host);
    host.restart(Duration::from_secs(1));
    host.offer(plain(2));
    assert_eq!(host.version(), 1);
    let (version, why) = host.refused().unwrap();
    assert!(version == 2 && why.contains("for the second time; a newer version is taken"), "{why}");
    // It is kept apart from a version that it never had.
    assert_eq!(host.went_back_from().unwrap().0, 2);
    host.offer(plain(3));
    assert_eq!((host.version(), host.went_back_from().unwrap().0), (3, 2));
    host.pass(LOOK * 4);
    host.acknowledge();
    assert_eq!((host.on_trial(), host.went_back_from()), (false, None));
}

#[test]
fn r6_5_an_acknowledgement_that_comes_too_late_is_told_and_changes_nothing() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    let report = host.report();
    host.pass(LIMIT + LOOK);
    for _ in 0..2 {
        host.event(report.clone());
    }
    assert_eq!(host.version(), 1);
    assert!(host.went_back_from().unwrap().1.contains("acknowledged when this host had gone back"));
    assert_eq!(host.notices.iter().filter(|text| text.ends_with("too late")).count(), 1);
    // Nor does it speak for the second time that it is taken.
    host.offer(plain(2));
    host.pass(LOOK * 4);
    host.event(report);
    assert!(host.on_trial());
}

#[test]
fn r6_5_a_version_that_says_the_same_as_the_confirmed_one_is_confirmed() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    host.offer(FleetDocument { version: DocumentVersion(3), ..plain(1) });
    assert_eq!((host.version(), host.on_trial()), (3, false));
    host.pass(LIMIT * 2);
    assert_eq!((host.version(), host.went_back_from()), (3, None));
}

#[test]
fn r6_5_a_host_that_went_back_is_told_of_no_more_once_a_newer_version_says_what_it_follows() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    host.pass(LIMIT + LOOK);
    assert_eq!((host.version(), host.went_back_from().is_some()), (1, true));
    // As a rollout is taken back.
    host.offer(FleetDocument { version: DocumentVersion(3), ..plain(1) });
    assert_eq!((host.version(), host.on_trial(), host.went_back_from()), (3, false, None));
}

#[test]
fn r6_5_a_project_of_the_owners_is_his_though_one_candidate_takes_it_over_and_the_next_drops_it() {
    let mut host = Host::of_version_1();
    host.event(attach_unseen(url("own"), key(""), Some(Share::new(7.0).unwrap())));
    host.offer(document(2, &["a", "own+"], Preferences::default()));
    host.offer(plain(3));
    let share = |host: &Host| {
        let id = host.client.project_of(&url("own"))?;
        let project = &host.client.state.projects[&id];
        Some((project.from_document, project.detach_when_done))
    };
    assert_eq!(share(&host), Some((false, false)));
    host.pass(LIMIT * 2);
    assert_eq!(share(&host), Some((false, false)));
}

#[test]
fn r6_5_another_fleet_confirms_nothing_of_the_first_and_remembers_none_of_its_versions() {
    let mut host = Host::of_version_1();
    host.offer(plain(2));
    host.pass(LIMIT + LOOK);
    host.offer(plain(3));
    host.event(Event::FleetJoined { authority: "other".into() });
    assert_eq!((host.version(), host.on_trial(), host.went_back_from()), (0, false, None));
    assert_eq!(host.client.preferences().buffer_min, plain(1).preferences.buffer_min);
    host.offer(plain(2));
    host.pass(LIMIT * 2);
    assert_eq!((host.version(), host.went_back_from()), (2, None), "there is nothing to go back to");
}

/// A host of a project that has taken it in, with a task that computes.
fn computing() -> Host {
    let mut host = Host::of_version_1();
    let a = super::id_of(&host.client, "a");
    host.client.edit_project(a, |project| project.hostid = 7);
    host.client.insert_job(job(1, a, Usage::ONE_CPU));
    host.client.reassess(super::JobId(1));
    let executing = (Process::Executing(7), Some(SlotId(0)));
    host.client.edit_job(super::JobId(1), |job| (job.process, job.slot) = executing);
    host.event(Event::WakeUp);
    host
}

/// What becomes of version 2, which is acknowledged, after what happens then.
fn judged(mut host: Host, offered: FleetDocument, then: impl FnOnce(&mut Host)) -> (u64, Option<String>) {
    host.offer(offered);
    then(&mut host);
    // What was told to leave has left.
    host.client.edit_job(super::JobId(1), |job| {
        if matches!(job.process, Process::Quitting(_) | Process::Aborting(_)) {
            job.process = Process::None;
        }
    });
    host.pass(LOOK * 4);
    host.acknowledge();
    host.pass(LIMIT);
    assert!(!host.on_trial());
    (host.version(), host.went_back_from().map(|(_, why)| why))
}

fn nothing(_: &mut Host) {}

#[test]
fn r6_5_a_version_under_which_no_job_may_run_any_more_is_gone_back_from_and_one_that_says_so_is_not() {
    let memory_fraction = Fraction::clamped(0.0);
    let no_memory = || document(2, &["a"], Preferences { memory_fraction, ..Preferences::default() });
    let why = "no job that is here may run by what it permits, and some could before";
    let back = (1, Some(why.to_owned()));
    // A task that holds memory is aborted.
    let holding = || {
        let mut host = computing();
        host.client.edit_job(super::JobId(1), |job| job.run.working_set = Bytes::from_mebibytes(100));
        host
    };
    assert_eq!(judged(holding(), no_memory(), nothing), back);
    // One that waits cannot begin.
    let waiting = || {
        let mut host = computing();
        host.client.edit_job(super::JobId(1), |job| job.process = Process::None);
        host
    };
    assert_eq!(judged(waiting(), no_memory(), nothing), back);
    // So it is of one that says something of the network beside it.
    let local = LocalPreferences { upload_max: Some(Bytes(100_000)), ..LocalPreferences::default() };
    let preferences = Preferences { memory_fraction, local, ..Preferences::default() };
    assert_eq!(judged(waiting(), document(2, &["a"], preferences), nothing), back);
    // The second time it is refused.
    let mut host = waiting();
    host.offer(no_memory());
    host.pass(LOOK * 4);
    host.acknowledge();
    host.pass(LIMIT);
    host.offer(no_memory());
    assert_eq!((host.version(), host.refused().unwrap().0), (1, 2));

    let preferences = Preferences { suspended: true, memory_fraction, ..Preferences::default() };
    assert_eq!(judged(waiting(), document(2, &["a"], preferences), nothing), (2, None), "it says so");
    let suspends = |host: &mut Host| host.event(Event::OwnerSuspended(true));
    assert_eq!(judged(waiting(), no_memory(), suspends), (2, None), "the owner says so");
    assert_eq!(judged(Host::of_version_1(), no_memory(), nothing), (2, None), "there was no work");
    assert_eq!(judged(computing(), plain(2), nothing), (2, None), "it goes on");
}

#[test]
fn r6_5_a_version_none_of_whose_new_projects_accepts_the_host_is_gone_back_from() {
    let read = |host: &mut Host, name: &str| {
        let project = super::id_of(&host.client, name);
        let outcome = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
        host.event(Event::MasterPageRead { project, outcome });
        project
    };
    let unreadable = |host: &mut Host, name: &str| {
        let project = super::id_of(&host.client, name);
        let error = TransferError::new(TransferErrorKind::Transient, "no connection");
        host.event(Event::MasterPageRead { project, outcome: Err(error) });
    };
    let answers = |host: &mut Host, name: &str, hostid| {
        let project = read(host, name);
        let reply = SchedulerReply { hostid, ..SchedulerReply::default() };
        host.event(Event::SchedulerAnswered { project, outcome: Ok(Box::new(reply)) });
    };
    let of = |projects: &[&str]| document(2, projects, Preferences::default());
    let why = Some("none of its projects accepts this host, and those before it did".to_owned());
    let back = (1, why);
    let kept = (2, None);
    assert_eq!(judged(computing(), of(&["b"]), |host| unreadable(host, "b")), back);
    assert_eq!(
        judged(computing(), of(&["b"]), |host| answers(host, "b", None)),
        back,
        "the account is refused"
    );
    assert_eq!(judged(computing(), of(&["a+"]), |host| unreadable(host, "a")), back, "another account");
    assert_eq!(judged(computing(), of(&["b"]), |host| answers(host, "b", Some(5))), kept);
    assert_eq!(judged(computing(), of(&["a", "b"]), |host| unreadable(host, "b")), kept, "one is as before");
    assert_eq!(
        judged(computing(), of(&["a"]), |host| unreadable(host, "a")),
        kept,
        "no fault of the version"
    );
    assert_eq!(judged(computing(), of(&["b"]), nothing), kept, "nobody was asked");
    assert_eq!(judged(computing(), of(&[]), nothing), kept, "it says so");
    let one_of_two = |host: &mut Host| {
        unreadable(host, "b");
        answers(host, "c", Some(5));
    };
    assert_eq!(judged(computing(), of(&["b", "c"]), one_of_two), kept);
    assert_eq!(
        judged(Host::of_version_1(), of(&["b"]), |host| unreadable(host, "b")),
        kept,
        "there was no work"
    );
}

#[test]
fn r6_5_a_version_that_names_a_key_that_its_only_project_does_not_show_is_gone_back_from() {
    let keys = [3, 4].map(|seed| {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        PrivateKey::generate(&mut |bytes| random.fill_bytes(bytes)).unwrap().public_key()
    });
    let of = |key: &PublicKey| {
        let mut document = document(2, &["a"], Preferences::default());
        document.projects[0].code_sign_key = Some(key.fingerprint());
        document
    };
    let shows = |host: &mut Host| {
        let project = super::id_of(&host.client, "a");
        let outcome = Ok(vec!["http://127.0.0.1/cgi".to_owned()]);
        host.event(Event::MasterPageRead { project, outcome });
        let reply = SchedulerReply {
            hostid: Some(5),
            code_sign_key: Some(keys[0].to_text()),
            ..SchedulerReply::default()
        };
        host.event(Event::SchedulerAnswered { project, outcome: Ok(Box::new(reply)) });
    };
    let why = Some("none of its projects accepts this host, and those before it did".to_owned());
    for knew_key in [false, true] {
        let host = || {
            let mut host = computing();
            if knew_key {
                shows(&mut host);
            }
            host
        };
        assert_eq!(judged(host(), of(&keys[1]), shows), (1, why.clone()));
        assert_eq!(judged(host(), of(&keys[0]), shows), (2, None));
    }
}

#[test]
fn r6_5_going_back_attaches_what_the_version_had_dropped_and_drops_what_it_brought() {
    let mut host = computing();
    host.offer(document(2, &["b"], Preferences::default()));
    let leaves = |host: &Host, name: &str| {
        host.client.state.projects[&super::id_of(&host.client, name)].detach_when_done
    };
    assert!(leaves(&host, "a"), "its job is still here");
    host.pass(LIMIT + LOOK);
    assert_eq!(host.version(), 1);
    assert!(!leaves(&host, "a") && host.client.state.jobs.contains_key(&super::JobId(1)));
    assert_eq!(host.client.project_of(&url("b")), None);
    // One without jobs is gone, and comes back.
    let mut host = Host::of_version_1();
    host.offer(document(2, &["b"], Preferences::default()));
    assert_eq!(host.client.project_of(&url("a")), None);
    host.pass(LIMIT + LOOK);
    assert!(host.client.project_of(&url("a")).is_some());
}

#[test]
fn r6_5_a_project_of_the_owners_that_a_version_took_over_is_his_again_unless_he_left_it() {
    let owners = |host: &mut Host| {
        host.event(attach_unseen(url("own"), key(""), Some(Share::new(7.0).unwrap())));
    };
    let project = |host: &Host| {
        let id = host.client.project_of(&url("own"))?;
        let project = &host.client.state.projects[&id];
        Some((
            project.from_document,
            project.detach_when_done,
            project.share.get(),
            project.account_key.clone(),
        ))
    };
    let mut host = Host::of_version_1();
    owners(&mut host);
    let before = project(&host);
    host.offer(document(2, &["a", "own+"], Preferences::default()));
    assert_ne!(project(&host), before);
    host.offer(document(3, &["own+"], Preferences::default()));
    host.restart(Duration::from_secs(1));
    host.pass(LIMIT + LOOK);
    assert_eq!((host.version(), project(&host)), (1, before));

    host.offer(document(4, &["a", "own+"], Preferences::default()));
    host.event(Event::Detach { url: url("own") });
    host.pass(LIMIT + LOOK);
    assert_eq!((host.version(), project(&host)), (1, None));
}

#[test]
fn r6_5_a_store_from_before_there_were_trials_goes_on_with_what_it_follows_as_confirmed() {
    let mut host = Host::of_version_1();
    let stored = host.store.get(&b"meta"[..]).unwrap();
    let text = String::from_utf8(stored.clone()).unwrap();
    assert!(!text.contains("trial") && !text.contains("rolled_back"), "{text}");
    host.restart(Duration::from_secs(1));
    host.offer(plain(2));
    host.pass(LIMIT + LOOK);
    assert_eq!(host.version(), 1);
}
