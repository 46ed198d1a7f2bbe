//! What can go wrong with a hosted project: each error says what, where, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use fallow_boinc::runtime::slot_names::SlotClash;
use fallow_domain::{AgentId, Invalid, KeyFingerprint};
use fallow_policy::choice::NoSuchPolicy;
use fallow_store::StoreError;

/// A hosted project could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The agent was taken out of the fleet.
    #[error("agent {agent} was taken out of the fleet: its account is closed for good")]
    AccountClosed {
        /// The agent.
        agent: AgentId,
    },
    /// No project of this name is hosted here.
    #[error("there is no project {name:?} here: `fallow projects` lists those there are")]
    UnknownProject {
        /// The name as it was given.
        name: String,
    },
    /// A project of this name exists.
    #[error("a project {name:?} exists already: choose another name")]
    ProjectExists {
        /// The name.
        name: String,
    },
    /// The project is stored with a policy that this program has not, such as one of somebody's own.
    #[error(
        "project {project} is set to send jobs by a policy that this program has not: start the program that has it"
    )]
    UnknownPolicy {
        /// The project.
        project: String,
        /// The policy, and those that there are.
        #[source]
        source: NoSuchPolicy,
    },
    /// The project has no application of this name, or no version of it.
    #[error("project {project} has no version of an application {application:?}: add one first{}", there_are(.there))]
    UnknownApplication {
        /// The project.
        project: String,
        /// The application as it was named.
        application: String,
        /// Those that it has versions of.
        there: Vec<String>,
    },
    /// A version of an application with this number is there already, and versions never change: clients hold
    /// them.
    #[error(
        "{application} version {} for {platform} exists already: give the new files a higher version number",
        version_for_people(*version)
    )]
    VersionExists {
        /// The application.
        application: String,
        /// The version number.
        version: u32,
        /// The platform.
        platform: String,
    },
    /// Two workunits of one submission have the same name.
    #[error(
        "workunits {first} and {second} of the submission have the same name {name:?}: give each another, or none to have one made"
    )]
    WorkunitTwice {
        /// The name.
        name: String,
        /// The place of one, counted from 1.
        first: u64,
        /// The place of the other.
        second: u64,
    },
    /// One of several workunits of a submission is not taken, and so none is.
    #[error("workunit {position} of the submission: {source}")]
    OfWorkunit {
        /// Its place, counted from 1.
        position: u64,
        /// Why.
        source: Box<ProjectError>,
    },
    /// A workunit of this name exists.
    #[error(
        "project {project} has a workunit {name:?} already: choose another name, or leave it empty to have one made"
    )]
    WorkunitExists {
        /// The project.
        project: String,
        /// The workunit's name.
        name: String,
    },
    /// The project has no job of this name.
    #[error("project {project} has no job {name:?}: `fallow jobs {project}` lists those there are")]
    UnknownJob {
        /// The project.
        project: String,
        /// The job as it was named.
        name: String,
    },
    /// A submission's key was used for another one.
    #[error(
        "the key {key:?} is another submission's, of {total} workunits: give this one a key of its own with --key"
    )]
    KeyTaken {
        /// The key.
        key: String,
        /// Workunits of the other one.
        total: u64,
    },
    /// A piece of a submission came before the one that it follows.
    #[error(
        "a piece of submission {key:?} begins behind workunit {offset}, and only {taken} are taken: repeat the submission"
    )]
    PieceTooEarly {
        /// The key.
        key: String,
        /// Where the piece begins.
        offset: u64,
        /// Workunits that are stored.
        taken: u64,
    },
    /// A value that means nothing in its place.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A file of a workunit has no place in the directory of its jobs.
    #[error(transparent)]
    OpenName(#[from] SlotClash),
    /// A file of an application has no place beside one of a workunit whose jobs may yet run with it.
    #[error(
        "the file {file:?} takes the place of {name:?} of workunit {workunit}, which is not over: rename the file, or add this version when that workunit is over"
    )]
    TakesPlace {
        /// The application's file.
        file: String,
        /// The workunit.
        workunit: String,
        /// The open name of its file.
        name: String,
    },
    /// A file of the project could not be read or written.
    #[error("cannot {action} {path}: check the directory's owner, mode and free space")]
    File {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The project's keys are missing or not in their format. They are never made anew: clients hold the
    /// public ones.
    #[error("the key in {path} cannot be used: restore it from a copy, as clients accept no other key")]
    Key {
        /// The key's file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The project's programs are signed elsewhere, and these are not.
    #[error(
        "the project's code-signing key ({fingerprint}) is not kept here: sign the files with it, by --code-sign-key FILE"
    )]
    KeyElsewhere {
        /// The key.
        fingerprint: KeyFingerprint,
    },
    /// A file of an application came with a signature that is not the project's.
    #[error("{file} is not signed by the project's code-signing key, {fingerprint}: sign it with that one")]
    WrongSignature {
        /// The file.
        file: String,
        /// The project's key.
        fingerprint: KeyFingerprint,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A version number as people write it: 100 is 1.0, 107 is 1.07, 170 is 1.7.
fn version_for_people(version: u32) -> String {
    match (version / 100, version % 100) {
        (major, minor) if minor % 10 == 0 => format!("{major}.{}", minor / 10),
        (major, minor) => format!("{major}.{minor:02}"),
    }
}

impl ProjectError {
    /// For `map_err` on one of `all` workunits of a submission, by its place from 0. A single one needs no
    /// number.
    pub(crate) fn of_workunit(position: u64, all: u64) -> impl FnOnce(Self) -> Self {
        move |source| match all {
            1 => source,
            _ => Self::OfWorkunit { position: position + 1, source: Box::new(source) },
        }
    }

    /// For `map_err` on file operations.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }
}

/// What is said of the applications that a project has.
fn there_are(applications: &[String]) -> String {
    match applications {
        [] => String::new(),
        some => format!(" (it has versions of: {})", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_shown_as_it_was_written() {
        for (version, text) in [(100, "1.0"), (107, "1.07"), (170, "1.7"), (2015, "20.15"), (5, "0.05")] {
            assert_eq!(version_for_people(version), text);
        }
    }
}
