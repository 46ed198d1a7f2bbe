//! Coordinators: one whose fleet the agents are in, and one whose projects they are attached to by their
//! owners.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use fallow_e2e::{Killed, PATIENCE, command, fallow_json, wait_for};
use serde_json::Value;

pub(crate) struct Coordinator {
    dir: PathBuf,
    _process: Killed,
}

/// An account at a project.
pub(crate) struct Account {
    pub(crate) url: String,
    pub(crate) key: String,
}

impl Coordinator {
    pub(crate) fn start(dir: PathBuf) -> Self {
        let log = File::create(dir.with_extension("log")).unwrap();
        let mut run = command("fallow");
        run.args(["coordinator", "run", "--dir"]).arg(&dir).stdout(log.try_clone().unwrap()).stderr(log);
        let coordinator = Self { _process: Killed(run.spawn().unwrap()), dir };
        wait_for("the coordinator to answer", PATIENCE, || {
            let asks = command("fallow").args(["hosts", "--dir"]).arg(&coordinator.dir).output().unwrap();
            asks.status.success().then_some(())
        });
        coordinator
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        fallow_json(&self.dir, arguments)
    }

    pub(crate) fn token(&self) -> String {
        self.json(&["tokens", "create"])["tokens"][0].as_str().unwrap().to_owned()
    }

    /// Makes a project with one application, a script. Its jobs have as little of a CPU as clients plan with,
    /// so that many run side by side.
    pub(crate) fn project(&self, name: &str, application: &str, script: &str) {
        self.json(&["project", "create", name, "--request-delay", "1s"]);
        self.json(&["project", "set", name, "account-creation=true", "poll=2s", "spread=false"]);
        let program = self.dir.with_file_name(format!("{name}-{application}"));
        fs::write(&program, script).unwrap();
        let program = program.to_str().unwrap();
        let version = ["--version", "1.0", "--uses", "cpu=0.25"];
        self.json(&[&["app", "add", name, application, program], &version[..]].concat());
    }

    /// An account that somebody makes by the project's web page, as BOINC clients do.
    pub(crate) fn account(&self, project: &str, user: &str) -> Account {
        let projects = self.json(&["projects"])["projects"].as_array().unwrap().clone();
        let url = projects.iter().find(|other| other["name"] == project).unwrap()["url"].as_str().unwrap();
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (query, hash) = (format!("email_addr={user}@example.org&user_name={user}"), "0".repeat(32));
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "GET /{path}create_account.php?{query}&passwd_hash={hash} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let key = answer.split("<authenticator>").nth(1).and_then(|rest| rest.split('<').next());
        Account {
            url: url.to_owned(),
            key: key.unwrap_or_else(|| panic!("no account: {answer}")).trim().to_owned(),
        }
    }

    /// Submits a batch of workunits.
    pub(crate) fn submit(&self, project: &str, workunits: &str) {
        let file = self.dir.with_file_name(format!("{project}-batch.toml"));
        fs::write(&file, workunits).unwrap();
        self.json(&["submit", project, "--file", file.to_str().unwrap()]);
    }

    /// The jobs of a project that are over, by their workunits' names.
    pub(crate) fn over(&self, project: &str) -> Vec<(String, Value)> {
        let workunits = self.json(&["jobs", project])["workunits"].as_array().unwrap().clone();
        let first =
            |workunit: &Value| Some((workunit["name"].as_str()?.to_owned(), workunit["jobs"][0].clone()));
        workunits.iter().filter_map(first).filter(|(_, job)| job["state"] == "over").collect()
    }

    /// Outputs by their workunits' names.
    pub(crate) fn outputs(&self, project: &str) -> Vec<(String, String)> {
        let results = self.json(&["results", project])["results"].as_array().unwrap().clone();
        let text = |result: &Value| {
            let text = result["outputs"][0]["text"].as_str()?.to_owned();
            Some((result["workunit"].as_str()?.to_owned(), text))
        };
        results.iter().filter_map(text).collect()
    }
}

/// A workunit of one job that reads `input`, as a batch says it. It says that it needs little memory, so that
/// many find room where jobs may have little.
pub(crate) fn workunit(name: &str, application: &str, input: &str, more: &str) -> String {
    format!(
        "[[workunits]]\nname = {name:?}\napplication = \"{application}\"\nflops = 1e9\nmemory = \"16 MB\"\n\
         inputs = [{{ open_name = \"in\", text = {} }}]\noutputs = [{{ open_name = \"out\" }}]\n{more}\n",
        Value::String(input.to_owned())
    )
}

/// The agent's program where every user may run it.
pub(crate) fn program_for_all(dir: &Path) -> PathBuf {
    let program = dir.join("fallow-agent");
    fs::copy(fallow_e2e::binary("fallow-agent"), &program).unwrap();
    program
}
