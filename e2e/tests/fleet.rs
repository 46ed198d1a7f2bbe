//! A fleet under stress, as real processes: killed agents and coordinators, changed shares, an absent
//! coordinator.
//!
//! Each test is a whole `fallow up` in a directory of its own, at ports of its own. They run side by side:
//! what they measure is CPU time, and they wait until there is enough of it, however long that takes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fallow_e2e::{PATIENCE, Rotel, Up, command, wait_for};
use rustix::process::Signal;
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);
const AGENTS: [&str; 3] = ["agent-1", "agent-2", "agent-3"];

/// Starts a daemon by hand, as the README says, with its log in a file.
fn by_hand(program: &str, arguments: &[&str], dir: &Path) -> Child {
    let log = std::fs::File::create(dir.with_extension("by-hand.log")).unwrap();
    let mut command = command(program);
    command.args(arguments).arg("--dir").arg(dir).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

fn logs(up: &Up, agent: &str) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let dir = up.dir().join(agent);
    read(dir.join("log")) + &read(dir.with_extension("by-hand.log"))
}

fn micros(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number of microseconds"))
}

/// CPU time of each project over all agents, as the coordinator holds it.
fn cpu_by_project(up: &Up) -> BTreeMap<String, i64> {
    let projects = up.json(&["projects"]);
    let each = projects["projects"].as_array().unwrap().iter();
    each.map(|p| (p["name"].as_str().unwrap().to_owned(), micros(&p["cpu_time_micros"]))).collect()
}

