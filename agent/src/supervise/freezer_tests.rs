//! Trees of real processes that are stopped and go on.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::brand::Brand;
use crate::fleeting::tests::Chain;
use crate::sys::{self, Urgency};

/// Four processes that compute: two of the task's session, and two in sessions that they made for themselves,
/// one of which was made within the other.
const TREE: &str = "spin() { while :; do :; done; }
(setsid sh -c 'echo > stray-1; while :; do :; done') &
(setsid sh -c '(setsid sh -c \"echo > stray-2; while :; do :; done\") & wait') &
spin &
echo > up
spin";

/// A tree, which ends with the test.
struct Tree {
    first: Child,
    meter: Arc<Meter>,
    _dir: tempfile::TempDir,
}

impl Drop for Tree {
    fn drop(&mut self) {
        for process in self.processes() {
            proc::signal(process.pid, Signal::KILL);
        }
        let _ = self.first.wait();
    }
}

impl Tree {
    fn start(freezer: &Freezer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", TREE]).current_dir(dir.path()).stdin(Stdio::null());
        sys::isolate(&mut command, Urgency::Idle, None);
        let (first, meter) = (command.spawn().unwrap(), Arc::<Meter>::default());
        freezer.add(first.id(), Arc::clone(&meter));
        let tree = Self { first, meter, _dir: dir };
        let is_up = || ["up", "stray-1", "stray-2"].iter().all(|name| tree._dir.path().join(name).exists());
        wait_for(is_up);
        tree
    }

    /// All of it that lives, as the kernel knows it: those that came from its first process.
    fn processes(&self) -> Vec<Process> {
        let all = proc::all();
        let mut found: Vec<Process> =
            all.iter().filter(|process| process.pid == self.first.id()).copied().collect();
        let mut at = 0;
        while let Some(parent) = found.get(at).map(|process| process.pid) {
            found.extend(all.iter().filter(|process| process.parent == parent && !process.zombie));
            at += 1;
        }
        found
    }

    fn stopped(&self) -> usize {
        self.processes().iter().filter(|process| process.stopped).count()
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < end, "waited two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn r6_2_whole_trees_are_stopped_at_once_and_each_task_goes_on_by_itself() {
    let freezer = Freezer::default();
    let trees = [Tree::start(&freezer), Tree::start(&freezer), Tree::start(&freezer)];
    // One was told to leave: it never would if it were stopped.
    trees[2].meter.set_leaving();
    let count = |tree: &Tree| tree.processes().len();
    assert!(trees.iter().all(|tree| count(tree) >= 5), "{:?}", trees.each_ref().map(count));
    freezer.freeze();
    wait_for(|| trees[..2].iter().all(|tree| tree.stopped() == count(tree)));
    assert_eq!(trees[2].stopped(), 0);
    freezer.thaw(trees[0].first.id());
    wait_for(|| trees[0].stopped() == 0);
    assert_eq!(trees[1].stopped(), count(&trees[1]));
    assert!(!trees[0].meter.is_frozen() && trees[1].meter.is_frozen());
    // A process that has a stopped one go on has it for one look.
    for process in trees[1].processes() {
        proc::signal(process.pid, Signal::CONT);
    }
    wait_for(|| trees[1].stopped() == 0);
    freezer.enforce(Reach::Listed);
    wait_for(|| trees[1].stopped() == count(&trees[1]));
    assert_eq!(trees[0].stopped(), 0);
}

#[test]
fn r6_10_what_has_left_its_task_by_all_means_is_stopped_and_goes_on_with_it() {
    let brand = crate::brand::Brand::of_life("/nowhere:freezer:").of_slot(1);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "(setsid env -i perl -e 'fork && exit; 1 while 1' &); exec sleep 1000"]);
    sys::isolate(command.stdin(Stdio::null()), Urgency::Idle, None);
    sys::limit(&mut command, sys::Limits { brand: brand.value(), ..sys::Limits::default() });
    let mut first = command.spawn().unwrap();
    let meter = Arc::<Meter>::default();
    meter.set_brand(brand.value());
    let freezer = Freezer::default();
    freezer.add(first.id(), meter);
    let session = first.id();
    // Known by nothing else: its parent is gone, and its session is another.
    let detached = || {
        let found = crate::brand::find(brand);
        // Not the one that forks, which made that session.
        let has_left = |process: &Process| process.session != session && process.session != process.pid;
        found.into_iter().find(has_left)
    };
    wait_for(|| detached().is_some() && crate::brand::find(brand).len() == 2);
    freezer.freeze();
    wait_for(|| crate::brand::find(brand).iter().all(|process| process.stopped));
    assert_eq!(crate::brand::find(brand).len(), 2);
    freezer.thaw(first.id());
    wait_for(|| crate::brand::find(brand).iter().all(|process| !process.stopped));
    assert_eq!(proc::end(|_| crate::brand::find(brand)), 2);
    first.wait().unwrap();
    wait_for(|| crate::brand::find(brand).is_empty());
}

