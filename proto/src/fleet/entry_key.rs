//! Keys of the entries in which an agent tells its state: `host`, `disk`, `project/URL`, `task/URL/NAME`.

use fallow_domain::Invalid;
use fallow_domain::agent_state::EntryKey;

use super::url;

/// A key on the wire.
#[must_use]
pub fn to_wire(key: &EntryKey) -> String {
    match key {
        EntryKey::Host => "host".to_owned(),
        EntryKey::Disk => "disk".to_owned(),
        EntryKey::Project(url) => format!("project/{url}"),
        EntryKey::Task { project, name } => format!("task/{project}/{name}"),
    }
}

/// A key from the wire.
///
/// # Errors
/// [`Invalid`] for what no agent of this version has as a key.
pub fn from_wire(text: &str) -> Result<EntryKey, Invalid> {
    let key = match text.split_once('/') {
        None if text == "host" => Some(EntryKey::Host),
        None if text == "disk" => Some(EntryKey::Disk),
        Some(("project", url)) => url::from_wire(url).ok().map(EntryKey::Project),
        Some(("task", rest)) => task(rest),
        _ => None,
    };
    key.ok_or_else(|| Invalid::new("key of an entry", text, "host, disk, project/URL or task/URL/NAME"))
}

/// A URL ends with a slash, and has no two in a row but behind its scheme: the first two from there on part
/// it from the name, whatever is in that.
fn task(text: &str) -> Option<EntryKey> {
    let scheme = text.find("://")? + "://".len();
    let end = scheme + text.get(scheme..)?.find("//")? + 1;
    let (project, name) = (text.get(..end)?, text.get(end + 1..)?);
    if name.is_empty() {
        return None;
    }
    Some(EntryKey::Task { project: url::from_wire(project).ok()?, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use fallow_domain::MasterUrl;
    use proptest::prelude::*;

    use super::*;

    fn url() -> MasterUrl {
        MasterUrl::parse("http://127.0.0.1:8080/mersenne/").unwrap()
    }

    #[test]
    fn keys_on_the_wire_are_those_that_every_version_has() {
        for (key, text) in [
            (EntryKey::Host, "host"),
            (EntryKey::Disk, "disk"),
            (EntryKey::Project(url()), "project/http://127.0.0.1:8080/mersenne/"),
            (
                EntryKey::Task { project: url(), name: "m_1_0".into() },
                "task/http://127.0.0.1:8080/mersenne//m_1_0",
            ),
        ] {
            assert_eq!(to_wire(&key), text);
            assert_eq!(from_wire(text), Ok(key));
        }
    }

    #[test]
    fn what_is_no_key_is_an_error_and_nothing_else() {
        for bad in [
            "",
            "hosts",
            "host/",
            "project/",
            "project/a",
            "task/",
            "task/never/there",
            "task/http://h.org/p/",
            "task/http://h.org/p//",
            "task/http://h.org/p/x",
            "disk/http://h.org/p/",
        ] {
            assert!(from_wire(bad).unwrap_err().to_string().contains("key of an entry"), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_tasks_key_gives_back_its_project_and_name_whatever_they_hold(
            path in "(/[a-z.~-]{1,5}){0,3}", name in "[a-z/:. _-]{1,20}",
        ) {
            let project = MasterUrl::parse(&format!("http://h.org{path}/"));
            prop_assume!(project.is_ok());
            let key = EntryKey::Task { project: project.unwrap(), name };
            prop_assert_eq!(from_wire(&to_wire(&key)), Ok(key));
        }
    }
}
