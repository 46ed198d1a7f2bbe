//! The three amounts that a server is told of a small real volume: they are what the policy says of a disk of
//! the same sizes, a server that makes its passes by them sends what then comes, and what they leave no room
//! for costs nobody a file.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc;

use fallow_boinc::scheduler::{DiskUsage, FreeSpace, SchedulerRequest};
use fallow_domain::{Bytes, ProjectId};
use fallow_policy::disk::passes::{ReportedSpace, SpacePass};
use fallow_policy::disk::{Admission, DeletionChoice, DiskReport, DiskUse};

use super::lab::{Input, Job, Lab, MIB, Order};
use super::plan::{
    Amounts, Done, Known, Part, agent, at_rest, done, done_in_all, measured_anew, model, names, others_leave,
};
use super::{Kind, as_child, disk, passes_on};
use crate::daemon::outcome;
use crate::spinning::running;
use crate::support::wait_for;

const BY_PRIORITY: DeletionChoice = DeletionChoice { priority: true, expiration: false };

const A: Input = Input { priority: Some(1), ..Input::kept("a", 20 * MIB) };
const B: Input = Input { priority: Some(5), ..Input::kept("b", 20 * MIB) };
const C: Input = Input { priority: Some(3), ..Input::kept("c", 20 * MIB) };
const MINE_1: Input = Input::kept("mine_1", 15 * MIB);
const MINE_2: Input = Input::kept("mine_2", 14 * MIB);

/// The project that asks is the first one, with three quarters; the other one exceeds its quarter.
struct Labs {
    asks: Lab,
    offends: Lab,
}

impl Labs {
    fn settled(dir: &Path, go: &Path) -> Self {
        let (asks, offends) =
            (Lab::new(75.0, DeletionChoice::default(), go), Lab::new(25.0, BY_PRIORITY, go));
        asks.attach(dir);
        offends.attach(dir);
        asks.sends(dir, [Job::waiting("a_run", Input::passing("a_in", 5 * MIB))]);
        offends.sends(dir, [Job::waiting("o_run", Input::passing("o_in", 5 * MIB))]);
        wait_for("all tasks", || (running(dir).len() == 2).then_some(()));
        for (name, input) in [("o1", A), ("o2", B), ("o3", C)] {
            offends.has_done(dir, Job::short(name, input));
        }
        for (name, input) in [("a1", MINE_1), ("a2", MINE_2)] {
            asks.has_done(dir, Job::short(name, input));
        }
        Self { asks, offends }
    }

    fn parts(&self, gone: &[Done]) -> [Part<'_>; 2] {
        let gone = names(gone);
        let part = |lab, inputs: &[Input]| {
            let left = inputs.iter().filter(|input| !gone.contains(&input.name));
            let known = left.zip(1..).map(|(input, at)| Known { input: input.clone(), came: at, used: at });
            Part { lab, files: known.collect(), queued: Vec::new() }
        };
        [part(&self.asks, &[MINE_1, MINE_2]), part(&self.offends, &[A, B, C])]
    }

    /// What the asking project is told is what the policy has for a disk of the sizes that are told. Gives
    /// that disk, and what was told.
    fn told(&self, dir: &Path) -> (DiskUse, FreeSpace) {
        let found = at_rest(dir);
        let told = self.asks.hears(dir).disk_usage;
        let free = told.free.unwrap();
        let shown = |key: &str| Bytes(found[key].as_u64().unwrap());
        assert!(free.now.0.abs_diff(shown("free").0) < MIB, "{told:?} {found}");
        assert!(told.d_boinc_used_total.0.abs_diff(shown("used").0) < MIB, "{told:?} {found}");
        let parts = self.parts(&done(dir));
        // Of what the parts are parts is known to three bytes, and only one of them can be it.
        let all = (0..4).map(|more| (told.d_project_share.0 * 4).div_ceil(3) + more);
        let disks = all.map(|all| disk_of(&parts, &told, all));
        let mut same = disks.filter(|disk| disk.report(ProjectId(0)) == report(&told));
        let disk = same.next();
        (disk.unwrap_or_else(|| panic!("{told:?} {found}")), free)
    }
}

fn report(told: &DiskUsage) -> DiskReport {
    let FreeSpace { now, with_offenders, with_self } = told.free.unwrap();
    DiskReport {
        free: now,
        with_offenders,
        with_self,
        used_total: told.d_boinc_used_total,
        used_project: told.d_boinc_used_project,
        project_limit: told.d_project_share,
    }
}

/// What goes for a file that is to come.
fn makes_room(admission: &Admission) -> Vec<&str> {
    admission.deletions().iter().map(|deletion| deletion.name.as_str()).collect()
}

