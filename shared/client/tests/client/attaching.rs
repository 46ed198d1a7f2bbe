//! What comes of a project that the owner attaches: what its page and its scheduler say decides, or that they
//! say nothing. What they do not accept is taken back as if it had never been wanted.

use std::collections::BTreeMap;

use fallow_boinc::scheduler::{Message, Priority, SchedulerReply};
use fallow_client::{
    AttachRequest, Attached, Client, ClientConfig, Effect, Event, NotAttached, RequestedBy, Startup,
    TransferError, TransferErrorKind, Verdict, Waiter,
};
use fallow_domain::{AccountKey, Duration, Instant, MasterUrl, Preferences, ProjectId, Share};
use serde_json::{Value, json};

use crate::hand::{KEY, add_job, add_version, url};
use crate::life::document;
use crate::world::{host, version};

const OTHER_KEY: &str = "ffffffffffffffffffffffffffffffff";
/// The first project that is attached.
const FIRST: ProjectId = ProjectId(0);

/// A client without projects, and an owner before it who attaches some. No second passes but by `wait`.
struct Desk {
    client: Client,
    now: Instant,
    wake_at: Instant,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was to be done in the last step, in order.
    done: Vec<Effect>,
    verdicts: Vec<(Waiter, Verdict)>,
}

impl Desk {
    fn new() -> Self {
        let now = Instant::from_secs_f64(1.8e9);
        let client = Client::restore(ClientConfig::new(1, version()), []).unwrap();
        let (store, done, verdicts) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut desk = Self { client, now, wake_at: Instant::FAR_FUTURE, store, done, verdicts };
        desk.start();
        desk
    }

    fn start(&mut self) {
        let (slots, files) = (Vec::new(), Vec::new());
        self.turn(Event::Started(Box::new(Startup { host: host(), slots, files, doomed: Vec::new() })));
    }

    fn turn(&mut self, event: Event) {
        let step = self.client.handle(self.now, event);
        for change in step.changes {
            match change.value {
                Some(value) => self.store.insert(change.key, value),
                None => self.store.remove(&change.key),
            };
        }
        self.wake_at = step.wake_at.unwrap();
        self.done = step.actions.into_iter().map(|action| action.effect).collect();
        for effect in &self.done {
            if let Effect::TellVerdict { waiter, verdict, .. } = effect {
                self.verdicts.push((*waiter, verdict.clone()));
            }
        }
    }

    /// The owner wants the project of `url()`, or what `change` makes of that.
    fn wants(&mut self, change: impl FnOnce(&mut AttachRequest)) {
        let account_key = Some(AccountKey::new(KEY));
        let mut request =
            AttachRequest { waiter: Waiter(1), url: url(), account_key, share: None, unseen: false };
        change(&mut request);
        self.turn(Event::Attach(request));
    }

    fn page(&mut self, outcome: Result<&[&str], TransferError>) {
        let outcome = outcome.map(|urls| urls.iter().map(|url| (*url).to_owned()).collect());
        self.turn(Event::MasterPageRead { project: FIRST, outcome });
    }

    fn answers(&mut self, outcome: Result<SchedulerReply, TransferError>) {
        self.turn(Event::SchedulerAnswered { project: FIRST, outcome: outcome.map(Box::new) });
    }

