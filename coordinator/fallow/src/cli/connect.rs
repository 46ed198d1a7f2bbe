//! Where the coordinator is, and the way there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fallow_coordinator::daemon::DaemonFile;
use fallow_coordinator::operator::{AUTHOR, TokenError, TokenFile};
use fallow_daemon::causes;
use fallow_domain::ExitCode;
use fallow_domain::printable::shell_path;
use fallow_proto::operator::v1::operator_client::OperatorClient;
use fallow_store::Kind;
use fallow_tls::{AccessString, Address, AddressError, ConnectError, Connector, Proxies};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::{Failure, key_file};

/// Which coordinator a command speaks to.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Directory of the coordinator, or of `fallow up` [default: FALLOW_DIR, else ./fallow-data].
    #[arg(long, default_value_os_t = root(), hide_default_value = true, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address of the coordinator, such as lab.example.org:24001, instead of the one in the operator's token.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub coordinator: Option<Address>,
    /// File with an operator's token, which says where the coordinator is, instead of operator.token in the
    /// directory.
    #[arg(long, value_name = "FILE")]
    pub operator_token_file: Option<PathBuf>,
}

/// Where a coordinator is looked for when nothing is said. Not by clap's own means: in its usage lines an
/// option that the environment gives looks as if it were needed.
pub(crate) fn root() -> PathBuf {
    let root = std::env::var_os("FALLOW_DIR").filter(|root| !root.is_empty());
    root.map_or_else(|| PathBuf::from("./fallow-data"), PathBuf::from)
}

/// The operator service, with every call authorised.
pub type Client = OperatorClient<InterceptedService<Channel, Credentials>>;

/// What each call carries.
#[derive(Clone)]
pub struct Credentials {
    bearer: MetadataValue<Ascii>,
    author: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.bearer.clone());
        if let Some(author) = &self.author {
            request.metadata_mut().insert(AUTHOR, author.clone());
        }
        fallow_telemetry::propagation::inject_metadata(request.metadata_mut());
        Ok(request)
    }
}

/// Largest answer that is taken: a page of results.
const ANSWER_BYTES: usize = 64 << 20;
/// How long a call may take: long ones are made of many.
const CALL: Duration = Duration::from_secs(60);

