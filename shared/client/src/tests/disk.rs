//! The disk in random histories: arrivals, jobs, crashes, foreign files, files that vanish, limits that
//! change.
//!
//! The modelled host looks at every file that is deleted, and fails where a job needs it; after each
//! measurement computing rests exactly where the limit is exceeded; and after every event the books, which
//! follow changes, are what they would be if they were made anew.

use std::collections::BTreeSet;

use fallow_boinc::scheduler::SchedulerReply;
use fallow_domain::agent_state::{DiskAct, DiskDecision};
use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Fraction, Instant, MasterUrl, Preferences,
    ProjectAssignment, ProjectId, ResourceTypes, Share, SlotId, Usage,
};
use fallow_preferences::Said;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::comings::new_file;
use super::world::World;
use super::{NOW, client, host, id_of, put_job};
use crate::machine::Client;
use crate::state::{File, FileStatus};
use crate::{DiskFound, Effect, Entity, Event, FileFound, FileKey, PreferenceFiles, Startup};

/// How many histories, and from which seed on: `FALLOW_DISK_HISTORIES=5000 FALLOW_DISK_SEED=1`.
const HISTORIES: u64 = 50;
/// So many jobs each project has.
const JOBS: usize = 12;

/// Whether the books that follow changes are those that are made anew.
pub(super) fn check_books(client: &Client) {
    let books = client.disk.both_books(&client.state, client.clock.now(), client.clock.started_at());
    let Some([followed, anew]) = books else { return };
    assert_eq!(followed.used_total(), anew.used_total(), "a change was not told to the books of the disk");
    for id in client.state.projects.keys() {
        assert_eq!(followed.report(*id), anew.report(*id), "a change was not told to the books of the disk");
        assert_eq!(followed.deletable(*id), anew.deletable(*id), "a change was not told to the books");
    }
    assert_eq!(followed.shrink().is_some(), anew.shrink().is_some());
}

