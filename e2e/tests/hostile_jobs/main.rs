//! Jobs that mean harm (R6.10), as real jobs of real projects under real agents: of root's and of an
//! ordinary user's, with all layers of confinement, with each of them left away, and with none.
//!
//! What each could do, and how those ended that want more than they may have, are the tables in
//! `docs/hostile-jobs.md`, which this test writes anew with `FALLOW_WRITE_DOCS=1`, and holds against what
//! happened otherwise. Beside each agent's hostile jobs runs one of another project, and all of these have to
//! agree in the end: nobody has spoilt any. Nothing is left of any job, and the agents are those that were
//! started.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

mod attacks;
mod column;
mod endings;
mod greedy;
mod limits;
mod project;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Instant;

use attacks::ATTACKS;
use column::{Column, Kind, NEIGHBOURS, Without};
use endings::Endings;
use fallow_e2e::{PATIENCE, wait_for};
use greedy::Leftovers;
use project::{Coordinator, workunit};
use table::Found;

const LAYERS: [&str; 9] =
    ["privileges", "user", "files", "lengths", "tcp", "processes", "calls", "sockets", "tmp"];

/// A good job: it ends when it is let, with what all others of its kind have.
const NEIGHBOUR: &str = r#"#!/bin/sh
# API_VERSION_8.1.0
place() { sed -n 's:.*<soft_link>\(.*\)</soft_link>.*:\1:p' "$1"; }
until [ -f go ]; do sleep 0.2; done
echo right >"$(place out)"
echo 0 >boinc_finish_called
"#;

/// The application of each agent's project.
const APPLICATION: &str = "hostile";

/// Of a workunit whose job is not made again when it fails.
const ONE: &str = "max_total_jobs = 1\n";

/// What agents there are. An ordinary user's job has no other layer without `privileges`: Linux asks for it.
/// Nor has it another user.
fn kinds() -> Vec<Kind> {
    let is_root = rustix::process::geteuid().is_root();
    let users = if is_root { vec![true, false] } else { vec![false] };
    let of_user = |root: bool| {
        let layers = LAYERS.into_iter().filter(move |layer| root || !["privileges", "user"].contains(layer));
        let less = [Without::Nothing, Without::Everything].into_iter().chain(layers.map(Without::Layer));
        less.map(move |without| Kind { root, without })
    };
    users.into_iter().flat_map(of_user).collect()
}

/// What jobs try to reach beside their agent.
struct Targets {
    tcp: TcpListener,
    udp: UdpSocket,
    name: String,
    common: [tempfile::NamedTempFile; 2],
    _abstract: UnixListener,
}

impl Targets {
    fn new() -> Self {
        let name = format!("fallow-hostile-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let common = ["/tmp", "/dev/shm"].map(|dir| {
            let file = tempfile::Builder::new().prefix("fallow-common-").tempfile_in(dir).unwrap();
            fs::write(file.path(), "common").unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).unwrap();
            file
        });
        Self { tcp, udp, common, _abstract: UnixListener::bind_addr(&address).unwrap(), name }
    }

    fn known(&self) -> Vec<(&'static str, String)> {
        let numbers = if cfg!(target_arch = "aarch64") { [117, 112, 261, 167] } else { [101, 227, 302, 157] };
        let [ptrace, settime, prlimit, prctl] = numbers.map(|number| number.to_string());
        vec![
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
            ("ABSTRACT", self.name.clone()),
            ("COMMON", self.common[0].path().display().to_string()),
            ("MEMORY", self.common[1].path().display().to_string()),
            ("PTRACE", ptrace),
            ("SETTIME", settime),
            ("PRLIMIT", prlimit),
            ("PRCTL", prctl),
        ]
    }
}

/// The jobs that are submitted to an agent's project.
fn submit(lab: &Coordinator, column: &Column, known: &[(&str, String)]) {
    let attacks = column.attacks(known);
    let job = |name: &str, attacks: &[_]| workunit(name, APPLICATION, &attacks::script(attacks), ONE);
    let greedy = greedy::batch(column, known);
    let batch = match column.kind.without {
        // Many. Those that wait long have begun by then.
        Without::Nothing => {
            let attacks = attacks.into_iter().map(|attack| job(&format!("a{}", attack.0), &[attack]));
            greedy + &attacks.collect::<String>()
        }
        _ => job("all", &attacks) + &greedy,
    };
    lab.submit(&column.kind.name(), &batch);
}

/// Which attacks succeeded, by their numbers, once all jobs of an agent are over.
fn reached(lab: &Coordinator, column: &Column) -> BTreeMap<usize, bool> {
    let name = column.kind.name();
    let wanted = ATTACKS.iter().filter(|attack| column.kind.can_try(attack)).count();
    wait_for(&format!("the attacks of {name}"), 3 * PATIENCE, || {
        // Jobs that failed have it wait before it tells of others.
        column.nudge();
        let lines: Vec<String> = lab.outputs(&name).into_iter().map(|(_, text)| text).collect();
        let lines = lines.concat();
        let read = |line: &str| {
            let (number, did) = line.split_once(' ')?;
            Some((number.parse().ok()?, did == "yes"))
        };
        let reached: BTreeMap<usize, bool> = lines.lines().filter_map(read).collect();
        (reached.len() == wanted).then_some(reached)
    })
}

