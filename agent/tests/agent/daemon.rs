//! The binary as a person meets it: exit codes, messages, the control socket, and nothing left behind.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use fallow_agent::dir::DataDir;
use fallow_agent::records::{Records, Stored};
use fallow_store::{Batch, Kind, SledStore, Store};

use crate::support::{agent, is_alive, project, put, wait_for};
use crate::transfers::{Server, http};

pub(crate) fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(agent());
    command
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .env("FALLOW_LOG", "info");
    command
}

fn ask(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().unwrap()
}

/// Exit code and what was said, on either stream.
pub(crate) fn outcome(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let output = ask(dir, arguments);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

/// A running agent; killed when a test fails.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(dir: &Path) -> Self {
        let mut run = command(dir, &["run"]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        Self::of(run, dir)
    }
    /// One whose jobs may give signs to a test outside of their slots.
    pub(crate) fn unconfined(dir: &Path) -> Self {
        let mut run = command(dir, &["run", "--unconfined"]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        Self::of(run, dir)
    }
    /// What a command started in `dir`.
    pub(crate) fn of(mut run: Command, dir: &Path) -> Self {
        let child = run.spawn().unwrap();
        wait_for("the control socket", || UnixStream::connect(dir.join("control.sock")).ok());
        Self(child)
    }
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
    pub(crate) fn code(&mut self) -> Option<i32> {
        wait_for("the agent's end", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn r3_14_devices_that_the_owner_excludes_are_kept_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let excluded = || -> serde_json::Value {
        let output = ask(dir, &["status", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["host"]["excluded_devices"]
            .clone()
    };
    let mut daemon = Daemon::start(dir);
    assert_eq!(excluded(), serde_json::json!([]));
    let (code, text) = outcome(dir, &["exclude", "NVIDIA:1,amd:0"]);
    assert!(code == 0 && text.contains("not used: nvidia:1, amd:0"), "{text}");
    // That it is not here is said, too.
    assert!(
        text.contains("this machine has no GPU that is known") || text.contains("not on this machine"),
        "{text}"
    );
    let (code, text) = outcome(dir, &["exclude", "gpu0"]);
    assert!(code == 3 && text.contains("such as nvidia:0"), "{text}");
    daemon.kill();
    let _daemon = Daemon::start(dir);
    assert_eq!(excluded(), serde_json::json!(["nvidia:1", "amd:0"]));
    assert!(outcome(dir, &["status"]).1.contains("not used: nvidia:1, amd:0"));
    assert_eq!(outcome(dir, &["exclude", "none"]).0, 0);
    assert_eq!(excluded(), serde_json::json!([]));
}

/// Shows R6.11.
#[test]
fn an_agent_is_asked_told_and_stopped_over_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("agent");
    let mut daemon = Daemon::start(dir);
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("control.sock"), 0o600);

    let status = || -> serde_json::Value {
        let output = ask(dir, &["status", "--json"]);
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(status()["running"], true);
    assert_eq!(status()["pid"], daemon.0.id());
    assert_eq!(outcome(dir, &["suspend"]).0, 0);
    assert_eq!(status()["host"]["suspended_by"], "owner");
    assert_eq!(outcome(dir, &["resume"]).0, 0);
    assert_eq!(status()["host"]["suspended_by"], serde_json::Value::Null);

    let (code, text) = outcome(dir, &["detach", "http://127.0.0.1:9/none/"]);
    assert_eq!(code, 3, "{text}");
    let (code, text) = outcome(
        dir,
        &["attach", "http://127.0.0.1:9/p/", "--share", "-5", "--account-key-file", "/dev/null"],
    );
    assert_eq!(code, 3, "{text}");
    let attach = |share: &str| {
        let output = command(dir, &["attach", "http://127.0.0.1:9/p/", "--share", share])
            .arg("--no-wait")
            .env("FALLOW_ACCOUNT_KEY", "0123456789abcdef0123456789abcdef")
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = attach("-5");
    assert!(code == 3 && text.contains("resource share"), "{text}");
    assert_eq!(attach("30").0, 0);
    assert_eq!(status()["projects"][0]["share"], 30.0);
    assert!(outcome(dir, &["status"]).1.contains("127.0.0.1"), "the table shows it");
    assert_eq!(outcome(dir, &["update", "http://127.0.0.1:9/p/"]).0, 0);
    assert_eq!(outcome(dir, &["detach", "http://127.0.0.1:9/p/"]).0, 0);

    let (code, text) = outcome(dir, &["run"]);
    assert!(code == 6 && text.contains(&daemon.0.id().to_string()), "{code}: {text}");

    // Stopping waits for the end; nothing is left behind.
    let reaper = std::thread::spawn({
        let dir = dir.clone();
        move || outcome(&dir, &["stop"])
    });
    assert_eq!(daemon.code(), Some(0));
    assert_eq!(reaper.join().unwrap().0, 0);
    assert!(!dir.join("daemon.json").exists() && !dir.join("control.sock").exists());
    let (code, text) = outcome(dir, &["status"]);
    assert!(code == 4 && text.contains("fallow-agent run --dir"), "{text}");
    let output = ask(dir, &["status", "--json"]);
    assert_eq!((output.status.code(), output.stdout), (Some(4), b"{\"running\":false}\n".to_vec()));
}

#[test]
fn an_account_is_looked_up_by_address_and_password_or_refused() {
    let server = Server::start(|asked| {
        // MD5 of the password and the address in lower case.
        let hash = fallow_boinc::account::passwd_hash("right", "Me@example.org");
        http("200 OK", "", match asked.head.contains(&hash) {
            true => b"<account_out>\n<authenticator>0123456789abcdef0123456789abcdef</authenticator>\n</account_out>\n",
            false => b"<error>\n<error_num>-206</error_num>\n<error_msg>bad password</error_msg>\n</error>\n",
        })
    });
    let dir = tempfile::tempdir().unwrap();
    let agent_dir = dir.path().join("agent");
    let _daemon = Daemon::start(&agent_dir);
    let attach = |url: &str, password: &str| {
        let file = dir.path().join("password");
        std::fs::write(&file, format!("{password}\n")).unwrap();
        outcome(
            &agent_dir,
            &[
                "attach",
                url,
                "--no-wait",
                "--email",
                "Me@example.org",
                "--password-file",
                file.to_str().unwrap(),
            ],
        )
    };
    let (code, text) = attach(&server.url(""), "wrong");
    assert!(code == 5 && text.contains("password"), "{code}: {text}");
    let (code, text) = attach("http://127.0.0.1:9/p/", "right");
    assert!(code == 4 && !text.contains("passwd_hash"), "{code}: {text}");
    let (code, text) = attach(&server.url(""), "right");
    assert_eq!(code, 0, "{text}");
}

/// Shows R4.12: a disk that fills up in that very instant keeps nobody from running any more.
#[test]
fn r4_12_when_the_control_socket_is_there_the_agent_has_written_all_that_it_starts_with() {
    use rustix::fs::inotify;
    let dir = tempfile::tempdir().unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, dir.path(), inotify::WatchFlags::MOVED_TO).unwrap();
    let _daemon = Daemon::start(dir.path());
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = events.next() {
        names.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()));
    }
    let last = names.iter().rposition(|name| name == "daemon.json");
    assert!(last.unwrap() < names.iter().position(|name| name == "control.sock").unwrap(), "{names:?}");
}

#[test]
fn r6_4_commands_that_errors_name_can_be_pasted_whatever_the_directory_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("my lab's");
    let word = format!("'{}'", place.display().to_string().replace('\'', r"'\''"));
    let (code, text) = outcome(&place, &["status"]);
    assert!(code == 4 && text.contains(&format!("`fallow-agent run --dir {word}`")), "{text}");
    let _daemon = Daemon::start(&place);
    let (code, text) = outcome(&place, &["run"]);
    assert!(code == 6 && text.contains(&format!("(fallow-agent stop --dir {word})")), "{code}: {text}");
    // What an editor has left is wrong.
    let mut edit = command(&place, &["preferences", "edit"]);
    let output = edit
        .env("EDITOR", "printf nonsense >")
        .env_remove("VISUAL")
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&format!("the next `fallow-agent preferences edit --dir {word}`")), "{text}");
}

