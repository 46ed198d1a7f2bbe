//! Control groups for tasks (R6.10): one for each, below the agent's own, where that is handed over to it.
//!
//! Model: a group of version 2 either holds processes or hands controllers on. So the agent moves into a
//! group below its own (`fallow-agent-PID.START`), and those of tasks lie beside that, in one for this life
//! of the agent (`fallow-jobs-AGENT-LIFE`):
//!
//! - a task is in its group before its program is executed, and whatever comes of it stays there. It is
//!   killed as one, and the group goes when it is empty;
//! - `cpu`: all tasks come after the agent, and those at idle priority after those that feed a GPU. What all
//!   of it is worth beside its neighbours is the agent's own group's weight. All tasks together keep no more
//!   CPUs busy than the preferences leave them, however many threads they have;
//! - `memory`: half as much again as the most that the client lets a task have, for the client, which looks
//!   once a second, lets short peaks pass, and sees most excess first. One that is faster is killed by the
//!   kernel, alone and as a whole. What is above the agent's group may hold it to less: then the kernel is
//!   the first to see it;
//! - `pids`: twice what the client lets it have, for the same reason;
//! - all tasks together have somewhat less memory and fewer processes than what is above the agent's group
//!   has, so that the agent can go on whatever they do. Changes above are followed.
//!
//! A controller that is not there is done without, and so is a group that cannot be made or entered: the
//! looks hold tasks to the same limits, and no task is failed for want of a group. The layer is off then,
//! until a task is in its group again. Where preferences require it no task is begun meanwhile, and so it is
//! tried now and then. Groups that are not below the agent's own are never touched. Other agents', and those
//! of other lives, are told by their names.
//!
//! Nobody waits without end for what a job has made below its group: what is not gone in time stays, and is
//! tried again with the next task and at the next start.
//!
//! Left out: the freezer, as signals stop as soon (see [`super::freezer`]); parts of a CPU's time, which the
//! client keeps by pauses; `memory.high`, beyond which the kernel has a process sleep for up to two seconds,
//! in which it cannot be stopped for somebody; bandwidth of disks.

mod bounds;
mod division;
mod lack;
mod task_group;

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use fallow_client::TaskLimits;
use fallow_domain::SlotId;

use crate::brand::Brand;
use crate::cgroup::{self, Group};
use crate::confine::Layer;
use crate::sys::{self, Urgency};
use bounds::{all_memory, all_processes, cpu_max, memory_max, processes_max};
use division::{is_agents, may_not, move_back, moved};
use lack::Lack;
pub(super) use task_group::{Door, TaskGroup};

/// The name by which it is reported beside the layers of confinement.
pub const LAYER: &str = "groups";
/// The controllers that are used.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The beginning of the name of the group of all tasks.
const JOBS: &str = "fallow-jobs-";
/// How long the last process of a group may take to be gone, and all groups below that.
const GONE: StdDuration = StdDuration::from_secs(5);
/// How long a start looks after what earlier lives have left, at most.
const SWEPT: StdDuration = StdDuration::from_secs(10);
/// How long the start of a task looks after what is left of earlier ones, at most.
const LEFT: StdDuration = StdDuration::from_millis(50);
/// So many groups that are left are tried again.
const LEFT_MAX: usize = 1_000;
/// How often it is looked what is above the agent's group.
const FOLLOW: StdDuration = StdDuration::from_secs(10);
/// Most groups below that of all tasks, and below one task's, and how deep these lie: no more than can be
/// removed in time, where nothing else keeps a job from making any.
const BELOW_ALL: &str = "16384";
const BELOW_ONE: &str = "1024";
const DEEP: &str = "32";

/// The groups of an agent.
#[derive(Debug)]
pub struct Groups(Result<Arc<Made>, String>);

/// What there is where they can be had.
#[derive(Debug)]
struct Made {
    own: Group,
    /// Those of its files whose modes a job may change.
    own_files: Vec<CString>,
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
    /// What all tasks may have together, as it was said last.
    bounds: Mutex<Bounds>,
    /// Names of groups of tasks that could not be removed in time.
    left: Mutex<Vec<String>>,
    lack: Lack,
    is_without_said: AtomicBool,
}

/// What all tasks may have together: memory in bytes, processes, and CPUs. None is as much as they like.
#[derive(Debug, Default)]
struct Bounds {
    memory: Option<u64>,
    processes: Option<u64>,
    cpus: Option<u32>,
    at: Option<StdInstant>,
}

