//! Where a project's records lie in the store: every key begins with `project/NAME/`.
//!
//! Numbers in keys have a fixed width, so that byte order is their order. No part of a key can hold a `/`:
//! names of workunits and applications are checked before they get here, and what people typed (e-mail
//! addresses) is hashed.

use fallow_boinc::signature::md5_hex;
use fallow_domain::Instant;

/// Before the name in all keys of hosted projects.
pub(crate) const PROJECTS: &str = "project/";

/// The keys of one project.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(project: &str) -> Self {
        Self { prefix: format!("{PROJECTS}{project}/") }
    }

    fn key(&self, rest: impl std::fmt::Display) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    /// Sticky files of a host. Apart from everything else: knowledge that may be lost.
    pub(crate) fn host_files(&self, host: u64) -> Vec<u8> {
        [self.all_host_files(), format!("{host:016x}").into_bytes()].concat()
    }
    pub(crate) fn all_host_files(&self) -> Vec<u8> {
        self.prefix.replacen(PROJECTS, "project-files/", 1).into_bytes()
    }
    pub(crate) fn settings(&self) -> Vec<u8> {
        self.key("settings")
    }
    pub(crate) fn counters(&self) -> Vec<u8> {
        self.key("counters")
    }
    /// Account by its key.
    pub(crate) fn account(&self, account_key: &str) -> Vec<u8> {
        self.key(format_args!("account/{}", md5_hex(account_key)))
    }
    /// That an agent's account was closed for good.
    pub(crate) fn closed_agent(&self, agent: &str) -> Vec<u8> {
        self.key(format_args!("closed-agent/{}", md5_hex(agent)))
    }
    /// Account key by e-mail address.
    pub(crate) fn account_email(&self, email: &str) -> Vec<u8> {
        self.key(format_args!("account-email/{}", md5_hex(email)))
    }
    pub(crate) fn hosts(&self) -> Vec<u8> {
        self.key("host/")
    }
    pub(crate) fn host(&self, id: u64) -> Vec<u8> {
        self.key(format_args!("host/{id:016x}"))
    }
    /// Host id by account and the host's own identity.
    pub(crate) fn host_cpid(&self, account: u64, cpid: &str) -> Vec<u8> {
        self.key(format_args!("host-cpid/{account:016x}/{}", md5_hex(cpid)))
    }
    /// Credit granted to an account, and to a host.
    pub(crate) fn account_credit(&self, account: u64) -> Vec<u8> {
        self.key(format_args!("credit-account/{account:016x}"))
    }
    pub(crate) fn host_credit(&self, host: u64) -> Vec<u8> {
        self.key(format_args!("credit-host/{host:016x}"))
    }
    /// What jobs took on a host.
    pub(crate) fn host_experience(&self, host: u64) -> Vec<u8> {
        self.key(format_args!("experience-host/{host:016x}"))
    }
    pub(crate) fn app(&self, name: &str) -> Vec<u8> {
        self.key(format_args!("app/{name}"))
    }
    pub(crate) fn apps(&self) -> Vec<u8> {
        self.key("app/")
    }
    /// Without a plan class for the CPU.
    pub(crate) fn version(&self, app: &str, platform: &str, version: u32, plan_class: &str) -> Vec<u8> {
        let end = if plan_class.is_empty() { String::new() } else { format!("/{plan_class}") };
        self.key(format_args!("version/{app}/{platform}/{version:010}{end}"))
    }
    pub(crate) fn versions(&self) -> Vec<u8> {
        self.key("version/")
    }
    pub(crate) fn workunit(&self, name: &str) -> Vec<u8> {
        self.key(format_args!("workunit/{name}"))
    }
    pub(crate) fn workunits(&self) -> Vec<u8> {
        self.key("workunit/")
    }
    /// How many open workunits of an application have this name for an input, or for an output, in the slot.
    /// It may hold a `/`, and comes last.
    pub(crate) fn open_name(&self, app: &str, is_output: bool, name: &str) -> Vec<u8> {
        let side = if is_output { "out" } else { "in" };
        self.key(format_args!("open-name/{app}/{side}/{name}"))
    }
    pub(crate) fn open_names(&self, app: &str, is_output: bool) -> Vec<u8> {
        self.open_name(app, is_output, "")
    }
    pub(crate) fn all_open_names(&self) -> Vec<u8> {
        self.key("open-name/")
    }
    /// A submission by its key, which is a plain name.
    pub(crate) fn submission(&self, key: &str) -> Vec<u8> {
        self.key(format_args!("submission/{key}"))
    }
    /// Names of a submission's workunits, from this place on.
    pub(crate) fn submission_names(&self, key: &str, offset: u64) -> Vec<u8> {
        self.key(format_args!("submission-names/{key}/{offset:016x}"))
    }
    pub(crate) fn all_submission_names(&self, key: &str) -> Vec<u8> {
        self.key(format_args!("submission-names/{key}/"))
    }
    /// Workunits with unsent jobs, the oldest first.
    pub(crate) fn unsent(&self, sequence: u64) -> Vec<u8> {
        self.key(format_args!("unsent/{sequence:016x}"))
    }
    pub(crate) fn all_unsent(&self) -> Vec<u8> {
        self.key("unsent/")
    }
    /// Jobs in progress by deadline.
    pub(crate) fn deadline(&self, at: Instant, workunit: &str, index: u32) -> Vec<u8> {
        self.key(format_args!("deadline/{:016x}/{workunit}/{index}", at.as_micros().max(0)))
    }
    pub(crate) fn deadlines(&self) -> Vec<u8> {
        self.key("deadline/")
    }
    /// Jobs in progress by host.
    pub(crate) fn held(&self, host: u64, workunit: &str, index: u32) -> Vec<u8> {
        self.key(format_args!("held/{host:016x}/{workunit}/{index}"))
    }
    pub(crate) fn held_by(&self, host: u64) -> Vec<u8> {
        self.key(format_args!("held/{host:016x}/"))
    }
    /// Workunits with jobs to be compared.
    pub(crate) fn compare(&self, workunit: &str) -> Vec<u8> {
        self.key(format_args!("compare/{workunit}"))
    }
    pub(crate) fn to_compare(&self) -> Vec<u8> {
        self.key("compare/")
    }
    /// Workunits with a canonical job.
    pub(crate) fn validated(&self, workunit: &str) -> Vec<u8> {
        self.key(format_args!("validated/{workunit}"))
    }
    pub(crate) fn all_validated(&self) -> Vec<u8> {
        self.key("validated/")
    }
    /// Decided workunits without jobs in progress whose files are still there.
    pub(crate) fn cleanup(&self, workunit: &str) -> Vec<u8> {
        self.key(format_args!("cleanup/{workunit}"))
    }
    pub(crate) fn all_cleanup(&self) -> Vec<u8> {
        self.key("cleanup/")
    }
}

