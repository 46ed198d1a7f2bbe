//! The stock BOINC client (R6.8): attaches, downloads, verifies, runs, uploads, reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, workunit};

/// A client process in a directory of its own.
struct Boinc {
    dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Boinc {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("cc_config.xml"),
            "<cc_config><options><allow_multiple_clients>1</allow_multiple_clients><dont_contact_ref_site>1</dont_contact_ref_site>\
             <no_gpus>1</no_gpus><skip_cpu_benchmarks>1</skip_cpu_benchmarks><ncpus>1</ncpus></options></cc_config>\n",
        )
        .unwrap();
        fs::write(
            dir.path().join("global_prefs_override.xml"),
            "<global_preferences><run_on_batteries>1</run_on_batteries><run_if_user_active>1</run_if_user_active>\
             <suspend_cpu_usage>0</suspend_cpu_usage><work_buf_min_days>0.0001</work_buf_min_days>\
             <work_buf_additional_days>0.0001</work_buf_additional_days><disk_interval>1</disk_interval>\
             </global_preferences>\n",
        )
        .unwrap();
        fs::write(dir.path().join("gui_rpc_auth.cfg"), "secret\n").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new("boinc")
            .arg("--dir")
            .arg(dir.path())
            .args(["--gui_rpc_port", &port.to_string(), "--allow_multiple_clients", "--no_gpus"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Self { dir, port, child };
        client.wait_for(Duration::from_secs(30), "the client to answer", |client| {
            client.cmd(&["--get_state"]).is_some()
        });
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

    fn wait_for(&self, limit: Duration, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            if begin.elapsed() > limit {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("waited {limit:?} for {what}; the client's log:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

impl Drop for Boinc {
    fn drop(&mut self) {
        let _ = self.cmd(&["--quit"]);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(15) {
            if self.child.try_wait().ok().flatten().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn have_peer() -> bool {
    let there = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if there("boinc") && there("boinccmd") {
        return true;
    }
    assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none(), "boinc-client is not installed");
    println!("skipped: boinc-client is not installed");
    false
}

/// The application, beside the test's own executable.
fn mersenne() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).map(|dir| dir.join("mersenne"))?;
    path.exists().then_some(path)
}

#[test]
fn r6_8_the_stock_client_computes_a_workunit_of_ours() {
    if !have_peer() {
        return;
    }
    let Some(program) = mersenne() else { panic!("build the application first") };
    let fixture = Fixture::start();
    let info = fixture.project("mersenne");
    fixture.application("mersenne", "mersenne", program).unwrap();
    fixture.server.submit("mersenne", vec![workunit("mersenne", "from=2 to=5300", 1e10, 1)]).unwrap();
    let client = Boinc::start();
    let url = info.url.to_string();

    // Accounts, as a person would make one.
    let created = client.cmd(&["--create_account", &url, "alice@example.org", "secret1", "Alice"]).unwrap();
    assert!(created.contains("account key: "), "{created}");
    let found = client.cmd(&["--lookup_account", &url, "Alice@example.org", "secret1"]).unwrap();
    let key = found.split("account key: ").nth(1).unwrap().trim().to_owned();
    assert!(created.contains(&key));

    client.cmd(&["--project_attach", &url, &key]).unwrap();
    let mut fractions = Vec::new();
    client.wait_for(Duration::from_secs(240), "the workunit to be validated", |client| {
        let tasks = client.cmd(&["--get_tasks"]).unwrap_or_default();
        for line in tasks.lines() {
            if let Some(text) = line.trim().strip_prefix("fraction done: ") {
                fractions.push(text.parse::<f64>().unwrap());
            }
        }
        fixture.server.counts("mersenne").unwrap().workunits_validated == 1
    });
    fractions.retain(|fraction| *fraction > 0.0 && *fraction < 1.0);
    fractions.dedup();
    assert!(fractions.len() >= 2 && fractions.is_sorted(), "fraction done rose: {fractions:?}");
    let results = fixture.server.list_results("mersenne", None, 0).unwrap();
    let output = String::from_utf8_lossy(&results.items[0].outputs[0].content).into_owned();
    println!("{output}\n{}", fs::read_to_string(Path::new(client.dir.path()).join("log")).unwrap());
    assert!(output.contains("4423"), "{output}");
}