    /// Wakes the client when it wants to be woken, and at the end.
    fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            self.now = self.wake_at.min(end);
            self.turn(Event::WakeUp);
        }
    }

    /// What was told since the last look.
    fn told(&mut self) -> Vec<(u64, Verdict)> {
        std::mem::take(&mut self.verdicts).into_iter().map(|(Waiter(who), what)| (who, what)).collect()
    }

    #[track_caller]
    fn assert_told(&mut self, verdict: Verdict) {
        assert_eq!(self.told(), [(1, verdict)]);
    }

    /// What is stored of a project as the owner or the coordinator wants it.
    fn stored(&self) -> Option<Value> {
        let (_, record) = self.store.iter().find(|(key, _)| key.starts_with(b"project/"))?;
        let project: Value = serde_json::from_slice(&record[1..]).unwrap();
        let names = ["account_key", "share", "chosen_share", "from_document", "detach_when_done"];
        Some(names.iter().map(|name| project[name].clone()).collect())
    }

    /// The schedulers that were called in the last step.
    fn called(&self) -> Vec<&str> {
        let calls = self.done.iter().filter_map(|effect| match effect {
            Effect::CallScheduler { url, .. } => Some(url.as_str()),
            _ => None,
        });
        calls.collect()
    }

    /// Where something stands among what was done in the last step.
    fn place(&self, is: impl Fn(&Effect) -> bool) -> Option<usize> {
        self.done.iter().position(is)
    }

    /// A project that took this host in a while ago, with `KEY`, and whose share nobody has chosen.
    fn with_project() -> Self {
        let mut desk = Self::new();
        desk.wants(|_| {});
        desk.page(Ok(&[CGI]));
        desk.answers(Ok(accepts()));
        desk.told();
        desk.wait(Duration::from_mins(5));
        desk
    }
}

const CGI: &str = "http://127.0.0.1/p/cgi";
const CGI_2: &str = "http://127.0.0.1/p/cgi2";

fn accepts() -> SchedulerReply {
    SchedulerReply { hostid: Some(7), user_name: Some("Ada".to_owned()), ..SchedulerReply::default() }
}

fn accepted() -> Verdict {
    Ok(Attached::Accepted { user: Some("Ada".to_owned()), said: Vec::new() })
}

fn says(texts: &[&str]) -> SchedulerReply {
    let message = |text: &&str| Message { priority: Priority::Notice, text: (*text).to_owned() };
    SchedulerReply { messages: texts.iter().map(message).collect(), ..SchedulerReply::default() }
}

fn refused() -> Verdict {
    Err(NotAttached::Refused { said: Vec::new() })
}

fn fails(kind: TransferErrorKind) -> TransferError {
    TransferError::new(kind, "it fails")
}

fn silence() -> TransferError {
    fails(TransferErrorKind::Transient)
}

fn owned(key: &str, share: f64, chosen: Option<f64>) -> Option<Value> {
    Some(json!([key, share, chosen, false, false]))
}

#[test]
fn r6_2_what_the_page_of_a_project_says_decides_whether_it_stays_attached() {
    use TransferErrorKind::{BadReply, LocalFile, Permanent, Transient};
    let is = |verdict| Some(Err(verdict));
    let table = [
        (Ok(&[][..]), is(NotAttached::NoScheduler)),
        (Ok(&[CGI][..]), None),
        (Err(fails(Transient)), is(NotAttached::NoAnswer(fails(Transient)))),
        (Err(fails(LocalFile)), is(NotAttached::NoAnswer(fails(LocalFile)))),
        (Err(fails(Permanent)), is(NotAttached::NoProject(fails(Permanent)))),
        (Err(fails(BadReply)), is(NotAttached::NoProject(fails(BadReply)))),
    ];
    for (page, verdict) in table {
        let mut desk = Desk::new();
        desk.wants(|_| {});
        assert_eq!(desk.told(), [], "the project is asked first");
        assert!(desk.place(|effect| matches!(effect, Effect::FetchMasterPage { .. })).is_some());
        desk.page(page.clone());
        let told: Vec<_> = desk.told().into_iter().map(|(_, verdict)| verdict).collect();
        assert_eq!(told, verdict.iter().cloned().collect::<Vec<_>>(), "{page:?}");
        assert_eq!(desk.stored().is_none(), verdict.is_some(), "{page:?}");
    }
}

