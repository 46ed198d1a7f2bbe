//! WS3: only what the host can finish in time by the hours at which it really computes.
//!
//! Why: WS2 stretches running times by the mean availability of a host. One that is on for half of the time
//! in minutes and one that is on for half of the days look alike to it, and a job of eight hours with a
//! deadline in a day is in time on the first and late on every second day of the other.
//!
//! Model: a host tells how much on-time there is within times to come, from half an hour to three weeks: what
//! is *sure* (19 of 20 times there was as much) and what is *possible* (3 of 10 times). WS2's simulation is
//! made on the clock of that on-time: deadlines are when so much of it has passed, and running times are as
//! they are. Jobs are judged by what is possible as long as the host names instances of their type that
//! idle: late work is no worse than none, and slack is used up by waiting. Those beyond are judged by what is
//! sure. What was chosen for the same reply counts. A job that is refused only because it would be late
//! itself may be tried all the same (`trial`).
//!
//! A host that does not tell is judged as by WS2, and as there one whose jobs are not known gets what it
//! asked for.
//!
//! Source: this project's own; none that is published.
//!
//! Not in here: that a host reports only when it is connected; that the on-time of a day to come is not the
//! same for two jobs that are judged one after the other; more than two degrees of sureness.

use fallow_domain::{Duration, OnTimeTable, ResourceType};

use super::deadline_check::DeadlineCheck;
use super::host_clock::{HostClock, within};
use super::in_time::InTime;
use super::{HeldJobs, InProgress, Offer, SendDecision, SendPolicy, SendSituation, WhyNotSent, trial};
use crate::on_time::Sureness;

/// WS3.
#[derive(Clone, Copy, Debug)]
pub struct ByOnTime;

impl SendPolicy for ByOnTime {
    fn name(&self) -> &'static str {
        "WS3"
    }

    fn summary(&self) -> &'static str {
        "what can be in time by the host's own hours"
    }

    fn needs_workload(&self) -> bool {
        true
    }

    fn needs_on_time(&self) -> bool {
        true
    }

    fn is_late_alone(
        &self,
        situation: &SendSituation<'_>,
        kind: ResourceType,
        estimate: Duration,
        bound: Duration,
    ) -> bool {
        match situation.on_time {
            Some(table) => {
                let there = within(table, bound, sureness(situation, kind));
                estimate > there && !trial::fits(situation, estimate, bound)
            }
            None => {
                let is_late = InTime.is_late_alone(situation, kind, estimate, bound);
                is_late && !trial::fits(situation, estimate, bound)
            }
        }
    }

    fn decide(
        &self,
        situation: &SendSituation<'_>,
        offers: &mut dyn Iterator<Item = Offer<usize>>,
    ) -> SendDecision<usize> {
        trial::with_trial(situation, offers, |offers| match (situation.on_time, situation.held) {
            (Some(table), Some(held)) => by_on_time(situation, table, held, offers),
            _ => in_time_alone(situation, offers),
        })
    }
}

/// For a host that does not tell when it is on, or which jobs it has. Where jobs may be tried, those that
/// would be late even alone are among the offers; they are refused here, and one may be tried.
fn in_time_alone(
    situation: &SendSituation<'_>,
    offers: &mut dyn Iterator<Item = Offer<usize>>,
) -> SendDecision<usize> {
    if !situation.may_try {
        return InTime.decide(situation, offers);
    }
    let mut late = Vec::new();
    let mut decision = InTime.decide(
        situation,
        &mut offers.filter(|offer| {
            let (kind, bound) = (offer.usage.main_type(), offer.deadline - situation.now);
            let is_late = InTime.is_late_alone(situation, kind, offer.estimate, bound);
            if is_late && situation.demand.wants(kind) {
                let takes = offer.estimate.mul_f64(1.0 / situation.host.availability.get().max(0.01));
                late.push((offer.id, WhyNotSent::MissesDeadline(takes - bound)));
            }
            !is_late
        }),
    );
    decision.refused.extend(late);
    decision
}

fn by_on_time(
    situation: &SendSituation<'_>,
    table: &OnTimeTable,
    held: HeldJobs<'_>,
    offers: &mut dyn Iterator<Item = Offer<usize>>,
) -> SendDecision<usize> {
    let check = |sureness| {
        let clock = HostClock::OnTime(table, sureness);
        DeadlineCheck::new(&situation.host, clock, situation.now, held.load, held.list)
    };
    let (mut sure, mut possible) = (check(Sureness::Sure), check(Sureness::Possible));
    let open = situation.demand;
    let mut sent = SendDecision { send: Vec::new(), refused: Vec::new(), trial: None, open };
    for offer in offers {
        if !sent.open.is_open() {
            break;
        }
        let kind = offer.usage.main_type();
        if !sent.open.wants(kind) {
            continue;
        }
        let job = InProgress { deadline: offer.deadline, remaining: offer.estimate, usage: offer.usage };
        let judge = if sent.open.names_idle(kind) { &mut possible } else { &mut sure };
        if let Some(refusal) = judge.refuses(&job) {
            sent.refused.push((offer.id, refusal));
            continue;
        }
        sure.add(&job);
        possible.add(&job);
        sent.open.fill(offer.usage, offer.estimate);
        sent.send.push(offer.id);
    }
    sent
}

