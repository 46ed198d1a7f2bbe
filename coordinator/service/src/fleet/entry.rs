//! What an agent says of itself, checked before anything is done with it.
//!
//! An entry that means nothing (a negative CPU time, a share that is no number, a key that does not fit its value)
//! refuses the whole message: applying the rest would leave a state that the agent never had.

use fallow_domain::MasterUrl;
use fallow_proto::fleet::v1 as wire;
use wire::entry::Value;

use super::limits::{DEBT_MAX, ENTRIES_PER_MESSAGE, KEY_BYTES, MICROS_MAX, TEXT_BYTES};

/// An entry or a message that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {key:?}: {what}")]
pub struct BadEntry {
    /// The entry's key, shortened.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

impl BadEntry {
    fn new(key: &str, what: impl Into<String>) -> Self {
        Self { key: key.chars().take(120).collect(), what: what.into() }
    }
}

/// A checked entry: its key fits its value, its numbers are finite and in range, its texts bounded.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    key: String,
    value: Value,
}

impl Entry {
    /// Checks an entry as it came.
    ///
    /// # Errors
    /// [`BadEntry`] with the first thing that cannot be.
    pub fn check(entry: wire::Entry) -> Result<Self, BadEntry> {
        let wire::Entry { key, value } = entry;
        check_key(&key)?;
        let value =
            value.ok_or_else(|| BadEntry::new(&key, "has no value, or one of a kind not known here"))?;
        let expected = match &value {
            Value::Host(host) => check_host(host).map(|()| "host".to_owned()),
            Value::Project(project) => check_project(project).map(|()| format!("project/{}", project.url)),
            Value::Task(task) => {
                check_task(task).map(|()| format!("task/{}/{}", task.project_url, task.name))
            }
        };
        match expected {
            Err(what) => Err(BadEntry::new(&key, what)),
            Ok(expected) if expected != key => {
                Err(BadEntry::new(&key, format!("holds the value of {expected:?}")))
            }
            Ok(_) => Ok(Self { key, value }),
        }
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// As it is stored.
    #[must_use]
    pub fn to_wire(&self) -> wire::Entry {
        wire::Entry { key: self.key.clone(), value: Some(self.value.clone()) }
    }
}

/// Checks all entries of a message.
///
/// # Errors
/// [`BadEntry`] for the first bad one, or for too many.
pub fn check_all(entries: Vec<wire::Entry>) -> Result<Vec<Entry>, BadEntry> {
    if entries.len() > ENTRIES_PER_MESSAGE {
        let what = format!("{} entries in one message, more than {ENTRIES_PER_MESSAGE}", entries.len());
        return Err(BadEntry::new("", what));
    }
    entries.into_iter().map(Entry::check).collect()
}

/// Checks the keys of entries that are said to be gone.
///
/// # Errors
/// [`BadEntry`] for the first that is no key, or for too many.
pub fn check_removed(keys: Vec<String>) -> Result<Vec<String>, BadEntry> {
    if keys.len() > ENTRIES_PER_MESSAGE {
        let what = format!("{} removals in one message, more than {ENTRIES_PER_MESSAGE}", keys.len());
        return Err(BadEntry::new("", what));
    }
    keys.iter().try_for_each(|key| check_key(key))?;
    Ok(keys)
}

fn check_key(key: &str) -> Result<(), BadEntry> {
    if key.is_empty() || key.len() > KEY_BYTES || key.chars().any(char::is_control) {
        return Err(BadEntry::new(key, format!("a key has 1 to {KEY_BYTES} printable bytes")));
    }
    Ok(())
}

fn text(name: &str, value: &str) -> Result<(), String> {
    if value.len() > TEXT_BYTES || value.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(format!("{name} has more than {TEXT_BYTES} bytes or control characters in it"));
    }
    Ok(())
}

fn micros(name: &str, value: i64) -> Result<(), String> {
    if (0..=MICROS_MAX).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} is {value} µs, out of range"))
    }
}

fn number(name: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} is {value}, not from {low} to {high}"))
    }
}

fn check_host(host: &wire::HostState) -> Result<(), String> {
    text("hostname", &host.hostname)?;
    text("name", &host.name)?;
    text("suspended_by", &host.suspended_by)?;
    text("document_refusal", &host.document_refusal)?;
    micros("cpu_time", host.cpu_time_micros)?;
    micros("document_applied_at", host.document_applied_at_micros)?;
    micros("started_at", host.started_at_micros)?;
    if host.cpus > 1 << 20 || host.usable_cpus > host.cpus || host.idle_cpus > host.usable_cpus {
        let (all, usable, idle) = (host.cpus, host.usable_cpus, host.idle_cpus);
        return Err(format!("{all} CPUs of which {usable} usable and {idle} idle cannot be"));
    }
    for (window, metrics) in [("day", &host.day), ("week", &host.week), ("month", &host.month)] {
        let Some(metrics) = metrics else { continue };
        let figures = [
            ("idleness", metrics.idleness, 1.0),
            ("waste", metrics.waste, 1.0),
            ("share violation", metrics.share_violation, 1.0),
            ("monotony", metrics.monotony, 1.0),
            ("RPCs per job", metrics.rpcs_per_job, 1e12),
        ];
        for (name, value, high) in figures {
            // Rounding may carry a figure a hair past its end.
            number(&format!("{name} of the {window}"), value.unwrap_or(0.0), -1e-6, high + 1e-6)?;
        }
    }
    Ok(())
}

