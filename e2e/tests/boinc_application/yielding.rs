//! How long it takes from a key at an X server until no job computes any more: under our agent, and under
//! Debian's stock client; and under our agent from a session that logind says is unlocked. Half of the jobs
//! have children that compute as well.

#[path = "../../../agent/tests/agent/owner/logind.rs"]
mod logind;
#[path = "../../../agent/tests/agent/x11/server.rs"]
mod server;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use fallow_e2e::{Killed, Lab, PATIENCE, free_port, processes_in, wait_for};
use logind::Logind;
use server::Server;

use super::{add, compiled, submit};

const JOBS: usize = 8;
/// Of every second job.
const CHILDREN: usize = 2;
const PROCESSES: usize = JOBS + JOBS / 2 * CHILDREN;
/// After so many seconds without a key nobody is taken to be there: the fewest that may be set.
const IDLE_SECS: f64 = 10.0;
/// How often it is looked at what computed since.
const STEP: Duration = Duration::from_millis(1);
/// All of them together do not need so much in a step if they only listen.
const LISTENING: Duration = Duration::from_micros(200);
/// So long nothing computes before it is taken to rest, whatever else the machine does.
const REST: Duration = Duration::from_millis(700);

/// Not a test: it prints. `FALLOW_EVENTS` keys for each, 100 if it is not set:
/// `cargo test --release -p fallow-e2e --test boinc_application -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_long_from_an_event_until_no_job_computes_under_our_agent_and_under_the_stock_client() {
    let events = std::env::var("FALLOW_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(100);
    let dir = tempfile::tempdir().unwrap();
    let (Some(program), Some(server)) = (compiled(dir.path()), Server::start()) else { return };
    println!(
        "{:<20} {:>6}  {:>9} {:>9} {:>9} {:>9}",
        "client", "events", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    let of_agent = |variable, address: &str, event: &mut dyn FnMut(), settle: &mut dyn FnMut()| {
        let lab = lab(variable, address);
        add(&lab, &program, &uses());
        submit_endless(&lab);
        measure(&lab.agent_place(1), events, event, settle)
    };
    let by_key = of_agent("DISPLAY", &server.display, &mut || server.key(), &mut || ());
    print("fallow-agent, key", &by_key);
    if let Some(logind) = Logind::start(dir.path()) {
        logind.tell("", "m.AddSession('c1', 'seat0', 1000, 'anna', True)").unwrap();
        logind.session("{'Type': 'tty', 'LockedHint': True}");
        let (_lock, mut say) = lock(&logind);
        let unlock = &mut || say.write_all(b"0\n").unwrap();
        let by_lock = of_agent("DBUS_SYSTEM_BUS_ADDRESS", &logind.address, unlock, &mut || {
            logind.session("{'LockedHint': True}");
        });
        print("fallow-agent, logind", &by_lock);
    }
    // Its agent is not there when there are jobs.
    let mut lab = lab("DISPLAY", &server.display);
    lab.kill_agent(1);
    add(&lab, &program, &uses());
    submit(&lab, &["1"]);
    lab.json(&["project", "set", "sums", "account-creation=true"]);
    let client = dir.path().join("boinc");
    let _boinc = stock(&client, &server, &lab);
    // Until a result of its is valid, a project gives it few jobs.
    wait_for("its first result", PATIENCE, || lab.json(&["results", "sums"])["results"].get(0).map(drop));
    submit_endless(&lab);
    print("boinc, key", &measure(&client, events, &mut || server.key(), &mut || ()));
}

/// As many jobs as run at once, of which every second one has children.
fn submit_endless(lab: &Lab) {
    let tree = format!("100000 {CHILDREN}");
    submit(lab, &["100000", &tree].repeat(JOBS / 2));
}

/// A process that says to logind whether the session is locked, as often as it is told a digit.
fn lock(logind: &Logind) -> (Killed, ChildStdin) {
    let says = "for line in iter(sys.stdin.readline, ''): \
                m.UpdateProperties('', {'LockedHint': dbus.Boolean(int(line))})";
    let mut process = logind.asks("/session/c1", says).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = process.stdin.take().unwrap();
    (Killed(process), stdin)
}

/// The part of a CPU that a job is said to use, so that all run at once.
fn uses() -> String {
    let cpus = std::thread::available_parallelism().unwrap().get();
    format!("cpu={}", cpus as f64 / JOBS as f64)
}

/// An agent that hears of somebody there: an X server, or a bus with logind on it.
fn lab(variable: &'static str, address: &str) -> Lab {
    let address = address.to_owned();
    let lab = Lab::start_with(1, move |run| {
        run.env_remove("FALLOW_NEVER_IN_USE").env_remove("DISPLAY").env(variable, &address);
    });
    let idle = format!("{IDLE_SECS}s");
    lab.json(&[
        "preferences",
        "set",
        "--run-in-use",
        "false",
        "--idle-after",
        &idle,
        "--leave-in-memory",
        "true",
    ]);
    lab
}

/// The stock client, attached to the lab's project.
fn stock(dir: &Path, server: &Server, lab: &Lab) -> Killed {
    fs::create_dir(dir).unwrap();
    let config = "<cc_config><options>\n<allow_multiple_clients>1</allow_multiple_clients>\n\
         <dont_contact_ref_site>1</dont_contact_ref_site>\n<skip_cpu_benchmarks>1</skip_cpu_benchmarks>\n\
         </options></cc_config>\n";
    let preferences = format!(
        "<global_preferences>\n<run_on_batteries>1</run_on_batteries>\n<run_if_user_active>0</run_if_user_active>\n\
         <idle_time_to_run>{}</idle_time_to_run>\n<leave_apps_in_memory>1</leave_apps_in_memory>\n\
         <suspend_cpu_usage>0</suspend_cpu_usage>\n</global_preferences>\n",
        IDLE_SECS / 60.0
    );
    fs::write(dir.join("cc_config.xml"), config).unwrap();
    fs::write(dir.join("global_prefs_override.xml"), preferences).unwrap();
    fs::write(dir.join("gui_rpc_auth.cfg"), "secret\n").unwrap();
    let (port, log) = (free_port().to_string(), File::create(dir.join("log")).unwrap());
    let mut run = Command::new("boinc");
    run.arg("--dir").arg(dir).args(["--gui_rpc_port", &port, "--allow_multiple_clients", "--no_gpus"]);
    run.env("DISPLAY", &server.display).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let client = Killed(run.spawn().unwrap());
    let cmd = |words: &[&str]| {
        let mut asks = Command::new("boinccmd");
        asks.current_dir(dir)
            .args(["--host", &format!("127.0.0.1:{port}"), "--passwd", "secret"])
            .args(words);
        let output = asks.output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    wait_for("the stock client to answer", PATIENCE, || cmd(&["--get_state"]));
    let url = lab.json(&["projects"])["projects"][0]["url"].as_str().unwrap().to_owned();
    let created = cmd(&["--create_account", &url, "alice@example.org", "secret1", "Alice"]).unwrap();
    let key = created.split("account key: ").nth(1).unwrap_or_else(|| panic!("no account: {created}"));
    cmd(&["--project_attach", &url, key.trim()]).unwrap();
    client
}

/// The threads of these processes that compute: of each the first. What other threads BOINC's library has
/// listen.
struct Meter(Vec<File>);

impl Meter {
    fn of(pids: &[u32]) -> Self {
        Self(pids.iter().map(|pid| File::open(format!("/proc/{pid}/schedstat")).unwrap()).collect())
    }

    /// The CPU time of all of them.
    fn cpu_time(&self) -> Duration {
        let of = |file: &File| {
            let mut text = [0; 64];
            let length = file.read_at(&mut text, 0).ok()?;
            str::from_utf8(&text[..length]).ok()?.split(' ').next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(self.0.iter().filter_map(of).sum())
    }
}

/// From each event until the last that any job computed, as far as steps of that length tell.
fn measure(dir: &Path, events: u32, event: &mut dyn FnMut(), settle: &mut dyn FnMut()) -> Vec<Duration> {
    let jobs = || -> Vec<u32> {
        let all = processes_in(dir).into_iter();
        all.filter(|process| process.command.contains("counter")).map(|process| process.pid).collect()
    };
    let pids = wait_for("all jobs", PATIENCE, || Some(jobs()).filter(|pids| pids.len() == PROCESSES));
    let meter = Meter::of(&pids);
    let all = (0..events).map(|number| {
        settle();
        let mut before = meter.cpu_time();
        wait_for("them to compute", PATIENCE, || {
            let now = meter.cpu_time();
            let is_so = now - before > Duration::from_millis(100);
            before = now;
            is_so.then_some(())
        });
        // A client that looks once a second is met at any moment of it.
        std::thread::sleep(Duration::from_millis(u64::from(number) * 377 % 1000));
        let mut before = meter.cpu_time();
        let begin = Instant::now();
        event();
        let (mut at, mut last) = (begin, Duration::ZERO);
        while at.duration_since(begin) < last + REST {
            std::thread::sleep(STEP);
            let now = meter.cpu_time();
            at = Instant::now();
            if now - before > LISTENING {
                last = at.duration_since(begin);
            }
            before = now;
        }
        last
    });
    let mut all: Vec<Duration> = all.collect();
    all.sort_unstable();
    all
}

/// A line of the table, and a histogram of it.
fn print(client: &str, took: &[Duration]) {
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let at = |part: f64| ms(took[((took.len() as f64 * part).ceil() as usize).clamp(1, took.len()) - 1]);
    let (count, most) = (took.len(), ms(took[took.len() - 1]));
    println!("{client:<20} {count:>6}  {:>9.1} {:>9.1} {:>9.1} {most:>9.1}", at(0.5), at(0.9), at(0.99));
    let mut lower = 0.0;
    for upper in [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, f64::INFINITY] {
        let within = took.iter().filter(|took| (lower..upper).contains(&ms(**took))).count();
        if within > 0 {
            println!("  {lower:>5} to {upper:>5} ms  {within:>6}  {}", "#".repeat(within * 60 / count));
        }
        lower = upper;
    }
}
