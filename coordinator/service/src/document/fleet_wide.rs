//! Shares and preferences of the whole fleet: changed, or only tried (R6.4, R6.5).

use std::collections::BTreeSet;

use fallow_domain::{DocumentVersion, FleetDocument, Instant, Preferences, Share, printable};
use fallow_fleet::{DocumentSet, Preference};

use super::{Author, DocumentError, Documents, Release, blocking};

/// Bytes of a preference in the history of documents, at most.
const VALUE_MAX: usize = 100;

/// A change of what the whole fleet is asked for.
#[derive(Clone, Debug)]
pub enum FleetChange {
    /// The named projects get these shares.
    Shares(Vec<(String, f64)>),
    /// All preferences are replaced, so that they must have been made from the version that they replace, if
    /// it is said from which.
    Preferences(Preferences, Option<DocumentVersion>),
    /// The same by somebody who knows none of [`Preferences::local`]: these stay as they are.
    OldPreferences(Preferences, Option<DocumentVersion>),
}

impl FleetChange {
    /// Refuses what means nothing, whatever the documents say.
    fn check(&self) -> Result<(), DocumentError> {
        match self {
            Self::Shares(shares) if shares.is_empty() => Err(DocumentError::Nothing),
            Self::Shares(_) => Ok(()),
            Self::Preferences(preferences, _) | Self::OldPreferences(preferences, _) => {
                Ok(preferences.check_document()?)
            }
        }
    }

    /// Changes a document, and says what was changed.
    fn apply(
        self,
        document: &mut FleetDocument,
        release: &Release,
        is_emergency: bool,
    ) -> Result<String, DocumentError> {
        match self {
            Self::Shares(shares) => give_shares(document, &shares),
            Self::Preferences(preferences, made_from) => {
                found(document, release, is_emergency, made_from)?;
                Ok(replace(document, preferences))
            }
            Self::OldPreferences(preferences, made_from) => {
                let local = found(document, release, is_emergency, made_from)?.local.clone();
                Ok(replace(document, Preferences { local, ..preferences }))
            }
        }
    }
}

/// The preferences from which others were made. That is to be the newest ones; an emergency may start from
/// what hosts have, and not from what waits for its signature.
fn found<'p>(
    document: &'p FleetDocument,
    release: &'p Release,
    is_emergency: bool,
    made_from: Option<DocumentVersion>,
) -> Result<&'p Preferences, DocumentError> {
    let newest = document.version;
    let Some(made_from) = made_from.filter(|made_from| *made_from != newest) else {
        return Ok(&document.preferences);
    };
    let followed = release.followed.as_ref().map(|followed| &followed.audited.set.fleet);
    let followed =
        followed.filter(|followed| is_emergency && release.is_held && followed.version == made_from);
    followed.map(|followed| &followed.preferences).ok_or(DocumentError::Overtaken { made_from, newest })
}

/// Puts preferences in place, and says which are others.
fn replace(document: &mut FleetDocument, preferences: Preferences) -> String {
    let said = changed_preferences(&document.preferences, &preferences);
    document.preferences = preferences;
    said
}

impl Documents {
    /// Changes what the whole fleet is asked for, and gives the documents before and after. What is so
    /// already makes no new version.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn change_fleet_wide(
        &self,
        author: Author,
        now: Instant,
        change: FleetChange,
    ) -> Result<(DocumentSet, DocumentSet), DocumentError> {
        change.check()?;
        let (current, is_emergency) = (self.current.clone(), author.emergency);
        let making = self.making(author, now);
        let alone = self.changing.clone().lock_owned().await;
        let edit = move |set: &mut DocumentSet| {
            let release = current.borrow().clone();
            change.apply(&mut set.fleet, &release, is_emergency)
        };
        blocking(move || making.make(alone, edit)).await
    }

    /// The documents before and after a change that is not made. Blocks.
    ///
    /// # Errors
    /// [`DocumentError`], as if it were made now.
    pub fn preview(
        &self,
        author: Author,
        now: Instant,
        change: FleetChange,
    ) -> Result<(DocumentSet, DocumentSet), DocumentError> {
        change.check()?;
        let (release, is_emergency) = (self.release(), author.emergency);
        self.making(author, now).tried(&release, |set| change.apply(&mut set.fleet, &release, is_emergency))
    }
}

fn give_shares(document: &mut FleetDocument, shares: &[(String, f64)]) -> Result<String, DocumentError> {
    let mut seen = BTreeSet::new();
    let mut said = Vec::new();
    for (name, share) in shares {
        let known = || document.projects.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        if !seen.insert(name) {
            return Err(DocumentError::NamedTwice { name: name.clone() });
        }
        let known = if document.projects.is_empty() { "none".to_owned() } else { known() };
        let project = document.projects.iter_mut().find(|project| project.name == *name);
        let project = project.ok_or_else(|| DocumentError::UnknownProject { name: name.clone(), known })?;
        project.share = Share::given(*share)?;
        said.push(format!("{name}={share}"));
    }
    Ok(format!("shares {}", said.join(" ")))
}

/// Which preferences are others, and what they are now. All are named: a long list is cut by itself, so that
/// none hides behind it.
fn changed_preferences(before: &Preferences, after: &Preferences) -> String {
    let pairs = Preference::all_of(before).into_iter().zip(Preference::all_of(after));
    let said = pairs.filter(|(was, is)| was != is).map(|(_, is)| format!(" {}={}", is.key(), in_short(&is)));
    format!("preferences{}", said.collect::<String>())
}

/// In quotes where it might else be taken for more than one preference, or for what the log says of the
/// change, or only look like that: programs are called as they like.
fn in_short(preference: &Preference) -> String {
    let short = printable::shortened(&preference.to_string(), VALUE_MAX);
    let is_clear = |c: char| match c {
        '=' | ',' | ';' | '"' | '\\' => false,
        '…' | '°' => true,
        c => c.is_ascii(),
    };
    if short.chars().all(is_clear) { short } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_5_a_long_list_hides_no_other_preference_of_the_same_change_from_the_history() {
        let before = Preferences::default();
        let mut after = before.clone();
        after.local.exclusive_programs = (0..100).map(|number| format!("program-{number:0>200}")).collect();
        after.local.run_on_batteries = true;
        after.local.network_wifi_only = true;
        let said = changed_preferences(&before, &after);
        assert!(said.starts_with("preferences run_on_batteries=true exclusive_programs=program-0"), "{said}");
        assert!(said.ends_with("… network_wifi_only=true") && said.len() < 300, "{said}");
        assert_eq!(changed_preferences(&before, &before), "preferences");
    }

    #[test]
    fn r6_5_a_program_that_is_called_like_a_change_is_none_in_the_history() {
        let before = Preferences::default();
        let mut after = before.clone();
        after.local.exclusive_programs = ["x run_on_batteries=false".to_owned(), "\"y\"".to_owned()].into();
        let said = changed_preferences(&before, &after);
        assert_eq!(said, r#"preferences exclusive_programs="\"y\", x run_on_batteries=false""#);
        after.local.exclusive_programs = ["x run_on_batteries\u{ff1d}false".to_owned()].into();
        let said = changed_preferences(&before, &after);
        assert_eq!(said, "preferences exclusive_programs=\"x run_on_batteries\u{ff1d}false\"");
    }
}
