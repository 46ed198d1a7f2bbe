//! Control groups for tasks (R6.10): one for each, below the agent's own, where that is handed over to it.
//!
//! Model: a group of version 2 either holds processes or hands controllers on. So the agent moves into a
//! group below its own (`fallow-agent-PID.START`), and those of tasks lie beside that, in one for this life
//! of the agent (`fallow-jobs-AGENT-LIFE`):
//!
//! - a task is in its group before its program is executed, and whatever comes of it stays there. It is
//!   killed as one, and the group goes when it is empty;
//! - `cpu`: all tasks come after the agent, and those at idle priority after those that feed a GPU. What all
//!   of it is worth beside its neighbours is the agent's own group's weight;
//! - `memory`: half as much again as the most that the client lets a task have, for the client, which looks
//!   once a second, lets short peaks pass, and sees most excess first. One that is faster is killed by the
//!   kernel, alone and as a whole. What is above the agent's group may hold it to less: then the kernel is
//!   the first to see it;
//! - `pids`: twice what the client lets it have, for the same reason.
//!
//! A controller that is not there is done without, and so is a group that cannot be made or entered: the
//! looks hold tasks to the same limits, and no task is failed for want of a group. Groups that are not below
//! the agent's own are never touched. Other agents', and those of other lives, are told by their names.
//!
//! Left out: the freezer, as signals stop as soon (see [`super::freezer`]); quotas of CPU time, which the
//! client keeps by pauses; bandwidth of disks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_client::TaskLimits;
use fallow_domain::{Bytes, Duration, SlotId};

use crate::brand::Brand;
use crate::cgroup::{self, Group, number};
use crate::confine::Layer;
use crate::proc;
use crate::sys::Urgency;

/// The name by which it is reported beside the layers of confinement.
pub const LAYER: &str = "groups";
/// The controllers that are used.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The beginning of the name of the group that the agent itself is in.
const AGENT: &str = "fallow-agent-";
/// The beginning of the name of the group of all tasks.
const JOBS: &str = "fallow-jobs-";
/// A task's group has so much more memory than its task may, and no less than this: the client judges what a
/// task has over some seconds, so a short peak is no excess yet.
const MARGIN_PART: u64 = 2;
const MARGIN_MIN: u64 = 64 << 20;
/// So much of what is above the agent's group stays the agent's own, whatever a single task takes.
const AGENTS: u64 = 64 << 20;
/// So often the number of processes that a task may have before the kernel gives it no more.
const PROCESSES: u64 = 2;
/// So many processes and threads of what is above the agent's group stay for the agent and other tasks.
const OTHERS: u64 = 512;
/// How long the last process of a group may take to be gone.
const GONE: StdDuration = StdDuration::from_secs(5);
/// How long it may take to remove the group that the agent was in.
const LEFT: StdDuration = StdDuration::from_secs(1);
/// How long a start looks after what earlier lives have left, at most.
const SWEPT: StdDuration = StdDuration::from_secs(10);
/// Most groups below that of all tasks, and how deep these lie: no more than can be removed in time, where
/// nothing else keeps a job from making any.
const BELOW_ALL: &str = "16384";
const DEEP: &str = "32";

/// The groups of an agent.
#[derive(Debug)]
pub struct Groups(Result<Arc<Made>, String>);

/// What there is where they can be had.
#[derive(Debug)]
struct Made {
    own: Group,
    /// That which the agent itself is in, if it has moved.
    leaf: Option<String>,
    /// The beginning of the names that this agent's groups of all its lives have.
    prefix: String,
    /// That of all tasks.
    jobs: Group,
    name: String,
    controllers: Vec<&'static str>,
    limits: Mutex<Option<TaskLimits>>,
    count: AtomicU32,
    tasks: Mutex<Vec<Weak<TaskGroup>>>,
    is_without_said: AtomicBool,
}

impl Groups {
    /// None, for this reason.
    pub fn none(why: impl Into<String>) -> Self {
        Self(Err(why.into()))
    }

    /// Looks whether the group of this process is its own to divide, and makes what is needed there. `mark`
    /// and `life` say whose it is (see [`super::life_mark`]).
    pub fn at_start(mark: &str, life: &str) -> Self {
        Self(moved().and_then(|(own, leaf)| Self::made(own, Some(leaf), mark, life)))
    }

