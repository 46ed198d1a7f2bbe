//! How long it takes from a key at an X server until no job computes any more: under our agent, and under
//! Debian's stock client.

#[path = "../../../agent/tests/agent/x11/server.rs"]
mod server;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fallow_e2e::{Killed, Lab, PATIENCE, free_port, processes_in, wait_for};
use server::Server;

use super::{add, compiled, submit};

const JOBS: usize = 8;
/// After so many seconds without a key nobody is taken to be there: the fewest that may be set.
const IDLE_SECS: f64 = 10.0;
/// How often it is looked at what computed since.
const STEP: Duration = Duration::from_millis(10);
/// So long nothing computes before it is taken to rest, whatever else the machine does.
const REST: Duration = Duration::from_millis(700);

/// Not a test: it prints. `FALLOW_EVENTS` keys for each, 100 if it is not set:
/// `cargo test --release -p fallow-e2e --test boinc_application -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_long_from_a_key_until_no_job_computes_under_our_agent_and_under_the_stock_client() {
    let events = std::env::var("FALLOW_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(100);
    let dir = tempfile::tempdir().unwrap();
    let (Some(program), Some(server)) = (compiled(dir.path()), Server::start()) else { return };
    println!(
        "{:<14} {:>6}  {:>9} {:>9} {:>9} {:>9}",
        "client", "events", "p50 ms", "p90 ms", "p99 ms", "max ms"
    );
    {
        let lab = lab(&server);
        add(&lab, &program, &uses());
        submit(&lab, 2 * JOBS, 100_000);
        let place = lab.agent_place(1);
        print("fallow-agent", &measure(&place, &server, events));
    }
    // Its agent is not there when there are jobs.
    let mut lab = lab(&server);
    lab.kill_agent(1);
    add(&lab, &program, &uses());
    submit(&lab, 1, 1);
    lab.json(&["project", "set", "sums", "account-creation=true"]);
    let client = dir.path().join("boinc");
    let _boinc = stock(&client, &server, &lab);
    // Until a result of its is valid, a project gives it few jobs.
    wait_for("its first result", PATIENCE, || lab.json(&["results", "sums"])["results"].get(0).map(drop));
    submit(&lab, 2 * JOBS, 100_000);
    print("boinc", &measure(&client, &server, events));
}

/// The part of a CPU that a job is said to use, so that all run at once.
fn uses() -> String {
    let cpus = std::thread::available_parallelism().unwrap().get();
    format!("cpu={}", cpus as f64 / JOBS as f64)
}

/// An agent that hears of keys.
fn lab(server: &Server) -> Lab {
    let display = server.display.clone();
    let lab = Lab::start_with(1, move |run| {
        run.env_remove("FALLOW_NEVER_IN_USE").env("DISPLAY", &display);
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

/// Nanoseconds of CPU time of all threads of these processes.
fn cpu_time(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum::<u64>()
    };
    pids.iter().map(of).sum()
}

/// From each key until the last that any job computed, as far as steps of that length tell.
fn measure(dir: &Path, server: &Server, events: u32) -> Vec<Duration> {
    let jobs = || -> Vec<u32> {
        let all = processes_in(dir).into_iter();
        all.filter(|process| process.command.contains("counter")).map(|process| process.pid).collect()
    };
    let pids = wait_for("all jobs", PATIENCE, || Some(jobs()).filter(|pids| pids.len() >= JOBS));
    let all = (0..events).map(|number| {
        let mut before = cpu_time(&pids);
        wait_for("them to compute", PATIENCE, || {
            let now = cpu_time(&pids);
            let is_so = now - before > 100_000_000;
            before = now;
            is_so.then_some(())
        });
        // A client that looks once a second is met at any moment of it.
        std::thread::sleep(Duration::from_millis(u64::from(number) * 377 % 1000));
        let key = Instant::now();
        server.key();
        let (mut at, mut last) = (key, Duration::ZERO);
        let mut before = cpu_time(&pids);
        while at.duration_since(key) < last + REST {
            std::thread::sleep(STEP);
            let now = cpu_time(&pids);
            // What their threads need that only listen is less than a tenth of a CPU.
            let busy = u128::from(now - before) * 10 > at.elapsed().as_nanos();
            at = Instant::now();
            before = now;
            if busy {
                last = at.duration_since(key);
            }
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
    println!("{client:<14} {count:>6}  {:>9.0} {:>9.0} {:>9.0} {most:>9.0}", at(0.5), at(0.9), at(0.99));
    let mut lower = 0.0;
    for upper in [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, f64::INFINITY] {
        let within = took.iter().filter(|took| (lower..upper).contains(&ms(**took))).count();
        if within > 0 {
            println!("  {lower:>5} to {upper:>5} ms  {within:>6}  {}", "#".repeat(within * 60 / count));
        }
        lower = upper;
    }
}
