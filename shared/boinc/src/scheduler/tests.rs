//! Round trips, truncation, arbitrary bytes, and what real servers do.

use fallow_domain::{AccountKey, Bytes, Duration, Flops, Instant, Speed};
use proptest::prelude::*;

use super::*;

fn full_reply() -> SchedulerReply {
    let file_ref = |name: &str| FileRef { file_name: name.into(), ..FileRef::default() };
    SchedulerReply {
        scheduler_version: Some(803),
        dont_use_dcf: true,
        master_url: Some("http://127.0.0.1:8080/m/".into()),
        request_delay: Duration::from_secs(7),
        next_rpc_delay: Some(Duration::from_hours(1)),
        messages: vec![Message { priority: Priority::Notice, text: "a <b> & \"c\"".into() }],
        project_is_down: true,
        project_name: Some("A & B é".into()),
        userid: Some(1),
        user_name: Some("Alice".into()),
        user_total_credit: Some(0.5),
        user_expavg_credit: Some(0.25),
        user_create_time: Some(Instant::from_secs_f64(1_795_227_307.0)),
        email_hash: Some("fbf7".into()),
        cross_project_id: Some("4744".into()),
        external_cpid: Some("d90a".into()),
        cpid_time: Some(Instant::from_secs_f64(1.5)),
        hostid: Some(77),
        host_total_credit: Some(1.0),
        host_expavg_credit: Some(2.0),
        host_venue: Some(String::new()),
        host_create_time: Some(Instant::from_secs_f64(2.0)),
        teamid: Some(3),
        team_name: Some("T".into()),
        symstore: Some("http://127.0.0.1/s".into()),
        desired_disk_usage: Some(1e9),
        deletion_policy_priority: true,
        deletion_policy_expire: true,
        delete_from_self: true,
        request_file_list: true,
        global_preferences: Some("<mod_time>1</mod_time>".into()),
        project_preferences: Some("<resource_share>75</resource_share>".into()),
        gui_urls: Some("<gui_url>\n<name>x</name>\n</gui_url>".into()),
        code_sign_key: Some("1024\n00\n.".into()),
        code_sign_key_signature: Some("11\n.".into()),
        result_acks: vec!["r1".into()],
        result_aborts: vec!["r2".into()],
        result_aborts_if_not_started: vec!["r3".into()],
        apps: vec![App {
            name: "a".into(),
            user_friendly_name: "A".into(),
            sporadic: true,
            ..App::default()
        }],
        files: vec![
            FileInfo {
                name: "in".into(),
                download_urls: vec!["http://127.0.0.1/d/in?x=1&y=2".into()],
                gzipped_urls: vec!["http://127.0.0.1/d/in.gz".into()],
                gzipped_nbytes: Some(Bytes(5)),
                md5_cksum: Some("0".repeat(32)),
                nbytes: Some(Bytes(10)),
                sticky: true,
                sticky_lifetime: Some(Duration::from_secs(60)),
                priority: Some(3),
                exp_days: Some(7.5),
                ..FileInfo::default()
            },
            FileInfo {
                name: "out".into(),
                upload_urls: vec![
                    "http://127.0.0.1/file_upload_handler".into(),
                    "http://127.0.0.1/put".into(),
                ],
                max_nbytes: Some(Bytes(100)),
                xml_signature: Some("22\n.".into()),
                file_signature: Some("33\n.".into()),
                executable: true,
                signature_required: true,
                gzip_when_done: true,
                generated_locally: true,
                upload_when_present: true,
                ..FileInfo::default()
            },
        ],
        deleted_files: vec!["old".into()],
        app_versions: vec![AppVersion {
            app_name: "a".into(),
            version_num: 102,
            platform: "p".into(),
            plan_class: "mt".into(),
            api_version: Some("8.3.0".into()),
            files: vec![FileRef { main_program: true, copy_file: true, ..file_ref("exe") }],
            avg_ncpus: 2.5,
            flops: Speed::new(1e9).ok(),
            cmdline: "--nthreads 2".into(),
            coproc: Some(Coprocessor { kind: "NVIDIA".into(), count: 0.5 }),
            file_prefix: "pre".into(),
            dont_throttle: true,
            is_wrapper: true,
            needs_network: true,
        }],
        workunits: vec![Workunit {
            name: "w".into(),
            app_name: "a".into(),
            rsc_fpops_est: Flops::new(2e10).ok(),
            rsc_fpops_bound: Flops::new(2e14).ok(),
            rsc_memory_bound: Some(Bytes(50_000_000)),
            rsc_disk_bound: Some(Bytes(60_000_000)),
            command_line: "-x \"1 < 2\"".into(),
            files: vec![FileRef { open_name: Some("dir/in".into()), optional: true, ..file_ref("in") }],
        }],
        results: vec![ResultJob {
            name: "w_0".into(),
            wu_name: "w".into(),
            report_deadline: Instant::from_secs_f64(1_795_313_756.0),
            files: vec![file_ref("out")],
            platform: "p".into(),
            version_num: 102,
            plan_class: "mt".into(),
            report_immediately: true,
        }],
        no_rsc_apps: vec!["NVIDIA".into()],
        message_ack: true,
        trickle_downs: vec![TrickleDown {
            result_name: "w_0".into(),
            time: Instant::from_secs_f64(3.0),
            text: "<body>free & raw</body>".into(),
        }],
        trickle_up_urls: vec!["http://127.0.0.1/t".into()],
        rss_feeds: Some(vec![RssFeed {
            url: "http://127.0.0.1/n?a=1&b=2".into(),
            poll_interval: Duration::from_secs(86_400),
        }]),
        project_files: Some(vec![FileRef { open_name: Some("icon".into()), ..file_ref("icon.png") }]),
        send_full_workload: true,
        non_cpu_intensive: true,
        strict_memory_bound: true,
        ended: true,
        send_time_stats_log: Some(Instant::from_secs_f64(4.0)),
        send_job_log: Some(Instant::from_secs_f64(5.0)),
    }
}

