//! The scenario file: which tables and keys there are, and what a missing one means.
//!
//! What a file leaves out has the base value (R5.15), so a file says what is special about its scenario and nothing
//! else. A bad value counts as left out while the rest is read, so that everything wrong is reported at once.

use fallow_domain::{Duration, Flops, Fraction, Share};
use toml::de::{DeTable, DeValue};

use super::super::files::Files;
use super::super::{
    ApplicationModel, Availability, Buffer, ClientModel, CoprocessorKind, CoprocessorModel, CoprocessorUse,
    Gravity, HostModel, ProjectModel, QueuedJob, Scenario, TrueFlops, Uses,
};
use super::complaint::{Complaint, Complaints, Source};
use super::trace::parse_trace;
use super::value::{BadValue, unexpected};
use super::walk::{Fields, Section, Walk};

const FILE: Section = Section { title: "the file", keys: &["name", "duration", "host", "client", "project"] };
const HOST: Section = Section {
    title: "[host]",
    keys: &[
        "cpus",
        "flops",
        "available",
        "off",
        "connection_interval",
        "memory",
        "disk",
        "network",
        "coprocessor",
    ],
};
const COPROCESSOR: Section = Section { title: "[[host.coprocessor]]", keys: &["type", "count", "flops"] };
const NETWORK: Section = Section { title: "network", keys: &["down", "up"] };
const CLIENT: Section = Section {
    title: "[client]",
    keys: &[
        "scheduling_period",
        "buffer",
        "leave_in_memory",
        "checkpoint_period",
        "cpu_fraction",
        "cpu_time_fraction",
        "memory_fraction",
        "disk_fraction",
        "disk_free_min",
    ],
};
const BUFFER: Section = Section { title: "buffer", keys: &["min", "additional"] };
const AVAILABLE: Section = Section { title: "available", keys: &["fraction", "mean", "trace"] };
const PROJECT: Section = Section {
    title: "[[project]]",
    keys: &[
        "name",
        "share",
        "available",
        "request_delay",
        "correction",
        "latency_bound",
        "estimated_flops",
        "true_flops",
        "estimate",
        "uses",
        "checkpoint",
        "input",
        "output",
        "memory",
        "jobs",
        "failure",
        "application",
        "queue",
    ],
};
/// Those of a project's keys that are in fact its only application's.
pub(crate) const APPLICATION_KEYS: [&str; 11] = [
    "latency_bound",
    "estimated_flops",
    "true_flops",
    "estimate",
    "uses",
    "checkpoint",
    "input",
    "output",
    "memory",
    "jobs",
    "failure",
];
const APPLICATION: Section = Section {
    title: "[[project.application]]",
    keys: &[
        "name",
        "weight",
        "latency_bound",
        "estimated_flops",
        "true_flops",
        "estimate",
        "uses",
        "checkpoint",
        "input",
        "output",
        "memory",
        "jobs",
        "failure",
    ],
};
const TRUE_FLOPS: Section = Section { title: "true_flops", keys: &["mean", "deviation"] };
const USES: Section = Section { title: "uses", keys: &["cpus", "nvidia", "amd", "intel", "apple"] };
const QUEUE: Section = Section {
    title: "[[project.queue]]",
    keys: &["name", "application", "received", "deadline", "fraction_done", "elapsed", "remaining", "state"],
};
/// Where a key that stands in the wrong table may belong.
const SECTIONS: &[&Section] =
    &[&FILE, &HOST, &CLIENT, &PROJECT, &APPLICATION, &QUEUE, &COPROCESSOR, &AVAILABLE, &BUFFER];

/// A scenario, and what is odd about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The scenario. It has no errors.
    pub scenario: Scenario,
    /// Warnings: what it means is probably not what was meant.
    pub warnings: Vec<Complaint>,
}

impl Scenario {
    /// Reads a scenario file's text. `file` names it in messages, `files` gives the traces that it names.
    ///
    /// # Errors
    /// [`Complaints`] with everything that is wrong, each with its line, key, what was expected, and a suggestion.
    pub fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Loaded, Complaints> {
        let source = Source { file, text };
        let mut reader = Read { walk: Walk::new(source, SECTIONS), files };
        let scenario = reader.walk.parse().map(|table| reader.scenario(table.get_ref()));
        let findings = scenario.as_ref().map(Self::check).unwrap_or_default();
        let complaints = reader.walk.finish(findings);
        let bad = complaints.iter().any(|complaint| complaint.gravity == Gravity::Error);
        match scenario {
            Some(scenario) if !bad => Ok(Loaded { scenario, warnings: complaints }),
            _ => Err(Complaints(complaints)),
        }
    }
}

