//! `fallow hosts revoke` and `fallow hosts forget`: a host leaves the fleet (R6.10).

use clap::Args;
use fallow_proto::operator::v1::{ExplainHostRequest, ForgetHostRequest, RevokeHostReply, RevokeHostRequest};
use serde_json::json;

use super::connect::{Client, Target};
use super::why::{self, Why};
use super::{Failure, hosts, print, print_json};
use crate::printable;

pub(crate) const REVOKE: &str = "\
Example:
  fallow hosts revoke 01JC3V5K8Q0W3R9T7M2N4P6X8Z
  fallow hosts revoke agent-7 --message 'stolen from room 12'

Its link ends at once, its certificate is of no use any more, and the fleet's
own projects do not know its accounts. This cannot be undone: the machine joins
again as a new host, with a token and an empty directory of its agent. A token
that lies on it and still enrols is named: `fallow tokens revoke` ends that.
Hosts that were copies of it are named, too: they stay, unless --with-copies
is said.
Projects of others, which do not ask this coordinator, it goes on computing for
until their accounts are changed.";

pub(crate) const FORGET: &str = "\
Example:
  fallow hosts forget agent-7

For a machine that is gone for good: it does not come back by itself, and joins
again as a new host only. What it computed counts on in the fleet's sums. A
host that is connected has to be revoked first.";

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The agent's id, or its name where no other host has it.
    host: String,
    /// Why: shown in the list of hosts, and told the host.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    /// Also the hosts that were copies of it, and theirs.
    #[arg(long)]
    with_copies: bool,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Forget {
    /// The agent's id, or its name where no other host has it.
    host: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn revoke(arguments: Revoke) -> Result<(), Failure> {
    let Revoke { host, message, with_copies, target, json } = arguments;
    let mut client = target.connect().await?;
    let request = |host| RevokeHostRequest { host, reason: message.clone() };
    let known = Known::ask(&mut client, &host).await;
    let mut reply = client.revoke_host(request(host)).await?.into_inner();
    let mut with_it = Vec::new();
    // One that is copied meanwhile is named by the one that it was copied of.
    while with_copies && let Some(copy) = reply.copies.pop() {
        let of_copy = client.revoke_host(request(copy.clone())).await.map_err(|status| {
            let why = Failure::from(status);
            let done = [std::slice::from_ref(&reply.agent_id), &with_it].concat().join(", ");
            Failure::new(
                why.code(),
                format!("copy {copy} is still a host of the fleet: {why}; taken out are: {done}"),
            )
        })?;
        let of_copy = of_copy.into_inner();
        let is_new = |id: &String| !reply.copies.contains(id);
        let new: Vec<String> = of_copy.copies.into_iter().filter(is_new).collect();
        reply.copies.extend(new);
        with_it.push(copy);
    }
    if json {
        let RevokeHostReply { agent_id, open_token, copies } = &reply;
        let open_token = Some(open_token).filter(|token| !token.is_empty());
        return print_json(&json!({
            "agent_id": agent_id,
            "open_token": open_token,
            "copies": copies,
            "copies_revoked": with_it,
        }));
    }
    print(&known.revoked(&reply.agent_id))?;
    for copy in with_it {
        let copy = Known::ask(&mut client, &copy).await.said(&copy);
        print(&format!("Host {copy}, a copy of it, is no host of the fleet any more, either.\n"))?;
    }
    print(&left_by(&reply))
}

/// What is known of a host before something is done with it; nothing where it cannot be asked.
#[derive(Default)]
struct Known {
    name: String,
    is_revoked: bool,
}

impl Known {
    async fn ask(client: &mut Client, host: &str) -> Self {
        let asked = client.explain_host(ExplainHostRequest { host: host.to_owned() }).await;
        let host = asked.ok().and_then(|reply| reply.into_inner().host);
        host.map_or_else(Self::default, |host| Self {
            name: hosts::name(&host),
            is_revoked: host.revoked_at_micros != 0,
        })
    }

    /// Its name and its agent's id.
    fn said(&self, id: &str) -> String {
        match self.name.as_str() {
            "" => id.to_owned(),
            name => format!("{} ({id})", printable::line(name, usize::MAX)),
        }
    }

    fn revoked(&self, id: &str) -> String {
        let host = self.said(id);
        match self.is_revoked {
            true => format!("Host {host} was revoked already.\n"),
            false => format!("Host {host} is no host of the fleet any more.\n"),
        }
    }
}

/// What still leads into the fleet from the machine of a host that was taken out of it.
fn left_by(reply: &RevokeHostReply) -> String {
    let mut text = String::new();
    for copy in &reply.copies {
        text += &format!(
            "Host {copy} was a copy of it, and is still a host of the fleet: `fallow hosts revoke {copy}` takes it out, too.\n"
        );
    }
    if !reply.open_token.is_empty() {
        let token = &reply.open_token;
        text += &format!(
            "It enrolled with token {token}, which still enrols: `fallow tokens revoke {token}` ends that.\n"
        );
    }
    text
}

pub(crate) async fn forget(arguments: Forget) -> Result<(), Failure> {
    let Forget { host, why, target, json } = arguments;
    let mut client = target.connect().await?;
    let known = Known::ask(&mut client, &host).await;
    let request = why.of(ForgetHostRequest { host });
    let id = client.forget_host(request).await?.into_inner().agent_id;
    if json {
        return print_json(&json!({ "agent_id": id }));
    }
    print(&format!("Host {} is not listed any more.\n", known.said(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_host_that_leaves_is_told_by_name_and_one_that_has_left_before_as_such() {
        let known = |name: &str, is_revoked| Known { name: name.into(), is_revoked };
        let left = "Host pc-5 (01J) is no host of the fleet any more.\n";
        assert_eq!(known("pc-5", false).revoked("01J"), left);
        assert_eq!(known("pc-5", true).revoked("01J"), "Host pc-5 (01J) was revoked already.\n");
        assert_eq!(known("", false).revoked("01J"), "Host 01J is no host of the fleet any more.\n");
    }

    #[test]
    fn r6_10_copies_of_a_host_that_is_taken_out_are_named_with_how_to_take_them_out() {
        assert_eq!(left_by(&RevokeHostReply::default()), "");
        let reply = RevokeHostReply {
            agent_id: "A".into(),
            open_token: "T".into(),
            copies: vec!["B".into(), "C".into()],
        };
        let text = left_by(&reply);
        let has = |part: &str| text.contains(part);
        assert!(
            has("fallow hosts revoke B") && has("fallow hosts revoke C") && has("tokens revoke T"),
            "{text}"
        );
    }
}
