//! A project's server: answers clients' typed requests with typed replies.
//!
//! It offers the jobs that would fill a request by their estimates, and sends of those what the composition's
//! work send lets through (R5.5, R5.6), by the very code that the product's server runs. A job that it
//! refuses goes to some other host, and no further one is offered in its place in this reply: a server's
//! cache of jobs is small, and asking again is the client's affair. Where estimates are corrected, it is by
//! the factor that the client reports. Where a project's jobs are spread, a host holds no more of them than
//! its part.

use fallow_boinc::scheduler::{
    App, AppVersion, Coprocessor, FileInfo, FileRef, Message, PART_REFUSAL, Priority, ReportedResult,
    ResultJob, ResultState, SchedulerReply, SchedulerRequest, Workunit, type_name,
};
use fallow_domain::{Bytes, Duration, Flops, InstanceSeconds, Instant, PerType, ResourceType, Usage};
use fallow_policy::completion::DurationCorrection;
use fallow_policy::composition::Composition;
use fallow_policy::send::spread::{self, AskingFleet, SpreadSituation};
use fallow_policy::send::{Demand, HeldJobs, Offer, SendHost, SendSituation};

use super::arrival::Arrival;
use super::availability::AllOn;
use super::host::CPUS_MIN;
use super::jobs::{Jobs, SentJob, number_of};
use super::known_host::KnownHost;
use super::supply::{Application, DrawnJob, Supply, length};
use crate::scenario::{ProjectModel, QueuedState};

pub(crate) const PLATFORM: &str = "x86_64-pc-linux-gnu";
/// Jobs in one reply.
const REPLY_MAX: usize = 20_000;

/// A project's server and what it knows.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    pub(crate) model: &'a ProjectModel,
    pub(crate) up: AllOn,
    pub(crate) supply: Supply<'a>,
    pub(crate) jobs: Jobs,
    pub(crate) counts: ServerCounts,
    /// All hosts, by their places.
    pub(crate) hosts: Vec<KnownHost>,
    url: String,
}

/// What a server counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerCounts {
    pub(crate) rpcs: u64,
    pub(crate) rpcs_failed: u64,
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) finished: u64,
    pub(crate) late: u64,
    pub(crate) failed: u64,
    pub(crate) wasted: Duration,
    /// The correction factor that a client reported last.
    pub(crate) correction: f64,
}

/// When the last job of a finite supply was computed and when the last was reported; none while one is not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchEnd {
    pub(crate) computed: Option<Instant>,
    pub(crate) reported: Option<Instant>,
}

/// A report as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) number: u64,
    pub(crate) job: SentJob,
    pub(crate) failed: bool,
}

impl<'a> Server<'a> {
    pub(crate) fn new(
        model: &'a ProjectModel,
        up: AllOn,
        supply: Supply<'a>,
        url: String,
        hosts: usize,
    ) -> Self {
        let counts = ServerCounts { correction: 1.0, ..ServerCounts::default() };
        let versions = vec![false; supply.applications.len()];
        let hosts = vec![KnownHost { versions, ..KnownHost::default() }; hosts];
        Self { model, up, supply, jobs: Jobs::default(), counts, hosts, url }
    }

    /// Answers a request of a client. `reported` gets the jobs that are over with it.
    pub(crate) fn answer(
        &mut self,
        mut arrival: Arrival<'_>,
        host: &PerType<u32>,
        composition: &Composition,
        now: Instant,
        reported: &mut Vec<Report>,
    ) -> SchedulerReply {
        let mut reply =
            SchedulerReply { request_delay: self.model.request_delay, ..SchedulerReply::default() };
        let from = arrival.host;
        let known = self.hosts.get_mut(from).is_some_and(|host| std::mem::replace(&mut host.known, true));
        let first = !known;
        if first {
            reply.hostid = Some(from as u64 + 1);
            self.send_queue(&mut reply, from, now);
        }
        self.counts.correction = arrival.request.duration_correction_factor;
        for result in std::mem::take(&mut arrival.request.results) {
            self.take_report(result, now, &mut reply, reported);
        }
        // What the client holds from the beginning comes before anything new.
        let drawn_jobs = match first && !self.model.queue.is_empty() {
            true => Vec::new(),
            false => self.choose(&arrival, host, composition, now, &mut reply),
        };
        for drawn in drawn_jobs {
            self.send(&mut reply, from, drawn, now);
        }
        reply
    }

