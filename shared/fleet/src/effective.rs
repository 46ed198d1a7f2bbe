//! What one host is asked for, value by value, with where each comes from and what it prevailed over.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::agent_state::OwnerWord;
use fallow_domain::{
    FleetDocument, Labels, MasterUrl, OwnerLimits, Preferences, ProjectAssignment, ResourceTypes, Share,
};
use serde::{Deserialize, Serialize};

use crate::{DocumentSet, GroupName, Preference};

/// Who said a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: it is built in. So are values of the fleet-wide document that are the built-in ones.
    Default,
    /// The fleet-wide document.
    Fleet,
    /// A group.
    Group(GroupName),
    /// The owner of the host, whose limits only tighten; with where he says it, if that is known.
    Owner(Option<String>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Fleet => f.write_str("fleet"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Owner(None) => f.write_str("owner"),
            Self::Owner(Some(place)) => write!(f, "owner ({place})"),
        }
    }
}

/// What is wanted of a project.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// To be attached, with this weight.
    Share(Share),
    /// Not to be attached.
    Absent,
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "share {}", share.get()),
            Self::Absent => f.write_str("absent"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved<T> {
    /// The value that holds.
    pub value: T,
    /// Who said it.
    pub origin: Origin,
    /// What others said, the highest first.
    pub losers: Vec<(Origin, T)>,
}

impl<T> Resolved<T> {
    fn new(origin: Origin, value: T) -> Self {
        Self { value, origin, losers: Vec::new() }
    }

    /// With a value of something higher.
    fn prevail(&mut self, origin: Origin, value: T) {
        let lost = (std::mem::replace(&mut self.origin, origin), std::mem::replace(&mut self.value, value));
        self.losers.insert(0, lost);
    }
}

/// A higher layer's word on a project.
fn say<T>(said: &mut BTreeMap<String, Resolved<T>>, project: &str, origin: Origin, value: T) {
    match said.get_mut(project) {
        Some(resolved) => resolved.prevail(origin, value),
        None => drop(said.insert(project.to_owned(), Resolved::new(origin, value))),
    }
}

/// What one host is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// Projects by their names.
    pub projects: BTreeMap<String, Resolved<Wish>>,
    /// The types of which no jobs are asked for, by the projects of which somebody says so.
    pub without: BTreeMap<String, Resolved<ResourceTypes>>,
    /// Every preference, in the order of [`crate::PREFERENCE_KEYS`].
    pub preferences: Vec<Resolved<Preference>>,
}

impl Effective {
    /// What a host with these labels is asked for.
    #[must_use]
    pub fn of(set: &DocumentSet, labels: &Labels) -> Self {
        let mut effective = Self::of_fleet(&set.fleet);
        for (name, group) in set.groups.of(labels) {
            let origin = || Origin::Group(name.clone());
            for (project, said) in &group.projects {
                if let Some(wish) = said.wish {
                    say(&mut effective.projects, project, origin(), wish);
                }
                if let Some(without) = &said.without {
                    say(&mut effective.without, project, origin(), without.clone());
                }
            }
            for said in &group.preferences {
                effective.prevail(origin(), said.clone());
            }
        }
        effective
    }

    fn of_fleet(fleet: &FleetDocument) -> Self {
        let wish = |project: &ProjectAssignment| {
            (project.name.clone(), Resolved::new(Origin::Fleet, Wish::Share(project.share)))
        };
        let without = |project: &ProjectAssignment| {
            (project.name.clone(), Resolved::new(Origin::Fleet, project.without.clone()))
        };
        let built_in = Preference::all_of(&Preferences::default());
        let mut effective = Self {
            projects: fleet.projects.iter().map(wish).collect(),
            without: fleet
                .projects
                .iter()
                .filter(|project| !project.without.is_empty())
                .map(without)
                .collect(),
            preferences: built_in.into_iter().map(|one| Resolved::new(Origin::Default, one)).collect(),
        };
        effective.differ(&Origin::Fleet, &fleet.preferences);
        effective
    }

    fn prevail(&mut self, origin: Origin, said: Preference) {
        if let Some(resolved) = self.preferences.iter_mut().find(|one| one.value.key() == said.key()) {
            resolved.prevail(origin, said);
        }
    }

    /// Takes those of these preferences over that differ from what holds.
    fn differ(&mut self, origin: &Origin, preferences: &Preferences) {
        for said in Preference::all_of(preferences) {
            if !self.preferences.iter().any(|one| one.value == said) {
                self.prevail(origin.clone(), said);
            }
        }
    }

    /// The same under the limits of the host's owner: what they tighten is the owner's.
    #[must_use]
    pub fn tightened(mut self, owner: &OwnerLimits) -> Self {
        let tightened = self.preferences().tightened(owner);
        self.differ(&Origin::Owner(None), &tightened);
        self
    }

    /// The same by all that the owner says beside this document, where the host follows it already.
    #[must_use]
    pub fn by_owner(mut self, word: &OwnerWord) -> Self {
        let said = Preference::all_of(&word.preferences).into_iter();
        let owners = said.filter_map(|one| Some((word.places.get(one.key())?, one)));
        for (place, said) in owners {
            let origin = Origin::Owner(Some(place.clone()));
            match self.preferences.iter_mut().find(|one| one.value.key() == said.key()) {
                // It is known already by his limits. Of programs he tells only that he names some: there it
                // stays to be seen who says what is shown.
                Some(known) if known.value == said && matches!(known.origin, Origin::Owner(_)) => {
                    known.origin = origin;
                }
                Some(known) => known.prevail(origin, said),
                None => {}
            }
        }
        self
    }

    /// The same without the projects that the owner of the host detached.
    #[must_use]
    pub fn without(mut self, declined: &[MasterUrl], set: &DocumentSet) -> Self {
        for (name, resolved) in &mut self.projects {
            let is_declined = set.place(name).is_some_and(|place| declined.contains(&place.url));
            if is_declined && resolved.value != Wish::Absent {
                resolved.prevail(Origin::Owner(None), Wish::Absent);
            }
        }
        self
    }

    /// The values of all preferences.
    #[must_use]
    pub fn preferences(&self) -> Preferences {
        let mut preferences = Preferences::default();
        self.preferences.iter().for_each(|one| one.value.clone().put_in(&mut preferences));
        preferences
    }

    /// As the document that the host is sent: projects of the fleet-wide document in its order, then others
    /// by their names.
    #[must_use]
    pub fn document(&self, set: &DocumentSet) -> FleetDocument {
        let wanted = |name: &str| match self.projects.get(name)?.value {
            Wish::Share(share) => Some(share),
            Wish::Absent => None,
        };
        let without = |name: &str| self.without.get(name).map(|said| said.value.clone()).unwrap_or_default();
        let own = set.fleet.projects.iter().filter_map(|project| {
            let share = wanted(&project.name)?;
            Some(ProjectAssignment { share, without: without(&project.name), ..project.clone() })
        });
        let is_foreign = |name: &str| set.fleet.projects.iter().all(|project| project.name != name);
        let foreign = self.projects.keys().filter(|name| is_foreign(name)).filter_map(|name| {
            let (share, place) = (wanted(name)?, set.place(name)?);
            Some(ProjectAssignment {
                name: name.clone(),
                url: place.url,
                account_key: place.account_key,
                share,
                code_sign_key: place.code_sign_key,
                without: without(name),
            })
        });
        FleetDocument {
            content: String::new(),
            version: set.fleet.version,
            projects: own.chain(foreign).collect(),
            preferences: self.preferences(),
        }
    }
}
