//! Tables: a disk, a question, the answer that R4 gives.

use fallow_domain::{Bytes, Duration, Fraction, Instant, JobId, ProjectId, Share};

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn at(days: i64) -> Instant {
    Instant::EPOCH + DAY * days
}

/// A disk on day 100 of whose volume `all` bytes may be used, with projects 1, 2, ... of these shares.
fn disk(all: u64, shares: &[f64]) -> DiskUse {
    let mut disk = DiskUse::default();
    disk.advance(at(100));
    disk.set_total_limit(limit(all));
    for (id, share) in (1..).zip(shares) {
        disk.set_project(ProjectId(id), Share::new(*share).unwrap(), DeletionChoice::default());
    }
    disk
}

fn limit(all: u64) -> TotalLimit {
    TotalLimit { bytes: Bytes(all), bound: Bound::Fraction { fraction: Fraction::ONE, size: Bytes(all) } }
}

/// Adds files (name, size, priority), last used in the order given.
fn add(disk: &mut DiskUse, project: u32, files: &[(&str, u64, i64)]) {
    for (name, size, priority) in files {
        let day = at(disk.files() as i64);
        let file = FileAttributes::arriving(Bytes(*size), day).with_priority(Priority::nearest(*priority));
        disk.add_file(ProjectId(project), name, file);
    }
}

fn id(disk: &DiskUse, name: &str) -> FileId {
    (1..9).find_map(|project| disk.file_id(ProjectId(project), name)).unwrap()
}

fn job(disk: &mut DiskUse, id_of_job: u64, project: u32, stage: JobStage, deadline: i64, files: &[&str]) {
    let files = files.iter().map(|name| id(disk, name)).collect();
    let job = DiskJob { project: ProjectId(project), stage, deadline: at(deadline), files };
    disk.set_job(JobId(id_of_job), job);
}

fn names(deletions: &[Deletion]) -> Vec<&str> {
    deletions.iter().map(|deletion| deletion.name.as_str()).collect()
}

/// What goes for a file of `bytes` in a project; "refused" if it cannot come.
fn admit(disk: &DiskUse, project: u32, bytes: u64) -> Vec<String> {
    let admission = disk.admit(ProjectId(project), Bytes(bytes));
    match admission {
        Admission::Refused(_) => vec!["refused".to_owned()],
        _ => names(admission.deletions()).into_iter().map(str::to_owned).collect(),
    }
}

/// Steps of a shrink in a few letters: names of files, `-7` for giving back job 7, `!` for suspension.
fn shrink(disk: &DiskUse) -> String {
    let Some(shrink) = disk.shrink() else { return "within".to_owned() };
    let step = |step: &ShrinkStep| match step {
        ShrinkStep::Delete(deletion) => deletion.name.clone(),
        ShrinkStep::GiveBack(job) => format!("-{}", job.job),
    };
    let mut words: Vec<String> = shrink.steps.iter().map(step).collect();
    words.extend(shrink.suspension.map(|_| "!".to_owned()));
    words.join(" ")
}

#[test]
fn r4_2_the_documents_example_of_75_and_25_percent() {
    // A (1) has three quarters, B (2) one quarter of 100 bytes; 20 more are the agent's own.
    let mut disk = disk(120, &[75.0, 25.0]);
    disk.set_own_usage(Bytes(20));
    let [a, b] = [ProjectId(1), ProjectId(2)];
    assert_eq!(disk.all_projects_limit(), Some(Bytes(100)));
    assert_eq!((disk.project_limit(a), disk.project_limit(b)), (Bytes(75), Bytes(25)));

    // A does not use its part, so B may use the difference, which shows as free space.
    add(&mut disk, 1, &[("a1", 30, 1)]);
    add(&mut disk, 2, &[("b1", 20, 1), ("b2", 20, 1), ("b3", 20, 1)]);
    assert_eq!(disk.free(), Bytes(10));
    assert_eq!(disk.greatest_offender(), Some((b, Bytes(35))));

    // A wants its part: B gives way, as far as it has to and never below its limit by more than one file.
    assert_eq!(admit(&disk, 1, 10), Vec::<String>::new());
    assert_eq!(admit(&disk, 1, 11), ["b1"]);
    assert_eq!(admit(&disk, 1, 45), ["b1", "b2"]);
    assert_eq!(admit(&disk, 1, 50), ["b1", "b2"]);
    // Beyond, A makes room itself.
    assert_eq!(admit(&disk, 1, 51), ["b1", "b2", "a1"]);
    assert_eq!(admit(&disk, 1, 80), ["b1", "b2", "a1"]);
    assert_eq!(admit(&disk, 1, 81), ["refused"]);
    // B is the offender: A loses nothing to it.
    assert_eq!(admit(&disk, 2, 11), ["b1"]);
    assert_eq!(admit(&disk, 2, 71), ["refused"]);
}

