//! A group's file, TOML:
//!
//! ```toml
//! name = "room-12"
//! precedence = 20
//! selector = "room=12, os in (linux)"
//!
//! [projects.totient]
//! share = 20
//!
//! without = ["nvidia"]
//!
//! [projects.mersenne]
//! absent = true
//!
//! [preferences]
//! cpu_fraction = "50%"
//! excluded_devices = ["nvidia:0"]
//! ```
//! What a file leaves out stays as lower layers have it.

use std::collections::BTreeMap;

use fallow_config::{
    BadValue, Diagnostic, Fields, FromValue, Problem, Section, Source, Walk, text, unexpected,
};
use fallow_domain::{AccountKey, Invalid, KeyFingerprint, LabelName, MasterUrl, ResourceTypes, Share};
use toml::de::DeValue;

use crate::effective::Wish;
use crate::group::{Foreign, Group, GroupName, PRECEDENCE_MAX, ProjectWish};
use crate::{PREFERENCE_KEYS, Preference, Selector};

const FILE: Section =
    Section { title: "the file", keys: &["name", "precedence", "selector", "projects", "preferences"] };
const PROJECT: Section = Section {
    title: "[projects.NAME]",
    keys: &["share", "absent", "without", "url", "account_key", "code_sign_key"],
};
const PREFERENCES: Section = Section { title: "[preferences]", keys: PREFERENCE_KEYS };
const SECTIONS: &[&Section] = &[&FILE, &PROJECT, &PREFERENCES];

/// Characters of an account key at most, as on the fleet link.
const KEY_MAX: usize = 256;

/// A file that is being read: what it says, as far as it makes sense, and what is wrong with it.
pub(crate) struct GroupFile<'s> {
    walk: Walk<'s>,
    /// The group, if the file has a name for it.
    pub(crate) group: Option<(GroupName, Group)>,
}

impl<'s> GroupFile<'s> {
    pub(crate) fn read(source: Source<'s>) -> Self {
        let mut walk = Walk::new(source, SECTIONS).hiding(&["account_key"]);
        let table = walk.parse();
        let group = table.and_then(|table| {
            let fields = walk.fields(String::new(), table.get_ref(), &FILE);
            let name = walk.require(&fields, "name", "a name, such as name = \"room-12\"");
            let precedence = precedence(&mut walk, &fields);
            let such = "which hosts it is for, such as selector = \"room=12\"; \"\" is for every host";
            let selector = walk.require(&fields, "selector", such).unwrap_or_default();
            let projects = projects(&mut walk, &fields);
            let preferences = preferences(&mut walk, &fields);
            Some((name?, Group { precedence, selector, projects, preferences }))
        });
        Self { walk, group }
    }

    /// Notes something about a key.
    pub(crate) fn error(&mut self, key: &str, reason: &str, expected: &str) {
        self.walk.error(key, reason, expected);
    }

    /// Everything that is wrong with it.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        self.walk.finish(Vec::<Problem>::new())
    }
}

fn precedence(walk: &mut Walk<'_>, fields: &Fields<'_, '_>) -> u32 {
    let expected = format!("a whole number from 1 to {PRECEDENCE_MAX}: the higher one prevails");
    let given: Option<u64> =
        walk.require(fields, "precedence", &format!("{expected}, such as precedence = 20"));
    let number =
        given.and_then(|number| u32::try_from(number).ok()).filter(|n| (1..=PRECEDENCE_MAX).contains(n));
    if let (Some(given), None) = (given, number) {
        walk.error("precedence", format!("{given} is no precedence"), expected);
    }
    number.unwrap_or_default()
}

fn projects(walk: &mut Walk<'_>, fields: &Fields<'_, '_>) -> BTreeMap<String, ProjectWish> {
    let mut projects = BTreeMap::new();
    for (name, project) in walk.named_tables(fields, "projects", &PROJECT) {
        if let Err(Invalid { expected, .. }) = name.parse::<LabelName>() {
            walk.error(&project.path, format!("{name:?} is no name of a project"), expected);
        }
        if let Some(wish) = project_wish(walk, &project) {
            projects.insert(name, wish);
        }
    }
    projects
}

