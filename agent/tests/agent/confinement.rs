//! What confines jobs (R6.10), seen from within: a table of attacks, each made with nothing in its way, with
//! either of the system's two means alone, and with all of them.
//!
//! An attack that fails with nothing in its way would show nothing; so each has to succeed then, unless the
//! system itself is known to keep from it. Neighbours and the agent go on after each.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration as StdDuration;

use fallow_agent::confine::{Allowed, Confinement};
use fallow_boinc::runtime::exit::Ended;
use fallow_client::{Event, SlotFile};
use fallow_domain::{JobId, MasterUrl, SlotId};

use crate::hostile_jobs::{as_ordinary_user, as_ordinary_user_with};
use crate::supervision::{Bench, JOB};
use crate::support::{is_alive, project, put, signed};

/// What has to fail: its name, who can do it at all, and a script that succeeds if it does. In it stand for
/// themselves: `DIR` (the agent's directory), `HOME` (somebody's own files), `PID` (a neighbour's process),
/// `AGENT`, `TCP` and `UDP` (ports of this machine), `ABSTRACT` (a socket's name), `COMMON` and `MEMORY`
/// (files of all users), `PTRACE`, `PRLIMIT`, `PRCTL` and `SETTIME` (numbers of calls).
struct Attack(&'static str, Who, &'static str);

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Anybody,
    Root,
    Ordinary,
    /// Anybody, unless this system keeps from it by other means of its own.
    Perhaps,
}
use Who::{Anybody, Ordinary, Perhaps, Root};

