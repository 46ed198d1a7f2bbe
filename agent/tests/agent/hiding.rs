//! A job that moves a large file out of the way of whoever counts its files.

use fallow_client::{Event, Goes, Press, Room, TaskSetup};
use fallow_domain::{Bytes, JobId, ProjectId, SlotId};

use crate::supervision::Bench;

/// Learns in which order its three directories are looked at, and moves its file from the last to the first
/// one when the second is.
const HIDES: &str = r#"import ctypes, os, select, time
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
        if len(order) == 3: move(order[2]); known = order
        order = []
        continue
    events = os.read(told, 4096)
    while events:
        name = names[int.from_bytes(events[:4], 'little')]
        if name not in order: order.append(name)
        if len(order) == 2: move(order[0])
        events = events[16 + int.from_bytes(events[12:16], 'little'):]
"#;

#[test]
fn r6_10_a_job_that_hides_what_it_holds_from_a_count_goes_and_not_another_one_in_its_stead() {
    let bench = Bench::new();
    let script = format!(
        "case \"$1\" in hide) exec python3 -c \"$HIDES\";; esac\nhead -c 5000000 /dev/zero >file; exec sleep 1000"
    );
    let script = bench.script(&script);
    let of_two = [(1, "hide"), (2, "sit")];
    for (number, what) in of_two {
        let (job, slot, arguments) = (JobId(number), SlotId(number as u32), vec![what.to_owned()]);
        let environment = vec![("HIDES", HIDES)];
        bench.supervisor.start_task(Box::new(TaskSetup {
            job,
            slot,
            arguments,
            environment,
            ..*script.clone()
        }));
        bench.started();
    }
    let room = Room::of(of_two.map(|(job, _)| (JobId(job), (ProjectId(job as u32), Bytes(1_000_000_000)))));
    // Its counts follow each other soon, until one is that it has hidden from.
    bench.supervisor.make_room(Some(room.clone()));
    let mut held = [Bytes(0); 2];
    bench.next("a count that does not see it", |event| {
        let Event::TasksSampled(samples) = event else { return None };
        for sample in samples {
            held[if sample.job == JobId(1) { 0 } else { 1 }] = sample.disk.unwrap_or_default().all;
        }
        bench.supervisor.make_room(Some(room.clone()));
        (held[0] > Bytes(0) && held[1] >= Bytes(5_000_000) && held[0] < held[1]).then_some(())
    });
    bench.supervisor.make_room(Some(room.pressing(Press::Now)));
    let (job, end) = bench.next("an end", |event| match event {
        Event::TaskEnded { job, end } => Some((job, end)),
        _ => None,
    });
    assert_eq!((job, end.made_room), (JobId(1), Some(Goes::HoldsMost)));
    // The other one computes as before.
    let goes_on = |event| match event {
        Event::TasksSampled(samples) => samples.iter().any(|sample| sample.job == JobId(2)).then_some(()),
        _ => None,
    };
    bench.next("the other one", goes_on);
}
