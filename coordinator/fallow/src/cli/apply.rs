//! `fallow apply` and `fallow diff`: groups from files, and what they would change (R6.4, R6.5).

use std::path::PathBuf;

use clap::Args;
use fallow_domain::ExitCode;
use fallow_proto::operator::v1::{ChangeGroupsRequest, ListHostsRequest};

use super::changes::How;
use super::connect::Target;
use super::going_out::{self, GoingOut};
use super::{Failure, changes, group_files, hosts, why};

const APPLY_EXAMPLE: &str = "\
Examples:
  fallow apply -f groups/
  fallow apply -f room-12.toml --message 'exams until Friday'
  fallow apply -f groups/ --prune --dry-run

Each file is a group: which hosts, and what is different for them.
  name = \"room-12\"
  precedence = 20
  selector = \"room=12, os in (linux), !gpu, cores >= 8\"
  [projects.primes]
  share = 20
  [projects.sums]
  absent = true
  [preferences]
  cpu_fraction = \"50%\"

Where two groups say the same value, the higher precedence prevails; what none
says is as for the whole fleet (fallow shares, fallow preferences). Either all
files are taken, or none, and everything that is wrong is named.";

const DIFF_EXAMPLE: &str = "\
Examples:
  fallow diff -f groups/
  fallow diff -f room-12.toml --hosts

Changes nothing. Values are those before the limits of the hosts' owners.";

#[derive(Args, Debug)]
#[command(after_help = APPLY_EXAMPLE)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: Files,
    /// Why, for the history of documents (fallow documents).
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    how: GoingOut,
    /// Change nothing, only say what would change.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLE)]
pub(crate) struct Diff {
    #[command(flatten)]
    files: Files,
    /// Host by host.
    #[arg(long)]
    hosts: bool,
}

#[derive(Args, Debug)]
struct Files {
    /// Files of groups, or directories of files that end in .toml.
    #[arg(short = 'f', long = "file", required_unless_present = "bare", num_args = 1.., value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Files without -f before them, to say so.
    #[arg(hide = true)]
    bare: Vec<PathBuf>,
    /// Remove all groups that none of the files is of.
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    target: Target,
    /// All columns, however narrow the terminal is.
    #[arg(long)]
    wide: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Files {
    fn how(&self) -> How {
        How { json: self.json, wide: self.wide }
    }

    fn request(&self) -> Result<ChangeGroupsRequest, Failure> {
        if let Some(bare) = self.bare.first() {
            let text = format!("files are named with -f: -f {}", bare.display());
            return Err(Failure::new(ExitCode::Usage, text));
        }
        let files = group_files::read(&self.files)?;
        Ok(ChangeGroupsRequest { files, prune: self.prune, ..ChangeGroupsRequest::default() })
    }
}

pub(crate) async fn apply(arguments: Apply) -> Result<(), Failure> {
    let Apply { files, message, how, dry_run } = arguments;
    let emergency = how.emergency;
    let request = ChangeGroupsRequest { message, dry_run, emergency, ..files.request()? };
    let mut client = files.target.connect().await?;
    let reply = client.change_groups(request).await?.into_inner();
    changes::show(&reply, dry_run, None, &files.how())?;
    if dry_run {
        going_out::tell_waiting(&mut client).await;
    } else {
        going_out::tell(&mut client, reply.rollout).await;
        going_out::tell_at_once(&mut client, reply.rollout, reply.changed_hosts, &how).await;
    }
    Ok(())
}

pub(crate) async fn diff(arguments: Diff) -> Result<(), Failure> {
    let Diff { files, hosts: per_host } = arguments;
    let request = ChangeGroupsRequest { dry_run: true, per_host, ..files.request()? };
    let mut client = files.target.connect().await?;
    let reply = client.change_groups(request).await?.into_inner();
    let names = if per_host && !files.json {
        Some(hosts::names(&client.list_hosts(ListHostsRequest::default()).await?.into_inner().hosts))
    } else {
        None
    };
    changes::show(&reply, true, names.as_ref(), &files.how())?;
    // What is compared with is what waits, and hosts have something else.
    going_out::tell_waiting(&mut client).await;
    Ok(())
}
