//! A user's preferences as a file of BOINC's or a project's reply holds them (BOINC: `global_prefs.xml`,
//! `global_prefs_override.xml`, `global_preferences` in a reply).

use std::collections::BTreeSet;

use super::GlobalPreferences;
use crate::FormatError;
use crate::xml::{Reader, Tag};

const ROOT: &str = "global_preferences";
/// Most days that are read: there are seven, and the last of several for one wins.
const DAYS_MAX: usize = 20;

/// What such a file says.
///
/// A `<venue name="home">` block that is this host's replaces all that stands outside of it, but for when and
/// where the preferences were edited: values outside are forgotten, not inherited (the stock client
/// likewise).
#[derive(Clone, Debug, PartialEq)]
pub struct PreferenceFile {
    /// The values; where an element is absent, what the stock client takes then: its default, and false for
    /// what may or may not be.
    pub values: GlobalPreferences,
    /// The elements that are there, with a value.
    pub present: BTreeSet<String>,
    /// The elements that are there with what is no value of theirs: they count as absent.
    pub unread: BTreeSet<String>,
    /// Hours of single days of the week (BOINC: `day_prefs`).
    pub days: Vec<DayPreferences>,
    /// The venue whose block it is that holds; none where that is what stands outside of blocks.
    pub venue: Option<String>,
    /// The venue that the file says the host is at (BOINC: `host_venue`).
    pub host_venue: Option<String>,
}

/// Hours of one day of the week, in the place of those of every day (BOINC: `day_prefs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayPreferences {
    /// The day, 0 for Sunday.
    pub day: u8,
    /// Compute from this hour to that one.
    pub hours: Option<(f64, f64)>,
    /// Use the network from this hour to that one.
    pub net_hours: Option<(f64, f64)>,
}

impl PreferenceFile {
    /// Reads a file, for a host at `venue` unless the file says another one.
    ///
    /// # Errors
    /// When there is no `<global_preferences>` in it, or an element in it has no end.
    pub fn parse(input: &[u8], venue: &str) -> Result<Self, FormatError> {
        let mut reader = Reader::new("preference file", input);
        let root = reader.root(ROOT)?;
        let mut blocks = Vec::new();
        let mut file = Self::empty();
        file.read(&mut reader, &root, &mut blocks)?;
        let venue = file.host_venue.clone().unwrap_or_else(|| venue.to_owned());
        let of_venue = blocks.into_iter().find(|(name, _)| !venue.is_empty() && *name == venue);
        let Some((_, block)) = of_venue else { return Ok(file) };
        let text = format!("<{ROOT}>\n{block}\n</{ROOT}>\n");
        let mut reader = Reader::new("preferences of a venue", text.as_bytes());
        let root = reader.root(ROOT)?;
        let mut own = Self::empty();
        own.read(&mut reader, &root, &mut Vec::new())?;
        own.values.mod_time = file.values.mod_time;
        own.values.source_project = file.values.source_project;
        Ok(Self { venue: Some(venue), host_venue: file.host_venue, ..own })
    }

    /// Reads the inside of the element, as it came in a reply.
    ///
    /// # Errors
    /// As [`PreferenceFile::parse`].
    pub fn of_reply(block: &str, venue: &str) -> Result<Self, FormatError> {
        Self::parse(format!("<{ROOT}>\n{block}\n</{ROOT}>\n").as_bytes(), venue)
    }

    /// What the stock client begins with when it reads a file.
    fn empty() -> Self {
        let values = GlobalPreferences {
            run_on_batteries: false,
            run_if_user_active: false,
            run_gpu_if_user_active: false,
            leave_apps_in_memory: false,
            confirm_before_connecting: false,
            hangup_if_dialed: false,
            dont_verify_images: false,
            network_wifi_only: true,
            ..GlobalPreferences::default()
        };
        Self {
            values,
            present: BTreeSet::new(),
            unread: BTreeSet::new(),
            days: Vec::new(),
            venue: None,
            host_venue: None,
        }
    }

