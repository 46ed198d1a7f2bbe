//! From the wire to the domain. A document comes from outside, so every value is checked; a bad one is refused whole,
//! with the first thing that is wrong (R6.1: the agent goes on with the last good one).

use fallow_domain::{
    AccountKey, Bytes, DocumentVersion, Duration, FleetDocument, Fraction, Invalid, MasterUrl, Preferences,
    ProjectAssignment, Share,
};
use fallow_proto::fleet::v1 as wire;

/// More projects than any lab serves.
const PROJECTS_MAX: usize = 1_000;
/// BOINC's longest key, with room.
const KEY_MAX: usize = 256;

/// Reads a document.
///
/// # Errors
/// In words: what is wrong with it.
pub fn document(from: wire::Document) -> Result<FleetDocument, String> {
    if from.version == 0 {
        return Err("version 0 means that there is no document".into());
    }
    if from.projects.len() > PROJECTS_MAX {
        return Err(format!("{} projects are more than {PROJECTS_MAX}", from.projects.len()));
    }
    let projects = from.projects.into_iter().map(project).collect::<Result<_, _>>()?;
    let preferences = from.preferences.ok_or("it holds no preferences")?;
    let preferences = self::preferences(&preferences).map_err(|invalid| invalid.to_string())?;
    let document = FleetDocument { version: DocumentVersion(from.version), projects, preferences };
    document.check().map_err(|invalid| invalid.to_string())?;
    Ok(document)
}

fn project(from: wire::ProjectAssignment) -> Result<ProjectAssignment, String> {
    let of = |invalid: Invalid| format!("project {:?}: {invalid}", from.name);
    if from.name.is_empty() || from.name.len() > 255 || from.name.chars().any(char::is_control) {
        return Err(format!(
            "a project's name {:?} is not from 1 to 255 bytes without control characters",
            from.name
        ));
    }
    // A key that could break out of its XML element, or is none. The key itself is a secret and not shown.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if from.account_key.is_empty() || from.account_key.len() > KEY_MAX || !from.account_key.chars().all(fits)
    {
        return Err(format!(
            "project {:?}: its account key is not from 1 to {KEY_MAX} letters, digits, _ and -",
            from.name
        ));
    }
    Ok(ProjectAssignment {
        url: MasterUrl::parse(&from.url).map_err(of)?,
        share: Share::new(from.share).map_err(of)?,
        account_key: AccountKey::new(from.account_key),
        name: from.name,
    })
}

fn preferences(from: &wire::Preferences) -> Result<Preferences, Invalid> {
    // By name, so that none is forgotten.
    let wire::Preferences {
        cpu_fraction,
        cpu_time_fraction,
        buffer_min_micros,
        buffer_additional_micros,
        scheduling_period_micros,
        checkpoint_period_micros,
        leave_in_memory,
        suspended,
        memory_fraction,
        disk_fraction,
        disk_free_min_bytes,
        connection_interval_micros,
        excluded_devices,
    } = from;
    let preferences = Preferences {
        cpu_fraction: Fraction::new(*cpu_fraction)?,
        cpu_time_fraction: Fraction::new(*cpu_time_fraction)?,
        buffer_min: Duration::from_micros(*buffer_min_micros),
        buffer_additional: Duration::from_micros(*buffer_additional_micros),
        scheduling_period: Duration::from_micros(*scheduling_period_micros),
        checkpoint_period: Duration::from_micros(*checkpoint_period_micros),
        leave_in_memory: *leave_in_memory,
        suspended: *suspended,
        memory_fraction: Fraction::new(*memory_fraction)?,
        disk_fraction: Fraction::new(*disk_fraction)?,
        disk_free_min: Bytes(*disk_free_min_bytes),
        connection_interval: Duration::from_micros(*connection_interval_micros),
        excluded_devices: excluded_devices.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
    };
    preferences.check()?;
    Ok(preferences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_domain::ResourceType;

    fn good() -> wire::Document {
        wire::Document {
            version: 3,
            projects: vec![wire::ProjectAssignment {
                name: "mersenne".into(),
                url: "http://127.0.0.1:4001/mersenne/".into(),
                account_key: "0123456789abcdef0123456789abcdef".into(),
                share: 75.0,
            }],
            preferences: Some(wire::Preferences {
                cpu_fraction: 0.5,
                cpu_time_fraction: 1.0,
                buffer_min_micros: 60_000_000,
                buffer_additional_micros: 30_000_000,
                scheduling_period_micros: 15_000_000,
                checkpoint_period_micros: 5_000_000,
                leave_in_memory: true,
                suspended: false,
                memory_fraction: 0.9,
                disk_fraction: 0.9,
                disk_free_min_bytes: 0,
                connection_interval_micros: 0,
                excluded_devices: vec!["nvidia:1".to_owned()],
            }),
        }
    }

    #[test]
    fn r6_5_a_good_document_is_read() {
        let document = document(good()).unwrap();
        assert_eq!(document.version, DocumentVersion(3));
        assert_eq!(document.projects[0].share, Share::new(75.0).unwrap());
        assert_eq!(document.preferences.buffer_min, Duration::from_mins(1));
        assert_eq!(document.preferences.excluded(ResourceType::Nvidia).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn r6_5_a_bad_document_is_refused_with_what_is_wrong() {
        type Spoil = fn(&mut wire::Document);
        let cases: [(Spoil, &str); 12] = [
            (|d| d.version = 0, "version 0"),
            (|d| d.projects[0].share = -1.0, "resource share"),
            (|d| d.projects[0].share = f64::NAN, "resource share"),
            (|d| d.projects[0].url = "ftp://x.y/".into(), "project URL"),
            (|d| d.projects[0].account_key = "</a>".into(), "account key"),
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
            let why = document(bad).unwrap_err();
            assert!(why.contains(expected), "{why} lacks {expected}");
        }
    }

    #[test]
    fn a_refusal_does_not_show_the_account_key() {
        let mut bad = good();
        bad.projects[0].account_key = "secret&secret".into();
        assert!(!document(bad).unwrap_err().contains("secret"));
    }
}
