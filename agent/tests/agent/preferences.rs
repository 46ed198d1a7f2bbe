//! What the host's files say, on the real agent with real tasks: what is in force, where it comes from,
//! and what follows from it (R6.4).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fallow_boinc::scheduler::{SchedulerReply, SchedulerRequest};
use serde_json::Value;

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::owner::Dev;
use crate::support::wait_for;
use crate::transfers::Server;
use crate::turns::{working, working_with};

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
    let kept = text.rsplit("what you wrote is in ").next().unwrap().trim();
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
    host.owner("");
    host.goes_on();
    host.owner(&format!("hours = \"{} 12:00-13:00\"\n", another_day()));
    host.stops("hours");
    host.owner("hours = \"always\"\n");
    host.goes_on();
    // Its battery: without a word of anybody it rests there.
    host.battery(false);
    // The agent looks for one once a minute; a change of what it looks for makes it look at once.
    host.owner("exclusive_programs = [\"no-such-program\"]\n");
    host.stops("battery");
    host.battery(true);
    host.goes_on();
    // An exclusive program.
    let program = host.power.path().join("a-game-of-this-test");
    fs::copy("/bin/sleep", &program).unwrap();
    host.owner("exclusive_programs = [\"A-Game-Of-This-Test\"]\n");
    let game = Program::start(&program, &["1000"]);
    host.stops("other programs");
    let (_, text) = outcome(host.path(), &["status"]);
    assert!(text.contains("resting: A-Game-Of-This-Test runs"), "{text}");
    drop(game);
    host.goes_on();
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
    fs::copy("/bin/sleep", &program).unwrap();
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

fn requests(server: &Server) -> Vec<SchedulerRequest> {
    let posts = server.asked().into_iter().filter(|asked| asked.head.starts_with("post "));
    posts.map(|asked| SchedulerRequest::parse(asked.text().as_bytes()).unwrap()).collect()
}

#[test]
fn r6_4_what_projects_and_applications_are_told_follows_the_owners_file() {
    let server = working(WAITS);
    let host = Host::computing(&server);
    let asked = requests(&server).len();
    host.owner(
        "checkpoint_period = \"7 min\"\ncpu_fraction = \"1%\"\nbuffer_min = \"0 s\"\ndisk_max = \"1 GB\"\n",
    );
    assert_eq!(outcome(host.path(), &["update", &server.url("")]).0, 0);
    let request = wait_for("a request that tells of it", || {
        let tells = |request: &SchedulerRequest| {
            request.global_preferences.as_ref().is_some_and(|told| told.disk_interval == 420.0)
        };
        requests(&server).into_iter().skip(asked).find(tells)
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
