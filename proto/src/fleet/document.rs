//! The fleet's document: what a coordinator wants of its agents, and what operators are shown.
//!
//! A bad one is refused whole, with the first thing that is wrong: the agent goes on with the last good one
//! (R6.1).

use fallow_domain::{
    AccountKey, DocumentVersion, FleetDocument, Invalid, MasterUrl, ProjectAssignment, ResourceTypes, Share,
};

use super::{preferences, v1 as wire};

/// More projects than any lab serves.
const PROJECTS_MAX: usize = 1_000;
/// A SHA-256 in hexadecimal digits.
const CONTENT_MAX: usize = 64;
/// BOINC's longest key, with room.
const KEY_MAX: usize = 256;

/// A document that an agent could not follow. Account keys are secrets, and in no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDocument {
    /// Its version is that of no document.
    #[error("version 0 means that there is no document")]
    NoVersion,
    /// The name of its content is none.
    #[error("the name of its content is not up to {CONTENT_MAX} letters and digits")]
    Content,
    /// It names too many projects.
    #[error("{0} projects are more than {PROJECTS_MAX}")]
    TooManyProjects(usize),
    /// It has no preferences.
    #[error("it holds no preferences")]
    NoPreferences,
    /// A project's name is none.
    #[error("a project's name {0:?} is not from 1 to 255 bytes without control characters")]
    ProjectName(String),
    /// A project's account key is none, or could end the XML element that it will stand in.
    #[error("project {0:?}: its account key is not from 1 to {KEY_MAX} letters, digits, _ and -")]
    AccountKey(String),
    /// Another value of a project, which is named first.
    #[error("project {0:?}: {1}")]
    Project(String, #[source] Invalid),
    /// A value of the whole.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A document as agents and operators get it.
#[must_use]
pub fn to_wire(document: &FleetDocument) -> wire::Document {
    let FleetDocument { version, content, projects, preferences } = document;
    wire::Document {
        version: version.0,
        content: content.clone(),
        projects: projects.iter().map(project_to_wire).collect(),
        preferences: Some(preferences::to_wire(preferences)),
        signed: None,
    }
}

fn project_to_wire(project: &ProjectAssignment) -> wire::ProjectAssignment {
    let ProjectAssignment { name, url, account_key, share, code_sign_key, without } = project;
    wire::ProjectAssignment {
        name: name.clone(),
        url: url.to_string(),
        account_key: account_key.reveal().to_owned(),
        share: share.get(),
        code_sign_key: code_sign_key.map(String::from).unwrap_or_default(),
        without: without.iter().map(|kind| kind.name().to_owned()).collect(),
    }
}

/// A document from the wire.
///
/// # Errors
/// [`BadDocument`] with the first thing that is wrong with it.
pub fn from_wire(wire: wire::Document) -> Result<FleetDocument, BadDocument> {
    // What it follows from says `signed`.
    let wire::Document { version, projects, preferences, content, signed: _ } = wire;
    if version == 0 {
        return Err(BadDocument::NoVersion);
    }
    if content.len() > CONTENT_MAX || !content.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(BadDocument::Content);
    }
    if projects.len() > PROJECTS_MAX {
        return Err(BadDocument::TooManyProjects(projects.len()));
    }
    let projects = projects.into_iter().map(project_from_wire).collect::<Result<_, _>>()?;
    let preferences = preferences::from_wire(&preferences.ok_or(BadDocument::NoPreferences)?)?;
    let document = FleetDocument { version: DocumentVersion(version), content, projects, preferences };
    document.check()?;
    Ok(document)
}

