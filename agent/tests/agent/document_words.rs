//! Every word of a document for what goes on in and around a host, from a group's file to the real agent
//! (R6.4).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fallow_domain::Labels;
use fallow_fleet::{Change, DocumentSet, Effective, GroupText, Groups, PREFERENCE_KEYS, Preference};
use fallow_proto::fleet::document::{from_wire, to_wire};
use fallow_proto::fleet::v1::from_coordinator::Body;
use serde_json::Value;

use crate::daemon::{command, outcome};
use crate::link::{Agent, Coordinator, GOOD, Held, document, host, token};

/// None of them is the default.
const WORDS: &str = "\
cpu_fraction_in_use = \"25%\"
cpu_time_fraction_in_use = \"30%\"
memory_fraction_in_use = \"35%\"
swap_fraction = \"40%\"
cpus_max = 2
gpu_temperature_max = 75
use_gpus = false
excluded_of_projects = [\"https://example.org/p/ nvidia:0\"]
run_on_batteries = true
battery_charge_min = \"20%\"
battery_temperature_max = 45
other_load_max = \"90%\"
other_load_max_in_use = \"80%\"
exclusive_programs = [\"blender\", \"matlab\"]
exclusive_gpu_programs = [\"blender\"]
start_delay = \"5 min\"
stop_without_input = \"2 h\"
disk_max = \"20 GB\"
network_hours = \"22:00-06:00\"
network_wifi_only = true
other_network_max = \"1 MB\"
upload_max = \"100 kB\"
download_max = \"2 MB\"
transfer_max = \"10 GB\"
transfer_period = \"30 days\"
files_at_once = 4
files_at_once_of_project = 1
report_at_once = true
";

/// What a group's file with these words makes of a document, and each word as operators are shown it.
fn of_group(version: u64) -> (Body, BTreeMap<&'static str, String>) {
    let Body::Document(plain) = document(version, 75.0) else { unreachable!() };
    let set = DocumentSet { fleet: from_wire(plain.clone()).unwrap(), groups: Groups::default() };
    let text = format!("name = \"lab\"\nprecedence = 1\nselector = \"\"\n[preferences]\n{WORDS}");
    let change = Change { files: vec![GroupText { file: "lab.toml".into(), text }], ..Change::default() };
    let groups = change.groups(&set).unwrap();
    let shown = |one: &Preference| (one.key(), one.to_string());
    let said = groups.0.values().flat_map(|group| &group.preferences).map(shown).collect();
    let set = DocumentSet { groups, ..set };
    let wished = Effective::of(&set, &Labels::default()).document(&set);
    (Body::Document(fallow_proto::fleet::v1::Document { content: plain.content, ..to_wire(&wished) }), said)
}

/// Each preference on the agent: its value, and where it comes from.
fn in_force(dir: &Path) -> BTreeMap<String, (String, String)> {
    let output = command(dir, &["preferences", "--json"]).output().unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let all = all["preferences"].as_array().unwrap().iter();
    all.map(|one| (text(one, "key"), (text(one, "value"), text(one, "source")))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_4_every_word_of_a_groups_file_is_in_force_on_its_hosts_unless_their_owners_tighten_it_and_without_it_the_default_is()
 {
    let (dir, coordinator) = (tempfile::tempdir().unwrap(), Coordinator::default());
    let dir = dir.path();
    let (address, _serving) = coordinator.serve(None).await;
    let _process = Agent::start(dir, &token(&coordinator, address, GOOD));
    coordinator.until("the snapshot", |held| host(held).map(drop)).await;
    let follows = |version| move |held: &Held| (host(held)?.document_version == version).then_some(());
    let before = in_force(dir);
    let (sent, said) = of_group(1);
    assert!(PREFERENCE_KEYS.ends_with(&WORDS.lines().map(key_of).collect::<Vec<_>>()));
    assert_eq!(said.len(), WORDS.lines().count());
    coordinator.send(sent, "").await;
    coordinator.until("version 1", follows(1)).await;
    let now = in_force(dir);
    for (key, value) in &said {
        assert_ne!(before[*key].0, *value, "{key} is as by default");
        assert_eq!(now[*key], (value.clone(), "coordinator's document version 1".to_owned()), "{key}");
    }
    // The owner tightens two of them; the third would loosen.
    let own = "run_on_batteries = false\nupload_max = \"50 kB\"\ndownload_max = \"9 MB\"\n";
    fs::write(dir.join("preferences.toml"), own).unwrap();
    let (code, text) = outcome(dir, &["preferences", "reload"]);
    assert!(code == 0 && text.contains("download_max"), "{text}");
    let tells = |key: &'static str| {
        move |held: &Held| {
            let word = host(held)?.owner_word?;
            word.places.iter().any(|place| place.key == key).then_some(word.preferences?.local?)
        }
    };
    let told = coordinator.until("the owner's word", tells("upload_max")).await;
    // And no more than what he says.
    assert_eq!((told.run_on_batteries, told.upload_max_bytes, told.download_max_bytes), (false, 50_000, 0));
    let now = in_force(dir);
    let by_owner = |value: &str| (value.to_owned(), "preferences.toml".to_owned());
    assert_eq!(
        (&now["run_on_batteries"], &now["upload_max"]),
        (&by_owner("false"), &by_owner("50 kB a second"))
    );
    assert_eq!(
        now["download_max"],
        (said["download_max"].clone(), "coordinator's document version 1".to_owned())
    );
    // As a coordinator sends it that has no such words.
    fs::remove_file(dir.join("preferences.toml")).unwrap();
    assert_eq!(outcome(dir, &["preferences", "reload"]).0, 0);
    coordinator.send(document(2, 75.0), "").await;
    coordinator.until("version 2", follows(2)).await;
    let now = in_force(dir);
    for key in said.keys() {
        assert_eq!(now[*key].0, before[*key].0, "{key}");
    }
}

fn key_of(line: &'static str) -> &'static str {
    line.split(' ').next().unwrap()
}
