//! The last notices, for `status`, with a place for every project (R6.10).
//!
//! Model: projects, and the host as a whole, have equal shares of what is kept and of what is shown. Where
//! there is no room, whoever said the most loses the oldest of it; so one that says very much pushes out
//! nobody else's.

use std::collections::{BTreeMap, VecDeque};

use super::status::Notice;

/// Notices that are kept.
const MAX: usize = 50;

/// The last notices, oldest first.
#[derive(Debug, Default)]
pub struct Notices(VecDeque<Notice>);

impl Notices {
    /// Takes one in.
    pub fn add(&mut self, notice: Notice) {
        self.0.push_back(notice);
        if self.0.len() <= MAX {
            return;
        }
        let mut counts = BTreeMap::new();
        for notice in &self.0 {
            *counts.entry(notice.project_url.as_deref()).or_insert(0) += 1;
        }
        // Of those that said as much, the host, about which others do not speak, keeps its own.
        let most = counts.iter().map(|(about, count)| (*count, about.is_some())).max();
        let of_most = |notice: &Notice| {
            let about = notice.project_url.as_deref();
            counts.get(&about).map(|count| (*count, about.is_some())) == most
        };
        let oldest = self.0.iter().position(of_most);
        oldest.and_then(|at| self.0.remove(at));
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Notice> {
        self.0.iter().cloned().collect()
    }
}

/// The `most` newest, oldest first: of each the newest before a second of anybody's.
pub fn newest(notices: &[Notice], most: usize) -> Vec<&Notice> {
    let mut said = BTreeMap::new();
    let ranked = notices.iter().enumerate().rev().map(|(at, notice)| {
        let rank = said.entry(notice.project_url.as_deref()).or_insert(0_usize);
        *rank += 1;
        (*rank, at, notice)
    });
    let mut ranked: Vec<_> = ranked.collect();
    // Those of a rank stay in their order, the newest first.
    ranked.sort_by_key(|(rank, ..)| *rank);
    ranked.truncate(most);
    ranked.sort_by_key(|(_, at, _)| *at);
    ranked.into_iter().map(|(.., notice)| notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(about: &str, text: &str) -> Notice {
        let project_url = Some(about.to_owned()).filter(|about| !about.is_empty());
        Notice { time: 0.0, level: "warn".into(), project_url, text: text.into() }
    }

    fn texts<'a>(notices: impl IntoIterator<Item = &'a Notice>) -> Vec<&'a str> {
        notices.into_iter().map(|notice| notice.text.as_str()).collect()
    }

    #[test]
    fn r6_10_a_project_that_says_very_much_pushes_out_its_own_notices_only() {
        let mut notices = Notices::default();
        notices.add(notice("", "the CPUs are measured"));
        notices.add(notice("quiet", "no work"));
        for number in 0..1_000 {
            notices.add(notice("loud", &number.to_string()));
        }
        notices.add(notice("quiet", "work"));
        let all = notices.all();
        let kept = texts(&all);
        assert_eq!((kept.len(), kept[0], kept[1], kept[2]), (50, "the CPUs are measured", "no work", "953"));
        assert_eq!((kept[48], kept[49]), ("999", "work"));
        assert_eq!(
            texts(newest(&all, 5)),
            ["the CPUs are measured", "no work", "998", "999", "work"],
            "what is shown has room for all too"
        );
    }

    #[test]
    fn among_more_projects_than_there_is_room_for_the_hosts_own_notice_stays() {
        let mut notices = Notices::default();
        notices.add(notice("", "no space"));
        for number in 0..200 {
            notices.add(notice(&format!("p{number}"), &number.to_string()));
        }
        let all = notices.all();
        assert_eq!((texts(&all)[..2].to_vec(), all.len()), (vec!["no space", "151"], 50));
        // Who is alone has all the room.
        let alone: Vec<_> = (0..9).map(|number| notice("p", &number.to_string())).collect();
        assert_eq!(texts(newest(&alone, 5)), ["4", "5", "6", "7", "8"]);
    }
}
