//! People who do not administer their machine: they see what runs, and have it rest for a while.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fallow_agent::dir::DataDir;
use fallow_domain::MasterUrl;

use crate::attach::{RIGHT, attach, status};
use crate::daemon::{Daemon, command, outcome};
use crate::support::{agent, copy_program, put, wait_for};
use crate::turns::working;

/// A user who is nobody, and a group of people.
const NOBODY: &str = "65534";
const PEOPLE: u32 = 54_321;

/// What somebody in a group is told, with the exit code.
fn asked(program: &Path, home: &Path, groups: &str, arguments: &[&str]) -> (i32, String) {
    let mut asks = Command::new("setpriv");
    asks.args(["--reuid", NOBODY, "--regid", NOBODY, "--groups", groups]).arg(program).args(arguments);
    asks.env_remove("FALLOW_AGENT_DIR").env_remove("XDG_STATE_HOME").env("HOME", home.join("nobody"));
    let output = asks.env("FALLOW_PEOPLE_SOCKET", home.join("run/people.sock")).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.code().unwrap(), said.concat())
}

/// A machine of several people whose agent has a socket for some of them.
struct Machine {
    home: tempfile::TempDir,
    /// The program where everybody may execute it.
    program: PathBuf,
    socket: PathBuf,
    /// The agent's directory.
    place: PathBuf,
    daemon: Option<Daemon>,
}

impl Machine {
    /// None where nobody can be somebody else.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be somebody else");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let run = home.path().join("run");
        fs::create_dir(&run).unwrap();
        chown(&run, None, Some(PEOPLE)).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o2750)).unwrap();
        let at = |name: &str| home.path().join(name);
        let (program, socket, place) = (at("fallow-agent"), at("run/people.sock"), at("agent"));
        copy_program(agent().as_ref(), &program);
        let mut machine = Self { home, program, socket, place, daemon: None };
        machine.start();
        Some(machine)
    }

    /// Starts the agent, anew if it runs: it looks around itself twenty times a second.
    fn start(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
        let mut runs = command(&self.place, &["run", "--benchmark-after-ms", "10000000"]);
        runs.args(["--look-every-ms", "50", "--people-socket"]).arg(&self.socket);
        runs.stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(Daemon::of(runs, &self.place));
        let heard = || std::os::unix::net::UnixStream::connect(&self.socket).ok().map(drop);
        wait_for("the socket for people", heard);
    }

    /// What one of the people is told, with the exit code.
    fn asked(&self, arguments: &[&str]) -> (i32, String) {
        asked(&self.program, self.home.path(), &PEOPLE.to_string(), arguments)
    }

    /// All that one of them is told, by whatever he may ask.
    fn all_told(&self) -> String {
        let questions: [&[&str]; 5] = [
            &["status"],
            &["status", "--line"],
            &["status", "--json"],
            &["snooze", "1h"],
            &["snooze", "off"],
        ];
        let answers = questions.map(|asked| {
            let (code, said) = self.asked(asked);
            assert_eq!(code, 0, "{asked:?}: {said}");
            said
        });
        answers.concat()
    }

    /// Computing rests for this, as the owner sees it.
    fn rests(&self, why: &str) {
        wait_for(why, || (status(&self.place)["host"]["suspended_by"] == why).then_some(()));
    }
}

/// A program that runs until this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A task that takes next to no CPU time and never ends.
const WAITS: &[u8] = b"#!/bin/sh\nwhile :; do sleep 1; done\n";

