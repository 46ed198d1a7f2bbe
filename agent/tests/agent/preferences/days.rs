//! Hours of the network and amounts of days, as BOINC's file says them, on running agents that come to
//! midnight within half a minute (R6.4).

use serde_json::Value;

use super::clock::{Agent, Wall, before, in_time};
use super::{WAITS, with_a_long_program};
use crate::attach::{RIGHT, attach, status};
use crate::support::wait_for;
use crate::transfers::Server;
use crate::turns::working;

fn posts(server: &Server) -> usize {
    server.asked().iter().filter(|asked| asked.head.starts_with("post ")).count()
}

fn network_rests(agent: &Agent) -> Option<String> {
    status(agent.host.path())["host"]["network_rests"].as_str().map(str::to_owned)
}

fn network(start: u32, end: u32) -> String {
    format!("<net_start_hour>{start}</net_start_hour>\n<net_end_hour>{end}</net_end_hour>")
}

#[test]
fn r6_4_no_project_hears_of_an_agent_outside_of_the_network_hours_of_the_override() {
    in_time(|secs| {
        let wall = Wall::coming_to(0, secs);
        let day =
            format!("<day_prefs><day_of_week>{}</day_of_week>{}</day_prefs>", wall.day(), network(24, 0));
        let agent = |elements: &str| Agent::start(&wall.zone(), elements, working(WAITS));
        // The project sends one job for each request, so it is asked again and again.
        let [opens, closes, closes_that_day] =
            [network(0, 12), network(12, 24), day].map(|elements| agent(&elements));
        let is_up = || network_rests(&opens).is_some();
        let goes_out = |agent: &Agent| {
            posts(&agent.server) >= 3 && network_rests(agent).is_none() && agent.host.stand().1
        };
        let are_up = before(wall, is_up)
            && [&closes, &closes_that_day].into_iter().all(|agent| before(wall, || goes_out(agent)));
        if !are_up {
            return false;
        }
        let went_out = posts(&closes.server);
        // Not a word, while the other one asks.
        let heard = || (posts(&closes.server) >= went_out + 2, opens.server.asked().len());
        let asks = before(wall, || {
            let (asks, heard) = heard();
            assert!(heard == 0 || wall.is_past(), "{heard} requests");
            asks
        });
        if !asks {
            return false;
        }
        wait_for("the hours of the network", || (posts(&opens.server) >= 2).then_some(()));
        assert!(wall.is_past() && network_rests(&opens).is_none());
        for agent in [&closes, &closes_that_day] {
            let why = wait_for("their end", || network_rests(agent));
            assert!(why.starts_with("the hours of the network are "), "{why}");
            assert_eq!(agent.host.stand(), (Value::Null, true), "what is here is computed");
        }
        // What was under way has come to its end when as much time has passed as three requests take.
        let (ended, others) = (posts(&closes.server), posts(&opens.server));
        wait_for("requests of the other one", || (posts(&opens.server) >= others + 3).then_some(()));
        assert!(posts(&closes.server) <= ended + 1);
        true
    });
}

/// Whether the first job of a project has its program.
fn has_come(agent: &Agent, server: &Server) -> bool {
    let tasks = status(agent.host.path())["tasks"].clone();
    let is_here = |task: &Value| task["project_url"] == server.url("") && task["phase"] != "downloading";
    tasks.as_array().is_some_and(|tasks| tasks.iter().any(is_here))
}

/// The server begins each file anew, so each program has to come within a day.
#[test]
fn r6_4_what_files_may_come_to_in_a_day_is_allowed_anew_at_midnight_and_in_two_days_is_not() {
    in_time(|secs| {
        let wall = Wall::coming_to(0, secs);
        // More than one of the programs, and less than two.
        let agent = |days: u32| {
            let says = format!(
                "<daily_xfer_limit_mb>3</daily_xfer_limit_mb>\n\
                 <daily_xfer_period_days>{days}</daily_xfer_period_days>\n\
                 <max_bytes_sec_down>1000000</max_bytes_sec_down>"
            );
            Agent::start(&wall.zone(), &says, with_a_long_program())
        };
        let (agents, others) = ([agent(1), agent(2)], [(); 2].map(|()| with_a_long_program()));
        let spent =
            |agent: &Agent| network_rests(agent).is_some_and(|why| why.contains("of 3.1 MB that may be"));
        for (agent, other) in agents.iter().zip(&others) {
            if !before(wall, || has_come(agent, &agent.server)) {
                return false;
            }
            assert_eq!(attach(agent.host.path(), &other.url(""), RIGHT, &["--no-wait"]).0, 0);
        }
        if !agents.iter().all(|agent| before(wall, || spent(agent))) {
            return false;
        }
        let [of_a_day, of_two] = &agents;
        let why = network_rests(of_two).unwrap();
        assert!(why.contains("in the last 2 days"), "{why}");
        wait_for("the other program", || has_come(of_a_day, &others[0]).then_some(()));
        assert!(wall.is_past());
        assert!(spent(of_two) && !has_come(of_two, &others[1]), "{:?}", network_rests(of_two));
        true
    });
}
