//! Adding a version of an application: its files are copied, fingerprinted and signed, or come with their
//! signatures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fallow_boinc::names::api_version;
use fallow_boinc::runtime::slot_names::{Owner, SlotClash, SlotNames};
use fallow_boinc::signature::md5_hex;
use fallow_daemon::lock;
use fallow_domain::{Invalid, Usage};

use super::catalog::Catalog;
use super::error::ProjectError;
use super::index;
use super::layout::{leave_space, write_whole};
use super::names::{PLAIN_RULE, is_plain};
use super::operator_types::NewAppVersion;
use super::project::Project;
use super::records::{App, Version, VersionFile, plan_class};
use super::store_keys::tail;
use super::submit::check_beside;
use super::txn::decode;
use super::workunit::Workunit;

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
/// Records that are read at a time.
const PAGE: usize = 1_000;

impl Project {
    /// Registers a version and gives the names of its files in the download directory.
    pub(crate) fn add_app_version(&self, new: &NewAppVersion) -> Result<Vec<String>, ProjectError> {
        check(new)?;
        let _alone = lock(&self.publishing);
        let plan_class = plan_class(new.usage);
        let key = self.keys.version(&new.application, &new.platform, new.version, plan_class);
        if self.read().contains(&key)? {
            return Err(ProjectError::VersionExists {
                application: new.application.clone(),
                version: new.version,
                platform: new.platform.clone(),
            });
        }
        let names = names(new)?;
        let mut in_slot = SlotNames::of(Owner::Application);
        names.iter().try_for_each(|names| in_slot.add(names.in_slot()))?;
        self.check_slot(new, &in_slot)?;
        let taken = self.published()?;
        let mut version = Version {
            application: new.application.clone(),
            version: new.version,
            platform: new.platform.clone(),
            api_version: None,
            files: Vec::new(),
            usage: new.usage,
            needs_network: new.needs_network,
        };
        let signatures = new.signatures.iter().map(String::as_str).chain(std::iter::repeat(""));
        for ((path, names), signature) in new.files.iter().zip(names).zip(signatures) {
            let content = read_bounded(path)?;
            let is_program = names.open_name.is_none();
            if is_program {
                version.api_version = api_version(&content).map(str::to_owned);
            }
            // A client makes a file executable only if told so; of several, it must know which.
            let executable = is_program || is_executable(path);
            version.files.push(self.publish(names, executable, (&content, signature), &taken)?);
        }
        let app = App {
            name: new.application.clone(),
            friendly_name: match new.friendly_name.as_str() {
                "" => new.application.clone(),
                friendly => friendly.to_owned(),
            },
        };
        // Files are on the medium: submissions, which count on names in slots, wait for a moment only.
        let _no_workunit_meanwhile = lock(&self.adding);
        self.check_slot(new, &in_slot)?;
        self.transact_durably(|txn| {
            txn.leave_space_to_hosts();
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

    /// Refuses files that have no place of their own in a slot: beside each other, beside those of the
    /// client, and beside those of workunits whose jobs may yet run with this version, whose names are
    /// counted.
    fn check_slot(&self, new: &NewAppVersion, in_slot: &SlotNames) -> Result<(), ProjectError> {
        for is_output in [false, true] {
            let (prefix, mut after) = (self.keys.open_names(&new.application, is_output), None);
            loop {
                let page = self.read().scan(&prefix, after.as_deref(), PAGE)?;
                for (key, _) in &page {
                    if let Some((file, name)) = takes_place(in_slot, tail(key, &prefix), is_output)
                        && let Some(workunit) = self.open_workunit_with(&new.application, is_output, &name)?
                    {
                        return Err(ProjectError::TakesPlace { file, workunit, name });
                    }
                }
                match page.into_iter().next_back() {
                    Some((last, _)) => after = Some(last),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// The first open workunit of an application with a file of this name. Looks through all: for those who
    /// are told of it.
    fn open_workunit_with(
        &self,
        application: &str,
        is_output: bool,
        name: &str,
    ) -> Result<Option<String>, ProjectError> {
        let (prefix, mut after) = (self.keys.workunits(), None);
        loop {
            let page = self.read().scan(&prefix, after.as_deref(), PAGE)?;
            for (key, value) in &page {
                let workunit: Workunit = decode("workunit", key, value)?;
                if workunit.application == application
                    && index::open_names(&workunit).contains(&(is_output, name))
                {
                    return Ok(Some(workunit.name));
                }
            }
            match page.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                // It was decided since its name was found.
                None => return Ok(None),
            }
        }
    }

    fn publish(
        &self,
        Names { name, open_name }: Names,
        executable: bool,
        (content, signature): (&[u8], &str),
        taken: &BTreeMap<String, String>,
    ) -> Result<VersionFile, ProjectError> {
        let md5 = md5_hex(content);
        // A file of that name that another version has signed never changes: clients hold it.
        if taken.get(&name).is_some_and(|other| *other != md5) {
            let expected =
                "a name that no other application of this version has for another content: rename it";
            let own_name = open_name.as_ref().unwrap_or(&name);
            return Err(Invalid::new("name of an application's file", own_name, expected).into());
        }
        let own_name = open_name.as_ref().unwrap_or(&name);
        let signature = self.signing_keys.signature(own_name, &md5, signature)?;
        leave_space(&self.layout.downloads(), content.len() as u64, 1)?;
        write_whole(&self.layout.download(&name), content, 0o644)?;
        Ok(VersionFile { name, open_name, executable, nbytes: content.len() as u64, signature, md5 })
    }
}

/// What a file of a version is called.
struct Names {
    /// In the download directory.
    name: String,
    /// Where the application opens it; the main program has none.
    open_name: Option<String>,
}

impl Names {
    /// What lies in the slot is called so. The main program has a name of its own there too, with BOINC's
    /// client.
    fn in_slot(&self) -> &str {
        self.open_name.as_ref().unwrap_or(&self.name)
    }
}

/// The names of a version's files, in their order.
fn names(new: &NewAppVersion) -> Result<Vec<Names>, Invalid> {
    let names_of = |(position, path): (usize, &PathBuf)| {
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
            return Err(Invalid::new("name of an application's file", own_name, PLAIN_RULE));
        }
        Ok(Names { name, open_name })
    };
    new.files.iter().enumerate().map(names_of).collect()
}

/// The file of an application that has no place beside a workunit's of this name, and that.
fn takes_place(in_slot: &SlotNames, name: &str, is_output: bool) -> Option<(String, String)> {
    let (input, output) = if is_output { (None, Some(name)) } else { (Some(name), None) };
    match check_beside(in_slot, input.into_iter(), output.into_iter()) {
        Err(SlotClash::Same { name, other, .. } | SlotClash::Inside { name, other, .. }) => {
            Some((other, name))
        }
        // What is no matter of this application's files.
        Err(SlotClash::Runtime { .. }) | Ok(()) => None,
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