/// Shows R6.1.
#[test]
fn the_owners_suspension_holds_over_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(dir.path());
    assert_eq!(outcome(dir.path(), &["suspend"]).0, 0);
    let guard = guard_of(&daemon);
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    wait_for("the guard's end", || (!is_alive(guard)).then_some(()));
    let data = DataDir::at(dir.path());
    assert!(!data.daemon_file().unwrap().is_alive(), "what a killed agent leaves is known to be stale");

    let mut daemon = Daemon::start(dir.path());
    let (_, text) = outcome(dir.path(), &["status"]);
    // What it names can be pasted: it asks the same agent.
    let resume =
        format!("suspended by the owner; goes on with: fallow-agent resume --dir {}", data.path().display());
    assert!(text.lines().any(|line| line.ends_with(&resume)), "{text}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn r6_10_an_agent_that_is_to_end_while_it_takes_what_a_task_has_left_ends_soon_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    Daemon::start(dir.path()).kill();
    let data = DataDir::at(dir.path());
    let slot = data.slot(fallow_domain::SlotId(0));
    put(&slot.join("boinc_finish_called"), b"0\n");
    // To read all of it would take an hour.
    std::fs::File::create(slot.join("out")).unwrap().set_len(1 << 42).unwrap();
    let output = serde_json::json!({"name": "output_1", "open_name": "out", "copy": true});
    let record = serde_json::json!({
        "job": 7, "name": "old", "url": project(), "outputs": [output], "cpu_before": 0, "process": null,
    });
    put(&data.slot_record(fallow_domain::SlotId(0)), record.to_string().as_bytes());
    std::fs::create_dir_all(data.project(&project())).unwrap();
    let mut run = command(dir.path(), &["run"]);
    let mut daemon = Daemon(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let taken = data.project(&project()).join("output_1");
    wait_for("the first look at it", || taken.exists().then_some(()));
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.code(), Some(0));
    assert!(slot.join("boinc_finish_called").exists() && data.slot_record(fallow_domain::SlotId(0)).exists());
}

