//! Where a project's jobs come from: its applications, and the sizes of their jobs.

use fallow_domain::{Duration, Flops, Instant, PerType, ResourceType, Speed, Usage};

use super::random::Stream;
use crate::scenario::{ApplicationModel, Estimate, HostModel, ProjectModel, Uses};

/// A kind of jobs, as its project's server sees it.
#[derive(Debug)]
pub(crate) struct Application<'a> {
    pub(crate) model: &'a ApplicationModel,
    /// What a job holds while it runs.
    pub(crate) usage: Usage,
    /// How fast a job runs on a host; none if the hosts lack what it needs.
    pub(crate) speed: Option<Speed>,
    /// Jobs to send.
    pub(crate) left: u64,
    /// When the last of the jobs that were reported was computed, and when the last was reported.
    pub(crate) computed: Option<Instant>,
    pub(crate) reported: Option<Instant>,
    sizes: Stream,
    failures: Stream,
}

/// A job that could be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawnJob {
    /// Its application's place in the project.
    pub(crate) application: usize,
    /// What it takes.
    pub(crate) true_flops: f64,
    /// What the project says that it takes.
    pub(crate) estimate: Flops,
    /// Where it fails, as a part of its length.
    pub(crate) fails_at: Option<f64>,
}

impl<'a> Application<'a> {
    pub(crate) fn new(
        model: &'a ApplicationModel,
        project: &ProjectModel,
        host: &HostModel,
        seed: u64,
    ) -> Self {
        let stream = |what| Stream::named(seed, &["project", &project.name, &model.name, what]);
        Self {
            model,
            usage: usage(model.uses),
            speed: host.speed_for(model.uses),
            left: model.jobs.unwrap_or(u64::MAX),
            computed: None,
            reported: None,
            sizes: stream("sizes"),
            failures: stream("failures"),
        }
    }

    /// The type that its jobs count for (R3.1).
    pub(crate) fn main_type(&self) -> ResourceType {
        self.usage.main_type()
    }

    /// A job of it was reported that came to its end earlier.
    pub(crate) fn ended(&mut self, computed: Instant, reported: Instant) {
        self.computed = self.computed.max(Some(computed));
        self.reported = self.reported.max(Some(reported));
    }

    /// The true size of another job.
    pub(crate) fn draw_size(&mut self) -> f64 {
        self.sizes.size(&self.model.true_flops)
    }

    fn next(&mut self, application: usize) -> Option<DrawnJob> {
        self.left = self.left.checked_sub(1)?;
        let true_flops = self.draw_size();
        let estimated = self.model.estimated_flops;
        let estimate = match self.model.estimate {
            Estimate::Fixed => estimated,
            Estimate::True => Flops::new(true_flops * (estimated.get() / self.model.true_flops.mean.get()))
                .unwrap_or(estimated),
        };
        let fails_at = (self.model.failure.get() > 0.0)
            .then(|| (self.failures.unit(), self.failures.unit()))
            .filter(|(draw, _)| *draw <= self.model.failure.get())
            .map(|(_, place)| place);
        Some(DrawnJob { application, true_flops, estimate, fails_at })
    }
}

/// All jobs of a project.
#[derive(Debug)]
pub(crate) struct Supply<'a> {
    pub(crate) applications: Vec<Application<'a>>,
    choice: Stream,
}

impl<'a> Supply<'a> {
    pub(crate) fn new(project: &'a ProjectModel, host: &HostModel, seed: u64) -> Self {
        let application = |model| Application::new(model, project, host, seed);
        Self {
            applications: project.applications.iter().map(application).collect(),
            choice: Stream::named(seed, &["project", &project.name, "choice"]),
        }
    }

    /// The types that the project has versions for (R3.12).
    pub(crate) fn supports(&self) -> PerType<bool> {
        let has = |kind| self.applications.iter().any(|application| application.main_type() == kind);
        PerType::from_fn(has)
    }

    /// The next job for a type, of an application drawn by weight; none when there are no more.
    pub(crate) fn next(&mut self, kind: ResourceType) -> Option<DrawnJob> {
        let fits = |application: &Application<'_>| {
            application.main_type() == kind && application.speed.is_some() && application.left > 0
        };
        let of_kind = |(place, application): (usize, &Application<'_>)| {
            fits(application).then_some((place, application.model.weight))
        };
        let mut fitting = self.applications.iter().enumerate().filter_map(of_kind);
        let first = fitting.next()?;
        let Some(second) = fitting.next() else {
            // Nothing to choose from: nothing is drawn, so that a second application that ran dry changes
            // nothing.
            return self.applications.get_mut(first.0)?.next(first.0);
        };
        let fitting: Vec<_> = [first, second].into_iter().chain(fitting).collect();
        let total: f64 = fitting.iter().map(|(_, weight)| weight).sum();
        let mut place = self.choice.unit() * total;
        let chosen = fitting.iter().find(|(_, weight)| {
            place -= weight;
            place <= 0.0
        });
        let chosen = chosen.or(fitting.last())?.0;
        self.applications.get_mut(chosen)?.next(chosen)
    }

    /// Jobs that were not sent yet.
    pub(crate) fn unsent(&self) -> u64 {
        self.applications.iter().fold(0, |sum, application| sum.saturating_add(application.left))
    }

    /// Takes back a job that was not sent: another of its kind is there instead.
    pub(crate) fn give_back(&mut self, drawn: &DrawnJob) {
        if let Some(application) = self.applications.get_mut(drawn.application) {
            application.left = application.left.saturating_add(1);
        }
    }
}

/// How long a job takes on the host, at least a microsecond.
pub(crate) fn length(flops: f64, speed: Speed) -> Duration {
    Duration::from_secs_f64(flops / speed.get()).max(Duration::from_micros(1))
}

fn usage(uses: Uses) -> Usage {
    let usage = Usage { cpus: uses.cpus, coprocessor: None };
    match uses.coprocessor {
        Some(used) => usage.with_coprocessor(used.kind.resource(), used.instances),
        None => usage,
    }
}

/// Instances of each type that a host has.
pub(crate) fn instances(host: &HostModel) -> PerType<u32> {
    let mut instances = PerType::cpu(host.cpus.get());
    for coprocessor in &host.coprocessors {
        instances[coprocessor.kind.resource()] = coprocessor.count.get();
    }
    instances
}
