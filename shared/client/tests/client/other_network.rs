//! Other programs that use the network, for which files wait (R6.4).

use std::collections::BTreeSet;

use fallow_client::{Event, RequestedBy};
use fallow_domain::{Bytes, Duration};
use fallow_policy::other_network::NetworkMoved;
use fallow_preferences::Said;

use crate::life::document;
use crate::preferences::{owner, two_cpus, url};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

fn limit(megabytes: u64) -> Event {
    owner(Said { other_network_max: Some(Some(Bytes(megabytes * 1_000_000))), ..Said::default() })
}

/// A host at whose interfaces it is looked every five seconds, if the client wants that.
struct Host {
    world: World,
    moved: u64,
}

impl Host {
    /// One whose downloads take a minute each.
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        world.download_takes = MINUTE;
        world.add_project("a", 1_000, MINUTE * 10);
        Self { world, moved: 1_000_000_000 }
    }

    /// There are files to be downloaded.
    fn wants_files(&mut self) {
        self.world.event(Event::DocumentOffered(document(1, &[("a", 1.0)], two_cpus()).into()));
        self.world.run_until("work", MINUTE * 10, |world| !world.client.task_views().is_empty());
    }

    fn fetches(&mut self) {
        self.wants_files();
        self.world.run_until("a download is under way", MINUTE * 10, |world| !world.transfers.is_empty());
        self.look();
    }

    fn look(&mut self) {
        if !self.world.client.looks_for().network {
            return;
        }
        let at = Duration::from_micros(self.world.now.as_micros());
        let (all, ours, interfaces) = (Bytes(self.moved), Bytes(0), BTreeSet::new());
        self.world.event(Event::NetworkMoved(NetworkMoved { at, interfaces, all, ours }));
    }

    /// So long others move so many megabytes each second.
    fn others_move(&mut self, length: Duration, megabytes: u64) {
        let end = self.world.now + length;
        while self.world.now < end {
            self.world.run_for(SECOND * 5);
            self.moved += megabytes * 5_000_000;
            self.look();
        }
    }

    fn why(&self) -> Option<String> {
        self.world.client.host_view().files_wait
    }

    fn notices(&self, beginning: &str) -> usize {
        self.world.notices().filter(|text| text.starts_with(beginning)).count()
    }
}

#[test]
fn r6_4_files_wait_while_others_use_the_network_and_projects_are_contacted_all_the_same() {
    let mut host = Host::new(31);
    host.world.event(limit(1));
    host.fetches();
    host.others_move(SECOND * 15, 1);
    assert_eq!(host.why(), None);
    host.others_move(SECOND * 5, 4);
    let why = "other programs use the network: 4 MB a second, and `other_network_max` is 1 MB";
    assert_eq!(host.why().as_deref(), Some(why));
    let is_broken_off = |line: &String| line.contains("CancelTransfer") && line.contains(why);
    assert!(host.world.log.iter().any(is_broken_off), "{:?}", host.world.log);
    let (begun, calls) = (host.world.transfers.len(), host.world.calls("a").len());
    host.others_move(MINUTE * 5, 2);
    host.world.event(Event::ContactRequested { url: url("a"), by: RequestedBy::Fleet });
    host.world.run_for(SECOND * 5);
    host.look();
    assert_eq!((host.world.transfers.len(), host.why().as_deref()), (begun, Some(why)));
    assert!(host.world.calls("a").len() > calls, "projects are contacted");
    // It is said once when it begins and once when it ends.
    host.others_move(SECOND * 30, 0);
    assert_eq!((host.why(), host.world.transfers.len() > begun), (None, true));
    assert_eq!((host.notices("files wait: "), host.notices("files no longer wait")), (1, 1));
    host.world.run_until("it computes", MINUTE * 5, |world| world.computing() == 2);
    assert!(!host.world.notices().any(|text| text.contains("trying again")), "nobody is to blame");
}

#[test]
fn r6_4_nobody_looks_at_the_network_but_while_files_are_transferred_or_wait_for_others() {
    let mut host = Host::new(32);
    // As many jobs as compute at once: no further files come.
    host.world.projects.get_mut("a").unwrap().supply = 2;
    host.fetches();
    assert!(!host.world.client.looks_for().network, "nobody has asked for it");
    host.world.event(limit(1));
    assert!(host.world.client.looks_for().network);
    host.world.run_until("it computes", MINUTE * 10, |world| world.computing() == 2);
    assert!(!host.world.client.looks_for().network, "all files are here");
    host.world.run_for(MINUTE * 5);
    assert!(!host.world.client.looks_for().network);
    host.world.run_until("a file is sent", MINUTE * 10, |world| !world.uploads.is_empty());
    assert!(host.world.client.looks_for().network);
}

#[test]
fn r6_4_no_file_begins_in_the_middle_of_others_use_if_somebody_can_look() {
    for (megabytes, begins) in [(1, true), (3, false)] {
        let mut host = Host::new(35);
        host.world.event(limit(1));
        host.wants_files();
        host.look();
        assert!(host.world.client.looks_for().network && host.world.transfers.is_empty());
        host.world.run_for(SECOND * 2);
        host.moved += megabytes * 2_000_000;
        host.look();
        assert_eq!((host.world.transfers.is_empty(), host.why().is_some()), (!begins, !begins));
    }
    let mut host = Host::new(35);
    host.world.event(limit(1));
    host.wants_files();
    host.world.run_for(SECOND * 9);
    assert!(host.world.transfers.is_empty());
    host.world.run_for(SECOND);
    assert!(!host.world.transfers.is_empty(), "nobody looks");
}

#[test]
fn r6_4_a_wait_that_comes_and_goes_is_said_once() {
    let mut host = Host::new(36);
    host.world.event(limit(1));
    host.fetches();
    for _ in 0..2 {
        host.others_move(SECOND * 10, 4);
        assert!(host.why().is_some());
        host.others_move(SECOND * 45, 0);
        assert_eq!(host.why(), None);
    }
    assert_eq!((host.notices("files wait: "), host.notices("files no longer wait")), (1, 1));
}

#[test]
fn r6_4_files_that_wait_for_something_else_besides_make_nobody_look() {
    let mut host = Host::new(33);
    host.world.event(limit(1));
    host.fetches();
    host.others_move(SECOND * 10, 4);
    assert!(host.why().is_some() && host.world.client.looks_for().network);
    let begun = host.world.transfers.len();
    host.world.event(owner(Said {
        other_network_max: Some(Some(Bytes(1_000_000))),
        transfer_max: Some(Some(Bytes(1_000_000))),
        ..Said::default()
    }));
    host.world.event(Event::FilesMoved { up: Bytes(0), down: Bytes(1_000_000) });
    assert!(!host.world.client.looks_for().network);
    assert_eq!(host.why(), None, "nothing waits for others alone");
    // Without looks the wait ends by itself, and the other one goes on.
    host.others_move(MINUTE, 4);
    assert_eq!((host.why(), host.world.transfers.len()), (None, begun));
}

#[test]
fn r6_4_an_owner_who_takes_the_limit_back_has_files_transferred_at_once() {
    let mut host = Host::new(34);
    host.world.event(limit(1));
    host.fetches();
    host.others_move(SECOND * 10, 4);
    let begun = host.world.transfers.len();
    assert!(host.why().is_some());
    host.world.event(owner(Said::default()));
    assert_eq!((host.why(), host.world.transfers.len() > begun), (None, true));
    assert!(!host.world.client.looks_for().network);
}
