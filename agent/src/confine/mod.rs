//! What keeps jobs in their slots, in layers that the system does or does not have (R6.10).
//!
//! Model: a job runs as the agent's own user, or as one of its own below root's agent, and may do what the
//! layers leave it. What they are is looked at once, all but `privileges` by trying them in a thread that
//! ends right after; each says why it is on or off. What is off goes unconfined in that respect: whether that
//! is reason enough not to compute is for the owner to say.
//!
//! - `privileges`: no set-user-id program gives any, and those of a root agent are given up;
//! - `user`: below an agent of root's, a user of the slot's, who owns nothing else ([`crate::users`]);
//! - `files` and `lengths` (Landlock): the slot, the files of the job's project to read, and the system's
//!   programs and libraries; nothing else can be opened, listed, made, moved or, with `lengths`, cut short;
//! - `tcp` (Landlock): no TCP port is bound or connected to;
//! - `processes` (Landlock): no signal to a process outside of the job, no tracing, no abstract socket;
//! - `calls` (seccomp): no call of the system that no job needs;
//! - `sockets` (seccomp): no socket but those within the job;
//! - `tmp` (namespaces): directories of the job's own in place of `/tmp` and others, and no processes in
//!   `/proc` but its own where it has a user.
//!
//! `tcp` and `sockets` are not for jobs that have the network ([`Reach`]): where the owner allows it at all,
//! those whose application asks for it, of projects for which preferences allow it.
//!
//! All is prepared before the fork: between fork and exec there are a few system calls alone.
//!
//! Not covered by any layer: modes and times of files that the user owns, names and sizes of files (stat);
//! and System V memory of the same user, for jobs that share such memory with the agent.

mod calls;
mod files;
mod places;
mod shortage;

pub(crate) use files::closed_gpu;
pub(crate) use places::{FILES, TEMPORARY};
pub(crate) use shortage::Shortage;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fallow_domain::Bytes;
use landlock::{ABI, LandlockStatus};
use serde::{Deserialize, Serialize};

use crate::owner::JobUser;
use crate::sys::{self, OwnPlaces};
use crate::users::Users;
use places::Places;

/// What jobs may do beside computing, as the owner of the host says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// They may open connections, and be connected to: those of which [`Reach`] says so.
    pub network: bool,
}

/// One of the layers, and whether this host has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Whether jobs are confined by it.
    pub on: bool,
    /// By what, or why not.
    pub why: String,
}

/// What a job may reach.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    /// Its slot, which is its own.
    pub slot: BorrowedFd<'a>,
    /// The files of its project, which it may read and execute.
    pub project: &'a Path,
    /// Whether it computes on a GPU.
    pub gpu: bool,
    /// The user that it runs as, if not as the agent's own.
    pub user: Option<&'a JobUser>,
    /// The directories that it has for itself in place of the system's: see [`Confinement::places`].
    pub places: Option<&'a OwnPlaces>,
    /// Whether it shares System V memory with the agent, as applications older than BOINC's API 6 do.
    pub system_v: bool,
    /// Whether it has the network, where jobs may have it.
    pub network: bool,
}

/// The layer that only root's agents can have.
pub const USER: &str = "user";

/// The layer by which jobs have directories for temporary files to themselves.
pub const TMP: &str = "tmp";

/// The names of all layers.
pub const LAYERS: [&str; 9] =
    ["privileges", USER, "files", "lengths", "tcp", "processes", "calls", "sockets", TMP];

/// Whether jobs are kept from programs that run other systems, such as Docker and VirtualBox: from the files
/// of these, from the sockets by which they are called, or from the rights that they give.
#[must_use]
pub fn keeps_programs(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| layer.on && ["privileges", "files", "sockets"].contains(&layer.name.as_str()))
}

