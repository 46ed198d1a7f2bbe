use super::*;
use crate::{Effective, Origin, Preference, Wish};
use fallow_domain::agent_state::OwnerWord;
use fallow_domain::{
    AccountKey, DocumentVersion, FleetDocument, Fraction, Labels, MasterUrl, OwnerLimits, Preferences,
    ProjectAssignment, ResourceTypes, Share,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set() -> DocumentSet {
    let project = |name: &str| ProjectAssignment {
        name: name.into(),
        url: MasterUrl::parse(&format!("http://127.0.0.1:1/{name}/")).unwrap(),
        account_key: AccountKey::new("key"),
        share: Share::DEFAULT,
        code_sign_key: None,
        without: ResourceTypes::default(),
    };
    let fleet = FleetDocument {
        content: String::new(),
        version: DocumentVersion(3),
        projects: ["mersenne", "totient"].map(project).into(),
        preferences: Preferences { cpu_fraction: Fraction::clamped(0.8), ..Preferences::default() },
    };
    DocumentSet { fleet, groups: Groups::default() }
}

fn change(files: &[(&str, &str)]) -> Change {
    let text = |(file, text): &(&str, &str)| GroupText { file: (*file).into(), text: (*text).into() };
    Change { files: files.iter().map(text).collect(), ..Change::default() }
}

fn applied(set: &DocumentSet, change: &Change) -> DocumentSet {
    DocumentSet { groups: change.groups(set).unwrap(), ..set.clone() }
}

fn labels(given: &[&str]) -> Labels {
    Labels::read(given.iter().copied()).unwrap()
}

fn wrong(set: &DocumentSet, files: &[(&str, &str)]) -> String {
    change(files).groups(set).unwrap_err().to_string()
}

const ROOM: &str = "name = \"room-12\"\nprecedence = 20\nselector = \"room=12\"\n\n[projects.totient]\nshare = 20\n\n\
    [projects.mersenne]\nabsent = true\n\n[preferences]\ncpu_fraction = \"50%\"\nbuffer_min = \"2 h\"\n";
const SITE: &str = "name = \"brno\"\nprecedence = 10\nselector = \"site=brno\"\n[projects.einstein]\n\
    url = \"https://einstein.example.org/\"\naccount_key = \"abc\"\nshare = 5\n[preferences]\ncpu_fraction = 0.25\n\
    excluded_devices = [\"nvidia:0\"]\n";

#[test]
fn r6_4_a_group_says_what_is_different_for_its_hosts_and_each_value_says_where_it_is_from() {
    let set = applied(&set(), &change(&[("room.toml", ROOM), ("site.toml", SITE)]));
    let both = Effective::of(&set, &labels(&["room=12", "site=brno"]));
    let cpu = both.preferences.iter().find(|one| one.value.key() == "cpu_fraction").unwrap();
    assert_eq!(cpu.value, Preference::CpuFraction(Fraction::clamped(0.5)));
    assert_eq!(cpu.origin.to_string(), "group room-12");
    let losers: Vec<_> = cpu.losers.iter().map(|(origin, value)| format!("{origin}: {value}")).collect();
    assert_eq!(losers, ["group brno: 25%", "fleet: 80%", "default: 100%"]);
    let document = both.document(&set);
    let projects: Vec<_> = document.projects.iter().map(|one| (one.name.as_str(), one.share.get())).collect();
    assert_eq!(projects, [("totient", 20.0), ("einstein", 5.0)]);
    assert_eq!(document.preferences.excluded_devices.len(), 1);
    assert!(document.check().is_ok());
    let neither = Effective::of(&set, &labels(&["room=13"]));
    assert_eq!(neither.document(&set), set.fleet);
    assert_eq!(neither.projects["totient"].origin, Origin::Fleet);
}

#[test]
fn r6_4_what_the_owner_tightens_is_the_owners_and_nothing_else_is() {
    let set = applied(&set(), &change(&[("room.toml", ROOM)]));
    let owner = OwnerLimits {
        suspended: true,
        cpu_fraction: Some(Fraction::clamped(0.9)),
        memory_fraction: Some(Fraction::clamped(0.1)),
        ..OwnerLimits::default()
    };
    let declined = [set.fleet.projects[1].url.clone()];
    let effective = Effective::of(&set, &labels(&["room=12"])).tightened(&owner).without(&declined, &set);
    let mut owners: Vec<_> =
        effective.preferences.iter().filter(|one| one.origin == Origin::Owner(None)).collect();
    owners.retain(|one| one.losers[0].1 != one.value);
    assert_eq!(
        owners.iter().map(|one| one.value.key()).collect::<Vec<_>>(),
        ["suspended", "memory_fraction"]
    );
    assert_eq!(
        (effective.projects["totient"].value, &effective.projects["totient"].origin),
        (Wish::Absent, &Origin::Owner(None))
    );
    // What groups say is absent needs no owner.
    assert_eq!(effective.projects["mersenne"].origin.to_string(), "group room-12");
}

#[test]
fn r6_4_of_an_owner_who_names_programs_it_is_shown_where_beside_what_a_group_names() {
    let lab = saying("lab", 1, "exclusive_programs = [\"blender\"]");
    let set = applied(&set(), &change(&[("lab.toml", &lab)]));
    let asked = Effective::of(&set, &Labels::default());
    let key = "exclusive_programs";
    let word = OwnerWord {
        said: 1,
        preferences: asked.preferences(),
        places: [(key.to_owned(), "preferences.toml, line 9, names not told".to_owned())].into(),
    };
    let effective = asked.by_owner(&word);
    let shown = effective.preferences.iter().find(|one| one.value.key() == key).unwrap();
    let (origin, value) = &shown.losers[0];
    assert_eq!(shown.origin.to_string(), "owner (preferences.toml, line 9, names not told)");
    assert_eq!(format!("{value} by {origin}"), "blender by group lab");
}

#[test]
fn r6_4_everything_wrong_in_all_files_is_named_at_once_with_file_line_and_key() {
    let bad_room = ROOM.replace("20", "0").replace("50%", "150%").replace("buffer_min", "bufer_min");
    let text = wrong(
        &set(),
        &[
            ("a.toml", &bad_room),
            (
                "b.toml",
                "name = \"b\"\nprecedence = 7\nselector = \"room=\"\n[projects.nowhere]\nshare = 1\n[projects.totient]\n",
            ),
            (
                "c.toml",
                "name = \"c\"\nprecedence = 7\nselector = \"\"\n[projects.far]\nurl = \"https://far.example.org/\"\n",
            ),
            ("d.toml", "name = \"c\"\nprecedence = \n"),
            ("e.toml", "name = \"c\"\nprecedence = 9\nselector = \"x\"\n"),
        ],
    );
    for expected in [
        "a.toml:2:14: precedence: 0 is no precedence",
        "a.toml:12:16: preferences.cpu_fraction: ",
        "a.toml:13:1: preferences.bufer_min: unknown key",
        "did you mean `buffer_min`",
        "b.toml:2:14: precedence: group c has precedence 7 as well",
        "b.toml:3:12: selector: \"room=\" is no selector",
        "b.toml:4:11: projects.nowhere: there is no project \"nowhere\"",
        "b.toml:6:11: projects.totient: nothing is said of the project",
        "c.toml:2:14: precedence: group b has precedence 7 as well",
        "c.toml:5:7: projects.far.url: `account_key` is missing",
        "d.toml:2:",
        "e.toml:1:8: name: group c stands in c.toml as well",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn r6_4_no_finding_shows_an_account_key_wherever_it_stands_and_however_it_is_written() {
    let head = "name = \"a\"\nprecedence = 1\nselector = \"\"\n";
    for (rest, found) in [
        (
            "[projects.far]\naccount_key = \"5ECRET?\"\n",
            "a:5:15: projects.far.account_key: this is no account key",
        ),
        ("[projects.far]\naccount_key = \"5ECRET\"\n", "`url` is missing beside `account_key`"),
        ("[projects.far]\naccount_key = 5ECRET\n", "a:5:"),
        ("[projects.far]\naccount_key = \"5ECRET\n", "a:5:"),
        ("[projects.far]\naccount_key = \"a\\q5ECRET\"\n", "a:5:"),
        ("[projects.far]\naccount_key = \"\"\"\n\\q5ECRET\"\"\"\n", "a:6:"),
        ("[projects.far]\naccount_key: \"5ECRET\"\n", "a:5:"),
        ("[projects.far]\n\"account_key\" = \"5ECRET\"\naccount_key = \"5ECRET\"\n", "a:6:"),
        ("[projects.far]\nacount_key = \"5ECRET\"\n", "did you mean `account_key`"),
        ("[projects.far]\nacount_key = \"5ECRET\n", "a:5:"),
        (
            "[projects]\naccount_key = \"5ECRET\"\n",
            "a:5:15: projects.account_key: the value makes no sense here",
        ),
        ("[projects]\nacount_key = \"5ECRET\"\n", "projects.acount_key: the value makes no sense here"),
        ("projects.far = { account_key = \"5ECRET\", share = -1 }\n", "projects.far.share: -1 is no share"),
        ("projects.far = { shar = 1, account_key = '5ECRET' }\n", "did you mean `share`"),
        ("projects.far = { shar = 1, key = '5ECRET' }\n", "did you mean `share`"),
        ("projects = { far = { account_key = \"5ECRET\" \n", "a:4:"),
        ("projects = { far = { acount_key = \"5ECRET\", = }\n", "a:4:"),
        ("project.far = { key = \"5ECRET\" }\n", "did you mean `projects`"),
        ("project.far.key = \"5ECRET\"\n", "did you mean `projects`"),
        ("account_key = \"5ECRET\"\n", "`account_key` of [projects.NAME]"),
    ] {
        let text = wrong(&set(), &[("a", &format!("{head}{rest}"))]);
        assert!(text.contains(found) && !text.contains("5ECRET"), "{rest}: {text}");
    }
    // What is no secret is shown as it stands.
    let text = wrong(&set(), &[("a", &format!("{head}[projects.far]\nshare = \"x\"\nurl = 7\n"))]);
    for shown in ["| share = \"x\"\n", "| url = 7\n"] {
        assert!(text.contains(shown), "{text}");
    }
    let inline = format!("{head}projects.far = {{ account_key = \"5ECRET\", share = -1 }} # so\n");
    let text = wrong(&set(), &[("a", &inline)]);
    assert!(text.contains("| projects.far = { account_key = ********, share = -1 } # so\n"), "{text}");
}

#[test]
fn r6_4_projects_are_in_one_place_whichever_groups_name_them() {
    let foreign = |name: &str, number: u32, project: &str, url: &str| {
        format!(
            "name = \"{name}\"\nprecedence = {number}\nselector = \"\"\n[projects.{project}]\nurl = \"{url}\"\naccount_key = \"k\"\n"
        )
    };
    let own = foreign("a", 1, "totient", "https://x.example.org/");
    assert!(wrong(&set(), &[("a", &own)]).contains("has a project \"totient\" of its own"));
    let (one, two) =
        (foreign("a", 1, "far", "https://x.example.org/"), foreign("b", 2, "far", "https://y.example.org/"));
    assert!(
        wrong(&set(), &[("a", &one), ("b", &two)]).contains("another URL, account key or code-signing key")
    );
    let same = foreign("b", 2, "farther", "https://x.example.org/");
    assert!(wrong(&set(), &[("a", &one), ("b", &same)]).contains("is the URL of project \"far\" too"));
    // A share alone attaches it in another group, as long as one says where it is.
    let share = "name = \"b\"\nprecedence = 2\nselector = \"room=1\"\n[projects.far]\nshare = 7\n";
    let whole = applied(&set(), &change(&[("a", &one), ("b", share)]));
    let document = Effective::of(&whole, &labels(&["room=1"])).document(&whole);
    assert_eq!(document.projects.last().map(|one| (one.name.as_str(), one.share.get())), Some(("far", 7.0)));
    let foreign = whole.foreign();
    assert_eq!((foreign.len(), foreign[0].name.as_str(), foreign[0].share), (1, "far", Share::ZERO));
    let removal = Change { remove: vec!["a".into()], ..Change::default() };
    assert!(removal.groups(&whole).unwrap_err().to_string().contains("group b: projects.far"));
}

#[test]
fn r6_4_groups_are_replaced_by_name_and_removed_by_name_or_with_all_that_no_file_is_of() {
    let whole = applied(&set(), &change(&[("room.toml", ROOM), ("site.toml", SITE)]));
    let again = applied(&whole, &change(&[("other.toml", &ROOM.replace("share = 20", "share = 21"))]));
    assert_eq!(again.groups.0.len(), 2);
    assert_ne!(again.hash().unwrap(), whole.hash().unwrap());
    let removed = applied(&whole, &Change { remove: vec!["brno".into()], ..Change::default() });
    assert_eq!(removed.groups.0.keys().map(GroupName::as_str).collect::<Vec<_>>(), ["room-12"]);
    let pruned = applied(&whole, &Change { prune: true, ..change(&[("room.toml", ROOM)]) });
    assert_eq!(pruned.hash().unwrap(), removed.hash().unwrap());
    let unknown = Change { remove: vec!["bruno".into()], ..Change::default() }.groups(&whole);
    assert!(unknown.unwrap_err().to_string().contains("(there is: brno, room-12)"));
}

#[test]
fn r6_4_a_file_that_is_too_long_and_an_account_key_that_is_none_are_refused() {
    let long = format!("#{}", "x".repeat(FILE_BYTES_MAX));
    assert!(wrong(&set(), &[("long.toml", &long)]).contains("long.toml:1:1: the file has 65537 bytes"));
    let problem = wrong(&set(), &[("a", "name = \"a\"\n[projects.x]\naccount_key = 5\n")]);
    assert!(problem.contains("this is no account key"), "{problem}");
}

/// For each preference a value that can be meant and is not the default, and one that cannot.
const WORDS: &[(&str, &str, &str)] = &[
    ("cpu_fraction", "0.5", "\"150%\""),
    ("cpu_time_fraction", "0.5", "0.001"),
    ("buffer_min", "\"2 h\"", "2"),
    ("buffer_additional", "\"2 h\"", "\"400 days\""),
    ("scheduling_period", "\"2 h\"", "\"1 ms\""),
    ("checkpoint_period", "\"2 h\"", "\"1 ms\""),
    ("leave_in_memory", "true", "1"),
    ("suspended", "true", "\"yes\""),
    ("memory_fraction", "0.5", "0"),
    ("disk_fraction", "0.5", "0"),
    ("disk_free_min", "\"5 GB\"", "5"),
    ("connection_interval", "\"2 h\"", "\"400 days\""),
    ("excluded_devices", "[\"nvidia:0\"]", "[\"cpu:0\"]"),
    ("hours", "\"22:00-06:00\"", "\"never\""),
    ("run_in_use", "true", "1"),
    ("run_gpu_in_use", "true", "1"),
    ("idle_after", "\"10 min\"", "\"1 s\""),
    ("required_layers", "[\"files\"]", "[\"fils\"]"),
    ("jobs_network", "[\"https://example.org/p/\"]", "[\"example\"]"),
    ("cpu_fraction_in_use", "0.5", "0"),
    ("cpu_time_fraction_in_use", "0.5", "0.001"),
    ("memory_fraction_in_use", "0.5", "0"),
    ("swap_fraction", "0.5", "1.5"),
    ("cpus_max", "2", "0"),
    ("gpu_temperature_max", "75", "7"),
    ("use_gpus", "false", "0"),
    ("excluded_of_projects", "[\"https://example.org/p/ nvidia:0\"]", "[\"nvidia:0\"]"),
    ("run_on_batteries", "true", "\"yes\""),
    ("battery_charge_min", "0.5", "0.001"),
    ("battery_temperature_max", "45", "7"),
    ("other_load_max", "0.5", "0.001"),
    ("other_load_max_in_use", "0.25", "0.001"),
    ("exclusive_programs", "[\"blender\"]", "[\"/usr/bin/blender\"]"),
    ("exclusive_gpu_programs", "[\"blender\"]", "\"blender\""),
    ("start_delay", "\"5 min\"", "\"2 days\""),
    ("stop_without_input", "\"2 h\"", "\"1 s\""),
    ("disk_max", "\"20 GB\"", "\"1 MB\""),
    ("network_hours", "\"22:00-06:00\"", "\"22-6\""),
    ("network_wifi_only", "true", "1"),
    ("other_network_max", "\"1 MB\"", "\"1 kB\""),
    ("upload_max", "\"100 kB\"", "\"1 B\""),
    ("download_max", "\"2 MB\"", "\"1 B\""),
    ("transfer_max", "\"10 GB\"", "\"1 kB\""),
    ("transfer_period", "\"30 days\"", "\"36 h\""),
    ("files_at_once", "4", "9"),
    ("files_at_once_of_project", "1", "3"),
    ("report_at_once", "true", "1"),
];

fn saying(name: &str, precedence: u32, preferences: &str) -> String {
    format!("name = \"{name}\"\nprecedence = {precedence}\nselector = \"\"\n[preferences]\n{preferences}\n")
}

#[test]
fn r6_4_every_preference_is_said_by_a_group_and_a_wrong_value_is_named_with_its_key() {
    assert_eq!(WORDS.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), crate::PREFERENCE_KEYS);
    let set = set();
    for (key, good, bad) in WORDS {
        let file = saying("lab", 1, &format!("{key} = {good}"));
        let of = Effective::of(&applied(&set, &change(&[("lab.toml", &file)])), &Labels::default());
        let said: Vec<_> =
            of.preferences.iter().filter(|one| one.origin.to_string() == "group lab").collect();
        assert!(said.len() == 1 && said[0].value.key() == *key, "{key}: {said:?}");
        let usual =
            Preference::all_of(&Preferences::default()).into_iter().find(|one| one.key() == *key).unwrap();
        assert_ne!(said[0].value, usual);
        let error = wrong(&set, &[("lab.toml", &saying("lab", 1, &format!("{key} = {bad}")))]);
        assert!(error.contains(&format!("preferences.{key}")) && error.contains("lab.toml:5"), "{error}");
    }
}

#[test]
fn r6_4_a_higher_group_takes_a_limit_of_a_lower_one_back() {
    let lower = saying("lab", 1, "upload_max = \"100 kB\"\ngpu_temperature_max = 75");
    let higher = saying("servers", 2, "upload_max = \"no limit\"");
    let set = applied(&set(), &change(&[("lab.toml", &lower), ("servers.toml", &higher)]));
    let of = Effective::of(&set, &Labels::default());
    let shown = |key: &str| {
        let one = of.preferences.iter().find(|one| one.value.key() == key).unwrap();
        let lost: Vec<_> = one.losers.iter().map(|(origin, value)| format!("{value} by {origin}")).collect();
        format!("{} by {} over {}", one.value, one.origin, lost.join(", "))
    };
    assert_eq!(
        shown("upload_max"),
        "no limit by group servers over 100 kB a second by group lab, no limit by default"
    );
    assert_eq!(shown("gpu_temperature_max"), "75 °C by group lab over no limit by default");
    assert_eq!(of.document(&set).preferences.local.upload_max, None);
}

#[test]
fn r6_4_a_higher_group_gives_the_network_back_to_all_jobs_and_no_list_does() {
    let lower = saying("lab", 1, "jobs_network = []");
    let network = |said: &str| {
        let higher = saying("servers", 2, &format!("jobs_network = {said}"));
        let set = applied(&set(), &change(&[("lab.toml", &lower), ("servers.toml", &higher)]));
        Effective::of(&set, &Labels::default()).preferences().jobs_network
    };
    assert_eq!((network("\"all\""), network("\"no limit\"")), (None, None));
    assert_eq!(network("[]"), Some(BTreeSet::new()));
    let bad = wrong(&set(), &[("lab.toml", &saying("lab", 1, "jobs_network = \"none\""))]);
    assert!(bad.contains("or \"all\""), "{bad}");
}

#[test]
fn r6_4_blanks_around_a_programs_name_are_none_of_it() {
    let lab = saying("lab", 1, "exclusive_programs = [\" blender \", \"a b\"]");
    let set = applied(&set(), &change(&[("lab.toml", &lab)]));
    let local = Effective::of(&set, &Labels::default()).preferences().local;
    assert_eq!(local.exclusive_programs, ["a b".to_owned(), "blender".to_owned()].into());
}

/// A file of a group, with few names so that groups meet.
fn group(number: u32) -> impl Strategy<Value = (String, String)> {
    let parts = (
        prop::sample::select(vec!["", "room=1", "room=2", "site=a", "!room", "room"]),
        prop::option::of(1..100_u32),
        prop::option::of(any::<bool>()),
        prop::option::of(1..100_u32),
        any::<bool>(),
        prop::option::of(prop::sample::select(vec!["[]", "[\"cpu\"]", "[\"nvidia\", \"amd\"]"])),
    );
    parts.prop_map(move |(selector, cpu, suspended, share, absent, without)| {
        let precedence = (number * 7_919) % 1_000 + 1;
        let mut text =
            format!("name = \"g{number}\"\nprecedence = {precedence}\nselector = \"{selector}\"\n");
        if let Some(share) = share {
            text += &format!("[projects.totient]\nshare = {share}\n");
        }
        if absent {
            text += "[projects.mersenne]\nabsent = true\n";
        } else if let Some(types) = without {
            text += &format!("[projects.mersenne]\nwithout = {types}\n");
        }
        text += "[preferences]\n";
        if let Some(cpu) = cpu {
            text += &format!("cpu_fraction = \"{cpu}%\"\n");
        }
        if let Some(suspended) = suspended {
            text += &format!("suspended = {suspended}\n");
        }
        (format!("{number}.toml"), text)
    })
}

fn groups() -> impl Strategy<Value = Vec<(String, String)>> {
    (group(1), group(2), group(3), group(4), group(5)).prop_map(|(a, b, c, d, e)| vec![a, b, c, d, e])
}

fn host() -> impl Strategy<Value = Labels> {
    let some = |values: &'static [&'static str]| prop::option::of(prop::sample::select(values));
    (some(&["room=1", "room=2"]), some(&["site=a"]))
        .prop_map(|(room, site)| labels(&[room, site].into_iter().flatten().collect::<Vec<_>>()))
}

fn of(files: &[(String, String)]) -> Change {
    change(&files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect::<Vec<_>>())
}

/// For each value on its own, the group of the highest precedence that has the host and says it.
fn slowly(set: &DocumentSet, labels: &Labels) -> FleetDocument {
    let mine: Vec<_> = set.groups.0.values().filter(|group| group.selector.chooses(labels)).collect();
    let mut document = set.fleet.clone();
    for key in crate::PREFERENCE_KEYS {
        let says = |group: &&&crate::Group| group.preferences.iter().any(|one| one.key() == *key);
        if let Some(highest) = mine.iter().filter(says).max_by_key(|group| group.precedence) {
            let said = highest.preferences.iter().find(|one| one.key() == *key).unwrap();
            said.clone().put_in(&mut document.preferences);
        }
    }
    let mut kept = BTreeSet::new();
    for project in &mut document.projects {
        let says = |group: &&&crate::Group| {
            group.projects.get(&project.name).is_some_and(|said| said.without.is_some())
        };
        if let Some(group) = mine.iter().filter(says).max_by_key(|group| group.precedence) {
            project.without = group.projects[&project.name].without.clone().unwrap();
        }
        let says = |group: &&&crate::Group| {
            group.projects.get(&project.name).is_some_and(|said| said.wish.is_some())
        };
        let wish = mine.iter().filter(says).max_by_key(|group| group.precedence);
        match wish.and_then(|group| group.projects[&project.name].wish) {
            Some(Wish::Absent) => continue,
            Some(Wish::Share(share)) => project.share = share,
            None => {}
        }
        kept.insert(project.name.clone());
    }
    document.projects.retain(|project| kept.contains(&project.name));
    document
}

proptest! {
    #[test]
    fn r6_4_the_effective_document_is_what_the_highest_group_says_value_by_value(files in groups(), host in host()) {
        let set = applied(&set(), &of(&files));
        prop_assert_eq!(Effective::of(&set, &host).document(&set), slowly(&set, &host));
    }

    #[test]
    fn r6_4_the_order_of_files_means_nothing_and_precedence_is_total(files in groups(), host in host(), turn in 0..5_usize) {
        let mut turned = files.clone();
        turned.rotate_left(turn);
        // Nor do the names of the files.
        turned.iter_mut().enumerate().for_each(|(at, (file, _))| *file = format!("{}.toml", 9 - at));
        let (one, other) = (applied(&set(), &of(&files)), applied(&set(), &of(&turned)));
        prop_assert_eq!(one.hash().unwrap(), other.hash().unwrap());
        prop_assert_eq!(Effective::of(&one, &host), Effective::of(&other, &host));
        for resolved in Effective::of(&one, &host).preferences {
            let rank = |origin: &Origin| match origin {
                Origin::Default => 0,
                Origin::Fleet => 1,
                Origin::Group(name) => 1 + one.groups.0[name].precedence,
                Origin::Owner(_) => u32::MAX,
            };
            let ranks: Vec<u32> =
                std::iter::once(&resolved.origin).chain(resolved.losers.iter().map(|(origin, _)| origin)).map(rank).collect();
            prop_assert!(ranks.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", ranks);
        }
    }

    #[test]
    fn r6_4_no_text_of_a_file_makes_its_reader_panic(text in "[a-z=\\[\\]\".#0-9\n ]{0,80}") {
        let _ = change(&[("a.toml", &text)]).groups(&set());
    }
}

#[test]
fn r6_10_a_group_may_name_the_key_that_signs_a_projects_programs() {
    let key = format!("sha256:{}", "ab".repeat(32));
    let file = |more: &str| {
        format!(
            "name = \"far\"\nprecedence = 7\nselector = \"\"\n[projects.far]\nurl = \"https://far.example.org/\"\n\
             account_key = \"abc\"\n{more}\n"
        )
    };
    let good = file(&format!("code_sign_key = \"{key}\""));
    let set_with = applied(&set(), &change(&[("far.toml", &good)]));
    let document = Effective::of(&set_with, &labels(&[])).document(&set_with);
    let far = document.projects.iter().find(|project| project.name == "far").unwrap();
    assert_eq!(far.code_sign_key.unwrap().to_string(), key);
    assert_eq!(crate::signed::values_of(&set_with)["groups.far.projects.far.code_sign_key"], key);
    let said = wrong(&set(), &[("far.toml", &file("code_sign_key = \"abc\""))]);
    assert!(
        said.contains("far.toml:7:17: projects.far.code_sign_key:") && said.contains("sha256:"),
        "{said}"
    );
    let alone = "name = \"a\"\nprecedence = 7\nselector = \"\"\n[projects.totient]\nshare = 1\n";
    let said = wrong(&set(), &[("a.toml", &format!("{alone}code_sign_key = \"{key}\"\n"))]);
    assert!(said.contains("`url` is missing beside `code_sign_key`"), "{said}");
}

#[test]
fn r6_4_a_group_may_take_types_of_resource_from_a_project_and_a_higher_one_gives_them_back() {
    let file = |name: &str, precedence: u32, selector: &str, said: &str| {
        format!(
            "name = \"{name}\"\nprecedence = {precedence}\nselector = \"{selector}\"\n[projects.totient]\n{said}\n"
        )
    };
    let low = file("gpus", 5, "", "without = [\"nvidia\", \"cpu\"]");
    let high = file("room", 9, "room=1", "without = []\nshare = 7");
    let changed = applied(&set(), &change(&[("low.toml", &low), ("high.toml", &high)]));
    let of = |names: &[&str]| {
        let projects = Effective::of(&changed, &labels(names)).document(&changed).projects;
        projects.into_iter().find(|project| project.name == "totient").unwrap()
    };
    assert_eq!(of(&[]).without.to_string(), "cpu, nvidia");
    assert_eq!((of(&["room=1"]).without.to_string(), of(&["room=1"]).share.get()), ("none".to_owned(), 7.0));
    let effective = Effective::of(&changed, &labels(&["room=1"]));
    assert_eq!(effective.without["totient"].losers[0].1.to_string(), "cpu, nvidia");
    let differ = crate::differences(&set(), &changed, &labels(&[]));
    let expected = ("projects.totient.without", "none", "cpu, nvidia", "group gpus");
    let said: Vec<_> = differ
        .iter()
        .map(|one| (one.key.as_str(), one.before.as_str(), one.after.as_str(), one.origin.as_str()))
        .collect();
    assert_eq!(said, [expected]);
    let signed = crate::signed::values_of(&changed);
    assert_eq!(signed["groups.gpus.projects.totient.without"], "cpu, nvidia");
    for (said, at) in
        [("without = [\"gpu\"]", "\"gpu\" is no resource type"), ("without = \"cpu\"", "expected a list")]
    {
        let problem = wrong(&set(), &[("a.toml", &file("a", 1, "", said))]);
        assert!(
            problem.contains("a.toml:5:11: projects.totient.without:") && problem.contains(at),
            "{problem}"
        );
    }
}
