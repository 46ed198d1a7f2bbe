//! A project's applications and their versions, held in memory: there are few, and every request looks at them.

use std::collections::BTreeMap;

use fallow_boinc::runtime::slot_names::{Owner, SlotNames};
use fallow_domain::{PerType, ResourceType};

use super::error::ProjectError;
use super::keys::Keys;
use super::records::{App, Version};
use super::txn::{Txn, decode};

/// All applications and the newest version of each for each platform and resource type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) apps: BTreeMap<String, App>,
    newest: BTreeMap<String, BTreeMap<(String, ResourceType), Version>>,
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
        let place = (version.platform.clone(), version.kind());
        match of_app.get(&place) {
            Some(known) if known.version >= version.version => {}
            _ => drop(of_app.insert(place, version)),
        }
    }

    /// The platforms that there is anything for.
    pub(crate) fn platforms(&self) -> impl Iterator<Item = &str> {
        self.platforms.keys().map(String::as_str)
    }

    pub(crate) fn knows_platform(&self, platform: &str) -> bool {
        self.platforms.contains_key(platform)
    }

    /// Whether there is any version of the application.
    pub(crate) fn runs(&self, application: &str) -> bool {
        self.newest.contains_key(application)
    }

    /// The names under which the files of an application lie beside those of its jobs, whichever version it is.
    pub(crate) fn slot_names(&self, application: &str) -> SlotNames {
        let mut names = SlotNames::of(Owner::Application);
        let versions = self.newest.get(application).into_iter().flat_map(BTreeMap::values);
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
        let of_app = self.newest.get(application)?;
        platforms.iter().find_map(|platform| of_app.get(&(platform.clone(), kind)))
    }

    /// For which resource types there is any version of an application, on whichever platform.
    pub(crate) fn types_of(&self, application: &str) -> PerType<bool> {
        let mut types = PerType::default();
        for (_, kind) in self.newest.get(application).into_iter().flat_map(BTreeMap::keys) {
            types[*kind] = true;
        }
        types
    }

    /// For which resource types there is any version for these platforms (R3.12).
    pub(crate) fn types(&self, platforms: &[String]) -> PerType<bool> {
        let there = self.newest.values().flat_map(BTreeMap::keys);
        let mut types = PerType::default();
        for (_, kind) in there.filter(|(platform, _)| platforms.contains(platform)) {
            types[*kind] = true;
        }
        types
    }
}
