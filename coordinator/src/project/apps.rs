//! Adding a version of an application: its files are copied, fingerprinted and signed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fallow_boinc::names::api_version;
use fallow_domain::{Invalid, Usage};

use super::catalog::Catalog;
use super::error::ProjectError;
use super::hosted::{Project, lock};
use super::keys::md5_hex;
use super::layout::write_whole;
use super::names::{PLAIN_RULE, is_plain};
use super::records::{App, Version, VersionFile, plan_class};
use super::txn::decode;
use super::types::NewAppVersion;

/// The largest file of an application. They are read into memory to be signed.
pub const APP_FILE_MAX: u64 = 1 << 30;
/// What BOINC's clients call the machines they run on; there are others, for rarer machines.
const PLATFORM_RULE: &str = "CPU-VENDOR-SYSTEM as BOINC clients name it, such as x86_64-pc-linux-gnu, \
    i686-pc-linux-gnu, aarch64-unknown-linux-gnu, arm-unknown-linux-gnueabihf, riscv64-unknown-linux-gnu, \
    x86_64-apple-darwin, arm64-apple-darwin, arm-android-linux-gnu or aarch64-android-linux-gnu; or windows_x86_64, \
    windows_intelx86, windows_arm64";
/// Those that do not have the form.
const OTHER_PLATFORMS: [&str; 3] = ["windows_x86_64", "windows_intelx86", "windows_arm64"];
/// Clients hold file names of this length.
const NAME_MAX: usize = 255;

impl Project {
    /// Registers a version and gives the names of its files in the download directory.
    pub(crate) fn add_app_version(&self, new: &NewAppVersion) -> Result<Vec<String>, ProjectError> {
        check(new)?;
        let _alone = lock(&self.adding);
        let plan_class = plan_class(new.usage);
        let key = self.keys.version(&new.application, &new.platform, new.version, plan_class);
        if self.read().contains(&key)? {
            return Err(ProjectError::VersionExists {
                application: new.application.clone(),
                version: new.version,
                platform: new.platform.clone(),
            });
        }
        let taken = self.published()?;
        let mut version = Version {
            application: new.application.clone(),
            version: new.version,
            platform: new.platform.clone(),
            api_version: None,
            files: Vec::new(),
            usage: new.usage,
        };
        for (position, path) in new.files.iter().enumerate() {
            let content = read_bounded(path)?;
            if position == 0 {
                version.api_version = api_version(&content).map(str::to_owned);
            }
            version.files.push(self.publish(new, position, path, &content, &taken)?);
        }
        let app = App {
            name: new.application.clone(),
            friendly_name: match new.friendly_name.as_str() {
                "" => new.application.clone(),
                friendly => friendly.to_owned(),
            },
        };
        self.transact_durably(|txn| {
            txn.put("application", self.keys.app(&app.name), &app)?;
            txn.put("application version", key, &version)
        })?;
        let mut catalog = Catalog::clone(&self.catalog());
        let names = version.files.iter().map(|file| file.name.clone()).collect();
        catalog.add_app(app);
        catalog.add_version(version);
        self.set_catalog(catalog);
        Ok(names)
    }

    /// The files of all versions there are, with their MD5.
    fn published(&self) -> Result<BTreeMap<String, String>, ProjectError> {
        let mut files = BTreeMap::new();
        for (key, value) in self.read().scan(&self.keys.versions(), None, usize::MAX)? {
            let version: Version = decode("application version", &key, &value)?;
            files.extend(version.files.into_iter().map(|file| (file.name, file.md5)));
        }
        Ok(files)
    }

    fn publish(
        &self,
        new: &NewAppVersion,
        position: usize,
        path: &Path,
        content: &[u8],
        taken: &BTreeMap<String, String>,
    ) -> Result<VersionFile, ProjectError> {
        let own_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (stem, open_name) = match position {
            0 => (new.application.as_str(), None),
            _ => (own_name, Some(own_name.to_owned())),
        };
        let mut name = format!("{stem}_{}.{:02}_{}", new.version / 100, new.version % 100, new.platform);
        if new.usage.coprocessor.is_some() {
            name = format!("{name}__{}", plan_class(new.usage));
        }
        if !is_plain(&name, NAME_MAX) {
            return Err(Invalid::new("name of an application's file", own_name, PLAIN_RULE).into());
        }
        let md5 = md5_hex(content);
        // A file of that name that another version has signed never changes: clients hold it.
        if taken.get(&name).is_some_and(|other| *other != md5) {
            let expected =
                "a name that no other application of this version has for another content: rename it";
            return Err(Invalid::new("name of an application's file", own_name, expected).into());
        }
        write_whole(&self.layout.download(&name), content, 0o644)?;
        Ok(VersionFile {
            name,
            open_name,
            // A client makes a file executable only if told so; of several, it must know which.
            executable: position == 0 || is_executable(path),
            nbytes: content.len() as u64,
            signature: self.keyring.sign_file(&md5)?,
            md5,
        })
    }
}

/// A name that clients can have: they send theirs, and get what is for it.
fn is_platform(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let is_part = |part: &&str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    };
    let has_form = (3..=4).contains(&parts.len()) && parts.iter().all(is_part) && is_plain(name, 64);
    OTHER_PLATFORMS.contains(&name) || has_form
}

fn check(new: &NewAppVersion) -> Result<(), Invalid> {
    let expected = "1 to 64 letters, digits, `-`, `_` and `.`";
    if !is_plain(&new.application, 64) {
        return Err(Invalid::new("application name", &new.application, expected));
    }
    if !is_platform(&new.platform) {
        return Err(Invalid::new("platform", &new.platform, PLATFORM_RULE));
    }
    if new.version == 0 {
        return Err(Invalid::new("application version", "0.0", "0.01 or more, such as 1.0"));
    }
    if new.friendly_name.len() > 200 || new.friendly_name.chars().any(char::is_control) {
        return Err(Invalid::new("friendly name", &new.friendly_name, "up to 200 bytes on one line"));
    }
    check_usage(new.usage)?;
    let mut names: Vec<_> = new.files.iter().map(|path| path.file_name()).collect();
    names.sort();
    names.dedup();
    if new.files.is_empty() || names.len() != new.files.len() {
        let expected = "at least one, the main program first, each with a name of its own";
        return Err(Invalid::new("number of files", new.files.len(), expected));
    }
    Ok(())
}

fn check_usage(usage: Usage) -> Result<(), Invalid> {
    let sane = |count: f64, most: f64| count.is_finite() && count >= 0.0 && count <= most;
    if !sane(usage.cpus, 1_000.0) || (usage.cpus == 0.0 && usage.coprocessor.is_none()) {
        return Err(Invalid::new("number of CPUs that a job uses", usage.cpus, "above 0, at most 1,000"));
    }
    match usage.coprocessor {
        Some((_, count)) if count == 0.0 || !sane(count, 64.0) => {
            Err(Invalid::new("number of coprocessors that a job uses", count, "above 0, at most 64"))
        }
        _ => Ok(()),
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ProjectError> {
    let metadata = fs::metadata(path).map_err(ProjectError::file("read", path))?;
    if metadata.is_dir() {
        return Err(Invalid::new("application file", path.display(), "a file, not a directory").into());
    }
    let size = metadata.len();
    if size > APP_FILE_MAX {
        return Err(Invalid::new("application file", path.display(), "at most 1 GiB").into());
    }
    fs::read(path).map_err(ProjectError::file("read", path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}
