//! Account files, `account_*.xml`: what a client keeps about its account at a project.

use fallow_domain::{AccountKey, Share};

use crate::FormatError;
use crate::xml::{Reader, Value, Writer};

/// A client's account at a project (BOINC: `account`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountFile {
    /// The project's master URL.
    pub master_url: String,
    /// The account key.
    pub authenticator: AccountKey,
    /// The project's name.
    pub project_name: Option<String>,
    /// Preferences for this project, byte for byte.
    pub project_preferences: Option<String>,
    /// Links for the user, byte for byte.
    pub gui_urls: Option<String>,
}

impl AccountFile {
    /// Reads an account file.
    ///
    /// # Errors
    /// [`FormatError`] when it is not whole, or lacks the URL or the key.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("account file", body);
        let root = reader.root("account")?;
        let (mut master_url, mut key, mut project_name) = (String::new(), String::new(), None);
        let (mut project_preferences, mut gui_urls) = (None, None);
        while let Some(tag) = reader.next_child(&root)? {
            match tag.name {
                "master_url" => reader.set(&tag, &mut master_url)?,
                "authenticator" => reader.set(&tag, &mut key)?,
                "project_name" => reader.set(&tag, &mut project_name)?,
                "project_preferences" => project_preferences = Some(reader.raw_text(&tag)?.trim().to_owned()),
                "gui_urls" => gui_urls = Some(reader.raw_text(&tag)?.trim().to_owned()),
                _ => reader.skip(&tag)?,
            }
        }
        if master_url.is_empty() || key.is_empty() {
            return Err(reader.error_at(&root, "<master_url> and <authenticator> in it"));
        }
        let authenticator = AccountKey::new(key);
        Ok(Self { master_url, authenticator, project_name, project_preferences, gui_urls })
    }

    /// Writes an account file.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        writer.nested("account", |w| {
            w.text("master_url", &self.master_url);
            w.text("authenticator", self.authenticator.reveal());
            w.value("project_name", &self.project_name);
            w.raw_if_any("project_preferences", self.project_preferences.as_deref());
            w.raw_if_any("gui_urls", self.gui_urls.as_deref());
        });
        writer.finish()
    }
}

/// The resource share in a block of project preferences, if it holds a sensible one. Blocks for venues are
/// not looked into.
pub fn resource_share(project_preferences: &str) -> Option<Share> {
    let block = format!("<preferences>{project_preferences}</preferences>");
    let mut reader = Reader::new("project preferences", block.as_bytes());
    let root = reader.root("preferences").ok()?;
    let mut share = None;
    while let Some(tag) = reader.next_child(&root).ok()? {
        if tag.name == "resource_share" {
            share = f64::read(&mut reader, &tag).ok()?.or(share);
        } else {
            reader.skip(&tag).ok()?;
        }
    }
    Share::new(share?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_file_reads_back_as_written() {
        let account = AccountFile {
            master_url: "http://127.0.0.1:9/mersenne/".into(),
            authenticator: AccountKey::new("dd53bc9df626e2c801c9de98d0629b14"),
            project_name: Some("A & B".into()),
            project_preferences: Some("<resource_share>75</resource_share>".into()),
            gui_urls: None,
        };
        assert_eq!(AccountFile::parse(account.write().as_bytes()).unwrap(), account);
    }

    #[test]
    fn the_resource_share_is_the_one_outside_of_venues() {
        let share = |text| resource_share(text).map(Share::get);
        assert_eq!(share("<resource_share>75</resource_share>"), Some(75.0));
        assert_eq!(
            share(
                "<venue name=\"home\"><resource_share>1</resource_share></venue>\n<resource_share>50.5</resource_share>"
            ),
            Some(50.5)
        );
        assert_eq!(share("<resource_share>-1</resource_share>"), None);
        assert_eq!(share("<resource_share>lots</resource_share>"), None);
        assert_eq!(share(""), None);
    }
}
