//! `fallow jobs PROJECT --job NAME`: one job with all that is known of it.

use fallow_boinc::runtime::exit;
use fallow_proto::operator::v1::{GetJobRequest, Job, JobOutcome, JobReport};
use serde_json::{Value, json};

use super::connect::Client;
use super::jobs::{self, job_json};
use super::{Failure, print, print_json, table};
use crate::printable;

/// The most of a job's standard error that is shown: what a coordinator keeps is less.
const STDERR_SHOWN: usize = 64 << 10;

pub(super) async fn show(client: &mut Client, project: &str, name: &str, json: bool) -> Result<(), Failure> {
    let request = GetJobRequest { project: project.to_owned(), name: name.to_owned() };
    let report = client.get_job(request).await?.into_inner();
    let job = report.job.clone().unwrap_or_default();
    match json {
        true => print_json(&to_json(&report, &job)),
        false => print(&to_text(&report, &job)),
    }
}

fn to_json(report: &JobReport, job: &Job) -> Value {
    let mut value = job_json(job);
    value["exit_meaning"] = json!(has_ended(job).then(|| meaning(job.exit_status)));
    value["stderr"] = json!(bounded(&report.stderr));
    value["app_version"] = json!(report.version);
    value["platform"] = json!(report.platform);
    json!({
        "project": report.project,
        "workunit": report.workunit,
        "workunit_state": report.workunit_state_words(),
        "workunit_error": report.workunit_error,
        "application": report.application,
        "command_line": report.command_line,
        "nobody_has_project": report.nobody_has_project,
        "job": value,
    })
}

fn to_text(report: &JobReport, job: &Job) -> String {
    let stands = said([report.workunit_state_words(), &report.workunit_error]);
    let mut rows: Vec<(&str, String)> = vec![
        ("job", job.name.clone()),
        ("workunit", format!("{} ({stands})", report.workunit)),
        ("state", said([&jobs::state(job), job.outcome_words(), job.validation_words()])),
    ];
    if !report.nobody_has_project.is_empty() {
        rows.push(("waits", format!("no host has the project: {}", report.nobody_has_project)));
    }
    if job.host_id != 0 {
        rows.push(("host", jobs::host(job)));
    }
    if report.version != 0 {
        let (major, minor) = (report.version / 100, report.version % 100);
        let text = format!("{} {major}.{minor:02}, {}", report.application, report.platform);
        rows.push(("application", text));
    }
    if !report.command_line.is_empty() {
        rows.push(("command line", report.command_line.clone()));
    }
    let instants =
        [("sent", job.sent_at_micros), ("due", job.deadline_micros), ("reported", job.received_at_micros)];
    for (what, at) in instants.into_iter().filter(|(_, at)| *at != 0) {
        rows.push((what, table::instant(at)));
    }
    if has_ended(job) {
        rows.push(("CPU time", table::micros(job.cpu_time_micros)));
        rows.push(("exit status", format!("{}: {}", job.exit_status, meaning(job.exit_status))));
    }
    if job.copied_hosts > 0 {
        rows.push(("copied hosts", jobs::COPIED.to_owned()));
    }
    let visible = |text: &str| printable::line(text, usize::MAX);
    let mut text: String =
        rows.iter().map(|(what, value)| format!("{what:<13} {}\n", visible(value))).collect();
    let stderr = bounded(&report.stderr);
    if !stderr.is_empty() {
        text.push_str("standard error, its end as the host reported it:\n");
        // Each line by itself: what the job wrote cannot pass for lines of ours.
        stderr.lines().for_each(|line| text.push_str(&format!("  | {}\n", visible(line))));
    } else if matches!(job.read_outcome(), JobOutcome::Error | JobOutcome::Aborted) {
        text.push_str("It wrote nothing to standard error, or its host reported none of it.\n");
    }
    text
}

/// Reported by its host: only then does an exit status mean anything.
fn has_ended(job: &Job) -> bool {
    job.received_at_micros != 0
}

/// What there is of these, in a row.
fn said<const N: usize>(parts: [&str; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The end of a text that may be of any length.
fn bounded(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(STDERR_SHOWN))..]
}

