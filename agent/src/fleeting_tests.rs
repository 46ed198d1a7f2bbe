//! Real processes that fork and end so fast that no list has them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::brand::Brand;
use crate::sys::{self, Urgency};

/// A chain of processes of a task, each of which forks and ends while its child goes on. It ends by itself
/// where nothing else ends it.
pub(crate) struct Chain {
    brand: Brand,
    /// The id of the first one, which is gone.
    pub(crate) first: u32,
    /// The last one closes it.
    said: ChildStdout,
    /// Has all of it go on again and again.
    waker: Option<Child>,
}

impl Chain {
    /// One whose first process has run `begin`, and each of which has a session of its own.
    pub(crate) fn start(brand: Brand, dir: &Path, begin: &str) -> Self {
        let (first, said) = processes(brand, dir, begin, "exit if fork; setsid");
        Self { brand, first, said, waker: None }
    }

    /// One that goes on whenever it is stopped.
    pub(crate) fn start_woken(brand: Brand, dir: &Path, begin: &str) -> Self {
        let (first, said) = processes(brand, dir, begin, "exit if fork");
        let program = format!(
            "my $end = time + 120; \
             while (time < $end) {{ kill 'CONT', -{first}; select(undef, undef, undef, 0.0001) }}"
        );
        let waker = Command::new("perl").args(["-e", &program]).stdin(Stdio::null()).spawn().unwrap();
        Self { brand, first, said, waker: Some(waker) }
    }

    /// Ends it, and waits until all of it is gone.
    pub(crate) fn end(mut self) {
        let (say, over) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send(self.said.read_to_end(&mut Vec::new())));
        let end = Instant::now() + Duration::from_secs(60);
        let is_its = |pid| self.brand.is_on_id(pid);
        while proc::end_all(|_| crate::brand::find(self.brand), is_its) > 0 {
            assert!(Instant::now() < end, "it goes on");
        }
        over.recv_timeout(Duration::from_secs(60)).expect("something of it is left").unwrap();
        if let Some(waker) = &mut self.waker {
            waker.kill().unwrap();
            waker.wait().unwrap();
        }
    }
}

fn processes(brand: Brand, dir: &Path, begin: &str, each: &str) -> (u32, ChildStdout) {
    let program = format!(
        "use POSIX; use IO::Handle; my $end = time + 120; {begin}; print STDOUT '.'; STDOUT->flush; \
         while (time < $end) {{ {each} }}"
    );
    let mut command = Command::new("perl");
    command.args(["-e", &program]).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    sys::isolate(&mut command, Urgency::Inherited, None);
    sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
    let mut first = command.spawn().unwrap();
    let mut said = first.stdout.take().unwrap();
    said.read_exact(&mut [0]).unwrap();
    first.wait().unwrap();
    (first.id(), said)
}

#[test]
fn r6_10_a_chase_leaves_out_none_of_the_ids_that_are_given_meanwhile() {
    let is_over = AtomicBool::new(false);
    let mut given = Vec::new();
    std::thread::scope(|scope| {
        // Threads have ids as well, and come faster.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::spawn(|| {}).join().unwrap();
            }
        });
        let seen = std::cell::RefCell::new(Vec::new());
        for _ in 0..10 {
            chase(
                |id| {
                    seen.borrow_mut().push(id);
                    false
                },
                |_| {},
            );
            given.push(std::mem::take(&mut *seen.borrow_mut()));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for ids in given {
        let ids: BTreeSet<u32> = ids.into_iter().collect();
        let (first, last) = (*ids.first().unwrap(), *ids.last().unwrap());
        // Where they have begun anew at the bottom, or this thread got no CPU for long, some are left out.
        let most = (last - first) / IDS_MAX;
        let gaps = ids.iter().zip(ids.iter().skip(1)).filter(|(id, next)| **next > **id + 1).count();
        assert!(gaps <= most as usize, "{gaps} gaps from {first} to {last}");
    }
}

#[test]
fn r6_10_one_that_has_itself_go_on_whenever_it_is_stopped_is_ended_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let brand = Brand::of_life("/nowhere:woken:").of_slot(4);
    Chain::start_woken(brand, dir.path(), "").end();
}

#[test]
fn r6_10_what_a_list_has_is_not_told_once_more_by_its_id() {
    let most: u32 = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    let (all, is_over) = ((0..=most).collect(), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::spawn(|| {}).join().unwrap();
            }
        });
        let told = [&all, &BTreeSet::new()].map(|listed| {
            let (mut lists, mut told) = (Lists::default(), 0);
            // Until somebody has forked meanwhile.
            while lists.calm == 0 && told == 0 {
                lists.begin();
                std::thread::sleep(Duration::from_millis(1));
                lists.have_all(listed, |_| true, |_| told += 1);
            }
            told
        });
        is_over.store(true, Ordering::Relaxed);
        told
    });
    assert_eq!(told[0], 0);
    assert!(told[1] > 0);
}