const ATTACKS: &[Attack] = &[
    Attack("reads /etc/shadow", Root, "grep -q root /etc/shadow"),
    Attack("reads the agent's identity", Anybody, "grep -q secret DIR/identity.key"),
    Attack("reads the agent's store", Anybody, "grep -rq secret DIR/store"),
    Attack("lists the agent's directory", Anybody, "ls ../.. | grep -q store"),
    Attack("reads another slot", Anybody, "grep -q app_init_data ../1/init_data.xml"),
    Attack(
        "reads another project's files",
        Anybody,
        "grep -q bin/sh ../../projects/127.0.0.1_9_neighbour/app",
    ),
    Attack("reads the owner's home", Anybody, "grep -q precious HOME/letter"),
    Attack("reads through a link", Anybody, "ln -s HOME/letter l && grep -q precious l"),
    Attack("writes through a link", Anybody, "ln -s HOME/letter l && echo evil >> l"),
    Attack("makes a hard link to the owner's file", Perhaps, "ln HOME/letter h"),
    Attack("cuts the owner's file short", Anybody, "perl -e 'exit !truncate(\"HOME/letter\", 0)'"),
    Attack("removes the owner's file", Anybody, "rm HOME/letter"),
    Attack("writes into everybody's file in /tmp", Anybody, "[ -f COMMON ] && echo evil >> COMMON"),
    Attack("reads everybody's memory in /dev/shm", Perhaps, "grep -q common MEMORY"),
    Attack("writes into a file of its project", Anybody, "echo evil > ../../projects/127.0.0.1_9_test/data"),
    Attack(
        "makes a file in its project's directory",
        Anybody,
        "echo evil > ../../projects/127.0.0.1_9_test/new",
    ),
    Attack(
        "replaces a file of another project",
        Anybody,
        "echo evil > f && mv f ../../projects/127.0.0.1_9_neighbour/app",
    ),
    Attack("takes another slot away", Anybody, "mv ../1 ../2"),
    Attack("writes over its slot's record", Anybody, "echo evil > ../0.json"),
    Attack("reads the environment of a neighbour", Anybody, "grep -q FALLOW /proc/PID/environ"),
    Attack("reads the memory of a neighbour", Perhaps, ": < /proc/PID/mem"),
    Attack("enters the directory of a neighbour", Perhaps, "ls /proc/PID/cwd/ | grep -q init_data"),
    Attack("reads the memory of the agent", Perhaps, ": < /proc/AGENT/mem"),
    Attack("traces a neighbour", Perhaps, "perl -e 'exit !(syscall(PTRACE, 16, PID, 0, 0) == 0)'"),
    Attack("kills a neighbour", Anybody, "kill -9 PID"),
    Attack("sends the agent a signal", Anybody, "kill -CONT AGENT"),
    Attack(
        "takes off the number it is known by",
        Anybody,
        "perl -e 'my $less = pack(\"QQ\", 5, 5); exit !(syscall(PRLIMIT, 0, 10, $less, 0) == 0)'",
    ),
    Attack("closes itself to the agent", Anybody, "perl -e 'exit !(syscall(PRCTL, 4, 0, 0, 0, 0) == 0)'"),
    Attack("limits a neighbour", Anybody, "prlimit --pid PID --nofile=500:500"),
    Attack("limits the agent's CPU time", Anybody, "prlimit --pid AGENT --cpu=1000000:"),
    Attack("makes a neighbour wait", Anybody, "renice -n 19 -p PID"),
    Attack("has a neighbour wait for the disk", Anybody, "ionice -c 3 -p PID"),
    Attack("has a neighbour run when nobody else does", Anybody, "chrt --idle -p 0 PID"),
    Attack("makes a program that runs as its owner", Anybody, "cp /bin/true t && chmod 4755 t && test -u t"),
    Attack(
        "has whoever opens a file wait",
        Anybody,
        "perl -e 'open F, \"<\", \"../../projects/127.0.0.1_9_test/data\" or exit 1; exit !fcntl(F, 1024, 0)'",
    ),
    Attack("keeps memory when it is gone", Anybody, "id=$(ipcmk -M 4096) && ipcrm -m ${id##*: }"),
    Attack("keeps a queue when it is gone", Anybody, "id=$(ipcmk -Q) && ipcrm -q ${id##*: }"),
    Attack(
        "reaches what another family of sockets has for pairs",
        Anybody,
        "perl -MSocket -MErrno -e 'exit !(!socketpair(A, B, AF_INET, SOCK_STREAM, 0) && $!{EOPNOTSUPP})'",
    ),
    Attack(
        "makes one without a name",
        Perhaps,
        "python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o4755); exit(not os.fstat(f).st_mode & 0o4000)'",
    ),
    Attack(
        "connects to a TCP port",
        Anybody,
        "perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(\"127.0.0.1:TCP\")'",
    ),
    Attack(
        "listens at a TCP port",
        Anybody,
        "perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(LocalAddr => \"127.0.0.1:0\", Listen => 1, Proto => \"tcp\")'",
    ),
    Attack(
        "sends by UDP",
        Anybody,
        "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(PeerAddr => \"127.0.0.1:UDP\", Proto => \"udp\") or exit 1; \
         exit !$s->send(\"x\")'",
    ),
    Attack(
        "sends a datagram to a path",
        Anybody,
        "python3 -c 'import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); \
         a.sendmsg([b\"x\"], [], 0, \"../../datagrams\")'",
    ),
    Attack(
        "connects to the agent's control socket",
        Anybody,
        "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => \"../../control.sock\")'",
    ),
    Attack(
        "connects to an abstract socket",
        Anybody,
        "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => \"\\0ABSTRACT\")'",
    ),
    Attack("makes a device", Root, "mknod n c 1 8"),
    Attack("gains by a set-user-id program", Ordinary, "passwd -S | grep -qv never"),
    Attack("mounts", Root, "mkdir m && mount -t tmpfs none m && umount m"),
    Attack("makes a user namespace", Perhaps, "unshare -U true"),
    Attack("changes the clock", Root, "perl -e 'exit !(syscall(SETTIME, 0, pack(\"qq\", time, 0)) == 0)'"),
];

/// The means, and what of them is there in each column of the table.
const COLUMNS: [&str; 4] = ["nothing", "seccomp", "Landlock", "all"];

fn confinement(column: usize, dir: &Path) -> Confinement {
    let all = Confinement::probe(Allowed::default(), dir);
    match column {
        0 => Confinement::none(),
        1 => all.without(&["files", "lengths", "tcp", "processes"]),
        2 => all.without(&["calls", "sockets"]),
        _ => all,
    }
}

/// A bench with something worth an attack in it.
pub(crate) struct Scene {
    pub(crate) bench: Bench,
    pub(crate) home: tempfile::TempDir,
    pub(crate) neighbour: u32,
    tcp: TcpListener,
    udp: UdpSocket,
    name: String,
    common: [tempfile::NamedTempFile; 2],
    _sockets: [UnixListener; 2],
    _datagrams: UnixDatagram,
}

fn neighbour() -> MasterUrl {
    MasterUrl::parse("http://127.0.0.1:9/neighbour/").unwrap()
}