/// How jobs are confined on this host.
#[derive(Clone, Debug)]
pub struct Confinement {
    allowed: Allowed,
    /// Names of layers that are not used although the system has them.
    switched_off: Vec<String>,
    /// What the kernel has of Landlock, or why nothing.
    landlock: Result<ABI, String>,
    /// The filters of system calls, or why there are none.
    filters: Result<Filters, String>,
    /// Those for jobs that have the network, where jobs may have it.
    open_filters: Result<Filters, String>,
    /// The users that jobs run as, or why they run as the agent's.
    users: Result<Users, String>,
    /// The directories that jobs have for themselves, or why none.
    places: Result<Places, String>,
    /// What of the system jobs may read and execute: all but the agent's own directory.
    system: Vec<PathBuf>,
    /// False where nothing is confined, as in a test of what holds all the same.
    is_on: bool,
}

/// The filters of system calls for most jobs, and for those that share System V memory with the agent.
#[derive(Clone, Debug)]
struct Filters {
    mapped: Arc<[sys::Filter]>,
    system_v: Arc<[sys::Filter]>,
}

/// Why a layer is off in [`Confinement::none`].
const NOT_WANTED: &str = "switched off";

/// A job's user with all groups of the job: also those of GPUs, if it computes on one.
fn in_groups(user: &JobUser, gpu: bool) -> JobUser {
    let mut user = user.clone();
    if gpu {
        user.groups.extend(files::gpu_groups(Path::new("/dev")));
    }
    user
}

impl Confinement {
    /// Looks what this system has, for an agent whose data lies in `dir`.
    pub fn probe(allowed: Allowed, dir: &Path) -> Self {
        let users = Users::probe(dir);
        Self {
            allowed,
            switched_off: Vec::new(),
            landlock: probe_landlock(),
            filters: probe_filters(true, true),
            open_filters: if allowed.network { probe_filters(true, false) } else { Err(NOT_WANTED.into()) },
            places: Ok(Places::probe(dir, users.as_ref().ok().map(|users| users.nobody(dir)))),
            users,
            system: files::of_system(dir),
            is_on: true,
        }
    }

    /// Without any layer: what jobs can do then is what the agent has to withstand anyway.
    pub fn none() -> Self {
        Self {
            allowed: Allowed { network: true },
            switched_off: Vec::new(),
            landlock: Err(NOT_WANTED.into()),
            filters: Err(NOT_WANTED.into()),
            open_filters: Err(NOT_WANTED.into()),
            users: Err(NOT_WANTED.into()),
            places: Err(NOT_WANTED.into()),
            system: Vec::new(),
            is_on: false,
        }
    }

    /// The same without these layers, as on a system that lacks them. Linux lets nobody but root have any
    /// other without `privileges`.
    #[must_use]
    pub fn without(self, layers: &[impl AsRef<str>]) -> Self {
        let switched_off: Vec<String> = layers.iter().map(|layer| layer.as_ref().to_owned()).collect();
        let mut less = Self { switched_off, ..self };
        if less.filters.is_ok() && (less.is_off("calls") || less.is_off("sockets")) {
            let calls = !less.is_off("calls");
            let sockets = !less.is_off("sockets");
            less.filters = match calls || sockets {
                true => probe_filters(calls, sockets),
                false => Err(NOT_WANTED.into()),
            };
        }
        if !less.ruled(false).any() {
            less.landlock = Err(NOT_WANTED.into());
        }
        less
    }

    /// The same, whose host is asked again so long after it could not give directories of a job's own.
    #[must_use]
    pub fn asked_again(self, after: Duration) -> Self {
        Self { places: self.places.map(|places| places.asked_again(after)), ..self }
    }

    fn is_off(&self, layer: &str) -> bool {
        self.switched_off.iter().any(|off| off == layer)
    }

    /// What Landlock is to see to, of a job that has the network or has not.
    fn ruled(&self, network: bool) -> files::Ruled {
        files::Ruled {
            files: !self.is_off("files"),
            lengths: !self.is_off("lengths"),
            tcp: !self.is_off("tcp") && !network,
            processes: !self.is_off("processes"),
        }
    }