#[test]
fn r6_10_of_very_many_platforms_and_coprocessors_a_request_keeps_few_once_each_and_in_their_order() {
    let named = |name: &str| format!("<alt_platform><name>{name}</name></alt_platform>");
    let gpu = |kind: &str, count: u32| format!("<coproc><type>{kind}</type><count>{count}</count></coproc>");
    let platforms: String = (0..50_000).map(|number| named(&format!("q{}", number / 2))).collect();
    let gpus: String = (0..50_000).map(|number| gpu(&format!("k{}", number / 2), 1)).collect();
    let body = format!(
        "<scheduler_request>{}<platform_name>first</platform_name>{}{platforms}\
         <coprocs>{}{gpus}{}</coprocs></scheduler_request>",
        named("first"),
        named(&"x".repeat(1 << 20)),
        gpu("NVIDIA", 1),
        gpu("CUDA", 2),
    );
    let request = SchedulerRequest::parse(body.as_bytes()).unwrap();
    let platforms: Vec<&str> = request.platforms().collect();
    assert_eq!(platforms[..4], ["first", "q0", "q1", "q2"]);
    assert!((9..=33).contains(&platforms.len()), "{}", platforms.len());
    let coprocessors: Vec<_> = request.coprocs.iter().map(|all| (all.kind.as_str(), all.count)).collect();
    assert_eq!(coprocessors[..3], [("NVIDIA", 2), ("k0", 1), ("k1", 1)]);
    assert!((9..=64).contains(&coprocessors.len()), "{}", coprocessors.len());
}

