//! Deletions that a `kill -9` cuts off in the middle (R4.12).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fallow_agent::dir::DataDir;
use fallow_agent::records::Records;
use fallow_domain::MasterUrl;

use crate::daemon::{Daemon, outcome};
use crate::hostile::{attach, project, status};
use crate::support::{put, wait_for};

/// So many files are deleted at once that it takes a while.
const FILES: usize = 5_000;
/// A kill may come too late, and is tried again.
const TRIES: usize = 20;

fn name(number: usize) -> String {
    format!("kept{number}")
}

/// A reply that is known by its number, with something of each file.
fn reply(number: usize, of_file: impl Fn(String) -> String) -> String {
    let files: String = (0..FILES).map(|number| of_file(name(number))).collect();
    format!("<project_name>reply {number}</project_name>\n{files}")
}

fn kept(place: &Path) -> usize {
    let entries = std::fs::read_dir(place).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("kept")).count()
}

#[test]
fn r4_12_what_was_being_deleted_when_the_agent_was_killed_goes_at_its_next_start() {
    let keep = |name| {
        format!(
            "<file_info><name>{name}</name><nbytes>1</nbytes><url>http://127.0.0.1:9/p/{name}</url><sticky/></file_info>\n"
        )
    };
    let delete = |name| format!("<delete_file_info>{name}</delete_file_info>\n");
    let replies = (0..TRIES).flat_map(|attempt| [reply(2 * attempt, keep), reply(2 * attempt + 1, delete)]);
    let (server, calls) = project(replies.collect());
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let url = server.url("");
    let place = DataDir::at(dir).project(&MasterUrl::parse(&url).unwrap());
    let somebodys = place.join("somebodys");
    let mut daemon = Daemon::start(dir);
    attach(dir, &url);
    let is_cut_off = (0..TRIES).any(|attempt| {
        if attempt > 0 {
            daemon = Daemon::start(dir);
            assert_eq!(outcome(dir, &["update", &url]).0, 0);
        }
        let said = format!("reply {}", 2 * attempt);
        wait_for("the files' descriptions", || (status(dir)["projects"][0]["name"] == said).then_some(()));
        (0..FILES).for_each(|number| put(&place.join(name(number)), b"1"));
        put(&somebodys, b"own");
        assert_eq!(outcome(dir, &["update", &url]).0, 0);
        wait_for("the order to delete them", || {
            (calls.load(Ordering::SeqCst) == 2 * attempt + 2).then_some(())
        });
        // The first one goes when all their records are gone.
        let first = place.join(name(0));
        while first.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        daemon.kill();
        kept(&place) > 0
    });
    assert!(is_cut_off, "every kill came too late");

    let mut daemon = Daemon::start(dir);
    wait_for("what was to be deleted to go", || (kept(&place) == 0).then_some(()));
    assert!(somebodys.exists(), "nobody has decided that this is to go");
    // With what is stored next, nothing is known of them any longer.
    assert_eq!(outcome(dir, &["suspend"]).0, 0);
    daemon.kill();
    assert_eq!(Records::open(&DataDir::at(dir)).unwrap().doomed().unwrap(), []);
}
