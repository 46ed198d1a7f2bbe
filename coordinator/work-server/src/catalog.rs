//! A project's applications and their versions, held in memory: there are few, and every request looks at
//! them.

use std::collections::BTreeMap;

use fallow_boinc::runtime::slot_names::{Owner, SlotNames};
use fallow_domain::{PerType, ResourceType};

use super::error::ProjectError;
use super::records::{App, Version};
use super::store_keys::Keys;
use super::txn::{Txn, decode};

/// All applications and the newest version of each for each platform and resource type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) apps: BTreeMap<String, App>,
    /// By application, resource type and platform.
    newest: BTreeMap<String, PerType<BTreeMap<String, Version>>>,
    platforms: BTreeMap<String, u32>,
    /// Files of all versions: size and MD5, as signed.
    pub(crate) files: BTreeMap<String, (u64, String)>,
}

impl Catalog {
    pub(crate) fn load(txn: &Txn<'_>, keys: &Keys) -> Result<Self, ProjectError> {
        let mut catalog = Self::default();
        for (key, value) in txn.scan(&keys.apps(), None, usize::MAX)? {
            catalog.add_app(decode("application", &key, &value)?);
        }
        for (key, value) in txn.scan(&keys.versions(), None, usize::MAX)? {
            catalog.add_version(decode("application version", &key, &value)?);
        }
        Ok(catalog)
    }

    pub(crate) fn add_app(&mut self, app: App) {
        self.apps.insert(app.name.clone(), app);
    }

    /// Adds a version; it is used unless there is a newer one for its platform.
    pub(crate) fn add_version(&mut self, version: Version) {
        *self.platforms.entry(version.platform.clone()).or_default() += 1;
        let files = version.files.iter().map(|file| (file.name.clone(), (file.nbytes, file.md5.clone())));
        self.files.extend(files);
        let of_app = self.newest.entry(version.application.clone()).or_default();
        let of_type = &mut of_app[version.kind()];
        match of_type.get(&version.platform) {
            Some(known) if known.version >= version.version => {}
            _ => drop(of_type.insert(version.platform.clone(), version)),
        }
    }

    /// The platforms that there is anything for.
    pub(crate) fn platforms(&self) -> impl Iterator<Item = &str> {
        self.platforms.keys().map(String::as_str)
    }

    pub(crate) fn knows_platform(&self, platform: &str) -> bool {
        self.platforms.contains_key(platform)
    }

    /// The applications of which there is any version.
    pub(crate) fn applications(&self) -> impl Iterator<Item = &str> {
        self.newest.keys().map(String::as_str)
    }

    /// Whether there is any version of the application.
    pub(crate) fn runs(&self, application: &str) -> bool {
        self.newest.contains_key(application)
    }

    /// The names under which the files of an application lie beside those of its jobs, whichever version it
    /// is.
    pub(crate) fn slot_names(&self, application: &str) -> SlotNames {
        let mut names = SlotNames::of(Owner::Application);
        let of_app = self.newest.get(application).into_iter().flat_map(PerType::iter);
        let versions = of_app.flat_map(|(_, of_type)| of_type.values());
        // The main program has a name of its own there too, with BOINC's client.
        names.note(
            versions
                .flat_map(|version| &version.files)
                .map(|file| file.open_name.as_ref().unwrap_or(&file.name).as_str()),
        );
        names
    }

    /// The newest version for a resource type and the first of `platforms` that there is one for.
    pub(crate) fn version_for(
        &self,
        application: &str,
        platforms: &[String],
        kind: ResourceType,
    ) -> Option<&Version> {
        let of_type = &self.newest.get(application)?[kind];
        platforms.iter().find_map(|platform| of_type.get(platform))
    }

    /// For which resource types there is any version of an application, on whichever platform.
    pub(crate) fn types_of(&self, application: &str) -> PerType<bool> {
        let of_app = self.newest.get(application);
        PerType::from_fn(|kind| of_app.is_some_and(|of_app| !of_app[kind].is_empty()))
    }

    /// For which resource types there is any version for these platforms (R3.12).
    pub(crate) fn types(&self, platforms: &[String]) -> PerType<bool> {
        let runs =
            |of_type: &BTreeMap<String, Version>| platforms.iter().any(|name| of_type.contains_key(name));
        PerType::from_fn(|kind| self.newest.values().any(|of_app| runs(&of_app[kind])))
    }
}
