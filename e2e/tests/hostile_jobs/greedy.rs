//! The greedy jobs of all agents: how they are submitted, take their turns and end.
//!
//! Model: those that take little run at once, beside whatever else their agent has. The others wait until
//! what they could disturb is over, the attacks of the same agent. Then they go one after the other, for a
//! few agents at a time, so that the machine of the tests has enough for all of them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fallow_e2e::{PATIENCE, Process, wait_for};

use crate::attacks::ATTACKS;
use crate::column::{Column, GATE, Kind, Without};
use crate::limits::{DAEMONS, DISK, End, FORKS, GREEDS, Greed, IN_TURN, MEMORY, REASONS, UNHEEDING};
use crate::project::{Coordinator, workunit};
use crate::{APPLICATION, ONE, reached};

/// So many agents at a time have a job that takes memory.
const AT_ONCE: usize = 5;
/// So many have one that forks: ordinary users' agents here are one user's, of whom the kernel lets no job
/// have more than 8,192 processes beside those that it found. All others look at them, too.
const FORKING: usize = 2;

/// What greedy jobs came to, by their numbers.
pub(crate) type Ends = BTreeMap<usize, End>;

/// In the command line of whatever greedy jobs start.
fn token() -> String {
    format!("fallow-greedy-{}-", std::process::id())
}

/// In that of one job of one agent.
fn token_of(kind: Kind, number: usize) -> String {
    format!("{}{}-g{number}.", token(), kind.name())
}

fn processes_with(token: &str) -> Vec<Process> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all = pids.filter_map(Process::read).filter(|process| !process.zombie);
    all.filter(|process| process.command.contains(token)).collect()
}

/// Ends what a failure would leave.
pub(crate) struct Leftovers;

impl Drop for Leftovers {
    fn drop(&mut self) {
        processes_with(&token()).iter().for_each(|process| process.signal(rustix::process::Signal::KILL));
    }
}

/// More processes than a job may have, by so many that they are more at whichever look.
fn forks() -> usize {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap().matches("processor\t").count();
    1_300 + 16 * cpus
}

/// All greedy jobs of an agent, as its project's batch has them.
pub(crate) fn batch(column: &Column, known: &[(&str, String)]) -> String {
    let workunit = |(number, greed): (usize, &Greed)| {
        let script = column.script(ATTACKS.len() + number, greed.1, known);
        let script = script.replace("TOKEN", &token_of(column.kind, number));
        let script = script.replace("FORKS", &forks().to_string());
        // Whoever opens the pipe waits until somebody opens its other end.
        let waits = IN_TURN.contains(&number).then(|| format!("mkfifo {GATE}; read go <{GATE}\n"));
        let script = waits.unwrap_or_default() + &script;
        workunit(&name_of(number), APPLICATION, &script, &format!("disk = {DISK:?}\n{ONE}"))
    };
    GREEDS.iter().enumerate().map(workunit).collect()
}

fn name_of(number: usize) -> String {
    format!("g{number}")
}

/// Lets all those go that wait, once the attacks of their agent are over. Returns which of these succeeded,
/// for each agent.
pub(crate) fn take_turns(lab: &Coordinator, columns: &[Column]) -> Vec<BTreeMap<usize, bool>> {
    // Those with the most attacks come last.
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| columns[*at].kind.without == Without::Nothing);
    let (next, forking) = (AtomicUsize::new(0), [const { Mutex::new(()) }; FORKING]);
    let work = || {
        let mut all = Vec::new();
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let reached = reached(lab, &columns[at]);
            take_turn(&columns[at], &forking[at % FORKING]);
            all.push((at, reached));
        }
        all
    };
    let mut all: BTreeMap<usize, _> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    (0..columns.len()).map(|at| all.remove(&at).unwrap()).collect()
}

fn take_turn(column: &Column, forking: &Mutex<()>) {
    let alone = forking.lock().unwrap_or_else(PoisonError::into_inner);
    column.let_go(&name_of(FORKS));
    drop(alone);
    column.limit_memory(MEMORY);
    for number in IN_TURN.into_iter().filter(|number| *number != FORKS) {
        column.let_go(&name_of(number));
    }
}