    fn take_report(
        &mut self,
        result: ReportedResult,
        now: Instant,
        reply: &mut SchedulerReply,
        reported: &mut Vec<Report>,
    ) {
        if let Some(number) = number_of(&result.name)
            && let Some(job) = self.jobs.remove(number)
        {
            let failed = result.exit_status != 0 || result.state != ResultState::Uploaded;
            self.counts.failed += u64::from(failed);
            self.counts.finished += u64::from(!failed);
            if let Some(host) = self.hosts.get_mut(job.host) {
                host.jobs_finished += u64::from(!failed);
                host.held = host.held.saturating_sub(1);
                match failed && result.state != ResultState::Aborted && now <= job.deadline {
                    true => host.trials.failed(),
                    false => host.trials.over(!failed && now <= job.deadline),
                }
            }
            if let Some(application) = self.supply.applications.get_mut(job.application) {
                application.ended(job.computed.unwrap_or(now), now);
            }
            if now > job.deadline {
                self.late(&job);
            } else if result.state == ResultState::Aborted {
                self.counts.wasted += self.instance_time(&job);
            }
            reported.push(Report { number, job, failed });
        }
        reply.result_acks.push(result.name);
    }

    /// Counts a job that missed its deadline.
    pub(crate) fn late(&mut self, job: &SentJob) {
        self.counts.late += 1;
        self.counts.wasted += self.instance_time(job);
    }

    /// What a job used of its main type.
    fn instance_time(&self, job: &SentJob) -> Duration {
        let Some(application) = self.supply.applications.get(job.application) else { return Duration::ZERO };
        job.ran.mul_f64(application.usage.of(application.main_type()))
    }

    /// Jobs to send for a request, and what the project cannot serve at all (R3.12).
    fn choose(
        &mut self,
        arrival: &Arrival<'_>,
        host: &PerType<u32>,
        composition: &Composition,
        now: Instant,
        reply: &mut SchedulerReply,
    ) -> Vec<DrawnJob> {
        let request = &arrival.request;
        let wanted = wanted(request);
        if request.dont_send_work || !wanted.is_open() {
            return Vec::new();
        }
        let unsupported = wanted.unsupported(&self.supply.supports());
        let unsupported = unsupported.iter().filter(|(_, unsupported)| **unsupported);
        reply.no_rsc_apps.extend(unsupported.map(|(kind, _)| type_name(kind).to_owned()));
        let learned = DurationCorrection::new(request.duration_correction_factor);
        let (drawn_jobs, offers) =
            self.offers(wanted, REPLY_MAX, composition.completion.factor(learned), now);
        let listed = || arrival.listed();
        let held = arrival.sums().map(|load| HeldJobs { load, list: &listed });
        let situation = SendSituation {
            now,
            demand: wanted,
            host: SendHost { instances: *host, availability: request.time_stats.availability() },
            on_time: request.time_stats.fallow_on_time.as_ref(),
            switches: composition.ws2,
            held,
            may_try: self.hosts.get(arrival.host).is_some_and(|host| host.trials.may_try(host.held, now)),
        };
        let sent = composition.send.decide(&situation, &mut offers.into_iter());
        if sent.send.is_empty() && sent.refused.iter().any(|(_, refusal)| refusal.is_for_lateness()) {
            // In the words of BOINC's own.
            let text = "Tasks won't finish in time on this computer".to_owned();
            reply.messages.push(Message { priority: Priority::Low, text });
        }
        let jobs = self.part(drawn_jobs, sent.send);
        self.spread(arrival.host, host, &wanted, jobs, reply)
    }

    /// Parts the jobs that are sent from those that are not.
    fn part(&mut self, drawn_jobs: Vec<DrawnJob>, sent: Vec<usize>) -> Vec<DrawnJob> {
        // Both are in the order in which they were offered.
        let (mut chosen, mut sent) = (Vec::with_capacity(sent.len()), sent.into_iter().peekable());
        for (place, drawn) in drawn_jobs.into_iter().enumerate() {
            if sent.next_if_eq(&place).is_some() {
                chosen.push(drawn);
            } else {
                self.counts.refused += 1;
                self.supply.give_back(&drawn);
            }
        }
        chosen
    }

    /// The jobs that would fill a request if all of them were sent, those for coprocessors first.
    fn offers(
        &mut self,
        mut open: Demand,
        most: usize,
        factor: DurationCorrection,
        now: Instant,
    ) -> (Vec<DrawnJob>, Vec<Offer<usize>>) {
        let (mut drawn_jobs, mut offers) = (Vec::new(), Vec::new());
        for kind in ResourceType::ALL.into_iter().rev() {
            while open.wants(kind) && drawn_jobs.len() < most {
                let Some(drawn) = self.supply.next(kind) else { break };
                let Some(application) = self.supply.applications.get(drawn.application) else { break };
                let Some(speed) = application.speed else { break };
                let estimate = factor.apply(drawn.estimate.at(speed)).max(Duration::from_micros(1));
                let (usage, deadline) = (application.usage, now + application.model.latency_bound);
                open.fill(usage, estimate);
                offers.push(Offer { id: drawn_jobs.len(), estimate, deadline, usage });
                drawn_jobs.push(drawn);
            }
        }
        (drawn_jobs, offers)
    }

