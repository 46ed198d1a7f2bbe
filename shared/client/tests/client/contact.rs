//! When projects are contacted, and when they are left alone: waits, backoffs, periods of network activity.

use fallow_boinc::scheduler::{Message, SchedulerReply};
use fallow_client::{Event, Phase, RequestedBy, TransferError, TransferErrorKind};
use fallow_domain::{Duration, Instant, MasterUrl, Preferences, Share};

use crate::life::{document, small_buffers};
use crate::review::{attach, both_cpus, url};
use crate::world::{World, attach_unseen};

#[test]
fn r1_3_failing_schedulers_are_asked_less_and_less() {
    let mut world = World::new(8);
    world.add_project("a", 10, Duration::from_secs(30));
    world.projects.get_mut("a").unwrap().down = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(24));
    let calls = &world.projects["a"].calls;
    assert!(calls.len() < 20, "{} calls in a day", calls.len());
    let gaps: Vec<f64> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(gaps.iter().all(|gap| *gap >= 30.0), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 4.0 * 3_600.0 + 61.0), "{gaps:?}");
}

#[test]
fn r1_13_with_a_connection_interval_the_network_is_used_in_periods_that_a_request_breaks() {
    let mut world = World::new(13);
    world.add_project("alpha", 10_000, Duration::from_mins(20));
    let interval = Duration::from_hours(6);
    let preferences = Preferences {
        connection_interval: interval,
        buffer_min: Duration::from_hours(1),
        buffer_additional: Duration::from_hours(1),
        scheduling_period: Duration::from_mins(60),
        ..small_buffers()
    };
    world.event(Event::DocumentOffered(document(1, &[("alpha", 100.0)], preferences).into()));
    world.run_for(Duration::from_hours(20));
    let periods = |calls: &[Instant]| {
        let mut begins: Vec<Instant> = Vec::new();
        for call in calls {
            if begins.last().is_none_or(|began| *call - *began > Duration::from_hours(3)) {
                begins.push(*call);
            }
        }
        begins
    };
    let began = periods(&world.calls("alpha"));
    assert!(began.len() >= 3, "it did call: {began:?}");
    // The first call of all comes a moment after its period has begun: the master page was read before.
    let least = interval - Duration::from_mins(1);
    assert!(began.windows(2).all(|pair| pair[1] - pair[0] >= least), "{began:?}");
    let idle = world.client.host_view().figures[0].idleness.unwrap().get();
    assert!(idle < 0.02, "enough work is held for the interval: {idle}");
    let totals = world.client.totals();
    assert!(totals.jobs_late == 0 && totals.jobs_success > 30, "{totals:?}");

    // Just after a period nobody would call for hours.
    let calls = world.calls("alpha").len();
    let last = *world.calls("alpha").last().unwrap();
    world.run_until("half an interval later", interval, |w| w.now - last > Duration::from_hours(2));
    assert_eq!(world.calls("alpha").len(), calls);
    world.event(Event::ContactRequested {
        url: MasterUrl::parse("http://127.0.0.1/alpha/").unwrap(),
        by: RequestedBy::Fleet,
    });
    world.run_for(Duration::from_mins(1));
    assert!(world.calls("alpha").len() > calls);
}

#[test]
fn r1_13_a_contact_that_its_project_has_put_off_opens_no_period_before_it_can_be_made() {
    let mut world = World::new(15);
    world.add_project("alpha", 1, Duration::from_mins(20));
    world.add_project("beta", 10_000, Duration::from_mins(20));
    world.alter = Some(|reply, _| {
        if reply.results.iter().any(|result| result.name.starts_with("alpha")) {
            reply.request_delay = Duration::from_hours(3);
        }
    });
    let preferences = Preferences {
        connection_interval: Duration::from_hours(6),
        buffer_min: Duration::from_hours(1),
        buffer_additional: Duration::from_hours(1),
        scheduling_period: Duration::from_mins(60),
        ..small_buffers()
    };
    let both = [("alpha", 100.0), ("beta", 100.0)];
    world.event(Event::DocumentOffered(document(1, &both, preferences).into()));
    world.run_for(Duration::from_hours(1));
    let (alpha, beta) = (world.calls("alpha"), world.calls("beta"));
    assert!(!alpha.is_empty() && !beta.is_empty());
    world.event(Event::ContactRequested {
        url: MasterUrl::parse("http://127.0.0.1/alpha/").unwrap(),
        by: RequestedBy::Fleet,
    });
    world.run_for(Duration::from_mins(115));
    assert_eq!((world.calls("alpha").len(), world.calls("beta").len()), (alpha.len(), beta.len()));
    world.run_for(Duration::from_mins(10));
    let calls = world.calls("alpha");
    assert!(calls.len() > alpha.len(), "the interval has hours to go");
    let waited = calls[alpha.len()] - *alpha.last().unwrap();
    assert!(waited >= Duration::from_hours(3), "{waited}");
    assert!(world.calls("beta").len() > beta.len(), "as the host is connected anyway, all is done");
}

