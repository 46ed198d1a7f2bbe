//! What a project keeps besides its workunits: accounts, hosts, applications, counters.

use fallow_domain::{AccountKey, AgentId, Duration, Instant, ResourceType, Usage};
use fallow_policy::send::{TopUps, Trials};
use serde::{Deserialize, Serialize};

use super::operator_types::Counts;
use super::settings::ProjectSettings;
use super::workunit::HostAccount;

/// The project itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProjectRecord {
    pub(crate) settings: ProjectSettings,
    /// Of the project's own account: for clients that its operator attaches by hand.
    pub(crate) account_key: AccountKey,
    pub(crate) created_at: Instant,
    /// What the keys of agents' accounts are derived from; empty in records of earlier versions, when all
    /// agents had the project's own.
    #[serde(default)]
    pub(crate) agent_seed: String,
    /// The account that all agents had together in a store of an earlier version, 0 for none. Whoever has an
    /// account of his own beside it would count twice: it is sent no more work.
    #[serde(default)]
    pub(crate) shared_account: u64,
    /// The fleet was sent a document since there are accounts for agents.
    #[serde(default)]
    pub(crate) agents_told: bool,
}

/// Numbers that change with everything: ids given so far, and how many there are of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counters {
    pub(crate) last_account: u64,
    pub(crate) last_host: u64,
    /// Of workunits; never used again.
    pub(crate) last_sequence: u64,
    pub(crate) counts: Counts,
    /// Names of files of open workunits are counted (`index::count_open_names`); in stores of earlier
    /// versions they are not.
    pub(crate) has_open_names: bool,
}

/// Somebody who computes for the project (BOINC: user).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) id: u64,
    pub(crate) key: AccountKey,
    /// In lower case.
    pub(crate) email: String,
    /// MD5 of password and e-mail address, as clients send it. Empty for an account that nobody can look up.
    pub(crate) passwd_hash: String,
    pub(crate) name: String,
    pub(crate) created_at: Instant,
    /// Identity of this person across projects, as the client knows it.
    pub(crate) cross_project_id: String,
    /// The agent that it was made for: nobody else is given its key.
    #[serde(default)]
    pub(crate) agent: Option<AgentId>,
    /// The one host of an agent's account, 0 before its first request.
    #[serde(default)]
    pub(crate) host: u64,
    /// Of the agent of a copied machine: what its results count as where several must agree, for the first
    /// one's and all its copies'. Whoever copies his machine is not two. 0 for what the account itself is.
    #[serde(default)]
    pub(crate) voter: u64,
}

impl Account {
    /// The account that its results count for where several must agree.
    pub(crate) fn counts_as(&self) -> u64 {
        if self.voter == 0 { self.id } else { self.voter }
    }
}

/// A machine that computes for the project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) id: u64,
    pub(crate) account: u64,
    /// As its account's.
    #[serde(default)]
    pub(crate) voter: u64,
    /// The host's own identity, as it sent it.
    pub(crate) cpid: String,
    pub(crate) name: String,
    /// The agent on it, if it is a host of this coordinator's fleet.
    #[serde(default)]
    pub(crate) agent: Option<AgentId>,
    pub(crate) created_at: Instant,
    pub(crate) last_rpc: Instant,
    /// The number of its last RPC; a lower one comes from a copy of the host's data.
    pub(crate) rpc_seqno: u64,
    /// When it was last sent work, or told that there is none.
    pub(crate) last_request: Option<Instant>,
    pub(crate) ncpus: u32,
    /// The delay that it was last told, if that was shorter than the project's.
    #[serde(default)]
    pub(crate) told_delay: Option<Duration>,
    /// Sequence behind which the search for unsent jobs goes on when those at the head are not for this host.
    pub(crate) search_from: u64,
    /// It asked for work of some type and got none of it: it has backed off, and does not come again by
    /// itself soon.
    #[serde(default)]
    pub(crate) waiting: bool,
    /// When an RPC last came with a number below the one before: two copies of an agent's directory are in
    /// use, or an older copy of it. None for hosts outside the fleet: there a copy gets a record of its own.
    #[serde(default)]
    pub(crate) copied_at: Option<Instant>,
    /// Whether jobs are tried on it that would be late by their estimates.
    #[serde(default)]
    pub(crate) trials: Trials,
    /// What it was sent beyond its part of a batch because instances idled.
    #[serde(default)]
    pub(crate) top_ups: TopUps,
}