    /// Of jobs that could be sent, those that are, where a batch is spread over the hosts. What the host
    /// holds counts, and it is told when it may come again.
    fn spread(
        &mut self,
        host: usize,
        instances: &PerType<u32>,
        wanted: &Demand,
        jobs: Vec<DrawnJob>,
        reply: &mut SchedulerReply,
    ) -> Vec<DrawnJob> {
        let Some(known) = self.hosts.get(host).filter(|_| self.model.spread) else { return jobs };
        let (hosts, instances) = (self.hosts.len() as u64, spread::instances(instances));
        let situation = SpreadSituation {
            unsent: self.supply.unsent().saturating_add(jobs.len() as u64),
            fleet: AskingFleet { hosts, instances: hosts * instances },
            instances,
            held: known.held,
            idle: PerType::from_fn(|kind| wanted.idle(kind)),
        };
        let application = |job: &DrawnJob| self.supply.applications.get(job.application);
        let usages: Vec<Usage> =
            jobs.iter().map(|job| application(job).map_or(Usage::ONE_CPU, |of| of.usage)).collect();
        let estimate = jobs.first().and_then(|job| Some(job.estimate.at(application(job)?.speed?)));
        let spread = situation.spread(&usages);
        let (mut sent, mut held_back) = (Vec::new(), Vec::new());
        for (job, is_sent) in jobs.into_iter().zip(&spread.send) {
            if *is_sent { sent.push(job) } else { held_back.push(job) }
        }
        held_back.iter().for_each(|job| self.supply.give_back(job));
        if let Some(why) = spread.why {
            reply.messages.push(Message { priority: Priority::Low, text: format!("{PART_REFUSAL}: {why}") });
        }
        if let Some(estimate) = estimate {
            let holds = situation.held + sent.len() as u64;
            reply.request_delay =
                situation.comes_again(holds, estimate, self.model.request_delay, REPLY_MAX as u64);
        }
        sent
    }

    /// When the jobs of each finite supply were done, which none is while there is one to send.
    pub(crate) fn batch_ends(&self) -> Vec<BatchEnd> {
        let finite = self.supply.applications.iter().enumerate();
        let finite = finite.filter(|(_, application)| application.model.jobs.is_some_and(|jobs| jobs > 0));
        finite.map(|(place, application)| self.batch_end(place, application)).collect()
    }

    fn batch_end(&self, place: usize, application: &Application<'_>) -> BatchEnd {
        if application.left > 0 {
            return BatchEnd::default();
        }
        let held = self.jobs.iter().filter(|(_, job)| job.application == place).map(|(_, job)| job.computed);
        let held: Vec<Option<Instant>> = held.collect();
        let reported = application.reported.filter(|_| held.is_empty());
        let held: Option<Vec<Instant>> = held.into_iter().collect();
        BatchEnd {
            computed: held.and_then(|held| held.into_iter().chain(application.computed).max()),
            reported,
        }
    }

    fn send(&mut self, reply: &mut SchedulerReply, host: usize, drawn: DrawnJob, now: Instant) {
        let Some(application) = self.supply.applications.get(drawn.application) else { return };
        let Some(speed) = application.speed else { return };
        let length = length(drawn.true_flops, speed);
        self.put(
            reply,
            drawn.estimate,
            SentJob {
                host,
                application: drawn.application,
                sent: now,
                deadline: now + application.model.latency_bound,
                length,
                fails_at: drawn.fails_at.map(|part| length.mul_f64(part).max(Duration::from_micros(1))),
                kept: Duration::ZERO,
                ran: Duration::ZERO,
                computed: None,
            },
        );
        self.counts.sent += 1;
    }