#[test]
fn r1_13_a_host_that_needs_nothing_is_not_woken_when_its_interval_is_over() {
    let mut world = World::new(14);
    let interval = Duration::from_hours(6);
    world.add_project("alpha", 1, Duration::from_mins(20));
    let preferences = Preferences { connection_interval: interval, ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("alpha", 100.0)], preferences).into()));
    world.run_for(Duration::from_hours(13));
    assert_eq!(world.acknowledged("alpha"), 1);
    let before = world.turns;
    world.run_for(Duration::from_hours(10));
    assert!(world.turns - before < 10 * 60 + 100, "{} turns in ten hours", world.turns - before);
}

/// Results that wait for the next contact say nothing about their project; those that it does not take do.
#[test]
fn r1_13_results_that_gather_between_contacts_keep_no_project_from_being_asked_for_work() {
    let mut world = World::new(16);
    world.add_project("alpha", 10_000, Duration::from_mins(20));
    let interval = Duration::from_hours(6);
    let preferences = Preferences { connection_interval: interval, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("alpha", 100.0)], preferences.clone()).into()));
    let gathered =
        |w: &World| w.client.task_views().iter().filter(|task| task.phase == Phase::Uploading).count();
    world.run_until("many results", interval * 3, |w| gathered(w) > 10);
    let more = Preferences { buffer_min: interval * 4, ..preferences };
    world.event(Event::DocumentOffered(document(2, &[("alpha", 100.0)], more).into()));
    world.run_for(Duration::from_mins(2));
    assert_eq!(world.view("alpha").enough, None);
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no space left"));
    world.run_for(interval + Duration::from_mins(10));
    assert!(world.view("alpha").enough.is_some_and(|why| why.contains("wait to be sent")));
}

#[test]
fn r1_3_what_held_a_wrong_account_key_back_does_not_hold_the_right_one_back() {
    let mut world = World::new(106);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(|reply, before| {
        if before == 0 {
            // As servers answer a key that they do not know.
            *reply = SchedulerReply { request_delay: Duration::from_hours(1), ..SchedulerReply::default() };
        }
    });
    world.event(attach("a"));
    world.run_until("the refusal", Duration::from_mins(2), |w| w.projects["a"].calls.len() == 1);
    world.run_for(Duration::from_mins(1));
    assert!(world.client.project_views()[0].min_rpc_time.is_some());
    world.event(attach_unseen(url("a"), &"f".repeat(32), Some(Share::DEFAULT)));
    assert_eq!(world.client.project_views()[0].min_rpc_time, None);
    world.run_until("another contact", Duration::from_mins(2), |w| w.projects["a"].calls.len() == 2);
}

#[test]
fn r1_3_a_project_that_wants_to_hear_of_us_and_is_down_is_not_stormed() {
    let mut world = World::new(107);
    world.add_project("a", 1, Duration::from_secs(30));
    world.alter = Some(|reply, _| reply.next_rpc_delay = Some(Duration::from_secs(600)));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("done", Duration::from_hours(3), |w| w.acknowledged("a") == 1);
    let calls = world.projects["a"].calls.len();
    world.run_for(Duration::from_hours(1));
    assert!(world.projects["a"].calls.len() >= calls + 5, "it hears of us");
    world.projects.get_mut("a").unwrap().down = true;
    let calls = world.projects["a"].calls.len();
    world.run_for(Duration::from_hours(24));
    let more = world.projects["a"].calls.len() - calls;
    assert!(more < 20, "{more} calls in a day");
}

