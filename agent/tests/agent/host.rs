//! What the agent says of its host, beside what BOINC's own client says of the same one.

use std::process::{Child, Command, Stdio};

use fallow_agent::host;
use fallow_domain::{HostFacts, HostSpeed, Virtualization};

use crate::attach::status;
use crate::daemon::{Daemon, outcome};
use crate::support::{agent, put, wait_for};

/// The stock client in a directory of its own, for as long as the test runs.
struct Stock {
    process: Child,
    dir: tempfile::TempDir,
}

impl Stock {
    /// Starts it; none, said on standard output, where there is none and none is required.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        put(
            &dir.path().join("cc_config.xml"),
            b"<cc_config><options><skip_cpu_benchmarks>1</skip_cpu_benchmarks></options></cc_config>\n",
        );
        let started = Command::new("boinc")
            .arg("--dir")
            .arg(dir.path())
            .arg("--no_gui_rpc")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            let missing = "boinc-client is not installed: e2e/peers/install.sh does it";
            assert!(std::env::var_os("FALLOW_REQUIRE_PEERS").is_none_or(|value| value != "1"), "{missing}");
            println!("skipped: {missing}");
            return None;
        };
        Some(Self { process, dir })
    }

    /// `<host_info>` of its state file.
    fn host_info(&self) -> String {
        let file = self.dir.path().join("client_state.xml");
        wait_for("the stock client's state file", || {
            let text = std::fs::read_to_string(&file).ok()?;
            let (_, rest) = text.split_once("<host_info>")?;
            Some(rest.split_once("</host_info>")?.0.to_owned())
        })
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The text of an element.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    xml.split_once(&format!("<{name}>"))?.1.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

fn facts(dir: &std::path::Path) -> HostFacts {
    let one = fallow_domain::Speed::new(1e9).unwrap();
    let speed = HostSpeed { fpops: one, iops: one, membw: 1e9, measured_at: 0.0 };
    let virtualization = host::virtualization::look(std::path::Path::new("/"));
    host::facts(dir, "00", host::Found { speed, coprocessors: Vec::new(), virtualization })
}

#[test]
fn r6_2_the_host_is_described_as_the_stock_client_describes_it() {
    let Some(stock) = Stock::start() else { return };
    let theirs = stock.host_info();
    let ours = facts(stock.dir.path());
    let text = |name: &str| element(&theirs, name).unwrap_or_default().to_owned();
    let number = |name: &str| text(name).parse::<f64>().unwrap();
    for (name, ours) in [
        ("domain_name", &ours.domain_name),
        ("p_vendor", &ours.cpu_vendor),
        ("p_model", &ours.cpu_model),
        ("os_name", &ours.os_name),
        ("os_version", &ours.os_version),
    ] {
        assert_eq!(*ours, text(name), "{name}");
    }
    // It cuts a long list.
    assert!(!text("p_features").is_empty() && ours.cpu_features.starts_with(&text("p_features")));
    for (name, ours) in [
        ("timezone", ours.timezone as f64),
        ("p_ncpus", ours.ncpus.into()),
        ("p_membw", ours.speed.membw),
        ("m_nbytes", ours.memory.as_f64()),
        ("m_cache", ours.cache.as_f64()),
        ("m_swap", ours.swap.as_f64()),
        ("d_total", ours.disk_total.as_f64()),
    ] {
        assert_eq!(ours, number(name), "{name}");
    }
    // Others write to this volume meanwhile.
    assert!((ours.disk_free.as_f64() / number("d_free") - 1.0).abs() < 0.2);
    // An address as it is written; which of them is not said to be the same.
    for address in [&ours.ip_addr, &text("ip_addr")] {
        assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address}");
    }
}

#[test]
fn r6_2_a_server_reads_the_same_out_of_our_words() {
    let dir = tempfile::tempdir().unwrap();
    let facts = facts(dir.path());
    // What plan classes cut out (BOINC: sched/plan_class_spec.cpp): the kernel before the bar, the library
    // behind it.
    let (_, versions) = facts.os_version.rsplit_once(" [").unwrap();
    let (kernel, library) = versions.strip_suffix(']').unwrap().split_once('|').unwrap();
    assert_eq!(kernel, rustix::system::uname().release().to_str().unwrap());
    let version: Vec<u32> =
        library.strip_prefix("libc ").unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    assert!(version[0] >= 2, "{library}");
}

#[test]
fn the_cpus_are_measured_by_a_process_that_ends_with_its_agent() {
    let output = Command::new(agent()).args(["benchmark", "--phase-ms", "300"]).output().unwrap();
    // On a machine that is busy with other tests it may get less than a fifth of the time.
    if output.status.success() {
        let speed: HostSpeed = serde_json::from_slice(&output.stdout).unwrap();
        assert!(speed.fpops.get() > 1e7 && speed.iops.get() > 1e7 && speed.measured_at > 1e9, "{speed:?}");
    } else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("hardly any CPU time"), "{said}");
    }
    let mut child = Command::new(agent())
        .args(["benchmark", "--phase-ms", "600000", "--while-stdin-is-open"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    let status = wait_for("its end", || child.try_wait().unwrap());
    assert!(status.success());
}

#[test]
fn r6_2_status_says_what_machine_the_agent_is_on() {
    let dir = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(dir.path());
    let facts = facts(dir.path());
    let machine = wait_for("the machine to be known", || {
        let machine = status(dir.path())["host"]["machine"].clone();
        (machine["memory"] != 0).then_some(machine)
    });
    assert_eq!(machine["cpu_model"], facts.cpu_model);
    assert_eq!(machine["cpu_features"], facts.cpu_features);
    assert_eq!(machine["memory"], facts.memory.0);
    assert_eq!(machine["os_version"], facts.os_version);
    let Virtualization { hypervisor, container, .. } = &facts.virtualization;
    for (told, found) in [(&machine["hypervisor"], hypervisor), (&machine["container"], container)] {
        assert_eq!(told.as_str().unwrap_or_default(), found);
    }
    let (code, text) = outcome(dir.path(), &["status"]);
    assert!(code == 0 && text.contains("this machine: "), "{text}");
}