fn executable(path: &Path, text: &str) {
    put(path, text.as_bytes());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

impl Scene {
    fn new(column: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let confinement = confinement(column, dir.path());
        Self::of(Bench::confined_by(dir, confinement), COLUMNS[column])
    }

    /// `name` is that of an abstract socket.
    pub(crate) fn of(bench: Bench, name: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        put(&home.path().join("letter"), b"precious");
        let data = bench.data.path();
        put(&bench.data.identity_key(), b"secret");
        put(&data.join("store/records"), b"secret");
        put(&bench.data.project(&project()).join("data"), b"right");
        executable(&bench.data.project(&neighbour()).join("app"), "#!/bin/sh\nwhile :; do sleep 1; done\n");
        let mut other = bench.script("");
        (other.job, other.slot, other.url, other.name) =
            (JobId(2), SlotId(1), neighbour(), "neighbour".into());
        other.application = signed(&bench.data.project(&neighbour()), "app");
        bench.supervisor.start_task(other);
        let neighbour = bench.started();
        let name = format!("fallow-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            UnixListener::bind(bench.data.control_socket()).unwrap(),
            UnixListener::bind_addr(&address).unwrap(),
        ];
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let datagrams = UnixDatagram::bind(data.join("datagrams")).unwrap();
        let common = ["/tmp", "/dev/shm"].map(|dir| {
            let file = tempfile::Builder::new().prefix("fallow-common-").tempfile_in(dir).unwrap();
            std::fs::write(file.path(), "common").unwrap();
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
            file
        });
        let (_sockets, _datagrams) = (sockets, datagrams);
        Self { bench, home, neighbour, tcp, udp, name, common, _sockets, _datagrams }
    }

    pub(crate) fn script(&self, text: &str) -> String {
        let numbers = if cfg!(target_arch = "aarch64") { [117, 112, 261] } else { [101, 227, 302] };
        let [ptrace, settime, prlimit] = numbers;
        let known = [
            ("DIR", self.bench.data.path().display().to_string()),
            ("HOME", self.home.path().display().to_string()),
            ("PID", self.neighbour.to_string()),
            ("AGENT", std::process::id().to_string()),
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
            ("ABSTRACT", self.name.clone()),
            ("COMMON", self.common[0].path().display().to_string()),
            ("MEMORY", self.common[1].path().display().to_string()),
            ("PTRACE", ptrace.to_string()),
            ("PRLIMIT", prlimit.to_string()),
            ("PRCTL", PRCTL.to_string()),
            ("SETTIME", settime.to_string()),
        ];
        known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Makes an attack. True if it succeeded.
    fn try_out(self, attack: &Attack) -> bool {
        let setup = self.bench.script(&self.script(attack.2));
        self.bench.supervisor.start_task(setup);
        let end = self.bench.next("its end", |event| match event {
            Event::TaskEnded { job: JOB, end } => Some(end),
            Event::TaskStartFailed { reason, .. } => panic!("{}: not started: {reason}", attack.0),
            _ => None,
        });
        let Ended::Code(code) = end.exit else { panic!("{}: {:?} {}", attack.0, end.exit, end.stderr) };
        let succeeded = code == 0;
        if !succeeded {
            assert!(is_alive(self.neighbour), "{}: the neighbour is gone", attack.0);
            assert_eq!(std::fs::read(self.home.path().join("letter")).unwrap(), b"precious", "{}", attack.0);
            let data = self.bench.data.project(&project()).join("data");
            assert_eq!(std::fs::read(data).unwrap(), b"right", "{}", attack.0);
        }
        // Not at the supervisor's next look.
        fallow_agent::proc::kill_session(self.neighbour);
        let mut bench = self.bench;
        bench.supervisor.stop(StdDuration::ZERO);
        bench.supervisor.join();
        succeeded
    }
}

#[test]
fn r6_10_what_a_hostile_job_tries_fails_when_it_is_confined_and_would_succeed_otherwise() {
    as_ordinary_user_with(
        "confinement::r6_10_what_a_hostile_job_tries_fails_when_it_is_confined_and_would_succeed_otherwise",
        1024,
    );
    let is_root = rustix::process::geteuid().is_root();
    let dir = tempfile::tempdir().unwrap();
    let missing = confinement(3, dir.path()).missing();
    if !missing.is_empty() {
        println!("not all layers can be had here, so not all is shown: {missing:?}");
        assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(), "{missing:?}");
        return;
    }
    println!(
        "{:42} {:>9} {:>9} {:>9} {:>9}",
        "what a job could do", COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]
    );
    let mut wrong = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| match attack.1 {
        Anybody | Perhaps => true,
        Root => is_root,
        Ordinary => !is_root,
    }) {
        let tried: [bool; 4] = std::thread::scope(|scope| {
            let columns: [_; 4] =
                std::array::from_fn(|column| scope.spawn(move || Scene::new(column).try_out(attack)));
            columns.map(|column| column.join().unwrap())
        });
        let told = tried.map(|succeeded| if succeeded { "yes" } else { "-" });
        println!("{:42} {:>9} {:>9} {:>9} {:>9}", attack.0, told[0], told[1], told[2], told[3]);
        let shows = tried[0] || attack.1 == Perhaps;
        if tried[3] || !shows {
            wrong.push((attack.0, told));
        }
    }
    assert!(wrong.is_empty(), "as root: {is_root}: {wrong:?}");
}

