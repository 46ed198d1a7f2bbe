//! What the policy alone plans for a disk of the same sizes, beside what the real agent did.

use std::path::Path;
use std::process::{Command, Stdio};

use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId, ProjectId, Share};
use fallow_policy::disk::{
    Deletion, DiskJob, DiskUse, FileAttributes, JobStage, OwnerDisk, Priority, ShrinkPlan, ShrinkStep,
    TotalLimit, Volume,
};
use serde_json::Value;

use super::lab::{Input, Lab};
use super::{disk, leave};
use crate::attach::status;
use crate::daemon::{Daemon, command};
use crate::support::wait_for;

/// What stays free by the default preferences.
pub(super) const FREE_MIN: u64 = 1 << 30;

/// An agent that looks at the disk twice a second, whose jobs see what a test tells them.
pub(super) fn agent(dir: &Path, log: &Path) -> Daemon {
    let options = ["run", "--measure-disk-ms", "500", "--benchmark-after-ms", "10000000", "--unconfined"];
    let mut run = command(dir, &options);
    run.stdout(Stdio::null()).stderr(std::fs::File::create(log).unwrap());
    Daemon::of(run, dir)
}

/// One thing that was done about the disk: with what, of how many bytes, by which rule. Amounts in a rule's
/// words are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Deleted(String, String, String),
    GaveBack(String),
}

impl Done {
    fn of_deed(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("gave ") {
            return Some(Self::GaveBack(name.split(' ').next()?.to_owned()));
        }
        let (name, rest) = text.strip_prefix("deleted ")?.split_once(" (")?;
        let (bytes, rest) = rest.split_once("): ")?;
        Some(Self::Deleted(name.to_owned(), bytes.to_owned(), words(rest.split(';').next()?)))
    }

    fn of_deletion(Deletion { name, bytes, rule, .. }: &Deletion) -> Self {
        Self::Deleted(name.clone(), bytes.to_string(), words(&rule.to_string()))
    }

    /// What it was done to.
    pub(super) fn name(&self) -> &str {
        let (Self::Deleted(name, ..) | Self::GaveBack(name)) = self;
        name
    }
}

fn words(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit() && *letter != '.').collect()
}

/// What the agent did of that kind since it was started.
pub(super) fn done(dir: &Path) -> Vec<Done> {
    let found = disk(dir);
    let deeds = found["deeds"].as_array().unwrap().iter();
    deeds.filter_map(|deed| Done::of_deed(deed["text"].as_str().unwrap())).collect()
}

pub(super) fn names(done: &[Done]) -> Vec<&str> {
    done.iter().map(Done::name).collect()
}

/// Waits until so much was done, and then for another measurement: nothing else may be done by that.
pub(super) fn done_in_all(dir: &Path, count: usize) -> Vec<Done> {
    wait_for("what is to be done about the disk", || (done(dir).len() >= count).then_some(()));
    measured_anew(dir);
    done(dir)
}

/// Waits for another measurement. On a busy machine that may take a while: it rests for as long as it takes.
pub(super) fn measured_anew(dir: &Path) {
    let at = disk(dir)["measured_at"].as_f64();
    wait_for("another measurement", || (disk(dir)["measured_at"].as_f64() > at).then_some(()));
}

/// What is on the disk once it is known what is free there.
pub(super) fn at_rest(dir: &Path) -> Value {
    wait_for("a disk at rest", || {
        let found = disk(dir);
        let of = |key: &str| found[key].as_u64().unwrap();
        let by_volume = (of("used") + of("volume_free")).saturating_sub(FREE_MIN);
        (by_volume.abs_diff(of("limit")) < 200_000).then_some(found)
    })
}

/// Others write to the volume until the limit is this. They do so in one go, as far as the agent sees.
pub(super) fn others_leave(dir: &Path, volume: &Path, limit: u64) -> Value {
    let found = at_rest(dir);
    let pid = status(dir)["pid"].to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    leave(volume, FREE_MIN + limit - found["used"].as_u64().unwrap());
    signal("-CONT");
    found
}

/// A file that no job needs, or that queued ones do: how its project described it, and the order in which it
/// came and was used among those of its project.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) input: Input,
    pub(super) came: i64,
    pub(super) used: i64,
}