#[test]
fn a_guard_that_dies_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let first = guard_of(&daemon);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(first.cast_signed()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    wait_for("another guard", || {
        children(daemon.0.id()).into_iter().find(|&pid| pid != first && is_alive(pid))
    });
}

/// Shows R6.12.
#[test]
fn r6_12_an_agent_gives_back_the_memory_of_its_code_whenever_it_comes_to_rest() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let started = code_in_memory(daemon.0.id());
    // Right after it has given all back it has almost nothing, and soon what it runs at rest: that is what
    // fifty looks in a row find.
    let comes_to_rest = |most: u64| {
        let mut looks = (0, 0);
        wait_for("the agent's rest", || {
            let code = code_in_memory(daemon.0.id());
            looks = if looks.0 == code { (code, looks.1 + 1) } else { (code, 1) };
            (looks.1 >= 50 && code < most).then_some(code)
        })
    };
    let at_rest = comes_to_rest(started / 2);
    let at_work = wait_for("the agent to run much of its code", || {
        assert_eq!(outcome(dir.path(), &["preferences", "--why"]).0, 0);
        assert_eq!(outcome(dir.path(), &["suspend"]).0, 0);
        assert_eq!(outcome(dir.path(), &["resume"]).0, 0);
        Some(code_in_memory(daemon.0.id())).filter(|code| *code > at_rest + at_rest / 4)
    });
    comes_to_rest(u64::midpoint(at_rest, at_work));
}

/// Kibibytes of its program's code that a process has in memory.
fn code_in_memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut lines =
        text.lines().skip_while(|line| !(line.contains(" r-xp ") && line.ends_with("/fallow-agent")));
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn nonsense_at_the_control_socket_is_answered_and_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(dir.path());
    for nonsense in [&b"hello\n"[..], b"\n", b"{\"command\":\"dance\"}\n", &[b'x'; 100_000], b"\xff\xfe\n"] {
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).unwrap();
        // The agent may hang up in the middle of too long a line.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        assert!(line.is_empty() || line.contains("\"failed\""), "{line}");
    }
    assert_eq!(outcome(dir.path(), &["status"]).0, 0);
}

