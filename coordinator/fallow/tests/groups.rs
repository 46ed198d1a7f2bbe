//! Labels and groups as operators work with them, against a running coordinator with agents at its port
//! (R6.4, R6.5).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

#[path = "../../service/tests/peers/mod.rs"]
mod peers;
mod support;

use std::path::Path;

use fallow_proto::fleet::v1 as wire;
use fallow_tls::{AccessString, Purpose};
use peers::{Agent, enroll, hello};
use serde_json::Value;
use support::{Running, fallow, text};
use wire::from_coordinator::Body as Heard;

const QUIET: &str = "name = \"quiet\"\nprecedence = 20\nselector = \"room=12\"\n\n[projects.sums]\nabsent = true\n\n\
    [preferences]\ncpu_fraction = \"50%\"\n";
const SITE: &str = "name = \"site\"\nprecedence = 10\nselector = \"site, os in (linux)\"\n\n[preferences]\n\
    cpu_fraction = 0.25\nbuffer_min = \"2 h\"\n";

/// A command that works, and what it printed.
fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = fallow(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let output = fallow(dir, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An agent that is enrolled and linked, and has told of its host.
async fn agent(dir: &Path, name: &str) -> Agent {
    let made = fallow(dir, &["tokens", "create", "--label", "campus=north"]);
    let token = String::from_utf8(made.stdout).unwrap();
    let access = AccessString::parse(&token, Purpose::Enrolment).unwrap();
    let identity = enroll(&access, &access.secret).await.unwrap();
    let mut agent = Agent::open(&identity, hello(&identity, "e", 0)).await;
    agent.snapshot(1, vec![host(name)]).await;
    agent.acknowledged(1).await;
    agent
}

fn host(name: &str) -> wire::Entry {
    let owner = wire::OwnerLimits { memory_fraction: Some(0.1), ..Default::default() };
    let host = wire::HostState {
        hostname: name.into(),
        name: name.into(),
        cpus: 4,
        usable_cpus: 4,
        os: "linux".into(),
        owner: Some(owner),
        ..Default::default()
    };
    wire::Entry { key: "host".into(), value: Some(wire::entry::Value::Host(Box::new(host))) }
}

/// Reads on until the document of this version comes: its part of the CPUs, and its projects.
async fn document(agent: &mut Agent, version: u64) -> (f64, Vec<String>) {
    loop {
        if let Heard::Document(document) = agent.next().await.unwrap()
            && document.version == version
        {
            let projects = document.projects.into_iter().map(|project| project.name).collect();
            return (document.preferences.unwrap().cpu_fraction, projects);
        }
    }
}

/// A coordinator with two projects, and its directory of groups.
fn fleet(dir: &Path) -> (Running, String) {
    let running = Running::start(dir);
    for project in ["primes", "sums"] {
        done(dir, &["project", "create", project]);
    }
    let groups = dir.join("groups");
    std::fs::create_dir(&groups).unwrap();
    std::fs::write(groups.join("quiet.toml"), QUIET).unwrap();
    std::fs::write(groups.join("site.toml"), SITE).unwrap();
    (running, groups.to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_4_groups_reach_the_right_agents_only_and_each_value_says_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, groups) = fleet(dir);
    let mut pc = [agent(dir, "pc-1").await, agent(dir, "pc-2").await, agent(dir, "pc-3").await];
    assert_eq!(
        done(dir, &["hosts", "label", "pc-1", "room=12"]),
        "pc-1: room=12, which is new; it is in no group\n"
    );
    let unknown = fallow(dir, &["hosts", "label", "pc-1", "pc-99", "site=brno"]);
    assert!(text(&unknown).contains("there is no host \"pc-99\""), "{}", text(&unknown));
    let bare = fallow(dir, &["diff", "room-12.toml"]);
    assert_eq!(
        (bare.status.code(), text(&bare).contains("-f room-12.toml")),
        (Some(2), true),
        "{}",
        text(&bare)
    );
    let both = json(dir, &["hosts", "label", "pc-1", "pc-2", "site=brno"]);
    assert_eq!(both["hosts"].as_array().unwrap().len(), 2, "{both}");
    done(dir, &["hosts", "label", "--selector", "site=brno, !room", "rack=4"]);
    let labels = json(dir, &["hosts", "label", "pc-2", "rack-"]);
    assert_eq!((&labels["labels"]["site"], &labels["labels"]["rack"]), (&Value::from("brno"), &Value::Null));

    let tried = done(dir, &["apply", "-f", &groups, "--dry-run"]);
    assert!(tried.contains("2 of 3 hosts would get other values; nothing was changed"), "{tried}");
    let difference = done(dir, &["diff", "-f", &groups, "--hosts"]);
    let lines: Vec<Vec<&str>> = difference.lines().map(|line| line.split_whitespace().collect()).collect();
    let line = |host: &str, value: &str| {
        lines.iter().find(|line| line[0] == host && line[2] == value).unwrap()[3..].to_vec()
    };
    assert_eq!(line("pc-1", "preferences.cpu_fraction"), ["100%", "50%", "group", "quiet"]);
    assert_eq!(line("pc-1", "projects.sums"), ["share", "100", "absent", "group", "quiet"]);
    assert_eq!(line("pc-2", "preferences.cpu_fraction"), ["100%", "25%", "group", "site"]);
    assert!(!difference.contains("pc-3"), "{difference}");
    assert_eq!(json(dir, &["groups"])["groups"].as_array().unwrap().len(), 0);

    let applied = done(dir, &["apply", "-f", &groups, "--message", "exams"]);
    assert!(
        applied.contains("put in place: quiet, site; 2 of 3 hosts get other values; document version 3 ("),
        "{applied}"
    );
    assert_eq!(document(&mut pc[0], 3).await, (0.5, vec!["primes".to_owned()]));
    assert_eq!(document(&mut pc[1], 3).await, (0.25, vec!["primes".to_owned(), "sums".to_owned()]));
    assert_eq!(document(&mut pc[2], 3).await.0, 1.0);
    let again = done(dir, &["apply", "-f", &groups]);
    assert!(
        again.contains("the groups are so already; 0 of 3 hosts get other values; nothing was changed"),
        "{again}"
    );

    // A group that chooses no host may have a slip in it.
    let slip = dir.join("slip.toml");
    std::fs::write(&slip, QUIET.replace("quiet", "slip").replace("room=12", "rooom=12").replace("20", "30"))
        .unwrap();
    let slip = slip.to_str().unwrap();
    let said = done(dir, &["apply", "-f", slip, "--dry-run"]);
    assert!(said.contains("fallow: no host is chosen by slip: "), "{said}");
    assert_eq!(json(dir, &["diff", "-f", slip])["groups_choosing_none"], serde_json::json!(["slip"]));
    assert!(!applied.contains("no host is chosen"), "{applied}");

    // So may one whose hosts would never compute.
    let never = dir.join("never.toml");
    std::fs::write(
        &never,
        "name = \"never\"\nprecedence = 40\nselector = \"room=12\"\n[preferences]\nidle_after = \"10m\"\n\
         stop_without_input = \"5m\"\n",
    )
    .unwrap();
    let never = never.to_str().unwrap();
    let said = done(dir, &["diff", "-f", never]);
    assert!(said.contains("fallow: for 1 host: nothing would ever be computed: computing stops"), "{said}");
    let cautions = json(dir, &["diff", "-f", never])["cautions"].clone();
    assert_eq!((cautions.as_array().unwrap().len(), &cautions[0]["hosts"]), (1, &1.into()));
    assert!(!applied.contains("nothing would ever"), "{applied}");
    // Who changes the whole fleet is warned of those whose group says the other half.
    let idle = dir.join("idle.toml");
    std::fs::write(
        &idle,
        "name = \"idle\"\nprecedence = 41\nselector = \"room=12\"\n[preferences]\nidle_after = \"10m\"\n",
    )
    .unwrap();
    assert!(!done(dir, &["apply", "-f", idle.to_str().unwrap()]).contains("nothing would ever"));
    for dry_run in [&["--dry-run"][..], &[]] {
        let said = done(dir, &[&["preferences", "set", "--stop-without-input", "5m"], dry_run].concat());
        assert!(said.contains("fallow: for 1 host: nothing would ever be computed"), "{said}");
    }
    assert!(!done(dir, &["preferences", "set", "--stop-without-input", "none"]).contains("nothing would"));
    done(dir, &["groups", "remove", "idle"]);

    // Whose wave is named so in the plan for rollouts is in the audit log.
    done(dir, &["rollout", "plan", "--waves", "quiet,100%"]);
    let wider = dir.join("wider.toml");
    std::fs::write(&wider, QUIET.replace("room=12", "room=12, cores >= 1")).unwrap();
    done(dir, &["apply", "-f", wider.to_str().unwrap()]);
    let narrower = dir.join("narrower.toml");
    std::fs::write(&narrower, QUIET).unwrap();
    done(dir, &["apply", "-f", narrower.to_str().unwrap()]);
    let entries = json(dir, &["audit"])["entries"].as_array().unwrap().clone();
    let told = |entry: &&Value| {
        let object = entry["object"].as_str().unwrap();
        object.ends_with("; wave quiet of the plan for rollouts chooses other hosts")
    };
    assert_eq!(entries.iter().filter(told).count(), 2, "{entries:#?}");
    done(dir, &["rollout", "plan", "--at-once"]);

    // Who sets the same value for the whole fleet is told, and for other values is not.
    let overruled = done(dir, &["preferences", "set", "--cpu-fraction", "75%"]);
    assert!(
        overruled.contains("hosts of these groups keep what the group says: quiet, site;"),
        "{overruled}"
    );
    assert!(done(dir, &["shares", "set", "sums=50"]).contains("says: quiet;"));
    assert!(!done(dir, &["shares", "set", "primes=50"]).contains("says:"));
    done(dir, &["preferences", "set", "--cpu-fraction", "100%"]);
    done(dir, &["shares", "set", "sums=100", "primes=100"]);

    let list = done(dir, &["groups"]);
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!(
        (&rows[1][..], &rows[2][..3]),
        (&["quiet", "20", "1", "room=12"][..], &["site", "10", "2"][..])
    );
    let chosen = json(dir, &["hosts", "--selector", "site=brno, !room"]);
    assert_eq!((chosen["hosts"].as_array().unwrap().len(), &chosen["hosts"][0]["name"]), (1, &"pc-2".into()));

    let why = done(dir, &["hosts", "show", "pc-1", "--why"]);
    for expected in [
        "preferences.cpu_fraction         50%        group quiet   25% by group site, 100% by default",
        "preferences.buffer_min           2 h        group site    2.4 h by default",
        "preferences.memory_fraction      10%        owner         90% by default",
        "projects.sums                    absent     group quiet   share 100 by fleet",
        "projects.primes.code_sign_key    sha256:",
        "groups     site, quiet",
        "label      room=12 (operator)",
        "label      os=linux",
        "label      campus=north (enrolment)",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&why).contains(&words(expected)), "{expected} is not in\n{why}");
    }
    assert!(!why.contains("projects.sums.code_sign_key"), "{why}");
    let enrolled = fallow(dir, &["hosts", "label", "pc-1", "campus-"]);
    assert_eq!(enrolled.status.code(), Some(3));
    assert!(text(&enrolled).contains("pc-1 was enrolled with campus=north"), "{}", text(&enrolled));
    let reported = fallow(dir, &["hosts", "label", "pc-1", "cores=64"]);
    assert_eq!(reported.status.code(), Some(3));
    assert!(text(&reported).contains("agents do not report"), "{}", text(&reported));
    let shown = json(dir, &["hosts", "show", "pc-3"]);
    assert!(
        shown["values"]
            .as_array()
            .unwrap()
            .iter()
            .all(|value| !value["origin"].as_str().unwrap().starts_with("group"))
    );

    let history = json(dir, &["documents"]);
    let applied = &history["documents"][2];
    assert_eq!(
        (&applied["version"], &applied["message"], &applied["change"]),
        (&3.into(), &"exams".into(), &"groups quiet, site".into())
    );
    done(dir, &["groups", "remove", "quiet", "site"]);
    let history = json(dir, &["documents"]);
    assert_eq!(
        history["documents"][1]["hash"],
        history["documents"].as_array().unwrap().last().unwrap()["hash"]
    );
    let table = done(dir, &["documents", "--limit", "2"]);
    assert_eq!(
        (table.lines().count(), table.contains("groups quiet removed, site removed")),
        (4, true),
        "{table}"
    );
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn r6_4_everything_wrong_in_all_files_is_named_at_once_with_status_3_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mut running, groups) = fleet(dir);
    let places = Path::new(&groups);
    std::fs::write(places.join("quiet.toml"), QUIET.replace("50%", "150%").replace("sums", "sum")).unwrap();
    std::fs::write(places.join("site.toml"), SITE.replace("10", "20").replace("buffer_min", "bufer_min"))
        .unwrap();
    let output = fallow(dir, &["apply", "-f", &groups]);
    assert_eq!(output.status.code(), Some(3));
    for expected in [
        "quiet.toml:2:14: precedence: group site has precedence 20 as well",
        "quiet.toml:5:11: projects.sum: there is no project \"sum\" in the fleet",
        "quiet.toml:9:16: preferences.cpu_fraction: ",
        "site.toml:2:14: precedence: group quiet has precedence 20 as well",
        "site.toml:7:1: preferences.bufer_min: unknown key in [preferences]",
        "did you mean `buffer_min`?",
        "nothing was changed",
    ] {
        assert!(text(&output).contains(expected), "{expected} is not in\n{}", text(&output));
    }
    let output = fallow(dir, &["diff", "-f", &groups, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["findings"][0]["line"], found["findings"].as_array().unwrap().len()), (&2.into(), 5));
    for (bad, said) in [
        (&["apply", "-f", "/nowhere.toml"][..], "cannot read group /nowhere.toml"),
        (&["groups", "remove", "loud"], "there is no group \"loud\" (there is: none)"),
        (&["hosts", "label", "pc-9", "room=1"], "there is no host \"pc-9\""),
        (&["hosts", "show", "pc-9"], "there is no host \"pc-9\""),
        (&["hosts", "--selector", "room="], "terms parted by commas"),
    ] {
        let output = fallow(dir, bad);
        assert_eq!(output.status.code(), Some(3), "{bad:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{bad:?}: {}", text(&output));
    }
    assert_eq!(json(dir, &["documents"])["documents"].as_array().unwrap().len(), 2);
    assert_eq!(running.stop(), Some(0));
}
