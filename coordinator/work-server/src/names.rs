//! Names of a job's output files.

use super::store_keys::split_job_name;

/// What a name that becomes part of a URL may be, for error messages.
pub(crate) const PLAIN_RULE: &str = "1 to 200 ASCII letters, digits, `-`, `_` and `.`, without `..`";

/// True for names that need no escapes, neither in URLs nor in XML nor on any file system.
pub(crate) fn is_plain(name: &str, max: usize) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=max).contains(&name.len()) && name.chars().all(ok) && !name.contains("..") && name != "."
}

/// The output file at `position` of a job: `JOB_POSITION`.
pub(crate) fn output_name(job: &str, position: usize) -> String {
    format!("{job}_{position}")
}

/// The workunit, job index and position that an output file belongs to.
pub(crate) fn split_output_name(name: &str) -> Option<(&str, u32, usize)> {
    let (job, position) = split_job_name(name)?;
    let (workunit, index) = split_job_name(job)?;
    Some((workunit, index, position as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_file_names_its_job() {
        assert_eq!(split_output_name(&output_name("m_7_2", 0)), Some(("m_7", 2, 0)));
        assert_eq!(split_output_name("m_7"), None);
    }
}
