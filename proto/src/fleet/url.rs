//! A project's URL as an agent names it.

use fallow_domain::MasterUrl;

/// A URL from the wire: one that the agent does not write as everybody does would be another project.
pub(super) fn from_wire(text: &str) -> Result<MasterUrl, String> {
    let canonical = MasterUrl::parse(text).map_err(|error| error.to_string())?;
    if canonical.as_str() == text {
        return Ok(canonical);
    }
    // An older agent may still have the form that URLs had then.
    let stored = MasterUrl::try_from(text.to_owned()).ok().filter(|stored| stored.as_str() == text);
    stored.ok_or_else(|| format!("its URL is not in canonical form, which is {canonical}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_in_the_form_in_which_an_agent_of_any_age_writes_it() {
        for good in ["http://127.0.0.1:8080/mersenne/", "http://127.0.0.1:080/%70/"] {
            assert_eq!(from_wire(good).unwrap().as_str(), good);
        }
        let why = from_wire("http://127.0.0.1:8080/mersenne").unwrap_err();
        assert!(why.contains("not in canonical form, which is http://127.0.0.1:8080/mersenne/"), "{why}");
        assert!(from_wire("ftp://x.y/").unwrap_err().contains("project URL"));
    }
}