#[test]
fn r6_4_people_of_a_group_are_not_shown_which_programs_the_owner_names_nor_what_his_files_say() {
    let Some(mut machine) = Machine::new() else { return };
    let place = machine.place.clone();
    // What is the owner's own has `secret` in it, but for the directory.
    let keeps = |told: &str, what: &str| {
        assert!(told.contains(what), "{what} in {told}");
        assert!(!told.contains("secret"), "{told}");
        assert!(!told.contains(place.to_str().unwrap()), "{told}");
    };
    let reload = || {
        let (code, said) = outcome(&place, &["preferences", "reload"]);
        assert_eq!(code, 0, "{said}");
    };
    let server = working(WAITS);
    let url = server.url("");
    assert_eq!(attach(&place, &url, RIGHT, &["--no-wait"]).0, 0);
    let computes =
        || wait_for("a task", || outcome(&place, &["status"]).1.starts_with("computing: ").then_some(()));
    computes();
    keeps(&machine.all_told(), "computing: ");
    // How the owner has a project's jobs started, and what is wrong with that.
    let config = DataDir::at(&place).project(&MasterUrl::parse(&url).unwrap()).join("app_config.xml");
    let says = |command: &str| {
        let version = format!("<app_name>app</app_name><cmdline>{command}</cmdline>");
        format!("<app_config><secret/><app_version>{version}</app_version></app_config>")
    };
    put(&config, says("--secret 2").as_bytes());
    reload();
    let seen = outcome(&place, &["status"]).1;
    assert!(seen.contains("--secret 2") && seen.contains("<secret>"), "{seen}");
    computes();
    keeps(&machine.all_told(), "computing: ");

    // A program that he names runs.
    let program = machine.home.path().join("secretprog");
    copy_program("/bin/sleep".as_ref(), &program);
    let names = "exclusive_programs = [\"secretprog\"]\n";
    fs::write(place.join("preferences.toml"), names).unwrap();
    let runs = Program(Command::new(&program).arg("1000").spawn().unwrap());
    reload();
    machine.rests("other programs");
    let seen = outcome(&place, &["status"]).1;
    assert!(seen.contains("resting: secretprog runs, which wants the machine for itself"), "{seen}");
    let rests = "resting: a program runs that wants the machine for itself; goes on when that is over";
    let told = machine.all_told();
    keeps(&told, &format!("the pause is over; now: {rests}"));
    assert!(told.starts_with(rests), "{told}");
    drop(runs);
    computes();
    let said = status(&place)["notices"].to_string();
    assert!(said.contains("secretprog"), "{said}");
    keeps(&machine.all_told(), "computing: ");

    // A file of his cannot be read, and later it can.
    fs::write(place.join("preferences.toml"), "exclusive_programs = [\"secretprog\", \"x y\"] zzz\n")
        .unwrap();
    put(&config, b"<secret");
    machine.start();
    machine.rests("preference file");
    let seen = outcome(&place, &["status"]).1;
    assert!(seen.contains("secretprog") && seen.contains("until its app_config.xml is mended"), "{seen}");
    let told = machine.all_told();
    keeps(&told, "a preference file is wrong: only the owner of the agent is told why");
    keeps(&told, "nothing is begun until its app_config.xml is mended: only the owner");
    fs::remove_file(&config).unwrap();
    fs::write(place.join("preferences.toml"), names).unwrap();
    reload();
    computes();
    keeps(&machine.all_told(), "computing: ");
}