impl Target {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure`] with where it was looked for.
    pub async fn connect(&self) -> Result<Client, Failure> {
        self.connect_for(CALL).await
    }

    /// Connects for calls that may take so long.
    ///
    /// # Errors
    /// As [`Target::connect`].
    pub async fn connect_for(&self, longest: Duration) -> Result<Client, Failure> {
        let mut access = match (&self.operator_token_file, &self.coordinator) {
            (Some(file), _) => {
                let access = TokenFile::read(file).map_err(|error| not_a_token(file, error, false))?;
                key_file::warn_if_open(file, "an operator's token", "ask for a new one");
                access
            }
            (None, Some(_)) => read_own_token(&self.token_in_dir()?)?,
            (None, None) => {
                let (dir, daemon) = find(&self.dir)?;
                let mut access = read_own_token(&dir.join("operator.token"))?;
                access.addresses = vec![daemon.told.local_fleet().map_err(|error| {
                    Failure::caused(ExitCode::BadInput, "daemon.json names no address", error)
                })?];
                access
            }
        };
        if let Some(address) = &self.coordinator {
            access.addresses = vec![address.clone()];
        }
        connect_within(&access, longest).await.map_err(|failure| match &failure {
            Refused::NoCoordinator(address) => self.no_coordinator(address),
            Refused::Other(_) => failure.into(),
        })
    }

    fn token_in_dir(&self) -> Result<PathBuf, Failure> {
        let places = places(&self.dir).map(|place| place.join("operator.token"));
        places.into_iter().find(|path| path.exists()).ok_or_else(|| {
            Failure::bad_input(format!(
                "--coordinator needs the operator's token, and {} holds none: name the coordinator's directory with --dir, or its file operator.token with --operator-token-file",
                self.dir.display()
            ))
        })
    }

    fn no_coordinator(&self, address: &Address) -> Failure {
        let what = "something answers there, but it is not a coordinator's gRPC port";
        let advice = match find(&self.dir) {
            Ok((_, daemon)) if daemon.told.http.ends_with(&format!("//{address}")) => format!(
                "it is the port of the projects, for BOINC clients; the coordinator is at {}",
                daemon.told.fleet
            ),
            Ok((_, daemon)) => format!(
                "the coordinator in {} is at {}, and its projects' port is {}",
                self.dir.display(),
                daemon.told.fleet,
                daemon.told.http
            ),
            Err(_) => "a coordinator has another port for its projects; daemon.json in its directory names both, the right one as \"fleet\"".to_owned(),
        };
        Failure::new(ExitCode::Unreachable, format!("{address}: {what}: {advice}"))
    }
}

/// An address as people type it.
fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error: AddressError| error.to_string())
}

/// The coordinator's own token, in its directory.
fn read_own_token(path: &Path) -> Result<AccessString, Failure> {
    let anew = "delete it and start the coordinator anew, which makes another,";
    let access = TokenFile::read(path).map_err(|error| not_a_token(path, error, true))?;
    key_file::warn_if_open(path, "the coordinator's own token", anew);
    Ok(access)
}

/// Why a file gives no token: the coordinator's own, or one that was named.
fn not_a_token(path: &Path, error: TokenError, is_own: bool) -> Failure {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let shown = path.display();
    match error {
        TokenError::NoToken { source, .. } => Failure::bad_input(format!(
            "{shown} does not hold an operator's token ({source}): name the file with the token that an administrator gave you (`fallow operators create`), or operator.token in the coordinator's directory, with --operator-token-file"
        )),
        TokenError::File { source, .. } if source.kind() == NotFound => Failure::bad_input(format!(
            "there is no {shown}: the operator's token is in operator.token in the coordinator's directory; name that with --dir, or the file with --operator-token-file"
        )),
        TokenError::File { source, .. } if source.kind() == PermissionDenied && !is_own => Failure::caused(
            ExitCode::Refused,
            format!(
                "{shown} is not for your user to read: run this as the user whose file it is, or name another file with --operator-token-file"
            ),
            source,
        ),
        TokenError::File { source, .. } if source.kind() == PermissionDenied => Failure::caused(
            ExitCode::Refused,
            format!(
                "{shown} is for the coordinator's user only: run this as that user, or ask an administrator for a token of your own (`fallow operators create`) and name its file with --operator-token-file"
            ),
            source,
        ),
        error => Failure::caused(ExitCode::BadInput, format!("no operator's token in {shown}"), error),
    }
}

/// Where a coordinator's directory may be, seen from what people name: it, or that of `fallow up`.
fn places(dir: &Path) -> [PathBuf; 2] {
    [dir.join("coordinator"), dir.to_path_buf()]
}

/// The running coordinator of a directory, which may be its own or that of `fallow up`.
fn find(dir: &Path) -> Result<(PathBuf, DaemonFile), Failure> {
    let places = places(dir);
    for place in &places {
        match DaemonFile::read(place) {
            Ok(daemon) if daemon.is_alive() => return Ok((place.clone(), daemon)),
            Ok(_) => {
                let text = format!(
                    "the coordinator in {} does not run any more: start it with `fallow coordinator run --dir {}`",
                    place.display(),
                    shell_path(place)
                );
                return Err(Failure::new(ExitCode::Unreachable, text));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(Failure::bad_input(format!(
                    "{} is not a directory: name the coordinator's with --dir",
                    place.display()
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                if is_agents(place) {
                    return Err(of_agent(place));
                }
                let text = format!(
                    "{} is damaged: a restart of the coordinator in {} writes it anew",
                    DaemonFile::path(place).display(),
                    place.display()
                );
                return Err(Failure::caused(ExitCode::BadInput, text, error));
            }
            Err(error) => return Err(Failure::file("read", &DaemonFile::path(place), error)),
        }
    }
    if is_agents(dir) {
        return Err(of_agent(dir));
    }
    let text = format!(
        "no coordinator runs in {0} (there is no {1} and no {2}): name its directory with --dir, or start one with `fallow up` or `fallow coordinator run --dir {3}`",
        dir.display(),
        DaemonFile::path(&places[0]).display(),
        DaemonFile::path(&places[1]).display(),
        shell_path(&dir.join("coordinator")),
    );
    Err(Failure::new(ExitCode::Unreachable, text))
}

fn of_agent(dir: &Path) -> Failure {
    Failure::bad_input(format!(
        "{} is an agent's directory: name the coordinator's with --dir; `fallow-agent status --dir {}` tells of the agent",
        dir.display(),
        shell_path(dir)
    ))
}

/// What an agent's `daemon.json` says of itself.
#[derive(serde::Deserialize)]
struct Agents {
    #[serde(rename = "control_socket")]
    _control_socket: serde_json::Value,
}

/// Whether a directory is an agent's: its store says so, or its `daemon.json` says where its control socket
/// is.
fn is_agents(dir: &Path) -> bool {
    if matches!(Kind::of(&dir.join("store")), Ok(Some(Kind::Agent))) {
        return true;
    }
    fallow_daemon::DaemonFile::<Agents>::read(dir).is_ok()
}

/// Connects to the coordinator that this token is for.
///
/// # Errors
/// [`Failure`] when nobody answers, or something else than this coordinator.
pub async fn connect(access: &AccessString) -> Result<Client, Failure> {
    Ok(connect_within(access, CALL).await?)
}

/// Why there is no connection.
enum Refused {
    /// Something else than a coordinator answers.
    NoCoordinator(Address),
    /// Said in words already.
    Other(Failure),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoCoordinator(address) => Self::new(
                ExitCode::Unreachable,
                format!("{address}: something answers there, but it is not a coordinator's gRPC port"),
            ),
            Refused::Other(failure) => failure,
        }
    }
}

async fn connect_within(access: &AccessString, longest: Duration) -> Result<Client, Refused> {
    let setup = |error| Refused::Other(Failure::caused(ExitCode::Internal, "TLS cannot be set up", error));
    let proxies = Proxies::from_environment();
    let proxies = proxies.map_err(|error| Refused::Other(Failure::bad_input(error.to_string())))?;
    let connector = Connector::new(access.authority, None).map_err(setup)?.through(proxies);
    let endpoint = Endpoint::from_static("http://coordinator.fallow.invalid")
        .connect_timeout(Duration::from_secs(40))
        .timeout(longest);
    let dialled = fallow_tls::dial(&connector, &access.addresses, &endpoint).await;
    let dialled = dialled.map_err(|error| match error {
        ConnectError::Unreachable { address, source } => Refused::Other(Failure::new(
            ExitCode::Unreachable,
            format!(
                "no coordinator answers at {address} ({}): see whether it runs, and start it with `fallow coordinator run`",
                causes::innermost(&source)
            ),
        )),
        ConnectError::NoCoordinator { address, .. } => Refused::NoCoordinator(address),
        ConnectError::OtherAuthority { .. } => {
            Refused::Other(Failure::new(ExitCode::Refused, error.to_string()))
        }
        error => Refused::Other(Failure::new(ExitCode::Unreachable, causes::line(&error))),
    })?;
    let bearer = format!("Bearer {}", access.secret).parse().map_err(|error| {
        Refused::Other(Failure::caused(ExitCode::Refused, "the operator's token is unusable", error))
    })?;
    let credentials = Credentials { bearer, author: author().parse().ok() };
    Ok(OperatorClient::with_interceptor(dialled.channel, credentials).max_decoding_message_size(ANSWER_BYTES))
}

/// For the audit record.
pub(super) fn author() -> String {
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "operator".to_owned());
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_host_and_a_port_and_may_have_the_scheme_in_front() {
        for good in ["127.0.0.1:20001", "https://127.0.0.1:20001"] {
            assert_eq!(address(good).unwrap().to_string(), "127.0.0.1:20001");
        }
        for bad in ["garbage", "", "https://", "https://127.0.0.1", "http://127.0.0.1:1", "127.0.0.1:x", ":1"]
        {
            assert!(address(bad).unwrap_err().contains("such as lab.example.org:24001"), "{bad}");
        }
    }

    #[test]
    fn an_agents_directory_is_called_one_and_not_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = DaemonFile::path(dir.path());
        std::fs::write(&path, r#"{"pid":1,"start_time":2,"control_socket":"/x/control.sock"}"#).unwrap();
        let failure = find(dir.path()).unwrap_err();
        assert_eq!(failure.code(), ExitCode::BadInput);
        assert!(failure.to_string().contains("is an agent's directory"), "{failure}");
        std::fs::write(&path, "{").unwrap();
        assert!(find(dir.path()).unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn r6_10_a_token_file_that_may_not_be_read_is_the_coordinators_only_in_its_directory() {
        let denied = || TokenError::File {
            action: "read",
            path: "ann.token".into(),
            source: std::io::ErrorKind::PermissionDenied.into(),
        };
        let said = |is_own| not_a_token(Path::new("ann.token"), denied(), is_own).to_string();
        assert!(said(true).contains("is for the coordinator's user only"), "{}", said(true));
        assert!(said(false).contains("is not for your user to read"), "{}", said(false));
        assert!(!said(false).contains("coordinator's user"), "{}", said(false));
    }

    #[test]
    fn a_directory_without_a_coordinator_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let failure = find(dir.path()).unwrap_err();
        assert_eq!(failure.code(), ExitCode::Unreachable);
        assert!(failure.to_string().contains("coordinator/daemon.json"), "{failure}");
    }
}
