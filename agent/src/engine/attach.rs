//! Attaching a project at the owner's word.
//!
//! Model: the client decides what comes of it, at once or when the project has answered, and says so in a
//! verdict. Here the wish is read, whoever waits is kept until then, and the verdict is put into words, with
//! its exit code.

use std::collections::BTreeMap;

use fallow_client::{AttachRequest, Attached, Event, NotAttached, Verdict, Waiter};
use fallow_domain::{AccountKey, MasterUrl, Share, printable};
use tokio::sync::oneshot;

use super::Engine;
use crate::control::protocol::Response;
use crate::error::AgentError;

/// Longest message of a project that is told within a sentence, in bytes.
const SAID_LENGTH: usize = 1_000;

/// Those who wait for what comes of an attachment.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// So many have come so far.
    numbered: u64,
    /// Who is told. Nobody yet for the wish that is being carried out: whoever has it is in
    /// [`Engine::asking`].
    waiting: BTreeMap<Waiter, Option<oneshot::Sender<Response>>>,
}

impl Waiters {
    fn number(&mut self) -> Waiter {
        self.numbered += 1;
        let waiter = Waiter(self.numbered);
        self.waiting.insert(waiter, None);
        waiter
    }
}

impl Engine {
    /// Attaches. Whoever asks is answered when it is clear what comes of it.
    pub(super) async fn attach(
        &mut self,
        wish: (String, Option<AccountKey>, Option<f64>),
        unseen: bool,
    ) -> Result<(), AgentError> {
        let (url, account_key, share) = match read(wish) {
            Ok(wish) => wish,
            Err(error) => {
                self.respond(Response::failed(&error));
                return Ok(());
            }
        };
        let waiter = self.waiters.number();
        let request = AttachRequest { waiter, url, account_key, share, unseen };
        self.turn(Event::Attach(request), None).await?;
        // Still there if the project is asked first.
        let Some(place) = self.waiters.waiting.get_mut(&waiter) else { return Ok(()) };
        *place = self.asking.take().map(|(_, reply)| reply);
        if place.is_none() {
            // Answered already, for the disk is full: then it is as with --no-wait.
            self.waiters.waiting.remove(&waiter);
            self.turn(Event::WaiterGone(waiter), None).await?;
        }
        Ok(())
    }

    /// Tells who waits what came of it.
    pub(super) fn tell_verdict(&mut self, waiter: Waiter, url: &MasterUrl, verdict: &Verdict) {
        let told = in_words(url, verdict);
        let response = match &told {
            Ok(text) => Response::done(text),
            Err(error) => Response::failed(error),
        };
        let Some(Some(reply)) = self.waiters.waiting.remove(&waiter) else {
            return self.respond(response);
        };
        if let Err(error) = told {
            tracing::warn!(project = %url, %error, "not attached");
        }
        let _ = reply.send(response);
    }

    /// The agent ends: whoever waits is told so.
    pub(super) async fn stop_attaching(&mut self) -> Result<(), AgentError> {
        match self.waiters.waiting.is_empty() {
            true => Ok(()),
            false => self.turn(Event::Ending, None).await,
        }
    }
}

type Wish = (MasterUrl, Option<AccountKey>, Option<Share>);

fn read((url, account_key, share): (String, Option<AccountKey>, Option<f64>)) -> Result<Wish, AgentError> {
    let bad = |invalid: fallow_domain::Invalid| AgentError::bad_input(invalid.to_string());
    Ok((
        MasterUrl::parse(&url).map_err(bad)?,
        account_key.map(|key| crate::account::checked(key.reveal())).transpose()?,
        share.map(Share::given).transpose().map_err(bad)?,
    ))
}

/// A verdict as it is told, with the exit code that goes with it.
fn in_words(url: &MasterUrl, verdict: &Verdict) -> Result<String, AgentError> {
    match verdict {
        Ok(attached) => Ok(attached_in_words(url, attached)),
        Err(error) => Err(not_attached_in_words(url, error)),
    }
}

fn attached_in_words(url: &MasterUrl, attached: &Attached) -> String {
    match attached {
        Attached::Accepted { user, said } => {
            let user = user.as_ref().map(|name| format!(" as {name}")).unwrap_or_default();
            let said = if said.is_empty() { String::new() } else { format!("; {}", quoted(said)) };
            format!("attached to {url}{user}{said}")
        }
        Attached::Known { share } => {
            format!("{url} is attached with this account already; its share is {}", share.get())
        }
        Attached::Unseen => {
            format!("attached to {url}, which was not asked yet: see `fallow-agent status` for what it says")
        }
        Attached::Managed { again: true } => {
            format!("attached to {url} again, with the account and the share of the coordinator's document")
        }
        Attached::Managed { again: false } => {
            format!("{url} is attached already, by the coordinator")
        }
    }
}