#[test]
fn r3_7_a_project_that_asks_to_hear_of_us_is_asked_for_work_although_the_type_is_backed_off() {
    let mut world = World::new(113);
    world.add_project("a", 0, Duration::from_secs(30));
    // A work server says so to those that asked in vain.
    world.alter = Some(|reply, _| {
        if reply.results.is_empty() {
            reply.next_rpc_delay = Some(Duration::from_secs(60));
        }
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    // By now its own backoff is hours long.
    world.run_for(Duration::from_hours(12));
    let calls = world.projects["a"].calls.len();
    world.projects.get_mut("a").unwrap().supply = 5;
    let submitted = world.now;
    world.run_until("new jobs arrive", Duration::from_secs(70), |w| w.projects["a"].sent > 0);
    let waited = world.now - submitted;
    assert!(waited <= Duration::from_secs(65), "{waited}");
    assert!((600..=800).contains(&calls), "{calls} calls in 12 hours, one a minute");
    world.run_until("all is done", Duration::from_hours(1), |w| w.acknowledged("a") == 5);
}

#[test]
fn r3_7_a_project_that_refuses_work_is_not_asked_once_for_each_job_that_ends() {
    let mut world = World::new(134);
    world.add_project("a", 20, Duration::from_secs(60));
    let more = Preferences { buffer_min: Duration::from_hours(2), ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], more).into()));
    let finished = |w: &World| w.notices().filter(|text| text.starts_with("finished")).count();
    world.run_until("all are finished", Duration::from_mins(30), |w| finished(w) == 20);
    let calls = world.calls("a").len();
    assert!(
        (2..=6).contains(&calls),
        "{calls} calls in twenty minutes, the first of which brought all there is"
    );
}

#[test]
fn r1_4_whoever_is_told_to_contact_a_project_asks_it_for_work_although_the_type_is_backed_off() {
    let mut world = World::new(114);
    world.add_project("a", 0, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(12));
    world.projects.get_mut("a").unwrap().supply = 1;
    world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Fleet });
    world.run_until("the job arrives", Duration::from_secs(5), |w| w.projects["a"].sent == 1);
}

#[test]
fn r1_12_transfers_that_wait_go_on_after_the_clock_was_set_back() {
    let mut world = World::new(108);
    world.add_project("a", 1, Duration::from_secs(30));
    world.fail_download = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_hours(2));
    world.jump(Duration::from_hours(-365 * 24));
    world.fail_download = None;
    world.run_until("the job is done", Duration::from_hours(14), |w| w.acknowledged("a") == 1);
}

#[test]
fn r1_12_a_backoff_of_a_resource_type_ends_although_the_clock_was_set_back() {
    let mut world = World::new(131);
    world.add_project("a", 0, Duration::from_secs(30));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_until("asked in vain", Duration::from_mins(10), |w| !w.calls("a").is_empty());
    world.run_for(Duration::from_mins(1));
    world.jump(Duration::from_hours(-24 * 365));
    world.projects.get_mut("a").unwrap().supply = 1;
    world.run_until("asked again", Duration::from_hours(2), |w| w.calls("a").len() > 1);
}

#[test]
fn r2_16_work_runs_low_sooner_than_planned_when_tasks_are_faster_than_their_estimates() {
    let mut world = World::new(132);
    world.add_project("a", 100, Duration::from_hours(5));
    world.slowness = 0.1;
    let short =
        Preferences { buffer_min: Duration::from_mins(10), buffer_additional: Duration::ZERO, ..both_cpus() };
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], short).into()));
    world.run_until("both CPUs compute", Duration::from_mins(10), |w| w.computing() == 2);
    world.run_until("more work", Duration::from_mins(40), |w| w.client.task_views().len() > 2);
    let finished = world.notices().any(|text| text.starts_with("finished"));
    assert!(!finished && world.computing() == 2, "before a CPU idles");
}

