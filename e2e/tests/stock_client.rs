//! The stock BOINC client against a project of ours (R6.8): `fallow coordinator run` as a process, `boinc`
//! and `boinccmd` as Debian ships them, unmodified.
//!
//! Two clients attach, each with an account of its own that it made (results of one account count once
//! towards a quorum), download, verify, run `mersenne`, upload and report; their results have to agree.
//! Without boinc-client the test says so and passes, unless `FALLOW_REQUIRE_PEERS=1`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fallow_e2e::{PATIENCE, binary, boinc, command, fallow_json, free_port, peers_required, wait_for};
use tempfile::TempDir;

/// A range whose test takes some ten seconds, and a Mersenne exponent in it.
const RANGE: &str = "from=2 to=6500";
const FOUND: &str = "4423";

#[test]
fn r6_8_unmodified_clients_compute_and_agree() {
    if !have_peer() {
        return;
    }
    let coordinator = Coordinator::start();
    let url = coordinator.project_with_one_workunit();
    let (first, second) = (Boinc::start(), Boinc::start());

    // Nobody makes an account before the operator allows it.
    let early = first.cmd(&["--create_account", &url, "alice@example.org", "secret1", "Alice"]);
    assert!(early.is_none_or(|text| !text.contains("account key: ")));
    coordinator.json(&["project", "set", "stock", "account-creation=true"]);
    // Two people, a machine each: what is found agreed must not be one person's word.
    let created = first.cmd(&["--create_account", &url, "alice@example.org", "secret1", "Alice"]).unwrap();
    let found = second.cmd(&["--lookup_account", &url, "Alice@example.org", "secret1"]).unwrap();
    let other = second.cmd(&["--create_account", &url, "bob@example.org", "secret2", "Bob"]).unwrap();
    let key = |text: &str| text.split("account key: ").nth(1).map(|key| key.trim().to_owned());
    let account_key = key(&created).unwrap_or_else(|| panic!("no account: {created}"));
    assert_eq!(key(&found), Some(account_key.clone()), "{found}");
    assert!(
        first
            .cmd(&["--lookup_account", &url, "alice@example.org", "wrong"])
            .is_none_or(|text| key(&text).is_none())
    );

    first.cmd(&["--project_attach", &url, &account_key]).unwrap();
    let other_key = key(&other).unwrap_or_else(|| panic!("no account: {other}"));
    assert_ne!(other_key, account_key);
    second.cmd(&["--project_attach", &url, &other_key]).unwrap();
    let mut fractions = Vec::new();
    let project = wait_for("the workunit to be validated", Duration::from_mins(15), || {
        fractions.extend(first.fractions_done());
        // Looking more often would cost the clients CPU time.
        std::thread::sleep(Duration::from_millis(400));
        let project = coordinator.json(&["projects"])["projects"][0].clone();
        assert!(first.is_running() && second.is_running(), "{}\n{}", first.log(), second.log());
        (project["workunits_validated"] == 1).then_some(project)
    });
    assert_eq!(project["workunits_failed"], 0, "{project}");

    fractions.retain(|fraction| *fraction > 0.0 && *fraction < 1.0);
    fractions.dedup();
    assert!(
        fractions.len() >= 2 && fractions.is_sorted(),
        "fraction done did not rise: {fractions:?}\n{}",
        first.log()
    );
    let result = coordinator.json(&["results", "stock"])["results"][0].clone();
    assert_eq!(result["agreeing_hosts"], 2, "{result}");
    assert!(result["outputs"][0]["text"].as_str().unwrap().contains(FOUND), "{result}");
    let jobs = coordinator.json(&["jobs"])["workunits"][0]["jobs"].clone();
    assert_ne!(jobs[0]["host_id"], jobs[1]["host_id"], "{jobs}");
    assert!(jobs.as_array().unwrap().iter().all(|job| job["cpu_time_micros"].as_i64() > Some(0)), "{jobs}");
    // Nothing of ours made the clients complain.
    for client in [&first, &second] {
        let log = client.log();
        for complaint in ["error", "Error", "can't", "invalid", "unexpected"] {
            let about_us = |line: &&str| line.contains("stock") && line.contains(complaint);
            assert_eq!(log.lines().find(about_us), None, "{log}");
        }
    }
}