#[test]
fn r4_2_limits_follow_shares_and_the_agents_own_usage() {
    let mut disk = disk(100, &[50.0, 50.0]);
    assert_eq!(disk.project_limit(ProjectId(1)), Bytes(50));
    disk.set_project(ProjectId(1), Share::new(150.0).unwrap(), DeletionChoice::default());
    assert_eq!(disk.project_limit(ProjectId(1)), Bytes(75));
    disk.set_own_usage(Bytes(20));
    assert_eq!(disk.project_limit(ProjectId(1)), Bytes(60));
    disk.remove_project(ProjectId(2));
    assert_eq!(disk.project_limit(ProjectId(1)), Bytes(80));
    disk.set_own_usage(Bytes(200));
    assert_eq!((disk.project_limit(ProjectId(1)), disk.over()), (Bytes(0), Bytes(100)));
}

#[test]
fn r4_3_the_greatest_offender_is_the_one_with_the_largest_excess() {
    let mut disk = disk(300, &[100.0, 100.0, 100.0]);
    assert_eq!(disk.greatest_offender(), None);
    add(&mut disk, 1, &[("a", 100, 1)]);
    add(&mut disk, 2, &[("b", 110, 1)]);
    add(&mut disk, 3, &[("c", 50, 1)]);
    disk.set_other_usage(ProjectId(3), Bytes(65));
    assert_eq!(disk.offenders(), [(ProjectId(3), Bytes(15)), (ProjectId(2), Bytes(10))]);
}

#[test]
fn r4_4_offenders_give_way_the_greatest_first_and_each_only_until_it_no_longer_offends() {
    let mut disk = disk(300, &[100.0, 100.0, 100.0]);
    add(&mut disk, 2, &[("b1", 60, 1), ("b2", 60, 1)]);
    add(&mut disk, 3, &[("c1", 60, 1), ("c2", 60, 1), ("c3", 60, 1)]);
    assert_eq!(admit(&disk, 1, 60), ["c1"]);
    assert_eq!(admit(&disk, 1, 61), ["c1", "c2"]);
    assert_eq!(admit(&disk, 1, 121), ["c1", "c2", "b1"]);
    assert_eq!(admit(&disk, 1, 181), ["refused"]);
}

#[test]
fn r4_4_low_priorities_of_all_offenders_go_before_the_level_is_raised() {
    let mut disk = disk(300, &[100.0, 100.0, 100.0]);
    add(&mut disk, 2, &[("b5", 60, 5), ("b1", 60, 1)]);
    add(&mut disk, 3, &[("c3", 60, 3), ("c1", 10, 1), ("c5", 110, 5)]);
    assert_eq!(admit(&disk, 1, 10), ["c1"]);
    assert_eq!(admit(&disk, 1, 11), ["c1", "b1"]);
    assert_eq!(admit(&disk, 1, 100), ["c1", "b1", "c3"]);
    assert_eq!(admit(&disk, 1, 200), ["c1", "b1", "c3", "c5"]);
}

#[test]
fn r4_4_an_expired_file_goes_with_the_lowest_level_whatever_its_priority() {
    let mut disk = disk(200, &[100.0, 100.0]);
    let expiration = DeletionChoice { expiration: true, priority: false };
    disk.set_project(ProjectId(2), Share::DEFAULT, expiration);
    add(&mut disk, 2, &[("low", 100, 1), ("expired", 100, 5)]);
    let expired = id(&disk, "expired");
    let (low, kept) = (id(&disk, "low"), FileAttributes::arriving(Bytes(100), at(1)));
    disk.set_attributes(low, kept.with_lifetime_days(1_000.0));
    disk.set_attributes(expired, kept.with_priority(Priority::HIGH).with_lifetime_days(1_000.0));
    assert_eq!(admit(&disk, 1, 50), ["low"]);
    disk.set_attributes(expired, kept.with_priority(Priority::HIGH).with_lifetime_days(100.0));
    assert_eq!(admit(&disk, 1, 50), ["low"]);
    disk.advance(at(101));
    assert_eq!(admit(&disk, 1, 50), ["low"], "its last day still counts");
    disk.advance(at(102));
    assert_eq!(admit(&disk, 1, 50), ["expired"]);
    disk.advance(at(90));
    assert_eq!(admit(&disk, 1, 50), ["low"], "the clock was set back");
    disk.advance(at(102));
    disk.set_project(ProjectId(2), Share::DEFAULT, DeletionChoice::default());
    assert_eq!(admit(&disk, 1, 50), ["low"], "its project no longer chooses expiration");
}