struct Read<'s, 'f> {
    walk: Walk<'s>,
    files: &'f dyn Files,
}

impl Read<'_, '_> {
    fn scenario(&mut self, table: &DeTable<'_>) -> Scenario {
        let base = Scenario::base();
        let file = self.walk.fields(String::new(), table, &FILE);
        let host = self.walk.table(&file, "host", &HOST);
        let client = self.walk.table(&file, "client", &CLIENT);
        let projects = self.walk.tables(&file, "project", &PROJECT);
        Scenario {
            name: self.walk.require(&file, "name", "a name, such as name = \"base\"").unwrap_or(base.name),
            duration: self.walk.get(&file, "duration").unwrap_or(base.duration),
            host: host.map(|host| self.host(&host)).unwrap_or_default(),
            client: client.map(|client| self.client(&client)).unwrap_or_default(),
            projects: projects
                .into_iter()
                .enumerate()
                .map(|(index, (span, table))| {
                    let place = place("project", index, table);
                    self.walk.note(place.clone(), span);
                    self.project(place, index, table)
                })
                .collect(),
        }
    }

    fn host(&mut self, host: &Fields<'_, '_>) -> HostModel {
        let base = HostModel::default();
        let network = self.walk.table(host, "network", &NETWORK);
        let mut coprocessors = Vec::new();
        for (index, (span, table)) in
            self.walk.tables(host, "coprocessor", &COPROCESSOR).into_iter().enumerate()
        {
            coprocessors.extend(self.coprocessor(index, span, table));
        }
        HostModel {
            cpus: self.walk.get(host, "cpus").unwrap_or(base.cpus),
            flops: self.walk.get(host, "flops").unwrap_or(base.flops),
            available: self.available(host).unwrap_or(base.available),
            off: self.walk.get(host, "off").unwrap_or(base.off),
            connection_interval: self
                .walk
                .get(host, "connection_interval")
                .unwrap_or(base.connection_interval),
            coprocessors,
            memory: self.walk.get(host, "memory"),
            disk: self.walk.get(host, "disk"),
            download: network.as_ref().and_then(|network| self.walk.get(network, "down")),
            upload: network.as_ref().and_then(|network| self.walk.get(network, "up")),
        }
    }

    fn coprocessor(
        &mut self,
        index: usize,
        span: std::ops::Range<usize>,
        table: &DeTable<'_>,
    ) -> Option<CoprocessorModel> {
        let named = text_of(table, "type").map_or_else(|| index.to_string(), ToOwned::to_owned);
        let path = format!("host.coprocessor.{named}");
        self.walk.note(path.clone(), span);
        let fields = self.walk.fields(path, table, &COPROCESSOR);
        let kind: Option<CoprocessorKind> =
            self.walk.require(&fields, "type", "its kind, such as type = \"nvidia\"");
        let count = self.walk.get(&fields, "count").unwrap_or(std::num::NonZeroU32::MIN);
        let flops = self.walk.require(&fields, "flops", "the speed of one, such as flops = 2e9");
        Some(CoprocessorModel { kind: kind?, count, flops: flops? })
    }

    fn client(&mut self, client: &Fields<'_, '_>) -> ClientModel {
        let base = ClientModel::default();
        let buffer = self.walk.table(client, "buffer", &BUFFER);
        let buffer = buffer.map(|buffer| Buffer {
            min: self.walk.get(&buffer, "min").unwrap_or(base.buffer.min),
            additional: self.walk.get(&buffer, "additional").unwrap_or(base.buffer.additional),
        });
        let walk = &mut self.walk;
        ClientModel {
            scheduling_period: walk.get(client, "scheduling_period").unwrap_or(base.scheduling_period),
            buffer: buffer.unwrap_or(base.buffer),
            leave_in_memory: walk.get(client, "leave_in_memory").unwrap_or(base.leave_in_memory),
            checkpoint_period: walk.get(client, "checkpoint_period").unwrap_or(base.checkpoint_period),
            cpu_fraction: walk.get(client, "cpu_fraction").unwrap_or(base.cpu_fraction),
            cpu_time_fraction: walk.get(client, "cpu_time_fraction").unwrap_or(base.cpu_time_fraction),
            memory_fraction: walk.get(client, "memory_fraction").unwrap_or(base.memory_fraction),
            disk_fraction: walk.get(client, "disk_fraction").unwrap_or(base.disk_fraction),
            disk_free_min: walk.get(client, "disk_free_min").unwrap_or(base.disk_free_min),
        }
    }

