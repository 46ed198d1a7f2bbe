//! What the host's files say, on the real agent with real tasks: what is in force, where it comes from,
//! and what follows from it (R6.4).

mod clock;
mod cpus;
mod days;
mod memory;
mod network;
mod people;
mod project;
mod speeds;
mod turns;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fallow_boinc::scheduler::{ResultJob, SchedulerReply, SchedulerRequest, Workunit};
use fallow_domain::Flops;
use serde_json::Value;

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::owner::Dev;
use crate::support::{agent, copy_program, wait_for};
use crate::transfers::Server;
use crate::turns::{calls, working, working_with};

/// A task that takes next to no CPU time and never ends.
const WAITS: &[u8] = b"#!/bin/sh\nwhile :; do sleep 1; done\n";

/// An agent that looks around itself twenty times a second.
struct Host {
    dir: tempfile::TempDir,
    power: tempfile::TempDir,
    daemon: Option<Daemon>,
}

impl Host {
    fn new() -> Self {
        let (dir, power) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Self { dir, power, daemon: None }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn start(&mut self) {
        self.start_with(|_| ());
    }

    fn start_with(&mut self, more: impl FnOnce(&mut Command)) {
        let mut run =
            command(self.path(), &["run", "--benchmark-after-ms", "10000000", "--look-every-ms", "50"]);
        run.arg("--power-dir").arg(self.power.path()).stdout(Stdio::null()).stderr(Stdio::null());
        more(&mut run);
        self.daemon = Some(Daemon::of(run, self.dir.path()));
    }

    /// One whose task computes.
    fn computing(server: &Server) -> Self {
        let mut host = Self::new();
        host.start();
        host.begin(server);
        host
    }

    fn begin(&self, server: &Server) {
        assert_eq!(attach(self.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
        self.goes_on();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// The owner's file has this text, and the agent knows.
    fn owner(&self, text: &str) {
        self.write("preferences.toml", text);
        self.reload();
    }

    fn reload(&self) {
        let (code, text) = outcome(self.path(), &["preferences", "reload"]);
        assert_eq!(code, 0, "{text}");
    }

    /// What suspends computing, if anything does, and whether a task is to run. Tasks are told to rest by
    /// BOINC's messages, which a script does not heed: what the agent holds of them is looked at.
    fn stand(&self) -> (Value, bool) {
        let status = status(self.path());
        // One that is just being started says nothing yet.
        let tasks = status["tasks"].as_array().map_or(&[][..], Vec::as_slice);
        let runs = tasks.iter().any(|task| task["phase"] == "running");
        (status["host"]["suspended_by"].clone(), runs)
    }

    fn goes_on(&self) {
        wait_for("tasks that go on", || (self.stand() == (Value::Null, true)).then_some(()));
    }

    /// No task runs, and `status` says why.
    fn stops(&self, why: &str) {
        wait_for(why, || (self.stand() == (Value::from(why), false)).then_some(()));
    }

    fn preference(&self, key: &str) -> Value {
        let output = command(self.path(), &["preferences", "--json"]).output().unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = all["preferences"].as_array().unwrap().iter().find(|one| one["key"] == key);
        found.unwrap_or_else(|| panic!("no {key} in {all}")).clone()
    }

    /// The machine's battery says this of itself.
    fn battery_says(&self, file: &str, text: &str) {
        fs::write(self.power.path().join("BAT0").join(file), format!("{text}\n")).unwrap();
    }

    fn battery(&self, mains: bool) {
        for (supply, file, text) in [
            ("AC", "type", "Mains"),
            ("AC", "online", if mains { "1" } else { "0" }),
            ("BAT0", "type", "Battery"),
            ("BAT0", "status", if mains { "Full" } else { "Discharging" }),
        ] {
            let place = self.power.path().join(supply);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(file), format!("{text}\n")).unwrap();
        }
    }
}

/// A program under a name of its own that runs until this is dropped.
struct Program(Child);

impl Program {
    fn start(path: &Path, arguments: &[&str]) -> Self {
        Self(Command::new(path).args(arguments).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// An editor that does this to its file, which is `$1`.
fn editor(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Exit code and what was said.
fn edit(dir: &Path, editor: &Path) -> (i32, String) {
    let mut edit = command(dir, &["preferences", "edit"]);
    let output = edit.env_remove("VISUAL").env("EDITOR", editor).stdin(Stdio::null()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

#[test]
fn r6_4_the_owner_edits_his_file_which_is_checked_and_taken_without_a_restart() {
    let (mut host, tools) = (Host::new(), tempfile::tempdir().unwrap());
    host.start();
    let (pid, file) = (status(host.path())["pid"].clone(), host.path().join("preferences.toml"));
    assert_eq!(host.preference("buffer_min")["source"], "default");
    // What the editor is given explains itself.
    let nothing = editor(tools.path(), "nothing", "grep -q '^#cpu_fraction = ' \"$1\"");
    let (code, text) = edit(host.path(), &nothing);
    assert!(code == 0 && text.contains("nothing was changed") && !file.exists(), "{code}: {text}");
    let wrong = editor(tools.path(), "wrong", "printf 'cpu_fraction = 2\\nhuors = \"mon\"\\n' >>\"$1\"");
    let (code, text) = edit(host.path(), &wrong);
    assert!(code == 3 && !file.exists(), "{code}: {text}");
    for part in ["cpu_fraction", "did you mean `hours`?", "nothing was changed", "what you wrote is in"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let kept = text.rsplit("what you wrote is in ").next().unwrap().split(": mend it there").next().unwrap();
    let check = Command::new(agent()).args(["preferences", "check", kept]).output().unwrap();
    assert!(
        check.status.code() == Some(3) && String::from_utf8_lossy(&check.stderr).contains("huors"),
        "{check:?}"
    );
    fs::remove_file(kept).unwrap();
    let fails = editor(tools.path(), "fails", "exit 1");
    let (code, text) = edit(host.path(), &fails);
    assert!(code == 3 && text.contains("EDITOR") && !file.exists(), "{code}: {text}");

    let right = "buffer_min = \"1 h\"\nrun_in_use = true\n";
    let right = editor(tools.path(), "right", &format!("printf '{}' >\"$1\"", right.replace('\n', "\\n")));
    let (code, text) = edit(host.path(), &right);
    assert!(code == 0 && text.contains("are taken"), "{code}: {text}");
    let note = "\nline 2: run_in_use = true is not taken: it would loosen (false, default)\n";
    assert!(text.contains(note) && !text.contains("line 1"), "{text}");
    assert_eq!(status(host.path())["pid"], pid, "it is the same process");
    let buffer = host.preference("buffer_min");
    assert!(
        buffer["value"] == "1 h" && buffer["source"] == "preferences.toml" && buffer["line"] == 1,
        "{buffer}"
    );
    assert_eq!(buffer["overruled"][0]["value"], "2.4 h");
    // What would loosen is named, and not taken.
    let in_use = host.preference("run_in_use");
    assert!(in_use["value"] == "false" && in_use["source"] == "default", "{in_use}");
    let said = &in_use["overruled"][0];
    assert!(said["line"] == 2 && said["why"].as_str().unwrap().contains("would loosen"), "{said}");
    let (code, why) = outcome(host.path(), &["preferences", "--why"]);
    assert!(code == 0 && why.contains("preferences.toml, line 2: not taken"), "{why}");
    let (_, table) = outcome(host.path(), &["preferences"]);
    assert!(!table.contains("not taken") && table.contains("1 h"), "{table}");
    // It holds over a restart, and without an agent too.
    host.daemon.as_mut().unwrap().kill();
    let (code, text) = edit(host.path(), &editor(tools.path(), "more", "echo 'suspended = true' >>\"$1\""));
    assert!(code == 0 && text.contains("none runs now"), "{code}: {text}");
    assert!(text.contains("line 2: run_in_use = true is no limit by itself"), "{text}");
    host.start();
    assert_eq!(host.preference("buffer_min")["value"], "1 h");
    assert_eq!(status(host.path())["host"]["suspended_by"], "owner");
    // What his command cannot lift is said in the words of `status`.
    let (code, text) = outcome(host.path(), &["resume"]);
    let line = outcome(host.path(), &["status", "--line"]).1;
    assert_eq!((code, text), (0, format!("there was no suspension of yours; now: {line}")));
    assert!(line.contains("suspended by preferences.toml, line 3"), "{line}");
}

#[test]
fn r6_4_a_file_is_checked_by_itself_and_the_template_explains_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let template = Command::new(crate::support::agent()).args(["preferences", "template"]).output().unwrap();
    let file = dir.path().join("new.toml");
    let check = || {
        let output = Command::new(crate::support::agent()).args(["preferences", "check"]).arg(&file).output();
        let output = output.unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), text)
    };
    assert_eq!(check().0, 3, "it is not there");
    fs::write(&file, &template.stdout).unwrap();
    assert_eq!(check(), (0, format!("{}: nothing is wrong, and nothing is limited\n", file.display())));
    fs::write(&file, "hours = \"mon,tue 18:00-20:00\"\n").unwrap();
    let (code, text) = check();
    assert!(code == 0 && text.contains("it limits hours"), "{text}");
    fs::write(&file, "cpus_max = 2\nrun_in_use = true\nidle_after = \"15m\"\nstop_without_input = \"1m\"\n")
        .unwrap();
    let (code, text) = check();
    assert!(code == 0 && text.contains("it limits cpus_max, idle_after, stop_without_input\n"), "{text}");
    assert!(
        text.contains("\nline 2: run_in_use = true is no limit by itself: without it false holds\n"),
        "{text}"
    );
    assert!(text.contains("\nthis machine would never compute: "), "{text}");
    fs::write(&file, "hours = \"mon, tue 18:00-20:00\"\nidle_after = 5\n").unwrap();
    let (code, text) = check();
    assert!(!text.contains("nothing was changed"), "{text}");
    assert!(code == 3 && text.contains(":1:") && text.contains(":2:"), "{text}");
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(check().1.contains("no text"));
}

#[test]
fn r6_4_a_wrong_file_at_the_start_keeps_the_agent_from_computing_until_it_is_mended() {
    let server = working(WAITS);
    let mut host = Host::computing(&server);
    // While it runs, a wrong file changes nothing.
    host.write("preferences.toml", "cpu_fraction = \"lots\"\n");
    let (code, text) = outcome(host.path(), &["preferences", "reload"]);
    assert!(
        code == 3 && text.contains("preferences.toml:1:") && text.contains("stay as they were"),
        "{text}"
    );
    host.goes_on();
    host.daemon.as_mut().unwrap().kill();
    host.start();
    host.stops("preference file");
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("a preference file is wrong") && text.contains("preferences.toml:1:"), "{text}");
    host.owner("");
    host.goes_on();
    // BOINC's files likewise.
    host.write("global_prefs_override.xml", "<global_preferences>");
    host.daemon.as_mut().unwrap().kill();
    host.start();
    host.stops("preference file");
    fs::remove_file(host.path().join("global_prefs_override.xml")).unwrap();
    host.reload();
    host.goes_on();
}

#[test]
fn r6_10_tasks_rest_while_a_layer_is_off_that_the_owner_requires_and_go_on_when_he_takes_that_back() {
    let server = working(WAITS);
    let mut host = Host::new();
    let without = |run: &mut Command| {
        run.args(["--without-layers", "files"]);
    };
    host.start_with(without);
    host.begin(&server);
    host.owner("required_layers = [\"privileges\"]\n");
    host.goes_on();
    host.owner("required_layers = [\"files\", \"privileges\"]\n");
    host.stops("confinement");
    let (_, text) = outcome(host.path(), &["status"]);
    for part in [
        "suspended: required of jobs' confinement and off: files (switched off); who requires it says",
        "preferences require layers of confinement that are off: files (switched off)\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (_, text) = outcome(host.path(), &["preferences", "--why"]);
    assert!(text.contains("that are off: files (switched off)\n"), "{text}");
    let shown = host.preference("required_layers");
    assert_eq!(
        (&shown["value"], &shown["source"], &shown["line"]),
        (&Value::from("files, privileges"), &Value::from("preferences.toml"), &Value::from(1))
    );
    assert_eq!(status(host.path())["host"]["lacks_layers"], "files (switched off)");
    // Nor is anything begun at the next start.
    host.daemon.as_mut().unwrap().kill();
    host.start_with(without);
    host.stops("confinement");
    host.owner("");
    host.goes_on();
    host.owner("required_layers = \"all\"\n");
    host.stops("confinement");
    // No layer is called so: what holds goes on to hold.
    host.write("preferences.toml", "required_layers = [\"fils\"]\n");
    let file = host.path().join("preferences.toml");
    let check =
        Command::new(crate::support::agent()).args(["preferences", "check"]).arg(file).output().unwrap();
    let checked = (check.status.code().unwrap(), String::from_utf8_lossy(&check.stderr).into_owned());
    for (code, text) in [checked, outcome(host.path(), &["preferences", "reload"])] {
        for part in
            ["preferences.toml:1:", "required_layers", "\"fils\" makes no sense", "did you mean \"files\"?"]
        {
            assert!(code == 3 && text.contains(part), "{part} in {text}");
        }
    }
    host.stops("confinement");
    host.owner("");
    host.goes_on();
}

/// A task that tries to make a socket of the Internet, says in its slot whether it can, and never ends.
const CONNECTS: &[u8] = b"#!/bin/sh\nsay=closed\n\
    perl -e 'use Socket; exit !socket(my $made, AF_INET, SOCK_DGRAM, 0)' && say=open\n\
    echo $say >network\nwhile :; do sleep 1; done\n";

#[test]
fn r6_10_a_job_that_asks_has_the_network_only_where_its_owner_and_preferences_allow_it() {
    let asks = working_with(CONNECTS, |reply| {
        reply.app_versions.iter_mut().for_each(|version| version.needs_network = true);
    });
    let does_not = working(CONNECTS);
    let allow = |run: &mut Command| {
        run.arg("--allow-network");
    };
    let found = |host: &Host, said: &str| {
        let is_so = || fs::read_to_string(host.path().join("slots/0/network")).is_ok_and(|text| text == said);
        wait_for(said, || is_so().then_some(()));
    };
    for (server, allowed, expected) in
        [(&does_not, true, "closed\n"), (&asks, false, "closed\n"), (&asks, true, "open\n")]
    {
        let mut host = Host::new();
        host.start_with(|run| {
            if allowed {
                allow(run);
            }
        });
        host.begin(server);
        found(&host, expected);
        if expected == "closed\n" {
            continue;
        }
        // Preferences that name others take it from this one.
        host.daemon.as_mut().unwrap().kill();
        fs::remove_file(host.path().join("slots/0/network")).unwrap();
        host.write("preferences.toml", "jobs_network = [\"http://127.0.0.1:9/other/\"]\n");
        host.start_with(allow);
        found(&host, "closed\n");
    }
}

/// A day on which it is not today, nor will be tomorrow.
fn another_day() -> String {
    let today = jiff::Zoned::now().weekday().to_monday_zero_offset();
    let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    names[(usize::try_from(today).unwrap() + 3) % 7].to_owned()
}

#[test]
fn r6_4_what_the_owner_forbids_stops_tasks_and_they_go_on_when_it_is_over() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    host.owner("suspended = true\n");
    host.stops("owner");
    host.write("preferences.toml", "");
    let (code, text) = outcome(host.path(), &["preferences", "reload"]);
    assert_eq!(code, 0, "{text}");
    host.goes_on();
    host.owner(&format!("hours = \"{} 12:00-13:00\"\n", another_day()));
    host.stops("hours");
    host.owner("hours = \"always\"\n");
    host.goes_on();
    // Its battery: without a word of anybody it rests there.
    host.battery(false);
    // There was no battery, so the next look is in ten minutes; a change of what it looks for makes it look
    // at once.
    host.owner("exclusive_programs = [\"no-such-program\"]\n");
    host.stops("battery");
    host.battery(true);
    host.goes_on();
    // An exclusive program.
    let program = host.power.path().join("a-game-of-this-test");
    copy_program("/bin/sleep".as_ref(), &program);
    host.owner("exclusive_programs = [\"A-Game-Of-This-Test\"]\n");
    let game = Program::start(&program, &["1000"]);
    host.stops("other programs");
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("resting: A-Game-Of-This-Test runs"), "{text}");
    drop(game);
    host.goes_on();
}

#[test]
fn r6_4_tasks_rest_while_the_battery_is_charged_to_less_than_is_said_or_too_hot() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    host.battery(true);
    host.battery_says("capacity", "40");
    host.battery_says("temp", "384");
    let line = || outcome(host.path(), &["status", "--line"]).1;
    host.owner("battery_charge_min = \"50%\"\n");
    host.stops("battery");
    assert!(line().contains("its battery is charged to 40 %, and battery_charge_min is 50 %"), "{}", line());
    host.battery_says("capacity", "50");
    host.goes_on();
    let charge = host.preference("battery_charge_min");
    assert!(charge["value"] == "50%" && charge["source"] == "preferences.toml", "{charge}");
    host.owner("battery_temperature_max = 38\n");
    host.stops("battery");
    assert!(line().contains("its battery has 39 °C, and battery_temperature_max is 38 °C"), "{}", line());
    host.battery_says("temp", "330");
    host.goes_on();
    // BOINC's words for it.
    let says = |inside: &str| {
        host.write(
            "global_prefs_override.xml",
            &format!("<global_preferences>{inside}</global_preferences>"),
        );
        host.owner("");
    };
    says("<battery_charge_min_pct>51</battery_charge_min_pct>");
    host.stops("battery");
    says("<battery_max_temperature>32.5</battery_max_temperature>");
    host.stops("battery");
    assert_eq!(host.preference("battery_temperature_max")["value"], "32 °C");
    // What is absurd comes to what is possible.
    says("<battery_max_temperature>1e99</battery_max_temperature>");
    host.goes_on();
    assert_eq!(host.preference("battery_temperature_max")["value"], "100 °C");
    host.write("preferences.toml", "battery_charge_min = \"150%\"\nbattery_temperature_max = 4000\n");
    let (code, text) = outcome(host.path(), &["preferences", "reload"]);
    assert!(code == 3 && text.contains("toml:1:") && text.contains("toml:2:"), "{code}: {text}");
}

/// How much of the longest file of all projects has come that is not whole yet.
fn longest_part(dir: &Path) -> u64 {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let projects = entries(&dir.join("projects"));
    let files = projects.flat_map(|project| entries(&project.path().join(".partial")));
    files.filter_map(|file| Some(file.metadata().ok()?.len())).max().unwrap_or(0)
}

/// Routes by which this machine reaches the network over an interface.
fn routes(dir: &Path, interface: &str) {
    let text = format!(
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
         {interface} 00000000 0100A8C0 0003 0 0 100 00000000 0 0 0\n"
    );
    fs::write(dir.join("new"), text).unwrap();
    fs::rename(dir.join("new"), dir.join("route")).unwrap();
}

#[test]
fn r6_4_files_and_calls_wait_for_wifi_where_that_is_said_and_go_on_from_there() {
    let (server, mut host, net) = (with_a_long_program(), Host::new(), tempfile::tempdir().unwrap());
    let interfaces = net.path().join("interfaces");
    for entry in ["eth0/device", "wlan0/device", "wlan0/wireless"] {
        fs::create_dir_all(interfaces.join(entry)).unwrap();
    }
    routes(net.path(), "eth0");
    host.start_with(|run| {
        run.arg("--interfaces-dir").arg(&interfaces).arg("--routes-dir").arg(net.path());
    });
    let limits = "download_max = \"500 kB\"\n";
    host.owner(&format!("{limits}network_wifi_only = true\n"));
    let rests = |host: &Host, why: &str| {
        wait_for(why, || (status(host.path())["host"]["network_rests"] == why).then_some(()));
    };
    let on_cable = "this machine is not on WiFi but on eth0 (`network_wifi_only`)";
    rests(&host, on_cable);
    // Somebody who asks for contact with a project has it; its files wait.
    assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    assert_eq!(outcome(host.path(), &["update", &server.url("")]).0, 0);
    let fetched = || {
        let asked = server.asked().into_iter().map(|asked| asked.head);
        asked.filter(|head| head.starts_with("get /p/program ")).collect::<Vec<_>>()
    };
    let waits = |host: &Host| {
        let tasks = status(host.path())["tasks"].clone();
        tasks.as_array().is_some_and(|tasks| tasks.iter().any(|task| task["phase"] == "downloading"))
    };
    wait_for("a job whose program is to come", || waits(&host).then_some(()));
    rests(&host, on_cable);
    assert_eq!(fetched().len(), 0, "{:?}", fetched());
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains(&format!("no project is contacted: {on_cable}")), "{text}");
    routes(net.path(), "wlan0");
    wait_for("that it is fetched", || (!fetched().is_empty()).then_some(()));
    // A part of it has come.
    wait_for("a part of it", || (longest_part(host.path()) > 200_000).then_some(()));
    routes(net.path(), "eth0");
    rests(&host, on_cable);
    routes(net.path(), "wlan0");
    host.owner("network_wifi_only = true\n");
    host.goes_on();
    let again = fetched().pop().unwrap();
    assert!(fetched().len() == 2 && again.contains("range: bytes="), "{:?}", fetched());
    assert_eq!(status(host.path())["host"]["network_rests"], Value::Null);
    // BOINC's word for it.
    host.write("global_prefs_override.xml", "<global_preferences><network_wifi_only/></global_preferences>");
    host.owner("");
    routes(net.path(), "eth0");
    rests(&host, on_cable);
    assert_eq!(host.preference("network_wifi_only")["source"], "global_prefs_override.xml");
}

/// A `cc_config.xml` with these options.
fn options(options: &str) -> String {
    format!("<cc_config>\n<options>\n{options}\n</options>\n</cc_config>\n")
}

#[test]
fn r6_4_boincs_client_configuration_limits_cpus_and_has_computing_wait_after_a_start() {
    let server = working(WAITS);
    let mut host = Host::computing(&server);
    host.write("cc_config.xml", &options("<ncpus>1</ncpus>"));
    host.reload();
    assert_eq!(status(host.path())["host"]["usable_cpus"], 1);
    let cpus = host.preference("cpus_max");
    assert!(cpus["value"] == "1" && cpus["source"] == "cc_config.xml", "{cpus}");
    host.write("cc_config.xml", &options("<start_delay>86400</start_delay>"));
    host.daemon.as_mut().unwrap().kill();
    host.start();
    host.stops("start delay");
    let line = outcome(host.path(), &["status", "--line"]).1;
    assert!(line.starts_with("resting: the agent waits after its start, until "), "{line}");
    // It was started longer ago than that when this is over.
    host.write("cc_config.xml", &options("<start_delay>3</start_delay>"));
    host.reload();
    host.goes_on();
    // What nobody can have meant is told, and changes nothing; at a start it keeps the agent from computing.
    for (option, expected) in [
        ("<ncpus>lots</ncpus>", "a whole number from -1 to 10000 at line 3"),
        ("<start_delay>1e300</start_delay>", "a number of seconds from 0 to 86400 at line 3"),
        ("<max_file_xfers>-5</max_file_xfers>", "a whole number from 1 to 10000 at line 3"),
    ] {
        host.write("cc_config.xml", &options(option));
        let (code, text) = outcome(host.path(), &["preferences", "reload"]);
        assert!(code == 3 && text.contains(expected) && text.contains("cc_config.xml"), "{text}");
    }
    assert_eq!(host.stand(), (Value::Null, true));
    host.daemon.as_mut().unwrap().kill();
    host.start();
    host.stops("preference file");
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("a preference file is wrong") && text.contains("in <max_file_xfers>"), "{text}");
}

#[test]
fn r6_4_no_more_files_go_at_once_than_boincs_client_configuration_lets() {
    let (servers, mut host) = ([with_a_long_program(), with_a_long_program()], Host::new());
    host.write("cc_config.xml", &options("<max_file_xfers>1</max_file_xfers>"));
    host.write("preferences.toml", "download_max = \"1 MB\"\n");
    host.start();
    for server in &servers {
        assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    }
    let is_asked =
        |server: &Server| server.asked().iter().any(|asked| asked.head.starts_with("get /p/program "));
    let both_wait = || {
        let tasks = status(host.path())["tasks"].clone();
        let tasks = tasks.as_array().map_or(0, Vec::len);
        (tasks >= 2 && longest_part(host.path()) > 0).then_some(())
    };
    wait_for("jobs of both, and a part of a program", both_wait);
    // The other one begins when the first is whole.
    wait_for("that both programs are asked for", || servers.iter().all(is_asked).then_some(()));
    let whole = fs::read_dir(host.path().join("projects")).unwrap().flatten();
    let whole = whole.filter(|project| project.path().join("program").exists());
    assert!(whole.count() >= 1, "two were on their way at once");
    assert_eq!(host.preference("files_at_once")["value"], "1");
    // More than is usual is no limit.
    host.write("cc_config.xml", &options("<max_file_xfers>50</max_file_xfers>"));
    host.reload();
    let files = host.preference("files_at_once");
    assert!(files["value"] == "8" && files["overruled"][0]["value"] == "50", "{files}");
}

/// A project that sends two jobs at a time, which take hours by its word, and does not want to hear of their
/// results at once.
fn in_pairs(reply: &mut SchedulerReply) {
    let hours = Flops::new(1e13).unwrap();
    reply.workunits.iter_mut().for_each(|workunit| workunit.rsc_fpops_est = Some(hours));
    reply.results.iter_mut().for_each(|job| job.report_immediately = false);
    let second = |name: &str| format!("{name}b");
    for workunit in reply.workunits.clone() {
        reply.workunits.push(Workunit { name: second(&workunit.name), ..workunit });
    }
    for job in reply.results.clone() {
        let (name, wu_name) = (second(&job.name), second(&job.wu_name));
        reply.results.push(ResultJob { name, wu_name, ..job });
    }
}

#[test]
fn r6_4_finished_jobs_are_reported_at_once_where_boincs_client_configuration_says_so() {
    let program = b"#!/bin/sh\nwhile [ ! -e end ]; do sleep 0.1; done\necho 0 > boinc_finish_called\n";
    let server = working_with(program, in_pairs);
    let mut host = Host::new();
    host.start();
    host.owner("cpus_max = 1\nbuffer_min = \"0 s\"\nbuffer_additional = \"0 s\"\n");
    host.begin(&server);
    wait_for("its process", || crate::spinning::running(host.path()).first().copied());
    host.write("slots/0/end", "");
    let phases = || {
        let tasks = status(host.path())["tasks"].clone();
        let tasks = tasks.as_array().cloned().unwrap_or_default();
        let phases = tasks.iter().filter_map(|task| task["phase"].as_str().map(str::to_owned));
        phases.collect::<Vec<_>>()
    };
    let waits = || phases().iter().any(|phase| phase == "ready to report");
    wait_for("a job that waits to be reported", || waits().then_some(()));
    let reported = || calls(&server).iter().map(|request| request.results.len()).sum::<usize>();
    wait_for("the next job to run", || phases().iter().any(|phase| phase == "running").then_some(()));
    assert!(waits() && reported() == 0, "{:?}", phases());
    host.write("cc_config.xml", &options("<report_results_immediately/>"));
    host.reload();
    wait_for("its report", || (reported() == 1).then_some(()));
    assert_eq!(host.preference("report_at_once")["source"], "cc_config.xml");
}

#[test]
fn r6_4_the_load_of_other_programs_stops_tasks() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let spinning: Vec<Program> =
        (0..cpus).map(|_| Program::start(Path::new("/bin/sh"), &["-c", "while :; do :; done"])).collect();
    host.owner("other_load_max = \"20%\"\n");
    host.stops("other programs");
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(
        text.contains("other programs use the CPUs: ") && text.contains("% of them, and other_load_max"),
        "{text}"
    );
    drop(spinning);
    host.owner("");
    host.goes_on();
}

#[test]
fn r6_4_boincs_override_and_client_configuration_are_read_and_shown() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    host.write(
        "global_prefs_override.xml",
        "<global_preferences>\n<start_hour>24</start_hour>\n<end_hour>0</end_hour>\n\
         <disk_max_used_gb>3</disk_max_used_gb>\n</global_preferences>\n",
    );
    host.reload();
    host.stops("hours");
    assert_eq!(host.preference("hours")["value"], "never");
    let disk = host.preference("disk_max");
    assert!(disk["value"] == "3 GiB" && disk["source"] == "global_prefs_override.xml", "{disk}");
    host.write("global_prefs_override.xml", "<global_preferences></global_preferences>");
    let program = host.power.path().join("another-game-here");
    copy_program("/bin/sleep".as_ref(), &program);
    host.write(
        "cc_config.xml",
        "<cc_config><options><exclusive_app>another-game-here</exclusive_app></options></cc_config>",
    );
    host.reload();
    host.goes_on();
    let game = Program::start(&program, &["1000"]);
    host.stops("other programs");
    assert_eq!(host.preference("exclusive_programs")["source"], "cc_config.xml");
    drop(game);
    host.goes_on();
    host.owner("cpu_fraction = \"1%\"\nupload_max = \"5 kB\"\n");
    assert_eq!(status(host.path())["host"]["usable_cpus"], 1);
    assert_eq!(host.preference("upload_max")["value"], "5000 B a second");
}