#[test]
fn r4_4_no_lesser_offender_loses_anything_to_a_greater_one() {
    let mut disk = disk(300, &[100.0, 100.0, 100.0]);
    add(&mut disk, 1, &[("a1", 70, 1), ("a2", 70, 1)]);
    add(&mut disk, 2, &[("b1", 60, 1), ("b2", 60, 1)]);
    assert_eq!(admit(&disk, 1, 41), ["a1"]);
    assert_eq!(admit(&disk, 1, 181), ["refused"]);
    // The other way round the greater one gives way until it is the lesser.
    assert_eq!(admit(&disk, 2, 41), ["a1"]);
    assert_eq!(admit(&disk, 2, 111), ["a1", "b1"]);
}

#[test]
fn r4_4_a_request_that_cannot_be_met_deletes_nothing_and_says_what_is_missing() {
    let mut disk = disk(100, &[100.0]);
    add(&mut disk, 1, &[("loose", 30, 1), ("needed", 60, 1)]);
    job(&mut disk, 1, 1, JobStage::Running, 9, &["needed"]);
    let admission = disk.admit(ProjectId(1), Bytes(50));
    assert!(!admission.is_accepted() && admission.deletions().is_empty());
    assert!(admission.to_string().starts_with("50 B do not fit, 10 B are missing: 10 B free"), "{admission}");
    let huge = disk.admit(ProjectId(1), Bytes(101)).to_string();
    assert_eq!(huge, "101 B are more than the 100 B that all projects may use together");
    assert_eq!(
        DiskUse::default().admit(ProjectId(1), Bytes(1)),
        Admission::Refused(WhyNotAdmitted::NotMeasured)
    );
}

#[test]
fn r4_5_what_jobs_need_is_transferred_signs_or_runs_is_never_deleted() {
    let mut disk = disk(60, &[100.0]);
    let files = ["queued", "running", "unreported", "moving", "key", "app"];
    for name in files {
        add(&mut disk, 1, &[(name, 10, 1)]);
    }
    job(&mut disk, 1, 1, JobStage::Queued, 9, &["queued"]);
    job(&mut disk, 2, 1, JobStage::Running, 9, &["running"]);
    job(&mut disk, 3, 1, JobStage::Unacknowledged, 9, &["unreported"]);
    for (name, hold) in [("moving", Hold::Transfer), ("key", Hold::SigningKey), ("app", Hold::AppInUse)] {
        disk.set_hold(id(&disk, name), hold, true);
    }
    let why: Vec<_> = files.iter().map(|name| disk.protection(id(&disk, name)).unwrap()).collect();
    assert_eq!(
        why,
        [
            Protection::QueuedJob,
            Protection::RunningJob,
            Protection::UnacknowledgedJob,
            Protection::Held(Hold::Transfer),
            Protection::Held(Hold::SigningKey),
            Protection::Held(Hold::AppInUse),
        ]
    );
    assert_eq!(admit(&disk, 1, 1), ["refused"]);
    // Each goes once nothing keeps it any more.
    disk.end_job(JobId(3));
    assert_eq!(admit(&disk, 1, 1), ["unreported"]);
    disk.set_hold(id(&disk, "moving"), Hold::Transfer, false);
    assert_eq!(admit(&disk, 1, 20), ["unreported", "moving"]);
}

#[test]
fn r4_5_a_file_that_is_gone_and_comes_again_is_still_protected() {
    let mut disk = disk(60, &[100.0]);
    add(&mut disk, 1, &[("f", 10, 1)]);
    job(&mut disk, 1, 1, JobStage::Running, 9, &["f"]);
    let file = id(&disk, "f");
    disk.remove_file(file);
    assert_eq!((disk.attributes(file), disk.used_total()), (None, Bytes(0)));
    add(&mut disk, 1, &[("f", 10, 1)]);
    assert_eq!((id(&disk, "f"), disk.protection(file)), (file, Some(Protection::RunningJob)));
    disk.remove_file(file);
    disk.end_job(JobId(1));
    assert_eq!(disk.files(), 0);
}

#[test]
fn r4_6_a_file_that_is_used_again_goes_later() {
    let mut disk = disk(30, &[100.0]);
    add(&mut disk, 1, &[("a", 10, 1), ("b", 10, 1), ("c", 10, 1)]);
    disk.touch(id(&disk, "a"), at(50));
    assert_eq!(admit(&disk, 1, 20), ["b", "c"]);
}