#[test]
fn r6_2_what_the_scheduler_of_a_project_says_decides_whether_it_stays_attached() {
    use TransferErrorKind::{BadReply, Permanent, Transient};
    let with = |change: fn(&mut SchedulerReply)| {
        let mut reply = says(&["one", "two"]);
        change(&mut reply);
        Ok(reply)
    };
    let said = || vec!["one".to_owned(), "two".to_owned()];
    let accepted =
        |user: Option<&str>| Ok(Attached::Accepted { user: user.map(str::to_owned), said: said() });
    let table: [(Result<SchedulerReply, TransferError>, Verdict); 11] = [
        (with(|reply| reply.hostid = Some(7)), accepted(None)),
        (with(|reply| reply.userid = Some(7)), accepted(None)),
        (with(|reply| reply.user_name = Some("Ada\n".to_owned())), accepted(Some("Ada\u{fffd}"))),
        // No name is none.
        (with(|reply| reply.user_name = Some(String::new())), Err(NotAttached::Refused { said: said() })),
        (with(|_| {}), Err(NotAttached::Refused { said: said() })),
        (
            Ok(says(&["1", "2", "3", "4", "5", "6"])),
            Err(NotAttached::Refused { said: ["1", "2", "3", "4", "5"].map(str::to_owned).to_vec() }),
        ),
        (with(|reply| reply.project_is_down = true), Err(NotAttached::Down { said: said() })),
        (
            with(|reply| (reply.project_is_down, reply.hostid) = (true, Some(7))),
            Err(NotAttached::Down { said: said() }),
        ),
        (Err(fails(Transient)), Err(NotAttached::NoAnswer(fails(Transient)))),
        (Err(fails(Permanent)), Err(NotAttached::NoProject(fails(Permanent)))),
        (Err(fails(BadReply)), Err(NotAttached::NoProject(fails(BadReply)))),
    ];
    for (answer, verdict) in table {
        let mut desk = Desk::new();
        desk.wants(|request| request.share = Share::new(30.0).ok());
        desk.page(Ok(&[CGI]));
        assert_eq!(desk.called(), [CGI]);
        desk.answers(answer.clone());
        desk.assert_told(verdict.clone());
        match verdict {
            Ok(_) => assert_eq!(desk.stored(), owned(KEY, 30.0, Some(30.0)), "{answer:?}"),
            Err(_) => {
                assert_eq!(desk.stored(), None, "{answer:?}");
                let deleted = desk.place(|effect| matches!(effect, Effect::DeleteProject { .. }));
                let told = desk.place(|effect| matches!(effect, Effect::TellVerdict { .. }));
                assert!(deleted.is_some() && deleted < told, "he hears of it when it is done: {answer:?}");
            }
        }
    }
}

#[test]
fn r6_2_a_project_is_asked_whether_it_accepts_the_account_although_no_work_is_wanted() {
    let mut desk = Desk::new();
    desk.turn(Event::OwnerSuspended(true));
    desk.wants(|_| {});
    desk.page(Ok(&[CGI]));
    assert_eq!(desk.called(), [CGI]);
}

#[test]
fn r6_2_while_a_page_or_another_scheduler_may_answer_no_failure_takes_an_attachment_back() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.page(Ok(&[CGI, CGI_2]));
    desk.answers(Err(silence()));
    assert_eq!((desk.called(), desk.verdicts.len()), (vec![CGI_2], 0));
    desk.answers(Ok(accepts()));
    desk.assert_told(accepted());

    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.page(Ok(&[CGI, CGI_2]));
    desk.answers(Err(silence()));
    desk.answers(Err(silence()));
    desk.assert_told(Err(NotAttached::NoAnswer(silence())));

    // With another key its page is read anew, and beside that its scheduler asked.
    let other = |request: &mut AttachRequest| request.account_key = Some(AccountKey::new(OTHER_KEY));
    let mut desk = Desk::with_project();
    desk.wants(other);
    desk.page(Err(silence()));
    assert_eq!(desk.told(), [], "the scheduler may answer yet");
    desk.answers(Ok(accepts()));
    desk.assert_told(accepted());
    let mut desk = Desk::with_project();
    desk.wants(other);
    desk.answers(Err(silence()));
    assert_eq!(desk.told(), [], "the page may name another scheduler yet");
    desk.page(Err(silence()));
    desk.assert_told(Err(NotAttached::NoAnswer(silence())));
}

