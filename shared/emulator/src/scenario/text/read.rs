//! The scenario file: which tables and keys there are, and what a missing one means.
//!
//! What a file leaves out has the base value (R5.15), so a file says what is special about its scenario and
//! nothing else. A bad value counts as left out while the rest is read, so that everything wrong is reported
//! at once.

use fallow_config::{BadValue, Diagnostic, Diagnostics, Fields, Problem, Severity, Source, Walk, unexpected};
use fallow_domain::{Duration, Fraction};
use toml::de::DeTable;

use super::super::files::Files;
use super::super::{
    Availability, Buffer, ClientModel, CoprocessorKind, CoprocessorModel, HostModel, OfficeHours,
    OutageModel, Scenario,
};
use super::sections::{
    AVAILABLE, BUFFER, CLIENT, COPROCESSOR, FILE, HOST, NETWORK, OUTAGE, PROJECT, SECTIONS,
};
use super::trace::parse_trace;
use super::value::{Days, Hours};

/// A scenario, and what is odd about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The scenario. It has no errors.
    pub scenario: Scenario,
    /// Warnings: what it means is probably not what was meant.
    pub warnings: Vec<Diagnostic>,
}

impl Scenario {
    /// Reads a scenario file's text. `file` names it in messages, `files` gives the traces that it names.
    ///
    /// # Errors
    /// [`Diagnostics`] with everything that is wrong, each with its line, key, what was expected, and a
    /// suggestion.
    pub fn parse(file: &str, text: &str, files: &dyn Files) -> Result<Loaded, Diagnostics> {
        let source = Source { file, text };
        let mut reader = Read { walk: Walk::new(source, SECTIONS), files };
        let scenario = reader.walk.parse().map(|table| reader.scenario(table.get_ref()));
        let mut problems = scenario.as_ref().map(Self::check).unwrap_or_default();
        problems.retain(|problem| !reader.is_idle(problem));
        let diagnostics = reader.walk.finish(problems);
        let bad = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        match scenario {
            Some(scenario) if !bad => Ok(Loaded { scenario, warnings: diagnostics }),
            _ => Err(Diagnostics(diagnostics)),
        }
    }
}

pub(super) struct Read<'s, 'f> {
    pub(super) walk: Walk<'s>,
    files: &'f dyn Files,
}

impl Read<'_, '_> {
    /// Whether a problem is about nothing that was written: a warning that comes from what is wrong with the
    /// host, or a size of jobs that was taken from the other one, which is found wrong itself.
    fn is_idle(&self, problem: &Problem) -> bool {
        let last = problem.path.rsplit('.').next().unwrap_or_default();
        let host = match last {
            "cpus" | "memory" => format!("host.{last}"),
            kind if CoprocessorKind::from_name(kind).is_some() => "host.coprocessor".to_owned(),
            _ => String::new(),
        };
        if problem.severity == Severity::Warning && !host.is_empty() && self.walk.complained_of(&host) {
            return true;
        }
        let has = |path: String| self.walk.has(&path);
        let estimate = problem.path.strip_suffix(".estimated_flops");
        let truth = problem.path.strip_suffix(".true_flops.mean");
        estimate.is_some_and(|own| !has(problem.path.clone()) && has(format!("{own}.true_flops")))
            || truth
                .is_some_and(|own| !has(format!("{own}.true_flops")) && has(format!("{own}.estimated_flops")))
    }

