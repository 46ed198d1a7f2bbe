//! All hosts and what they share: the projects. Whose turn it is, and what a run comes to.
//!
//! A server does nothing by itself, so what happens on a host changes nothing of when something happens on
//! another. Each host has one place in the agenda, by the time of what happens there next; of the same time
//! the host with the lowest number. So a host more costs a run what happens on it, and little else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fallow_client::{Client, Event};
use fallow_domain::{Instant, PerType};
use fallow_policy::composition::Composition;
use fallow_policy::metrics::{Figures, Window};

use super::RunOptions;
use super::account::{Account, RunSummary};
use super::availability::{AllOn, OnOff};
use super::machine::Machine;
use super::outcome::{BatchOutcome, EndedJob, HostOutcome, RunOutcome};
use super::random::Stream;
use super::server::Server;
use super::setup::{stream_of, url};
use super::supply::{Supply, instances};
use crate::scenario::{Availability, ProjectModel, Scenario};

/// When simulations begin: at midnight on a Monday, 10 September 2001. Office hours count from there, and a
/// client counts hours of the week by the clock.
pub(super) const BEGINNING: Instant = Instant::from_micros(1_000_080_000_000_000);
/// How often a run looks whether it is to go on, in things that happen.
const WATCH_PERIOD: u64 = 4_096;

/// What all hosts share.
pub(crate) struct Shared<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) composition: Composition,
    pub(super) options: RunOptions<'a>,
    /// What each host has of each type.
    pub(super) instances: PerType<u32>,
    pub(super) servers: Vec<Server<'a>>,
    pub(super) account: Account,
}