#[test]
fn what_keeps_an_agent_from_starting_has_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let (code, text) = outcome(&file.join("agent"), &["run"]);
    assert!(code == 8 && text.contains("file/agent"), "{code}: {text}");

    let fresh = dir.path().join("fresh");
    for (given, said) in [
        ("t", "begins with fallow-enrol-1/"),
        ("fallow-enrol-1/127.0.0.1:1/x", "was cut short"),
        ("fallow-operator-1/h:1/a/b/c", "was cut short"),
    ] {
        let (code, text) = outcome(&fresh, &["run", "--token", given]);
        assert!(code == 3 && text.contains(said), "{code}: {text}");
    }
    let (code, text) = outcome(&fresh, &["run", "--coordinator", "http://127.0.0.1:4000"]);
    assert!(code == 3 && text.contains("speaks TLS only"), "{code}: {text}");
    let (code, text) = outcome(&fresh, &["run", "--coordinator", "127.0.0.1:4000"]);
    assert!(code == 3 && text.contains("--token-file"), "{code}: {text}");
    let (code, text) = outcome(&fresh, &["run", "--token-file", "/nowhere/token"]);
    assert!(code == 3 && text.contains("/nowhere/token"), "{code}: {text}");

    let broken = dir.path().join("broken");
    Daemon::start(&broken).0.kill().unwrap();
    for entry in walk(&broken.join("store")) {
        if std::fs::metadata(&entry).unwrap().len() > 100 {
            let mut bytes = std::fs::read(&entry).unwrap();
            bytes.iter_mut().skip(20).for_each(|byte| *byte ^= 0x55);
            std::fs::write(&entry, bytes).unwrap();
        }
    }
    let (code, text) = outcome(&broken, &["run"]);
    assert!(code == 7 && text.contains("store"), "{code}: {text}");
}

#[test]
fn an_agent_does_not_begin_anew_beside_what_an_earlier_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let used = |name: &str| {
        let dir = dir.path().join(name);
        Daemon::start(&dir).0.kill().unwrap();
        dir
    };
    let refused = |dir: &Path, words: &[&str]| {
        // Twice: to be refused leaves everything as it was.
        for _ in 0..2 {
            let (code, text) = outcome(dir, &["run"]);
            assert!(code == 7 && words.iter().all(|word| text.contains(word)), "{code}: {text}");
        }
    };

    let enrolled = used("enrolled");
    std::fs::write(enrolled.join("identity.json"), b"x").unwrap();
    std::fs::remove_dir_all(enrolled.join("store")).unwrap();
    refused(&enrolled, &["identity.json", "store is missing", "restore", "empty directory"]);
    assert!(!enrolled.join("store").exists());

    let alone = used("alone");
    std::fs::remove_dir_all(alone.join("store")).unwrap();
    refused(&alone, &["slots/"]);

    let emptied = used("emptied");
    put(&emptied.join("slots/0/in"), b"1");
    for entry in std::fs::read_dir(emptied.join("store")).unwrap().flatten() {
        drop(std::fs::remove_dir_all(entry.path()).or_else(|_| std::fs::remove_file(entry.path())));
    }
    refused(&emptied, &["slots/"]);

    let garbled = used("garbled");
    std::fs::write(garbled.join("identity.json"), b"x").unwrap();
    refused(&garbled, &["identity.json", "restore"]);

    let unwitnessed = used("unwitnessed");
    std::fs::remove_file(unwitnessed.join("store/witness")).unwrap();
    refused(&unwitnessed, &["witness", "empty file of that name"]);
    std::fs::write(unwitnessed.join("store/witness"), b"").unwrap();
    drop(Daemon::start(&unwitnessed));
}

#[test]
fn a_start_closes_what_is_secret_and_deletes_what_detached_projects_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("agent");
    Daemon::start(&dir).kill();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The agent was killed between storing a detachment and deleting the files.
    put(&dir.join("projects/127.0.0.1_9_gone/app"), b"old");
    let records = Records::open(&DataDir::at(&dir)).unwrap();
    let stems = &["127.0.0.1_9_gone".to_owned()];
    records.apply(&Stored { stems, ..Stored::default() }, true).unwrap();
    drop(records);
    let _daemon = Daemon::start(&dir);
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("store"), mode("control.sock")), (0o700, 0o600));
    assert!(!dir.join("projects/127.0.0.1_9_gone").exists());
}