fn full_request() -> SchedulerRequest {
    let version = ClientVersion { major: 8, minor: 3, release: 0 };
    SchedulerRequest {
        authenticator: AccountKey::new("dd53bc9df626e2c801c9de98d0629b14"),
        hostid: 1,
        rpc_seqno: 12,
        client_version: version,
        dont_send_work: true,
        work_req_seconds: 377.28,
        cpu_req_secs: 377.28,
        cpu_req_instances: 2.0,
        estimated_delay: Duration::from_millis(1_500),
        platform_name: "x86_64-pc-linux-gnu".into(),
        alt_platforms: vec!["i686-pc-linux-gnu".into()],
        code_sign_key: Some("1024\n00\n.".into()),
        global_preferences: Some(GlobalPreferences { max_ncpus_pct: 50.0, ..GlobalPreferences::default() }),
        cross_project_id: "4744".into(),
        host_info: HostInfo { p_vendor: "A & B".into(), d_total: 1e12, p_ncpus: 2, ..HostInfo::default() },
        disk_usage: DiskUsage {
            d_project_share: Bytes(5),
            free: Some(FreeSpace { now: Bytes(1), with_offenders: Bytes(2), with_self: Bytes(3) }),
            ..DiskUsage::default()
        },
        results: vec![ReportedResult {
            name: "w_0".into(),
            final_cpu_time: Duration::from_millis(1_647),
            exit_status: -9,
            state: ResultState::ComputeError,
            plan_class: "mt".into(),
            version_num: 100,
            final_peak_disk_usage: Some(Bytes(14_595)),
            stderr_out: StderrOut {
                client_version: Some(version),
                message: Some("aborted by user".into()),
                stderr_txt: "two\nlines & <more>".into(),
            },
            files: vec![ReportedFile {
                name: "w_0_0".into(),
                nbytes: Bytes(103),
                max_nbytes: Bytes(500),
                md5_cksum: "7991".into(),
                upload_urls: vec!["http://127.0.0.1/u".into()],
                error_msg: Some("too <big>".into()),
            }],
            ..ReportedResult::default()
        }],
        trickles: vec![TrickleUp {
            result_name: "w_1".into(),
            time: Instant::from_secs_f64(9.0),
            text: "<variety>v</variety>\n  <x>&</x>".into(),
        }],
        sticky_files: vec![StickyFile { name: "s".into(), nbytes: Bytes(7), status: 1 }],
        app_versions: vec![AppVersionRef {
            app_name: "a".into(),
            version_num: 100,
            avg_ncpus: 1.0,
            flops: Speed::new(1e9).ok(),
            api_version: Some("8.3.0".into()),
            is_wrapper: true,
            ..AppVersionRef::default()
        }],
        other_results: Some(vec![OtherResult {
            name: "w_1".into(),
            app_version: Some(0),
            plan_class: String::new(),
        }]),
        in_progress_results: Some(vec![InProgressResult {
            name: "w_1".into(),
            time_remaining: Duration::from_secs(60),
            ..InProgressResult::default()
        }]),
        client_opaque: Some("<anything>".into()),
        client_brand: Some("lab".into()),
        ..SchedulerRequest::default()
    }
}

#[test]
fn a_reply_with_every_element_reads_back_as_it_was_written() {
    let reply = full_reply();
    assert_eq!(SchedulerReply::parse(reply.write().as_bytes()).unwrap(), reply);
}

#[test]
fn a_request_with_every_element_reads_back_as_it_was_written() {
    let request = full_request();
    assert_eq!(SchedulerRequest::parse(request.write().as_bytes()).unwrap(), request);
}

#[test]
fn a_reply_or_request_cut_short_anywhere_is_an_error_and_never_half_a_message() {
    let (reply, request) = (full_reply().write(), full_request().write());
    for (text, parse) in [
        (reply, (|bytes| SchedulerReply::parse(bytes).map(drop)) as fn(&[u8]) -> Result<(), FormatError>),
        (request, |bytes| SchedulerRequest::parse(bytes).map(drop)),
    ] {
        let whole = text.trim_end().len();
        for len in 0..whole {
            assert!(parse(&text.as_bytes()[..len]).is_err(), "{len} of {whole} bytes were taken for whole");
        }
        assert!(parse(&text.as_bytes()[..whole]).is_ok());
    }
}

#[test]
fn what_stands_in_an_unknown_element_is_obeyed_as_by_boinc_and_in_a_message_it_is_shown() {
    let reply = SchedulerReply::parse(
        b"<scheduler_reply><bogus><request_delay>1234</request_delay></bogus>\
          <message priority=\"high\">see <request_delay>99</request_delay></message></scheduler_reply>",
    )
    .unwrap();
    assert_eq!(reply.request_delay, Duration::from_secs(1234));
    assert_eq!(reply.messages[0].text, "see <request_delay>99</request_delay>");
}

#[test]
fn the_last_command_line_counts() {
    let reply = SchedulerReply::parse(
        b"<scheduler_reply><workunit><name>w</name><app_name>a</app_name>\
          <command_line>\n\n</command_line><command_line>\n-cpu_time 3\n</command_line></workunit></scheduler_reply>",
    )
    .unwrap();
    assert_eq!(reply.workunits[0].command_line, "-cpu_time 3");
}

#[test]
fn what_an_application_writes_cannot_leave_its_element() {
    let text = "x</msg_from_host><hostid>9</hostid><msg_from_host>\0y";
    let request = SchedulerRequest {
        hostid: 1,
        trickles: vec![TrickleUp { result_name: "w_0".into(), text: text.into(), ..TrickleUp::default() }],
        ..SchedulerRequest::default()
    };
    let read = SchedulerRequest::parse(request.write().as_bytes()).unwrap();
    assert_eq!((read.hostid, read.trickles.len()), (1, 1));
    assert_eq!(read.trickles[0].text, "x&lt;/msg_from_host><hostid>9</hostid><msg_from_host>y");
}

