//! A project: its share, its server, and the jobs it has.

use fallow_domain::{Duration, Share};

use super::availability::Availability;
use super::job::{ApplicationModel, QueuedJob};

/// A project that the client is attached to.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectModel {
    /// Its name. No other project of the scenario has it.
    pub name: String,
    /// Its weight against the others.
    pub share: Share,
    /// When its server answers.
    pub available: Availability,
    /// How long its server asks the client to wait between requests.
    pub request_delay: Duration,
    /// Whether its server spreads its jobs over the hosts: none may hold more than its part of what is left
    /// (`fallow_policy::spread`).
    pub spread: bool,
    /// The duration correction factor that the client begins with (R5.8), 1 for a project that is new to it.
    pub correction: f64,
    /// The kinds of jobs it has, at least one, with names of their own.
    pub applications: Vec<ApplicationModel>,
    /// Jobs that the client holds at the beginning, in order of arrival.
    pub queue: Vec<QueuedJob>,
}

impl ProjectModel {
    /// A project with one kind of jobs, always available, with base values elsewhere (R5.15).
    #[must_use]
    pub fn new(name: impl Into<String>, share: Share, application: ApplicationModel) -> Self {
        Self {
            name: name.into(),
            share,
            available: Availability::Always,
            request_delay: Duration::ZERO,
            spread: false,
            correction: 1.0,
            applications: vec![application],
            queue: Vec::new(),
        }
    }

    /// The application of that name.
    #[must_use]
    pub fn application(&self, name: &str) -> Option<&ApplicationModel> {
        self.applications.iter().find(|application| application.name == name)
    }
}