/// What docs/applications.md says of scripts holds under BOINC's client too (`.ci/docs` runs the same under
/// our agent).
#[test]
fn r6_11_the_script_of_the_documentation_runs_under_an_unmodified_client_and_one_that_breaks_its_rules_fails()
{
    if !have_peer() {
        return;
    }
    let coordinator = Coordinator::start();
    let made = coordinator.json(&["project", "create", "scripts", "--request-delay", "1s"]);
    let careless = "#!/bin/sh\necho 14 >out\necho 0 >boinc_finish_called\n";
    for (name, script) in [("squares", documented_script().as_str()), ("careless", careless)] {
        let path = coordinator.dir.path().join(name);
        fs::write(&path, script).unwrap();
        let path = path.to_str().unwrap();
        coordinator.json(&["app", "add", "scripts", name, path, "--version", "1.0"]);
        let input = coordinator.dir.path().join("numbers");
        fs::write(&input, "1\n2\n3\n").unwrap();
        let input = format!("in={}", input.display());
        let output = ["--output", "out", "--flops", "1e9"];
        coordinator.json(&[&["submit", "scripts", "--app", name, "--input", &input], &output[..]].concat());
    }
    coordinator.json(&["project", "set", "scripts", "account-creation=true", "report-immediately=true"]);
    let (client, url) = (Boinc::start(), made["url"].as_str().unwrap());
    let created = client.cmd(&["--create_account", url, "alice@example.org", "secret1", "Alice"]).unwrap();
    let key = created.split("account key: ").nth(1).unwrap_or_else(|| panic!("no account: {created}"));
    client.cmd(&["--project_attach", url, key.trim()]).unwrap();

    let ended = wait_for("both scripts to end", Duration::from_mins(15), || {
        std::thread::sleep(Duration::from_millis(400));
        assert!(client.is_running(), "{}", client.log());
        let job = |name| coordinator.json(&["jobs", "scripts", "--job", name]);
        let ended = ["squares_00000001_0", "careless_00000002_0"].map(job);
        ended.iter().all(|job| job["job"]["state"] == "over").then_some(ended)
    });
    assert_eq!(ended[0]["job"]["outcome"], "success", "{}", ended[0]);
    assert_eq!(ended[1]["job"]["outcome"], "error", "{}", ended[1]);
    // This client gives 0 as exit status then. Both say which output is missing.
    let text = ended[1].to_string();
    assert!(text.contains("-161") && text.contains("docs/applications.md"), "{text}");
    let result = coordinator.json(&["results", "scripts"])["results"][0].clone();
    assert_eq!(result["outputs"][0]["text"], "sum=14\n", "{result}");
}

/// What `e2e/tests/app_config.rs` shows of our agent: BOINC's client takes the same file in the same way.
#[test]
fn r6_4_an_unmodified_client_runs_no_more_than_the_same_app_config_lets_it() {
    if !have_peer() {
        return;
    }
    let coordinator = Coordinator::start();
    let made = coordinator.json(&["project", "create", "limits", "--request-delay", "1s"]);
    let path = coordinator.dir.path().join("slow");
    fs::write(&path, "#!/bin/sh\nwhile :; do sleep 1; done\n").unwrap();
    coordinator.json(&["app", "add", "limits", "slow", path.to_str().unwrap(), "--version", "1.0"]);
    let one = "[[workunits]]\napplication = \"slow\"\noutputs = [{ open_name = \"out\" }]\nflops = 1e12\n\
        flops_bound = 1e17\nquorum = 1\n";
    let batch = coordinator.dir.path().join("batch.toml");
    fs::write(&batch, one.repeat(4)).unwrap();
    coordinator.json(&["submit", "limits", "--file", batch.to_str().unwrap()]);
    coordinator.json(&["project", "set", "limits", "account-creation=true"]);
    let (client, url) = (Boinc::start_with(2), made["url"].as_str().unwrap());
    let created = client.cmd(&["--create_account", url, "alice@example.org", "secret1", "Alice"]).unwrap();
    let key = created.split("account key: ").nth(1).unwrap_or_else(|| panic!("no account: {created}"));
    client.cmd(&["--project_attach", url, key.trim()]).unwrap();
    let executing = || client.cmd(&["--get_tasks"]).unwrap_or_default().matches("EXECUTING").count();
    wait_for("both CPUs to compute", Duration::from_mins(5), || (executing() == 2).then_some(()));
    let projects = fs::read_dir(client.dir.path().join("projects")).unwrap();
    let project = projects.flatten().find(|entry| entry.path().is_dir()).unwrap().path();
    let file =
        "<app_config>\n<app>\n<name>slow</name>\n<max_concurrent>1</max_concurrent>\n</app>\n</app_config>\n";
    fs::write(project.join("app_config.xml"), file).unwrap();
    client.cmd(&["--read_cc_config"]).unwrap();
    wait_for("one of them to rest", Duration::from_mins(10), || (executing() == 1).then_some(()));
    assert!(client.log().contains("slow: Max 1 concurrent jobs") || client.log().contains("app_config.xml"));
}

/// The script that docs/applications.md shows.
fn documented_script() -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/applications.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, script) = document.split_once("cat >squares <<'END'\n").unwrap();
    script.split_once("END\n").unwrap().0.to_owned()
}