/// An agent's own totals, by project, from its `status`.
fn own_cpu(up: &Up, agent: &str) -> BTreeMap<String, i64> {
    let dir = up.dir().join(agent);
    let output = command("fallow-agent").args(["status", "--json", "--dir"]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let each = status["projects"].as_array().unwrap().iter();
    let micros = |secs: &Value| (secs.as_f64().unwrap() * 1e6).round() as i64;
    each.map(|p| (p["name"].as_str().unwrap().to_owned(), micros(&p["cpu_time"]))).collect()
}

/// Jobs of an agent that it computed again after they were finished.
fn computed_again(log: &str) -> Vec<String> {
    let mut finished = BTreeSet::new();
    let mut again = Vec::new();
    for line in log.lines() {
        let name_after =
            |word: &str| line.split_once(word).and_then(|(_, rest)| rest.split_whitespace().next());
        if let Some(name) = name_after(": finished ") {
            finished.insert(name.to_owned());
        }
        let begun = name_after(": starting ").or_else(|| name_after(": resuming "));
        again.extend(begun.filter(|name| finished.contains(*name)).map(str::to_owned));
    }
    again
}

#[test]
fn r6_1_killed_agents_and_coordinators_lose_nothing_and_leave_nothing() {
    // Jobs of twenty seconds, with checkpoints every five: the one that is hit has time left when it is hit.
    let mut up = Up::start(&["--until-done", "--exponents", "2..9689"], &[]);
    let (name, agent) =
        wait_for("an agent to be in the middle of a job, beyond a checkpoint", 10 * MINUTE, || {
            up.daemon("coordinator")?;
            let hosts = up.json(&["hosts"])["hosts"].as_array()?.clone();
            let beyond = |task: &Value| {
                let early = task["fraction_done"].as_f64().is_some_and(|fraction| fraction < 0.6);
                task["checkpoint_cpu_micros"].as_i64() > Some(0) && task["phase"] == "running" && early
            };
            AGENTS.iter().find_map(|name| {
                let own = own_identity(&up, name)?;
                let host = hosts.iter().find(|host| host["agent_id"] == own.as_str())?;
                host["tasks"].as_array()?.iter().any(beyond).then_some((*name, up.daemon(name)?))
            })
        });
    assert!(!up.tasks(name).is_empty());
    agent.signal(Signal::KILL);
    let killed = Instant::now();
    wait_for("no task of the killed agent computes", PATIENCE, || up.tasks(name).is_empty().then_some(()));
    println!("tasks of the killed agent were gone after {:?}", killed.elapsed());

    let coordinator = up.daemon("coordinator").unwrap();
    coordinator.signal(Signal::KILL);
    wait_for("the coordinator is gone", PATIENCE, || (!coordinator.is_alive()).then_some(()));
    let mut coordinator = by_hand("fallow", &["coordinator", "run"], &up.dir().join("coordinator"));
    let mut agent = by_hand("fallow-agent", &["run"], &up.dir().join(name));

    let end = up.wait(20 * MINUTE);
    assert!(end.success(), "{end}");
    for (daemon, child) in [("coordinator", &mut coordinator), (name, &mut agent)] {
        wait_for(&format!("{daemon}, restarted by hand, ends with the rest"), PATIENCE, || {
            child.try_wait().unwrap()
        });
    }
    assert_eq!(up.processes(), [], "no process is left");
    assert!(logs(&up, name).contains("from its checkpoint at"), "{}", logs(&up, name));
    for agent in AGENTS {
        assert_eq!(computed_again(&logs(&up, agent)), Vec::<String>::new(), "{agent}");
    }
}

fn own_identity(up: &Up, agent: &str) -> Option<String> {
    let file = std::fs::read(up.dir().join(agent).join("identity.json")).ok()?;
    let identity: Value = serde_json::from_slice(&file).ok()?;
    Some(identity["agent_id"].as_str()?.to_owned())
}

/// Shows R6.3 and R6.4, on one fleet, because it takes a while until a fleet computes for both projects.
#[test]
fn new_shares_rule_from_the_next_second_on_and_an_outage_of_the_coordinator_costs_no_cpu_second() {
    let up = Up::start(&["--exponents", "2..30000"], &[]);
    wait_for("all agents compute for both projects", 10 * MINUTE, || {
        up.daemon("coordinator")?;
        let cpu = cpu_by_project(&up);
        (cpu.len() == 2 && cpu.values().all(|cpu| *cpu > 10_000_000)).then_some(())
    });
    // Short, so that shares show after a few CPU minutes.
    up.json(&["preferences", "set", "--scheduling-period", "5s"]);
    new_shares_reach_every_agent_within_a_second_and_rule_from_then_on(&up);
    an_outage_of_the_coordinator_costs_no_cpu_second_and_counts_none_twice(&up);
}

fn new_shares_reach_every_agent_within_a_second_and_rule_from_then_on(up: &Up) {
    // Something else on this machine may hold one change up, but not one after the other.
    let is_soon = (0..10).any(|tenths| {
        let shares =
            [format!("mersenne=25.{tenths}"), format!("totient={}", 75.0 - f64::from(tenths) / 10.0)];
        let set = up.json(&["shares", "set", &shares[0], &shares[1]]);
        let version = set["version"].as_u64().or_else(|| set["document_version"].as_u64());
        let version = version.unwrap_or_else(|| panic!("{set} names no version"));
        let changed = Instant::now();
        wait_for("every agent reports the new version", PATIENCE, || {
            let hosts = up.json(&["hosts"]);
            let hosts = hosts["hosts"].as_array()?.clone();
            hosts.iter().all(|host| host["document_version"].as_u64() == Some(version)).then_some(())
        });
        println!("all agents reported version {version} within {:?}", changed.elapsed());
        changed.elapsed() < Duration::from_secs(2)
    });
    assert!(is_soon, "each takes longer");
    let before = cpu_by_project(up);
    // Several scheduling periods of each agent: the one that it is in the middle of counts for little.
    let enough = 100e6;
    let [mersenne, totient] =
        wait_for("100 CPU seconds to be used under the new shares", 60 * MINUTE, || {
            let after = cpu_by_project(up);
            let used = ["mersenne", "totient"].map(|name| (after[name] - before[name]) as f64);
            (used[0] + used[1] >= enough).then_some(used)
        });
    let fraction = mersenne / (mersenne + totient);
    println!("mersenne got {:.1} % of {:.0} CPU s", 100.0 * fraction, (mersenne + totient) / 1e6);
    assert!((fraction - 0.25).abs() <= 0.10, "{fraction}");
}

fn an_outage_of_the_coordinator_costs_no_cpu_second_and_counts_none_twice(up: &Up) {
    let coordinator = up.daemon("coordinator").unwrap();
    coordinator.signal(Signal::KILL);
    wait_for("the coordinator is gone", PATIENCE, || (!coordinator.is_alive()).then_some(()));
    let agents = AGENTS;
    let own = |up: &Up| agents.map(|agent| own_cpu(up, agent).values().sum::<i64>());
    let gone = Instant::now();
    // The outage lasts a minute at least, so that what was in flight when it began has ended.
    std::thread::sleep(MINUTE);
    let before = own(up);
    wait_for(
        "every agent to compute for 10 CPU seconds more, after a minute without it",
        30 * MINUTE,
        || before.iter().zip(own(up)).all(|(before, now)| now - before >= 10_000_000).then_some(()),
    );
    println!("each agent used 10 CPU s after the first minute of {:.0} s", gone.elapsed().as_secs_f64());
    let mut restarted = by_hand("fallow", &["coordinator", "run"], &up.dir().join("coordinator"));
    wait_for("the coordinator to know what the agents know", PATIENCE, || {
        up.daemon("coordinator").filter(|now| now.pid != coordinator.pid)?;
        let hosts = up.json(&["hosts"]);
        hosts["hosts"].as_array()?.iter().all(|host| host["connected"] == true).then_some(())
    });
    // Owners stop all computing, so that both sides come to rest and can be compared to the microsecond.
    for agent in agents {
        let dir = up.dir().join(agent);
        let output = command("fallow-agent").arg("suspend").arg("--dir").arg(dir).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    wait_for("both sides agree on every project's CPU time", PATIENCE, || {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for (name, cpu) in agents.iter().flat_map(|agent| own_cpu(up, agent)) {
            *sums.entry(name).or_default() += cpu;
        }
        (sums == cpu_by_project(up)).then(|| println!("both sides say {sums:?} microseconds"))
    });
    restarted.kill().unwrap();
    restarted.wait().unwrap();
}

/// What the collector printed, in parts: the service that sent it, and the text of what it sent at once.
fn sent(got: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in got.lines() {
        // `ResourceSpans #0` and so on begin what one service sent.
        if line.starts_with("Resource") && line.contains(" #") {
            parts.push(Default::default());
        }
        let Some((service, text)) = parts.last_mut() else { continue };
        if let Some((_, name)) = line.split_once("service.name: Str(") {
            name.trim_end_matches(')').clone_into(service);
        }
        text.push_str(line);
        text.push('\n');
    }
    parts
}

/// All that follows this word on lines of a service's parts.
fn said_of(parts: &[(String, String)], service: &str, word: &str) -> BTreeSet<String> {
    let texts = parts.iter().filter(|(by, _)| by == service).flat_map(|(_, text)| text.lines());
    texts.filter_map(|line| Some(line.split_once(word)?.1.trim().to_owned())).collect()
}

/// Of the span of the operator's change: its trace.
fn trace_of_change(parts: &[(String, String)]) -> Option<String> {
    let text = parts.iter().filter(|(by, _)| by == "fallow-coordinator").map(|(_, text)| text);
    let (before, _) = text
        .filter_map(|text| {
            text.split("Span #")
                .find_map(|span| span.split_once("Name           : fallow.operator.v1.Operator/SetShares"))
        })
        .next()?;
    let id = before.split_once("Trace ID")?.1.lines().next()?;
    Some(id.trim_matches(|c: char| !c.is_ascii_hexdigit()).to_owned())
}

/// The upper ends of a histogram's buckets, as the coordinator sent them.
fn bounds_of_calls(parts: &[(String, String)]) -> Option<Vec<f64>> {
    let (_, metric) = parts.iter().find_map(|(by, text)| {
        let text = (by == "fallow-coordinator").then_some(text)?;
        text.split_once("Name: rpc.server.call.duration\n")
    })?;
    let (point, _) = metric.split("HistogramDataPoints #").nth(1)?.split_once("Buckets #0")?;
    let bounds = point.lines().filter_map(|line| line.strip_prefix("ExplicitBounds #")?.split_once(": "));
    Some(bounds.map(|(_, bound)| bound.parse().unwrap()).collect())
}

#[test]
fn r6_7_a_real_collector_gets_metrics_logs_and_a_trace_over_both_daemons() {
    let Some(mut rotel) = Rotel::start() else { return };
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", rotel.endpoint.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "2000")];
    let up = Up::start(&["--quick"], &environment);
    wait_for("all agents compute", 10 * MINUTE, || {
        up.daemon("coordinator")?;
        (cpu_by_project(&up).values().sum::<i64>() > 5_000_000).then_some(())
    });
    up.json(&["shares", "set", "mersenne=50", "totient=50"]);
    let daemons = ["fallow-coordinator", "fallow-agent"];
    let projects = BTreeSet::from(["mersenne", "totient"].map(|name| format!("Str({name})")));
    let named = |parts: &[(String, String)]| {
        daemons.iter().all(|service| said_of(parts, service, "fallow.project.name: ") == projects)
    };
    let metrics = [
        "fallow.tasks",
        "fallow.cpu.time",
        "fallow.debt",
        "fallow.rpcs",
        "fallow.agents.connected",
        "fallow.disk.limit",
        "fallow.disk.used",
        "fallow.disk.missing",
        "fallow.disk.deleted",
    ];
    // Each signal of each daemon comes in batches of its own, spans up to five seconds after they ended: all
    // of it is waited for. That some trace is there says nothing of the change's.
    let got = rotel.everything_until("all signals of both daemons", PATIENCE, |got| {
        let parts = sent(got);
        let trace = trace_of_change(&parts);
        let follows = |id: &String| said_of(&parts, daemons[1], "Trace ID").iter().any(|of| of.contains(id));
        metrics.iter().all(|name| got.contains(name))
            && trace.as_ref().is_some_and(follows)
            && named(&parts)
            && bounds_of_calls(&parts).is_some()
            && daemons.iter().all(|service| !said_of(&parts, service, "ObservedTimestamp: ").is_empty())
    });
    let parts = sent(&got);
    println!("the trace of the change over both daemons: {}", trace_of_change(&parts).unwrap());
    assert!(got.contains("following version"), "the agents' log came");
    assert!(got.contains("document made"), "the coordinator's log came");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for service in daemons {
        for (name, value) in [("host.name", host.trim()), ("os.type", "linux")] {
            let said = said_of(&parts, service, &format!("-> {name}: "));
            assert_eq!(said, BTreeSet::from([format!("Str({value})")]), "{service}: {name}");
        }
        assert!(!said_of(&parts, service, "Body: ").is_empty(), "{service} sent logs");
        assert!(!said_of(&parts, service, "ObservedTimestamp: ").contains("0"), "{service}");
    }
    // The collector's end may have cut the last part short.
    let whole = &parts[..parts.len() - 1];
    for (service, text) in whole.iter().filter(|(_, text)| text.contains("LogRecord #")) {
        let when = text.lines().filter_map(|line| line.strip_prefix("Timestamp: "));
        let when: Vec<i64> = when.map(|nanos| nanos.parse().unwrap()).collect();
        assert_eq!(when.len(), text.matches("LogRecord #").count(), "{service}: {text}");
        assert!(when.iter().all(|nanos| *nanos > 0), "{service} does not say when: {text}");
    }
    let bounds = bounds_of_calls(&parts).unwrap();
    assert!(bounds.first() < Some(&0.01) && bounds.last() < Some(&60.0), "made for seconds: {bounds:?}");
}
