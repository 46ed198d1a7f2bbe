//! A project's applications and their versions, held in memory: there are few, and every request looks at them.

use std::collections::BTreeMap;

use super::error::ProjectError;
use super::keys::Keys;
use super::records::{App, Version};
use super::txn::{Txn, decode};

/// All applications and the newest version of each for each platform.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) apps: BTreeMap<String, App>,
    newest: BTreeMap<String, BTreeMap<String, Version>>,
    platforms: BTreeMap<String, u32>,
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
        let of_app = self.newest.entry(version.application.clone()).or_default();
        match of_app.get(&version.platform) {
            Some(known) if known.version >= version.version => {}
            _ => drop(of_app.insert(version.platform.clone(), version)),
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

    /// The newest version for the first of `platforms` that there is one for.
    pub(crate) fn version_for(&self, application: &str, platforms: &[String]) -> Option<&Version> {
        let of_app = self.newest.get(application)?;
        platforms.iter().find_map(|platform| of_app.get(platform))
    }
}