impl Groups {
    /// None, for this reason.
    pub fn none(why: impl Into<String>) -> Self {
        Self(Err(why.into()))
    }

    /// Looks whether the group of this process is its own to divide, and makes what is needed there. `mark`
    /// and `life` say whose it is (see [`super::life_mark`]). Where a task could have no group, it is tried
    /// `again` so long after.
    pub fn at_start(mark: &str, life: &str, again: StdDuration) -> Self {
        Self(moved().and_then(|(own, leaf)| Self::made(own, Some(leaf), (mark, life), again)))
    }

    /// Makes what is needed below a group that this process is not in.
    pub fn below(place: &Path, mark: &str, life: &str, again: StdDuration) -> Self {
        let own =
            Group::open(place).map_err(|error| format!("{} cannot be opened: {error}", place.display()));
        Self(own.and_then(|own| Self::made(own, None, (mark, life), again)))
    }

    fn made(
        own: Group,
        leaf: Option<String>,
        (mark, life): (&str, &str),
        again: StdDuration,
    ) -> Result<Arc<Made>, String> {
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
        set(&jobs, "cgroup.max.descendants", BELOW_ALL);
        set(&jobs, "cgroup.max.depth", DEEP);
        let made = Made {
            own_files: own.own_files().unwrap_or_default(),
            own,
            leaf,
            prefix,
            jobs,
            name,
            controllers,
            limits: Mutex::new(None),
            count: AtomicU32::new(0),
            tasks: Mutex::new(Vec::new()),
            bounds: Mutex::default(),
            left: Mutex::new(Vec::new()),
            lack: Lack::none(again),
            is_without_said: AtomicBool::new(false),
        };
        made.bound_all();
        Ok(Arc::new(made))
    }

    /// Whether there are any, as a layer is reported.
    pub fn layer(&self) -> Layer {
        let lack = self.0.as_ref().ok().and_then(|made| made.lack.why());
        let on = self.0.is_ok() && lack.is_none();
        let why = match &self.0 {
            Ok(_) if lack.is_some() => lack.unwrap_or_default(),
            Ok(made) if made.controllers.len() == CONTROLLERS.len() => {
                format!("control groups with {}", made.controllers.join(", "))
            }
            Ok(made) if made.controllers.is_empty() => "control groups, without controllers".to_owned(),
            Ok(made) => format!("control groups with {} alone", made.controllers.join(", ")),
            Err(why) => why.clone(),
        };
        Layer { name: LAYER.to_owned(), on, why }
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
                say(&name, &made.own.remove_within(&name, time.min(GONE)));
            } else if is_agents(&name) && made.leaf.as_ref() != Some(&name) {
                // If nobody is in it.
                let _ = made.own.remove_empty(&name);
            }
        }
    }

    /// What tasks may have from now on. Those that run get more at once, and fewer CPUs; they never get less
    /// memory, for the client ends those that have too much.
    pub(super) fn allow(&self, limits: TaskLimits) {
        let Ok(made) = &self.0 else { return };
        let tasks = fallow_daemon::lock(&made.tasks);
        *fallow_daemon::lock(&made.limits) = Some(limits);
        made.bound_cpus(limits.cpus);
        made.follow(tasks.iter().filter_map(Weak::upgrade));
    }

    /// Has tasks have what there is above the agent's group, which may have been changed. To be called at
    /// each look, while there are tasks: it is looked now and then.
    pub(super) fn follow(&self) {
        let Ok(made) = &self.0 else { return };
        if fallow_daemon::lock(&made.bounds).at.is_none_or(|at| at.elapsed() >= FOLLOW) {
            let tasks = fallow_daemon::lock(&made.tasks);
            made.follow(tasks.iter().filter_map(Weak::upgrade));
        }
    }

    /// Sees to it that other users change nothing in groups, whatever modes a job has given them. How many
    /// were not right.
    pub(super) fn keep_modes(&self) -> usize {
        let Ok(made) = &self.0 else { return 0 };
        let below: Vec<&str> = made.leaf.as_deref().into_iter().chain([made.name.as_str()]).collect();
        made.own.close_to_others(&made.own_files, &below)
    }

    /// A group for a task that is about to be started, and the way into it. None where there are no groups.
    ///
    /// # Errors
    /// The system's, where none can be made.
    pub(super) fn make(&self, slot: SlotId, urgency: Urgency) -> io::Result<Option<(Arc<TaskGroup>, Door)>> {
        let Ok(made) = &self.0 else { return Ok(None) };
        made.remove_left();
        let name = format!("slot-{slot}-{}", made.count.fetch_add(1, Ordering::Relaxed));
        // Limits that change meanwhile wait until it is among the others.
        let mut tasks = fallow_daemon::lock(&made.tasks);
        let (group, door) = made.task(&name, urgency)?;
        let group = Arc::new(group);
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(&group));
        Ok(Some((group, door)))
    }

    /// Notes that a task could have no group of its own, though there are groups. It is said once.
    pub(super) fn lack(&self, slot: SlotId, error: &io::Error) {
        let Ok(made) = &self.0 else { return };
        made.lack.note(error);
        if !made.is_without_said.swap(true, Ordering::Relaxed) {
            let jobs = made.jobs.path().display();
            tracing::warn!(%jobs, %slot, %error, "a job can have no control group of its own; it runs without unless preferences require it; this is not said again");
        }
    }

    /// Notes that a task is in its group.
    pub(super) fn entered(&self) {
        if let Ok(made) = &self.0 {
            made.lack.end();
        }
    }

    /// Where tasks could have no groups, tries whether they can by now, if that is due. A task that starts
    /// has it tried as well.
    pub fn look_again(&self) {
        if let Ok(made) = &self.0
            && made.lack.due_in() == Some(StdDuration::ZERO)
        {
            made.lack.looked(&made.try_entering());
        }
    }

    /// How long until that is due. None where there is nothing to look for.
    pub fn look_due_in(&self) -> Option<StdDuration> {
        self.0.as_ref().ok()?.lack.due_in()
    }
}