#[test]
fn r6_2_input_stops_tasks_only_where_the_client_gives_way_to_it() {
    let freezer = Freezer::default();
    let tree = Tree::start(&freezer);
    freezer.input();
    assert!(!freezer.has_fired() && !tree.meter.is_frozen());
    freezer.arm(true);
    freezer.input();
    wait_for(|| tree.stopped() == tree.processes().len());
    assert!(freezer.has_fired() && !freezer.has_fired());
    // What is gone is not spoken to: its id may be another's.
    freezer.remove(&tree.meter);
    freezer.thaw(tree.first.id());
    assert_eq!(tree.stopped(), tree.processes().len());
}

#[test]
fn r6_2_a_later_process_with_the_id_of_a_tasks_first_one_is_not_stopped() {
    let freezer = Freezer::default();
    let tree = Tree::start(&freezer);
    let start = proc::find(tree.first.id()).unwrap().start;
    tree.meter.set_start(start - 1);
    freezer.freeze();
    assert_eq!(tree.stopped(), 0);
    tree.meter.set_start(start);
    freezer.freeze();
    wait_for(|| tree.stopped() == tree.processes().len());
}

#[test]
fn r6_10_a_task_that_is_stopped_to_be_counted_goes_on_after_that_unless_it_is_stopped_for_something_else() {
    let freezer = Freezer::default();
    let tree = Tree::start(&freezer);
    let leader = tree.first.id();
    let all_stop = || wait_for(|| tree.stopped() == tree.processes().len());
    let all_go_on = || wait_for(|| tree.stopped() == 0);
    // That it may go on is heard when it was counted.
    freezer.hold_still();
    all_stop();
    freezer.thaw(leader);
    assert_eq!(tree.stopped(), tree.processes().len());
    assert!(freezer.let_move(leader));
    all_go_on();
    // Somebody wants the machine in the midst of it, or did so before.
    for freezes_first in [false, true] {
        if freezes_first {
            freezer.freeze();
        }
        freezer.hold_still();
        freezer.freeze();
        assert!(!freezer.let_move(leader));
        all_stop();
        freezer.thaw(leader);
        all_go_on();
    }
    // He wants it no more by then.
    freezer.hold_still();
    freezer.freeze();
    freezer.thaw(leader);
    assert!(freezer.let_move(leader));
    all_go_on();
    // It is to leave.
    freezer.hold_still();
    all_stop();
    tree.meter.set_leaving();
    freezer.thaw(leader);
    all_go_on();
}

/// How long it takes from the order until nothing of eight trees computes. Not a test: it prints.
#[test]
#[ignore = "a measurement: cargo test -p fallow-agent --lib -- --ignored --nocapture how_long"]
fn how_long_it_takes_to_stop_eight_trees() {
    let freezer = Freezer::default();
    let trees: Vec<Tree> = (0..8).map(|_| Tree::start(&freezer)).collect();
    let pids: Vec<u32> = trees.iter().flat_map(|tree| tree.processes()).map(|process| process.pid).collect();
    let mut took: Vec<Duration> = (0..200)
        .map(|_| {
            let begun = Instant::now();
            freezer.freeze();
            while !pids.iter().all(|pid| proc::find(*pid).is_none_or(|process| process.stopped)) {}
            let took = begun.elapsed();
            trees.iter().for_each(|tree| freezer.thaw(tree.first.id()));
            wait_for(|| trees.iter().all(|tree| tree.stopped() == 0));
            took
        })
        .collect();
    took.sort_unstable();
    println!(
        "{} processes of 8 trees: p50 {:?}, p99 {:?}, most {:?}",
        pids.len(),
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1]
    );
}