/// The hosts and the projects at a moment of virtual time.
pub(crate) struct World<'a> {
    shared: Shared<'a>,
    machines: Vec<Machine>,
    now: Instant,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        composition: Composition,
        seed: u64,
        options: RunOptions<'a>,
    ) -> Self {
        let (host, hosts) = (&scenario.host, scenario.hosts.get() as usize);
        let server = |(index, model): (usize, &'a ProjectModel)| {
            let own = Stream::named(seed, &["project", &model.name, "availability"]);
            let own = OnOff::new(&model.available, BEGINNING, own);
            // The same for all that depend on it, since it draws the same.
            let outages = scenario.outages.iter().filter(|outage| outage.concerns(&model.name));
            let outages = outages.map(|outage| {
                let stream = Stream::named(seed, &["outage", &outage.name, "availability"]);
                OnOff::new(&outage.available, BEGINNING, stream)
            });
            let up = AllOn::new([own].into_iter().chain(outages));
            Server::new(model, up, Supply::new(model, host, seed), url(index), hosts)
        };
        let shared = Shared {
            scenario,
            composition,
            options,
            instances: instances(host),
            servers: scenario.projects.iter().enumerate().map(server).collect(),
            account: Account::new(scenario.projects.len(), BEGINNING),
        };
        let on_off = |number| {
            OnOff::new(&host.available, BEGINNING, stream_of(seed, number, &["host", "availability"]))
        };
        // Nothing is drawn of a recording: all hosts have the same one.
        let recorded = matches!(host.available, Availability::Trace(_)).then(|| on_off(0));
        let machine = |number| {
            let availability = recorded.clone().unwrap_or_else(|| on_off(number));
            Machine::new(number, seed, availability, &shared)
        };
        let machines = (0..hosts).map(machine).collect();
        Self { shared, machines, now: BEGINNING }
    }

    /// Runs to the end, or until the watcher says no.
    pub(crate) fn run(mut self) -> RunOutcome {
        let mut agenda = BinaryHeap::with_capacity(self.machines.len());
        for (number, machine) in self.machines.iter_mut().enumerate() {
            machine.begin(&mut self.shared);
            agenda.push(Reverse((machine.next_at(), number)));
        }
        let mut happened = 0_u64;
        while let Some(Reverse((now, number))) = agenda.pop() {
            self.now = now;
            let Some(machine) = self.machines.get_mut(number) else { continue };
            if !machine.advance(&mut self.shared) {
                continue;
            }
            agenda.push(Reverse((machine.next_at(), number)));
            happened += 1;
            let watched = happened.is_multiple_of(WATCH_PERIOD);
            if let Some(watch) = self.shared.options.watch.filter(|_| watched)
                && !watch(self.now - BEGINNING)
            {
                break;
            }
        }
        self.close()
    }

    fn close(mut self) -> RunOutcome {
        // What was done until the end counts, though what the clients would do about it is not done any more.
        for machine in &mut self.machines {
            machine.move_to(self.now);
            let samples = machine.samples(&mut self.shared);
            let last = if samples.is_empty() { Event::WakeUp } else { Event::TasksSampled(samples) };
            machine.client.handle(self.now, last);
        }
        self.count_late();
        let figures = figures(self.machines.iter().map(|machine| &machine.client), self.now);
        let hosts = self.machines.iter().map(|machine| self.host(machine)).collect();
        let batch = self.batch();
        let Self { shared, mut machines, now } = self;
        let recorder = machines.iter_mut().find_map(|machine| machine.recorder.take());
        // Every client gives the projects the same numbers. One that was never on has given none.
        let ids = machines.into_iter().map(|machine| machine.ids).max_by_key(Vec::len);
        let summary = RunSummary {
            simulated: now - BEGINNING,
            instances: shared.instances,
            ids: ids.unwrap_or_default(),
            hosts,
            batch,
            timeline: recorder.map(|recorder| recorder.close(now)),
        };
        shared.account.close(summary, &shared.scenario.host, &shared.servers, &figures, now)
    }

    fn host(&self, machine: &Machine) -> HostOutcome {
        let known = self.shared.servers.iter().filter_map(|server| server.hosts.get(machine.number));
        let (sent, finished) = known
            .fold((0, 0), |(sent, finished), known| (sent + known.jobs_sent, finished + known.jobs_finished));
        HostOutcome { on: machine.clock, jobs_sent: sent, jobs_finished: finished }
    }

    /// How far the finite supplies came.
    fn batch(&self) -> Option<BatchOutcome> {
        let ends: Vec<_> = self.shared.servers.iter().flat_map(Server::batch_ends).collect();
        // The last of all, if there is none without.
        let last = |ends: &mut dyn Iterator<Item = Option<Instant>>| {
            let last = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
            Some(last - BEGINNING)
        };
        (!ends.is_empty()).then(|| BatchOutcome {
            computed: last(&mut ends.iter().map(|end| end.computed)),
            reported: last(&mut ends.iter().map(|end| end.reported)),
        })
    }

    /// Jobs that are past their deadline and were never reported are late (R5.31).
    fn count_late(&mut self) {
        for (project, server) in self.shared.servers.iter_mut().enumerate() {
            let overdue = server.jobs.iter().filter(|(_, job)| job.deadline < self.now);
            for (number, job) in overdue.map(|(number, job)| (number, *job)).collect::<Vec<_>>() {
                server.late(&job);
                let machine = self.machines.get_mut(job.host);
                if let Some(recorder) = machine.and_then(|machine| machine.recorder.as_mut()) {
                    recorder.ended_job(EndedJob {
                        project,
                        job: number,
                        sent: job.sent - BEGINNING,
                        deadline: job.deadline - BEGINNING,
                        reported: None,
                        met: false,
                        failed: false,
                    });
                }
            }
        }
    }
}

/// The metrics of the hosts together: their histories are one.
fn figures<'c>(mut clients: impl Iterator<Item = &'c Client>, now: Instant) -> Figures {
    let Some(first) = clients.next() else { return Figures::default() };
    let (mut metrics, mut late) = (first.history().clone(), first.late_unreported());
    for client in clients {
        metrics.merge(client.history());
        late += client.late_unreported();
    }
    metrics.figures(Window::Whole, now, late)
}