fn project_from_wire(wire: wire::ProjectAssignment) -> Result<ProjectAssignment, BadDocument> {
    let wire::ProjectAssignment { name, url, account_key, share, code_sign_key, without } = wire;
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(BadDocument::ProjectName(name));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if account_key.is_empty() || account_key.len() > KEY_MAX || !account_key.chars().all(fits) {
        return Err(BadDocument::AccountKey(name));
    }
    let read = || {
        let key = (!code_sign_key.is_empty()).then(|| code_sign_key.parse()).transpose()?;
        let without = ResourceTypes::from_names(without.iter().map(String::as_str))?;
        Ok((MasterUrl::parse(&url)?, Share::new(share)?, key, without))
    };
    match read() {
        Ok((url, share, code_sign_key, without)) => {
            let account_key = AccountKey::new(account_key);
            Ok(ProjectAssignment { name, url, account_key, share, code_sign_key, without })
        }
        Err(invalid) => Err(BadDocument::Project(name, invalid)),
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Preferences, ResourceType};

    use super::*;

    fn good() -> wire::Document {
        let preferences =
            Preferences { excluded_devices: ["nvidia:1".parse().unwrap()].into(), ..Preferences::default() };
        wire::Document {
            content: "c0".into(),
            version: 3,
            projects: vec![wire::ProjectAssignment {
                name: "mersenne".into(),
                url: "http://127.0.0.1:4001/mersenne/".into(),
                account_key: "0123456789abcdef0123456789abcdef".into(),
                share: 75.0,
                code_sign_key: format!("sha256:{}", "ab".repeat(32)),
                without: vec!["nvidia".into()],
            }],
            preferences: Some(preferences::to_wire(&preferences)),
            signed: None,
        }
    }

    #[test]
    fn r6_5_a_good_document_is_read_and_is_the_same_on_the_wire_again() {
        let document = from_wire(good()).unwrap();
        assert_eq!(document.version, DocumentVersion(3));
        assert_eq!(document.projects[0].share, Share::new(75.0).unwrap());
        assert_eq!(document.preferences.excluded(ResourceType::Nvidia).collect::<Vec<_>>(), [1]);
        assert_eq!(to_wire(&document), good());
    }

    #[test]
    fn r6_5_a_bad_document_is_refused_with_what_is_wrong() {
        type Spoil = fn(&mut wire::Document);
        let cases: [(Spoil, &str); 17] = [
            (|d| d.version = 0, "version 0"),
            (|d| d.content = "c\n".into(), "letters and digits"),
            (|d| d.content = "c".repeat(65), "up to 64"),
            (|d| d.projects = vec![d.projects[0].clone(); 1_001], "1001 projects are more than 1000"),
            (|d| d.projects[0].share = -1.0, "project \"mersenne\": resource share"),
            (|d| d.projects[0].share = f64::NAN, "resource share"),
            (|d| d.projects[0].url = "ftp://x.y/".into(), "project \"mersenne\": project URL"),
            (|d| d.projects[0].account_key = "</a>".into(), "account key"),
            (|d| d.projects[0].code_sign_key = "sha256:".into(), "fingerprint of a code-signing key"),
            (|d| d.projects[0].without.push("gpu".into()), "resource type"),
            (|d| d.projects[0].name.clear(), "name"),
            (|d| d.projects.push(d.projects[0].clone()), "each project once"),
            (|d| d.preferences = None, "preferences"),
            (|d| d.preferences.as_mut().unwrap().cpu_fraction = 1.5, "fraction"),
            (|d| d.preferences.as_mut().unwrap().buffer_min_micros = -1, "work buffer"),
            (|d| d.preferences.as_mut().unwrap().excluded_devices.push("cpu:0".into()), "nvidia:0"),
            (|d| d.preferences.as_mut().unwrap().scheduling_period_micros = i64::MAX, "scheduling period"),
        ];
        for (spoil, expected) in cases {
            let mut bad = good();
            spoil(&mut bad);
            let why = from_wire(bad).unwrap_err().to_string();
            assert!(why.contains(expected), "{why} lacks {expected}");
        }
    }

    #[test]
    fn a_refusal_does_not_show_the_account_key() {
        let mut bad = good();
        bad.projects[0].account_key = "secret&secret".into();
        assert!(!from_wire(bad).unwrap_err().to_string().contains("secret"));
    }
}