impl Made {
    fn has(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }

    fn task(self: &Arc<Self>, name: &str, urgency: Urgency) -> io::Result<(TaskGroup, Door)> {
        let group = self.jobs.make(name)?;
        if self.has("cpu") && urgency == Urgency::Idle {
            come_last(&group);
        }
        set(&group, "cgroup.max.descendants", BELOW_ONE);
        if self.has("memory") {
            set(&group, "memory.oom.group", "1");
        }
        let limits = *fallow_daemon::lock(&self.limits);
        self.bound_all();
        let counts_processes = limits.filter(|_| self.has("pids")).is_some_and(|limits| {
            let most = processes_max(limits.threads.into(), self.own.ceiling(cgroup::PROCESSES));
            set(&group, "pids.max", &most.to_string())
        });
        // Without a way into it, it is of no use.
        let (task, door) = TaskGroup::of(self, name.to_owned(), group, counts_processes)
            .inspect_err(|_| self.remove(name, LEFT))?;
        if let Some(most) = self.memory_max() {
            task.allow(most);
        }
        Ok((task, door))
    }

    /// Tries whether a process can enter a group that is made for it.
    ///
    /// # Errors
    /// The system's, where it cannot.
    fn try_entering(&self) -> io::Result<()> {
        let name = format!("look-{}", self.count.fetch_add(1, Ordering::Relaxed));
        let group = self.jobs.make(&name)?;
        let entered = group
            .file("cgroup.procs", true)
            .and_then(|door| sys::try_entering(door.as_fd(), self.own.as_fd()));
        self.remove(&name, LEFT);
        entered
    }

    /// What a task may have of memory now, in bytes. None where nothing bounds it.
    fn memory_max(&self) -> Option<u64> {
        let limits = *fallow_daemon::lock(&self.limits);
        let limits = limits.filter(|_| self.has("memory"))?;
        Some(memory_max(limits.memory, self.own.ceiling(cgroup::MEMORY)))
    }

    /// Has all tasks have together, and these each, what there is above the agent's group now.
    fn follow(&self, tasks: impl Iterator<Item = Arc<TaskGroup>>) {
        self.bound_all();
        if let Some(most) = self.memory_max() {
            tasks.for_each(|task| task.allow(most));
        }
    }

    /// Leaves the agent its part of what is above its group: without that, tasks that fork or take memory
    /// leave it no thread, or its own pages are taken.
    fn bound_all(&self) {
        let mut bounds = fallow_daemon::lock(&self.bounds);
        bounds.at = Some(StdInstant::now());
        let memory = self.has("memory").then(|| self.own.ceiling(cgroup::MEMORY)).flatten().map(all_memory);
        let processes =
            self.has("pids").then(|| self.own.ceiling(cgroup::PROCESSES)).flatten().map(all_processes);
        let say = |most: Option<u64>| most.map_or_else(|| "max".to_owned(), |most| most.to_string());
        if std::mem::replace(&mut bounds.memory, memory) != memory {
            set(&self.jobs, "memory.max", &say(memory));
        }
        if std::mem::replace(&mut bounds.processes, processes) != processes {
            set(&self.jobs, "pids.max", &say(processes));
        }
    }