#[test]
fn r4_8_offenders_shrink_first_then_projects_lose_a_file_in_turn_until_usage_is_under_the_limit() {
    let mut disk = disk(1_000, &[100.0, 100.0]);
    add(&mut disk, 1, &[("a1", 10, 1), ("a2", 10, 3), ("a3", 10, 1), ("a4", 10, 1)]);
    add(&mut disk, 2, &[("b1", 20, 1), ("b2", 20, 1), ("b3", 20, 1)]);
    let check = |disk: &mut DiskUse, all, expected: &str| {
        disk.set_total_limit(limit(all));
        assert_eq!(shrink(disk), expected, "at a limit of {all}");
    };
    check(&mut disk, 100, "within");
    check(&mut disk, 80, "b1");
    // The limits are 30 and 30: both offend, the second by more.
    check(&mut disk, 60, "b1 b2");
    check(&mut disk, 40, "b1 b2 a1 a3");
    // The limits are 15.
    check(&mut disk, 30, "b1 b2 b3 a1");
    check(&mut disk, 0, "b1 b2 b3 a1 a3 a4 a2");
    disk.set_own_usage(Bytes(5));
    check(&mut disk, 3, "b1 b2 b3 a1 a3 a4 a2 !");
}

#[test]
fn r4_8_files_go_in_turn_when_nobody_offends() {
    // The agent's own usage grows to half the limit; shares leave everybody within theirs.
    let mut disk = disk(100, &[100.0, 100.0]);
    add(&mut disk, 1, &[("a1", 4, 1), ("a2", 4, 1), ("a3", 4, 1)]);
    add(&mut disk, 2, &[("b1", 5, 1), ("b2", 5, 1), ("b3", 5, 1)]);
    disk.set_own_usage(Bytes(70));
    disk.set_total_limit(limit(90));
    assert_eq!(shrink(&disk), "b1 a1");
    disk.set_total_limit(limit(72));
    // Offenders shrink below 1 byte each; nothing is left for turns.
    assert_eq!(shrink(&disk), "b1 b2 b3 a1 a2 a3");
}

#[test]
fn r4_8_queued_jobs_are_given_back_in_turn_the_latest_deadline_first_and_free_their_files() {
    let mut disk = disk(1_000, &[100.0, 100.0]);
    add(&mut disk, 1, &[("app", 30, 1), ("a1", 10, 1), ("a2", 10, 1), ("a3", 10, 1)]);
    add(&mut disk, 2, &[("shared", 20, 1), ("b2", 10, 1), ("run", 10, 1)]);
    disk.set_hold(id(&disk, "app"), Hold::AppInUse, true);
    job(&mut disk, 1, 1, JobStage::Queued, 110, &["app", "a1"]);
    job(&mut disk, 2, 1, JobStage::Queued, 130, &["app", "a2"]);
    job(&mut disk, 3, 1, JobStage::Queued, 140, &["app"]);
    job(&mut disk, 4, 1, JobStage::Unacknowledged, 150, &["a3"]);
    job(&mut disk, 5, 2, JobStage::Queued, 120, &["shared", "b2"]);
    job(&mut disk, 6, 2, JobStage::Queued, 160, &["shared"]);
    job(&mut disk, 7, 2, JobStage::Running, 170, &["run"]);
    let check = |disk: &mut DiskUse, all, expected: &str| {
        disk.set_total_limit(limit(all));
        assert_eq!(shrink(disk), expected, "at a limit of {all}");
    };
    check(&mut disk, 100, "within");
    // Job 3 keeps nothing that its application would not keep anyway: it stays.
    check(&mut disk, 91, "-2 a2");
    // Job 6 shares its input with job 5: nothing goes for it until both are given back.
    check(&mut disk, 85, "-2 a2 -6 -1 a1");
    check(&mut disk, 75, "-2 a2 -6 -1 a1 -5 shared");
    check(&mut disk, 55, "-2 a2 -6 -1 a1 -5 shared b2");
    check(&mut disk, 49, "-2 a2 -6 -1 a1 -5 shared b2 !");
}

#[test]
fn r4_8_giving_a_job_back_cancels_the_downloads_that_only_it_needs() {
    let mut disk = disk(1_000, &[100.0]);
    add(&mut disk, 1, &[("own", 50, 1), ("shared", 50, 1), ("list", 50, 1)]);
    for name in ["own", "shared", "list"] {
        disk.set_hold(id(&disk, name), Hold::Transfer, true);
    }
    job(&mut disk, 1, 1, JobStage::Queued, 110, &["own", "shared"]);
    job(&mut disk, 2, 1, JobStage::Running, 110, &["shared"]);
    disk.set_total_limit(limit(100));
    assert_eq!(shrink(&disk), "-1 own");
    assert_eq!(disk.give_back(JobId(1)), [id(&disk, "own")]);
    assert_eq!(disk.protection(id(&disk, "own")), None);
    assert_eq!(disk.protection(id(&disk, "list")), Some(Protection::Held(Hold::Transfer)));
    assert_eq!(shrink(&disk), "own");
}

