//! How long a scheduler reply of a thousand jobs takes to read and to write.

use fallow_boinc::scheduler::{App, AppVersion, FileInfo, FileRef, ResultJob, SchedulerReply, Workunit};
use fallow_domain::{Bytes, Duration, Flops, Instant, Speed};

fn main() {
    divan::main();
}

/// A reply as a work server gives it: for each job an input file, a workunit, an output file and the job
/// itself.
fn reply(jobs: usize) -> SchedulerReply {
    let signature = format!("{}.", format!("{}\n", "5a".repeat(32)).repeat(4));
    let file_ref = |name: &str, open: &str| FileRef {
        file_name: name.into(),
        open_name: Some(open.into()),
        ..FileRef::default()
    };
    let mut reply = SchedulerReply {
        scheduler_version: Some(803),
        master_url: Some("http://127.0.0.1:8080/mersenne/".into()),
        request_delay: Duration::from_secs(7),
        project_name: Some("Mersenne".into()),
        apps: vec![App { name: "mersenne".into(), ..App::default() }],
        app_versions: vec![AppVersion {
            app_name: "mersenne".into(),
            version_num: 100,
            platform: "x86_64-pc-linux-gnu".into(),
            api_version: Some("8.3.0".into()),
            files: vec![FileRef {
                file_name: "mersenne_100".into(),
                main_program: true,
                ..FileRef::default()
            }],
            flops: Speed::new(1e9).ok(),
            ..AppVersion::default()
        }],
        ..SchedulerReply::default()
    };
    for job in 0..jobs {
        let (workunit, name) = (format!("mersenne_{job}"), format!("mersenne_{job}_0"));
        let (input, output) = (format!("{workunit}_in"), format!("{name}_r{job}_0"));
        reply.files.push(FileInfo {
            name: input.clone(),
            download_urls: vec![format!("http://127.0.0.1:8080/mersenne/download/{input}")],
            md5_cksum: Some("1b076a28482974cb63b67222e2488076".into()),
            nbytes: Some(Bytes(8_932)),
            ..FileInfo::default()
        });
        reply.files.push(FileInfo {
            name: output.clone(),
            upload_urls: vec!["http://127.0.0.1:8080/mersenne_cgi/file_upload_handler".into()],
            max_nbytes: Some(Bytes(5_000_000)),
            xml_signature: Some(signature.clone()),
            generated_locally: true,
            upload_when_present: true,
            ..FileInfo::default()
        });
        reply.workunits.push(Workunit {
            name: workunit.clone(),
            app_name: "mersenne".into(),
            rsc_fpops_est: Flops::new(2e10).ok(),
            rsc_fpops_bound: Flops::new(2e14).ok(),
            rsc_memory_bound: Some(Bytes(50_000_000)),
            rsc_disk_bound: Some(Bytes(50_000_000)),
            command_line: format!("--from {job} --to {}", job + 1),
            files: vec![file_ref(&input, "in")],
        });
        reply.results.push(ResultJob {
            name,
            wu_name: workunit,
            report_deadline: Instant::from_secs_f64(1_795_313_756.0),
            files: vec![file_ref(&output, "out")],
            platform: "x86_64-pc-linux-gnu".into(),
            version_num: 100,
            ..ResultJob::default()
        });
    }
    reply
}

#[divan::bench(args = [10, 100, 1_000])]
fn read_a_scheduler_reply(bencher: divan::Bencher<'_, '_>, jobs: usize) {
    let text = reply(jobs).write();
    bencher
        .counter(divan::counter::BytesCount::new(text.len()))
        .bench(|| SchedulerReply::parse(divan::black_box(text.as_bytes())));
}

#[divan::bench(args = [10, 100, 1_000])]
fn write_a_scheduler_reply(bencher: divan::Bencher<'_, '_>, jobs: usize) {
    let reply = reply(jobs);
    let len = reply.write().len();
    bencher.counter(divan::counter::BytesCount::new(len)).bench(|| divan::black_box(&reply).write());
}