    /// Makes what is needed below a group that this process is not in.
    pub fn below(place: &Path, mark: &str, life: &str) -> Self {
        let own =
            Group::open(place).map_err(|error| format!("{} cannot be opened: {error}", place.display()));
        Self(own.and_then(|own| Self::made(own, None, mark, life)))
    }

    fn made(own: Group, leaf: Option<String>, mark: &str, life: &str) -> Result<Arc<Made>, String> {
        let prefix = format!("{JOBS}{:x}-", Brand::of_agent(mark).value());
        let name = format!("{prefix}{life}");
        // This process may have had it before, when it was another agent (see `fleet::separation`).
        if let Ok(before) = own.child(&name) {
            before.kill();
            let _ = own.remove_within(&name, GONE);
        }
        let jobs = own.make(&name).map_err(|error| {
            if let Some(leaf) = &leaf {
                move_back(&own, leaf);
            }
            may_not(&own, &error)
        })?;
        let there = own.read("cgroup.controllers").unwrap_or_default();
        let there: Vec<&str> = there.split_whitespace().collect();
        let hand_on = |group: &Group, controller: &str| {
            let handed_on = group.write("cgroup.subtree_control", &format!("+{controller}"));
            let say = |error: &io::Error| {
                let group = group.path().display();
                tracing::warn!(%group, controller, %error, "a control group does not hand a controller on");
            };
            handed_on.inspect_err(say).is_ok()
        };
        let is_had = |controller: &&str| {
            there.contains(controller) && hand_on(&own, controller) && hand_on(&jobs, controller)
        };
        let controllers: Vec<&str> = CONTROLLERS.into_iter().filter(is_had).collect();
        if controllers.contains(&"cpu") {
            come_last(&jobs);
        }
        for (file, most) in [("cgroup.max.descendants", BELOW_ALL), ("cgroup.max.depth", DEEP)] {
            if let Err(error) = jobs.write(file, most) {
                let group = jobs.path().display();
                tracing::warn!(%group, file, %error, "cannot set a limit of a control group");
            }
        }
        Ok(Arc::new(Made {
            own,
            leaf,
            prefix,
            jobs,
            name,
            controllers,
            limits: Mutex::new(None),
            count: AtomicU32::new(0),
            tasks: Mutex::new(Vec::new()),
            is_without_said: AtomicBool::new(false),
        }))
    }

    /// Whether there are any, as a layer is reported.
    pub fn layer(&self) -> Layer {
        let why = match &self.0 {
            Ok(made) if made.controllers.len() == CONTROLLERS.len() => {
                format!("control groups with {}", made.controllers.join(", "))
            }
            Ok(made) if made.controllers.is_empty() => "control groups, without controllers".to_owned(),
            Ok(made) => format!("control groups with {} alone", made.controllers.join(", ")),
            Err(why) => why.clone(),
        };
        Layer { name: LAYER.to_owned(), on: self.0.is_ok(), why }
    }

    /// The group of all tasks, for whoever outlives this process.
    pub fn jobs(&self) -> Option<&Path> {
        self.0.as_ref().ok().map(|made| made.jobs.path())
    }

    /// Kills and removes what earlier lives of this agent have left here, as far as there is time: a start is
    /// not held up by what a job has made.
    pub fn sweep(&self) {
        let Ok(made) = &self.0 else { return };
        let by = StdInstant::now() + SWEPT;
        for name in made.own.children() {
            let time = by.saturating_duration_since(StdInstant::now());
            if time.is_zero() {
                return;
            }
            if name.starts_with(&made.prefix) && name != made.name {
                if let Ok(left) = made.own.child(&name) {
                    left.kill();
                }
                say(&name, made.own.remove_within(&name, time.min(GONE)));
            } else if is_agents(&name) && made.leaf.as_ref() != Some(&name) {
                // If nobody is in it.
                let _ = made.own.remove_empty(&name);
            }
        }
    }

    /// What tasks may have from now on. Those that run get more at once; they never get less, for the client
    /// ends those that have too much.
    pub(super) fn allow(&self, limits: TaskLimits) {
        let Ok(made) = &self.0 else { return };
        let mut tasks = fallow_daemon::lock(&made.tasks);
        *fallow_daemon::lock(&made.limits) = Some(limits);
        tasks.retain(|task| task.strong_count() > 0);
        for task in tasks.iter().filter_map(Weak::upgrade) {
            task.allow(memory_max(limits.memory, made.ceiling("memory.max")));
        }
    }

