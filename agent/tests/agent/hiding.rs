//! A job that moves a large file out of the way of whoever counts its files.

use std::time::{Duration, Instant};

use fallow_agent::proc::find;
use fallow_client::{Event, Goes, Press, Room, TaskSetup};
use fallow_domain::{Bytes, JobId, ProjectId, SlotId};

use crate::supervision::Bench;
use crate::support::wait_for;

/// Learns in which order its three directories are looked at, and moves its file from the last to the first
/// one when the second is.
const HIDES: &str = r#"import ctypes, os, select
libc = ctypes.CDLL(None)
told = libc.inotify_init()
names = {}
for name in 'abc':
    os.mkdir(name)
    names[libc.inotify_add_watch(told, name.encode(), 0x20)] = name
with open('c/big', 'wb') as big: big.write(b'x' * 30000000)
place, order = 'c', []
def move(to):
    global place
    if to != place: os.rename(place + '/big', to + '/big'); place = to
while True:
    if not select.select([told], [], [], 0.3)[0]:
        if len(order) == 3: move(order[2])
        order = []
        continue
    events = os.read(told, 4096)
    while events:
        name = names[int.from_bytes(events[:4], 'little')]
        if name not in order: order.append(name)
        if len(order) == 2: move(order[0])
        events = events[16 + int.from_bytes(events[12:16], 'little'):]
"#;

/// The same, for one that has the kernel let it go on whenever a directory is looked at.
const WAKES: &str = "import fcntl, signal; fcntl.fcntl(told, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(told, 10, \
    signal.SIGCONT); fcntl.fcntl(told, fcntl.F_SETFL, os.O_ASYNC)\nwhile True:";

#[test]
fn r6_10_a_job_that_has_itself_go_on_while_it_is_counted_goes_and_not_another_one_in_its_stead() {
    let hides = HIDES.replace("while True:", WAKES);
    assert_ne!(hides, HIDES);
    goes_in_nobodys_stead(hides.leak());
}

#[test]
fn r6_10_a_job_that_hides_what_it_holds_from_a_count_goes_and_not_another_one_in_its_stead() {
    goes_in_nobodys_stead(HIDES);
}

fn goes_in_nobodys_stead(hides: &'static str) {
    let bench = Bench::new();
    let script = "case \"$1\" in hide) exec python3 -c \"$HIDES\";; esac\n\
                  head -c 5000000 /dev/zero >file; while :; do :; done";
    let script = bench.script(script);
    let mut other = 0;
    let of_two = [(1, "hide"), (2, "sit")];
    for (number, what) in of_two {
        let (job, slot, arguments) = (JobId(number), SlotId(number as u32), vec![what.to_owned()]);
        let environment = vec![("HIDES", hides)];
        bench.supervisor.start_task(Box::new(TaskSetup {
            job,
            slot,
            arguments,
            environment,
            ..*script.clone()
        }));
        other = bench.started();
    }
    let room = Room::of(of_two.map(|(job, _)| (JobId(job), (ProjectId(job as u32), Bytes(1_000_000_000)))));
    // Its counts follow each other soon, until one is that it has hidden from. Where it does not succeed, it
    // goes all the same.
    let begun = Instant::now();
    bench.supervisor.make_room(Some(room.clone()));
    let mut held = [Bytes(0); 2];
    bench.next("a count that does not see it", |event| {
        let Event::TasksSampled(samples) = event else { return None };
        for sample in samples {
            held[if sample.job == JobId(1) { 0 } else { 1 }] = sample.disk.unwrap_or_default().all;
        }
        bench.supervisor.make_room(Some(room.clone()));
        let is_hidden = held[0] > Bytes(0) && held[1] >= Bytes(5_000_000) && held[0] < held[1];
        (is_hidden || begun.elapsed() > Duration::from_secs(60)).then_some(())
    });
    bench.supervisor.make_room(Some(room.pressing(Press::Now)));
    let (job, end) = bench.next("an end", |event| match event {
        Event::TaskEnded { job, end } => Some((job, end)),
        _ => None,
    });
    assert_eq!((job, end.made_room), (JobId(1), Some(Goes::HoldsMost)));
    // The other one goes on, although it was stopped to be counted.
    wait_for("the other one", || find(other).is_some_and(|task| !task.stopped).then_some(()));
}
