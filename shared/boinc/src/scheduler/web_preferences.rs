//! What a user has set for one project on its web site.

use fallow_domain::{PerType, Share};

use super::type_of;
use crate::FormatError;
use crate::xml::{Reader, Tag};

/// A user's preferences for one project (BOINC: `project_preferences`), as they hold at the venue of one
/// host.
///
/// A `<venue name="home">` block holds for hosts at that venue. As in BOINC's client it replaces what stands
/// outside of it one by one, but for the types of resource: those start anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebPreferences {
    /// The project's weight on the user's hosts (BOINC: `resource_share`).
    pub share: Option<Share>,
    /// Types of resource that the project's jobs must not use (BOINC: `no_cpu`, `no_rsc`, and older
    /// `no_cuda`, `no_ati`, `no_intel_gpu`).
    pub without: PerType<bool>,
    /// What concerns the project's applications only, byte for byte (BOINC: `project_specific`).
    pub specific: String,
}

const ROOT: &str = "project_preferences";

impl WebPreferences {
    /// Reads the inside of a `project_preferences` block, as it came in a reply. What cannot be read counts
    /// as not said.
    pub fn parse(block: &str, venue: &str) -> Self {
        let mut found = Self::default();
        let text = format!("<{ROOT}>\n{block}\n</{ROOT}>\n");
        let mut of_venue = None;
        // An end that is missing ends the reading; what was read before it holds, as in BOINC.
        let _ = found.read(&text, venue, &mut of_venue);
        if let Some(block) = of_venue {
            found.without = PerType::default();
            let text = format!("<{ROOT}>\n{block}\n</{ROOT}>\n");
            let _ = found.read(&text, "", &mut None);
        }
        found
    }

    fn read(&mut self, text: &str, venue: &str, of_venue: &mut Option<String>) -> Result<(), FormatError> {
        let mut reader = Reader::new("project preferences", text.as_bytes());
        let root = reader.root(ROOT)?;
        while let Some(tag) = reader.next_child(&root)? {
            match tag.name {
                "venue" => {
                    let block = reader.raw_text(&tag)?;
                    if !venue.is_empty() && tag.attribute("name") == Some(venue) {
                        *of_venue = Some(block);
                    }
                }
                "project_specific" => reader.raw_text(&tag)?.trim().clone_into(&mut self.specific),
                "resource_share" => {
                    let mut share: Option<f64> = None;
                    reader.set(&tag, &mut share)?;
                    self.share = share.and_then(|share| Share::new(share).ok()).or(self.share);
                }
                "no_cpu" => self.exclude_if_set(&mut reader, &tag, "CPU")?,
                "no_cuda" => self.exclude_if_set(&mut reader, &tag, "NVIDIA")?,
                "no_ati" => self.exclude_if_set(&mut reader, &tag, "ATI")?,
                "no_intel_gpu" => self.exclude_if_set(&mut reader, &tag, "intel_gpu")?,
                "no_rsc" => {
                    if let Some(name) = reader.text(&tag)? {
                        self.exclude(&name);
                    }
                }
                _ => reader.skip(&tag)?,
            }
        }
        Ok(())
    }

    fn exclude_if_set<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        tag: &Tag<'a>,
        name: &str,
    ) -> Result<(), FormatError> {
        let mut is_so = false;
        reader.set(tag, &mut is_so)?;
        if is_so {
            self.exclude(name);
        }
        Ok(())
    }

    fn exclude(&mut self, name: &str) {
        if let Some(kind) = type_of(name) {
            self.without[kind] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_domain::ResourceType;

    use super::*;

    const BLOCK: &str = "<resource_share>75</resource_share>\n<no_cpu>0</no_cpu>\n<no_cuda>1</no_cuda>\n\
        <project_specific>\n<color>red</color>\n<a.b>1 & 2</a.b>\n</project_specific>\n\
        <venue name=\"home\">\n<resource_share>20</resource_share>\n<no_cpu>1</no_cpu>\n\
        <project_specific>\n<color>blue</color>\n</project_specific>\n</venue>\n\
        <venue name=\"school\">\n<no_rsc>intel_gpu</no_rsc>\n</venue>";

    #[test]
    fn what_stands_outside_of_venues_holds_everywhere_else() {
        for venue in ["", "work"] {
            let found = WebPreferences::parse(BLOCK, venue);
            assert_eq!(found.share.map(Share::get), Some(75.0));
            assert_eq!(found.specific, "<color>red</color>\n<a.b>1 & 2</a.b>");
            assert!(found.without[ResourceType::Nvidia] && !found.without[ResourceType::Cpu]);
        }
    }

    #[test]
    fn a_venues_block_replaces_what_it_says_and_begins_the_types_anew() {
        let home = WebPreferences::parse(BLOCK, "home");
        assert_eq!((home.share.map(Share::get), home.specific.as_str()), (Some(20.0), "<color>blue</color>"));
        assert!(home.without[ResourceType::Cpu] && !home.without[ResourceType::Nvidia]);
        let school = WebPreferences::parse(BLOCK, "school");
        assert_eq!(school.share.map(Share::get), Some(75.0));
        assert!(school.specific.contains("red") && school.without[ResourceType::Intel]);
        assert!(!school.without[ResourceType::Nvidia]);
    }

    #[test]
    fn nonsense_counts_as_not_said() {
        for block in
            ["", "<resource_share>-1</resource_share>", "<resource_share>nan</resource_share>", "<venue"]
        {
            let found = WebPreferences::parse(block, "home");
            assert_eq!(found, WebPreferences::default(), "{block}");
        }
        let cut = WebPreferences::parse("<resource_share>5</resource_share><project_specific>x", "");
        assert_eq!((cut.share.map(Share::get), cut.specific.as_str()), (Some(5.0), ""));
    }
}
