//! Why a coordinator does not start, and with which exit status.

use std::net::SocketAddr;
use std::path::PathBuf;

use fallow_domain::{ExitCode, printable};
use fallow_store::StoreError;
use fallow_tls::TlsError;
use fallow_work_server::ProjectError;

use crate::backup::BackupError;
use crate::document::DocumentError;
use crate::fleet::FleetError;
use crate::json::ContractError;
use crate::operator::TokenError;

/// The longest name that a file can have.
const NAME_MAX: usize = 255;

/// A coordinator does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What this program says of its own operators' API is no such description.
    #[error(
        "the description of the operators' API that is built into this program cannot be used ({0}): build it anew, or get another"
    )]
    Contract(String),
    /// A URL that projects cannot be known by.
    #[error(
        "projects cannot be known by {url} ({why}): say under which URL clients reach them, with a dot in its host, such as \
         --projects-url https://lab.example.org:24002"
    )]
    ProjectsUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The projects' URL cannot be changed.
    #[error(
        "--projects-url {asked} differs from {kept}, by which agents and clients know this coordinator's projects for good: leave it \
         out; projects that are to be known by another URL need a coordinator that is told it before the first is made"
    )]
    UrlFixed {
        /// What was asked for.
        asked: String,
        /// What it is.
        kept: String,
    },
    /// BOINC clients need a dot in a URL.
    #[error(
        "--http {0} is not an IPv4 address, which BOINC clients need: use 127.0.0.1, or 0.0.0.0 for all addresses"
    )]
    NotIpv4(SocketAddr),
    /// Another process listens there.
    #[error(
        "{address} is in use by another process: this coordinator keeps it for {what}, as agents and clients know it; stop that process ({hint})"
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
        /// What it is for.
        what: &'static str,
        /// How to find the process.
        hint: String,
    },
    /// Another process listens where this coordinator was asked to listen, at its first start or at another
    /// address.
    #[error(
        "{address} is in use by another process ({hint}): give another port with {option}, or leave {option} out and a free one is found"
    )]
    PortTaken {
        /// The address.
        address: SocketAddr,
        /// The option that names it.
        option: &'static str,
        /// How to find the process.
        hint: String,
    },
    /// Agents and projects cannot be served at one port.
    #[error(
        "--listen and --http both name {0}: agents and operators need one port and the projects another, so give two, or leave one of them out"
    )]
    SameAddress(SocketAddr),
    /// The projects' address cannot be changed.
    #[error(
        "--http {asked} differs from {kept}, by which this coordinator's projects are known to agents and clients for good: leave it \
         out; projects that are to be reached elsewhere need a coordinator that serves them there before the first is made"
    )]
    AddressFixed {
        /// What was asked for.
        asked: SocketAddr,
        /// What it is.
        kept: SocketAddr,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The directory cannot be made or written.
    #[error(
        "the directory {dir} cannot be made or written: check its owner, mode and free space, or choose another"
    )]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Others can read it, and that cannot be changed.
    #[error(
        "{path} is open to other users, and holds secrets: make it this user's own with mode 700 (a file: 600), or choose another directory"
    )]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another user has made something in it.
    #[error(
        "{path} belongs to another user, who could change what the coordinator serves from there: look at it, then remove it or make it this user's own (chown), or choose another directory"
    )]
    OfAnotherUser {
        /// What is not this user's own.
        path: PathBuf,
    },
    /// It was there when the coordinator started.
    #[error(
        "{dir} was removed or replaced while its coordinator ran: what was changed since is lost; put a copy back and start it again"
    )]
    Gone {
        /// The directory.
        dir: PathBuf,
    },
    /// Something that is no directory lies where one should be.
    #[error("{0} is not a directory: give another --dir, or move it away")]
    NotADirectory(PathBuf),
    /// An agent's directory, without a mark in its store.
    #[error(
        "{dir} is an agent's directory ({evidence} is there): nothing was changed; give the coordinator another --dir"
    )]
    OfAgent {
        /// The directory.
        dir: PathBuf,
        /// What shows it.
        evidence: PathBuf,
    },
    /// It is no coordinator's, and may be shared by many.
    #[error(
        "{dir} is not a coordinator's directory, and not empty ({} is in it): nothing in it was changed; name a directory of the \
         coordinator's own with --dir, empty or not there yet",
        printable::line(&.foreign.file_name().unwrap_or_default().to_string_lossy(), NAME_MAX)
    )]
    NotOwn {
        /// The directory.
        dir: PathBuf,
        /// Something in it.
        foreign: PathBuf,
    },
    /// What an earlier run made is there without its records.
    #[error(
        "{store} is missing or empty, but an earlier run's {evidence} is there: put the store back, from a copy of {dir} taken as a whole; to begin with nothing instead (agents must enrol again, projects get new keys), move all of {dir} away"
    )]
    StoreMissing {
        /// The coordinator's directory.
        dir: PathBuf,
        /// Where the store should be.
        store: PathBuf,
        /// What shows that there was one.
        evidence: PathBuf,
    },
    /// `instance` holds something else.
    #[error(
        "{0} does not hold the coordinator's name in telemetry, 26 letters and digits: restore it, or delete it and the next start makes another name"
    )]
    Instance(PathBuf),
    /// The authority's files hold something else.
    #[error(
        "{certificate} and {key} are not the certificate and the key of one certificate authority, or the key is not in PKCS#8 \
         without a passphrase (`openssl pkcs8 -topk8 -nodes -in OLD -out NEW` makes it so). If both have served here before, put \
         them back from a copy of the directory: without them no agent trusts this coordinator"
    )]
    Authority {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        #[source]
        source: TlsError,
    },
    /// One of the authority's files is gone.
    #[error(
        "{missing} is missing: put it back from a copy of the directory; without it no agent of this fleet trusts the coordinator"
    )]
    AuthorityMissing {
        /// The file.
        missing: PathBuf,
    },
    /// The authority's files are another fleet's.
    #[error(
        "{certificate} and {key} are of another authority than this fleet's: put back those that were there, from a copy of the \
         directory; no agent of this fleet trusts another one"
    )]
    OtherAuthority {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// No certificate can be made.
    #[error("no certificate can be made for the coordinator's ports")]
    Tls(#[source] TlsError),
    /// A backup that waits to take this coordinator's place.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The operator's token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document.
    #[error(transparent)]
    Document(DocumentError),
    /// A project.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// No thread.
    #[error(transparent)]
    Thread(FleetError),
    /// A fault of the program.
    #[error("a part of the coordinator died")]
    Died(#[source] tokio::task::JoinError),
}

impl From<ContractError> for StartError {
    fn from(error: ContractError) -> Self {
        Self::Contract(error.to_string())
    }
}

impl From<tonic_reflection::server::Error> for StartError {
    fn from(error: tonic_reflection::server::Error) -> Self {
        Self::Contract(error.to_string())
    }
}

impl From<FleetError> for StartError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Store(error) => Self::Store(error),
            thread @ FleetError::Thread(_) => Self::Thread(thread),
        }
    }
}