fn document(version: u64, preferences: Preferences) -> FleetDocument {
    let project = |name: &str| ProjectAssignment {
        name: name.to_owned(),
        url: MasterUrl::parse(&format!("http://127.0.0.1/{name}/")).unwrap(),
        account_key: AccountKey::new("0123456789abcdef0123456789abcdef"),
        share: Share::new(if name == "a" { 3.0 } else { 1.0 }).unwrap(),
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    let projects = ["a", "b"].map(project).into();
    FleetDocument { content: String::new(), version: DocumentVersion(version), projects, preferences }
}

/// Of a host that leaves so many bytes of its disk free.
fn leaving(free: u64) -> Preferences {
    Preferences {
        buffer_min: Duration::from_secs(90),
        buffer_additional: Duration::from_secs(30),
        scheduling_period: Duration::from_secs(15),
        checkpoint_period: Duration::from_secs(5),
        leave_in_memory: true,
        cpu_fraction: Fraction::ONE,
        disk_fraction: Fraction::ONE,
        disk_free_min: Bytes(free),
        ..Preferences::default()
    }
}

/// Inputs are as large as their names say, two of three are to be kept, and one project chooses what goes.
fn sticky(reply: &mut SchedulerReply, calls: usize) {
    for file in reply.files.iter_mut().filter(|file| file.upload_urls.is_empty()) {
        let number: u64 = file.name.bytes().map(u64::from).sum();
        file.nbytes = Some(Bytes(5 + number % 23));
        file.sticky = file.name.ends_with("_in") && !number.is_multiple_of(3);
        file.priority = Some(i64::try_from(number % 6).unwrap());
    }
    reply.deletion_policy_priority = reply.apps.first().is_some_and(|app| app.name.starts_with('b'));
    if calls % 5 == 4 {
        reply.deleted_files.push(format!("a_{}_in", calls / 5));
    }
}

struct History {
    world: World,
    rng: Pcg64Mcg,
    version: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut world = World::on_a_volume(seed, 1_000);
        world.alter = Some(sticky);
        world.add_project("a", JOBS as u64, Duration::from_secs(40));
        world.add_project("b", JOBS as u64, Duration::from_secs(70));
        let mut history = Self { world, rng: Pcg64Mcg::seed_from_u64(seed), version: 0 };
        history.prefer(leaving(0));
        history
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below
    }

    fn prefer(&mut self, preferences: Preferences) {
        self.version += 1;
        self.world.event(Event::DocumentOffered(document(self.version, preferences).into()));
    }

    /// Any file that lies there.
    fn any_file(&mut self) -> Option<FileKey> {
        let files: Vec<FileKey> = self.world.files.iter().cloned().collect();
        let at = self.draw(files.len().max(1) as u64) as usize;
        files.get(at).cloned()
    }

    fn happens(&mut self) {
        match self.draw(12) {
            0 => {
                let foreign = self.draw(1_050);
                self.world.fill(foreign);
            }
            1 => self.world.fill(0),
            2 => {
                let free = self.draw(1_000);
                self.prefer(leaving(free));
            }
            3 => self.world.crash(),
            4 => {
                let (number, length) = (self.draw(5), self.draw(60));
                let project = ProjectId(u32::try_from(self.draw(2)).unwrap());
                let key = FileKey { project, name: format!("stray{number}") };
                self.world.stray(key, length);
            }
            5 | 6 => {
                // Outputs that vanish fail their jobs, which is another story.
                let Some(key) = self.any_file().filter(|key| !key.name.ends_with("_out")) else { return };
                let length = (self.draw(2) == 0).then(|| self.rng.next_u64() % 40);
                self.world.spoil(&key, length);
            }
            _ => {
                let secs = i64::try_from(5 + self.draw(300)).unwrap();
                self.world.run_for(Duration::from_secs(secs));
            }
        }
    }

    /// With space again, all that was sent is reported, and what nobody owns goes.
    fn ends(&mut self) {
        self.world.fill(0);
        self.prefer(leaving(0));
        // A report that a crash overtook is made once more: names count.
        let done = |world: &World| {
            ["a", "b"].iter().all(|name| {
                let reports = world.projects[*name].reports.iter();
                reports.map(|report| &report.name).collect::<BTreeSet<_>>().len() == JOBS
            })
        };
        self.world.run_until("all jobs are reported", Duration::from_hours(24 * 14), done);
        // Until the next measurement what was reported last may still count.
        self.world.run_until("there is space", Duration::from_mins(10), |world| !world.is_short());
        let stray = |world: &World| world.files.iter().any(|key| key.name.starts_with("stray"));
        self.world.run_until("strays are gone", Duration::from_mins(80), |world| !stray(world));
    }
}