/// A disk that leaves projects so much in all, of which is used what was told.
fn disk_of(parts: &[Part<'_>], told: &DiskUsage, all: u64) -> DiskUse {
    let projects = all - told.free.unwrap().now.0;
    let own = told.d_boinc_used_total.0 - projects;
    let mine = told.d_boinc_used_project.0;
    model(parts, &[mine, projects - mine], Amounts { own, limit: all + own })
}

/// A server with jobs of these inputs, the first of which that fits is sent; and the pass in which it does.
fn by_passes(
    request: &SchedulerRequest,
    from_self: bool,
    jobs: &[(&'static str, Input); 2],
) -> (Option<SpacePass>, Order) {
    let FreeSpace { now, with_offenders, with_self } = request.disk_usage.free.unwrap();
    let amounts = ReportedSpace { free: now, with_offenders, with_self };
    let fitting = |_, space: Bytes| {
        let fits = jobs.iter().find(|(_, input)| Bytes(input.bytes) <= space);
        Ok::<_, Infallible>(fits.cloned().into_iter().collect::<Vec<_>>())
    };
    let assigned = amounts.assign(from_self, fitting).unwrap();
    let pass = assigned.as_ref().map(|(pass, _)| *pass);
    let jobs = assigned.into_iter().flat_map(|(_, jobs)| jobs);
    (pass, Order::of(jobs.map(|(name, input)| Job::short(name, input))))
}

/// Has the asking project send what fits of these, and waits until that is done.
fn assigns(labs: &Labs, dir: &Path, from_self: bool, jobs: [(&'static str, Input); 2]) -> Option<SpacePass> {
    let (tell, told) = mpsc::channel();
    let reported = labs.asks.reports().len();
    labs.asks.says(move |request| {
        let (pass, order) = by_passes(request, from_self, &jobs);
        tell.send(pass).unwrap();
        order
    });
    let pass = labs.asks.asked_until(dir, "an answer", || told.try_recv().ok());
    if pass.is_some() {
        labs.asks.asked_until(dir, "the report", || (labs.asks.reports().len() > reported).then_some(()));
        let report = labs.asks.reports().pop().unwrap();
        assert_eq!(report.exit_status, 0, "{report:?}");
    }
    labs.asks.hears(dir);
    pass
}

fn child_tells(volume: &Path) {
    let dir = &volume.join("agent");
    let elsewhere = tempfile::tempdir().unwrap();
    let [log, go] = ["log", "go"].map(|name| elsewhere.path().join(name));
    let _daemon = agent(dir, &log);
    disk(dir);
    let why = || outcome(dir, &["disk", "--why"]).1;
    let labs = Labs::settled(dir, &go);
    others_leave(dir, volume, 120 * MIB);
    let (policy, free) = labs.told(dir);
    let near = |amount: Bytes, mebibytes: u64| amount.0.abs_diff(mebibytes * MIB) < 4 * MIB;
    assert!(near(free.now, 19) && near(free.with_offenders, 59) && near(free.with_self, 88), "{free:?}");

    // More than all that: it does not come, and nothing goes for it.
    let too_large = free.with_self.0 + 5 * MIB;
    assert!(!policy.admit(ProjectId(0), Bytes(too_large)).is_accepted());
    labs.asks.sends(dir, [Job::short("too_large", Input::passing("large", too_large))]);
    wait_for("a refusal", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().any(|line| line.contains("large: ") && line.contains("do not fit")).then_some(())
    });
    measured_anew(dir);
    assert_eq!(done(dir), []);
    labs.asks.says(|_| Order { aborted: vec!["too_large"], ..Order::default() });
    labs.asks.asked_until(dir, "the end of it", || labs.asks.report("too_large_0"));

    // What is free is used first: nothing goes.
    let passing = |name, mebibytes: u64| (name, Input::passing(name, mebibytes * MIB));
    let pass = assigns(&labs, dir, true, [passing("fifty", 50), passing("twelve", 12)]);
    assert_eq!((pass, done(dir)), (Some(SpacePass::Free), vec![]));

    // Then who exceeds its part gives way, the lowest priority first, and only until it no longer does.
    let (policy, _) = labs.told(dir);
    let plan = policy.admit(ProjectId(0), Bytes(50 * MIB));
    assert_eq!(makes_room(&plan), ["a", "c"]);
    let pass = assigns(&labs, dir, true, [passing("seventy", 70), passing("fifty", 50)]);
    assert_eq!(pass, Some(SpacePass::WithOffenders));
    let gone = done_in_all(dir, 2);
    assert_eq!(names(&gone), makes_room(&plan), "{}", why());
    let asks = labs.asks.url();
    let deeds = disk(dir)["deeds"].to_string();
    assert!(deeds.contains(&format!("{asks} needs room")) && deeds.contains("it exceeds its disk limit of"));
    let (policy, free) = labs.told(dir);
    assert_eq!(free.now, free.with_offenders, "nobody exceeds its part any more");

    // Then its own, if it wants that.
    let jobs = || [passing("ninety", 95), passing("eighty", 78)];
    assert_eq!(assigns(&labs, dir, false, jobs()), None);
    let plan = policy.admit(ProjectId(0), Bytes(78 * MIB));
    assert_eq!(makes_room(&plan), ["mine_1", "mine_2"]);
    assert_eq!(assigns(&labs, dir, true, jobs()), Some(SpacePass::WithSelf));
    let gone = done_in_all(dir, 4);
    assert_eq!(names(&gone[2..]), makes_room(&plan), "{}", why());
    assert!(disk(dir)["deeds"].to_string().contains("its project needs room"));
    let (_, free) = labs.told(dir);
    assert_eq!((free.now, free.now), (free.with_offenders, free.with_self), "nothing of it can go");
    // The file of the highest priority stayed, for its project had become none that exceeds its part.
    let kept = labs.offends.hears(dir).sticky_files;
    assert!(kept.iter().any(|file| file.name == "b" && file.status == 1), "{kept:?}");
    assert!(!kept.iter().any(|file| file.name == "a" || file.name == "c"), "{kept:?}");
    assert_eq!(running(dir).len(), 2);
}

#[test]
fn child_telling() {
    as_child(child_tells);
}

/// Shows R4.4, R4.10.
#[test]
fn r4_9_on_a_tmpfs_a_server_is_told_what_would_be_free_and_what_it_sends_by_that_comes() {
    passes_on(Kind::Tmpfs, 1_400, "small_disk::amounts::child_telling");
}

/// Shows R4.4, R4.10.
#[test]
fn r4_9_on_an_ext4_a_server_is_told_what_would_be_free_and_what_it_sends_by_that_comes() {
    passes_on(Kind::Ext4, 1_400, "small_disk::amounts::child_telling");
}