/// What honest programs do. Each line has to succeed.
const HONEST: &[&str] = &[
    "echo x > a && mkdir -p d/e && mv a d/e/b && ln d/e/b c && ln -s d/e/b s && cat s > /dev/null && rm -r d c s",
    "mkfifo p && (echo x > p & cat p > /dev/null) && rm p",
    "[ \"$(head -c 4 /dev/zero | wc -c)\" = 4 ] && head -c 4 /dev/urandom > /dev/null",
    "t=$(mktemp) && echo x > $t && rm $t && [ \"${t%/*}\" = \"$PWD\" ]",
    "(sleep 100 & kill $! && ! wait $!)",
    "grep -q Name /proc/self/status && [ -r /proc/cpuinfo ] && cat /proc/meminfo > /dev/null",
    "[ \"$(nproc)\" -ge 1 ] && id -u > /dev/null && date > /dev/null && uname > /dev/null",
    "perl -e 'use Socket; socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or exit 1; syswrite($a, \"x\"); exit !(sysread($b, my $c, 1) == 1)'",
    "perl -e 'my $p = fork // exit 1; if (!$p) { exit 3 } waitpid($p, 0); exit !($? >> 8 == 3)'",
    // As BOINC's library asks whether its client is there.
    "perl -e 'use Errno; kill(0, AGENT) or exit !($!{EPERM})'",
    "cp /bin/sleep own && chmod 755 own && ./own 0 && LD_LIBRARY_PATH=. ./own 0",
    "cat ../../projects/127.0.0.1_9_test/data > /dev/null && ls ../../projects/127.0.0.1_9_test > /dev/null",
    // Its output, as it finds it, made the way that careful programs make files.
    "to=$(sed 's/<[^>]*>//g' out) && echo x > $to.new && mv $to.new $to",
];

#[test]
fn r6_10_an_honest_job_notices_nothing_of_its_confinement() {
    as_ordinary_user("confinement::r6_10_an_honest_job_notices_nothing_of_its_confinement");
    let scene = Scene::new(3);
    let steps = HONEST
        .iter()
        .enumerate()
        .map(|(number, step)| format!("{{ {step} ; }} || {{ echo step {number} failed >&2; exit 9; }}\n"));
    let text = scene.script(&steps.collect::<String>()) + "echo 0 > boinc_finish_called\n";
    let mut setup = scene.bench.script(&text);
    setup.files = vec![SlotFile {
        name: "output_1".into(),
        open_name: "out".into(),
        copy: false,
        output: true,
        gzip: false,
        max_nbytes: None,
    }];
    scene.bench.supervisor.start_task(setup);
    let end = scene.bench.ended();
    assert_eq!(end.exit, Ended::Code(0), "{}", end.stderr);
    assert_eq!(end.outputs.len(), 1, "{}", end.stderr);
}