#[test]
fn a_start_leaves_alone_what_lies_below_projects_and_is_not_the_agents() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("agent");
    let mut daemon = Daemon::start(&dir);
    let url = "http://127.0.0.1:9/p/";
    let attached = command(&dir, &["attach", url, "--no-wait"])
        .env("FALLOW_ACCOUNT_KEY", "0123456789abcdef0123456789abcdef")
        .output()
        .unwrap();
    assert!(attached.status.success());
    daemon.kill();
    let stems = Records::open(&DataDir::at(&dir)).unwrap().stems().unwrap();
    let own = fallow_domain::MasterUrl::parse(url).unwrap().stem();
    assert!(stems.contains(&own), "{stems:?}");
    put(&dir.join("projects").join(&own).join("app"), b"own");
    put(&dir.join("projects/primes/keys/upload.private"), b"precious");
    let _daemon = Daemon::start(&dir);
    assert_eq!(outcome(&dir, &["detach", url]).0, 0);
    wait_for("the own files' deletion", || (!dir.join("projects").join(&own).exists()).then_some(()));
    assert!(dir.join("projects/primes/keys/upload.private").exists());
}

#[test]
fn a_coordinators_directory_is_refused_by_every_command_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let of_coordinator = |name: &str, kind: Option<Kind>| {
        let dir = dir.path().join(name);
        let store = match kind {
            Some(kind) => SledStore::open_as(dir.join("store"), kind),
            None => SledStore::open(dir.join("store")),
        };
        let _ = store.unwrap().apply(Batch::new().put("fleet/agent/1", "v")).unwrap();
        put(&dir.join("operator.token"), b"secret");
        put(&dir.join("projects/primes/keys/upload.private"), b"precious");
        dir
    };
    for dir in [of_coordinator("marked", Some(Kind::Coordinator)), of_coordinator("older", None)] {
        let seen = || {
            let mut seen: Vec<_> =
                walk(&dir).into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
            seen.sort();
            seen
        };
        let before = seen();
        for command in ["run", "status", "suspend", "stop"] {
            let (code, text) = outcome(&dir, &[command]);
            assert!(code == 3 && text.contains("is a coordinator's directory"), "{command}: {code}: {text}");
            assert!(!text.contains("fallow-agent run --dir"), "{text}");
        }
        assert_eq!(seen(), before);
        assert!(!dir.join("slots").exists());
    }
}

#[test]
fn r6_10_a_directory_that_is_not_an_agents_is_refused_and_stays_as_it_is() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("shared");
    put(&dir.join("letter"), b"dear all");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let said = parent.path().join("said");
    let mut run = command(&dir, &["run"]);
    run.stdout(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let code = Daemon(run.spawn().unwrap()).code().unwrap();
    let text = std::fs::read_to_string(said).unwrap();
    let mode = std::fs::metadata(&dir).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode, walk(&dir)), (0o1777, vec![dir.join("letter")]), "{code}: {text}");
    assert!(code == 3 && text.contains("letter") && text.contains("--dir"), "{code}: {text}");
}

#[test]
fn a_file_in_the_place_of_the_directory_is_refused_as_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent");
    put(&file, b"mine");
    let (code, text) = outcome(&file, &["run"]);
    assert!(code == 3 && text.contains("is not a directory"), "{code}: {text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn completions_and_the_manual_page_are_written() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let output = Command::new(agent()).args(arguments).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 500, "{arguments:?}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(agent()).args(arguments).stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(8), "{text}");
        assert!(text.contains("standard output") && !text.contains("panicked"), "{text}");
    }
}

/// The only child of an idle agent, when those who look at the machine at a start are done.
fn guard_of(daemon: &Daemon) -> u32 {
    wait_for("an idle agent with its guard alone", || match children(daemon.0.id())[..] {
        [guard] => Some(guard),
        _ => None,
    })
}

fn children(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fallow_agent::proc::all().into_iter().filter(|process| !process.zombie);
    all.map(|process| process.pid).filter(|&pid| parent(pid) == Some(of)).collect()
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { vec![entry.path()] })
        .collect()
}
