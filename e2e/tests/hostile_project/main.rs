//! An agent attached to a good project and to hostile ones (R6.2, R6.10): whatever a project's server sends
//! or withholds, the agent stays small and answers its owner, and the good project loses nothing.
//!
//! Each test has the real agent, a good project and several hostile ones, each with the same share. The good
//! project must get 95 % of the CPU time that is due to it, which is all of it, for the others have no jobs
//! that could run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod agent;
mod contact;
mod content;
mod files;
mod good;
mod http;
mod kinds;
mod measure;
mod replies;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::Agent;
use fallow_e2e::{PATIENCE, wait_for};
use good::{Good, Uploads};
use kinds::{Hostile, Kind};

/// What the agent may hold in memory, in bytes. It needs a twentieth of it for the good project alone.
const MEMORY_MAX: u64 = 400 << 20;
/// What its directory may hold, in bytes.
const DISK_MAX: u64 = 300 << 20;
/// How long the good project is watched.
const STRETCH: Duration = Duration::from_secs(18);

/// Tests that measure CPU time cannot run side by side.
fn alone() -> MutexGuard<'static, ()> {
    static CPU_TIME_LOCK: Mutex<()> = Mutex::new(());
    CPU_TIME_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An agent that computes for the good project and is attached to all hostile ones, each of which was asked.
struct Attack {
    agent: Agent,
    good: Good,
    hostile: Hostile,
    _turn: MutexGuard<'static, ()>,
}

impl Attack {
    fn begin(kinds: &'static [Kind]) -> Self {
        let turn = alone();
        let (good, hostile, agent) = (Good::start(), Hostile::start(kinds), Agent::start());
        for kind in kinds {
            let _ = agent.attach_unasked(&hostile.url(kind.name));
        }
        assert!(agent.attach_unasked(&good.url()));
        // Idle CPUs wait two minutes at most for files of projects that were asked before it (R2.16).
        wait_for("the good project's jobs to run", PATIENCE + Duration::from_mins(2), || {
            let (running, cpus) = agent.running(&good.url());
            (running >= cpus).then_some(())
        });
        let attack = Self { agent, good, hostile, _turn: turn };
        for kind in kinds {
            wait_for(kind.name, PATIENCE, || attack.has_met(kind).then_some(()));
        }
        attack
    }

    /// Whether the agent came to where the kind is hostile.
    fn has_met(&self, kind: &Kind) -> bool {
        let is_page = !self.hostile.asked(kind.name, "").is_empty()
            && kind.page as usize != Kind::ORDINARY.page as usize;
        is_page || !self.hostile.asked(kind.name, "cgi").is_empty()
    }

    /// Watches the good project, and checks what holds under any attack.
    fn is_withstood(&mut self) {
        let (agent, good) = (&self.agent, self.good.url());
        let mut disk = 0;
        let share = measure::watch(agent, &good, STRETCH, || disk = disk.max(agent.disk()));
        let memory = agent.peak_memory();
        println!("{share:?}, {} MB of memory, {} MB of disk", memory >> 20, disk >> 20);
        assert!(memory < MEMORY_MAX, "the agent held {} MB", memory >> 20);
        assert!(disk < DISK_MAX, "the agent's directory had {} MB", disk >> 20);
        assert!(share.of_cpu_time() >= 0.95 && share.of_cpus >= 0.9, "the good project got {share:?}");
        assert!(self.agent.is_running());
        self.agent.tell(&["stop"]);
    }
}

#[test]
fn r6_2_servers_that_are_slow_or_silent_or_never_end_cost_the_others_nothing() {
    Attack::begin(contact::SLOW).is_withstood();
}