#[test]
fn r4_8_a_suspension_says_what_was_tried_and_what_is_missing_and_ends_by_itself() {
    let mut disk = disk(30, &[100.0]);
    add(&mut disk, 1, &[("loose", 10, 1), ("queued", 10, 1), ("run", 40, 1)]);
    job(&mut disk, 1, 1, JobStage::Queued, 110, &["queued"]);
    job(&mut disk, 2, 1, JobStage::Running, 110, &["run"]);
    disk.set_own_usage(Bytes(3));
    let found = disk.shrink().unwrap();
    let suspension = found.suspension.unwrap();
    assert_eq!((found.over, suspension.missing), (Bytes(33), Bytes(13)));
    assert_eq!((suspension.files, suspension.freed, suspension.jobs), (2, Bytes(20), 1));
    assert_eq!((suspension.own, suspension.kept), (Bytes(3), Bytes(40)));
    let words = suspension.to_string();
    for word in ["computing is suspended", "by 13 B", "2 unneeded files (20 B)", "1 queued job.", "resumes"] {
        assert!(words.contains(word), "{words}");
    }
    // Somebody made room on the volume.
    disk.set_total_limit(limit(63));
    assert_eq!(disk.shrink(), None);
}

#[test]
fn r4_9_the_three_amounts_count_an_offender_only_down_to_its_limit() {
    let mut disk = disk(300, &[100.0, 100.0, 100.0]);
    add(&mut disk, 1, &[("a1", 50, 1), ("a2", 20, 1)]);
    add(&mut disk, 2, &[("b1", 30, 1), ("b2", 30, 5), ("b3", 60, 5)]);
    disk.set_other_usage(ProjectId(3), Bytes(90));
    disk.set_own_usage(Bytes(15));
    job(&mut disk, 1, 1, JobStage::Queued, 110, &["a2"]);
    let amounts = disk.report(ProjectId(1));
    // Limits are 95; project 2 has 120 of 285 and loses one file of 30.
    assert_eq!(
        amounts,
        DiskReport {
            free: Bytes(5),
            with_offenders: Bytes(35),
            with_self: Bytes(85),
            used_total: Bytes(295),
            used_project: Bytes(70),
            project_limit: Bytes(95),
        }
    );
    assert_eq!(DiskUse::default().report(ProjectId(1)), DiskReport::default());
}

#[test]
fn r4_13_each_step_names_file_project_rule_and_bytes() {
    let mut disk = disk(100, &[75.0, 25.0]);
    add(&mut disk, 2, &[("b1", 60, 1), ("b2", 30, 1)]);
    let admission = disk.admit(ProjectId(1), Bytes(20));
    assert_eq!(
        admission.deletions()[0].to_string(),
        "delete b1 of project 2 (60 B): it exceeds its disk limit of 25 B by 65 B and project 1 needs room; \
         priority 1, not used for 100 days"
    );
    assert_eq!(admission.to_string(), "it fits without 1 file (60 B)");
    job(&mut disk, 7, 2, JobStage::Queued, 9, &["b1", "b2"]);
    disk.set_total_limit(limit(50));
    let steps: Vec<String> = disk.shrink().unwrap().steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "give back job 7 of project 2: the disk limit is exceeded and only files that jobs need are left; of its \
         project's queued jobs it has the latest deadline; this frees 90 B",
            "delete b1 of project 2 (60 B): the disk limit is exceeded and job 7, which needed it, is given back; \
         priority 1, not used for 100 days",
        ]
    );
}

#[test]
fn sizes_that_servers_invent_neither_wrap_nor_panic() {
    let mut disk = disk(100, &[100.0, 100.0]);
    for name in ["a", "b", "c"] {
        add(&mut disk, 1, &[(name, u64::MAX, 1)]);
    }
    assert_eq!((disk.used_total(), disk.free()), (Bytes(u64::MAX), Bytes(0)));
    assert_eq!(admit(&disk, 2, 100), ["a", "b", "c"]);
    assert_eq!(shrink(&disk), "a b c");
    disk.remove_file(id(&disk, "b"));
    disk.remove_file(id(&disk, "a"));
    disk.remove_file(id(&disk, "c"));
    assert_eq!((disk.used_total(), disk.free()), (Bytes(0), Bytes(100)));
}