#[test]
fn r4_9_a_client_that_tells_less_than_three_amounts_offers_no_more_than_it_told() {
    let free = |inside: &str| {
        let text = format!("<scheduler_request><disk_usage>{inside}</disk_usage></scheduler_request>");
        SchedulerRequest::parse(text.as_bytes()).unwrap().disk_usage.free
    };
    let amounts = |now, with_offenders, with_self| {
        Some(FreeSpace {
            now: Bytes(now),
            with_offenders: Bytes(with_offenders),
            with_self: Bytes(with_self),
        })
    };
    assert_eq!(free("<d_project_share>5</d_project_share>"), None);
    assert_eq!(free("<project_disk_free>7.0</project_disk_free>"), amounts(7, 7, 7));
    let two =
        "<potentially_free_offender>9</potentially_free_offender><project_disk_free>-7</project_disk_free>";
    assert_eq!(free(two), amounts(0, 9, 9));
}

#[test]
fn r4_7_what_a_project_says_about_a_file_need_not_be_a_level_that_there_is() {
    let file = |inside: &str| {
        let text =
            format!("<scheduler_reply><file_info><name>f</name>{inside}</file_info></scheduler_reply>");
        SchedulerReply::parse(text.as_bytes()).unwrap().files.remove(0)
    };
    let read = |inside: &str| (file(inside).priority, file(inside).exp_days);
    assert_eq!(read("<priority>5</priority>\n<exp_days>30</exp_days>"), (Some(5), Some(30.0)));
    assert_eq!(read("<priority>-99</priority><exp_days>soon</exp_days>"), (Some(-99), None));
    assert_eq!(read(""), (None, None));
}

#[test]
fn a_delay_is_never_negative() {
    let reply =
        SchedulerReply::parse(b"<scheduler_reply><request_delay>-5</request_delay></scheduler_reply>");
    assert_eq!(reply.unwrap().request_delay, Duration::ZERO);
}

#[test]
fn old_forms_of_what_a_project_has_no_applications_for_are_understood() {
    let reply = SchedulerReply::parse(
        b"<scheduler_reply><no_cuda_apps/><no_cpu_apps>0</no_cpu_apps></scheduler_reply>",
    );
    assert_eq!(reply.unwrap().no_rsc_apps, ["NVIDIA"]);
}

#[test]
fn names_that_could_leave_their_directory_refuse_the_whole_reply() {
    for part in [
        "<file_info><name>../x</name></file_info>",
        "<file_info></file_info>",
        "<file_info><name>a%2fb</name></file_info>",
        "<workunit><name>w</name><app_name>a</app_name><file_ref><file_name>x</file_name><open_name>/etc/x</open_name></file_ref></workunit>",
        "<result><name>a/b</name><wu_name>w</wu_name></result>",
        "<app><name></name></app>",
    ] {
        let error =
            SchedulerReply::parse(format!("<scheduler_reply>\n{part}\n</scheduler_reply>").as_bytes());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("without `..`"), "{error}");
    }
}

#[test]
fn r6_8_what_stands_beside_a_name_that_cannot_be_one_is_read() {
    let long = "x".repeat(300);
    let bad = ["", "../x", "a/b", "a%2fb", "a&#10;b", " &#32;a/b", long.as_str()];
    let list = |begin: &str, end: &str| -> String {
        bad.iter().chain(&["good"]).map(|name| format!("{begin}<name>{name}</name>{end}\n")).collect()
    };
    let text = format!(
        "<scheduler_request><hostid>7</hostid>{}{}<other_results>{}</other_results>\
         <in_progress_results>{}</in_progress_results><rpc_seqno>8</rpc_seqno></scheduler_request>",
        list(
            "<result>",
            "<state>5</state><file_info><name>a/b</name><error_msg>e</error_msg></file_info></result>"
        ),
        list("<file_info>", "<status>1</status></file_info>"),
        list("<other_result>", "</other_result>"),
        list("<ip_result>", "<time_remaining>9</time_remaining></ip_result>"),
    );
    let request = SchedulerRequest::parse(text.as_bytes()).unwrap();
    assert_eq!((request.hostid, request.rpc_seqno), (7, 8));
    let names: Vec<&str> = request.results.iter().map(|result| result.name.as_str()).collect();
    assert_eq!(names, ["good"]);
    let file = &request.results[0].files[0];
    assert_eq!((file.name.as_str(), file.error_msg.as_deref()), ("", Some("e")), "its upload failed");
    assert_eq!(request.unknown_results, ["../x", "a/b", "a%2fb", long.as_str()]);
    assert_eq!(request.sticky_files.len(), 1);
    assert_eq!(request.other_results.as_ref().unwrap().len(), 1);
    let running = request.in_progress_results.as_ref().unwrap();
    assert_eq!(running.len(), bad.len() + 1, "they run all the same");
    assert_eq!(SchedulerRequest::parse(request.write().as_bytes()).unwrap(), request);
}