fn history(seed: u64) {
    let mut history = History::new(seed);
    for _ in 0..25 {
        history.happens();
    }
    history.ends();
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn r4_12_in_random_histories_no_file_that_a_job_needs_is_deleted_and_nothing_is_lost() {
    let (first, count) = (number("FALLOW_DISK_SEED", 1), number("FALLOW_DISK_HISTORIES", HISTORIES));
    for seed in first..first + count {
        let told = std::panic::catch_unwind(|| history(seed));
        if let Err(why) = told {
            println!(
                "replay: FALLOW_DISK_SEED={seed} FALLOW_DISK_HISTORIES=1 cargo test -p fallow-client r4_12_in_random_histories"
            );
            std::panic::resume_unwind(why);
        }
    }
}

/// A client that is attached to projects a and b, and has asked for a measurement.
fn measuring() -> Client {
    let mut client = client(0, &["a", "b"]);
    client.config.measure_disk = Some(Duration::from_mins(10));
    assert!(asks(&mut client, NOW));
    client
}

/// Whether it asks for a measurement now, when a full disk was met.
pub(super) fn asks(client: &mut Client, now: Instant) -> bool {
    client.disk_was_full();
    let step = client.handle(now, Event::WakeUp);
    step.actions.iter().any(|action| matches!(action.effect, Effect::MeasureDisk))
}

/// On a volume of 1000 bytes.
fn found() -> DiskFound {
    DiskFound { size: Bytes(1_000), free: Bytes(500), ..DiskFound::default() }
}

/// What projects a and b use beside files.
pub(super) fn others(client: &mut Client) -> [Bytes; 2] {
    let projects = client.disk_view().unwrap().projects;
    [projects[0].other, projects[1].other]
}

#[test]
fn r4_1_what_was_in_a_slot_is_none_of_the_job_that_takes_it_later() {
    let takes = |client: &mut Client, id: u64, name: &str| {
        let project = id_of(client, name);
        let id = put_job(client, id, project, Usage::ONE_CPU);
        client.edit_job(id, |job| job.slot = Some(SlotId(0)));
        id
    };
    let slots = vec![(SlotId(0), Bytes(300))];
    let mut client = measuring();
    client.handle(NOW, Event::DiskMeasured(Ok(Box::new(found()))));
    let first = takes(&mut client, 1, "a");
    assert!(asks(&mut client, NOW + Duration::from_mins(1)));
    let measured = Event::DiskMeasured(Ok(Box::new(DiskFound { slots, ..found() })));
    client.handle(NOW + Duration::from_mins(1), measured.clone());
    assert_eq!(others(&mut client), [Bytes(300), Bytes(0)]);
    client.free_slot(first);
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)]);
    let second = takes(&mut client, 2, "b");
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)], "it was another job's");
    // Nor is what was seen before it took the slot, and told after that.
    client.free_slot(second);
    let first = takes(&mut client, 3, "a");
    assert!(asks(&mut client, NOW + Duration::from_mins(2)));
    client.free_slot(first);
    takes(&mut client, 4, "b");
    client.handle(NOW + Duration::from_mins(2), measured);
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)]);
}

#[test]
fn r4_1_what_a_job_is_known_to_hold_by_now_is_shown_before_the_next_measurement() {
    let mut client = measuring();
    client.handle(NOW, Event::DiskMeasured(Ok(Box::new(found()))));
    let slots = vec![(SlotId(0), Bytes(300))];
    let project = id_of(&client, "a");
    let id = put_job(&mut client, 1, project, Usage::ONE_CPU);
    client.edit_job(id, |job| job.slot = Some(SlotId(0)));
    assert!(asks(&mut client, NOW + Duration::from_mins(1)));
    let measured = Event::DiskMeasured(Ok(Box::new(DiskFound { slots, ..found() })));
    client.handle(NOW + Duration::from_mins(1), measured);
    let before = client.disk_view().unwrap();
    client.edit_job(id, |job| job.run.disk_held.all = Bytes(450));
    assert_eq!(others(&mut client), [Bytes(450), Bytes(0)]);
    let after = client.disk_view().unwrap();
    assert_eq!(after.used, before.used.plus(Bytes(150)));
    assert_eq!(after.free, Bytes(before.free.0.saturating_sub(150)));
    // What it gave back is known when it is measured.
    client.edit_job(id, |job| job.run.disk_held.all = Bytes(100));
    assert_eq!(others(&mut client), [Bytes(300), Bytes(0)]);
}

#[test]
fn r4_1_the_owners_most_in_bytes_is_the_limit_to_the_byte_and_is_named() {
    let mut client = measuring();
    // A volume on which a part of another disk's size would be something else.
    let volume = DiskFound { size: Bytes(90_000_000_000), free: Bytes(80_000_000_000), ..found() };
    client.handle(NOW, Event::DiskMeasured(Ok(Box::new(volume))));
    let said = |most| Said { disk_max: Some(Some(Bytes(most))), ..Said::default() };
    let files = |most| {
        let files = PreferenceFiles { owner: Some(said(most)), ..PreferenceFiles::default() };
        Event::PreferenceFilesRead(Box::new(files))
    };
    client.handle(NOW, files(20_000_000_000));
    let view = client.disk_view().unwrap();
    let why = "the most that may be used: disk_max = 20 GB, preferences.toml";
    assert_eq!((view.limit, view.limit_why.as_str()), (Bytes(20_000_000_000), why));
    client.handle(NOW, files(300_000_000_000));
    let view = client.disk_view().unwrap();
    assert!(view.limit > Bytes(70_000_000_000) && !view.limit_why.contains("most that"), "{view:?}");
}