fn have_peer() -> bool {
    let there = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if there("boinc") && there("boinccmd") {
        return true;
    }
    assert!(!peers_required(), "boinc-client is not installed: e2e/peers/install.sh does it");
    println!("skipped: boinc-client is not installed (e2e/peers/install.sh does it)");
    false
}

/// A coordinator process in a directory of its own.
struct Coordinator {
    dir: TempDir,
    child: Child,
}

impl Coordinator {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-e2e-").tempdir().unwrap();
        let own = dir.path().join("coordinator");
        let log = File::create(dir.path().join("coordinator.log")).unwrap();
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(&own).stdout(log.try_clone().unwrap()).stderr(log);
        let coordinator = Self { child: run.spawn().unwrap(), dir };
        wait_for("the coordinator to answer", PATIENCE, || {
            let mut ask = command("fallow");
            ask.args(["projects", "--json", "--dir"]).arg(coordinator.dir.path()).stderr(Stdio::null());
            ask.output().unwrap().status.success().then_some(())
        });
        coordinator
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        fallow_json(self.dir.path(), arguments)
    }

    /// Gives the project's URL.
    fn project_with_one_workunit(&self) -> String {
        let made = self.json(&["project", "create", "stock", "--request-delay", "1s"]);
        let program = binary("mersenne");
        self.json(&["app", "add", "stock", "mersenne", program.to_str().unwrap(), "--version", "1.0"]);
        let input = self.dir.path().join("range");
        fs::write(&input, RANGE).unwrap();
        let input = format!("in={}", input.display());
        self.json(&[
            "submit", "stock", "--app", "mersenne", "--input", &input, "--output", "out", "--flops", "1e11",
            "--quorum", "2",
        ]);
        made["url"].as_str().unwrap().to_owned()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A stock client in a directory of its own. It needs no rights beyond that directory.
struct Boinc {
    dir: TempDir,
    port: u16,
    child: std::cell::RefCell<Child>,
}

impl Boinc {
    fn start() -> Self {
        Self::start_with(1)
    }

    /// One that uses so many CPUs.
    fn start_with(cpus: u32) -> Self {
        let dir = tempfile::Builder::new().prefix("fallow-boinc-").tempdir().unwrap();
        configure(dir.path(), cpus);
        let port = free_port();
        let log = File::create(dir.path().join("log")).unwrap();
        let child = boinc()
            .arg("--dir")
            .arg(dir.path())
            .args(["--gui_rpc_port", &port.to_string(), "--allow_multiple_clients", "--no_gpus"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Self { dir, port, child: child.into() };
        wait_for("the stock client to answer", PATIENCE, || client.cmd(&["--get_state"]));
        client
    }

    /// Runs boinccmd; gives its output if it succeeded.
    fn cmd(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("boinccmd")
            .current_dir(self.dir.path())
            .args(["--host", &format!("127.0.0.1:{}", self.port), "--passwd", "secret"])
            .args(arguments)
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What `boinccmd --get_tasks` shows.
    fn fractions_done(&self) -> Vec<f64> {
        let tasks = self.cmd(&["--get_tasks"]).unwrap_or_default();
        let lines = tasks.lines().filter_map(|line| line.trim().strip_prefix("fraction done: "));
        lines.filter_map(|text| text.parse().ok()).collect()
    }

    fn is_running(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(None))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Boinc {
    fn drop(&mut self) {
        // It takes its tasks with it when it quits by itself.
        let _ = self.cmd(&["--quit"]);
        let child = self.child.get_mut();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        end(child);
    }
}

/// So many CPUs, at once, without benchmarks, however busy the machine is.
fn configure(dir: &Path, cpus: u32) {
    let config = format!(
        "<cc_config><options>\n<allow_multiple_clients>1</allow_multiple_clients>\n\
        <dont_contact_ref_site>1</dont_contact_ref_site>\n<no_gpus>1</no_gpus>\n\
        <skip_cpu_benchmarks>1</skip_cpu_benchmarks>\n<ncpus>{cpus}</ncpus>\n</options></cc_config>\n"
    );
    let preferences = "<global_preferences>\n<run_on_batteries>1</run_on_batteries>\n\
        <run_if_user_active>1</run_if_user_active>\n<suspend_cpu_usage>0</suspend_cpu_usage>\n\
        <work_buf_min_days>0.0001</work_buf_min_days>\n<work_buf_additional_days>0.0001</work_buf_additional_days>\n\
        <disk_interval>1</disk_interval>\n</global_preferences>\n";
    fs::write(dir.join("cc_config.xml"), config).unwrap();
    fs::write(dir.join("global_prefs_override.xml"), preferences).unwrap();
    fs::write(dir.join("gui_rpc_auth.cfg"), "secret\n").unwrap();
}

/// Ends a process that this test started: politely, then not.
fn end(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        // Its number may be another process's by now.
        return;
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::TERM,
        );
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}