    /// The layers.
    pub fn layers(&self) -> Vec<Layer> {
        let layer = |name: &str, state: Result<String, String>| {
            let state = if self.is_off(name) { Err(NOT_WANTED.to_owned()) } else { state };
            Layer { name: name.to_owned(), on: state.is_ok(), why: state.unwrap_or_else(|why| why) }
        };
        let landlock = |least: ABI, linux: &str| match &self.landlock {
            Ok(abi) if *abi >= least => Ok(format!("Landlock {abi}")),
            Ok(abi) => Err(format!("Landlock {abi} is too old: it takes Linux {linux} or newer")),
            Err(why) => Err(why.clone()),
        };
        let sealed = |state: Result<String, String>| match self.allowed.network {
            true if self.is_on => {
                Err("the owner of the host allows the network to jobs that ask for it".to_owned())
            }
            _ => state,
        };
        let filters = || self.filters.as_ref().map(|_| "seccomp".to_owned()).map_err(Clone::clone);
        let privileges = match self.is_on {
            true => Ok("no new privileges, no capabilities".to_owned()),
            false => Err(NOT_WANTED.to_owned()),
        };
        let has_users = self.users().is_some();
        let users = self.users.as_ref().map(|users| format!("one for each slot, from {} on", users.first()));
        let users = users.map_err(Clone::clone);
        vec![
            layer("privileges", privileges),
            layer(USER, users),
            layer("files", landlock(ABI::V1, "5.13")),
            layer("lengths", landlock(ABI::V3, "6.2")),
            layer("tcp", sealed(landlock(ABI::V4, "6.7"))),
            layer("processes", landlock(ABI::V6, "6.12")),
            layer("calls", filters()),
            layer("sockets", sealed(filters())),
            layer(TMP, self.places.as_ref().map_err(Clone::clone).and_then(|places| places.state(has_users))),
        ]
    }

    /// Whether jobs can connect to no socket, so not to the agent's either.
    pub fn keeps_from_sockets(&self) -> bool {
        self.filters.is_ok() && !self.is_off("sockets") && !self.allowed.network
    }

    /// The users that jobs run as, if not as the agent's own.
    pub fn users(&self) -> Option<&Users> {
        self.users.as_ref().ok().filter(|_| !self.is_off(USER))
    }

    /// Whether none of the system's means is there: a job gains no privileges, and is kept from nothing that
    /// the agent's user may do.
    pub fn is_bare(&self) -> bool {
        self.landlock.is_err() && self.filters.is_err() && self.users().is_none()
    }

    /// Those that are off, although the owner has not said so, and that could be on: whoever is not root has
    /// no other users.
    pub fn missing(&self) -> Vec<Layer> {
        let is_root = rustix::process::geteuid().is_root();
        let is_allowed = |layer: &Layer| match layer.name.as_str() {
            "tcp" | "sockets" => self.allowed.network,
            USER => !is_root,
            _ => false,
        };
        self.layers().into_iter().filter(|layer| !layer.on && !is_allowed(layer)).collect()
    }

    /// The directories that a job has for itself in place of the system's, which runs as `user` or as the
    /// agent's own, has its project's files in `project`, and says that it needs so much memory. Its slot has
    /// to hold a directory for them (`.fallow_tmp`). None where the host gives none. `gpu` says whether it
    /// computes on a GPU.
    pub fn places(
        &self,
        user: Option<&JobUser>,
        project: &Path,
        memory: Bytes,
        gpu: bool,
    ) -> Option<OwnPlaces> {
        self.wanted_places()?.of_job(user.map(|user| in_groups(user, gpu)), project, memory)
    }

    /// A job did not start for want of them, for this reason. Whether the next ones go without for a while:
    /// not where the system was short of something for a moment.
    pub fn lack_places(&self, why: &io::Error) -> bool {
        self.places.as_ref().is_ok_and(|places| places.lack(why))
    }

    /// A job has them: what the system was short of for them before, it has again.
    pub fn had_places(&self) {
        if let Ok(places) = &self.places {
            places.had();
        }
    }

    /// Where jobs cannot have directories of their own, asks the system again if that is due. A job that
    /// starts has it done as well.
    pub fn look_again(&self) {
        if let Some(places) = self.wanted_places() {
            places.look_again();
        }
    }

