//! What one project's server may make a host keep, whatever it sends.

use fallow_boinc::scheduler::{App, FileInfo, SchedulerReply};
use fallow_client::Event;

use crate::hand::{Bench, add_job, add_version, file, url};

/// What a host keeps of one project.
const JOBS_MAX: usize = 10_000;

#[test]
fn r6_10_a_project_that_sends_more_than_a_host_keeps_is_refused_the_rest_with_one_notice() {
    let mut bench = Bench::new();
    let mut reply = SchedulerReply::default();
    for number in 0..12_000 {
        let app = format!("app{number}");
        if number < 4_000 {
            add_version(&mut reply, &app, 1);
        }
        add_job(&mut reply, &format!("app{}", number % 900), 1, &format!("job{number}"));
    }
    bench.answer(&reply);
    assert_eq!(bench.client.task_views().len(), JOBS_MAX);
    assert_eq!(bench.notices_with("more than a host keeps"), 1, "{:?}", bench.notices);
    assert_eq!((bench.stored("job/"), bench.stored("workunit/")), (JOBS_MAX, JOBS_MAX));
    assert_eq!(bench.stored("version/"), 1_000);
    // No file without a job or a version, and no job without its file.
    assert_eq!(bench.stored("file/"), JOBS_MAX + 1_000);

    // The server learns of the rest as of lost jobs: they are not listed.
    let request = bench.answer(&SchedulerReply::default());
    assert_eq!(request.other_results.unwrap().len(), JOBS_MAX);
    assert_eq!(request.app_versions.len(), 1_000);

    bench.turn(Event::Detach { url: url() });
    for prefix in ["job/", "workunit/", "version/", "file/", "project/"] {
        assert_eq!(bench.stored(prefix), 0, "{prefix}");
    }
}

#[test]
fn r6_10_what_a_project_says_of_its_files_is_bounded_in_bytes_and_a_job_is_refused_with_its_file() {
    let mut bench = Bench::new();
    let mut reply = SchedulerReply::default();
    add_version(&mut reply, "app", 1);
    for number in 0..2_600 {
        let name = format!("job{number}");
        add_job(&mut reply, "app", 1, &name);
        let urls = &mut reply.files.last_mut().unwrap().download_urls;
        *urls = vec![format!("http://127.0.0.1/{}", "u".repeat(30_000)); 1];
    }
    // One that is larger than any real one, and its job with it.
    add_job(&mut reply, "app", 1, "huge");
    reply.files.last_mut().unwrap().download_urls = vec![format!("http://127.0.0.1/{}", "u".repeat(1 << 17))];
    // An application's version of the same kind.
    add_version(&mut reply, "other", 1);
    reply.app_versions.last_mut().unwrap().cmdline = "x".repeat(1 << 17);
    bench.answer(&reply);
    let bytes: usize = bench.store.values().map(Vec::len).sum();
    assert!(bytes < 100 << 20, "{bytes}");
    let jobs = bench.client.task_views();
    assert!((1_000..2_600).contains(&jobs.len()), "{}", jobs.len());
    assert!(jobs.iter().all(|job| job.name != "huge"));
    assert_eq!(bench.stored("file/"), jobs.len() + 1);
    assert_eq!(bench.stored("version/"), 1);
    assert_eq!(bench.notices_with("more than a host keeps"), 1);
}

#[test]
fn r6_10_applications_and_files_that_nothing_needs_do_not_gather() {
    let mut bench = Bench::new();
    for round in 0..4 {
        let mut reply = SchedulerReply::default();
        for number in 0..2_000 {
            reply.apps.push(App { name: format!("app{round}_{number}"), ..App::default() });
            reply.files.push(file(&format!("unused{round}_{number}")));
        }
        add_version(&mut reply, "app", 1 + round);
        bench.answer(&reply);
    }
    assert_eq!(bench.stored("file/"), 1, "the one of the newest version");
    let project = bench.store.iter().find(|(key, _)| key.starts_with(b"project/")).unwrap().1;
    assert!(project.len() < 4_000, "{} bytes", project.len());

    // Sticky files stay, but not without end.
    for round in 0..4 {
        let mut reply = SchedulerReply::default();
        for number in 0..20_000 {
            reply.files.push(FileInfo { sticky: true, ..file(&format!("sticky{round}_{number}")) });
        }
        bench.answer(&reply);
    }
    assert_eq!(bench.stored("file/"), 60_000);
    assert_eq!(bench.notices_with("more than a host keeps"), 2, "one for each reply that held too many");
}

#[test]
fn r6_10_ten_thousand_jobs_that_cannot_be_had_here_are_told_of_once() {
    let mut bench = Bench::new();
    let mut reply = SchedulerReply::default();
    for number in 0..10_000 {
        add_job(&mut reply, "nothing", 1, &format!("job{number}"));
    }
    add_version(&mut reply, "app", 1);
    for number in 0..5_000 {
        add_job(&mut reply, "app", 1, &format!("lacking{number}"));
        reply.files.pop();
    }
    let before = bench.notices.len();
    bench.answer(&reply);
    assert!(bench.notices.len() - before < 40, "{} notices", bench.notices.len() - before);
    assert_eq!(bench.notices_with("job job0 is dropped"), 1);
    assert_eq!(bench.notices_with("9999 others"), 1);
    assert_eq!(bench.stored("job/"), 5_000, "they have failed, and are reported");
}