#[test]
fn r4_12_what_is_deleted_while_the_disk_is_measured_is_no_file_without_an_owner() {
    let mut client = measuring();
    let project = id_of(&client, "a");
    let key = FileKey { project, name: "old".to_owned() };
    client.insert_file(key.clone(), new_file(false));
    client.remove_file(&key);
    // It was seen before that, and had been there for long.
    let changed = NOW - Duration::from_hours(5);
    let file = FileFound { key, blocks: Bytes(300), length: Bytes(300), changed, is_part: false };
    let look =
        DiskFound { ours: Bytes(300), projects: vec![(project, Bytes(300))], files: vec![file], ..found() };
    let step = client.handle(NOW, Event::DiskMeasured(Ok(Box::new(look.clone()))));
    assert!(!step.actions.iter().any(|action| matches!(action.effect, Effect::DeleteFile { .. })));
    let view = client.disk_view().unwrap();
    assert!(view.deeds.is_empty() && others(&mut client)[0] == Bytes(0), "{view:?}");
    // The next look sees what came under that name since.
    assert!(asks(&mut client, NOW + Duration::from_mins(1)));
    client.handle(NOW + Duration::from_mins(1), Event::DiskMeasured(Ok(Box::new(look))));
    let deeds = client.disk_view().unwrap().deeds;
    assert_eq!(deeds.iter().filter(|deed| deed.text.starts_with("removed old")).count(), 1);
}

#[test]
fn r4_12_a_file_that_was_to_be_deleted_at_the_last_kill_goes_at_once_and_others_that_nobody_knows_do_not() {
    let mut client = measuring();
    let project = id_of(&client, "a");
    let key = |name: &str| FileKey { project, name: name.to_owned() };
    // One has come again since.
    client.insert_file(key("again"), new_file(false));
    let message = "trickle_up_job_77.xml";
    let startup = Startup {
        host: host(0),
        slots: Vec::new(),
        files: ["again", "doomed", "somebodys", message].map(|name| (key(name), Bytes(1))).to_vec(),
        doomed: ["again", "doomed", "part of it", message].map(key).to_vec(),
    };
    let step = client.handle(NOW, Event::Started(Box::new(startup)));
    // A message that waits is told once more rather than lost.
    assert_eq!(deleted(&step), ["doomed", "part of it"].map(key));
}

#[test]
fn r4_12_what_cannot_be_removed_is_told_once_and_is_no_reason_to_measure_again_and_again() {
    let mut client = measuring();
    let project = id_of(&client, "a");
    let changed = NOW - Duration::from_hours(5);
    let stray = |number: u64| {
        let key = FileKey { project, name: format!("stray{number}") };
        FileFound { key, blocks: Bytes(0), length: Bytes(0), changed, is_part: false }
    };
    let mut now = NOW;
    let mut look = |client: &mut Client, count: u64| {
        let files = (0..count).map(stray).collect();
        let step = client.handle(now, Event::DiskMeasured(Ok(Box::new(DiskFound { files, ..found() }))));
        let is_deletion = |action: &&crate::Action| matches!(action.effect, Effect::DeleteFile { .. });
        let is_notice = |action: &&crate::Action| matches!(&action.effect, Effect::Notice { text, .. } if text.starts_with("removed stray"));
        let tried = step.actions.iter().filter(is_deletion).count();
        // A step tells so many of them only.
        let told = step.actions.iter().filter(is_notice).count().min(2);
        now = now + Duration::from_mins(1);
        let step = client.handle(now, Event::WakeUp);
        let again = step.actions.iter().any(|action| matches!(action.effect, Effect::MeasureDisk));
        if !again {
            assert!(asks(client, now));
        }
        (tried, told, again)
    };
    assert_eq!(look(&mut client, 1_500), (1_500, 2, true), "there may be more");
    assert_eq!(look(&mut client, 1_500), (1_500, 0, false));
    assert_eq!(look(&mut client, 1_501), (1_501, 1, true));
    assert_eq!(look(&mut client, 0), (0, 0, false));
    assert_eq!(look(&mut client, 1), (1, 1, false));
}

