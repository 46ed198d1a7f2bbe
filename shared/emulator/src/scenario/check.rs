//! What makes sense in a scenario, said in one place for all readers.
//!
//! Types rule most nonsense out (no CPUs, a negative share, a fraction above 1). What they cannot is looked
//! at here. A problem names its place by a path as `--vary` writes it, so that a reader of files can point at
//! the line.

use std::collections::BTreeSet;

use fallow_config::{Problem, Severity, write_duration};
use fallow_domain::{Duration, Flops};

use super::{
    ApplicationModel, Availability, Buffer, ClientModel, HostModel, OfficeHours, OutageModel, ProjectModel,
    QueuedJob, Scenario, Trace,
};

/// 36,500 days, longer than any simulation: durations beyond it are typing errors, and lose microseconds in
/// files.
pub(crate) const CENTURY: Duration = Duration::from_hours(36_500 * 24);
/// As in the product's preferences.
const MONTH: Duration = Duration::from_hours(31 * 24);
const SECOND: Duration = Duration::from_secs(1);
const UNIQUE: &str = "a name of its own for each";
/// Jobs shorter than this on average would make a run of days endless.
const JOB_MIN: Duration = Duration::from_millis(1);
/// Beyond any host: more are a typing error, and would be simulated one by one.
const CPUS_MAX: u32 = 4096;
/// Most hosts: each has a client that holds as much as one alone.
const HOSTS_MAX: u32 = 1000;
/// Most projects, and most applications of them together: beyond any client, and each costs time at every
/// step.
const PROJECTS_MAX: usize = 1000;

impl Scenario {
    /// Everything that is wrong with this scenario, errors and warnings, in the order of a scenario file.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut check = Check { found: Vec::new() };
        check.name("name", &self.name);
        check.within("duration", self.duration, SECOND, CENTURY, "from 1 s to 36,500 days");
        let hosts = self.hosts.get();
        let expected = "a whole number from 1 to 1,000";
        check.number("hosts", f64::from(hosts), hosts <= HOSTS_MAX, expected);
        check.host(&self.host);
        check.client(self);
        if self.projects.is_empty() {
            check.error("project", "there is none".into(), "at least one [[project]]");
        }
        if check.too_many(&self.projects) {
            return check.found;
        }
        let mut names = BTreeSet::new();
        for project in &self.projects {
            if !names.insert(&project.name) {
                let reason = format!("two projects are named {:?}", project.name);
                check.error(&format!("project.{}.name", project.name), reason, UNIQUE);
            }
            check.project(project, &self.host);
        }
        let mut outages = BTreeSet::new();
        for outage in &self.outages {
            if !outages.insert(&outage.name) {
                let reason = format!("two outages are named {:?}", outage.name);
                check.error(&format!("outage.{}.name", outage.name), reason, UNIQUE);
            }
            check.outage(outage, &names);
        }
        check.found
    }

    /// True if [`Scenario::check`] finds no error; warnings do not count.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.check().iter().all(|problem| problem.severity == Severity::Warning)
    }
}

impl ProjectModel {
    /// The path of `key` of one of its applications: shorter if the application stands in the project itself.
    pub(crate) fn application_path(&self, application: &ApplicationModel, key: &str) -> String {
        if self.applications.len() == 1 && application.name == self.name {
            format!("project.{}.{key}", self.name)
        } else {
            format!("project.{}.application.{}.{key}", self.name, application.name)
        }
    }
}

struct Check {
    found: Vec<Problem>,
}

impl Check {
    fn error(&mut self, path: &str, reason: String, expected: &str) {
        self.found.push(Problem {
            severity: Severity::Error,
            path: path.into(),
            reason,
            expected: expected.into(),
        });
    }
    fn warning(&mut self, path: &str, reason: String) {
        let expected = String::new();
        self.found.push(Problem { severity: Severity::Warning, path: path.into(), reason, expected });
    }
    fn within(&mut self, path: &str, value: Duration, low: Duration, high: Duration, expected: &str) {
        if value < low || value > high {
            let reason = format!("{} makes no sense here", write_duration(value));
            self.error(path, reason, &format!("a duration {expected}"));
        }
    }
    fn number(&mut self, path: &str, value: f64, ok: bool, expected: &str) {
        if !ok {
            self.error(path, format!("{value} makes no sense here"), expected);
        }
    }