    /// `"always"`, a table of fraction and mean, or a trace. None: left out, or bad.
    fn available(&mut self, fields: &Fields<'_, '_>) -> Option<Availability> {
        let key = "available";
        let value = Walk::value(fields, key)?;
        let expected = "\"always\", { fraction = 0.8, mean = \"1000 s\" } or { trace = \"FILE.csv\" }";
        if value.get_ref().as_str() == Some("always") {
            return Some(Availability::Always);
        }
        if !value.get_ref().is_table() {
            self.walk.bad(&fields.path_of(key), value.span(), unexpected(value.get_ref(), expected));
            return None;
        }
        let table = self.walk.table(fields, key, &AVAILABLE)?;
        if let Some(trace) = Walk::value(&table, "trace") {
            if Walk::value(&table, "fraction").or(Walk::value(&table, "mean")).is_some() {
                self.walk.error(
                    &table.path,
                    "a trace leaves nothing to draw",
                    "either a trace, or fraction and mean",
                );
            }
            let file: String = self.walk.get(&table, "trace")?;
            let path = table.path_of("trace");
            return self.trace(&file, &path, trace.span());
        }
        let fraction =
            self.walk.require(&table, "fraction", "the part of the time that it is on, such as 0.8");
        let mean: Option<Duration> =
            self.walk.require(&table, "mean", "the mean length of an on interval, such as \"1000 s\"");
        let fraction: Fraction = fraction?;
        let mean = mean?;
        Some(Availability::OnOff { fraction, mean })
    }

    fn trace(&mut self, file: &str, path: &str, span: std::ops::Range<usize>) -> Option<Availability> {
        let content = match self.files.read(file) {
            Ok(content) => String::from_utf8_lossy(&content).into_owned(),
            Err(error) => {
                let problem = format!("{error}: {}", error.source);
                let expected = "a CSV file of on and off times, named from where the scenario is".into();
                self.walk.bad(path, span, BadValue { problem, expected, suggestion: None });
                return None;
            }
        };
        match parse_trace(file, &content) {
            Ok(trace) => Some(Availability::Trace(trace)),
            Err(problem) => {
                let expected = "lines of SECONDS,on and SECONDS,off in order of time".into();
                self.walk.bad(path, span, BadValue { problem, expected, suggestion: None });
                None
            }
        }
    }

    fn project(&mut self, place: String, index: usize, table: &DeTable<'_>) -> ProjectModel {
        let fields = self.walk.fields(place, table, &PROJECT);
        let name: Option<String> = self.walk.require(&fields, "name", "a name, such as name = \"p1\"");
        let name = name.unwrap_or_else(|| format!("p{}", index + 1));
        let listed = self.walk.tables(&fields, "application", &APPLICATION);
        let applications = if listed.is_empty() {
            vec![self.application(&fields, name.clone(), 1.0)]
        } else {
            self.refuse_both(&fields);
            let list = listed.into_iter().enumerate();
            list.map(|(index, (span, table))| self.listed(&fields, index, span, table)).collect()
        };
        let mut queue = Vec::new();
        for (index, (span, table)) in self.walk.tables(&fields, "queue", &QUEUE).into_iter().enumerate() {
            let path = fields.path_of(&format!("queue.{index}"));
            self.walk.note(path.clone(), span);
            let job = self.walk.fields(path, table, &QUEUE);
            queue.extend(self.queued(&job, &applications));
        }
        ProjectModel {
            share: self.walk.get(&fields, "share").unwrap_or(Share::DEFAULT),
            available: self.available(&fields).unwrap_or(Availability::Always),
            request_delay: self.walk.get(&fields, "request_delay").unwrap_or(Duration::ZERO),
            correction: self.walk.get(&fields, "correction").unwrap_or(1.0),
            name,
            applications,
            queue,
        }
    }

    /// Keys of jobs stand in the project or in its applications, not in both.
    fn refuse_both(&mut self, project: &Fields<'_, '_>) {
        for key in APPLICATION_KEYS {
            if Walk::value(project, key).is_some() {
                let problem =
                    format!("`{key}` belongs in [[project.application]], since the project has those");
                self.walk.error(&project.path_of(key), problem, "it there, or no [[project.application]]");
            }
        }
    }

    fn listed(
        &mut self,
        project: &Fields<'_, '_>,
        index: usize,
        span: std::ops::Range<usize>,
        table: &DeTable<'_>,
    ) -> ApplicationModel {
        let path = place(&project.path_of("application"), index, table);
        self.walk.note(path.clone(), span);
        let fields = self.walk.fields(path, table, &APPLICATION);
        let name: Option<String> = self.walk.require(&fields, "name", "a name, such as name = \"short\"");
        let weight = self.walk.get(&fields, "weight").unwrap_or(1.0);
        self.application(&fields, name.unwrap_or_else(|| format!("a{}", index + 1)), weight)
    }

