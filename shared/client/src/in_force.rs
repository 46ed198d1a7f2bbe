//! Which preferences are in force, and where each comes from (R6.4): what the document, the owner and the
//! files of the host say, put together in the order that `fallow-preferences` has.
//!
//! Not stored: files are read anew at each start, and what a project's web site says is stored with the
//! project. A file that cannot be read may have been the one that forbids: until it can, nothing computes.

use std::collections::BTreeMap;

use fallow_boinc::scheduler::PreferenceFile;
use fallow_domain::agent_state::OwnerWord;
use fallow_domain::{Bytes, FleetDocument, Fraction, Instant, MasterUrl, OwnerLimits};
use fallow_preferences::{InForce, Origin, Place, Said, Source, in_force, of_site};

use crate::machine::Client;
use crate::state::{Meta, Project};
use crate::timers::Timer;
use crate::{Entity, NoticeLevel};

/// What the files of a host say, as far as there are any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreferenceFiles {
    /// The owner's file.
    pub owner: Option<Said>,
    /// `global_prefs_override.xml`.
    pub overrides: Option<Said>,
    /// `cc_config.xml`.
    pub client_config: Option<Said>,
    /// What cannot be read, and why: computing is suspended meanwhile.
    pub troubles: Vec<String>,
}

/// What is said beside the document and the owner's commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    files: PreferenceFiles,
    site: Option<(MasterUrl, Option<String>, Said)>,
}

impl Sources {
    /// What of the files cannot be read.
    pub(crate) fn troubles(&self) -> &[String] {
        &self.files.troubles
    }

    /// What is in force by all of them.
    pub(crate) fn in_force(&self, meta: &Meta) -> InForce {
        let mut all = Vec::new();
        let document = meta.document.as_ref();
        if let (Some((url, venue, said)), None) = (&self.site, document) {
            let origin = Origin::Site { url: url.clone(), venue: venue.clone() };
            all.push(Source::says(origin, said.clone()));
        }
        if let Some(document) = document {
            let whole = Said::of_document(&document.preferences);
            all.push(Source::says(Origin::Document(document.version), whole));
        }
        if let Some(said) = self.files.overrides.clone() {
            all.push(match document {
                None => Source::says(Origin::Override, said),
                Some(_) => Source::limits(Origin::Override, said),
            });
        }
        if let Some(said) = self.files.client_config.clone() {
            all.push(Source::limits(Origin::ClientConfig, said));
        }
        let commands = Said::of_owner(&meta.owner);
        if !commands.is_empty() {
            all.push(Source::limits(Origin::Command, commands));
        }
        if let Some(said) = self.files.owner.clone() {
            all.push(Source::limits(Origin::OwnerFile, said));
        }
        in_force(&all)
    }

    /// What the owner takes away from a coordinator's document: by commands and by the files of the host.
    pub(crate) fn owner_limits(&self, meta: &Meta) -> OwnerLimits {
        let PreferenceFiles { owner, overrides, client_config, .. } = &self.files;
        let overrides = overrides.as_ref().filter(|_| meta.document.is_some());
        let files = [overrides, client_config.as_ref(), owner.as_ref()];
        files.into_iter().flatten().fold(meta.owner.clone(), |mut limits, said| {
            limits.suspended |= said.suspended == Some(true);
            let fractions = [
                (&mut limits.cpu_fraction, said.cpu_fraction),
                (&mut limits.cpu_time_fraction, said.cpu_time_fraction),
                (&mut limits.memory_fraction, said.memory_fraction),
                (&mut limits.disk_fraction, said.disk_fraction),
            ];
            for (limit, said) in fractions {
                let is_tighter = |said: &Fraction| limit.is_none_or(|limit| *said < limit);
                *limit = said.filter(is_tighter).or(*limit);
            }
            limits.excluded_devices.extend(said.excluded_devices.iter().flatten().copied());
            limits
        })
    }

    /// What he says in all, by what all sources come to. Which programs he names stays with him: what runs on
    /// his machine is his affair.
    pub(crate) fn owner_word(merged: &InForce, document: Option<&FleetDocument>) -> Option<OwnerWord> {
        let said = merged.entries.iter().filter(|entry| {
            let others = entry.others.iter().map(|other| &other.place);
            others.chain([&entry.place]).any(|place| is_owners(&place.origin))
        });
        let said = u32::try_from(said.count()).unwrap_or(u32::MAX);
        // Of programs it is told that he names some also where the document names the same: else it could be
        // found out by asking which.
        let mut places: BTreeMap<String, String> = merged
            .entries
            .iter()
            .filter_map(|entry| {
                let others = entry.others.iter().map(|other| &other.place);
                let mut all = std::iter::once(&entry.place).chain(others);
                let is_his = is_owners(&entry.place.origin) || NAMING_PROGRAMS.contains(&entry.key);
                let place = all.find(|place| is_his && is_owners(&place.origin))?;
                Some((entry.key.to_owned(), place_of_owner(entry.key, place)))
            })
            .collect();
        // With a limit of his goes the time that he means, whatever a document says of that without a limit.
        let limit = places.get("transfer_max").cloned();
        if let Some(place) =
            limit.filter(|_| document.is_some_and(|one| one.preferences.local.transfer_max.is_none()))
        {
            places.entry("transfer_period".to_owned()).or_insert(place);
        }
        let word = move || {
            let mut preferences = merged.values.fleet.clone();
            let asked = document.map(|document| document.preferences.local.clone()).unwrap_or_default();
            preferences.local.exclusive_programs = asked.exclusive_programs;
            preferences.local.exclusive_gpu_programs = asked.exclusive_gpu_programs;
            OwnerWord { said, preferences, places }
        };
        (said > 0).then(word)
    }