/// How the greedy jobs of an agent ended, once they have, and what they made is taken.
pub(crate) fn ends(lab: &Coordinator, column: &Column) -> Ends {
    let name = column.kind.name();
    let (over, outputs) = wait_for(&format!("the ends of jobs of {name}"), 3 * PATIENCE, || {
        column.nudge();
        let (over, outputs) = (greedy(lab.over(&name)), greedy(lab.outputs(&name)));
        let right = over.values().filter(|job| job["exit_status"] == 0).count();
        (over.len() == ending().count() && outputs.len() == right).then_some((over, outputs))
    });
    let killed = column.log_lines("killing a task: it takes more than it may");
    assert!(
        killed.iter().any(|line| line.contains(&format!("{}_0", name_of(UNHEEDING)))),
        "{name}: what does not go and takes memory was not killed: {}",
        column.log_end()
    );
    let end = |number: usize| {
        let workunit = name_of(number);
        let (job, outlived) = (&over[&workunit], outlives(column.kind, number));
        let told = lab.json(&["jobs", &name, "--job", job["name"].as_str().unwrap()]);
        let told = told["job"]["stderr"].as_str().unwrap_or_default();
        let end = match (job["exit_status"].as_i64().unwrap(), outputs.get(&workunit)) {
            (0, Some(text)) if text == "right\n" && outlived => End::Outlived,
            (0, Some(text)) if text == "right\n" => End::Success,
            (0, _) => End::Foreign,
            (status, _) => End::Failed(status.try_into().unwrap(), named(told)),
        };
        println!("{name}: {}: {end:?}", GREEDS[number].0);
        (number, end)
    };
    ending().map(end).collect()
}

/// Those that end by themselves or are ended.
fn ending() -> impl Iterator<Item = usize> {
    (0..GREEDS.len()).filter(|number| GREEDS[*number].2 != End::GoesOn)
}

/// What is said of greedy jobs, by their workunits.
fn greedy<T>(of_workunits: Vec<(String, T)>) -> BTreeMap<String, T> {
    of_workunits.into_iter().filter(|(workunit, _)| workunit.starts_with('g')).collect()
}

/// What the reason names that a project is told.
fn named(told: &str) -> &'static str {
    REASONS.into_iter().find(|(_, words)| told.contains(words)).map_or("", |(name, _)| name)
}

/// Whether something goes on that a job has started which is over. Where the layers do not let that be, it
/// has to end, and is waited for: what is killed needs a CPU to end. What goes on is ended here.
fn outlives(kind: Kind, number: usize) -> bool {
    let left = || processes_with(&token_of(kind, number));
    // Nothing tells any more whose daemons these are.
    let may_go_on = match kind.without {
        Without::Everything => number == DAEMONS,
        Without::Layer("calls") => number == DAEMONS && !kind.root,
        _ => false,
    };
    if may_go_on {
        let outlives = !left().is_empty();
        left().iter().for_each(|process| process.signal(rustix::process::Signal::KILL));
        return outlives;
    }
    let what = format!("{} of {} to leave nothing", name_of(number), kind.name());
    wait_for(&what, PATIENCE, || left().is_empty().then_some(false))
}

/// Waits for those that go on until their agent ends.
pub(crate) fn go_on(column: &Column) -> Ends {
    let going = (0..GREEDS.len()).filter(|number| GREEDS[*number].2 == End::GoesOn);
    let goes_on = |number: usize| {
        let token = token_of(column.kind, number);
        wait_for(&format!("{token} to go on"), PATIENCE, || {
            (!processes_with(&token).is_empty()).then_some(())
        });
        (number, End::GoesOn)
    };
    going.map(goes_on).collect()
}

/// Waits until nothing runs any more that a greedy job has started.
pub(crate) fn wait_for_nothing() {
    wait_for("agents that have ended to leave nothing", PATIENCE, || {
        processes_with(&token()).is_empty().then_some(())
    });
}
