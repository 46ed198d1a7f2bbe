//! What an operator decides about a project, and how it is said: `KEY=VALUE`, in the same words that list it.
//!
//! Everything in here may be changed while clients are served: it takes effect with the next request. What
//! clients hold on to (keys, URLs, names) is no setting.

use fallow_domain::{Duration, Invalid};
use fallow_policy::choice::NoSuchPolicy;
use fallow_policy::composition::Composition;
use fallow_policy::send::{SendChoice, Ws2Switches};
use serde::{Deserialize, Serialize};

/// What an operator decides about a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectSettings {
    /// The project's name for people (BOINC: `project_name`). Empty for the project's own name.
    pub long_name: String,
    /// How long a client waits before its next scheduler RPC (BOINC: `request_delay`).
    pub request_delay: Duration,
    /// How soon a client that asked in vain comes again (BOINC: `next_rpc_delay`); zero leaves that to the
    /// client's own backoff, which is up to a day (R3.7).
    pub poll: Duration,
    /// Ask clients to report each job as soon as its files are up (BOINC: `report_immediately`).
    pub report_immediately: bool,
    /// Anybody who reaches the server may make an account (BOINC: `account_creation_disabled` when false).
    /// For clients that are not of the fleet; who can make one account can make two, so that a quorum proves
    /// nothing against them.
    pub account_creation: bool,
    /// Jobs that one host may have in progress per CPU of its own; bounds what a broken host can hold back.
    pub max_in_progress_per_cpu: u32,
    /// Which jobs are sent for a request (R5.5, R5.6).
    pub send: SendRules,
    /// Of a batch that is small against what hosts ask for, each host holds no more than its part (R6.8). Not
    /// for a fleet whose hosts are seldom connected: each would get but a part of it at a contact.
    pub spread: bool,
    /// Which of the project's files its clients delete first (R4.6).
    pub deletion_policy: DeletionPolicy,
    /// Send jobs for which the project's own files on the host would have to go (R4.10; BOINC:
    /// `delete_from_self`).
    pub delete_from_self: bool,
}

impl Default for ProjectSettings {
    fn default() -> Self {
        Self {
            long_name: String::new(),
            // What BOINC's own server asks for: its minimum between two work requests is 6 s.
            request_delay: Duration::from_secs(7),
            // A job submitted after a pause starts on an idle machine within minutes, for 12 requests an
            // hour. What it costs a server with very many idle hosts is bounded by
            // `idle_hosts::POLLS_PER_SECOND`.
            poll: Duration::from_mins(5),
            report_immediately: true,
            account_creation: false,
            max_in_progress_per_cpu: 1_000,
            send: SendRules::default(),
            spread: true,
            deletion_policy: DeletionPolicy::LeastRecentlyUsed,
            delete_from_self: false,
        }
    }
}

/// How jobs are chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendRules {
    /// Which policy.
    pub policy: SendChoice,
    /// What WS2 takes into account beyond what was published.
    pub ws2: Ws2Switches,
}

/// The name of the policy in a stored project, whether or not there is one of that name.
#[derive(Deserialize)]
pub(crate) struct StoredPolicy {
    settings: StoredSettings,
}
#[derive(Deserialize)]
struct StoredSettings {
    send: StoredRules,
}
#[derive(Deserialize)]
struct StoredRules {
    policy: String,
}

impl StoredPolicy {
    /// Why the policy cannot be followed, if there is none of that name.
    pub(crate) fn unknown(&self) -> Option<NoSuchPolicy> {
        self.settings.send.policy.parse::<SendChoice>().err()
    }
}

impl Default for SendRules {
    /// WS3, which sends to hosts that do not tell when they are on as WS2 does, with both improvements.
    fn default() -> Self {
        let Composition { send: policy, ws2, .. } = Composition::default();
        Self { policy, ws2 }
    }
}

/// In which order clients delete a project's files when space is short (R4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionPolicy {
    /// The one whose last use is longest ago.
    #[default]
    LeastRecentlyUsed,
    /// The lowest priority first (BOINC: `deletion_policy_priority`).
    Priority,
    /// What is past its date first (BOINC: `deletion_policy_expire`).
    Expiration,
}

const DELETION_POLICIES: [(&str, DeletionPolicy); 3] = [
    ("lru", DeletionPolicy::LeastRecentlyUsed),
    ("priority", DeletionPolicy::Priority),
    ("expire", DeletionPolicy::Expiration),
];