#[test]
fn r4_1_a_measurement_that_never_answers_is_asked_for_again() {
    let mut client = measuring();
    let asks = |client: &mut Client, minutes: i64| {
        let step = client.handle(NOW + Duration::from_mins(minutes), Event::WakeUp);
        assert!(step.wake_at.is_some_and(|at| at <= NOW + Duration::from_mins(90)), "{:?}", step.wake_at);
        step.actions.iter().any(|action| matches!(action.effect, Effect::MeasureDisk))
    };
    assert_eq!([29, 30, 31, 60].map(|minutes| asks(&mut client, minutes)), [false, true, false, true]);
}

/// A kept file of project `name`, which takes so much.
pub(super) fn keep(client: &mut Client, name: &str, number: u64, bytes: u64) -> FileKey {
    let key = FileKey { project: id_of(client, name), name: format!("{name}{number:03}") };
    let mut file = File { status: FileStatus::Present, ..new_file(false) };
    (file.info.sticky, file.info.nbytes) = (true, Some(Bytes(bytes)));
    client.insert_file(key.clone(), file);
    key
}

pub(super) fn deleted(step: &crate::Step) -> Vec<FileKey> {
    let file = |action: &crate::Action| match &action.effect {
        Effect::DeleteFile { file, .. } => Some(file.clone()),
        _ => None,
    };
    step.actions.iter().filter_map(file).collect()
}

/// A look that finds these files, on a volume of 1000 bytes that holds 10 of the agent's own beside them.
pub(super) fn found_with(files: &[(&FileKey, u64)]) -> Event {
    let own = Bytes(10);
    let mut look = DiskFound { free: Bytes(990), ours: own, own, ..found() };
    for (key, bytes) in files {
        let (blocks, length) = (Bytes(*bytes), Bytes(*bytes));
        look.files.push(FileFound { key: (*key).clone(), blocks, length, changed: NOW, is_part: false });
        match look.projects.iter_mut().find(|(project, _)| *project == key.project) {
            Some((_, all)) => *all = all.plus(blocks),
            None => look.projects.push((key.project, blocks)),
        }
        look.ours = look.ours.plus(blocks);
        look.free = Bytes(look.free.0 - bytes);
    }
    Event::DiskMeasured(Ok(Box::new(look)))
}

/// A client that may fill its volume but for 100 bytes, and has asked for a measurement.
fn measuring_on_all_but_100() -> Client {
    let mut client = measuring();
    let preferences = FleetDocument { projects: Vec::new(), ..document(1, leaving(100)) };
    client.handle(NOW, Event::DocumentOffered(preferences.into()));
    client
}

/// A client that may fill its volume of 1000 bytes but for 100, and has a file of 300 bytes in each project.
pub(super) fn with_two_files() -> (Client, FileKey, FileKey) {
    let mut client = measuring_on_all_but_100();
    let (first, second) = (keep(&mut client, "a", 1, 300), keep(&mut client, "b", 1, 300));
    let step = client.handle(NOW, found_with(&[(&first, 300), (&second, 300)]));
    assert_eq!((deleted(&step), client.disk_view().unwrap().limit), (vec![], Bytes(900)));
    (client, first, second)
}

#[test]
fn r4_8_what_exceeds_the_limit_between_two_measurements_is_done_something_about_at_once() {
    let (mut client, first, _) = with_two_files();
    // Its own doing: a file is recorded as larger than there is room for.
    let later = keep(&mut client, "a", 2, 500);
    let step = client.handle(NOW + Duration::from_secs(1), Event::WakeUp);
    assert_eq!(deleted(&step), std::slice::from_ref(&first));
    assert!(client.state.files.contains_key(&later));
}

