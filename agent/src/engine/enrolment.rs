//! How an agent gets into its fleet at its start, or goes on in it.

use fallow_client::Client;
use fallow_domain::printable::shell_path;
use fallow_domain::{DocumentVersion, OrganisationKey};
use fallow_fleet::SIGNED_KEYS_MAX;
use fallow_tls::Address;

use super::settings::{Enrolment, Settings};
use crate::control::server::{self, Door};
use crate::error::AgentError;
use crate::fleet::identity::Identity;
use crate::fleet::membership::{self, Membership};

/// Sees to it that an agent that was in a fleet does not go on outside it because its identity was lost.
pub(super) fn require_identity(
    settings: &Settings,
    identity: Option<&Identity>,
    client: &Client,
) -> Result<(), AgentError> {
    let document = client.host_view().document_version;
    if identity.is_some() || settings.enrolment.token.is_some() || document == DocumentVersion::default() {
        return Ok(());
    }
    Err(AgentError::damaged(format!(
        "this agent belongs to a fleet (its store holds document {document} of a coordinator), but its identity {} is missing: \
         restore it from a copy; or enrol anew with `fallow-agent run --dir {} --token-file FILE`: to the \
         coordinator it is another agent then, and its projects and jobs go on",
        settings.dir.identity().display(),
        shell_path(settings.dir.path())
    )))
}

pub(super) async fn enrolled(
    settings: &Settings,
    identity: Option<Identity>,
    hostname: &str,
) -> Result<Option<Membership>, AgentError> {
    let Enrolment { coordinator, token, organisation } = &settings.enrolment;
    if let (Some(identity), Some(token)) = (&identity, token)
        && token.authority != identity.authority
    {
        return Err(AgentError::bad_input(format!(
            "this agent is a host of another fleet ({}), and the token that was given is not of that one: start it in another, empty \
             directory for the new fleet; or, to leave the old one, delete {} first",
            identity.coordinator(),
            settings.dir.identity().display()
        )));
    }
    match identity {
        Some(mut identity) => {
            if believes(&mut identity, organisation)? {
                identity.write(&settings.dir.identity())?;
            }
            if token.is_some() {
                tracing::info!(agent = %identity.agent_id(), "enrolled already: the token that was given is not used");
            }
            let from = identity.coordinator();
            let is_there = |address: &Address| identity.addresses.contains(address);
            let to = coordinator.clone().filter(|address| !is_there(address));
            let mut member = Membership::new(identity, &settings.dir, settings.proxies.clone())?;
            let Some(to) = to else { return Ok(Some(member)) };
            if member.move_to(to.clone()).await? {
                tracing::info!(from, %to, "the coordinator has moved");
            } else {
                // Kept as it was until a coordinator has answered: the address may be mistyped.
                tracing::warn!(from, %to, "no coordinator answers where it is said to be now; going on alone");
            }
            Ok(Some(member))
        }
        None => {
            let Some(token) = token else {
                return match coordinator {
                    None => {
                        tracing::info!("in no fleet: `fallow-agent run --token-file FILE` joins one");
                        Ok(None)
                    }
                    Some(coordinator) => Err(AgentError::bad_input(format!(
                        "this agent is not enrolled at {coordinator} yet: give a token with --token-file FILE or in FALLOW_TOKEN"
                    ))),
                };
            };
            // Before a use of the token is spent: what would keep the agent from running shows first.
            drop(server::bind(&settings.dir.control_socket(), Door::Owner)?);
            let _ = std::fs::remove_file(settings.dir.control_socket());
            require_few(organisation)?;
            let mut token = token.clone();
            if let Some(coordinator) = coordinator {
                token.addresses = vec![coordinator.clone()];
            }
            if let (Some(given), Some(said)) = (organisation.first(), token.organisation.first())
                && !organisation.iter().any(|key| token.organisation.contains(key))
            {
                return Err(AgentError::bad_input(format!(
                    "the token says that documents are signed by {said}, and --organisation-key names {given}: one of them is \
                     mistyped, or of another organisation; the token was not spent"
                )));
            }
            if !organisation.is_empty() {
                token.organisation.clone_from(organisation);
            }
            let member =
                membership::enroll(&token, &settings.dir, hostname, settings.proxies.clone()).await?;
            let coordinator = member.identity().coordinator();
            tracing::info!(agent = %member.identity().agent_id(), coordinator, "enrolled");
            Ok(Some(member))
        }
    }
}

/// Has the host follow only what the keys have signed that its owner names. False where it does so already,
/// or none are named.
fn believes(identity: &mut Identity, organisation: &[OrganisationKey]) -> Result<bool, AgentError> {
    let [first, ..] = organisation else { return Ok(false) };
    require_few(organisation)?;
    match &identity.trust {
        None => {
            identity.believe(organisation.to_vec());
            Ok(true)
        }
        // Also one that has brought in its successor: it still stands where the agent is started.
        Some(trust) if organisation.iter().any(|key| trust.knows(key)) => Ok(false),
        Some(trust) => {
            let known = trust.keys.iter().map(OrganisationKey::short).collect::<Vec<_>>().join(", ");
            Err(AgentError::bad_input(format!(
                "this host follows what the key {known} has signed, and {} was given: leave --organisation-key out; or, if another \
                 organisation has the host now, start it in an empty directory with a new token",
                first.short()
            )))
        }
    }
}

/// Sees to it that there are no more keys than a statement may name.
fn require_few(organisation: &[OrganisationKey]) -> Result<(), AgentError> {
    match organisation.len() > SIGNED_KEYS_MAX {
        true => Err(AgentError::bad_input(format!(
            "{} keys were given with --organisation-key, and an organisation has at most {SIGNED_KEYS_MAX}",
            organisation.len()
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use fallow_fleet::Trust;
    use fallow_tls::HostKey;

    use super::*;

    #[test]
    fn r6_10_an_agent_that_is_still_started_with_a_former_key_of_its_organisation_goes_on() {
        let [old, new, other] = [1, 2, 3].map(|byte| OrganisationKey::new([byte; 32]));
        let mut identity = crate::fleet::identity::tests::sample(&HostKey::generate().unwrap());
        assert!(believes(&mut identity, &[old]).unwrap());
        let trust = Trust { former: vec![old], ..Trust::new(identity.authority.to_string(), vec![new]) };
        identity.trust = Some(trust.clone());
        for key in [old, new] {
            assert!(!believes(&mut identity, &[key]).unwrap());
            assert_eq!(identity.trust.as_ref(), Some(&trust));
        }
        assert!(believes(&mut identity, &[other]).is_err());
    }
}