    /// A group for a task that is about to be started. None where there are no groups, or none can be made.
    pub(super) fn make(&self, slot: SlotId, urgency: Urgency) -> Option<Arc<TaskGroup>> {
        let Ok(made) = &self.0 else { return None };
        let name = format!("slot-{slot}-{}", made.count.fetch_add(1, Ordering::Relaxed));
        // Limits that change meanwhile wait until it is among the others.
        let mut tasks = fallow_daemon::lock(&made.tasks);
        match made.task(name, urgency) {
            Ok(group) => {
                let group = Arc::new(group);
                tasks.retain(|task| task.strong_count() > 0);
                tasks.push(Arc::downgrade(&group));
                Some(group)
            }
            Err(error) => {
                self.note_without(slot, &error);
                None
            }
        }
    }

    /// Notes that a task runs in no group of its own, though there are groups. It is said once.
    pub(super) fn note_without(&self, slot: SlotId, error: &io::Error) {
        let Ok(made) = &self.0 else { return };
        if !made.is_without_said.swap(true, Ordering::Relaxed) {
            let jobs = made.jobs.path().display();
            tracing::warn!(%jobs, %slot, %error, "a job has no control group of its own, and runs without; this is not said again");
        }
    }
}

impl Made {
    fn has(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }

    fn task(self: &Arc<Self>, name: String, urgency: Urgency) -> io::Result<TaskGroup> {
        let group = self.jobs.make(&name)?;
        // Opened before a job is in it, which could close them.
        let task = TaskGroup {
            procs: group.file("cgroup.procs", true)?,
            kill: group.file("cgroup.kill", true).ok(),
            events: group.file("memory.events", false).ok(),
            cpu: group.file("cpu.stat", false).ok(),
            memory: group.file("memory.max", true).ok(),
            most: AtomicU64::new(u64::MAX),
            made: Arc::clone(self),
            group,
            name,
        };
        if self.has("cpu") && urgency == Urgency::Idle {
            come_last(&task.group);
        }
        if self.has("memory") {
            task.set("memory.oom.group", "1");
            if task.memory.is_none() || task.events.is_none() {
                let group = task.group.path().display();
                tracing::warn!(%group, "the memory of a control group cannot be bounded, for its files cannot be opened");
            }
        }
        if let Some(limits) = *fallow_daemon::lock(&self.limits) {
            task.allow(memory_max(limits.memory, self.ceiling("memory.max")));
            if self.has("pids") {
                let most = processes_max(limits.threads.into(), self.ceiling("pids.max"));
                task.set("pids.max", &most.to_string());
            }
        }
        Ok(task)
    }

    /// The most that the agent's own group and those above it have, as this file of each says. It can be
    /// changed at any time.
    fn ceiling(&self, file: &str) -> Option<u64> {
        // A job may have closed the agent's own, but none above it.
        let own = self.own.read(file).ok();
        let above = self.own.path().ancestors().skip(1);
        let above = above.take_while(|place| place.join("cgroup.procs").exists());
        let above = above.map(|place| std::fs::read_to_string(place.join(file)).ok());
        above.chain([own]).filter_map(|most| most?.trim().parse().ok()).min()
    }
}

impl Drop for Made {
    /// Leaves its group as it was found, as far as nothing is in the way. It takes processes again also where
    /// something is left of a task.
    fn drop(&mut self) {
        self.jobs.kill();
        say(&self.name, self.own.remove_within(&self.name, GONE));
        let Some(leaf) = &self.leaf else { return };
        self.own.take_controllers_back();
        move_back(&self.own, leaf);
    }
}

/// Whether a group is called as those that agents move into (see [`moved`]): another may begin like that.
fn is_agents(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(AGENT).and_then(|rest| rest.split_once('.'));
    numbers.is_some_and(|(pid, start)| is_number(pid) && is_number(start))
}

/// Leaves a group below its own, which is not divided any more.
fn move_back(own: &Group, leaf: &str) {
    if own.write("cgroup.procs", "0").is_ok() {
        // The guard may be in it yet.
        let _ = own.remove(leaf, StdInstant::now() + LEFT);
    }
}

/// Whatever is in the group comes after all that is beside it.
fn come_last(group: &Group) {
    // Before Linux 5.15 there is but the lowest weight.
    let last = group.write("cpu.idle", "1").or_else(|_| group.write("cpu.weight", "1"));
    if let Err(error) = last {
        tracing::warn!(group = %group.path().display(), %error, "a control group is not given the lowest weight");
    }
}