    /// Says where there is more than can be simulated. What lies behind is not looked at then.
    fn too_many(&mut self, projects: &[ProjectModel]) -> bool {
        if let Some(first) = projects.get(PROJECTS_MAX) {
            let reason = format!("there are {} projects", projects.len());
            let expected = "at most 1,000 [[project]]: no client is attached to more";
            self.error(&format!("project.{}", first.name), reason, expected);
            return true;
        }
        let mut all = 0;
        for project in projects {
            let room = PROJECTS_MAX - all;
            if let Some(first) = project.applications.get(room) {
                let count: usize = projects.iter().map(|project| project.applications.len()).sum();
                let reason = format!("there are {count} applications in all projects");
                let expected =
                    "at most 1,000 kinds of jobs, a project without [[project.application]] has one";
                let path = project.application_path(first, "");
                self.error(path.trim_end_matches('.'), reason, expected);
                return true;
            }
            all += project.applications.len();
        }
        false
    }

    /// Names head columns, name files and stand in paths.
    fn name(&mut self, path: &str, name: &str) {
        let bad = |c: char| c.is_control() || matches!(c, '.' | '=' | '*' | ',' | '/' | '\\');
        if name.trim() != name || name.is_empty() || name.len() > 100 || name.chars().any(bad) {
            let expected = "1 to 100 characters, none of them . = * , / \\ and no blanks around them";
            self.error(path, format!("{name:?} is no name"), expected);
        }
    }

    fn available(&mut self, path: &str, available: &Availability) {
        match available {
            Availability::Always => {}
            Availability::OnOff { fraction, mean } => {
                let expected = "a fraction above 0: otherwise it is never on";
                self.number(&format!("{path}.fraction"), fraction.get(), fraction.get() > 0.0, expected);
                let path = format!("{path}.mean");
                self.within(&path, *mean, SECOND, CENTURY, "from 1 s to 36,500 days");
            }
            Availability::Hours(hours) => self.hours(path, hours),
            Availability::Trace(trace) => self.trace(&format!("{path}.trace"), trace),
        }
    }

    fn hours(&mut self, path: &str, hours: &OfficeHours) {
        let (day, length) = (Duration::from_hours(24), hours.to - hours.from);
        if hours.days == [false; 7] {
            self.error(&format!("{path}.days"), "there is none".into(), "at least one day of the week");
        }
        if hours.from < Duration::ZERO || hours.from >= day || !length.is_positive() || length > day {
            let reason = "they are no hours of a day".to_owned();
            self.error(&format!("{path}.hours"), reason, "a beginning, and an end at most a day later");
        }
        if hours.jitter < Duration::ZERO || hours.jitter >= length / 2 {
            let reason = format!("{} makes no sense here", write_duration(hours.jitter));
            self.error(&format!("{path}.jitter"), reason, "from 0 s to less than half of the hours");
        }
        let absent = hours.absent.get();
        self.number(&format!("{path}.absent"), absent, absent < 1.0, "a fraction below 1");
    }

    fn outage(&mut self, outage: &OutageModel, projects: &BTreeSet<&String>) {
        let path = |key: &str| format!("outage.{}.{key}", outage.name);
        self.name(&path("name"), &outage.name);
        self.available(&path("available"), &outage.available);
        for name in outage.projects.iter().filter(|name| !projects.contains(name)) {
            let reason = format!("there is no project {name:?}");
            self.error(&path("projects"), reason, "names of the scenario's projects");
        }
    }

    fn trace(&mut self, path: &str, trace: &Trace) {
        let mut before = None;
        for change in &trace.changes {
            if change.at < Duration::ZERO || before.is_some_and(|before| change.at <= before) {
                let reason = format!("{} is not later than the change before", write_duration(change.at));
                return self.error(path, reason, "rising times from 0 on");
            }
            before = Some(change.at);
        }
        match (before, trace.end) {
            (None, _) => self.error(path, "it is empty".into(), "at least one line such as 0,on"),
            (Some(last), Some(end)) if end <= last => {
                let reason = format!("it ends at {}", write_duration(end));
                self.error(path, reason, "an end later than its last change");
            }
            _ if trace.fraction().get() <= 0.0 => {
                self.warning(path, "it is off in the long run".into());
            }
            _ => {}
        }
    }