#[test]
fn r6_2_a_task_that_is_told_to_leave_in_the_midst_of_a_freeze_is_not_stopped_for_good() {
    let freezer = Freezer::default();
    for round in 0..10 {
        let tree = Tree::start(&freezer);
        let (ends, begun) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(120) {
                    freezer.freeze();
                }
            });
            wait_for(|| tree.stopped() > 0);
            // As the supervisor does it: first it is known to leave, then it goes on.
            tree.meter.set_leaving();
            freezer.thaw(tree.first.id());
            // Others are stopped meanwhile, as before.
            freezer.freeze();
            ends.store(true, Ordering::Relaxed);
        });
        assert_eq!(tree.stopped(), 0, "round {round}");
        freezer.remove(&tree.meter);
    }
}

/// A chain of processes that no list has, as a task.
fn task_of(freezer: &Freezer, brand: Brand, chain: &Chain) -> Arc<Meter> {
    let meter = Arc::<Meter>::default();
    // That of one that is gone.
    meter.set_start(1);
    meter.set_brand(brand.value());
    freezer.add(chain.first, Arc::clone(&meter));
    meter
}

#[test]
fn r6_10_what_forks_and_ends_so_fast_that_no_list_has_it_is_stopped_and_ended() {
    let (freezer, brand) = (Freezer::default(), Brand::of_life("/nowhere:fleeting:").of_slot(1));
    let chain = Chain::start(brand, Path::new("/"), "");
    let meter = task_of(&freezer, brand, &chain);
    for _ in 0..5 {
        freezer.freeze();
        freezer.freeze_again();
        // It may have to wait for a CPU before it hears of that.
        wait_for(|| {
            let found = crate::brand::find(brand);
            !found.is_empty() && found.iter().all(|process| process.stopped)
        });
        freezer.thaw(chain.first);
    }
    super::super::killing::kill(chain.first, &meter);
    super::super::killing::kill_strays(&meter, Sessions::new(), "/nowhere:fleeting:", None).1.unwrap();
    // What is over has an id until somebody asks for that.
    let lives = |pid| brand.is_on_id(pid) && proc::find(pid).is_some_and(|process| !process.zombie);
    let left: usize = (0..10).map(|_| crate::fleeting::chase(lives, |_| {})).sum();
    let listed = crate::brand::find(brand);
    chain.end();
    assert_eq!((left, listed), (0, Vec::new()));
}

#[test]
fn r6_10_a_task_of_which_no_list_has_what_goes_on_is_said_to_go_on() {
    let (freezer, brand) = (Freezer::default(), Brand::of_life("/nowhere:fleeting:").of_slot(5));
    let chain = Chain::start_woken(brand, Path::new("/"), "");
    task_of(&freezer, brand, &chain);
    freezer.freeze();
    freezer.freeze_again();
    let (mut looks, end) = (0, Instant::now() + Duration::from_secs(60));
    while looks < 3 && Instant::now() < end {
        looks += u32::from(freezer.enforce(Reach::All).contains(&chain.first));
    }
    chain.end();
    assert_eq!(looks, 3);
}

#[test]
fn r6_10_a_task_that_is_held_by_a_count_goes_on_when_it_is_to_leave() {
    let freezer = Freezer::default();
    let tree = Tree::start(&freezer);
    // Its sessions are known after that.
    freezer.freeze();
    freezer.thaw(tree.first.id());
    tree.processes().iter().for_each(|process| proc::signal(process.pid, Signal::STOP));
    wait_for(|| tree.stopped() > 0);
    tree.meter.set_leaving();
    freezer.thaw(tree.first.id());
    wait_for(|| tree.stopped() == 0);
}