/// The settings by their names, each with what it means. Help texts show it.
pub const SETTINGS: [(&str, &str); 10] = [
    ("name", "the project's name for people"),
    ("request-delay", "how long a client waits between two scheduler RPCs"),
    ("poll", "how soon a client that asked in vain comes again; 0s: as it likes"),
    ("report-immediately", "jobs are reported one by one: true or false"),
    ("account-creation", "anybody may make an account, for clients outside the fleet: true or false"),
    ("jobs-per-cpu", "jobs in progress that a host may have per CPU"),
    ("send", "a policy: WS1, WS2 (with ws2=published, counted, scaled), WS3"),
    ("spread", "a small batch goes to all hosts in parts: true or false"),
    ("deletion-policy", "files that clients delete first: lru, priority, expire"),
    ("delete-from-self", "jobs may push out the project's own files: true or false"),
];

/// The same as a text for people.
const NAMES: &str = "name, request-delay, poll, report-immediately, account-creation, jobs-per-cpu, send, spread, \
    deletion-policy or delete-from-self";

impl ProjectSettings {
    /// Sets one by its name.
    ///
    /// # Errors
    /// [`Invalid`] with the names or values that there are.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Invalid> {
        let bad = |what, expected| Invalid::new(what, value, expected);
        match key {
            "name" => value.clone_into(&mut self.long_name),
            "request-delay" => self.request_delay = time("request-delay", value)?,
            "poll" => self.poll = time("poll", value)?,
            "report-immediately" => self.report_immediately = truth("report-immediately", value)?,
            "account-creation" => self.account_creation = truth("account-creation", value)?,
            "jobs-per-cpu" => {
                let count = value.parse().ok().filter(|count| *count > 0);
                self.max_in_progress_per_cpu =
                    count.ok_or_else(|| bad("jobs-per-cpu", "a whole number above 0, such as 4"))?;
            }
            "send" => self.send = value.parse()?,
            "spread" => self.spread = truth("spread", value)?,
            "deletion-policy" => {
                let found = DELETION_POLICIES.iter().find(|(name, _)| *name == value);
                let expected = "lru, priority or expire";
                self.deletion_policy = found.ok_or_else(|| bad("deletion-policy", expected))?.1;
            }
            "delete-from-self" => self.delete_from_self = truth("delete-from-self", value)?,
            _ => {
                return Err(Invalid::new("setting of a project", key, NAMES));
            }
        }
        self.check()
    }

    /// All of them by their names, in the form that [`ProjectSettings::set`] takes.
    pub fn list(&self) -> [(&'static str, String); 10] {
        let deletion = DELETION_POLICIES.iter().find(|(_, policy)| *policy == self.deletion_policy);
        let values = [
            self.long_name.clone(),
            written(self.request_delay),
            written(self.poll),
            self.report_immediately.to_string(),
            self.account_creation.to_string(),
            self.max_in_progress_per_cpu.to_string(),
            self.send.to_string(),
            self.spread.to_string(),
            deletion.map_or("", |(name, _)| *name).to_owned(),
            self.delete_from_self.to_string(),
        ];
        let mut values = values.into_iter();
        SETTINGS.map(|(name, _)| (name, values.next().unwrap_or_default()))
    }

    /// Refuses what would stop clients from working for the project.
    ///
    /// # Errors
    /// [`Invalid`] with the first that cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        let in_a_day = |time: Duration| (0.0..=86_400.0).contains(&time.as_secs_f64());
        if !in_a_day(self.request_delay) {
            return Err(Invalid::new("request delay", self.request_delay, "from 0 s to a day"));
        }
        if !in_a_day(self.poll) || (self.poll.is_positive() && self.poll < Duration::from_secs(1)) {
            return Err(Invalid::new("poll", self.poll, "from 1 s to a day, or 0 s for none"));
        }
        if self.long_name.len() > 200 || self.long_name.chars().any(char::is_control) {
            let expected = "up to 200 bytes on one line";
            return Err(Invalid::new("project's name for people", &self.long_name, expected));
        }
        Ok(())
    }
}

impl std::str::FromStr for SendRules {
    type Err = Invalid;

    /// In the words of a [`Composition`]: `WS1`, `WS2`, `WS2,ws2=published`, or `ws2=published` alone.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let whole = if text.starts_with("ws2=") { format!("WS2,{text}") } else { text.to_owned() };
        let read = whole.parse::<Composition>().ok();
        let found = read.map(|Composition { send: policy, ws2, .. }| Self { policy, ws2 });
        // Nothing else of a composition is for a server to choose.
        let alone = |rules: &Self| {
            read == Some(Composition { send: rules.policy, ws2: rules.ws2, ..Composition::base() })
                && whole.to_ascii_uppercase().starts_with("WS")
        };
        let expected =
            "a policy such as WS1, WS2 or WS3, or WS2,ws2=published (or counted, scaled, improved)";
        found.filter(alone).ok_or_else(|| Invalid::new("send", text, expected))
    }
}