/// The last part of a key, or of what follows `prefix` in it.
pub(crate) fn tail<'a>(key: &'a [u8], prefix: &[u8]) -> &'a str {
    key.strip_prefix(prefix).and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default()
}

/// Splits `WORKUNIT/INDEX`.
pub(crate) fn job_of(tail: &str) -> Option<(&str, u32)> {
    let (workunit, index) = tail.rsplit_once('/')?;
    Some((workunit, index.parse().ok()?))
}

/// Splits a job's name, `WORKUNIT_INDEX`. Names with needless zeros are not ours.
pub(crate) fn split_job_name(name: &str) -> Option<(&str, u32)> {
    let (workunit, index) = name.rsplit_once('_')?;
    let number: u32 = index.parse().ok()?;
    (number.to_string() == index).then_some((workunit, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_the_numbers_in_them() {
        let keys = Keys::new("p");
        let at = |secs: f64| keys.deadline(Instant::from_secs_f64(secs), "w", 0);
        assert!(at(9.0) < at(10.0) && at(10.0) < at(1e9));
        assert!(keys.unsent(9) < keys.unsent(10));
        assert!(keys.held(1, "a", 0).starts_with(&keys.held_by(1)));
        assert!(!keys.held(16, "a", 0).starts_with(&keys.held_by(1)));
    }

    #[test]
    fn a_job_name_gives_its_workunit_and_index() {
        assert_eq!(split_job_name("m_1_12"), Some(("m_1", 12)));
        for bad in ["m", "m_", "m_01", "m_-1", "m_1x", "m_99999999999"] {
            assert_eq!(split_job_name(bad), None, "{bad}");
        }
        assert_eq!(job_of("m_1/3"), Some(("m_1", 3)));
    }
}
