//! What holds for every disk, whatever it was told: compared with the plain reading of R4 in `model.rs`.

use std::collections::BTreeSet;

use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId, ProjectId, Share};
use proptest::prelude::*;

use super::model::{Model, ModelFile, ModelPlan, ModelProject};
use super::*;

/// One thing that a disk can be told. Files are named by number; jobs and projects are few, so that they
/// meet.
#[derive(Clone, Debug)]
pub(super) enum Told {
    File { project: u32, name: u8, size: u64, priority: i64, days: [i64; 3] },
    Gone { project: u32, name: u8 },
    Used { project: u32, name: u8, day: i64 },
    Resized { project: u32, name: u8, size: u64 },
    Hold { project: u32, name: u8, hold: Hold, held: bool },
    Job { job: u64, project: u32, stage: JobStage, deadline: i64, names: Vec<u8> },
    JobOver { job: u64 },
    Project { project: u32, share: u32, choice: DeletionChoice },
    ProjectGone { project: u32 },
    Other { project: u32, bytes: u64 },
    Own { bytes: u64 },
    Limit { bytes: u64 },
    Day { day: i64 },
}

fn told() -> impl Strategy<Value = Told> {
    let project = 1..=3_u32;
    let name = 0..8_u8;
    let hold = prop::sample::select(vec![Hold::Transfer, Hold::SigningKey, Hold::AppInUse]);
    let stage = prop::sample::select(vec![
        JobStage::Queued,
        JobStage::Queued,
        JobStage::Running,
        JobStage::Unacknowledged,
    ]);
    let choice =
        any::<(bool, bool)>().prop_map(|(priority, expiration)| DeletionChoice { priority, expiration });
    prop_oneof![
        20 => (project.clone(), name.clone(), 0..40_u64, 0..=6_i64, [0..20_i64, 0..20, 0..20])
            .prop_map(|(project, name, size, priority, days)| Told::File { project, name, size, priority, days }),
        2 => (project.clone(), name.clone()).prop_map(|(project, name)| Told::Gone { project, name }),
        2 => (project.clone(), name.clone(), 0..20_i64)
            .prop_map(|(project, name, day)| Told::Used { project, name, day }),
        1 => (project.clone(), name.clone(), 0..40_u64)
            .prop_map(|(project, name, size)| Told::Resized { project, name, size }),
        3 => (project.clone(), name.clone(), hold, any::<bool>())
            .prop_map(|(project, name, hold, held)| Told::Hold { project, name, hold, held }),
        6 => (0..8_u64, project.clone(), stage, 0..9_i64, prop::collection::vec(name, 0..4))
            .prop_map(|(job, project, stage, deadline, names)| Told::Job { job, project, stage, deadline, names }),
        2 => (0..8_u64).prop_map(|job| Told::JobOver { job }),
        3 => (project.clone(), 0..4_u32, choice)
            .prop_map(|(project, share, choice)| Told::Project { project, share, choice }),
        1 => project.clone().prop_map(|project| Told::ProjectGone { project }),
        1 => (project, 0..30_u64).prop_map(|(project, bytes)| Told::Other { project, bytes }),
        1 => (0..30_u64).prop_map(|bytes| Told::Own { bytes }),
        3 => (0..500_u64).prop_map(|bytes| Told::Limit { bytes }),
        3 => (0..20_i64).prop_map(|day| Told::Day { day }),
    ]
}

pub(super) fn at(day: i64) -> Instant {
    Instant::EPOCH + Duration::from_hours(24) * day
}

/// The disk and the model beside it.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    pub(super) disk: DiskUse,
    pub(super) model: Model,
}

impl Pair {
    fn new(told: Vec<Told>) -> Self {
        let mut pair = Self::default();
        pair.tell(Told::Limit { bytes: 300 });
        for project in 1..=3 {
            pair.tell(Told::Project { project, share: project, choice: DeletionChoice::default() });
        }
        told.into_iter().for_each(|told| pair.tell(told));
        pair
    }

