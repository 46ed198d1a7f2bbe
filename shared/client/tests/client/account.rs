//! What a project says of the account: the user's preferences on its web site, its key, its messages; and
//! where its files lie.

use fallow_boinc::scheduler::{Message, Priority, SchedulerReply};
use fallow_client::Event;
use fallow_domain::{Duration, MasterUrl, Share};

use crate::hand::{Bench, KEY, add_job, add_version, url};
use crate::world::{CODE_SIGN_KEY, attach_unseen};

const PREFERENCES: &str = "<resource_share>40</resource_share>\n<project_specific>\n<color>red</color>\n</project_specific>\n\
    <venue name=\"home\">\n<resource_share>10</resource_share>\n<no_cpu>1</no_cpu>\n\
    <project_specific>\n<color>blue</color>\n</project_specific>\n</venue>";

fn preferences(venue: &str) -> SchedulerReply {
    SchedulerReply {
        project_preferences: Some(PREFERENCES.to_owned()),
        host_venue: Some(venue.to_owned()),
        ..SchedulerReply::default()
    }
}

fn share(bench: &Bench) -> f64 {
    bench.client.project_views()[0].share.get()
}

#[test]
fn r6_2_the_share_on_the_web_site_counts_unless_the_owner_gave_one() {
    let mut bench = Bench::new();
    bench.answer(&preferences(""));
    assert_eq!(share(&bench), 40.0);
    bench.answer(&preferences("home"));
    assert_eq!(share(&bench), 10.0);
    bench.restart();
    assert_eq!(share(&bench), 10.0);
    bench.turn(attach_unseen(url(), KEY, Share::new(70.0).ok()));
    bench.answer(&preferences(""));
    assert_eq!(share(&bench), 70.0);
    bench.restart();
    bench.answer(&preferences("home"));
    assert_eq!(share(&bench), 70.0);
}

#[test]
fn r6_2_a_project_that_must_not_use_the_cpus_is_asked_for_no_cpu_work() {
    let mut bench = Bench::new();
    let first = bench.answer(&preferences(""));
    assert!(first.cpu_req_secs > 0.0);
    let asked = |bench: &mut Bench, venue: &str| {
        bench.answer(&preferences(venue));
        bench.now = bench.now + Duration::from_hours(48);
        bench.answer(&preferences(venue)).cpu_req_secs
    };
    assert!(asked(&mut bench, "") > 0.0);
    assert_eq!(asked(&mut bench, "home"), 0.0);
    assert!(asked(&mut bench, "school") > 0.0);
}

#[test]
fn r6_2_an_application_gets_the_inside_of_its_projects_preferences_for_the_hosts_venue() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    let mut reply = preferences("home");
    add_version(&mut reply, "app", 1);
    add_job(&mut reply, "app", 1, "job");
    bench.answer(&reply);
    let given = bench.started[0].init_data.project_preferences.as_ref().unwrap();
    assert_eq!(given.0.trim(), "<color>blue</color>");
}

#[test]
fn r6_10_a_job_is_not_told_the_key_of_its_account() {
    let mut bench = Bench::new();
    bench.downloads_end = true;
    let mut reply = preferences("home");
    add_version(&mut reply, "app", 1);
    add_job(&mut reply, "app", 1, "job");
    bench.answer(&reply);
    assert_eq!(bench.started[0].init_data.authenticator.reveal(), "");
}

#[test]
fn r6_2_a_message_marked_for_translation_is_shown_without_the_marks() {
    let mut bench = Bench::new();
    let text = "Server: _(\"No tasks sent\")".to_owned();
    let messages = vec![Message { priority: Priority::Notice, text }];
    bench.answer(&SchedulerReply { messages, ..SchedulerReply::default() });
    assert_eq!(bench.notices_with("says: Server: No tasks sent"), 1, "{:?}", bench.notices);
}