fn project_wish(walk: &mut Walk<'_>, project: &Fields<'_, '_>) -> Option<ProjectWish> {
    let share: Option<f64> = walk.get(project, "share");
    let absent: Option<bool> = walk.get(project, "absent");
    let without: Option<Types> = walk.get(project, "without");
    let foreign = foreign(walk, project);
    let has = |walk: &Walk<'_>, key| walk.has(&project.path_of(key));
    if has(walk, "share") && has(walk, "absent") {
        walk.error(&project.path_of("absent"), "both share and absent are said", "one of them");
    }
    let is_foreign = has(walk, "url") || has(walk, "account_key");
    let wish = match (share, absent) {
        (Some(share), _) => match Share::given(share) {
            Ok(share) => Some(Wish::Share(share)),
            Err(Invalid { given, expected, .. }) => {
                walk.error(&project.path_of("share"), format!("{given} is no share"), expected);
                return None;
            }
        },
        (None, Some(true)) => Some(Wish::Absent),
        (None, _) if is_foreign && !has(walk, "absent") => Some(Wish::Share(Share::DEFAULT)),
        (None, None) if without.is_some() && !has(walk, "share") => None,
        (None, _) => {
            if !walk.complained_of(&project.path) {
                walk.error(
                    &project.path,
                    "nothing is said of the project",
                    "share = NUMBER, absent = true or without = [\"nvidia\"]",
                );
            }
            return None;
        }
    };
    Some(ProjectWish { wish, without: without.map(|types| types.0), foreign })
}

fn foreign(walk: &mut Walk<'_>, project: &Fields<'_, '_>) -> Option<Foreign> {
    let url: Option<Url> = walk.get(project, "url");
    let key: Option<Key> = walk.get(project, "account_key");
    for (has, lacks) in [("url", "account_key"), ("account_key", "url")] {
        if walk.has(&project.path_of(has)) && !walk.has(&project.path_of(lacks)) {
            let reason = format!("`{lacks}` is missing beside `{has}`");
            walk.error(&project.path_of(has), reason, "both, for a project that is not the fleet's own");
        }
    }
    let code_sign_key: Option<Fingerprint> = walk.get(project, "code_sign_key");
    if walk.has(&project.path_of("code_sign_key")) && !walk.has(&project.path_of("url")) {
        let reason = "`url` is missing beside `code_sign_key`";
        walk.error(
            &project.path_of("code_sign_key"),
            reason,
            "all three, for a project that is not the fleet's own",
        );
    }
    let code_sign_key = code_sign_key.map(|fingerprint| fingerprint.0);
    Some(Foreign { url: url?.0, account_key: key?.0, code_sign_key })
}

fn preferences(walk: &mut Walk<'_>, fields: &Fields<'_, '_>) -> Vec<Preference> {
    let Some(table) = walk.table(fields, "preferences", &PREFERENCES) else { return Vec::new() };
    let mut said = Vec::new();
    for key in PREFERENCE_KEYS {
        let Some(preference) = Preference::read(walk, &table, key) else { continue };
        match preference.check() {
            Ok(()) => said.push(preference),
            Err(wrong) => {
                walk.error(&table.path_of(key), wrong.problem(), wrong.expected);
            }
        }
    }
    said
}

impl FromValue for GroupName {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        parsed(value, "a name in quotes")
    }
}

impl FromValue for Selector {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        parsed(value, "a selector in quotes, such as \"room=12\"")
    }
}

struct Url(MasterUrl);

impl FromValue for Url {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a project's URL in quotes, such as \"https://einstein.phys.uwm.edu/\"";
        MasterUrl::parse(text(value, expected)?).map(Self).map_err(|_| unexpected(value, expected))
    }
}

struct Types(ResourceTypes);

impl FromValue for Types {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a list of cpu, nvidia, amd, intel, apple, such as [\"nvidia\", \"amd\"]";
        let bad = || unexpected(value, expected);
        let names = value.as_array().ok_or_else(bad)?.iter();
        let names: Vec<&str> =
            names.map(|name| name.get_ref().as_str().ok_or_else(bad)).collect::<Result<_, _>>()?;
        ResourceTypes::from_names(names).map(Self).map_err(|Invalid { what, given, .. }| BadValue {
            problem: format!("{given:?} is no {what}"),
            expected: expected.to_owned(),
            suggestion: None,
        })
    }
}

struct Fingerprint(KeyFingerprint);

impl FromValue for Fingerprint {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let expected = "a key's fingerprint in quotes: \"sha256:\" and 64 hexadecimal digits";
        text(value, expected)?.parse().map(Self).map_err(|_| unexpected(value, expected))
    }
}

struct Key(AccountKey);

impl FromValue for Key {
    fn from_value(value: &DeValue<'_>) -> Result<Self, BadValue> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let bad = || BadValue {
            // The key itself is a secret.
            problem: "this is no account key".to_owned(),
            expected: "1 to 256 letters, digits, '_' and '-', in quotes".to_owned(),
            suggestion: None,
        };
        let key = value.as_str().ok_or_else(bad)?;
        let is_key = (1..=KEY_MAX).contains(&key.len()) && key.chars().all(fits);
        is_key.then(|| Self(AccountKey::new(key))).ok_or_else(bad)
    }
}

fn parsed<T: std::str::FromStr<Err = Invalid>>(value: &DeValue<'_>, expected: &str) -> Result<T, BadValue> {
    text(value, expected)?.parse().map_err(|Invalid { what, given, expected }| BadValue {
        problem: format!("{given:?} is no {what}"),
        expected: expected.to_owned(),
        suggestion: None,
    })
}