#[test]
fn r6_2_a_scheduler_that_is_not_asked_yet_may_answer_too() {
    let mut desk = Desk::with_project();
    // Another project has just been asked: whoever is next has to wait for a second.
    desk.wants(|request| request.url = MasterUrl::parse("http://127.0.0.1/q/").unwrap());
    desk.turn(Event::MasterPageRead { project: ProjectId(1), outcome: Ok(vec![CGI_2.to_owned()]) });
    assert_eq!(desk.called(), [CGI_2]);
    desk.wants(|request| {
        (request.waiter, request.account_key) = (Waiter(2), Some(AccountKey::new(OTHER_KEY)));
    });
    assert_eq!(desk.called(), [""; 0]);
    desk.page(Err(silence()));
    assert_eq!(desk.told(), []);
    desk.wait(Duration::from_secs(2));
    desk.answers(Ok(accepts()));
    assert_eq!(desk.told(), [(2, accepted())]);
}

#[test]
fn r6_2_a_project_that_says_nothing_for_a_minute_is_given_up_and_what_comes_later_counts_no_more() {
    for page in [None, Some(CGI)] {
        let mut desk = Desk::new();
        desk.wants(|_| {});
        if let Some(cgi) = page {
            desk.page(Ok(&[cgi]));
        }
        desk.wait(Duration::from_millis(59_990));
        assert_eq!((desk.told(), desk.stored().is_some()), (vec![], true));
        desk.wait(Duration::from_millis(10));
        desk.assert_told(Err(NotAttached::Silent(Duration::from_secs(60))));
        assert_eq!(desk.stored(), None);
        desk.page(Ok(&[CGI]));
        desk.answers(Ok(accepts()));
        assert_eq!((desk.told(), desk.stored()), (vec![], None));
    }
}

#[test]
fn r6_2_the_client_wants_to_be_woken_when_a_project_that_is_attached_is_to_be_given_up() {
    let mut desk = Desk::new();
    let begun = desk.now;
    desk.wants(|_| {});
    while desk.verdicts.is_empty() {
        desk.now = desk.wake_at;
        desk.turn(Event::WakeUp);
    }
    assert_eq!(desk.now.since(begun), Duration::from_secs(60));
}

#[test]
fn r6_2_an_answer_that_waited_for_the_shell_is_judged_however_late_it_is_told() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.page(Ok(&[CGI]));
    assert_eq!(desk.called(), [CGI]);
    // A full disk held the shell up. What came meanwhile is told in turn, and only then that nothing else is
    // there.
    desk.now = desk.now + Duration::from_secs(90);
    desk.turn(Event::TrafficMeasured(Vec::new()));
    desk.answers(Ok(accepts()));
    desk.turn(Event::WakeUp);
    desk.assert_told(accepted());
}

#[test]
fn r1_12_a_clock_that_is_set_back_has_nobody_wait_longer_than_a_minute_for_a_project() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.now = desk.now - Duration::from_hours(1);
    desk.turn(Event::WakeUp);
    desk.wait(Duration::from_secs(60));
    desk.assert_told(Err(NotAttached::Silent(Duration::from_secs(60))));
}

#[test]
fn r6_2_an_attached_project_that_refuses_another_key_has_its_own_key_and_share_again() {
    let with = |key: &str, share: Option<f64>| {
        let (account_key, share) =
            (Some(AccountKey::new(key)), share.and_then(|share| Share::new(share).ok()));
        move |request: &mut AttachRequest| (request.account_key, request.share) = (account_key, share)
    };
    // Nobody chose its share; then the owner did.
    for (chosen, before) in [(None, owned(KEY, 100.0, None)), (Some(5.0), owned(KEY, 5.0, Some(5.0)))] {
        for wanted in [None, Some(40.0)] {
            let mut desk = Desk::with_project();
            if chosen.is_some() {
                desk.wants(with(KEY, chosen));
                desk.told();
            }
            assert_eq!(desk.stored(), before);
            desk.wants(with(OTHER_KEY, wanted));
            let meanwhile = wanted.or(chosen);
            assert_eq!(desk.stored(), owned(OTHER_KEY, meanwhile.unwrap_or(100.0), meanwhile));
            desk.answers(Ok(SchedulerReply { request_delay: Duration::from_hours(1), ..says(&[]) }));
            desk.assert_told(refused());
            assert_eq!(desk.stored(), before);
            // The delay was meant for the other key.
            assert_eq!(desk.client.project_views()[0].min_rpc_time, None);
        }
    }
}