/// What the kernel gives a task that may have so much, where all of the agent has no more than the ceiling.
fn memory_max(allowed: Bytes, ceiling: Option<u64>) -> u64 {
    let max = allowed.0.saturating_add((allowed.0 / MARGIN_PART).max(MARGIN_MIN));
    match ceiling {
        // Where the whole is hit first, the kernel chooses who goes, and no one is said to take too much.
        Some(ceiling) => max.min(ceiling.saturating_sub(AGENTS.min(ceiling / 2))),
        None => max,
    }
}

/// The processes and threads that the kernel gives a task which may have so many, where all of the agent has
/// no more than the ceiling.
fn processes_max(allowed: u64, ceiling: Option<u64>) -> u64 {
    let max = allowed.saturating_mul(PROCESSES);
    match ceiling {
        Some(ceiling) => max.min(ceiling.saturating_sub(OTHERS.min(ceiling / 2))),
        None => max,
    }
}

fn say(name: &str, removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(group = name, %error, "cannot remove a control group; the next start tries again");
    }
}

/// The control group of a task.
#[derive(Debug)]
pub(super) struct TaskGroup {
    made: Arc<Made>,
    name: String,
    group: Group,
    procs: File,
    kill: Option<File>,
    events: Option<File>,
    cpu: Option<File>,
    memory: Option<File>,
    /// The memory that it has at most.
    most: AtomicU64,
}

impl TaskGroup {
    /// By this, a process that was just forked enters it.
    pub(super) fn door(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// The group that is above it and the one that the agent is in.
    pub(super) fn above(&self) -> BorrowedFd<'_> {
        self.made.own.as_fd()
    }

    /// Kills all that is in it, at once.
    pub(super) fn kill(&self) {
        let killed = self.kill.as_ref().is_some_and(|kill| cgroup::write(kill, "1").is_ok());
        if !killed {
            self.group.kill();
        }
    }

    /// The CPU time of all that was ever in it.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let micros = number(&cgroup::read(self.cpu.as_ref()?).ok()?, "usage_usec")?;
        i64::try_from(micros).ok().map(Duration::from_micros)
    }

    /// How much memory it had at most, if the kernel killed it because it needed more than that. One that
    /// was killed for want of memory elsewhere has done no wrong.
    pub(super) fn memory_exceeded(&self) -> Option<Bytes> {
        let events = cgroup::read(self.events.as_ref()?).ok()?;
        let has = |word| number(&events, word).is_some_and(|times| times > 0);
        (has("oom") && has("oom_kill")).then(|| Bytes(self.most.load(Ordering::Relaxed)))
    }

    /// Ends all that is in it, and removes it.
    pub(super) fn end(&self) {
        self.kill();
        say(&self.name, self.made.jobs.remove_within(&self.name, GONE));
    }

    /// Has it have at most so much memory, if that is not less than before.
    fn allow(&self, most: u64) {
        let before = self.most.load(Ordering::Relaxed);
        let Some(memory) = &self.memory else { return };
        if before != u64::MAX && most <= before {
            return;
        }
        match cgroup::write(memory, &most.to_string()) {
            Ok(()) => self.most.store(most, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(group = self.name, %error, "cannot bound the memory of a control group");
            }
        }
    }

    fn set(&self, file: &str, text: &str) {
        if let Err(error) = self.group.write(file, text) {
            tracing::warn!(group = self.name, file, %error, "cannot set a limit of a control group");
        }
    }
}

/// Finds the group of this process and moves into one below it. Returns the first, and the name of the
/// second.
fn moved() -> Result<(Group, String), String> {
    let pid = std::process::id();
    let leaf = format!("{AGENT}{pid}.{}", proc::find(pid).map_or(0, |me| me.start));
    let text = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let mounts = cgroup::mounts(&text("mountinfo"));
    let path = cgroup::path_in(&text("cgroup"));
    let Some(path) = path.filter(|_| !mounts.is_empty()) else {
        return Err("this system has no control groups of version 2".into());
    };
    // It has moved already, and began anew by executing itself.
    let is_in_leaf = path.file_name().is_some_and(|name| name == leaf.as_str());
    let own = if is_in_leaf { path.parent().unwrap_or(&path) } else { &path };
    let Some(place) = cgroup::place(&mounts, own) else {
        return Err(format!("the agent's control group {} cannot be seen from here", own.display()));
    };
    let own =
        Group::open(&place).map_err(|error| format!("{} cannot be opened: {error}", place.display()))?;
    if is_in_leaf {
        return Ok((own, leaf));
    }
    may_divide(&own, pid)?;
    // It is there where this process had it before, and left its guard in it.
    let below = own.child(&leaf).or_else(|_| own.make(&leaf)).map_err(|error| may_not(&own, &error))?;
    if let Err(error) = below.write("cgroup.procs", "0") {
        let _ = own.remove(&leaf, StdInstant::now() + LEFT);
        return Err(format!("the agent cannot move into {}: {error}", below.path().display()));
    }
    Ok((own, leaf))
}