fn not_attached_in_words(url: &MasterUrl, why: &NotAttached) -> AgentError {
    match why {
        NotAttached::BeingAttached => {
            AgentError::refused(format!("{url} is just being attached: wait for what the project says"))
        }
        NotAttached::Managed => AgentError::refused(format!(
            "{url} is managed by the coordinator, whose document gives its account and its share: change them there, \
             or detach the project to have none of it (attaching it again takes neither key nor share)"
        )),
        NotAttached::NoAccount => AgentError::bad_input(format!(
            "no account is named for {url}: give --account-key-file FILE, or FALLOW_ACCOUNT_KEY, or --email and --password-file"
        )),
        NotAttached::Refused { said } => AgentError::refused(format!(
            "{url} does not accept this account or this host: nothing is attached; {}. Check the account key on your \
             account page there",
            quoted(said)
        )),
        NotAttached::Down { said } => {
            AgentError::unreachable(format!("{url} is down: nothing is attached; {}", quoted(said)))
        }
        NotAttached::NoScheduler => AgentError::bad_input(format!(
            "{url} is no project's URL: its page names no scheduler. Nothing is attached"
        )),
        NotAttached::NoProject(error) => AgentError::bad_input(format!(
            "{url} does not answer as a project does ({error}): nothing is attached"
        )),
        NotAttached::NoAnswer(error) => AgentError::unreachable(format!(
            "{url} does not answer ({error}): nothing is attached; check the URL and the network, or attach it unseen with --no-wait"
        )),
        NotAttached::Silent(patience) => AgentError::unreachable(format!(
            "{url} has not said within {} s whether it accepts the account: nothing is kept; try again, or attach it \
             unseen with --no-wait",
            patience.as_secs_f64()
        )),
        NotAttached::Ending => AgentError::unreachable("the agent is just ending: nothing was attached"),
        NotAttached::Detached => AgentError::refused(format!("{url} was detached meanwhile")),
    }
}

/// What a project says, fit to be shown within a sentence.
fn quoted(said: &[String]) -> String {
    let said: Vec<String> = said
        .iter()
        .map(|message| printable::joined(message.trim().trim_end_matches('.'), SAID_LENGTH))
        .collect();
    match said.is_empty() {
        true => "it does not say why".to_owned(),
        false => format!("it says: {}", said.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use fallow_client::{TransferError, TransferErrorKind};

    use super::*;

    #[test]
    fn every_verdict_is_told_in_its_words_and_with_its_exit_code() {
        let url = MasterUrl::parse("http://p.example/").unwrap();
        let said = || vec!["No such key.".to_owned(), "Go\naway".to_owned()];
        let error = || TransferError::new(TransferErrorKind::Transient, "a timeout");
        let patience = fallow_domain::Duration::from_secs(60);
        let user = Some("Ada".to_owned());
        let table: [(Verdict, u8, &str); 17] = [
            (
                Ok(Attached::Accepted { user, said: said() }),
                0,
                "attached to http://p.example/ as Ada; it says: No such key / Go away",
            ),
            (Ok(Attached::Accepted { user: None, said: vec![] }), 0, "attached to http://p.example/"),
            (
                Ok(Attached::Known { share: Share::DEFAULT }),
                0,
                "http://p.example/ is attached with this account already; its share is 100",
            ),
            (
                Ok(Attached::Unseen),
                0,
                "attached to http://p.example/, which was not asked yet: see `fallow-agent status`",
            ),
            (
                Ok(Attached::Managed { again: true }),
                0,
                "attached to http://p.example/ again, with the account and the share",
            ),
            (
                Ok(Attached::Managed { again: false }),
                0,
                "http://p.example/ is attached already, by the coordinator",
            ),
            (Err(NotAttached::BeingAttached), 5, "http://p.example/ is just being attached"),
            (Err(NotAttached::Managed), 5, "http://p.example/ is managed by the coordinator"),
            (Err(NotAttached::NoAccount), 3, "no account is named for http://p.example/"),
            (
                Err(NotAttached::Refused { said: said() }),
                5,
                "nothing is attached; it says: No such key / Go away. Check the account key",
            ),
            (
                Err(NotAttached::Down { said: vec![] }),
                4,
                "http://p.example/ is down: nothing is attached; it does not say why",
            ),
            (Err(NotAttached::NoScheduler), 3, "its page names no scheduler"),
            (
                Err(NotAttached::NoProject(error())),
                3,
                "does not answer as a project does (a timeout): nothing is attached",
            ),
            (
                Err(NotAttached::NoAnswer(error())),
                4,
                "http://p.example/ does not answer (a timeout): nothing is attached",
            ),
            (
                Err(NotAttached::Silent(patience)),
                4,
                "has not said within 60 s whether it accepts the account",
            ),
            (Err(NotAttached::Ending), 4, "the agent is just ending: nothing was attached"),
            (Err(NotAttached::Detached), 5, "http://p.example/ was detached meanwhile"),
        ];
        for (verdict, code, words) in table {
            let (found, text) = match in_words(&url, &verdict) {
                Ok(text) => (0, text),
                Err(error) => (error.exit_code().number(), error.to_string()),
            };
            assert!(found == code && text.contains(words), "{verdict:?}: {found}: {text}");
        }
    }
}