    /// Puts a job into a reply, with all that it refers to and the client has not.
    pub(crate) fn put(&mut self, reply: &mut SchedulerReply, estimate: Flops, job: SentJob) {
        let number = self.jobs.next_number();
        let Some(application) = self.supply.applications.get_mut(job.application) else { return };
        let name = format!("{}_{number}", application.model.name);
        if let Some(host) = self.hosts.get_mut(job.host) {
            host.jobs_sent += 1;
            host.held += 1;
            host.trials.sent(job.sent);
            if host.lacks_version(job.application) {
                put_version(reply, application, &self.url);
            }
        }
        let (input, output) = (application.model.input, application.model.output);
        let mut wu_files = Vec::new();
        if input > Bytes(0) {
            let file = format!("{name}_in");
            let from = vec![format!("{}download/{file}", self.url)];
            let nbytes = Some(input);
            reply.files.push(FileInfo {
                name: file.clone(),
                download_urls: from,
                nbytes,
                ..FileInfo::default()
            });
            wu_files.push(FileRef { file_name: file, ..FileRef::default() });
        }
        let mut files = Vec::new();
        if output > Bytes(0) {
            let file = format!("{name}_out");
            let to = vec![format!("{}file_upload_handler", self.url)];
            let max_nbytes = Some(output);
            reply.files.push(FileInfo {
                name: file.clone(),
                upload_urls: to,
                max_nbytes,
                ..FileInfo::default()
            });
            files.push(FileRef { file_name: file, ..FileRef::default() });
        }
        reply.workunits.push(Workunit {
            name: name.clone(),
            app_name: application.model.name.clone(),
            rsc_fpops_est: Some(estimate),
            // Nothing here runs away: no job is to be stopped for its length.
            rsc_fpops_bound: Flops::new(1e30).ok(),
            rsc_memory_bound: Some(application.model.memory),
            rsc_disk_bound: Some(Bytes::from_f64((input.as_f64() + output.as_f64()) * 2.0 + 1e6)),
            files: wu_files,
            ..Workunit::default()
        });
        reply.results.push(ResultJob {
            wu_name: name.clone(),
            name,
            report_deadline: job.deadline,
            files,
            platform: PLATFORM.to_owned(),
            version_num: 100,
            plan_class: plan_class(application),
            ..ResultJob::default()
        });
        self.jobs.push(job);
    }

    /// What the client holds when the simulation begins: of each job what is left of it, with an estimate
    /// that is as wrong as its whole one. Jobs that are computed already are left out.
    fn send_queue(&mut self, reply: &mut SchedulerReply, host: usize, now: Instant) {
        let model = self.model;
        for queued in &model.queue {
            let found = self.supply.applications.iter().position(|a| a.model.name == queued.application);
            let Some(place) = found else { continue };
            let left = 1.0 - queued.fraction_done.get();
            let done = queued.state == QueuedState::Finished || left <= 0.0;
            let Some(application) = self.supply.applications.get_mut(place).filter(|_| !done) else {
                continue;
            };
            let Some(speed) = application.speed else { continue };
            let drawn = length(application.draw_size() * left, speed);
            let length = queued.remaining.unwrap_or(drawn);
            let estimate = Flops::new(application.model.estimated_flops.get() * left).unwrap_or_default();
            let job = SentJob {
                host,
                application: place,
                sent: now + queued.received,
                deadline: now + queued.deadline,
                length: length.max(Duration::from_micros(1)),
                fails_at: None,
                kept: Duration::ZERO,
                ran: Duration::ZERO,
                computed: None,
            };
            self.put(reply, estimate, job);
            self.counts.sent += 1;
        }
    }
}

fn put_version(reply: &mut SchedulerReply, application: &Application<'_>, url: &str) {
    let name = application.model.name.clone();
    let program = format!("{name}_program");
    reply.apps.push(App { name: name.clone(), ..App::default() });
    reply.files.push(FileInfo {
        name: program.clone(),
        download_urls: vec![format!("{url}download/{program}")],
        nbytes: Some(Bytes(0)),
        ..FileInfo::default()
    });
    reply.app_versions.push(AppVersion {
        app_name: name,
        version_num: 100,
        platform: PLATFORM.to_owned(),
        plan_class: plan_class(application),
        files: vec![FileRef { file_name: program, main_program: true, ..FileRef::default() }],
        // A client takes none at all for nonsense.
        avg_ncpus: application.usage.cpus.max(CPUS_MIN),
        flops: application.speed,
        coproc: application
            .usage
            .coprocessor
            .map(|(kind, count)| Coprocessor { kind: type_name(kind).to_owned(), count }),
        ..AppVersion::default()
    });
}

fn plan_class(application: &Application<'_>) -> String {
    let kind = application.main_type();
    if kind.is_coprocessor() { kind.name().to_owned() } else { String::new() }
}

/// What is asked for, by type.
pub(crate) fn wanted(request: &SchedulerRequest) -> Demand {
    let (seconds, instances) = request.asked();
    let seconds = seconds.map(|_, seconds| InstanceSeconds::new(*seconds));
    Demand::new(&seconds, &instances, InstanceSeconds::new(request.work_req_seconds))
}