#[test]
fn r6_10_what_hostile_jobs_of_real_projects_can_do_is_what_the_document_says_and_others_go_on() {
    let (begin, _leftovers) = (Instant::now(), Leftovers);
    let dir = tempfile::Builder::new().prefix("fallow-hostile-").tempdir().unwrap();
    // Ordinary users have to come to what is theirs in it.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, targets) = (project::program_for_all(dir.path()), Targets::new());
    let fleet = Coordinator::start(dir.path().join("fleet"));
    let lab = Coordinator::start(dir.path().join("lab"));
    let kinds = kinds();
    lab.project(NEIGHBOURS, "neighbour", NEIGHBOUR);
    // One for each agent, and all of them have to agree.
    lab.submit(NEIGHBOURS, &workunit("good", "neighbour", "", &format!("quorum = {}\n", kinds.len())));
    for kind in &kinds {
        lab.project(&kind.name(), APPLICATION, attacks::PROGRAM);
    }
    let mut columns = start(&kinds, dir.path(), &program, &fleet, &lab);
    println!("{} agents after {:.0?}", columns.len(), begin.elapsed());
    let missing = missing(&columns[0]);
    if !missing.is_empty() {
        println!("not all layers can be had here, so nothing is shown: {missing:?}");
        assert!(!fallow_e2e::peers_required(), "{missing:?}");
        return;
    }
    let known = targets.known();
    columns.iter().for_each(|column| submit(&lab, column, &known));

    let (mut found, mut ends) = (Found::default(), Endings::default());
    let reached = greedy::take_turns(&lab, &columns);
    println!("all have had their turns after {:.0?}", begin.elapsed());
    let mut wrong = Vec::new();
    for (column, reached) in columns.iter().zip(reached) {
        if column.kind.without == Without::Nothing {
            let harmed = reached.iter().filter(|(number, did)| !**did && !column.is_unharmed(**number));
            wrong.extend(harmed.map(|(number, _)| {
                format!("{}: the owner's files are not as they were", ATTACKS[*number].0)
            }));
        }
        found.add(column.kind, reached);
        ends.add(column.kind, greedy::ends(&lab, column));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("all over after {:.0?}", begin.elapsed());
    columns.iter().for_each(|column| ends.add(column.kind, greedy::go_on(column)));
    others_are_well(&lab, &mut columns);
    // Side by side: each of them has a job that is waited for, and has to be killed.
    std::thread::scope(|scope| {
        for column in &mut columns {
            scope.spawn(|| ends_clean(column));
        }
    });
    greedy::wait_for_nothing();
    println!("ended after {:.0?}", begin.elapsed());
    table::check(&found, &ends);
}

fn start(
    kinds: &[Kind],
    place: &Path,
    program: &Path,
    fleet: &Coordinator,
    lab: &Coordinator,
) -> Vec<Column> {
    // Some side by side: they are processes of their own, on few CPUs.
    let mut columns = Vec::new();
    for some in kinds.chunks(4) {
        columns.extend(std::thread::scope(|scope| {
            let start = |kind: &Kind| {
                let kind = *kind;
                scope.spawn(move || Column::start(kind, place, program, fleet, lab))
            };
            let started: Vec<_> = some.iter().map(start).collect();
            started.into_iter().map(|column| column.join().unwrap()).collect::<Vec<_>>()
        }));
    }
    columns
}

/// Layers that this system lacks, but for control groups, of which the agents here have none of their own,
/// and for users where the agent is not root's.
fn missing(confined: &Column) -> Vec<String> {
    let layers = confined.status()["confinement"].as_array().unwrap().clone();
    layers
        .iter()
        .filter(|layer| layer["on"] != true && layer["name"] != "groups")
        .filter(|layer| confined.kind.root || layer["name"] != "user")
        .map(ToString::to_string)
        .collect()
}

/// The agents are those that were started and answer; their good jobs were not disturbed, and agree.
fn others_are_well(lab: &Coordinator, columns: &mut [Column]) {
    for column in &mut *columns {
        assert!(column.agent.0.try_wait().unwrap().is_none(), "{}", column.log_end());
        column.status();
        if column.kind.without == Without::Nothing {
            assert!(column.neighbour_lives(), "the neighbour was harmed: {}", column.log_end());
        }
        column.release();
    }
    wait_for("the neighbours to agree", 2 * PATIENCE, || {
        let project = lab.json(&["projects"])["projects"].as_array().unwrap().clone();
        let neighbours = project.iter().find(|project| project["name"] == NEIGHBOURS).unwrap();
        assert_eq!(neighbours["workunits_failed"], 0, "{neighbours}");
        (neighbours["workunits_validated"] == 1).then_some(())
    });
    let jobs = lab.json(&["jobs", NEIGHBOURS])["workunits"][0]["jobs"].as_array().unwrap().clone();
    let valid = jobs.iter().filter(|job| job["validation"] == "valid").count();
    assert_eq!((valid, jobs.len()), (columns.len(), columns.len()), "{jobs:?}");
}

/// An agent that is told to stop does, whatever its jobs say, and nothing of it is left but what waits.
fn ends_clean(column: &mut Column) {
    let told = column.ask(&["stop"]);
    assert!(told.status.success(), "{}\n{}", String::from_utf8_lossy(&told.stderr), column.log_end());
    wait_for("the end of the agent", PATIENCE, || column.agent.0.try_wait().unwrap());
    wait_for("the end of its processes", PATIENCE, || column.processes().is_empty().then_some(()));
    // The job that goes on has its slot and its record.
    let slots = column.slots();
    assert!(slots.len() <= 2, "{}: slots are left: {slots:?}", column.kind.name());
}