/// A project whose user lets hosts at home compute in use and on batteries, and others never.
fn with_venues(reply: &mut SchedulerReply) {
    reply.host_venue = Some("home".to_owned());
    reply.global_preferences = Some(
        "<source_project>http://127.0.0.1/p/</source_project>\n<mod_time>1000</mod_time>\n\
         <start_hour>24</start_hour>\n<end_hour>0</end_hour>\n<venue name=\"home\">\n\
         <run_on_batteries>1</run_on_batteries>\n<run_if_user_active>1</run_if_user_active>\n\
         <suspend_cpu_usage>0</suspend_cpu_usage>\n<work_buf_min_days>0.5</work_buf_min_days>\n</venue>"
            .to_owned(),
    );
}

#[test]
fn r6_4_a_web_sites_preferences_hold_at_this_hosts_venue_and_the_owner_tightens_them() {
    let (server, mut dev, mut host) = (working_with(WAITS, with_venues), Dev::new(), Host::new());
    host.battery(true);
    let dev_path = dev.path().to_owned();
    host.start_with(|run| {
        run.arg("--devices-dir").arg(&dev_path).env_remove("FALLOW_NEVER_IN_USE");
        run.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus");
    });
    host.begin(&server);
    host.battery(false);
    let buffer = host.preference("buffer_min");
    let source = buffer["source"].as_str().unwrap();
    assert!(buffer["value"] == "12 h" && source.ends_with("for venue home"), "{buffer}");
    dev.key();
    wait_for("that somebody uses the machine", || {
        (status(host.path())["host"]["in_use"] == true).then_some(())
    });
    host.goes_on();
    host.owner("run_in_use = false\n");
    dev.key();
    host.stops("in use");
    host.owner("run_on_batteries = false\n");
    host.stops("battery");
}