fn check_project(project: &wire::ProjectState) -> Result<(), String> {
    check_url(&project.url)?;
    text("name", &project.name)?;
    text("min_rpc_reason", &project.min_rpc_reason)?;
    number("share", project.share, 0.0, 1e9)?;
    number("debt", project.debt_seconds, -DEBT_MAX, DEBT_MAX)?;
    for (name, value) in [
        ("cpu_time", project.cpu_time_micros),
        ("cpu_in_progress", project.cpu_in_progress_micros),
        ("cpu_success", project.cpu_success_micros),
        ("cpu_error", project.cpu_error_micros),
        ("cpu_late", project.cpu_late_micros),
        ("cpu_contested", project.cpu_contested_micros),
    ] {
        micros(name, value)?;
    }
    // "Never" may be said as the far future.
    if project.min_rpc_time_micros < 0 {
        return Err(format!("min_rpc_time is {} µs, out of range", project.min_rpc_time_micros));
    }
    Ok(())
}

fn check_task(task: &wire::TaskState) -> Result<(), String> {
    check_url(&task.project_url)?;
    if task.name.is_empty() || task.name.len() > 255 {
        return Err("a task's name has 1 to 255 bytes".to_owned());
    }
    if wire::TaskPhase::try_from(task.phase).is_err() {
        return Err(format!("phase {} is not known", task.phase));
    }
    micros("cpu_time", task.cpu_time_micros)?;
    micros("checkpoint_cpu", task.checkpoint_cpu_micros)?;
    number("fraction_done", task.fraction_done, 0.0, 1.0)
}

fn check_url(url: &str) -> Result<(), String> {
    // An older agent may still have the form that URLs had then.
    let is_stored_so = |form: MasterUrl| form.as_str() == url;
    match MasterUrl::parse(url) {
        Ok(canonical) if canonical.as_str() == url => Ok(()),
        Ok(_) if MasterUrl::try_from(url.to_owned()).is_ok_and(is_stored_so) => Ok(()),
        Ok(canonical) => Err(format!("its URL is not in canonical form, which is {canonical}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:8080/mersenne/";

    fn project() -> wire::ProjectState {
        wire::ProjectState { url: URL.into(), share: 75.0, debt_seconds: -3.5, ..Default::default() }
    }

    fn entry(value: Value) -> wire::Entry {
        let key = match &value {
            Value::Host(_) => "host".to_owned(),
            Value::Project(project) => format!("project/{}", project.url),
            Value::Task(task) => format!("task/{}/{}", task.project_url, task.name),
        };
        wire::Entry { key, value: Some(value) }
    }

    fn refusal(value: Value) -> String {
        Entry::check(entry(value)).unwrap_err().to_string()
    }

    #[test]
    fn an_honest_entry_is_taken_as_it_is() {
        let given = entry(Value::Project(project()));
        assert_eq!(Entry::check(given.clone()).unwrap().to_wire(), given);
        let host = wire::HostState { cpus: 2, usable_cpus: 1, ..Default::default() };
        assert!(Entry::check(entry(Value::Host(host))).is_ok());
        // As an agent of an older version names it.
        let older = wire::ProjectState { url: "http://127.0.0.1:080/%70/".into(), ..project() };
        assert!(Entry::check(entry(Value::Project(older))).is_ok());
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_with_their_name() {
        for (bad, said) in [
            (wire::ProjectState { share: f64::NAN, ..project() }, "share is NaN"),
            (wire::ProjectState { share: -1.0, ..project() }, "share is -1"),
            (wire::ProjectState { debt_seconds: f64::INFINITY, ..project() }, "debt is inf"),
            (wire::ProjectState { cpu_time_micros: -1, ..project() }, "cpu_time is -1"),
            (wire::ProjectState { cpu_contested_micros: i64::MAX, ..project() }, "cpu_contested is"),
            (wire::ProjectState { url: "http://127.0.0.1:8080/mersenne".into(), ..project() }, "canonical"),
        ] {
            let text = refusal(Value::Project(bad));
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_key_that_does_not_fit_its_value_is_refused() {
        let wrong = wire::Entry { key: "host".into(), value: Some(Value::Project(project())) };
        assert!(Entry::check(wrong).unwrap_err().what.contains("holds the value of"));
        assert!(Entry::check(wire::Entry { key: "host".into(), value: None }).is_err());
        let long = wire::Entry { key: "k".repeat(10_000), value: None };
        assert!(Entry::check(long).unwrap_err().key.len() < 200);
    }

    #[test]
    fn more_cpus_in_use_than_there_are_is_refused() {
        let host = wire::HostState { cpus: 2, usable_cpus: 3, ..Default::default() };
        assert!(refusal(Value::Host(host)).contains("cannot be"));
    }

    #[test]
    fn a_message_of_too_many_entries_is_refused() {
        let many = vec![entry(Value::Project(project())); ENTRIES_PER_MESSAGE + 1];
        assert!(check_all(many).is_err());
        assert!(check_removed(vec!["host".into(); ENTRIES_PER_MESSAGE + 1]).is_err());
    }
}