impl std::fmt::Display for SendRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = Composition { send: self.policy, ws2: self.ws2, ..Composition::base() }.to_string();
        // Of CSx_WFy_WSz_JCw,switches only what is for a server.
        write!(f, "{}", self.policy)?;
        match whole.split_once(',') {
            Some((_, switches)) => write!(f, ",{switches}"),
            None => Ok(()),
        }
    }
}

fn time(what: &'static str, value: &str) -> Result<Duration, Invalid> {
    let read = humantime::parse_duration(value).map(Duration::from);
    read.map_err(|_| Invalid::new(what, value, "a time such as 90s or 5m"))
}

fn truth(what: &'static str, value: &str) -> Result<bool, Invalid> {
    value.parse().map_err(|_| Invalid::new(what, value, "true or false"))
}

fn written(time: Duration) -> String {
    humantime::format_duration(time.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_listed() {
        let mut settings = ProjectSettings::default();
        for (key, value) in [
            ("name", "The sieve"),
            ("request-delay", "1m 30s"),
            ("poll", "10s"),
            ("report-immediately", "false"),
            ("account-creation", "true"),
            ("jobs-per-cpu", "4"),
            ("send", "WS2,ws2=published"),
            ("spread", "false"),
            ("deletion-policy", "expire"),
            ("delete-from-self", "true"),
        ] {
            settings.set(key, value).unwrap();
            assert!(settings.list().contains(&(key, value.to_owned())), "{key}: {:?}", settings.list());
        }
        let mut again = ProjectSettings::default();
        settings.list().iter().for_each(|(key, value)| again.set(key, value).unwrap());
        assert_eq!(again, settings);
        assert_eq!(ProjectSettings::default().send.to_string(), "WS3");
    }

    #[test]
    fn r5_6_the_send_policy_is_chosen_by_the_words_of_a_composition() {
        let rules = |text: &str| text.parse::<SendRules>();
        let published = SendRules { policy: SendChoice::default(), ws2: Ws2Switches::PUBLISHED };
        assert_eq!(rules("ws2=published").unwrap(), published);
        assert_eq!(rules("WS1").unwrap().policy.to_string(), "WS1");
        assert_eq!(rules("WS3").unwrap(), SendRules::default());
        for bad in ["", "WS0", "CS1", "WS2_JC1", "WS2,fetch=below-minimum", "CS2_WF2_WS2_JC2", "ws2=best"] {
            assert!(rules(bad).unwrap_err().to_string().contains("WS2,ws2=published"), "{bad}");
        }
    }

    #[test]
    fn a_setting_that_means_nothing_is_refused_with_what_there_is() {
        let mut settings = ProjectSettings::default();
        for (key, value, said) in [
            ("pol", "1s", "poll"),
            ("poll", "soon", "90s"),
            ("poll", "1ms", "from 1 s"),
            ("request-delay", "2days", "a day"),
            ("jobs-per-cpu", "0", "above 0"),
            ("jobs-per-cpu", "-3", "above 0"),
            ("deletion-policy", "all", "lru"),
            ("delete-from-self", "yes", "true or false"),
            ("name", "two\nlines", "one line"),
        ] {
            let error = settings.clone().set(key, value).unwrap_err().to_string();
            assert!(error.contains(said), "{key}={value}: {error}");
        }
        settings.set("poll", "0s").unwrap();
    }

    #[test]
    fn who_names_a_setting_that_there_is_not_is_told_all_that_there_are() {
        let error = ProjectSettings::default().set("pol", "1s").unwrap_err().to_string();
        assert!(SETTINGS.iter().all(|(name, _)| error.contains(name)), "{error}");
    }

    #[test]
    fn settings_stored_by_an_earlier_version_are_read_with_defaults_for_what_is_new() {
        let old = r#"{"long_name":"x","request_delay":1000000,"work_send":"deadlines"}"#;
        let read: ProjectSettings = serde_json::from_str(old).unwrap();
        assert_eq!((read.long_name.as_str(), read.poll), ("x", Duration::from_mins(5)));
        assert!(read.spread);
    }
}