    fn read<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        parent: &Tag<'a>,
        venues: &mut Vec<(String, String)>,
    ) -> Result<(), FormatError> {
        while let Some(tag) = reader.next_child(parent)? {
            let misfits = reader.misfits();
            match tag.name {
                "venue" => {
                    let block = reader.raw_text(&tag)?;
                    venues.push((tag.attribute("name").unwrap_or_default().to_owned(), block));
                }
                "host_venue" => reader.set(&tag, &mut self.host_venue)?,
                "day_prefs" => {
                    let day = day(reader, &tag)?;
                    if self.days.len() < DAYS_MAX {
                        self.days.extend(day);
                    }
                }
                name if self.values.take(reader, &tag)? => {
                    let read = reader.misfits() == misfits;
                    let list = if read { &mut self.present } else { &mut self.unread };
                    list.insert(name.to_owned());
                }
                _ => reader.skip(&tag)?,
            }
        }
        Ok(())
    }
}

/// A day, if it is one of a week.
fn day<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Option<DayPreferences>, FormatError> {
    let (mut number, mut times): (i64, [Option<f64>; 4]) = (-1, [None; 4]);
    while let Some(tag) = reader.next_child(parent)? {
        match tag.name {
            "day_of_week" => reader.set(&tag, &mut number)?,
            "start_hour" => reader.set(&tag, &mut times[0])?,
            "end_hour" => reader.set(&tag, &mut times[1])?,
            "net_start_hour" => reader.set(&tag, &mut times[2])?,
            "net_end_hour" => reader.set(&tag, &mut times[3])?,
            _ => reader.skip(&tag)?,
        }
    }
    let day = u8::try_from(number).ok().filter(|day| *day < 7);
    Ok(day.map(|day| DayPreferences {
        day,
        hours: times[0].zip(times[1]),
        net_hours: times[2].zip(times[3]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"<global_preferences>\n<source_project>http://p/</source_project>\n<mod_time>5</mod_time>\n\
        <run_on_batteries/>\n<run_if_user_active>1</run_if_user_active>\n<work_buf_min_days>2</work_buf_min_days>\n\
        <day_prefs><day_of_week>0</day_of_week><start_hour>9</start_hour><end_hour>17.5</end_hour></day_prefs>\n\
        <day_prefs><day_of_week>9</day_of_week><start_hour>9</start_hour><end_hour>17</end_hour></day_prefs>\n\
        <venue name=\"home\">\n<max_ncpus_pct>50</max_ncpus_pct>\n<mod_time>9</mod_time>\n</venue>\n\
        </global_preferences>\n";

    #[test]
    fn what_is_absent_in_a_file_is_off_or_boincs_default() {
        let file = PreferenceFile::parse(FILE, "work").unwrap();
        assert!(file.values.run_on_batteries && file.values.run_if_user_active);
        assert!(!file.values.confirm_before_connecting && file.values.network_wifi_only);
        assert_eq!((file.values.work_buf_min_days, file.values.work_buf_additional_days), (2.0, 0.5));
        assert!(file.present.contains("run_on_batteries") && !file.present.contains("max_ncpus_pct"));
        let sunday = DayPreferences { day: 0, hours: Some((9.0, 17.5)), net_hours: None };
        assert_eq!((file.days, file.venue), (vec![sunday], None));
    }

    #[test]
    fn a_venues_block_replaces_all_but_when_and_where_it_was_edited() {
        let file = PreferenceFile::parse(FILE, "home").unwrap();
        assert_eq!(file.values.max_ncpus_pct, 50.0);
        assert_eq!((file.values.mod_time, file.values.source_project.as_str()), (5.0, "http://p/"));
        assert!(!file.values.run_if_user_active && file.values.work_buf_min_days == 0.1);
        assert_eq!((file.days, file.venue.as_deref()), (vec![], Some("home")));
    }

    #[test]
    fn a_file_may_say_at_which_venue_its_host_is_and_one_that_is_cut_is_refused() {
        let text = "<global_preferences><host_venue>home</host_venue><venue name=\"home\">\
            <disk_interval>7</disk_interval></venue></global_preferences>";
        assert_eq!(PreferenceFile::parse(text.as_bytes(), "").unwrap().values.disk_interval, 7.0);
        for cut in [0, 10, 40, 90, text.len() - 5] {
            assert!(PreferenceFile::parse(&text.as_bytes()[..cut], "").is_err(), "{cut}");
        }
        assert!(PreferenceFile::of_reply("<mod_time>3</mod_time>", "").unwrap().values.mod_time == 3.0);
    }
}