#[test]
fn r1_3_a_project_that_names_no_delay_until_the_next_contact_is_not_stormed() {
    let mut world = World::new(133);
    world.add_project("a", 0, Duration::from_secs(30));
    world.alter = Some(|reply, _| {
        reply.next_rpc_delay = Some(Duration::ZERO);
        reply.request_delay = Duration::ZERO;
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(30));
    let calls = world.calls("a").len();
    assert!(calls < 10, "{calls} calls in half an hour");
}

#[test]
fn r1_3_a_project_that_wants_to_hear_of_us_without_end_is_heard_and_contacted_within_bounds() {
    let mut world = World::new(134);
    world.add_project("a", 0, Duration::from_secs(30));
    world.alter = Some(|reply, _| {
        reply.next_rpc_delay = Some(Duration::from_millis(1));
        reply.request_delay = Duration::ZERO;
        let message = Message { text: "x".repeat(2_000), ..Message::default() };
        reply.messages = vec![message; 300];
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(10));
    let calls = world.calls("a").len();
    assert!((60..=130).contains(&calls), "{calls} calls in ten minutes, where it wants to hear of us");
    let said = world.notices().filter(|text| text.contains("xxx")).count();
    assert!((15..=26).contains(&said), "{said} messages told in ten minutes");
    assert!(world.notices().any(|text| text.contains("more messages")), "what is not told is counted");
    let told: usize = world.notices().map(String::len).sum();
    assert!(told < 100_000, "{told} bytes");
}

#[test]
fn a_scheduler_that_takes_its_time_does_not_keep_the_client_busy() {
    let mut world = World::new(111);
    world.add_project("a", 1, Duration::from_secs(30));
    world.silent = true;
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(2));
    let before = world.turns;
    world.run_for(Duration::from_mins(30));
    assert!(world.turns - before < 40, "{} turns in half an hour", world.turns - before);
}

#[test]
fn r1_3_a_project_that_says_it_is_down_is_not_asked_at_its_next_scheduler() {
    let mut world = World::new(117);
    world.add_project("a", 1, Duration::from_secs(30));
    world.schedulers = 3;
    world.alter = Some(|reply, _| {
        reply.project_is_down = true;
        reply.request_delay = Duration::from_hours(1);
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(50));
    assert_eq!(world.projects["a"].calls.len(), 1);
}

#[test]
fn no_work_is_fetched_while_results_cannot_be_sent() {
    let mut world = World::new(118);
    world.add_project("a", 10_000, Duration::from_secs(30));
    world.fail_upload = Some(TransferError::new(TransferErrorKind::Transient, "no connection"));
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], both_cpus()).into()));
    world.run_for(Duration::from_hours(12));
    assert!(world.projects["a"].sent < 30, "{} jobs", world.projects["a"].sent);
    world.fail_upload = None;
    world.run_until("results are sent", Duration::from_hours(12), |w| w.acknowledged("a") > 30);
}

#[test]
fn r1_3_an_idle_host_asks_again_when_a_wait_ends_and_not_at_the_next_look() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        world.add_project("a", 10, Duration::from_secs(30));
        world.projects.get_mut("a").unwrap().down = true;
        world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
        world.run_for(Duration::from_hours(3));
        // The waits are those of R1.3: from one to two minutes, each up to twice as long as the one before.
        let mut longest = Duration::from_secs(122);
        for pair in world.projects["a"].calls.windows(2) {
            assert!(
                pair[1] - pair[0] <= longest,
                "seed {seed}: {} where {longest} is the most",
                pair[1] - pair[0]
            );
            longest = longest * 2;
        }
    }
}

#[test]
fn r1_13_a_report_that_was_put_off_is_sent_before_its_deadline_in_a_closed_period() {
    let mut world = World::new(21);
    world.add_project("alpha", 1, Duration::from_mins(20));
    let began = world.now;
    world.alter = Some(|reply, before| {
        if before == 0 {
            for result in &mut reply.results {
                result.report_deadline = Instant::from_secs_f64(1_800_000_000.0) + Duration::from_mins(165);
            }
            reply.request_delay = Duration::from_mins(150);
        }
    });
    let preferences = Preferences { connection_interval: Duration::from_hours(6), ..small_buffers() };
    world.event(Event::DocumentOffered(document(1, &[("alpha", 100.0)], preferences).into()));
    world.run_for(Duration::from_hours(8));
    let second = world.calls("alpha")[1] - began;
    assert!((149..=155).contains(&(second.as_secs_f64() as i64 / 60)), "{second}");
    assert_eq!(world.projects["alpha"].reports.len(), 1);
}

#[test]
fn what_a_project_says_when_it_sends_no_work_is_kept_until_it_sends_some_or_is_detached() {
    let mut world = World::new(135);
    let said = |world: &World| {
        let no_work = world.client.no_work(world.view("a").id)?;
        Some((no_work.at <= world.now, no_work.said.clone()))
    };
    world.add_project("a", 0, Duration::from_secs(30));
    world.alter = Some(|reply, _| {
        let says = |text: &str| Message { text: text.to_owned(), ..Message::default() };
        reply.messages = vec![says(" no jobs\nare left "), says("x")];
    });
    world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], small_buffers()).into()));
    world.run_for(Duration::from_mins(1));
    assert_eq!(said(&world), Some((true, "no jobs are left; x".to_owned())));
    world.projects.get_mut("a").unwrap().supply = 1;
    world.run_until("its work", Duration::from_hours(24), |world| said(world).is_none());
    world.run_until("no more work", Duration::from_hours(24), |world| said(world).is_some());
    let id = world.view("a").id;
    world.event(Event::Detach { url: world.view("a").url });
    assert_eq!(world.client.no_work(id), None);
}