/// What an exit status says, in words. Clients give numbers of their own from 192 to 209 and below 0; every
/// other is the application's (BOINC: `lib/error_numbers.h`).
fn meaning(exit_status: i32) -> String {
    let of_client = match exit_status {
        0 => {
            "the application ended well; if the job is an error, an output was not uploaded, or missing where its link \
             file says: see docs/applications.md"
        }
        exit::DISK_LIMIT_EXCEEDED => {
            "stopped by the client: it took more disk space than its bound (`disk` of the batch)"
        }
        exit::TIME_LIMIT_EXCEEDED => {
            "stopped by the client: it computed more than its bound (`flops_bound` of the batch)"
        }
        exit::MEM_LIMIT_EXCEEDED => "stopped by the client: it took more memory than the host gives to jobs",
        exit::OUTPUT_TOO_BIG => "an output was larger than its bound (`max_size` of the batch)",
        exit::OUTPUT_MISSING => {
            "the application ended without writing one of its outputs; outputs are written where their link file \
             says: see docs/applications.md"
        }
        exit::TOO_MANY_EXITS => {
            "the application ended again and again without saying that it had finished, which it does with the file \
             `boinc_finish_called`: see docs/applications.md"
        }
        exit::START_FAILED => "the client could not start the application",
        exit::DOWNLOAD_FAILED => "an input or a file of the application could not be downloaded",
        exit::UPLOAD_FAILED => "an output could not be uploaded",
        192 => "the application could not write its state",
        -108 => "the application could not open a file",
        -148 => "the application could not be executed",
        -197 => "aborted by the host's user",
        -119 => "a file's MD5 is not what the project said",
        -120 => "a file's signature does not hold",
        -224 => "a server refused a file",
        _ => exit::name(exit_status).unwrap_or_default(),
    };
    let windows = exit_status as u32;
    match exit_status {
        _ if !of_client.is_empty() => of_client.to_owned(),
        ..=-65_536 => format!("a Windows status, 0x{windows:08X}"),
        -65_535..=-1 => "an error of the BOINC client or library".to_owned(),
        1..=31 => format!(
            "the application's own exit status, or signal {exit_status} ({}) ended it: hosts report both alike",
            signal_name(exit_status)
        ),
        129..=159 => format!(
            "the application's own exit status, or signal {} ended it ({})",
            exit_status - 128,
            signal_name(exit_status - 128)
        ),
        _ => "the application's own exit status".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "hang-up",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trap",
        6 => "abort",
        7 => "bus error",
        8 => "arithmetic fault",
        9 => "killed",
        11 => "segmentation fault",
        15 => "terminated",
        24 => "CPU time limit",
        25 => "file size limit",
        _ => "see signal(7)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_status_is_told_in_words() {
        for (status, said) in [
            (0, "ended well"),
            (3, "own exit status, or signal 3 (quit) ended it: hosts report both alike"),
            (77, "the application's own exit status"),
            (139, "segmentation fault"),
            (195, "a child process failed"),
            (196, "more disk space than its bound"),
            (203, "aborted by the user"),
            (-226, "`boinc_finish_called`: see docs/applications.md"),
            (-161, "where their link file says: see docs/applications.md"),
            (-150, "an error of the BOINC client"),
            (-1_073_741_819, "0xC0000005"),
        ] {
            assert!(meaning(status).contains(said), "{status}: {}", meaning(status));
        }
    }

    #[test]
    fn r6_11_of_a_job_that_waits_while_copied_hosts_ask_it_is_said_what_makes_them_count() {
        let said = |copied_hosts| {
            let waits_for = "another host: 2 needed, 1 asks for work".to_owned();
            to_text(&JobReport::default(), &Job { waits_for, copied_hosts, ..Job::default() })
        };
        assert!(!said(0).contains("cop"), "{}", said(0));
        for part in ["fallow hosts revoke", "empty directory", "fallow tokens create"] {
            assert!(said(2).contains(part), "{part}: {}", said(2));
        }
    }

    #[test]
    fn what_a_job_wrote_is_bounded_and_cannot_pass_for_lines_of_ours() {
        let stderr = format!("{}\nlast \u{1b}[31mwords\rexit status  0: fine", "x".repeat(1 << 20));
        let report = JobReport { stderr, ..JobReport::default() };
        let job = Job { name: "w_0".into(), outcome_value: JobOutcome::Error.into(), ..Job::default() };
        let text = to_text(&report, &job);
        assert!(text.len() < STDERR_SHOWN + 1_000, "{}", text.len());
        assert!(
            text.ends_with("  | last �[31mwords�exit status  0: fine\n"),
            "{:?}",
            text.get(text.len() - 99..)
        );
        assert_eq!(bounded("short"), "short");
    }
}