#[test]
fn r6_2_a_project_that_the_coordinator_dropped_leaves_all_the_same_if_it_refuses_what_the_owner_gives() {
    let offered = |version, shares: &[(&str, f64)]| {
        Event::DocumentOffered(document(version, shares, Preferences::default()).into())
    };
    let other = |request: &mut AttachRequest| {
        (request.account_key, request.share) = (Some(AccountKey::new(OTHER_KEY)), Share::new(40.0).ok());
    };
    let leaving = Some(json!([KEY, 75.0, null, true, true]));
    let dropped = || {
        let mut desk = Desk::new();
        desk.turn(offered(1, &[("p", 75.0)]));
        desk.page(Ok(&[CGI]));
        let mut reply = accepts();
        add_version(&mut reply, "app", 1);
        add_job(&mut reply, "app", 1, "job");
        desk.answers(Ok(reply));
        desk.turn(offered(2, &[]));
        assert_eq!(desk.stored(), leaving, "when its job is done");
        desk.wants(other);
        assert_eq!(desk.stored(), owned(OTHER_KEY, 40.0, Some(40.0)));
        desk
    };
    let mut desk = dropped();
    desk.answers(Ok(accepts()));
    desk.assert_told(accepted());
    assert_eq!(desk.stored(), owned(OTHER_KEY, 40.0, Some(40.0)));
    let mut desk = dropped();
    desk.answers(Ok(says(&[])));
    desk.assert_told(refused());
    assert_eq!(desk.stored(), leaving);
}

#[test]
fn r6_2_a_page_that_comes_after_a_project_has_its_own_key_again_is_taken_in() {
    let mut desk = Desk::with_project();
    desk.wants(|request| request.account_key = Some(AccountKey::new(OTHER_KEY)));
    assert_eq!(desk.called(), [CGI]);
    desk.wait(Duration::from_mins(1));
    desk.assert_told(Err(NotAttached::Silent(Duration::from_secs(60))));
    let given_up = desk.place(|effect| matches!(effect, Effect::GiveUpRpc { .. }));
    let told = desk.place(|effect| matches!(effect, Effect::TellVerdict { .. }));
    assert!(given_up.is_some() && given_up < told, "no answer about the other key is waited for");
    desk.wait(Duration::from_secs(5));
    desk.page(Ok(&[CGI_2]));
    desk.answers(Ok(accepts()));
    desk.wait(Duration::from_secs(5));
    desk.turn(Event::ContactRequested { url: url(), by: RequestedBy::Owner });
    assert_eq!(desk.called(), [CGI_2]);
}

#[test]
fn r6_2_who_waits_for_a_project_hears_that_it_was_detached_meanwhile_and_once_only() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.turn(Event::Detach { url: url() });
    desk.assert_told(Err(NotAttached::Detached));
    desk.page(Ok(&[]));
    desk.wait(Duration::from_mins(2));
    assert_eq!(desk.told(), []);
    // Attached again, it has nothing of the first time.
    desk.wants(|request| request.waiter = Waiter(2));
    assert_eq!(desk.told(), []);
}

#[test]
fn r6_1_a_project_that_the_coordinator_assigns_meanwhile_stays_whatever_it_says() {
    let mut desk = Desk::new();
    desk.wants(|request| request.account_key = Some(AccountKey::new(OTHER_KEY)));
    desk.turn(Event::DocumentOffered(document(1, &[("p", 75.0)], Preferences::default()).into()));
    desk.page(Ok(&[CGI]));
    desk.answers(Ok(says(&[])));
    desk.assert_told(refused());
    assert_eq!(desk.stored(), Some(json!([KEY, 75.0, null, true, false])));
}

#[test]
fn r6_2_when_the_agent_ends_all_who_wait_are_told_and_nothing_stays_unseen() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.wants(|request| {
        (request.waiter, request.url) = (Waiter(2), MasterUrl::parse("http://127.0.0.1/q/").unwrap());
    });
    desk.page(Ok(&[CGI]));
    // A scheduler is being asked: nobody would see what it says.
    desk.turn(Event::Ending);
    assert_eq!(desk.told(), [(1, Err(NotAttached::Ending)), (2, Err(NotAttached::Ending))]);
    assert_eq!(desk.stored(), None);
}