#[test]
fn r6_10_a_job_that_is_allowed_the_network_reaches_it_and_no_file_and_does_not_control_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed { network: true }, dir.path());
    let scene = Scene::of(Bench::confined_by(dir, confinement), "network");
    let attempts =
        ["connects to a TCP port", "sends by UDP", "reads the owner's home", "reads the agent's identity"];
    let steps: String = (0..)
        .zip(attempts)
        .map(|(number, name)| {
            let attack = ATTACKS.iter().find(|attack| attack.0 == name).unwrap();
            format!("({}) && echo did {number} >&2\n", attack.2)
        })
        .collect();
    // One that has not asked reaches nothing, there either.
    for (network, reached) in [(true, &["did 0", "did 1"][..]), (false, &[])] {
        let mut setup = scene.bench.script(&(scene.script(&steps) + "true"));
        setup.network = network;
        scene.bench.supervisor.start_task(setup);
        let end = scene.bench.ended();
        let did: Vec<&str> = end.stderr.lines().filter(|line| line.starts_with("did ")).collect();
        assert_eq!(did, reached, "{network}: {}", end.stderr);
    }
    // Nor does one that asks where the owner allows no job the network.
    let dir = tempfile::tempdir().unwrap();
    let confinement = Confinement::probe(Allowed::default(), dir.path());
    let closed = Scene::of(Bench::confined_by(dir, confinement), "no network");
    let mut setup = closed.bench.script(&(closed.script(&steps) + "true"));
    setup.network = true;
    closed.bench.supervisor.start_task(setup);
    let end = closed.bench.ended();
    assert!(!end.stderr.contains("did "), "{}", end.stderr);

    let agent = tempfile::tempdir().unwrap();
    let agent = &agent.path().join("agent");
    let mut run = crate::daemon::command(agent, &["run", "--allow-network"]);
    run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = crate::daemon::Daemon::of(run, agent);
    let (code, said) = crate::daemon::outcome(agent, &["status"]);
    assert!(code == 0 && said.contains("jobs are not confined: tcp, sockets (the owner"), "{said}");
    // As a job would ask.
    let mut asks = std::process::Command::new("setpriv");
    asks.arg("--no-new-privs").arg(crate::support::agent()).args(["suspend", "--dir"]).arg(agent);
    let said = asks.output().unwrap();
    assert_eq!(said.status.code(), Some(5), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn r6_10_a_confined_job_that_hides_a_file_in_a_socket_cannot_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    let confinement = confinement(3, dir.path());
    let mut bench = Bench::confined_by(dir, confinement);
    // Written, without a name, closed, and mapped nowhere.
    let setup = bench.script(
        "exec python3 -c \"import os, socket, time\nf = open('f', 'wb'); f.write(b'x' * 9000000); f.flush(); os.unlink('f')\n\
         a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [f.fileno()]); f.close()\ntime.sleep(1000)\"",
    );
    bench.supervisor.start_task(setup);
    let is_hidden = |sample: &fallow_client::TaskSample| {
        sample.disk.is_some_and(|disk| disk.uncounted == Some(fallow_client::Uncounted::Closed))
    };
    let held = bench.sample("a count", is_hidden).disk.unwrap();
    assert!(held.all.0 < 9_000_000, "{held:?}");
    bench.supervisor.stop(StdDuration::ZERO);
    bench.supervisor.join();
}

/// Calls as a job can, all the time, and says nothing. A point for each process that has called often.
const FLOOD: &str = "use IO::Socket::UNIX; $| = 1; fork for 1 .. 3; my ($made, @open) = 0; \
     while (1) { my $call = IO::Socket::UNIX->new(Peer => 'control.sock') or exit; push @open, $call; \
     shift @open if @open > 900; print '.' if ++$made == 400 }";

#[test]
fn r6_10_however_often_a_job_calls_at_the_agents_socket_the_owner_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let agent = &dir.path().join("agent");
    let mut run = crate::daemon::command(agent, &["run", "--allow-network"]);
    run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = crate::daemon::Daemon::of(run, agent);
    let mut calls = std::process::Command::new("setpriv");
    calls.args(["--no-new-privs", "perl", "-e", FLOOD]).current_dir(agent).process_group(0);
    let mut calls = calls.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut points = [0; 8];
    std::io::Read::read_exact(calls.stdout.as_mut().unwrap(), &mut points).unwrap();
    let told = ["status", "suspend", "resume"].map(|word| crate::daemon::outcome(agent, &[word]));
    let asks = std::process::Command::new("setpriv")
        .arg("--no-new-privs")
        .arg(crate::support::agent())
        .args(["suspend", "--dir"])
        .arg(agent)
        .output()
        .unwrap();
    let group = rustix::process::Pid::from_child(&calls);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    calls.wait().unwrap();
    assert_eq!(told.map(|(code, said)| (code, said.contains("does not answer"))), [(0, false); 3]);
    let said = String::from_utf8_lossy(&asks.stderr);
    assert!(asks.status.code() == Some(5) && said.contains("NoNewPrivs"), "{said}");
}

/// A command on a system whose kernel has no Landlock, as far as it can see.
fn without_landlock(command: &std::process::Command) -> std::process::Command {
    // The number of a call is loaded; 444, which makes a set of rules, is answered ENOSYS, and others go on.
    let steps = "0x20, 0, 0, 0, 0x15, 0, 1, 444, 0x06, 0, 0, 0x50026, 0x06, 0, 0, 0x7fff0000";
    filtered(command, 4, steps)
}