    fn application(&mut self, fields: &Fields<'_, '_>, name: String, weight: f64) -> ApplicationModel {
        let base = ApplicationModel::base(name, 1);
        let said: Option<Flops> = self.walk.get(fields, "estimated_flops");
        let truth = self.true_flops(fields);
        let estimated_flops = said.or(truth.map(|truth| truth.mean)).unwrap_or(base.estimated_flops);
        ApplicationModel {
            weight,
            latency_bound: self.walk.get(fields, "latency_bound").unwrap_or(base.latency_bound),
            estimated_flops,
            true_flops: truth.unwrap_or(TrueFlops { mean: estimated_flops, deviation: Flops::default() }),
            estimate: self.walk.get(fields, "estimate").unwrap_or(base.estimate),
            uses: self.uses(fields).unwrap_or(base.uses),
            checkpoint: self.walk.get(fields, "checkpoint"),
            input: self.walk.get(fields, "input").unwrap_or(base.input),
            output: self.walk.get(fields, "output").unwrap_or(base.output),
            memory: self.walk.get(fields, "memory").unwrap_or(base.memory),
            jobs: self.walk.get(fields, "jobs"),
            failure: self.walk.get(fields, "failure").unwrap_or(base.failure),
            name: base.name,
        }
    }

    /// A table of mean and deviation, or a bare number: all the same.
    fn true_flops(&mut self, fields: &Fields<'_, '_>) -> Option<TrueFlops> {
        let value = Walk::value(fields, "true_flops")?;
        if !value.get_ref().is_table() {
            let mean = match value.get_ref() {
                DeValue::Integer(_) | DeValue::Float(_) => self.walk.get(fields, "true_flops")?,
                other => {
                    let expected = "{ mean = 1.3e13, deviation = 0.0 }";
                    self.walk.bad(&fields.path_of("true_flops"), value.span(), unexpected(other, expected));
                    return None;
                }
            };
            return Some(TrueFlops { mean, deviation: Flops::default() });
        }
        let table = self.walk.table(fields, "true_flops", &TRUE_FLOPS)?;
        let mean = self.walk.require(&table, "mean", "the mean size of a job, such as mean = 1.3e13");
        let deviation = self.walk.get(&table, "deviation").unwrap_or_default();
        Some(TrueFlops { mean: mean?, deviation })
    }

    fn uses(&mut self, fields: &Fields<'_, '_>) -> Option<Uses> {
        let table = self.walk.table(fields, "uses", &USES)?;
        let mut coprocessor: Option<CoprocessorUse> = None;
        for kind in CoprocessorKind::ALL {
            let Some(instances) = self.walk.get(&table, kind.name()) else { continue };
            if let Some(first) = coprocessor {
                let problem = format!("a job cannot use both {} and {kind}", first.kind);
                self.walk.error(&table.path_of(kind.name()), problem, "one kind of coprocessor at most");
            }
            coprocessor = Some(CoprocessorUse { kind, instances });
        }
        let alone = if coprocessor.is_some() { 0.0 } else { 1.0 };
        Some(Uses { cpus: self.walk.get(&table, "cpus").unwrap_or(alone), coprocessor })
    }

    fn queued(&mut self, fields: &Fields<'_, '_>, applications: &[ApplicationModel]) -> Option<QueuedJob> {
        let only = match applications {
            [only] => Some(only.name.clone()),
            _ => None,
        };
        let walk = &mut self.walk;
        let name = walk.require(fields, "name", "a name, such as name = \"job_1\"");
        let application = match only {
            Some(only) => Some(walk.get(fields, "application").unwrap_or(only)),
            None => walk.require(fields, "application", "the name of one of the project's applications"),
        };
        let deadline =
            walk.require(fields, "deadline", "its deadline from the beginning, such as \"3 days\"");
        let received = walk.get(fields, "received").unwrap_or(Duration::ZERO);
        let fraction_done = walk.get(fields, "fraction_done").unwrap_or(Fraction::ZERO);
        let elapsed = walk.get(fields, "elapsed").unwrap_or(Duration::ZERO);
        let remaining = walk.get(fields, "remaining");
        let state = walk.get(fields, "state").unwrap_or_default();
        Some(QueuedJob {
            name: name?,
            application: application?,
            received,
            deadline: deadline?,
            fraction_done,
            elapsed,
            remaining,
            state,
        })
    }
}

/// The path of a table that has a name: by the name if it is there, else by its number.
fn place(of: &str, index: usize, table: &DeTable<'_>) -> String {
    match text_of(table, "name") {
        Some(name) => format!("{of}.{name}"),
        None => format!("{of}.{}", index + 1),
    }
}

fn text_of<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.iter().find(|(name, _)| name.get_ref() == key).and_then(|(_, value)| value.get_ref().as_str())
}
