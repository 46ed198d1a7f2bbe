//! The part of a scenario file that describes projects, their jobs and their queues.

use fallow_config::{Fields, Walk, unexpected};
use fallow_domain::{Duration, Flops, Fraction, Share};
use toml::de::{DeTable, DeValue};

use super::super::{
    ApplicationModel, Availability, CoprocessorKind, CoprocessorUse, ProjectModel, QueuedJob, TrueFlops, Uses,
};
use super::read::{Read, place};
use super::sections::{APPLICATION, APPLICATION_KEYS, PROJECT, QUEUE, TRUE_FLOPS, USES};

impl Read<'_, '_> {
    pub(super) fn project(&mut self, place: String, index: usize, table: &DeTable<'_>) -> ProjectModel {
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
            let path = fields.path_of(&format!("queue.{}", index + 1));
            self.walk.note(path.clone(), span);
            let job = self.walk.fields(path, table, &QUEUE);
            queue.extend(self.queued(&job, &applications));
        }
        ProjectModel {
            share: self.walk.get(&fields, "share").unwrap_or(Share::DEFAULT),
            available: self.available(&fields).unwrap_or(Availability::Always),
            request_delay: self.walk.get(&fields, "request_delay").unwrap_or(Duration::ZERO),
            spread: self.walk.get(&fields, "spread").unwrap_or(false),
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
            true_flops: truth.unwrap_or(TrueFlops::all(estimated_flops)),
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
            return Some(TrueFlops::all(mean));
        }
        let table = self.walk.table(fields, "true_flops", &TRUE_FLOPS)?;
        let mean = self.walk.require(&table, "mean", "the mean size of a job, such as mean = 1.3e13");
        let deviation = self.walk.get(&table, "deviation").unwrap_or_default();
        let log_deviation = self.walk.get(&table, "log_deviation").unwrap_or(0.0);
        Some(TrueFlops { mean: mean?, deviation, log_deviation })
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