/// A command on a system that gives no namespaces: the call that makes them is answered EPERM.
pub(crate) fn without_namespaces(command: &std::process::Command) -> std::process::Command {
    let unshare = if cfg!(target_arch = "aarch64") { 97 } else { 272 };
    let steps = format!("0x20, 0, 0, 0, 0x15, 0, 1, {unshare}, 0x06, 0, 0, 0x50001, 0x06, 0, 0, 0x7fff0000");
    filtered(command, 4, &steps)
}

/// The same on one that takes no filters of system calls, either: prctl with 22 as its first argument is
/// answered EINVAL.
fn without_anything(command: &std::process::Command) -> std::process::Command {
    let steps = format!(
        "0x20, 0, 0, 0, 0x15, 0, 1, 444, 0x06, 0, 0, 0x50026, 0x15, 0, 3, {PRCTL}, 0x20, 0, 0, 16, 0x15, 0, 1, 22, \
         0x06, 0, 0, 0x50016, 0x06, 0, 0, 0x7fff0000"
    );
    filtered(command, 8, &steps)
}

const PRCTL: u32 = if cfg!(target_arch = "aarch64") { 167 } else { 157 };

/// A command under a filter of so many steps.
fn filtered(command: &std::process::Command, count: u32, steps: &str) -> std::process::Command {
    let script = format!(
        "my $steps = pack('SCCL' x {count}, {steps}); \
         my $program = pack('SxxxxxxP', {count}, $steps); syscall({PRCTL}, 38, 1, 0, 0, 0) == 0 or die; \
         syscall({PRCTL}, 22, 2, $program) == 0 or die; exec @ARGV"
    );
    let mut perl = std::process::Command::new("perl");
    perl.args(["-e", &script]).arg(command.get_program()).args(command.get_args());
    perl
}

#[test]
fn r6_10_a_system_without_landlock_is_told_of_and_computes_unless_its_owner_requires_confinement() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody else comes to it, so jobs have no users of their own.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let dir = &dir.path().join("agent");
    let run = |arguments: &[&str]| without_landlock(&crate::daemon::command(dir, arguments));
    let refused = run(&["run", "--require-confinement"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && said.contains("no Landlock"), "{said}");
    let mut plain = run(&["run"]);
    plain.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = crate::daemon::Daemon::of(plain, dir);
    let (_, said) = crate::daemon::outcome(dir, &["status"]);
    assert!(said.contains("jobs are confined: privileges, calls, sockets"), "{said}");
    assert!(
        said.contains("jobs are not confined: files, lengths, tcp, processes (this system's kernel has no"),
        "{said}"
    );
    let (_, said) = crate::daemon::outcome(dir, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    let layers = status["confinement"].as_array().unwrap().iter();
    // Whether tasks can have control groups is another matter.
    let on: Vec<_> = layers.filter(|layer| layer["name"] != "groups").map(|layer| &layer["on"]).collect();
    assert_eq!(on[..8], [true, false, false, false, false, false, true, true]);
}

#[test]
fn r6_10_where_nothing_confines_jobs_an_agent_of_roots_does_not_run_unless_it_is_forced_to() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody else comes to it, so jobs have no users of their own.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let dir = &dir.path().join("agent");
    let run = |arguments: &[&str]| without_anything(&crate::daemon::command(dir, arguments));
    let forced = match rustix::process::geteuid().is_root() {
        true => {
            let refused = run(&["run"]).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(3), "{said}");
            assert!(said.contains("--root-without-confinement") && said.contains("no Landlock"), "{said}");
            vec!["run", "--root-without-confinement"]
        }
        // What its user may do is not all.
        false => vec!["run"],
    };
    let mut forced = run(&forced);
    forced.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _daemon = crate::daemon::Daemon::of(forced, dir);
    let (_, said) = crate::daemon::outcome(dir, &["status"]);
    let confined = said.lines().find(|line| line.starts_with("jobs are confined: ")).unwrap_or_default();
    // Namespaces are another matter.
    assert!(confined.starts_with("jobs are confined: privileges") && !confined.contains("calls"), "{said}");
}

#[test]
fn r6_10_preferences_can_require_each_layer_that_an_agent_has() {
    let dir = tempfile::tempdir().unwrap();
    let layers = Confinement::probe(Allowed::default(), dir.path()).layers();
    let mut names: Vec<&str> = layers.iter().map(|layer| layer.name.as_str()).collect();
    names.push("groups");
    assert_eq!(names, fallow_domain::RequiredLayer::KNOWN);
}