/// A project as the policy has it.
pub(super) struct Part<'a> {
    pub(super) lab: &'a Lab,
    pub(super) files: Vec<Known>,
    /// Jobs that wait: each by its name, its deadline in days, and its input among the files.
    pub(super) queued: Vec<(&'static str, i64, &'static str)>,
}

/// What the agent says that it uses, and the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amounts {
    pub(super) own: u64,
    pub(super) limit: u64,
}

/// A disk of the policy's, of these projects, each of which uses so many bytes.
pub(super) fn model(parts: &[Part<'_>], used: &[u64], Amounts { own, limit }: Amounts) -> DiskUse {
    let at = |order: i64| Instant::from_secs_f64(1_000.0) + Duration::from_secs(order);
    let mut disk = DiskUse::default();
    disk.advance(at(1_000_000));
    disk.set_own_usage(Bytes(own));
    let owner = OwnerDisk { used_max: None, fraction: Fraction::ONE, free_min: Bytes(0) };
    let volume = Volume::measured(at(0), Bytes(1 << 40), Bytes(limit), Bytes(0)).unwrap();
    disk.set_total_limit(TotalLimit::new(&owner, &volume));
    for ((part, used), number) in parts.iter().zip(used).zip(0..) {
        let project = ProjectId(number);
        disk.set_project(project, Share::new(part.lab.share).unwrap(), part.lab.choice);
        for Known { input, came, used } in &part.files {
            let mut attributes = FileAttributes::arriving(Bytes(input.bytes), at(*came));
            attributes = attributes.with_priority(Priority::nearest(input.priority.unwrap_or(1)));
            if let Some(days) = input.exp_days {
                attributes = attributes.with_lifetime_days(days);
            }
            attributes.last_used = at(*used);
            disk.add_file(project, input.name, attributes);
        }
        let files: u64 = part.files.iter().map(|file| file.input.bytes).sum();
        disk.set_other_usage(project, Bytes(used.checked_sub(files).unwrap()));
        for ((_, days, file), job) in part.queued.iter().zip(0..) {
            let job = JobId(u64::from(number) * 100 + job);
            let files = disk.file_id(project, file).into_iter().collect();
            let deadline = at(0) + Duration::from_hours(24 * days);
            disk.set_job(job, DiskJob { project, stage: JobStage::Queued, deadline, files });
        }
    }
    disk
}

/// The same where a disk was found so, and others have then left so much.
pub(super) fn model_of(parts: &[Part<'_>], found: &Value, limit: u64) -> DiskUse {
    let used: Vec<u64> =
        parts.iter().map(|part| of_project(found, part.lab)["used"].as_u64().unwrap()).collect();
    model(parts, &used, Amounts { own: found["own"].as_u64().unwrap(), limit })
}

/// What is shown of a project.
pub(super) fn of_project<'a>(found: &'a Value, lab: &Lab) -> &'a Value {
    let projects = found["projects"].as_array().unwrap();
    projects.iter().find(|project| project["url"] == lab.url()).unwrap()
}

/// What a plan about an exceeded limit comes to.
pub(super) fn planned(parts: &[Part<'_>], plan: &ShrinkPlan) -> Vec<Done> {
    let step = |step: &ShrinkStep| match step {
        ShrinkStep::Delete(deletion) => Done::of_deletion(deletion),
        ShrinkStep::GiveBack(returned) => {
            let part = &parts[usize::try_from(returned.project.0).unwrap()];
            let (name, ..) = part.queued[usize::try_from(returned.job.0 % 100).unwrap()];
            Done::GaveBack(format!("{name}_0"))
        }
    };
    plan.steps.iter().map(step).collect()
}

/// The files of projects that are here, but for programs.
pub(super) fn files_here(dir: &Path) -> Vec<String> {
    let projects = std::fs::read_dir(dir.join("projects")).into_iter().flatten().flatten();
    let files =
        projects.flat_map(|project| std::fs::read_dir(project.path()).into_iter().flatten().flatten());
    let plain = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<String> = plain.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "spin" && !name.starts_with('.'));
    names.sort();
    names
}