    /// Has all tasks together keep so many CPUs busy at most.
    fn bound_cpus(&self, cpus: Option<u32>) {
        let mut bounds = fallow_daemon::lock(&self.bounds);
        if self.has("cpu") && bounds.cpus != cpus {
            set(&self.jobs, "cpu.max", &cpu_max(cpus));
            bounds.cpus = cpus;
        }
    }

    /// Removes the group of a task in which all is killed. What is not gone in time is left.
    fn remove(&self, name: &str, patience: StdDuration) {
        let removed = self.jobs.remove_within(name, patience);
        say(name, &removed);
        let mut left = fallow_daemon::lock(&self.left);
        if removed.is_err() && left.len() < LEFT_MAX {
            left.push(name.to_owned());
        }
    }

    /// Tries again to remove what is left, as far as there is time for it.
    fn remove_left(&self) {
        let by = StdInstant::now() + LEFT;
        let mut left = std::mem::take(&mut *fallow_daemon::lock(&self.left));
        left.retain(|name| {
            if StdInstant::now() >= by {
                return true;
            }
            let Ok(group) = self.jobs.child(name) else { return self.jobs.remove(name, by).is_err() };
            group.kill();
            self.jobs.remove(name, by).is_err()
        });
        fallow_daemon::lock(&self.left).append(&mut left);
    }
}

