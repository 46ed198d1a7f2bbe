//! An owner limits applications of a project by BOINC's `app_config.xml` (R6.4): a real project, a real
//! agent, and what runs there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use fallow_e2e::{Lab, PATIENCE, command, wait_for};
use serde_json::Value;

/// A job that takes next to no CPU time and does not end. First it tries what no job may.
const WAITS: &str = "#!/bin/sh
for dir in ../../projects/*; do
    echo '<app_config/>' >\"$dir/app_config.xml\"
    rm -f \"$dir/app_config.xml\"
    mv out \"$dir/app_config.xml\"
done
while :; do sleep 1; done
";

/// One lets its test take longer than others: it waits for three starts of tasks, and one of the agent.
const LONG: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// An agent with a project of two applications.
struct Host {
    lab: Lab,
}

impl Host {
    fn start() -> Self {
        let lab = Lab::start(1);
        for name in ["slow", "other"] {
            let path = lab.place().join(name);
            fs::write(&path, WAITS).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            lab.json(&["app", "add", "sums", name, path.to_str().unwrap(), "--version", "1.0"]);
        }
        Self { lab }
    }

    /// Gives the project jobs of an application.
    fn submit(&self, app: &str, jobs: usize) {
        let one = format!(
            "[[workunits]]\napplication = \"{app}\"\noutputs = [{{ open_name = \"out\" }}]\nflops = 1e12\n\
             flops_bound = 1e17\nquorum = 1\n"
        );
        let batch = self.lab.place().join(format!("{app}.toml"));
        fs::write(&batch, one.repeat(jobs)).unwrap();
        self.lab.json(&["submit", "sums", "--file", batch.to_str().unwrap()]);
    }

    fn file(&self) -> PathBuf {
        let projects = self.lab.agent_place(1).join("projects");
        let project = fs::read_dir(projects).unwrap().next().unwrap().unwrap();
        project.path().join("app_config.xml")
    }

    /// What `fallow-agent` says to the owner, and how it ends.
    fn agent(&self, arguments: &[&str]) -> (i32, String) {
        let output = command("fallow-agent")
            .args(arguments)
            .arg("--dir")
            .arg(self.lab.agent_place(1))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code().unwrap(), said.concat())
    }

    /// The file says this inside, and the agent has taken it.
    fn says(&self, inside: &str) {
        fs::write(self.file(), format!("<app_config>\n{inside}\n</app_config>\n")).unwrap();
        let (code, text) = self.agent(&["preferences", "reload"]);
        assert_eq!(code, 0, "{text}");
    }

    /// How many jobs of each application run.
    fn running(&self) -> Option<(usize, usize)> {
        let status: Value = serde_json::from_str(&self.agent(&["status", "--json"]).1).ok()?;
        let runs = |app: &str| {
            let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice).iter();
            tasks
                .filter(|task| task["phase"] == "running" && task["name"].as_str().unwrap().starts_with(app))
                .count()
        };
        Some((runs("slow"), runs("other")))
    }

    /// Waits until so many run, with no more of `slow` on the way.
    fn runs(&self, what: &str, most: usize, is_so: impl Fn(usize, usize) -> bool) {
        wait_for(what, LONG, || {
            let (slow, other) = self.running()?;
            assert!(slow <= most, "{slow} of slow run, {other} of the other one: {what}");
            is_so(slow, other).then_some(())
        });
    }
}

#[test]
fn r6_4_an_owners_app_config_limits_what_runs_of_a_project_and_what_idles_is_for_its_other_applications() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(cpus >= 2, "one CPU shows nothing");
    let mut host = Host::start();
    host.submit("slow", cpus + 2);
    host.runs("all CPUs to compute", cpus, |slow, _| slow == cpus);

    // Jobs have tried to say something there. Where their files are confined, they cannot.
    let confined = host
        .agent(&["status"])
        .1
        .lines()
        .any(|line| line.starts_with("jobs are confined") && line.contains("files"));
    assert!(!confined || !host.file().exists());

    // Fewer run as soon as he says so; what is over gives way to another application.
    host.says("<app>\n<name>slow</name>\n<max_concurrent>1</max_concurrent>\n</app>");
    host.runs("one of slow to run", cpus, |slow, _| slow == 1);
    host.submit("other", cpus);
    host.runs("the other application to have the rest", 1, |slow, other| slow == 1 && other == cpus - 1);
    let (_, text) = host.agent(&["status"]);
    assert!(text.contains("slow at most 1 at once (1 now)"), "{text}");
    // No job has changed what he says.
    assert!(
        !confined || fs::read_to_string(host.file()).unwrap().contains("<max_concurrent>1</max_concurrent>")
    );

    host.says("<project_max_concurrent>1</project_max_concurrent><bogus/>");
    host.runs("one job of all to run", 1, |slow, other| slow + other == 1);
    let (_, text) = host.agent(&["status"]);
    assert!(
        text.contains("at most 1 of its jobs at once (1 now)") && text.contains("line 2: <bogus>"),
        "{text}"
    );

    // What is wrong is not taken. At a start it may be what forbids: nothing of the project begins.
    let wrong = "<app_config>\n<project_max_concurrent>one</project_max_concurrent>\n</app_config>\n";
    fs::write(host.file(), wrong).unwrap();
    let (code, text) = host.agent(&["preferences", "reload"]);
    assert!(
        code == 3 && text.contains("app_config.xml: line 2: <project_max_concurrent> is \"one\""),
        "{text}"
    );
    assert_eq!(host.running().map(|(slow, other)| slow + other), Some(1), "{}", host.lab.agent_log(1));
    host.lab.kill_agent(1);
    host.lab.start_agent(1);
    let text = wait_for("the agent to say what is wrong", LONG, || {
        let (code, text) = host.agent(&["status"]);
        (code == 0).then_some(text)
    });
    assert!(text.contains("nothing is begun until its app_config.xml is mended"), "{text}");
    assert!(host.lab.agent_log(1).contains("line 2: <project_max_concurrent>"), "{}", host.lab.agent_log(1));
    assert_eq!(host.running(), Some((0, 0)));
    fs::remove_file(host.file()).unwrap();
    let (code, text) = host.agent(&["preferences", "reload"]);
    assert_eq!(code, 0, "{text}");
    host.runs("all CPUs to compute again", cpus, |slow, other| slow + other == cpus);
}
