//! What people at this host ask for.

use fallow_client::Event;
use fallow_domain::{AccountKey, MasterUrl, Share};

use super::Engine;
use crate::control::protocol::{Request, Response};
use crate::control::status::{HostStatus, Status, projects, tasks};
use crate::error::AgentError;

impl Engine {
    /// Carries a request out. An error is one that ends the agent; a refusal is a response.
    pub(super) async fn carry_out(&mut self, request: Request) -> Result<Response, AgentError> {
        if self.stopping && !matches!(request, Request::Status {} | Request::Stop {}) {
            return Ok(Response::failed(&AgentError::unreachable("the agent is just ending")));
        }
        match request {
            Request::Status {} => {
                Ok(Response::Done { text: String::new(), status: Some(Box::new(self.status())) })
            }
            Request::Stop {} => {
                self.stop_asked = true;
                Ok(Response::done("the agent is ending"))
            }
            Request::Suspend {} => {
                self.turn(Event::OwnerSuspended(true), None).await?;
                Ok(Response::done(
                    "computing is suspended until you resume it, whatever the coordinator says",
                ))
            }
            Request::Resume {} => {
                self.turn(Event::OwnerSuspended(false), None).await?;
                Ok(Response::done(match self.client.host_view().suspended_by {
                    Some(who) => {
                        format!("your suspension is lifted; computing is still suspended by the {who}")
                    }
                    None => "computing goes on".to_owned(),
                }))
            }
            Request::Attach { url, account_key, share } => match self.attachment(&url, &account_key, share) {
                Ok(event) => {
                    self.turn(event, None).await?;
                    Ok(Response::done(format!(
                        "attached to {url}; see `fallow-agent status` for how it goes"
                    )))
                }
                Err(error) => Ok(Response::failed(&error)),
            },
            Request::Detach { url } => match self.attached(&url) {
                Ok(url) => {
                    let text = format!("detached from {url}: its jobs are aborted and its files deleted");
                    self.turn(Event::Detach { url }, None).await?;
                    Ok(Response::done(text))
                }
                Err(error) => Ok(Response::failed(&error)),
            },
            Request::Update { url } => match self.attached(&url) {
                Ok(url) => {
                    let text = format!("{url} is contacted as soon as the project allows");
                    self.turn(Event::ContactRequested { url }, None).await?;
                    Ok(Response::done(text))
                }
                Err(error) => Ok(Response::failed(&error)),
            },
        }
    }

    fn attachment(
        &self,
        url: &str,
        account_key: &AccountKey,
        share: Option<f64>,
    ) -> Result<Event, AgentError> {
        let bad = |invalid: fallow_domain::Invalid| AgentError::bad_input(invalid.to_string());
        let url = MasterUrl::parse(url).map_err(bad)?;
        let key = account_key.reveal().trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if key.is_empty() || key.len() > 256 || !key.chars().all(fits) {
            return Err(AgentError::bad_input(
                "the account key is not from 1 to 256 letters, digits, _ and -: copy it from your account page at the project",
            ));
        }
        let share = match share {
            Some(share) => Share::new(share).map_err(bad)?,
            // An attached project keeps its share.
            None => {
                let known = self.client.project_views().into_iter().find(|view| view.url == url);
                known.map_or(Share::DEFAULT, |view| view.share)
            }
        };
        Ok(Event::Attach { url, account_key: AccountKey::new(key), share })
    }

    fn attached(&self, url: &str) -> Result<MasterUrl, AgentError> {
        let url = MasterUrl::parse(url).map_err(|invalid| AgentError::bad_input(invalid.to_string()))?;
        let views = self.client.project_views();
        if views.iter().any(|view| view.url == url) {
            return Ok(url);
        }
        let known: Vec<String> = views.iter().map(|view| view.url.to_string()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(AgentError::bad_input(format!("this agent is not attached to {url}; it is attached to: {known}")))
    }

    pub(super) fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            dir: self.dir.path().display().to_string(),
            fleet: self.link.as_ref().map(crate::fleet::link::Link::status),
            host: HostStatus::of(&self.client),
            projects: projects(&self.client),
            tasks: tasks(&self.client),
            notices: self.notices.iter().cloned().collect(),
        }
    }
}