impl Drop for Made {
    /// Leaves its group as it was found, as far as nothing is in the way. It takes processes again also where
    /// something is left of a task.
    fn drop(&mut self) {
        self.jobs.kill();
        say(&self.name, &self.own.remove_within(&self.name, GONE));
        let Some(leaf) = &self.leaf else { return };
        self.own.take_controllers_back();
        move_back(&self.own, leaf);
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

/// Whether it was set.
fn set(group: &Group, file: &str, text: &str) -> bool {
    let written = group.write(file, text);
    if let Err(error) = &written {
        let group = group.path().display();
        tracing::warn!(%group, file, %error, "cannot set a limit of a control group");
    }
    written.is_ok()
}

fn say(name: &str, removed: &io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(group = name, %error, "cannot remove a control group; it is tried again later");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups in plain files: `jobs` is that of all tasks.
    fn made(place: &Path) -> Arc<Made> {
        let own = Group::open(place).unwrap();
        Arc::new(Made {
            jobs: own.child("jobs").unwrap(),
            own,
            own_files: Vec::new(),
            leaf: None,
            prefix: JOBS.into(),
            name: "jobs".into(),
            controllers: CONTROLLERS.to_vec(),
            limits: Mutex::default(),
            count: AtomicU32::default(),
            tasks: Mutex::default(),
            bounds: Mutex::default(),
            left: Mutex::default(),
            lack: Lack::none(StdDuration::ZERO),
            is_without_said: AtomicBool::default(),
        })
    }

    #[test]
    fn r6_2_a_task_is_bound_only_where_the_kernel_limits_both_its_memory_and_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let slot = dir.path().join("jobs/slot");
        std::fs::create_dir_all(&slot).unwrap();
        for place in [dir.path(), &slot] {
            std::fs::write(place.join("cgroup.procs"), "").unwrap();
        }
        std::fs::write(slot.join("memory.max"), "").unwrap();
        let made = made(dir.path());
        for counts_processes in [false, true] {
            let group = made.jobs.child("slot").unwrap();
            let (task, _door) = TaskGroup::of(&made, "slot".into(), group, counts_processes).unwrap();
            assert!(!task.is_bound(), "it may have all memory");
            task.allow(1_000);
            assert_eq!(task.is_bound(), counts_processes);
        }
        // A limit that could not be set bounds nothing.
        let group = made.jobs.child("slot").unwrap();
        assert!(set(&group, "memory.max", "1") && !set(&group, "pids.max", "1"));
    }

    /// In plain files, for few machines that run tests hand these controllers on; the virtual machine of
    /// `e2e/vm/unit` does.
    #[test]
    fn r6_10_what_all_tasks_have_together_follows_what_is_above_the_agents_group() {
        let dir = tempfile::tempdir().unwrap();
        let (place, all) = (dir.path().join("unit"), dir.path().join("unit/jobs"));
        std::fs::create_dir_all(&all).unwrap();
        let above = |memory: &str, processes: &str| {
            std::fs::write(dir.path().join("memory.max"), memory).unwrap();
            std::fs::write(place.join("pids.max"), processes).unwrap();
        };
        for place in [dir.path(), &place] {
            std::fs::write(place.join("cgroup.procs"), "").unwrap();
        }
        for file in ["memory.max", "pids.max", "cpu.max"] {
            std::fs::write(all.join(file), "").unwrap();
        }
        let now = || ["memory.max", "pids.max"].map(|file| std::fs::read_to_string(all.join(file)).unwrap());
        let groups = Groups(Ok(made(&place)));
        groups.follow();
        assert_eq!(now(), ["", ""], "nothing bounds it");
        above("2000000000\n", "4096\n");
        groups.follow();
        assert_eq!(now(), ["", ""], "it is not looked each second");
        let cpus = || std::fs::read_to_string(all.join("cpu.max")).unwrap();
        let allow = |cpus| groups.allow(TaskLimits { memory: fallow_domain::Bytes(1), threads: 1, cpus });
        allow(None);
        assert_eq!(now(), ["1932891136", "3584"]);
        assert_eq!(cpus(), "", "all CPUs are theirs");
        allow(Some(3));
        assert_eq!(cpus(), "30000 10000");
        std::fs::write(all.join("cpu.max"), "").unwrap();
        allow(None);
        assert_eq!(cpus(), "max 10000");
        above("3000000000\n", "8192\n");
        fallow_daemon::lock(&groups.0.as_ref().unwrap().bounds).at = None;
        groups.follow();
        assert_eq!(now(), ["2932891136", "7680"]);
    }

    #[test]
    fn r6_10_where_a_task_could_have_no_group_the_layer_is_off_until_a_process_can_enter_one_again() {
        let mounts = cgroup::mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        let name = format!("guest-test-lack-{}", std::process::id());
        let made = mounts.iter().find_map(|(_, at)| {
            let parent = Group::open(at).ok()?;
            Some((parent.make(&name).ok()?, parent))
        });
        let Some((place, parent)) = made else {
            return println!("skipped: this user can make no control group of version 2");
        };
        let again = StdDuration::from_secs(600);
        for (again, expected) in [(again, false), (StdDuration::ZERO, true)] {
            let groups = Groups::below(place.path(), "/agent:1.2:", "now", again);
            assert!(groups.layer().on && groups.look_due_in().is_none());
            groups.lack(SlotId(0), &io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            let Layer { on, why, .. } = groups.layer();
            assert!(!on && why.contains("not supported"), "{why}");
            groups.look_again();
            assert_eq!(groups.layer().on, expected, "asked again after {again:?}");
            // On a busy machine who tried may not be gone yet: then it is known what is to be removed.
            let made = groups.0.as_ref().unwrap();
            let known = fallow_daemon::lock(&made.left).clone();
            assert!(made.jobs.children().iter().all(|group| known.contains(group)), "{known:?}");
        }
        parent.remove_within(&name, StdDuration::from_secs(60)).unwrap();
    }

    #[test]
    fn r6_10_what_is_left_of_a_task_is_removed_when_the_next_one_starts() {
        let mounts = cgroup::mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        let name = format!("guest-test-left-{}", std::process::id());
        let made = mounts.iter().find_map(|(_, at)| {
            let parent = Group::open(at).ok()?;
            Some((parent.make(&name).ok()?, parent))
        });
        let Some((place, parent)) = made else {
            return println!("skipped: this user can make no control group of version 2");
        };
        let groups = Groups::below(place.path(), "/agent:1.2:", "now", StdDuration::ZERO);
        let (first, door) = groups.make(SlotId(0), Urgency::Idle).unwrap().unwrap();
        drop(door);
        let made = Arc::clone(groups.0.as_ref().unwrap());
        let (second, _) = groups.make(SlotId(1), Urgency::Idle).unwrap().unwrap();
        second.end();
        assert_eq!(made.jobs.children(), ["slot-0-0"]);
        // As if it could not be removed at its end.
        made.jobs.child("slot-0-0").unwrap().make("inner").unwrap();
        fallow_daemon::lock(&made.left).push("slot-0-0".into());
        let (third, _) = groups.make(SlotId(0), Urgency::Idle).unwrap().unwrap();
        assert_eq!(made.jobs.children(), ["slot-0-2"]);
        assert!(fallow_daemon::lock(&made.left).is_empty());
        drop((first, second, third));
        drop((made, groups));
        parent.remove_within(&name, StdDuration::from_secs(60)).unwrap();
    }
}
