//! Hours of BOINC's file on running agents whose clock on the wall comes to midnight, or to the end or the
//! begin of summer, within half a minute. Their time zone is chosen so; nobody sets a clock (R6.4).

use std::fmt::Write as _;

use fallow_daemon::clock;
use fallow_domain::Instant;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use super::Host;
use super::project::{WAITS, project};
use crate::attach::{RIGHT, attach, status};
use crate::support::wait_for;
use crate::transfers::Server;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// A clock on the wall that comes to an hour of the day in so many seconds.
#[derive(Clone, Copy)]
pub(super) struct Wall {
    /// How far it is ahead of UTC, in seconds.
    offset: i64,
    pub(super) at: Instant,
}

impl Wall {
    pub(super) fn coming_to(hour: i64, secs: i64) -> Self {
        let now = clock::now().as_micros().div_euclid(1_000_000);
        let ahead = (hour * HOUR - secs - now).rem_euclid(DAY);
        let offset = if ahead > DAY / 2 { ahead - DAY } else { ahead };
        Self { offset, at: Instant::from_secs_f64((now + secs) as f64) }
    }

    fn then(self) -> Zoned {
        let offset = Offset::from_seconds(self.offset.try_into().unwrap()).unwrap();
        let at = Timestamp::from_microsecond(self.at.as_micros()).unwrap();
        at.to_zoned(TimeZone::fixed(offset))
    }

    /// The day that it comes to, 0 for Sunday.
    pub(super) fn day(self) -> i8 {
        self.then().weekday().to_sunday_zero_offset()
    }

    /// The time zone, in POSIX's words, with one offset all the year.
    pub(super) fn zone(self) -> String {
        format!("WALL{}", west(self.offset))
    }

    /// The same where clocks are put forward by an hour then.
    fn forward(self) -> String {
        let day = self.day_of_year();
        let hour = i64::from(self.then().hour());
        let (winter, summer) = (west(self.offset), west(self.offset + HOUR));
        format!("WALL{winter}SUMMER{summer},{day}/{hour},{}/{hour}", (day + 180) % 365)
    }

    /// The same where they are put back by an hour then.
    fn back(self) -> String {
        let day = self.day_of_year();
        let hour = i64::from(self.then().hour());
        let (winter, summer) = (west(self.offset - HOUR), west(self.offset));
        format!("WALL{winter}SUMMER{summer},{}/{hour},{day}/{hour}", (day + 180) % 365)
    }

    /// From 0 on, as POSIX counts with leap days.
    fn day_of_year(self) -> i16 {
        self.then().day_of_year() - 1
    }

    pub(super) fn is_past(self) -> bool {
        clock::now() >= self.at
    }
}

/// An offset as POSIX has it: how far UTC is ahead.
fn west(offset: i64) -> String {
    let (sign, secs) = if offset > 0 { ('-', offset) } else { ('+', -offset) };
    format!("{sign}{}:{:02}:{:02}", secs / HOUR, secs / 60 % 60, secs % 60)
}

/// An agent in a time zone with these elements in BOINC's file, and a job.
pub(super) struct Agent {
    pub(super) host: Host,
    pub(super) server: Server,
    says: String,
}

impl Agent {
    pub(super) fn start(zone: &str, elements: &str, server: Server) -> Self {
        let mut host = Host::new();
        host.write_over(elements);
        host.start_with(|run| {
            run.env("TZ", zone);
        });
        assert_eq!(attach(host.path(), &server.url(""), RIGHT, &["--no-wait"]).0, 0);
        let says = format!("{elements} in {zone}");
        Self { host, server, says }
    }

    /// Whether a task runs, where that is to be so, or nothing does for the hours.
    fn stands(&self, runs: bool) -> bool {
        let by = if runs { serde_json::Value::Null } else { "hours".into() };
        self.host.stand() == (by, runs)
    }

    /// How often it said that computing rests or goes on for its hours.
    fn turned(&self) -> usize {
        let notices = status(self.host.path())["notices"].clone();
        let texts = notices.as_array().unwrap().iter().filter_map(|notice| notice["text"].as_str());
        texts.filter(|text| text.starts_with("its hours have begun")).count()
    }
}