#[test]
fn an_account_key_does_not_show_when_a_request_is_printed() {
    assert!(!format!("{:?}", full_request()).contains("dd53bc9d"));
}

#[test]
fn what_a_message_may_hold_is_bounded_and_cut_between_letters() {
    let long = format!("<scheduler_reply><message>a{}</message></scheduler_reply>", "é".repeat(2_000));
    let reply = SchedulerReply::parse(long.as_bytes()).unwrap();
    assert_eq!(reply.messages[0].text.len(), 1_023);
}

/// A number with at most six decimals, as `%f` keeps it.
fn number() -> impl Strategy<Value = f64> {
    (-1_000_000_000_i64..1_000_000_000).prop_map(|n| n as f64 / 64.0)
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9<>&\"'.é-]([ a-zA-Z0-9<>&\"'.\n\ré-]{0,30}[a-zA-Z0-9<>&\"'.é-])?"
}

prop_compose! {
    fn some_reply()(
        words in prop::collection::vec(text(), 4),
        numbers in prop::collection::vec(number(), 3),
        ids in prop::collection::vec(any::<u32>(), 3),
        flags in any::<[bool; 6]>(),
        names in prop::collection::vec("[a-zA-Z0-9_.-]{1,20}".prop_filter("no ..", |n| names_ok(n)), 0..5),
    ) -> SchedulerReply {
        SchedulerReply {
            request_delay: Duration::from_micros(i64::from(ids[0])),
            messages: vec![Message { priority: Priority::High, text: words[0].clone() }],
            project_name: Some(words[1].clone()),
            user_name: Some(words[2].clone()),
            user_total_credit: Some(numbers[0]),
            host_expavg_credit: flags[0].then_some(numbers[1]),
            hostid: flags[1].then_some(u64::from(ids[1])),
            project_is_down: flags[2],
            send_full_workload: flags[3],
            result_acks: names.clone(),
            files: names.iter().map(|name| FileInfo {
                name: name.clone(),
                executable: flags[4],
                nbytes: Some(Bytes(u64::from(ids[2]))),
                download_urls: vec![words[3].clone()],
                ..FileInfo::default()
            }).collect(),
            results: names.iter().map(|name| ResultJob {
                name: name.clone(),
                wu_name: name.clone(),
                report_deadline: Instant::from_micros(i64::from(ids[1])),
                report_immediately: flags[5],
                ..ResultJob::default()
            }).collect(),
            ..SchedulerReply::default()
        }
    }
}

fn names_ok(name: &str) -> bool {
    crate::names::is_file_name(name)
}

proptest! {
    #[test]
    fn replies_read_back_as_they_were_written(reply in some_reply()) {
        prop_assert_eq!(SchedulerReply::parse(reply.write().as_bytes()).unwrap(), reply);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = SchedulerReply::parse(&bytes);
        let _ = SchedulerRequest::parse(&bytes);
    }

    #[test]
    fn a_damaged_message_never_panics(at in 0_usize..4_000, bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        for text in [full_reply().write(), full_request().write()] {
            let mut damaged = text.into_bytes();
            let at = at % damaged.len();
            let end = damaged.len().min(at + bytes.len());
            damaged.splice(at..end, bytes.clone());
            let _ = SchedulerReply::parse(&damaged);
            let _ = SchedulerRequest::parse(&damaged);
        }
    }
}

#[test]
fn a_reply_of_more_parts_than_any_real_one_is_none() {
    let reply = |acks: usize| {
        format!(
            "<scheduler_reply>{}</scheduler_reply>",
            "<result_ack><name>x</name></result_ack>".repeat(acks)
        )
    };
    assert_eq!(SchedulerReply::parse(reply(100_000).as_bytes()).unwrap().result_acks.len(), 100_000);
    let error = SchedulerReply::parse(reply(200_000).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("at most 150000 elements"), "{error}");
}
