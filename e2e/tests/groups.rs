//! Groups of hosts with real agents: facts that they report, what reaches which, and their owners' limits
//! (R6.4).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: failures are panics"
)]

use fallow_e2e::{PATIENCE, Up, command, wait_for};
use serde_json::Value;

/// One host of the listing, by its name.
fn host(up: &Up, name: &str) -> Value {
    let hosts = up.json(&["hosts"]);
    let found = hosts["hosts"].as_array().unwrap().iter().find(|host| host["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not listed")).clone()
}

#[test]
fn r6_4_a_group_suspends_the_real_agents_that_it_chooses_and_the_owner_of_another_is_the_origin_of_his_limit()
{
    let up = Up::start(&["--exponents", "2..9689"], &[]);
    wait_for("all agents to have told of their hosts", 2 * PATIENCE, || {
        up.daemon("coordinator")?;
        let chosen = up.json(&["hosts", "--selector", "os=linux, cores>=1, memory_mib>0, agent_version"]);
        (chosen["hosts"].as_array()?.len() == 3).then_some(())
    });
    up.json(&["hosts", "label", "agent-1", "room=12"]);
    let file = up.dir().with_extension("room-12.toml");
    let group = "name = \"room-12\"\nprecedence = 10\nselector = \"room=12, os in (linux)\"\n\
        [projects.totient]\nabsent = true\n[projects.mersenne]\nwithout = [\"nvidia\"]\n[preferences]\nsuspended = true\n";
    std::fs::write(&file, group).unwrap();
    let applied = up.json(&["apply", "-f", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((&applied["hosts"], &applied["changed_hosts"]), (&3.into(), &1.into()));
    wait_for("the agent of the group to be suspended, and all to follow the version", PATIENCE, || {
        let version = &applied["document_version"];
        let all = ["agent-1", "agent-2", "agent-3"].map(|name| host(&up, name));
        let suspended = all.each_ref().map(|host| host["suspended_by"] == "coordinator");
        (all.iter().all(|host| host["document_version"] == *version) && suspended == [true, false, false])
            .then_some(())
    });

    let dir = up.dir().join("agent-2");
    let output = command("fallow-agent").arg("suspend").arg("--dir").arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value = |name: &str, key: &str| {
        let shown = up.json(&["hosts", "show", name]);
        let mut values = shown["values"].as_array().unwrap().iter();
        let found = values.find(|value| value["key"] == key).unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["origin"].as_str().unwrap().to_owned())
    };
    let origin = |name: &str| value(name, "preferences.suspended");
    wait_for("the owner's limit to be told", PATIENCE, || {
        (origin("agent-2") == ("true".into(), "owner (suspend or exclude)".into())).then_some(())
    });
    let agent_2 = up.dir().join("agent-2");
    let said = "disk_fraction = \"50 %\"\nhours = \"mon-fri 18:00-08:00\"\n";
    std::fs::write(agent_2.join("preferences.toml"), said).unwrap();
    let reload = ["preferences", "reload", "--dir", agent_2.to_str().unwrap()];
    let output = command("fallow-agent").args(reload).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("what the owner's file says to be told", PATIENCE, || {
        let hours = ("mon-fri 18:00-08:00".into(), "owner (preferences.toml, line 2)".into());
        (value("agent-2", "preferences.hours") == hours).then_some(())
    });
    assert_eq!(value("agent-2", "preferences.disk_fraction").1, "owner (preferences.toml, line 1)");
    assert_eq!(origin("agent-1"), ("true".into(), "group room-12".into()));
    let shown = up.json(&["hosts", "show", "agent-1"]);
    let mut values = shown["values"].as_array().unwrap().iter();
    let without = values.find(|value| value["key"] == "projects.mersenne.without").unwrap();
    assert_eq!((&without["value"], &without["origin"]), (&"nvidia".into(), &"group room-12".into()));
    assert_eq!(origin("agent-3"), ("false".into(), "default".into()));

    // Without its label the host is as the others again, under the same version.
    up.json(&["hosts", "label", "agent-1", "room-"]);
    wait_for("the agent to compute again", PATIENCE, || {
        (host(&up, "agent-1")["suspended_by"] == "").then_some(())
    });

    // A day of the week that is neither today nor close to it, wherever this machine is.
    let days = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let day = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"][((days + 3) % 7) as usize];
    up.json(&["preferences", "set", "--hours", day]);
    wait_for("an agent to rest outside of its hours", PATIENCE, || {
        (host(&up, "agent-3")["suspended_by"] == "hours").then_some(())
    });
    let dir = up.dir().join("agent-3");
    let output = command("fallow-agent").arg("status").arg("--dir").arg(dir).output().unwrap();
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("resting: outside of its hours ({day}); goes on ");
    assert!(status.starts_with(&expected) && !status.contains("running"), "{status}");
    assert_eq!(host(&up, "agent-2")["suspended_by"], "owner", "the owner's word comes first");
    up.json(&["preferences", "set", "--hours", "always"]);
    wait_for("the agent to compute again", PATIENCE, || {
        (host(&up, "agent-3")["suspended_by"] == "").then_some(())
    });
}