impl StartError {
    /// The exit status it gives.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::ProjectsUrl { .. }
            | Self::UrlFixed { .. }
            | Self::NotIpv4(_)
            | Self::OfAgent { .. }
            | Self::NotOwn { .. }
            | Self::SameAddress(_)
            | Self::AddressFixed { .. }
            | Self::Listen { .. }
            | Self::NotADirectory(_) => ExitCode::BadInput,
            Self::PortInUse { .. } | Self::PortTaken { .. } => ExitCode::InUse,
            Self::Directory { .. } | Self::Open { .. } | Self::OfAnotherUser { .. } => ExitCode::NoSpace,
            Self::StoreMissing { .. }
            | Self::Authority { .. }
            | Self::AuthorityMissing { .. }
            | Self::OtherAuthority { .. }
            | Self::Gone { .. }
            | Self::Instance(_)
            | Self::Token(TokenError::NoToken { .. }) => ExitCode::BadStore,
            Self::Token(TokenError::File { .. }) => ExitCode::NoSpace,
            Self::Store(error) | Self::Project(ProjectError::Store(error)) => of_store(error),
            Self::Project(ProjectError::File { .. }) => ExitCode::NoSpace,
            Self::Project(ProjectError::Key { .. } | ProjectError::UnknownPolicy { .. }) => {
                ExitCode::BadStore
            }
            Self::Backup(error) => error.exit_code(),
            Self::Project(_)
            | Self::Document(_)
            | Self::Token(_)
            | Self::Thread(_)
            | Self::Died(_)
            | Self::Contract(_)
            | Self::Tls(_) => ExitCode::Internal,
        }
    }
}

fn of_store(error: &StoreError) -> ExitCode {
    match error {
        StoreError::InUse { .. } => ExitCode::InUse,
        StoreError::NotWritable { .. } | StoreError::Full { .. } => ExitCode::NoSpace,
        StoreError::Corrupted { .. } | StoreError::NewerFormat { .. } | StoreError::BadValue { .. } => {
            ExitCode::BadStore
        }
        StoreError::OtherKind { .. } => ExitCode::BadInput,
        StoreError::Io { .. } | StoreError::NotCopied { .. } => ExitCode::Internal,
    }
}