fn sureness(situation: &SendSituation<'_>, kind: ResourceType) -> Sureness {
    if situation.demand.names_idle(kind) { Sureness::Possible } else { Sureness::Sure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::{Demand, Load, SendHost, WhyNotSent, Ws2Switches};
    use fallow_domain::{Fraction, InstanceSeconds, Instant, OnTimeWithin, PerType, Usage};
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn t0() -> Instant {
        Instant::from_secs_f64(1.8e9)
    }

    /// Surely on for a third of any time, possibly for two thirds.
    fn thirds() -> OnTimeTable {
        let row = |hours: i64| OnTimeWithin {
            length: HOUR * 3 * hours,
            sure: HOUR * hours,
            possible: HOUR * 2 * hours,
        };
        OnTimeTable::new([1, 2, 8, 24, 100].map(row).to_vec()).unwrap()
    }

    fn offer(id: usize, hours: i64, deadline: i64) -> Offer<usize> {
        Offer { id, estimate: HOUR * hours, deadline: t0() + HOUR * deadline, usage: Usage::ONE_CPU }
    }

    fn has(hours: i64, deadline: i64) -> InProgress {
        let Offer { deadline, estimate: remaining, usage, .. } = offer(0, hours, deadline);
        InProgress { deadline, remaining, usage }
    }

    fn decide(
        policy: &dyn SendPolicy,
        (seconds, idle): (i64, u32),
        cpus: u32,
        held: Option<&[InProgress]>,
        on_time: Option<&OnTimeTable>,
        offers: Vec<Offer<usize>>,
    ) -> SendDecision<usize> {
        let list = || held.unwrap_or_default().to_vec();
        let situation = SendSituation {
            now: t0(),
            demand: Demand::cpu(Duration::from_secs(seconds), idle),
            host: SendHost { instances: PerType::cpu(cpus), availability: Fraction::clamped(0.5) },
            on_time,
            switches: Ws2Switches::IMPROVED,
            held: held.map(|held| HeldJobs { load: Load::of(held), list: &list }),
            may_try: false,
        };
        policy.decide(&situation, &mut offers.into_iter())
    }

    #[test]
    fn a_job_for_an_idle_instance_may_take_what_is_possible_and_one_beyond_what_is_sure() {
        let send = |asked, offers| decide(&ByOnTime, asked, 4, Some(&[]), Some(&thirds()), offers).send;
        let (idle, ahead) = ((1, 1), (3_600, 0));
        assert_eq!(send(idle, vec![offer(0, 16, 24)]), [0]);
        assert!(send(idle, vec![offer(0, 17, 24)]).is_empty());
        assert_eq!(send(ahead, vec![offer(0, 8, 24)]), [0]);
        assert!(send(ahead, vec![offer(0, 9, 24)]).is_empty());
        // The first fills the instance that idles; those behind it are work ahead.
        let offers = vec![offer(0, 16, 24), offer(1, 9, 24), offer(2, 8, 24)];
        assert_eq!(send((1_000_000, 1), offers), [0, 2]);
    }

    #[test]
    fn work_held_and_work_chosen_before_go_first_and_are_not_made_late() {
        let refusal = |asked, held: &[InProgress], offers| {
            decide(&ByOnTime, asked, 1, Some(held), Some(&thirds()), offers).refused
        };
        let ahead = (1_000_000, 0);
        assert_eq!(refusal(ahead, &[has(4, 12)], vec![offer(0, 4, 24)]), []);
        let late = WhyNotSent::MissesDeadline(HOUR);
        assert_eq!(refusal(ahead, &[has(5, 15)], vec![offer(0, 4, 24)]), [(0, late)]);
        let harms = [(0, WhyNotSent::MakesAnotherLate)];
        assert_eq!(refusal(ahead, &[has(4, 12)], vec![offer(0, 1, 6)]), harms);
        assert_eq!(refusal(ahead, &[], vec![offer(0, 4, 24), offer(1, 5, 24)]), [(1, late)]);
    }

    #[test]
    fn one_job_that_would_be_late_is_tried_where_there_is_nothing_else_to_send() {
        let list = Vec::new;
        let decide = |table: Option<&OnTimeTable>, may_try, offers: Vec<Offer<usize>>| {
            let situation = SendSituation {
                now: t0(),
                demand: Demand::cpu(Duration::from_secs(1_000_000), 2),
                host: SendHost { instances: PerType::cpu(2), availability: Fraction::clamped(0.5) },
                on_time: table,
                switches: Ws2Switches::IMPROVED,
                held: Some(HeldJobs { load: Load::NONE, list: &list }),
                may_try,
            };
            let sent = ByOnTime.decide(&situation, &mut offers.into_iter());
            (sent.send, sent.trial, sent.refused.len())
        };
        let long = |id, hours| offer(id, hours, 24);
        let thirds = Some(thirds());
        let table = thirds.as_ref();
        assert_eq!(decide(table, true, vec![long(0, 160), long(1, 17)]), (vec![0], Some(0), 1));
        assert_eq!(decide(table, true, vec![long(0, 161), long(1, 17)]), (vec![1], Some(1), 1));
        assert_eq!(decide(table, false, vec![long(0, 160)]), (vec![], None, 1));
        assert_eq!(
            decide(table, true, vec![long(0, 17), long(1, 1)]),
            (vec![1], None, 1),
            "there is other work"
        );
        assert_eq!(decide(None, true, vec![long(0, 120)]), (vec![0], Some(0), 0), "it tells no hours");
        assert_eq!(decide(None, true, vec![long(0, 121)]), (vec![], None, 1));
    }

    #[test]
    fn a_host_that_does_not_tell_its_hours_is_sent_what_ws2_sends() {
        for held in [None, Some([has(4, 30)].as_slice())] {
            let offers = || (0..9).map(|id| offer(id, 4, 3 * id as i64 + 4)).collect::<Vec<_>>();
            let send = |policy| decide(policy, (100_000, 1), 2, held, None, offers());
            assert_eq!(send(&ByOnTime), send(&InTime));
        }
        // Nor does a host's telling count where its jobs are not known.
        let send = |table| decide(&ByOnTime, (100_000, 1), 2, None, table, vec![offer(0, 90, 4)]).send;
        assert_eq!((send(None), send(Some(&thirds()))), (vec![0], vec![0]));
    }

    #[test]
    fn jobs_that_are_late_even_by_themselves_are_told_by_the_hosts_hours() {
        let (table, list) = (thirds(), Vec::new);
        let is_late = |on_time, idle, hours| {
            let demand = Demand::new(
                &PerType::cpu(InstanceSeconds::new(9.0)),
                &PerType::cpu(idle),
                InstanceSeconds::ZERO,
            );
            let situation = SendSituation {
                now: t0(),
                demand,
                host: SendHost { instances: PerType::cpu(1), availability: Fraction::clamped(0.5) },
                on_time,
                switches: Ws2Switches::IMPROVED,
                held: Some(HeldJobs { load: Load::NONE, list: &list }),
                may_try: false,
            };
            ByOnTime.is_late_alone(&situation, ResourceType::Cpu, HOUR * hours, HOUR * 24)
        };
        assert_eq!([8, 9].map(|hours| is_late(Some(&table), 0.0, hours)), [false, true]);
        assert_eq!([16, 17].map(|hours| is_late(Some(&table), 1.0, hours)), [false, true]);
        assert_eq!([12, 13].map(|hours| is_late(None, 1.0, hours)), [false, true]);
    }

    proptest! {
        /// On a host that is always on, and tells so, it is WS2.
        #[test]
        fn on_a_host_that_is_always_on_it_sends_what_ws2_sends(
            cpus in 1_u32..5, idle in 0_u32..5, seconds in 1_i64..500_000,
            held in prop::collection::vec((0_i64..9, -5_i64..90), 0..40),
            offers in prop::collection::vec((0_i64..9, -5_i64..90), 0..12),
        ) {
            let held: Vec<_> = held.into_iter().map(|(hours, deadline)| has(hours, deadline)).collect();
            let offers: Vec<_> =
                (0..).zip(offers).map(|(id, (hours, deadline))| offer(id, hours, deadline)).collect();
            let row = OnTimeWithin { length: HOUR, sure: HOUR, possible: HOUR };
            let always = OnTimeTable::new(vec![row]).unwrap();
            let (list, host) = (|| held.clone(), SendHost { instances: PerType::cpu(cpus), availability: Fraction::ONE });
            let situation = SendSituation {
                now: t0(),
                demand: Demand::cpu(Duration::from_secs(seconds), idle),
                host,
                on_time: Some(&always),
                switches: Ws2Switches::IMPROVED,
                held: Some(HeldJobs { load: Load::of(&held), list: &list }),
                may_try: false,
            };
            let by = |policy: &dyn SendPolicy| policy.decide(&situation, &mut offers.clone().into_iter());
            prop_assert_eq!(by(&ByOnTime), by(&InTime));
        }
    }
}
