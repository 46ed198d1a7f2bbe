//! What a project says about itself (BOINC: `get_project_config.php`).

use crate::FormatError;
use crate::scheduler::ClientVersion;
use crate::xml::{Reader, Tag, Writer};

/// A project's configuration, as far as clients need it (BOINC: `project_config`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectConfig {
    /// The project's name.
    pub name: String,
    /// Its master URL.
    pub master_url: String,
    /// Where its web calls are, if not under the master URL.
    pub web_rpc_url_base: Option<String>,
    /// The fewest characters of a password.
    pub min_passwd_length: u32,
    /// True for an account manager.
    pub account_manager: bool,
    /// True if accounts have user names instead of email addresses.
    pub uses_username: bool,
    /// True if no accounts can be created.
    pub account_creation_disabled: bool,
    /// True if they can be created on the web site only.
    pub client_account_creation_disabled: bool,
    /// True if accounts can come from a directory service.
    pub ldap_auth: bool,
    /// What users must agree to.
    pub terms_of_use: Option<String>,
    /// The oldest client that is accepted, as a version number times 100.
    pub min_client_version: Option<u32>,
    /// True if the web site is down.
    pub web_stopped: bool,
    /// True if the scheduler is down.
    pub sched_stopped: bool,
    /// Platforms that it has applications for.
    pub platforms: Vec<ConfigPlatform>,
}

/// A platform that a project supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigPlatform {
    /// Its name, such as `x86_64-pc-linux-gnu`.
    pub platform_name: String,
    /// Its name for people.
    pub user_friendly_name: String,
    /// The plan class of its application, empty for none.
    pub plan_class: String,
}

impl ProjectConfig {
    /// Reads a configuration. What stands before its start tag is passed over: real servers put warnings
    /// there.
    ///
    /// # Errors
    /// [`FormatError`] when there is no whole configuration in `body`.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("project configuration", body);
        let root = reader.root("project_config")?;
        let mut config = Self::default();
        while let Some(tag) = reader.next_child(&root)? {
            match tag.name {
                "name" => reader.set(&tag, &mut config.name)?,
                "master_url" => reader.set(&tag, &mut config.master_url)?,
                "web_rpc_url_base" => reader.set(&tag, &mut config.web_rpc_url_base)?,
                "min_passwd_length" => reader.set(&tag, &mut config.min_passwd_length)?,
                "account_manager" => reader.set(&tag, &mut config.account_manager)?,
                "uses_username" => reader.set(&tag, &mut config.uses_username)?,
                "account_creation_disabled" => reader.set(&tag, &mut config.account_creation_disabled)?,
                "client_account_creation_disabled" => {
                    reader.set(&tag, &mut config.client_account_creation_disabled)?;
                }
                "ldap_auth" => reader.set(&tag, &mut config.ldap_auth)?,
                // Terms may hold HTML.
                "terms_of_use" => config.terms_of_use = Some(reader.raw_text(&tag)?.trim().to_owned()),
                "min_client_version" => reader.set(&tag, &mut config.min_client_version)?,
                "web_stopped" => reader.set(&tag, &mut config.web_stopped)?,
                "sched_stopped" => reader.set(&tag, &mut config.sched_stopped)?,
                "platforms" => config.platforms = platforms(&mut reader, &tag)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(config)
    }

    /// Writes a configuration.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        writer.nested("project_config", |w| {
            w.text("name", &self.name);
            w.text("master_url", &self.master_url);
            w.value("web_rpc_url_base", &self.web_rpc_url_base);
            w.value("min_passwd_length", &self.min_passwd_length);
            w.flag("account_manager", self.account_manager);
            w.flag("uses_username", self.uses_username);
            w.flag("account_creation_disabled", self.account_creation_disabled);
            w.flag("client_account_creation_disabled", self.client_account_creation_disabled);
            w.flag("ldap_auth", self.ldap_auth);
            w.raw_if_any("terms_of_use", self.terms_of_use.as_deref());
            w.value("min_client_version", &self.min_client_version);
            w.value("web_stopped", &self.web_stopped);
            w.value("sched_stopped", &self.sched_stopped);
            w.nested("platforms", |w| {
                for platform in &self.platforms {
                    w.nested("platform", |w| {
                        w.text("platform_name", &platform.platform_name);
                        w.text("user_friendly_name", &platform.user_friendly_name);
                        w.text_if_any("plan_class", &platform.plan_class);
                    });
                }
            });
        });
        writer.finish()
    }

    /// True if a client of this version is too old for the project.
    pub fn refuses(&self, client: ClientVersion) -> bool {
        self.min_client_version.is_some_and(|least| client.number() < u64::from(least))
    }
}

fn platforms<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Vec<ConfigPlatform>, FormatError> {
    let mut platforms = Vec::new();
    while let Some(tag) = reader.next_child(parent)? {
        if tag.name != "platform" {
            reader.skip(&tag)?;
            continue;
        }
        let mut platform = ConfigPlatform::default();
        while let Some(child) = reader.next_child(&tag)? {
            match child.name {
                "platform_name" => reader.set(&child, &mut platform.platform_name)?,
                "user_friendly_name" => reader.set(&child, &mut platform.user_friendly_name)?,
                "plan_class" => reader.set(&child, &mut platform.plan_class)?,
                _ => reader.skip(&child)?,
            }
        }
        platforms.push(platform);
    }
    Ok(platforms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_found_behind_a_warning_and_reads_back_as_written() {
        let config = ProjectConfig {
            name: "Mersenne & friends".into(),
            master_url: "http://127.0.0.1:9/mersenne/".into(),
            min_passwd_length: 6,
            terms_of_use: Some("<b>Be kind.</b>".into()),
            min_client_version: Some(70_000),
            platforms: vec![ConfigPlatform {
                platform_name: "x86_64-pc-linux-gnu".into(),
                user_friendly_name: "Linux".into(),
                plan_class: String::new(),
            }],
            ..ProjectConfig::default()
        };
        let body = format!("<br />\n<b>Warning</b>:  a < b in <b>x.php</b>\n{}", config.write());
        assert_eq!(ProjectConfig::parse(body.as_bytes()).unwrap(), config);
        assert!(config.refuses(ClientVersion { major: 6, minor: 12, release: 3 }));
        assert!(!config.refuses(ClientVersion { major: 7, minor: 20, release: 5 }));
    }
}