    /// How long until that is due. None where there is nothing to look for.
    pub fn look_due_in(&self) -> Option<Duration> {
        self.wanted_places()?.due_in()
    }

    fn wanted_places(&self) -> Option<&Places> {
        self.places.as_ref().ok().filter(|_| !self.is_off(TMP))
    }

    /// Has `command` start confined to what `reach` says. To be called after everything else that is to
    /// happen before the program is executed, for what follows is confined too.
    ///
    /// # Errors
    /// The system's, where a layer that is there cannot be prepared. Nothing is to be started then.
    pub fn confine(&self, command: &mut Command, reach: &Reach<'_>) -> io::Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let network = reach.network && self.allowed.network;
        let ruled = self.ruled(network);
        let rules = match &self.landlock {
            Ok(abi) if ruled.any() => files::rules(ruled, Allowed { network }, &self.system, reach)?
                .map(|made| sys::Rules { made, on_own: files::on_own(ruled, *abi, reach) }),
            Ok(_) | Err(_) => None,
        };
        let filters = match (&self.filters, network) {
            (Err(_), _) => None,
            (Ok(filters), false) => Some(filters),
            // What is left is `calls`.
            (Ok(_), true) if self.is_off("calls") => None,
            (Ok(_), true) => Some(self.open_filters.as_ref().map_err(|why| io::Error::other(why.as_str()))?),
        };
        let filters = filters.map(|filters| match reach.system_v {
            true => Arc::clone(&filters.system_v),
            false => Arc::clone(&filters.mapped),
        });
        let filters = filters.unwrap_or_default();
        let is_its_user = reach.places.is_some_and(OwnPlaces::becomes_user);
        let user = reach.user.filter(|_| !is_its_user).map(|user| in_groups(user, reach.gpu));
        let gives_up = !self.is_off("privileges");
        sys::confine(command, sys::Means { gives_up, rules, filters, user });
        Ok(())
    }

    /// The directory in which a job makes temporary files, where it is kept from the system's, or what it
    /// leaves there would be the next job's of its slot.
    pub fn temporary<'a>(&self, slot: &'a Path) -> Option<&'a Path> {
        let is_kept_from = self.landlock.is_ok() && !self.is_off("files");
        (is_kept_from || self.users().is_some()).then_some(slot)
    }
}

/// What the kernel has of Landlock: tried, for it may be switched off, or forbidden to this process.
fn probe_landlock() -> Result<ABI, String> {
    let all = files::Ruled { files: true, lengths: true, tcp: true, processes: true };
    let tried = in_thread(move || {
        let status = files::handled(all).and_then(landlock::RulesetCreated::restrict_self);
        status.map(|status| status.landlock).map_err(io::Error::other)
    });
    match tried {
        Ok(LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi),
        Ok(LandlockStatus::NotEnabled) => Err("Landlock is not enabled in this system's kernel".into()),
        Ok(LandlockStatus::NotImplemented) => {
            Err("this system's kernel has no Landlock: it takes Linux 5.13 or newer".into())
        }
        Err(error) => Err(format!("Landlock cannot be used: {error}")),
    }
}

/// Filters for what these two layers refuse, as far as the system takes them: tried, for it may be kept from
/// it.
fn probe_filters(calls: bool, sockets: bool) -> Result<Filters, String> {
    let made = |leaves_system_v| -> Result<Arc<[sys::Filter]>, String> {
        Ok(calls::filters(calls::Refused { calls, sockets, leaves_system_v })?.into())
    };
    let filters = Filters { mapped: made(false)?, system_v: made(true)? };
    let tried = Arc::clone(&filters.mapped);
    let tried = in_thread(move || sys::give_up_new_privileges().and_then(|()| sys::filter_calls(&tried)));
    tried.map_err(|error| format!("the system takes no filter of system calls: {error}"))?;
    Ok(filters)
}

/// Runs something in a thread of its own: what restricts a thread ends with it.
fn in_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("confinement".into()).spawn(work)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the attempt did not end")))
}
