//! All documents of a fleet as one: what a version holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fallow_domain::{FleetDocument, ProjectAssignment, ResourceTypes, Share};
use serde::{Deserialize, Serialize};

use crate::{ContentHash, Foreign, GroupName, Groups, Origin};

/// Groups that a fleet may have.
pub const GROUPS_MAX: usize = 256;
/// Projects that a document may name; agents take no more.
const PROJECTS_MAX: usize = 1_000;

/// Names of projects that a problem lists.
const KNOWN_SAID: usize = 20;
/// Unknown projects of a group that are said.
const UNKNOWN_SAID: usize = 100;

/// The fleet-wide document and all groups. Versions are of the whole, so the number stands in the fleet-wide
/// document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DocumentSet {
    /// What every host is asked for. Stored under the name that it had when there were no groups.
    #[serde(rename = "document")]
    pub fleet: FleetDocument,
    /// What is different for some.
    #[serde(default)]
    pub groups: Groups,
}

/// What is wrong with a set, in which of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetProblem {
    /// The group.
    pub group: GroupName,
    /// The key in its file, such as `projects.totient`.
    pub key: String,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub expected: String,
}

impl fmt::Display for SetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}: {}: {}: expected {}", self.group, self.key, self.reason, self.expected)
    }
}

impl DocumentSet {
    /// Where a project is and which account is computed for, whoever names it.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<Foreign> {
        let own = self.fleet.projects.iter().find(|project| project.name == name);
        let own = own.map(|ProjectAssignment { url, account_key, code_sign_key, .. }| Foreign {
            url: url.clone(),
            account_key: account_key.clone(),
            code_sign_key: *code_sign_key,
        });
        own.or_else(|| self.groups.0.values().find_map(|group| group.projects.get(name)?.foreign.clone()))
    }

    /// Who says where a project is.
    #[must_use]
    pub fn origin_of_place(&self, name: &str) -> Option<Origin> {
        if self.fleet.projects.iter().any(|project| project.name == name) {
            return Some(Origin::Fleet);
        }
        let says = |group: &&GroupName| {
            self.groups.0[*group].projects.get(name).is_some_and(|said| said.foreign.is_some())
        };
        self.groups.0.keys().find(says).cloned().map(Origin::Group)
    }

    /// The projects that groups alone name, by their names, with the share that the whole fleet gives them:
    /// none.
    #[must_use]
    pub fn foreign(&self) -> Vec<ProjectAssignment> {
        let said = self.groups.0.values().flat_map(|group| &group.projects);
        let places: BTreeMap<_, _> =
            said.filter_map(|(name, said)| Some((name, said.foreign.as_ref()?))).collect();
        let assignment = |(name, place): (&String, &Foreign)| ProjectAssignment {
            name: name.clone(),
            url: place.url.clone(),
            account_key: place.account_key.clone(),
            share: Share::ZERO,
            code_sign_key: place.code_sign_key,
            without: ResourceTypes::default(),
        };
        places.into_iter().map(assignment).collect()
    }

    /// Everything that keeps the groups from meaning something together, whichever hosts are in them: unknown
    /// projects, projects that are said to be in two places, equal precedences.
    #[must_use]
    pub fn problems(&self) -> Vec<SetProblem> {
        let own: BTreeSet<&str> = self.fleet.projects.iter().map(|project| project.name.as_str()).collect();
        let mut places: BTreeMap<&str, (&GroupName, &Foreign)> = BTreeMap::new();
        let mut urls: BTreeMap<_, _> =
            self.fleet.projects.iter().map(|project| (&project.url, project.name.as_str())).collect();
        let mut problems = Vec::new();
        let problem = |group: &GroupName, key: String, reason: String, expected: String| SetProblem {
            group: group.clone(),
            key,
            reason,
            expected,
        };
        for (name, group) in &self.groups.0 {
            let equal = self
                .groups
                .0
                .iter()
                .find(|(other, said)| *other != name && said.precedence == group.precedence);
            if let Some((other, _)) = equal {
                let reason = format!("group {other} has precedence {} as well", group.precedence);
                let expected = "a number of its own: the higher one prevails".to_owned();
                problems.push(problem(name, "precedence".into(), reason, expected));
            }
            let foreign =
                group.projects.iter().filter_map(|(project, said)| Some((project, said.foreign.as_ref()?)));
            for (project, place) in foreign {
                let key = format!("projects.{project}.url");
                if own.contains(project.as_str()) {
                    let reason = format!("the fleet has a project {project:?} of its own");
                    problems.push(problem(name, key, reason, "another name, or its share alone".into()));
                    continue;
                }
                match places.insert(project, (name, place)) {
                    Some((other, there)) if there != place => {
                        let reason = format!(
                            "group {other} gives {project:?} another URL, account key or code-signing key"
                        );
                        problems.push(problem(name, key, reason, "the same in both, or in one alone".into()));
                        continue;
                    }
                    _ => {}
                }
                match urls.insert(&place.url, project) {
                    Some(other) if other != project => {
                        let reason = format!("{} is the URL of project {other:?} too", place.url);
                        problems.push(problem(
                            name,
                            key,
                            reason,
                            format!("one name for it, such as {other}"),
                        ));
                    }
                    _ => {}
                }
            }
        }
        let known: BTreeSet<&str> = own.iter().copied().chain(places.keys().copied()).collect();
        let mut listed: Vec<&str> = known.iter().copied().take(KNOWN_SAID).collect();
        if known.len() > KNOWN_SAID {
            listed.push("...");
        }
        let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
        for (name, group) in &self.groups.0 {
            // One that is found wrong so often has another fleet in mind.
            let unknown = group.projects.keys().filter(|project| !known.contains(project.as_str()));
            for project in unknown.take(UNKNOWN_SAID) {
                let expected =
                    format!("one of the fleet's (there is: {listed}), or url and account_key beside it");
                let reason = format!("there is no project {project:?} in the fleet");
                problems.push(problem(name, format!("projects.{project}"), reason, expected));
            }
        }
        if let Some((last, _)) = self.groups.0.last_key_value() {
            if self.groups.0.len() > GROUPS_MAX {
                let reason = format!("the fleet would have {} groups", self.groups.0.len());
                problems.push(problem(last, "name".into(), reason, format!("at most {GROUPS_MAX}")));
            }
            if known.len() > PROJECTS_MAX {
                let reason = format!("the fleet would have {} projects", known.len());
                problems.push(problem(last, "projects".into(), reason, format!("at most {PROJECTS_MAX}")));
            }
        }
        problems
    }

    /// The hash of what it says: the same content has the same hash, whatever its version.
    ///
    /// # Errors
    /// What the serialisation says, where a value cannot be written.
    pub fn hash(&self) -> Result<ContentHash, serde_json::Error> {
        let FleetDocument { version: _, content: _, projects, preferences } = &self.fleet;
        ContentHash::of(&(projects, preferences, &self.groups))
    }
}