    pub(super) fn tell(&mut self, told: Told) {
        let Self { disk, model } = self;
        let known = |project, name: u8| disk.file_id(ProjectId(project), &name.to_string());
        match told {
            Told::File { project, name, size, priority, days: [arrived, expires, last_used] } => {
                let attributes = FileAttributes {
                    size: Bytes(size),
                    priority: Priority::nearest(priority),
                    arrived: at(arrived),
                    expires: at(expires),
                    last_used: at(last_used),
                };
                let (project, name) = (ProjectId(project), name.to_string());
                let id = disk.add_file(project, &name, attributes);
                model
                    .projects
                    .entry(project)
                    .or_insert_with(|| ModelProject { share: 100.0, ..ModelProject::default() });
                let holds = BTreeSet::new();
                let file = ModelFile { project, name, attributes, holds, present: true };
                let known = model.files.entry(id).or_insert(file);
                (known.attributes, known.present) = (attributes, true);
            }
            Told::Gone { project, name } => {
                let Some(id) = known(project, name) else { return };
                disk.remove_file(id);
                self.forget(id);
            }
            Told::Used { project, name, day } => {
                let Some(id) = known(project, name).filter(|id| disk.attributes(*id).is_some()) else {
                    return;
                };
                disk.touch(id, at(day));
                model.files.get_mut(&id).unwrap().attributes.last_used = at(day);
            }
            Told::Resized { project, name, size } => {
                let Some(id) = known(project, name).filter(|id| disk.attributes(*id).is_some()) else {
                    return;
                };
                disk.resize(id, Bytes(size));
                model.files.get_mut(&id).unwrap().attributes.size = Bytes(size);
            }
            Told::Hold { project, name, hold, held } => {
                let Some(id) = known(project, name).filter(|id| disk.attributes(*id).is_some()) else {
                    return;
                };
                disk.set_hold(id, hold, held);
                let holds = &mut model.files.get_mut(&id).unwrap().holds;
                let _ = if held { holds.insert(hold) } else { holds.remove(&hold) };
            }
            Told::Job { job, project, stage, deadline, names } => {
                let files: Vec<FileId> = names.iter().filter_map(|name| known(project, *name)).collect();
                self.tell(Told::JobOver { job });
                let files = files.into_iter().filter(|id| self.model.files.contains_key(id)).collect();
                let job_known = DiskJob { project: ProjectId(project), stage, deadline: at(deadline), files };
                self.disk.set_job(JobId(job), job_known.clone());
                self.model.jobs.insert(JobId(job), job_known);
            }
            Told::JobOver { job } => {
                disk.end_job(JobId(job));
                if let Some(job) = model.jobs.remove(&JobId(job)) {
                    let gone = job.files.into_iter().filter(|id| self.is_gone(*id)).collect::<Vec<_>>();
                    gone.into_iter().for_each(|id| self.forget(id));
                }
            }
            Told::Project { project, share, choice } => {
                let id = ProjectId(project);
                disk.set_project(id, Share::new(share.into()).unwrap(), choice);
                let known = model.projects.entry(id).or_default();
                (known.share, known.choice) = (share.into(), choice);
            }
            Told::ProjectGone { project } => {
                let id = ProjectId(project);
                disk.remove_project(id);
                model.projects.remove(&id);
                model.files.retain(|_, file| file.project != id);
                model.jobs.retain(|_, job| job.project != id);
            }
            Told::Other { project, bytes } => {
                disk.set_other_usage(ProjectId(project), Bytes(bytes));
                if let Some(known) = model.projects.get_mut(&ProjectId(project)) {
                    known.other = bytes;
                }
            }
            Told::Own { bytes } => {
                disk.set_own_usage(Bytes(bytes));
                model.own = bytes;
            }
            Told::Limit { bytes } => {
                let bound = Bound::Fraction { fraction: Fraction::ONE, size: Bytes(bytes) };
                disk.set_total_limit(TotalLimit { bytes: Bytes(bytes), bound });
                model.limit = bytes;
            }
            Told::Day { day } => {
                disk.advance(at(day));
                model.now = at(day);
            }
        }
    }

    fn is_gone(&self, id: FileId) -> bool {
        self.model.files.get(&id).is_some_and(|file| !file.present)
    }

    /// A file is gone; the model keeps it while a job refers to it, as the disk does.
    fn forget(&mut self, id: FileId) {
        let Some(file) = self.model.files.get_mut(&id) else { return };
        file.present = false;
        file.holds.clear();
        if !self.model.is_protected(id) {
            self.model.files.remove(&id);
        }
    }

    fn delete(&mut self, deletions: &[Deletion]) {
        for deletion in deletions {
            self.disk.remove_file(deletion.file);
            self.forget(deletion.file);
        }
    }
}

fn plan_of(admission: &Admission) -> ModelPlan {
    let steps = admission.deletions().iter().map(|deletion| Ok(deletion.file)).collect();
    ModelPlan { steps, is_enough: admission.is_accepted() }
}

fn steps_of(shrink: &ShrinkPlan) -> Vec<Result<FileId, JobId>> {
    let step = |step: &ShrinkStep| match step {
        ShrinkStep::Delete(deletion) => Ok(deletion.file),
        ShrinkStep::GiveBack(job) => Err(job.job),
    };
    shrink.steps.iter().map(step).collect()
}

pub(super) fn check_sums(pair: &Pair) -> Result<(), TestCaseError> {
    let Pair { disk, model } = pair;
    prop_assert_eq!(disk.used_total(), Bytes(model.used() + model.own));
    prop_assert_eq!(disk.free(), Bytes(model.all_projects().saturating_sub(model.used())));
    prop_assert_eq!(disk.over(), Bytes((model.used() + model.own).saturating_sub(model.limit)));
    let mut limits = 0;
    for id in model.projects.keys() {
        prop_assert_eq!(disk.project_usage(*id), Bytes(model.usage(*id)));
        prop_assert_eq!(disk.project_limit(*id), Bytes(model.project_limit(*id)));
        limits += disk.project_limit(*id).0;
    }
    prop_assert!(limits <= model.all_projects());
    for (id, file) in &model.files {
        prop_assert_eq!(disk.protection(*id).is_some(), model.is_protected(*id), "{}", file.name);
    }
    prop_assert_eq!(disk.files(), model.files.len());
    Ok(())
}