    fn host(&mut self, host: &HostModel) {
        let cpus = host.cpus.get();
        let expected = "a whole number from 1 to 4,096: no host has more";
        self.number("host.cpus", f64::from(cpus), cpus <= CPUS_MAX, expected);
        self.available("host.available", &host.available);
        let interval = host.connection_interval;
        self.within("host.connection_interval", interval, Duration::ZERO, MONTH, "from 0 s to 31 days");
        let mut kinds = BTreeSet::new();
        for coprocessor in &host.coprocessors {
            let path = format!("host.coprocessor.{}", coprocessor.kind);
            if !kinds.insert(coprocessor.kind) {
                let reason = format!("there are two entries for {}", coprocessor.kind);
                self.error(&format!("{path}.type"), reason, "one entry with a count");
            }
            let count = coprocessor.count.get();
            let expected = "a whole number from 1 to 1,000";
            self.number(&format!("{path}.count"), f64::from(count), count <= 1000, expected);
        }
    }

    fn client(&mut self, scenario: &Scenario) {
        let ClientModel {
            scheduling_period,
            buffer: Buffer { min, additional },
            leave_in_memory: _,
            checkpoint_period,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction: _,
            disk_fraction: _,
            disk_free_min: _,
        } = scenario.client;
        let month = "from 1 s to 31 days";
        self.within("client.scheduling_period", scheduling_period, SECOND, MONTH, month);
        let buffer = "from 0 s to 31 days";
        self.within("client.buffer.min", min, Duration::ZERO, MONTH, buffer);
        self.within("client.buffer.additional", additional, Duration::ZERO, MONTH, buffer);
        self.within("client.checkpoint_period", checkpoint_period, SECOND, MONTH, month);
        let (cpus, time) = (cpu_fraction.get(), cpu_time_fraction.get());
        self.number("client.cpu_fraction", cpus, cpus > 0.0, "a number above 0, up to 1");
        self.number("client.cpu_time_fraction", time, time >= 0.01, "a number from 0.01 to 1");
    }

    fn project(&mut self, project: &ProjectModel, host: &HostModel) {
        let path = |key: &str| format!("project.{}.{key}", project.name);
        self.name(&path("name"), &project.name);
        self.available(&path("available"), &project.available);
        let delay = project.request_delay;
        self.within(&path("request_delay"), delay, Duration::ZERO, MONTH, "from 0 s to 31 days");
        let correction = project.correction;
        let sane = (0.01..=100.0).contains(&correction);
        self.number(&path("correction"), correction, sane, "a number from 0.01 to 100");
        if project.applications.is_empty() {
            self.error(&path("application"), "there is none".into(), "at least one kind of jobs");
        }
        let mut names = BTreeSet::new();
        for application in &project.applications {
            if !names.insert(&application.name) {
                let reason = format!("two applications are named {:?}", application.name);
                self.error(&project.application_path(application, "name"), reason, UNIQUE);
            }
            self.application(project, application, host);
        }
        let mut names = BTreeSet::new();
        for (index, job) in project.queue.iter().enumerate() {
            let path = path(&format!("queue.{}", index + 1));
            if !names.insert(&job.name) {
                let reason = format!("two queued jobs are named {:?}", job.name);
                self.error(&format!("{path}.name"), reason, UNIQUE);
            }
            self.queued(project, &path, job);
        }
    }