#[test]
fn r6_10_a_key_too_weak_to_prove_anything_is_not_taken_and_makes_way_for_a_better_one() {
    let mut bench = Bench::new();
    let lines: Vec<&str> = CODE_SIGN_KEY.lines().collect();
    let weak = format!("512\n{}\n{}\n{}\n{}\n.", lines[1], lines[2], lines[7], lines[8]);
    let with =
        |key: &str| SchedulerReply { code_sign_key: Some(key.to_owned()), ..SchedulerReply::default() };
    bench.answer(&with(&weak));
    assert_eq!(bench.notices_with("proves nothing"), 1, "{:?}", bench.notices);
    let request = bench.answer(&with(CODE_SIGN_KEY));
    assert_eq!(request.code_sign_key, None);
    let request = bench.answer(&with(&weak));
    assert_eq!(request.code_sign_key.as_deref(), Some(CODE_SIGN_KEY));
    // As an older version has stored one.
    let (key, record) = bench.store.iter().find(|(key, _)| key.starts_with(b"project/")).unwrap();
    let escape = |key: &str| key.replace('\n', "\\n");
    let old = String::from_utf8_lossy(record).replace(&escape(CODE_SIGN_KEY), &escape(&weak));
    bench.store.insert(key.clone(), old.into_bytes());
    bench.restart();
    bench.answer(&with(CODE_SIGN_KEY));
    let request = bench.answer(&SchedulerReply::default());
    assert_eq!(request.code_sign_key.as_deref(), Some(CODE_SIGN_KEY));
}

#[test]
fn r6_10_no_two_projects_share_a_directory_and_each_keeps_its_own_over_restarts() {
    let mut bench = Bench::new();
    let urls = [
        "http://h.org:29002/good/",
        "http://h.org/29002/good/",
        "https://h.org:29002/good/",
        "http://h.org/a_b/",
        "http://h.org/a/b/",
    ];
    for url in urls {
        bench.turn(attach_unseen(MasterUrl::parse(url).unwrap(), KEY, None));
    }
    let directories = |bench: &Bench| -> Vec<String> {
        bench.client.project_views().into_iter().skip(1).map(|view| view.directory).collect()
    };
    let expected =
        ["h.org_29002_good", "h.org_29002_good.2", "h.org_29002_good.3", "h.org_a_b", "h.org_a_b.2"];
    assert_eq!(directories(&bench), expected);
    bench.turn(Event::Detach { url: MasterUrl::parse(urls[0]).unwrap() });
    bench.restart();
    assert_eq!(directories(&bench), expected[1..]);
}

#[test]
fn r6_10_projects_that_shared_a_directory_in_an_older_store_are_parted() {
    let mut bench = Bench::new();
    for url in ["http://h.org/a_b/", "http://h.org/a/b/"] {
        bench.turn(attach_unseen(MasterUrl::parse(url).unwrap(), KEY, Share::new(50.0).ok()));
    }
    for record in bench.store.values_mut() {
        let text = String::from_utf8_lossy(record);
        let old = text.replace("\"directory\":\"h.org_a_b.2\",", "").replace("\"chosen_share\":50.0,", "");
        *record = old.into_bytes();
    }
    bench.restart();
    let views = bench.client.project_views();
    assert_eq!((views[1].directory.as_str(), views[2].directory.as_str()), ("h.org_a_b", "h.org_a_b.2"));
    assert!(bench.store.values().any(|record| String::from_utf8_lossy(record).contains("h.org_a_b.2")));
    let chosen = |record: &&Vec<u8>| String::from_utf8_lossy(record).contains("\"chosen_share\":50.0");
    assert_eq!(bench.store.values().filter(chosen).count(), 2);
}

#[test]
fn r6_10_a_project_of_an_older_store_takes_the_form_that_its_url_has_now_and_keeps_its_directory() {
    let mut bench = Bench::new();
    for url in ["http://h.org/a/", "http://h.org/b/", "http://h.org/c/"] {
        bench.turn(attach_unseen(MasterUrl::parse(url).unwrap(), KEY, None));
    }
    for record in bench.store.values_mut() {
        let old = String::from_utf8_lossy(record).replace("http://h.org/a/", "http://h.org:80/%61/");
        *record = old.replace("http://h.org/b/", "http://h.org:080/c/").into_bytes();
    }
    for _ in 0..2 {
        bench.restart();
        let views = bench.client.project_views();
        let seen: Vec<_> =
            views[1..].iter().map(|view| (view.url.as_str(), view.directory.as_str())).collect();
        let expected = [
            ("http://h.org/a/", "h.org_80__61"),
            // Attached twice: both stay, each with its files, until the owner detaches one.
            ("http://h.org:080/c/", "h.org_080_c"),
            ("http://h.org/c/", "h.org_c"),
        ];
        assert_eq!(seen, expected);
    }
    assert!(bench.store.values().any(|record| String::from_utf8_lossy(record).contains("h.org_80__61")));
}
