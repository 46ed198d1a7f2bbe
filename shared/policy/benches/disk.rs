//! What disk planning costs (R4), by files on the disk: 20 projects, a job for every ten files, each with
//! five.
//!
//! Run with `cargo bench -p fallow-policy --bench disk`. The state is kept by its caller; `change_*` is what
//! keeping it costs, `rebuild` what a restart does. A plan that deletes costs what it deletes and not what
//! the disk holds.

use divan::{Bencher, black_box};
use fallow_domain::{Bytes, Fraction, Instant, JobId, ProjectId, Share};
use fallow_policy::disk::{
    Bound, DeletionChoice, DiskJob, DiskUse, FileAttributes, FileId, JobStage, Priority, TotalLimit,
};

const SIZES: [u64; 3] = [1_000, 10_000, 100_000];
const PROJECTS: u32 = 20;
const FILE: u64 = 1_000_000;
/// Room for this many files is left.
const ROOM: u64 = 10;

fn main() {
    divan::main();
}

fn at(secs: u64) -> Instant {
    Instant::from_secs_f64(1.8e9 + secs as f64)
}

fn limit(bytes: u64) -> TotalLimit {
    TotalLimit { bytes: Bytes(bytes), bound: Bound::Fraction { fraction: Fraction::ONE, size: Bytes(bytes) } }
}

/// Files of equal size, dealt in turn, but every third to the last project, which offends by that. Half of
/// all are needed by jobs.
fn disk(files: u64) -> DiskUse {
    let mut disk = DiskUse::default();
    disk.advance(at(files));
    disk.set_total_limit(limit((files + ROOM) * FILE));
    for id in 0..PROJECTS {
        let choice = DeletionChoice { priority: id % 2 == 0, expiration: id % 3 == 0 };
        disk.set_project(ProjectId(id), Share::DEFAULT, choice);
    }
    let mut of_project: Vec<Vec<FileId>> = vec![Vec::new(); PROJECTS as usize];
    for n in 0..files {
        let project = if n % 3 == 0 { PROJECTS - 1 } else { (n % u64::from(PROJECTS)) as u32 };
        let file = FileAttributes::arriving(Bytes(FILE), at(n * 7_919 % files))
            .with_priority(Priority::nearest((n % 5 + 1) as i64));
        of_project[project as usize].push(disk.add_file(ProjectId(project), &format!("file_{n}"), file));
    }
    for id in 0..files / 10 {
        let project = (id % u64::from(PROJECTS)) as usize;
        let all = &of_project[project];
        let first = id as usize / PROJECTS as usize * 5;
        let files = (first..first + 5).map(|n| all[n % all.len()]).collect();
        let stage = if id < 20 { JobStage::Running } else { JobStage::Queued };
        let deadline = at(1_000_000 + id * 7_919 % 1_000_003);
        disk.set_job(JobId(id), DiskJob { project: ProjectId(project as u32), stage, deadline, files });
    }
    disk
}

/// All files needed by running jobs, and the limit exceeded: what each pass costs while computing is
/// suspended.
fn full_disk(files: u64) -> DiskUse {
    let mut disk = disk(files);
    for id in 0..files {
        for project in 0..PROJECTS {
            let Some(file) = disk.file_id(ProjectId(project), &format!("file_{id}")) else { continue };
            let (project, deadline) = (ProjectId(project), at(0));
            let job = DiskJob { project, stage: JobStage::Running, deadline, files: vec![file] };
            disk.set_job(JobId(files + id), job);
        }
    }
    disk.set_total_limit(limit(FILE));
    disk
}

const NEW: ProjectId = ProjectId(0);

#[divan::bench(args = SIZES)]
fn admit_what_fits(bencher: Bencher<'_, '_>, files: u64) {
    let disk = disk(files);
    bencher.bench_local(|| disk.admit(black_box(NEW), Bytes(FILE)));
}

#[divan::bench(args = SIZES)]
fn admit_for_ten_files_of_an_offender(bencher: Bencher<'_, '_>, files: u64) {
    let disk = disk(files);
    assert_eq!(disk.admit(NEW, Bytes((ROOM + 10) * FILE)).deletions().len(), 10);
    bencher.bench_local(|| disk.admit(black_box(NEW), Bytes((ROOM + 10) * FILE)));
}

#[divan::bench(args = SIZES)]
fn refuse(bencher: Bencher<'_, '_>, files: u64) {
    let disk = disk(files);
    assert!(!disk.admit(NEW, Bytes((files - 1) * FILE)).is_accepted());
    bencher.bench_local(|| disk.admit(black_box(NEW), Bytes((files - 1) * FILE)));
}

#[divan::bench(args = SIZES)]
fn three_amounts(bencher: Bencher<'_, '_>, files: u64) {
    let disk = disk(files);
    bencher.bench_local(|| disk.report(black_box(NEW)));
}

#[divan::bench(args = SIZES)]
fn check_the_owners_limit(bencher: Bencher<'_, '_>, files: u64) {
    let disk = disk(files);
    bencher.bench_local(|| black_box(&disk).shrink());
}

#[divan::bench(args = SIZES)]
fn shrink_by_ten_files(bencher: Bencher<'_, '_>, files: u64) {
    let mut disk = disk(files);
    disk.set_total_limit(limit((files - 10) * FILE));
    assert_eq!(disk.shrink().map(|shrink| shrink.steps.len()), Some(10));
    bencher.bench_local(|| black_box(&disk).shrink());
}

#[divan::bench(args = SIZES)]
fn stay_suspended(bencher: Bencher<'_, '_>, files: u64) {
    let disk = full_disk(files);
    assert!(disk.shrink().is_some_and(|shrink| shrink.steps.is_empty() && shrink.suspension.is_some()));
    bencher.bench_local(|| black_box(&disk).shrink());
}

#[divan::bench(args = SIZES)]
fn change_last_use_of_a_file(bencher: Bencher<'_, '_>, files: u64) {
    let mut disk = disk(files);
    let unneeded = disk.file_id(ProjectId(PROJECTS - 1), &format!("file_{}", files / 3 * 3 - 3));
    let Some(file) = unneeded.filter(|file| disk.protection(*file).is_none()) else { return };
    let mut now = files;
    bencher.bench_local(|| {
        now += 1;
        disk.touch(file, at(now));
    });
}

#[divan::bench(args = SIZES)]
fn change_add_and_remove_a_file(bencher: Bencher<'_, '_>, files: u64) {
    let mut disk = disk(files);
    let attributes = FileAttributes::arriving(Bytes(FILE), at(files / 2));
    bencher.bench_local(|| {
        let file = disk.add_file(NEW, "new", attributes);
        disk.remove_file(file);
    });
}

#[divan::bench(args = SIZES)]
fn change_start_and_end_a_job(bencher: Bencher<'_, '_>, files: u64) {
    let mut disk = disk(files);
    let needed: Vec<FileId> = (0..files)
        .filter_map(|n| disk.file_id(ProjectId(PROJECTS - 1), &format!("file_{n}")))
        .filter(|file| disk.protection(*file).is_none())
        .take(5)
        .collect();
    bencher.bench_local(|| {
        let (project, files) = (ProjectId(PROJECTS - 1), needed.clone());
        let job = DiskJob { project, stage: JobStage::Running, deadline: at(0), files };
        disk.set_job(JobId(u64::MAX), job);
        disk.end_job(JobId(u64::MAX));
    });
}

#[divan::bench(args = SIZES, sample_count = 10)]
fn rebuild(bencher: Bencher<'_, '_>, files: u64) {
    bencher.bench_local(|| disk(black_box(files)));
}