/// How long a host is taken for copied after the last sign of it. A sign may lie as far in the future if the
/// clock was set back: both copies run as before.
const COPIED_FOR: Duration = Duration::from_hours(24);

impl Host {
    /// The host, its account, and what it counts for.
    pub(crate) fn host_account(&self) -> HostAccount {
        let voter = if self.voter == 0 { self.account } else { self.voter };
        HostAccount { host: self.id, account: self.account, voter }
    }

    /// Whether two copies of it may be in use: what one does not have the other may be computing.
    pub(crate) fn is_copied(&self, now: Instant) -> bool {
        self.copied_at.is_some_and(|at| now.since(at) < COPIED_FOR && at.since(now) < COPIED_FOR)
    }
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) friendly_name: String,
}

/// A version of an application for one platform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) application: String,
    pub(crate) version: u32,
    pub(crate) platform: String,
    /// Version of the application library in it.
    pub(crate) api_version: Option<String>,
    /// The first is the main program.
    pub(crate) files: Vec<VersionFile>,
    /// What a job of it uses.
    #[serde(default = "one_cpu")]
    pub(crate) usage: Usage,
    /// Its jobs need the network while they run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) needs_network: bool,
}

fn one_cpu() -> Usage {
    Usage::ONE_CPU
}

impl Version {
    /// The type that its jobs count for (R3.1).
    pub(crate) fn kind(&self) -> ResourceType {
        self.usage.main_type()
    }

    /// What tells it from versions for other resource types (BOINC: `plan_class`); empty for the CPU.
    pub(crate) fn plan_class(&self) -> &'static str {
        plan_class(self.usage)
    }
}

/// The plan class of a version that uses this.
pub(crate) fn plan_class(usage: Usage) -> &'static str {
    match usage.main_type() {
        ResourceType::Cpu => "",
        kind => kind.name(),
    }
}

/// A file of a version, in the download directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionFile {
    pub(crate) name: String,
    /// The name under which the application opens it; the main program has none.
    pub(crate) open_name: Option<String>,
    pub(crate) executable: bool,
    pub(crate) nbytes: u64,
    pub(crate) md5: String,
    /// Under the code-signing key.
    pub(crate) signature: String,
}

/// A submission with a key: how much of it is taken. The names of its workunits lie beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// Fingerprint of the whole, as its client made it.
    pub(crate) digest: String,
    /// Workunits of the whole.
    pub(crate) total: u64,
    /// Those that are stored: the first ones.
    pub(crate) taken: u64,
    pub(crate) begun_at: Instant,
}

/// An entry of the queue of unsent jobs: enough to pass over a workunit without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnsentEntry {
    #[serde(rename = "w")]
    pub(crate) workunit: String,
    #[serde(rename = "a")]
    pub(crate) application: String,
    /// Accounts that have a copy or have computed one, as they count. Entries of earlier versions name none:
    /// then the workunit is read.
    #[serde(rename = "o", default)]
    pub(crate) accounts: Vec<u64>,
    /// Whether a machine and its copies count as one (`Workunit::counts_voters`).
    #[serde(rename = "v", default)]
    pub(crate) counts_voters: bool,
}

/// The delay after which a host may come again.
pub(crate) fn delay(settings: &ProjectSettings, host: &Host) -> Duration {
    host.told_delay.map_or(settings.request_delay, |told| told.min(settings.request_delay))
}

/// The shortest time between two requests of one host that bring it work: a client that ignores the delay it
/// was given is told to wait, one that comes a little early is not.
pub(crate) fn min_interval(settings: &ProjectSettings, host: &Host) -> Duration {
    delay(settings, host).mul_f64(0.8)
}