#[test]
fn r6_4_what_projects_and_applications_are_told_follows_the_owners_file() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    let asked = calls(&server).len();
    host.owner(
        "checkpoint_period = \"7 min\"\ncpu_fraction = \"1%\"\nbuffer_min = \"0 s\"\ndisk_max = \"1 GB\"\n",
    );
    assert_eq!(outcome(host.path(), &["update", &server.url("")]).0, 0);
    let request = wait_for("a request that tells of it", || {
        let tells = |request: &SchedulerRequest| {
            request.global_preferences.as_ref().is_some_and(|told| told.disk_interval == 420.0)
        };
        calls(&server).into_iter().skip(asked).find(tells)
    });
    let told = request.global_preferences.unwrap();
    assert_eq!((told.max_ncpus_pct, told.work_buf_min_days), (1.0, 0.0));
    assert!(request.disk_usage.d_project_share.as_f64() <= 1.001e9, "{:?}", request.disk_usage);
    // A task that starts from now on is told how often to save its state.
    let mut host = host;
    host.daemon.as_mut().unwrap().kill();
    host.start();
    host.goes_on();
    let told = wait_for("a task with the new period", || {
        let slots = fs::read_dir(host.path().join("slots")).ok()?.flatten();
        let texts = slots.filter_map(|slot| fs::read_to_string(slot.path().join("init_data.xml")).ok());
        let mut told = texts.filter(|text| text.contains("<checkpoint_period>420"));
        told.next()
    });
    assert!(told.contains("<disk_interval>420"), "{told}");
}