    pub(crate) fn set_files(&mut self, files: PreferenceFiles) -> bool {
        let is_new = self.files != files;
        self.files = files;
        is_new
    }

    pub(crate) fn set_site(&mut self, site: Option<(MasterUrl, Option<String>, Said)>) -> bool {
        let is_new = self.site != site;
        self.site = site;
        is_new
    }
}

/// Keys of preferences of which others hear that the owner says them, and not which programs he names.
pub const NAMING_PROGRAMS: [&str; 2] = ["exclusive_programs", "exclusive_gpu_programs"];

/// Whether the host's owner has the word there: nobody else can change what its files say.
const fn is_owners(origin: &Origin) -> bool {
    matches!(origin, Origin::Override | Origin::ClientConfig | Origin::Command | Origin::OwnerFile)
}

/// Where he says it, for somebody who knows already that it is he.
fn place_of_owner(key: &str, place: &Place) -> String {
    match place.origin {
        Origin::Command => "suspend or exclude".to_owned(),
        _ if NAMING_PROGRAMS.contains(&key) => format!("{place}, names not told"),
        _ => place.to_string(),
    }
}

impl Client {
    /// The preferences in force with where they come from, whatever time it is and whoever uses the host.
    pub fn preferences_in_force(&self) -> &InForce {
        self.state.host.merged()
    }

    /// What the preferences in force come to together where nobody can have meant that, a line for each
    /// (R6.4): nothing of input where nobody looks for it.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        self.state.host.cautions()
    }

    /// The most that may be sent to projects and fetched from them in a second.
    pub fn rates_max(&self) -> (Option<Bytes>, Option<Bytes>) {
        let local = self.local_preferences();
        (local.upload_max, local.download_max)
    }

    /// What of the host's preference files cannot be read, so that nothing computes.
    pub fn preference_troubles(&self) -> &[String] {
        self.state.host.preference_troubles()
    }

    /// The files of the host were read.
    pub(crate) fn preference_files_read(&mut self, files: PreferenceFiles) {
        let (now, troubles) = (self.now(), files.troubles.clone());
        let Some(found) = self.state.host.set_files(files, now) else { return };
        // Before the start all is worked out anyway once the host was measured.
        if self.state.host.facts().is_some() {
            self.bar_projects();
            self.see_to(found);
            self.preferences_may_differ();
            self.spare_tasks();
        }
        for trouble in troubles {
            let text = format!(
                "nothing is computed until this preference file is mended and taken (fallow-agent preferences reload): {trouble}"
            );
            self.notice(NoticeLevel::Error, None, text);
        }
    }

    /// What users set on projects' web sites may be something else than before, or of another project.
    pub(crate) fn site_preferences_changed(&mut self) {
        let now = self.now();
        let projects = self.state.projects.values();
        let newest = projects.filter_map(|project| Some((project, site_file(project, now)?))).max_by(
            |(one, first), (other, second)| {
                let edited = |file: &PreferenceFile| file.values.mod_time;
                // The project that was attached first, of several.
                edited(first).total_cmp(&edited(second)).then(other.id.cmp(&one.id))
            },
        );
        let mut notes = Vec::new();
        let site = newest.map(|(project, file)| {
            let said = of_site(&file, &mut |note| notes.push((project.id, note)));
            (project.url.clone(), file.venue, said)
        });
        let Some(found) = self.state.host.set_site(site, now) else { return };
        self.see_to(found);
        self.preferences_may_differ();
        // What a user set on a web site is no document's doing.
        self.spare_tasks();
        for (project, note) in notes {
            self.notice(NoticeLevel::Warn, Some(project), format!("preferences of its web site: {note}"));
        }
    }

    /// Whoever changed them: what a document changes is judged by its trial, which goes on.
    pub(crate) fn preferences_may_differ(&mut self) {
        self.judge_heat();
        self.timers.all_stale([Timer::InUse, Timer::Hours, Timer::Connection, Timer::Transfer]);
        self.touch(Entity::Host);
    }
}

/// What a project's web site says, if it says anything that can be read. What was edited in the future was
/// edited when it came (the stock client likewise): it does not stay newer than what is edited later.
fn site_file(project: &Project, now: Instant) -> Option<PreferenceFile> {
    let identity = &project.identity;
    if identity.global_preferences.is_empty() {
        return None;
    }
    let mut file = PreferenceFile::of_reply(&identity.global_preferences, &identity.venue).ok()?;
    let edited = file.values.mod_time;
    let came = identity.global_preferences_at.unwrap_or(now).min(now);
    file.values.mod_time = if edited.is_nan() { 0.0 } else { edited.min(came.as_secs_f64()) };
    Some(file)
}