/// Whether a group is this process's own to divide.
fn may_divide(own: &Group, pid: u32) -> Result<(), String> {
    let place = own.path().display();
    if !own.has("cgroup.events") {
        return Err("the agent is in no control group of its own, but in that of the whole machine".into());
    }
    let kind = own.read("cgroup.type").map_err(|error| format!("{place} cannot be read: {error}"))?;
    if kind.trim() != "domain" {
        return Err(format!("the agent's control group {place} is of the kind \"{}\"", kind.trim()));
    }
    let all = own.processes().map_err(|error| format!("{place} cannot be read: {error}"))?;
    if let Some(other) = all.iter().find(|&&other| other != pid) {
        return Err(format!(
            "other processes are in the agent's control group {place}, too, such as {other}"
        ));
    }
    if own.has_unseen().map_err(|error| format!("{place} cannot be read: {error}"))? {
        return Err(format!(
            "processes that cannot be seen from here are in the agent's control group {place}, too"
        ));
    }
    if !is_handed_over(own) {
        return Err(format!("systemd does not say that {place} is handed over to the agent (Delegate=)"));
    }
    Ok(())
}

/// Whether systemd, where it manages groups, leaves this one to whoever is in it: it says so itself, or has
/// given the group to a user who does not have the one above. Where what is above is no group (a container
/// may see none above the agent's), nothing follows from whose that is.
fn is_handed_over(own: &Group) -> bool {
    if !Path::new("/run/systemd/system").exists() {
        return true;
    }
    let says = |name: &str| {
        let mut value = [0; 8];
        let len = rustix::fs::fgetxattr(own, name, &mut value[..]).unwrap_or(0);
        value.get(..len) == Some(b"1")
    };
    let owner = |place: &Path| std::fs::metadata(place).map(|data| data.uid()).ok();
    let me = Some(rustix::process::geteuid().as_raw());
    let above = own.path().parent().filter(|above| above.join("cgroup.procs").exists()).and_then(owner);
    let is_given = owner(own.path()) == me && above.is_some() && above != me;
    says("user.delegate") || says("trusted.delegate") || is_given
}

fn may_not(own: &Group, error: &io::Error) -> String {
    format!("the agent may not make control groups in {}: {error}", own.path().display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_group_has_half_as_much_memory_more_than_its_task_may_and_less_than_what_is_above_it() {
        let gib = |gib: u64| gib << 30;
        let cases = [
            // Enough for a short peak to pass.
            (gib(16), None, gib(24)),
            (gib(16), Some(gib(64)), gib(24)),
            (0, None, MARGIN_MIN),
            (100 << 20, None, 164 << 20),
            // Below the ceiling by what the agent itself takes, or by half where that is more.
            (gib(16), Some(gib(16)), gib(16) - AGENTS),
            (gib(16), Some(100 << 20), 50 << 20),
            (u64::MAX, None, u64::MAX),
        ];
        for (allowed, ceiling, expected) in cases {
            assert_eq!(memory_max(Bytes(allowed), ceiling), expected, "{allowed} {ceiling:?}");
        }
    }

    #[test]
    fn r6_10_a_group_has_twice_the_processes_that_its_task_may_and_less_than_what_is_above_it() {
        let cases = [
            (1_032, None, 2_064),
            (1_032, Some(4_096), 2_064),
            // A host of 128 CPUs.
            (3_048, Some(4_096), 4_096 - OTHERS),
            (1_032, Some(100), 50),
        ];
        for (allowed, ceiling, expected) in cases {
            assert_eq!(processes_max(allowed, ceiling), expected, "{allowed} {ceiling:?}");
        }
    }

    #[test]
    fn only_names_of_a_process_and_its_start_are_agents() {
        let names = ["1.1", "23.456", "1", "1.", ".1", "1.1.1", "1.service", "x.1", ""];
        let are = names.map(|name| is_agents(&format!("{AGENT}{name}")));
        assert_eq!(are, [true, true, false, false, false, false, false, false, false]);
    }
}