#[test]
fn r4_8_an_output_that_becomes_known_when_the_volume_has_it_already_costs_nobody_a_file() {
    let (mut client, first, _) = with_two_files();
    let see = |client: &mut Client, secs: i64, free: u64| {
        let at = NOW + Duration::from_secs(secs);
        deleted(&client.handle(at, Event::VolumeSeen { free: Bytes(free) }))
    };
    // A job has written 200, which is not known, and others 50.
    assert_eq!(see(&mut client, 1, 150), vec![]);
    keep(&mut client, "a", 2, 200);
    client.disk.output_found(Bytes(200));
    assert_eq!(deleted(&client.handle(NOW + Duration::from_secs(2), Event::WakeUp)), vec![]);
    assert_eq!(see(&mut client, 3, 150), vec![]);
    assert_eq!(see(&mut client, 4, 90), std::slice::from_ref(&first));
    // What came otherwise has not gone from it yet.
    let (mut client, first, _) = with_two_files();
    assert_eq!(see(&mut client, 1, 150), vec![]);
    keep(&mut client, "a", 2, 200);
    assert_eq!(
        deleted(&client.handle(NOW + Duration::from_secs(2), Event::WakeUp)),
        std::slice::from_ref(&first)
    );
}

#[test]
fn r4_8_what_others_write_between_two_measurements_is_done_something_about_at_once() {
    let (mut client, first, second) = with_two_files();
    let mut at = NOW;
    let mut see = |client: &mut Client, secs: i64, free: u64| {
        at = at + Duration::from_secs(secs);
        deleted(&client.handle(at, Event::VolumeSeen { free: Bytes(free) }))
    };
    assert_eq!(see(&mut client, 1, 100), vec![], "that is left, and no more");
    assert_eq!(see(&mut client, 1, 90), std::slice::from_ref(&first));
    assert_eq!(see(&mut client, 1, 90), vec![], "some file systems take a while");
    assert_eq!(see(&mut client, 60, 90), std::slice::from_ref(&second));
    assert_eq!(see(&mut client, 60, 90), vec![]);
    assert!(client.disk_view().unwrap().suspended.is_some(), "there is nothing left");
    assert_eq!(see(&mut client, 1, 700), vec![]);
    assert!(client.disk_view().unwrap().suspended.is_none(), "it goes on by itself");
    // More than was measured is not promised before it is measured.
    assert!(client.disk_view().unwrap().limit <= Bytes(900));
}

#[test]
fn r4_12_while_nothing_can_be_stored_each_file_that_no_job_needs_is_given_up_once_and_no_other() {
    // Small ones go many at a time, and of large ones one is enough.
    for (is_measured, size, at_once) in [(false, 1, 256), (true, 1, 256), (false, 1 << 20, 4)] {
        let mut client = measuring_on_all_but_100();
        let keys: Vec<FileKey> =
            (0..300).map(|n| keep(&mut client, if n < 250 { "a" } else { "b" }, n, size)).collect();
        let upload = FileKey { project: id_of(&client, "b"), name: "sent".to_owned() };
        let mut file = File { status: FileStatus::Present, ..new_file(true) };
        file.transfer.as_mut().unwrap().direction = crate::Direction::Upload;
        file.info.nbytes = Some(Bytes(50));
        client.insert_file(upload, file);
        if is_measured {
            let files: Vec<(&FileKey, u64)> = keys.iter().map(|key| (key, size)).collect();
            client.handle(NOW, found_with(&files));
        }
        let mut given_up: Vec<FileKey> = Vec::new();
        loop {
            let next = client.give_up_files(NOW);
            assert!(next.len() == at_once.min(300 - given_up.len()), "{}", next.len());
            if next.is_empty() {
                break;
            }
            given_up.extend(next);
        }
        assert_eq!(given_up.len(), 300, "measured: {is_measured}");
        assert_eq!(given_up.iter().collect::<BTreeSet<_>>().len(), 300);
        assert!(given_up.iter().all(|key| keys.contains(key)));
    }
}

