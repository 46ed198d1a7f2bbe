//! `fallow hosts label`.

use clap::Args;
use fallow_proto::operator::v1::LabelHostRequest;
use serde_json::json;

use super::connect::Target;
use super::why::Why;
use super::{Failure, print, print_json};
use crate::printable;

const EXAMPLE: &str = "\
Examples:
  fallow hosts label lab-pc-7 room=12 site=brno
  fallow hosts label lab-pc-7 room-

NAME=VALUE sets a label, NAME- removes it. Groups choose hosts by their labels
(fallow apply). Agents report some themselves (os, arch, cores, memory_mib, gpu,
virtual, container, container_engine, hostname, agent_name, agent_version):
those, and labels that a host was enrolled with, are not changed here.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Label {
    /// The host, by its agent's id, its name or its host name.
    host: String,
    /// Labels to set, as NAME=VALUE, and to remove, as NAME-.
    #[arg(required = true, value_name = "LABEL")]
    labels: Vec<String>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Label) -> Result<(), Failure> {
    let Label { host, labels, why, target, json } = arguments;
    let mut client = target.connect().await?;
    let request = why.of(LabelHostRequest { host, changes: labels });
    let labels = client.label_host(request).await?.into_inner().labels;
    if json {
        return print_json(&json!({ "labels": super::hosts::labels_json(&labels) }));
    }
    print(&(printable::line(&labels.join(" "), usize::MAX) + "\n"))
}
