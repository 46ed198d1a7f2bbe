//! GPUs that jobs of single projects leave alone (R6.4).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Device, Invalid, MasterUrl, ResourceType};

/// The longest name of an application.
const APP_MAX: usize = 255;
/// What stands for all kinds.
const ALL: &str = "all";
const EXPECTED: &str = "a project's URL, then `all`, nvidia, amd, intel or apple, with a number from 0 to 63 or without, then the \
     name of an application or nothing, such as \"https://example.org/p/ nvidia:0\"";

/// GPUs on which no jobs of a project run, or none of one of its applications (BOINC: `exclude_gpu` in
/// `cc_config.xml`). Written `URL`, `URL nvidia:0` or `URL all app`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuExclusion {
    url: MasterUrl,
    /// Without one, those of all kinds.
    kind: Option<ResourceType>,
    /// Without one, all of a kind.
    number: Option<u32>,
    app: Option<String>,
}

/// Which devices of a kind are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// All of them.
    All,
    /// This one.
    One(u32),
}

impl GpuExclusion {
    /// Jobs of an application of a project, or of all of its applications, do not run on these devices.
    ///
    /// # Errors
    /// [`Invalid`] for a CPU, a number above 63, and a name that no application has.
    pub fn new(
        url: MasterUrl,
        kind: Option<ResourceType>,
        number: Option<u32>,
        app: Option<String>,
    ) -> Result<Self, Invalid> {
        let exclusion = Self { url, kind, number, app };
        let bad = |part: &dyn fmt::Display| Err(Invalid::new("exclusion of GPUs", part, EXPECTED));
        if let Some(kind) = kind.filter(|kind| !kind.is_coprocessor()) {
            return bad(&kind.name());
        }
        if let Some(number) = number.filter(|number| Device::new(ResourceType::Nvidia, *number).is_err()) {
            return bad(&number);
        }
        let is_name =
            |app: &&String| !app.trim().is_empty() && app.len() <= APP_MAX && !app.contains(char::is_control);
        match exclusion.app.as_ref().filter(|app| !is_name(app)) {
            Some(app) => bad(app),
            None => Ok(exclusion),
        }
    }

    /// The devices of a kind that it keeps from jobs of a project's application; those that it keeps from all
    /// of them where none is named.
    #[must_use]
    pub fn bars(&self, url: &MasterUrl, app: Option<&str>, kind: ResourceType) -> Option<Barred> {
        let is_meant = self.url.is_place_of(url)
            && kind.is_coprocessor()
            && self.kind.is_none_or(|own| own == kind)
            && self.app.as_deref().is_none_or(|own| Some(own) == app);
        is_meant.then(|| self.number.map_or(Barred::All, Barred::One))
    }
}

impl fmt::Display for GpuExclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, kind, number, app } = self;
        write!(f, "{url} {}", kind.map_or(ALL, ResourceType::name))?;
        if let Some(number) = number {
            write!(f, ":{number}")?;
        }
        app.as_ref().map_or(Ok(()), |app| write!(f, " {app}"))
    }
}

impl TryFrom<String> for GpuExclusion {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<GpuExclusion> for String {
    fn from(exclusion: GpuExclusion) -> Self {
        exclusion.to_string()
    }
}

impl FromStr for GpuExclusion {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("exclusion of GPUs", text, EXPECTED);
        let mut words = text.trim().splitn(3, ' ');
        let url = MasterUrl::parse(words.next().unwrap_or_default())?;
        let devices = words.next().unwrap_or(ALL);
        let (name, number) = match devices.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| bad())?)),
            None => (devices, None),
        };
        let kind = match name.to_ascii_lowercase() {
            all if all == ALL => None,
            name => Some(ResourceType::from_name(&name).ok_or_else(bad)?),
        };
        Self::new(url, kind, number, words.next().map(|app| app.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(name: &str) -> MasterUrl {
        MasterUrl::parse(&format!("https://example.org/{name}")).unwrap()
    }

    #[test]
    fn r6_4_an_exclusion_of_gpus_comes_back_as_it_was_written() {
        for text in [
            "https://example.org/p/ all",
            "https://example.org/p/ all:1",
            "https://example.org/p/ nvidia",
            "https://example.org/p/ amd:63",
            "https://example.org/p/ intel:0 an app",
        ] {
            assert_eq!(text.parse::<GpuExclusion>().unwrap().to_string(), text);
        }
        let short: GpuExclusion = "https://example.org/p".parse().unwrap();
        assert_eq!(short.to_string(), "https://example.org/p/ all");
        for text in [
            "",
            "nvidia:0",
            "https://example.org/p/ cpu",
            "https://example.org/p/ nvidia:64",
            "https://example.org/p/ nvidia:-1",
            "https://example.org/p/ nvidia:x",
            "https://example.org/p/ matrox:0",
            "https://example.org/p/ nvidia a\tb\u{7}",
        ] {
            assert!(text.parse::<GpuExclusion>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn r6_4_an_exclusion_of_gpus_bars_what_it_names_and_no_more() {
        let (p, q, nvidia, amd) = (url("p"), url("q"), ResourceType::Nvidia, ResourceType::Amd);
        let of = |text: &str| format!("https://example.org/p/ {text}").parse::<GpuExclusion>().unwrap();
        let all = of("all");
        assert_eq!(all.bars(&p, None, nvidia), Some(Barred::All));
        assert_eq!(all.bars(&p, Some("app"), amd), Some(Barred::All));
        let plain = MasterUrl::parse("http://example.org/p").unwrap();
        assert_eq!(all.bars(&plain, None, nvidia), Some(Barred::All), "by http as by https");
        assert_eq!((all.bars(&q, None, nvidia), all.bars(&p, None, ResourceType::Cpu)), (None, None));
        let one = of("nvidia:1 app");
        assert_eq!(one.bars(&p, Some("app"), nvidia), Some(Barred::One(1)));
        let others =
            [one.bars(&p, Some("app"), amd), one.bars(&p, Some("other"), nvidia), one.bars(&p, None, nvidia)];
        assert_eq!(others, [None; 3]);
    }
}