    fn application(&mut self, project: &ProjectModel, application: &ApplicationModel, host: &HostModel) {
        let path = |key: &str| project.application_path(application, key);
        self.name(&path("name"), &application.name);
        let weight = application.weight;
        self.number(&path("weight"), weight, weight > 0.0 && weight <= 1e9, "a number above 0, up to 1e9");
        let sizes = application.true_flops;
        let (log, log_deviation) = (path("true_flops.log_deviation"), sizes.log_deviation);
        self.number(&log, log_deviation, (0.0..=5.0).contains(&log_deviation), "a number from 0 to 5");
        if log_deviation > 0.0 && sizes.deviation.get() > 0.0 {
            let reason = "sizes cannot be both normal and log-normal".to_owned();
            self.error(&log, reason, "a deviation, or a log_deviation");
        }
        let (low, high) = (SECOND, CENTURY);
        self.within(&path("latency_bound"), application.latency_bound, low, high, "from 1 s to 36,500 days");
        for (key, size) in [
            ("true_flops.mean", application.true_flops.mean),
            ("estimated_flops", application.estimated_flops),
        ] {
            // Without a size, no draw would ever give one.
            self.number(&path(key), size.get(), size.get() > 0.0, "a number above 0");
        }
        if let Some(checkpoint) = application.checkpoint {
            self.within(&path("checkpoint"), checkpoint, low, high, "from 1 s to 36,500 days");
        }
        if self.uses(&path("uses"), application, host) {
            self.length(&path("true_flops.mean"), application.true_flops.mean, application, host);
            self.length(&path("estimated_flops"), application.estimated_flops, application, host);
        }
        if let Some(memory) = host.memory.filter(|memory| application.memory > *memory) {
            let reason =
                format!("its jobs need {}, the host has {memory}: none will run", application.memory);
            self.warning(&path("memory"), reason);
        }
    }

    /// Looks at what a job uses, and says whether its length on this host can be told.
    fn uses(&mut self, path: &str, application: &ApplicationModel, host: &HostModel) -> bool {
        let uses = application.uses;
        let before = self.found.len();
        let cpus_fit = uses.cpus.is_finite() && uses.cpus >= 0.0;
        let cpus = format!("{path}.cpus");
        self.number(&cpus, uses.cpus, cpus_fit, "a number of 0 or more");
        if cpus_fit && uses.cpus > f64::from(host.cpus.get()) {
            let reason = format!("its jobs use {}, the host has {}: none will run", uses.cpus, host.cpus);
            self.warning(&cpus, reason);
        }
        match uses.coprocessor {
            None => self.number(&cpus, uses.cpus, uses.cpus != 0.0, "a number above 0, or a coprocessor"),
            Some(used) => {
                let path = format!("{path}.{}", used.kind);
                let has = host.coprocessor(used.kind).map_or(0, |own| own.count.get());
                let instances = used.instances;
                let fits = instances.is_finite() && instances > 0.0;
                self.number(&path, instances, fits, "a number above 0");
                if fits && instances > f64::from(has) {
                    let reason = match has {
                        0 => format!("the host has no {}: no job of this kind will be sent", used.kind),
                        _ => format!("its jobs use {instances}, the host has {has}: none will run"),
                    };
                    self.warning(&path, reason);
                }
            }
        }
        self.found.len() == before
    }

    fn length(&mut self, path: &str, size: Flops, application: &ApplicationModel, host: &HostModel) {
        if let Some(length) = host.speed_for(application.uses).map(|speed| size.at(speed))
            && size.get() > 0.0
            && !(JOB_MIN..=CENTURY).contains(&length)
        {
            let reason = if length < JOB_MIN {
                "a job takes less than a millisecond on this host"
            } else {
                "a job takes more than 36,500 days on this host"
            };
            self.error(path, reason.into(), "a size that takes from 0.001 s to 36,500 days");
        }
    }

    fn queued(&mut self, project: &ProjectModel, path: &str, job: &QueuedJob) {
        if project.application(&job.application).is_none() {
            let reason = format!("project {} has no application {:?}", project.name, job.application);
            self.error(&format!("{path}.application"), reason, "one of the project's applications");
        }
        let past = "from -36,500 days to 0 s: it arrived before the beginning";
        self.within(&format!("{path}.received"), job.received, -CENTURY, Duration::ZERO, past);
        let around = "of 36,500 days at most";
        self.within(&format!("{path}.deadline"), job.deadline, -CENTURY, CENTURY, around);
        let some = "from 0 s to 36,500 days";
        self.within(&format!("{path}.elapsed"), job.elapsed, Duration::ZERO, CENTURY, some);
        if let Some(remaining) = job.remaining {
            self.within(&format!("{path}.remaining"), remaining, Duration::ZERO, CENTURY, some);
        }
    }
}