#[test]
fn r4_13_each_decision_is_told_with_its_rule_and_only_when_one_was_made() {
    let (mut client, _, _) = with_two_files();
    let mut at = NOW;
    let mut see = |client: &mut Client, secs: i64, free: u64| {
        at = at + Duration::from_secs(secs);
        let touched = client.handle(at, Event::VolumeSeen { free: Bytes(free) }).touched;
        touched.contains(&Entity::Disk)
    };
    let told = |client: &Client| -> Vec<(DiskAct, String, Bytes, String)> {
        let said = |one: &DiskDecision| (one.what, one.name.clone(), one.bytes, one.rule.clone());
        client.disk_decisions().map(said).collect()
    };
    assert!(!see(&mut client, 1, 100) && !client.entities().contains(&Entity::Disk));
    assert!(see(&mut client, 1, 90));
    assert!(!see(&mut client, 1, 90), "nothing more was decided");
    assert!(client.entities().contains(&Entity::Disk));
    let deleted = |name: &str| (DiskAct::Deleted, name.to_owned(), Bytes(300), "R4.8".to_owned());
    assert_eq!(told(&client), [deleted("a001")]);
    let decision = client.disk_decisions().next().unwrap().clone();
    let url = client.project_view(id_of(&client, "a")).unwrap().url;
    assert_eq!(decision.project.as_ref(), Some(&url));
    assert!(decision.why.contains("the disk limit is exceeded"), "{}", decision.why);
    assert!(see(&mut client, 60, 90) && see(&mut client, 60, 90));
    let space = client.disk_space().unwrap();
    assert!(space.is_suspended && space.missing > Bytes(0), "{space:?}");
    assert_eq!((space.deleted_files, space.deleted, space.jobs_given_back), (2, Bytes(600), 0));
    assert!(!see(&mut client, 1, 80), "it is suspended as before");
    assert!(see(&mut client, 1, 700));
    let rule = "R4.8".to_owned();
    let expected = [
        deleted("a001"),
        deleted("b001"),
        (DiskAct::Suspended, String::new(), told(&client)[2].2, rule.clone()),
        (DiskAct::Resumed, String::new(), Bytes(0), rule),
    ];
    assert_eq!(told(&client), expected);
    assert!(expected[2].2 > Bytes(0));
    let space = client.disk_space().unwrap();
    assert!(!space.is_suspended && space.missing == Bytes(0), "{space:?}");
    // They are named by the URL that the coordinator knows, also when their project is gone.
    client.detach_url(&url);
    assert!(client.project_of(&url).is_none());
    assert_eq!(client.disk_decisions().next().unwrap().project, Some(url));
}

#[test]
fn r4_13_of_many_decisions_the_last_twenty_are_kept_and_all_are_counted() {
    let mut client = measuring_on_all_but_100();
    let keys: Vec<FileKey> = (0..50).map(|n| keep(&mut client, "a", n, 10)).collect();
    let files: Vec<(&FileKey, u64)> = keys.iter().map(|key| (key, 10)).collect();
    client.handle(NOW, found_with(&files));
    while !client.give_up_files(NOW).is_empty() {}
    let kept: Vec<_> = client.disk_decisions().collect();
    assert_eq!(kept.len(), 20);
    assert!(kept.iter().all(|one| one.rule == "R6.10" && one.what == DiskAct::Deleted), "{kept:?}");
    let space = client.disk_space().unwrap();
    assert_eq!((space.deleted_files, space.deleted), (50, Bytes(500)));
}

#[test]
fn r6_3_how_it_stands_with_the_disk_is_told_when_it_differs_by_a_hundredth_of_the_volume() {
    let mut client = measuring_on_all_but_100();
    let mut minutes = 0;
    let mut measure = |client: &mut Client, own: u64| {
        let look = DiskFound { own: Bytes(own), ours: Bytes(own), free: Bytes(1_000 - own), ..found() };
        let at = NOW + Duration::from_mins(minutes);
        let step = client.handle(at, Event::DiskMeasured(Ok(Box::new(look))));
        minutes += 1;
        assert!(asks(client, NOW + Duration::from_mins(minutes)));
        step.touched.contains(&Entity::Host)
    };
    assert!(measure(&mut client, 10));
    assert_eq!([10, 15, 20, 21, 22].map(|own| measure(&mut client, own)), [false, false, false, true, false]);
}