#[test]
fn r6_4_people_of_a_group_see_what_the_agent_does_and_pause_it_and_do_nothing_else() {
    let Some(mut machine) = Machine::new() else { return };
    let mut daemon = machine.daemon.take().unwrap();
    let (home, program, place, socket) =
        (machine.home.path(), &machine.program, &machine.place, &machine.socket);
    let as_one_of_them = |arguments: &[&str]| machine.asked(arguments);

    let (code, said) = as_one_of_them(&["status"]);
    assert!(code == 0 && said.contains("no projects"), "{said}");
    let (code, said) = as_one_of_them(&["snooze", "2h"]);
    assert!(code == 0, "{said}");
    assert!(as_one_of_them(&["status"]).1.contains("snooze"), "{}", as_one_of_them(&["status"]).1);
    assert_eq!(as_one_of_them(&["snooze", "off"]).0, 0);
    // Nobody ends or shortens a pause of somebody else, but the owner.
    assert_eq!(outcome(place, &["snooze", "3h"]).0, 0);
    let (code, said) = as_one_of_them(&["snooze", "off"]);
    assert!(code == 5 && said.contains("by root: of all others only the user"), "{code}: {said}");
    let (code, said) = as_one_of_them(&["snooze", "1s"]);
    assert!(code == 0 && said.contains("computing stays paused for 3 h, by root"), "{code}: {said}");
    assert_eq!(as_one_of_them(&["snooze", "4h"]).0, 0);
    let (code, said) = as_one_of_them(&["snooze", "off"]);
    assert!(code == 0 && said.contains("your pause is over; computing stays paused for"), "{code}: {said}");
    assert_eq!(outcome(place, &["snooze", "off"]).0, 0);
    assert!(!as_one_of_them(&["status"]).1.contains("snoozed"), "{}", as_one_of_them(&["status"]).1);
    // Which programs the owner names is his own affair.
    fs::write(place.join("preferences.toml"), "exclusive_programs = [\"secretprog\"]\n").unwrap();
    let (code, said) = outcome(place, &["preferences", "reload"]);
    assert_eq!(code, 0, "{said}");
    let (_, said) = as_one_of_them(&["status", "--json"]);
    assert!(said.contains("exclusive_programs") && !said.contains("secretprog"), "{said}");
    assert!(outcome(place, &["status", "--json"]).1.contains("secretprog"));
    // Whatever tool they use.
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    std::io::Write::write_all(&mut stream, b"{\"command\":\"stop\"}\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.contains("have it rest for a while") && answer.contains("\"code\":5"), "{answer}");
    // Others, and people at the agent's own socket.
    let (code, said) = asked(program, home, NOBODY, &["status"]);
    assert!(code == 5 && said.contains("members of a group"), "{said}");
    let (code, said) = as_one_of_them(&["suspend", "--dir", place.to_str().unwrap()]);
    assert!(code == 5 && said.contains("is closed to you"), "{said}");
    let (code, said) = as_one_of_them(&["run", "--dir", place.to_str().unwrap()]);
    assert!(code == 3 && said.contains("belongs to another user"), "{code}: {said}");
    let (code, said) = as_one_of_them(&["preferences", "edit", "--dir", place.to_str().unwrap()]);
    assert!(code == 5 && said.contains("is another user's"), "{code}: {said}");
    // Whose agent it is, is said of all that they may not ask.
    let others: [&[&str]; 6] =
        [&["suspend"], &["resume"], &["disk"], &["preferences"], &["preferences", "edit"], &["stop"]];
    for asked in others {
        let (code, said) = as_one_of_them(asked);
        assert!(
            code == 5 && said.contains("its administrator's: you may see its status"),
            "{asked:?}: {said}"
        );
    }
    // A directory of one's own in which nothing runs is in nobody's way.
    let own = home.join("nobody/.local/state/fallow-agent");
    fs::create_dir_all(&own).unwrap();
    for (path, user) in [("nobody", 65_534), ("nobody/.local/state/fallow-agent", 65_534)] {
        chown(home.join(path), Some(user), Some(user)).unwrap();
    }
    let (code, said) = as_one_of_them(&["status"]);
    assert!(code == 0 && said.contains("no projects"), "{said}");
    let (code, said) = as_one_of_them(&["suspend"]);
    assert!(code == 5 && said.contains("no agent of yours runs"), "{said}");

    daemon.kill();
    let (code, said) = as_one_of_them(&["status"]);
    assert!(code == 4 && said.contains("nobody/.local/state/fallow-agent"), "{said}");
    fs::remove_dir_all(&own).unwrap();
    let (code, said) = as_one_of_them(&["status"]);
    assert!(code == 4 && said.contains("the agent of this machine does not run"), "{said}");
    // Nothing says that there is one for everybody.
    fs::remove_dir_all(home.join("run")).unwrap();
    let (code, said) = as_one_of_them(&["status"]);
    assert!(code == 4 && said.contains("has none for everybody") && !said.contains("start it"), "{said}");
}

#[test]
fn r6_4_an_agent_whose_socket_for_people_cannot_be_runs_without_it_and_takes_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let (place, precious) = (dir.path().join("agent"), dir.path().join("precious"));
    fs::write(&precious, "mine").unwrap();
    let beside = dir.path().join("people.new/mine");
    fs::create_dir_all(&beside).unwrap();
    let sockets = ["precious", "nowhere/people.sock", "people.sock"];
    for socket in sockets.map(|name| dir.path().join(name)) {
        let mut runs = command(&place, &["run", "--people-socket", socket.to_str().unwrap()]);
        let log = fs::File::create(dir.path().join("log")).unwrap();
        runs.stdout(Stdio::null()).stderr(log);
        let daemon = Daemon::of(runs, &place);
        let log = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        wait_for("the log to say so", || log().contains("can neither see what the agent does").then_some(()));
        drop(daemon);
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert!(beside.exists());
}

#[test]
fn r6_4_a_socket_that_another_program_listens_on_stays_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("people.sock");
    let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let is = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&socket).unwrap());
    let first = is();
    let place = dir.path().join("agent");
    let mut runs = command(&place, &["run", "--people-socket", socket.to_str().unwrap()]);
    runs.stdout(Stdio::null()).stderr(fs::File::create(dir.path().join("log")).unwrap());
    let daemon = Daemon::of(runs, &place);
    let log = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    wait_for("the log to say so", || log().contains("another program listens on it").then_some(()));
    assert_eq!(outcome(&place, &["stop"]).0, 0);
    wait_for("its end", || log().contains("agent ended").then_some(()));
    drop(daemon);
    assert_eq!(is(), first);
    // Nobody listens on it any more: it is left over.
    drop(other);
    let mut runs = command(&place, &["run", "--people-socket", socket.to_str().unwrap()]);
    runs.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = Daemon::of(runs, &place);
    let heard = || std::os::unix::net::UnixStream::connect(&socket).ok().map(drop);
    wait_for("a socket of its own", heard);
}