/// A project whose program is so long that it takes seconds to come at half a megabyte a second.
fn with_a_long_program() -> Server {
    let mut program = WAITS.to_vec();
    program.extend(b"# nothing\n".repeat(250_000));
    working(program.leak())
}

#[test]
fn r6_4_what_files_come_to_in_days_breaks_a_transfer_off_and_it_goes_on_from_there() {
    let (server, mut host) = (with_a_long_program(), Host::new());
    host.start();
    let limits = "transfer_max = \"1 MB\"\ntransfer_period = \"30 days\"\n";
    host.owner(&format!("{limits}download_max = \"500 kB\"\n"));
    assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
    let fetched = || {
        let asked = server.asked().into_iter().map(|asked| asked.head);
        asked.filter(|head| head.starts_with("get /p/program ")).collect::<Vec<_>>()
    };
    let rests = |host: &Host| {
        wait_for("that no more may be transferred", || {
            let why = status(host.path())["host"]["network_rests"].as_str()?.to_owned();
            why.contains("in the last 30 days, of 1 MB that may be transferred").then_some(why)
        });
    };
    rests(&host);
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("no project is contacted: files came to 1"), "{text}");
    let (_, why) = outcome(host.path(), &["preferences", "--why"]);
    assert!(why.contains("transfer_max") && why.contains("30 days"), "{why}");
    // What came stays, and is known after a kill.
    host.daemon.as_mut().unwrap().kill();
    host.start();
    rests(&host);
    assert_eq!((fetched().len(), host.stand().1), (1, false), "{:?}", fetched());
    host.owner("");
    host.goes_on();
    let again = fetched().pop().unwrap();
    let from =
        again.lines().find_map(|line| line.strip_prefix("range: bytes=")).unwrap().trim_end_matches('-');
    // But for the piece that was on its way to the disk.
    assert!((1..2_500_000).contains(&from.parse::<u64>().unwrap()), "{again}");
    assert_eq!(status(host.path())["host"]["network_rests"], Value::Null);
}

#[test]
fn r6_4_boincs_older_number_of_cpus_holds_where_no_part_of_them_is_said() {
    let mut host = Host::new();
    host.start();
    let all = std::thread::available_parallelism().unwrap().get();
    let says = |text: &str| {
        host.write(
            "global_prefs_override.xml",
            &format!("<global_preferences>{text}</global_preferences>\n"),
        );
        host.reload();
        status(host.path())["host"]["usable_cpus"].as_u64().unwrap()
    };
    assert_eq!(says("<max_cpus>1</max_cpus>"), 1);
    let cpus = host.preference("cpus_max");
    assert!(cpus["value"] == "1" && cpus["source"] == "global_prefs_override.xml", "{cpus}");
    assert_eq!(says("<max_cpus>1</max_cpus><max_ncpus_pct>100</max_ncpus_pct>"), all as u64);
    assert_eq!(host.preference("cpus_max")["value"], "no limit");
}