    fn scenario(&mut self, table: &DeTable<'_>) -> Scenario {
        let base = Scenario::base();
        let file = self.walk.fields(String::new(), table, &FILE);
        let host = self.walk.table(&file, "host", &HOST);
        let client = self.walk.table(&file, "client", &CLIENT);
        let projects = self.walk.tables(&file, "project", &PROJECT);
        let outages = self.walk.tables(&file, "outage", &OUTAGE);
        Scenario {
            name: self.walk.require(&file, "name", "a name, such as name = \"base\"").unwrap_or(base.name),
            duration: self.walk.get(&file, "duration").unwrap_or(base.duration),
            hosts: self.walk.get(&file, "hosts").unwrap_or(base.hosts),
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
            outages: outages
                .into_iter()
                .enumerate()
                .map(|(index, (span, table))| {
                    let place = place("outage", index, table);
                    self.walk.note(place.clone(), span);
                    self.outage(place, index, table)
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

    fn outage(&mut self, place: String, index: usize, table: &DeTable<'_>) -> OutageModel {
        let fields = self.walk.fields(place, table, &OUTAGE);
        let name = self.walk.require(&fields, "name", "a name, such as name = \"network\"");
        if Walk::value(&fields, "available").is_none() {
            let such_as = "when it is there, such as available = { fraction = 0.99, mean = \"1 week\" }";
            self.walk.error(&fields.path_of("available"), "`available` is missing", such_as);
        }
        OutageModel {
            name: name.unwrap_or_else(|| format!("o{}", index + 1)),
            projects: self.walk.get(&fields, "projects").unwrap_or_default(),
            available: self.available(&fields).unwrap_or(Availability::Always),
        }
    }

    fn coprocessor(
        &mut self,
        index: usize,
        span: std::ops::Range<usize>,
        table: &DeTable<'_>,
    ) -> Option<CoprocessorModel> {
        let named = text_of(table, "type").map_or_else(|| (index + 1).to_string(), ToOwned::to_owned);
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

    /// `"always"`, a table of fraction and mean or of hours, or a trace. None: left out, or bad.
    pub(super) fn available(&mut self, fields: &Fields<'_, '_>) -> Option<Availability> {
        let key = "available";
        let value = Walk::value(fields, key)?;
        let expected = "\"always\", { fraction = 0.8, mean = \"1000 s\" }, { hours = \"9-17\" } or \
                        { trace = \"FILE.csv\" }";
        if value.get_ref().as_str() == Some("always") {
            return Some(Availability::Always);
        }
        if !value.get_ref().is_table() {
            self.walk.bad(&fields.path_of(key), value.span(), unexpected(value.get_ref(), expected));
            return None;
        }
        let table = self.walk.table(fields, key, &AVAILABLE)?;
        let has = |keys: &[&str]| keys.iter().any(|key| Walk::value(&table, key).is_some());
        let (drawn, by_hours) = (has(&["fraction", "mean"]), has(&["days", "hours", "jitter", "absent"]));
        if let Some(trace) = Walk::value(&table, "trace") {
            if drawn || by_hours {
                self.walk.error(
                    &table.path,
                    "a trace leaves nothing to draw",
                    "either a trace, or fraction and mean, or hours",
                );
            }
            let file: String = self.walk.get(&table, "trace")?;
            let path = table.path_of("trace");
            return self.trace(&file, &path, trace.span());
        }
        if by_hours {
            if drawn {
                let expected = "either hours, or fraction and mean";
                self.walk.error(&table.path, "hours leave nothing else to draw", expected);
            }
            return self.hours(&table).map(Availability::Hours);
        }
        let fraction =
            self.walk.require(&table, "fraction", "the part of the time that it is on, such as 0.8");
        let mean: Option<Duration> =
            self.walk.require(&table, "mean", "the mean length of an on interval, such as \"1000 s\"");
        let fraction: Fraction = fraction?;
        let mean = mean?;
        Some(Availability::OnOff { fraction, mean })
    }

    fn hours(&mut self, table: &Fields<'_, '_>) -> Option<OfficeHours> {
        let hours: Option<Hours> = self.walk.require(table, "hours", "hours of the day, such as \"9-17\"");
        let days = self.walk.get(table, "days").map_or([true; 7], |Days(days)| days);
        let jitter = self.walk.get(table, "jitter").unwrap_or(Duration::ZERO);
        let absent = self.walk.get(table, "absent").unwrap_or(Fraction::ZERO);
        hours.map(|Hours { from, to }| OfficeHours { days, from, to, jitter, absent })
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
            Err(error) => {
                let problem = error.to_string();
                let expected =
                    "lines of SECONDS,on and SECONDS,off in order of time, such as 0,on and 3600,off".into();
                self.walk.bad(path, span, BadValue { problem, expected, suggestion: None });
                None
            }
        }
    }
}

/// The path of a table that has a name: by the name if it is there, else by its number.
pub(super) fn place(of: &str, index: usize, table: &DeTable<'_>) -> String {
    match text_of(table, "name") {
        Some(name) => format!("{of}.{name}"),
        None => format!("{of}.{}", index + 1),
    }
}

fn text_of<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.iter().find(|(name, _)| name.get_ref() == key).and_then(|(_, value)| value.get_ref().as_str())
}