pub(super) fn check_admission(pair: &Pair, project: ProjectId, bytes: Bytes) -> Result<(), TestCaseError> {
    let admission = pair.disk.admit(project, bytes);
    prop_assert_eq!(&admission, &pair.disk.admit(project, bytes), "a decision made twice is the same");
    if let Admission::Refused(_) = admission {
        prop_assert!(!pair.model.admit(project, bytes.0).is_enough);
        prop_assert!(admission.deletions().is_empty());
        return Ok(());
    }
    prop_assert_eq!(plan_of(&admission), pair.model.admit(project, bytes.0));
    for deletion in admission.deletions() {
        prop_assert!(!pair.model.is_protected(deletion.file), "{deletion}");
    }
    let mut after = pair.clone();
    after.delete(admission.deletions());
    check_sums(&after)?;
    let fits = matches!(after.disk.admit(project, bytes), Admission::Fits { .. });
    prop_assert!(fits);
    after.disk.add_file(project, "new", FileAttributes::arriving(bytes, at(0)));
    prop_assert!(after.disk.used_total() <= after.disk.total_limit().unwrap().bytes);
    Ok(())
}

/// The amounts against what admissions of every size do.
fn check_amounts(pair: &Pair, project: ProjectId) -> Result<(), TestCaseError> {
    let amounts = pair.disk.report(project);
    prop_assert!(amounts.free <= amounts.with_offenders && amounts.with_offenders <= amounts.with_self);
    for bytes in 1..=pair.model.limit + 1 {
        let admission = pair.disk.admit(project, Bytes(bytes));
        let own = admission.deletions().iter().any(|deletion| deletion.project == project);
        let found = match &admission {
            Admission::Refused(_) => 3,
            Admission::AfterDeleting(_) if own => 2,
            Admission::AfterDeleting(_) => 1,
            Admission::Fits { .. } => 0,
        };
        let steps = [amounts.free, amounts.with_offenders, amounts.with_self];
        let told = steps.iter().filter(|amount| bytes > amount.0).count();
        prop_assert_eq!(found, told, "{} bytes, {}", bytes, amounts);
    }
    Ok(())
}

pub(super) fn check_shrink(pair: &Pair) -> Result<(), TestCaseError> {
    let Some(shrink) = pair.disk.shrink() else {
        prop_assert!(pair.disk.over() == Bytes(0));
        return Ok(());
    };
    let plan = pair.model.shrink();
    prop_assert_eq!(steps_of(&shrink), plan.steps);
    prop_assert_eq!(shrink.suspension.is_none(), plan.is_enough);
    let mut after = pair.clone();
    for step in &shrink.steps {
        prop_assert!(after.disk.over() > Bytes(0), "it goes on although usage is under the limit");
        match step {
            ShrinkStep::Delete(deletion) => {
                prop_assert!(!after.model.is_protected(deletion.file), "{deletion}");
                after.delete(std::slice::from_ref(deletion));
            }
            ShrinkStep::GiveBack(job) => {
                prop_assert_eq!(after.model.jobs[&job.job].stage, JobStage::Queued);
                let files: BTreeSet<FileId> = after.model.jobs[&job.job].files.iter().copied().collect();
                let cancelled = after.disk.give_back(job.job);
                prop_assert!(cancelled.iter().all(|file| files.contains(file)));
                after.model.jobs.remove(&job.job);
                after.model.cancel_downloads(&files);
                files
                    .into_iter()
                    .filter(|id| after.is_gone(*id))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|id| after.forget(id));
            }
        }
    }
    check_sums(&after)?;
    prop_assert_eq!(after.disk.over(), shrink.suspension.map_or(Bytes(0), |why| why.missing));
    if let Some(again) = after.disk.shrink() {
        prop_assert_eq!(again.steps, vec![], "all was tried");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn r4_2_sums_and_limits_are_those_of_a_full_scan(told in prop::collection::vec(told(), 0..80)) {
        check_sums(&Pair::new(told))?;
    }

    /// Shows R4.5 as well.
    #[test]
    fn r4_4_a_plan_deletes_nothing_protected_never_exceeds_the_limit_and_nothing_when_it_refuses(
        told in prop::collection::vec(told(), 0..80), project in 1..=4_u32, bytes in 1..400_u64,
    ) {
        check_admission(&Pair::new(told), ProjectId(project), Bytes(bytes))?;
    }

    #[test]
    fn r4_8_a_shrink_stops_as_soon_as_usage_is_under_the_limit_or_says_what_is_missing(
        told in prop::collection::vec(told(), 0..80), limit in 0..200_u64,
    ) {
        let mut pair = Pair::new(told);
        pair.tell(Told::Limit { bytes: limit });
        check_shrink(&pair)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn r4_9_the_three_amounts_are_exactly_what_r4_4_would_free(
        told in prop::collection::vec(told(), 0..80), project in 1..=3_u32,
    ) {
        check_amounts(&Pair::new(told), ProjectId(project))?;
    }
}