#[test]
fn r6_2_servers_that_send_an_agent_elsewhere_get_what_is_theirs_and_cost_nothing() {
    let mut attack = Attack::begin(contact::REDIRECTS);
    attack.is_withstood();
    let elsewhere = attack.hostile.asked_elsewhere();
    // As the stock client does, it goes where the project sends it, with that project's own request, and says
    // so.
    let sends = attack.hostile.url("redirects-to-another-host");
    let is_its_own = |body: &[u8]| String::from_utf8_lossy(body).contains("<scheduler_request>");
    assert!(!elsewhere.is_empty(), "nothing was sent on");
    assert!(elsewhere.iter().all(|request| request.method == "POST" && is_its_own(&request.body)));
    let told = format!("{sends}cgi sends requests on to another host");
    assert!(attack.agent.log().contains(&told), "its owner was not told\n{}", attack.agent.log_end());
    let circle = attack.hostile.asked("redirects-in-a-circle", "cgi").len();
    assert!(circle < 200, "{circle} requests in a circle");
}

#[test]
fn r6_2_ten_projects_that_always_fail_cost_the_others_nothing() {
    Attack::begin(contact::FAILING).is_withstood();
}

#[test]
fn r6_2_replies_that_are_huge_cost_the_others_nothing() {
    Attack::begin(replies::HUGE).is_withstood();
}

#[test]
fn r6_2_replies_that_are_broken_cost_the_others_nothing() {
    Attack::begin(replies::BROKEN).is_withstood();
}

#[test]
fn r6_2_files_that_never_come_or_never_end_cost_the_others_nothing() {
    let mut attack = Attack::begin(files::FILES);
    for kind in files::FILES.iter().filter(|kind| kind.name != files::NOT_OF_A_SERVER) {
        let asked = || !attack.hostile.asked(kind.name, "download").is_empty();
        wait_for(kind.name, PATIENCE, || asked().then_some(()));
    }
    attack.is_withstood();
    assert!(attack.hostile.asked(files::NOT_OF_A_SERVER, "download").is_empty());
}

#[test]
fn r6_2_replies_that_cannot_be_meant_harm_nobody_and_cost_nothing() {
    let mut attack = Attack::begin(content::CONTENT);
    attack.is_withstood();
    let escaped = attack.agent.find("escaped");
    assert!(escaped.is_empty(), "files out of place: {escaped:?}");
    let wild = attack.hostile.asked("request-delays", "cgi").len();
    assert!(wild < 100, "{wild} requests, against every delay");
}

/// Both would be `projects/127.0.0.1_PORT_a_b`.
#[test]
fn r6_10_projects_whose_addresses_look_alike_do_not_share_files() {
    let _turn = alone();
    let (good, agent) = (Good::start_as("a/b/", Uploads::Taken), Agent::start());
    assert!(agent.attach_unasked(&good.url()));
    wait_for("the good project's jobs to run", PATIENCE, || {
        let (running, cpus) = agent.running(&good.url());
        (running >= cpus).then_some(())
    });
    // It may be refused; if it is not, it goes again and takes only its own with it.
    let like = good.url().replace("a/b/", "a_b/");
    if agent.attach_unasked(&like) {
        agent.tell(&["detach", &like]);
    }
    let before = good.uploads();
    wait_for("the good project's jobs to go on", PATIENCE, || {
        let now = agent.status();
        let project = now["projects"].as_array().unwrap().iter().find(|project| project["url"] == good.url());
        let failed = now["tasks"].as_array().unwrap().iter().any(|task| task["phase"] == "failed");
        let failed = failed || project.unwrap()["jobs"][1] != 0;
        assert!(!failed, "jobs of the good project failed\n{}", agent.log_end());
        (good.uploads() >= before + 12).then_some(())
    });
}

#[test]
fn r6_2_an_upload_server_that_never_answers_holds_up_nobody_elses_uploads() {
    let _turn = alone();
    let (hung, agent) = (Good::start_as("hung/", Uploads::Hung), Agent::start());
    let good = Good::start_as("good/", Uploads::Taken);
    assert!(agent.attach_unasked(&hung.url()));
    wait_for("uploads that hang", PATIENCE, || (hung.uploads() >= 2).then_some(()));
    assert!(agent.attach_unasked(&good.url()));
    wait_for("the good project's outputs to arrive", PATIENCE, || (good.uploads() >= 4).then_some(()));
    assert!(agent.peak_memory() < MEMORY_MAX);
}