/// Waits until something is so, or the clock on the wall is there.
pub(super) fn before(wall: Wall, condition: impl Fn() -> bool) -> bool {
    while !wall.is_past() {
        if condition() {
            return !wall.is_past();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    false
}

/// A zone, what BOINC's file says, and whether a task runs before and after.
type Case = (String, String, bool, bool);

/// Starts agents, and looks at them before a clock on the wall is there and after. False if that came before
/// they were all up.
fn turn(wall: Wall, cases: &[Case]) -> bool {
    let start = |case: &Case| Agent::start(&case.0, &case.1, project(vec![WAITS]));
    let agents: Vec<(Agent, &Case)> = cases.iter().map(|case| (start(case), case)).collect();
    // One that is only being begun "runs", and has no process yet.
    let is_up = |agent: &Agent, runs: bool| {
        agent.stands(runs) && runs != crate::spinning::running(agent.host.path()).is_empty()
    };
    if !agents.iter().all(|(agent, case)| before(wall, || is_up(agent, case.2))) {
        return false;
    }
    let pids: Vec<Vec<u32>> =
        agents.iter().map(|(agent, _)| crate::spinning::running(agent.host.path())).collect();
    if wall.is_past() {
        return false;
    }
    let turns = agents.iter().filter(|(_, case)| case.2 != case.3);
    for (agent, case) in turns {
        wait_for(&format!("the hour of {}", agent.says), || agent.stands(case.3).then_some(()));
        assert!(wall.is_past(), "{} before its time", agent.says);
    }
    // The others have had that hour as well.
    for ((agent, case), pids) in agents.iter().zip(pids).filter(|((_, case), _)| case.2 == case.3) {
        assert!(agent.stands(case.3), "{}: {:?}", agent.says, agent.host.stand());
        assert_eq!(crate::spinning::running(agent.host.path()), pids, "{}", agent.says);
        assert_eq!(agent.turned(), 0, "{}", agent.says);
    }
    true
}

/// Where a machine is too slow for so short a time, it gets more.
pub(super) fn in_time(shows: impl FnMut(i64) -> bool) {
    assert!([25, 75, 240].into_iter().any(shows), "the agents were never up in time");
}

fn hours(start: u32, end: u32) -> String {
    format!("<start_hour>{start}</start_hour>\n<end_hour>{end}</end_hour>")
}

#[test]
fn r6_4_hours_of_the_override_and_of_single_days_begin_and_end_at_midnight_or_go_on_over_it() {
    in_time(|secs| {
        let wall = Wall::coming_to(0, secs);
        let mut other_day = hours(0, 0);
        // The day that comes has none.
        write!(
            other_day,
            "\n<day_prefs><day_of_week>{}</day_of_week>{}</day_prefs>",
            wall.day(),
            hours(24, 0)
        )
        .unwrap();
        let zone = wall.zone();
        turn(
            wall,
            &[
                (zone.clone(), hours(0, 12), false, true),
                (zone.clone(), hours(12, 24), true, false),
                (zone.clone(), other_day, true, false),
                (zone, hours(22, 6), true, true),
            ],
        )
    });
}

#[test]
fn r6_4_when_clocks_are_put_forward_the_hours_after_the_skipped_one_begin() {
    in_time(|secs| {
        let wall = Wall::coming_to(2, secs);
        let zone = wall.forward();
        turn(
            wall,
            &[
                (zone.clone(), hours(3, 12), false, true),
                (zone.clone(), hours(1, 3), true, false),
                // An hour that is skipped is none.
                (zone, hours(2, 3), false, false),
            ],
        )
    });
}

#[test]
fn r6_4_when_clocks_are_put_back_the_hour_that_comes_twice_holds_twice() {
    in_time(|secs| {
        let wall = Wall::coming_to(3, secs);
        let (back, all_year) = (wall.back(), wall.zone());
        turn(
            wall,
            &[
                (all_year.clone(), hours(2, 3), true, false),
                (all_year, hours(3, 12), false, true),
                (back.clone(), hours(2, 3), true, true),
                (back, hours(3, 12), false, false),
            ],
        )
    });
}