#[test]
fn r6_2_a_project_stays_if_nobody_waits_for_what_it_says_any_more() {
    let refuses = |desk: &mut Desk| {
        desk.page(Ok(&[CGI]));
        desk.answers(Ok(says(&[])));
        desk.wait(Duration::from_mins(2));
        assert_eq!(desk.stored(), owned(KEY, 100.0, None));
    };
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.turn(Event::WaiterGone(Waiter(2)));
    desk.turn(Event::WaiterGone(Waiter(1)));
    refuses(&mut desk);
    assert_eq!(desk.told(), []);

    let mut desk = Desk::new();
    desk.wants(|request| request.unseen = true);
    desk.assert_told(Ok(Attached::Unseen));
    refuses(&mut desk);
    assert_eq!(desk.told(), []);

    // As after a kill.
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.client = Client::restore(ClientConfig::new(1, version()), desk.store.clone()).unwrap();
    desk.start();
    refuses(&mut desk);
    assert_eq!(desk.told(), []);
}

#[test]
fn r6_2_only_the_one_who_has_gone_is_forgotten() {
    let mut desk = Desk::new();
    desk.wants(|_| {});
    desk.turn(Event::WaiterGone(Waiter(2)));
    desk.page(Ok(&[]));
    desk.assert_told(Err(NotAttached::NoScheduler));
}

#[test]
fn r6_2_what_needs_no_word_of_the_project_is_answered_at_once_and_changes_nothing_it_should_not() {
    let key = |key: &str| Some(AccountKey::new(key));
    // No account is known.
    let mut desk = Desk::new();
    desk.wants(|request| request.account_key = None);
    desk.assert_told(Err(NotAttached::NoAccount));
    assert_eq!(desk.stored(), None);
    // Another wish is being waited for.
    desk.wants(|_| {});
    desk.wants(|request| (request.waiter, request.account_key) = (Waiter(2), key(OTHER_KEY)));
    assert_eq!(desk.told(), [(2, Err(NotAttached::BeingAttached))]);
    assert_eq!(desk.stored(), owned(KEY, 100.0, None));
    desk.page(Ok(&[CGI]));
    desk.answers(Ok(accepts()));
    desk.assert_told(accepted());
    // The account is known there.
    desk.wants(|request| (request.account_key, request.share) = (None, Share::new(40.0).ok()));
    desk.assert_told(Ok(Attached::Known { share: Share::new(40.0).unwrap() }));
    desk.wants(|request| request.account_key = key(KEY));
    desk.assert_told(Ok(Attached::Known { share: Share::new(40.0).unwrap() }));
    assert_eq!(desk.stored(), owned(KEY, 40.0, Some(40.0)));
    // A key that was recorded unseen is no known account.
    let mut desk = Desk::new();
    desk.wants(|request| request.unseen = true);
    desk.told();
    desk.wants(|request| request.account_key = None);
    assert_eq!(desk.told(), []);
    desk.page(Ok(&[CGI]));
    desk.answers(Ok(accepts()));
    desk.assert_told(accepted());
}

#[test]
fn r6_1_what_the_coordinator_manages_takes_no_other_account_and_no_other_share_from_its_owner() {
    let mut desk = Desk::new();
    desk.turn(Event::DocumentOffered(document(1, &[("p", 75.0)], Preferences::default()).into()));
    let managed = Some(json!([KEY, 75.0, null, true, false]));
    let share = |share: f64| Share::new(share).ok();
    let other = || Some(AccountKey::new(OTHER_KEY));
    for again in [false, true] {
        if again {
            desk.turn(Event::Detach { url: url() });
        }
        let is = if again { None } else { managed.clone() };
        desk.wants(|request| request.account_key = other());
        desk.assert_told(Err(NotAttached::Managed));
        desk.wants(|request| request.share = share(5.0));
        desk.assert_told(Err(NotAttached::Managed));
        assert_eq!(desk.stored(), is);
        desk.wants(|request| (request.account_key, request.share) = (None, share(75.0)));
        desk.assert_told(Ok(Attached::Managed { again }));
        assert_eq!(desk.stored(), managed);
    }
}
