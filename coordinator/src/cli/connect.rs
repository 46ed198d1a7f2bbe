//! Where the coordinator is, and the way there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fallow_domain::ExitCode;
use fallow_proto::operator::v1::operator_client::OperatorClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::Failure;
use crate::daemon::DaemonFile;
use crate::operator::{AUTHOR, TokenFile};

/// Which coordinator a command speaks to.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Directory of the coordinator, or of `fallow up`.
    #[arg(long, env = "FALLOW_DIR", default_value = "./fallow-data", value_name = "DIR")]
    pub dir: PathBuf,
    /// Address of the coordinator, instead of looking it up in the directory.
    #[arg(long, value_name = "URL", requires = "operator_token_file")]
    pub coordinator: Option<String>,
    /// File with the operator's token, instead of the one in the directory.
    #[arg(long, value_name = "FILE")]
    pub operator_token_file: Option<PathBuf>,
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

impl Target {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure`] with where it was looked for.
    pub async fn connect(&self) -> Result<Client, Failure> {
        let (url, token) = match &self.coordinator {
            Some(url) => (url.clone(), self.operator_token_file.clone()),
            None => {
                let (dir, daemon) = find(&self.dir)?;
                (daemon.fleet, self.operator_token_file.clone().or_else(|| Some(dir.join("operator.token"))))
            }
        };
        let token = token.ok_or_else(|| Failure::bad_input("--coordinator needs --operator-token-file"))?;
        let token = TokenFile::read(&token)
            .map_err(|error| Failure::caused(ExitCode::Refused, "no operator's token", error))?;
        connect(&url, &token).await
    }
}

/// The running coordinator of a directory, which may be its own or that of `fallow up`.
fn find(dir: &Path) -> Result<(PathBuf, DaemonFile), Failure> {
    let places = [dir.join("coordinator"), dir.to_path_buf()];
    for place in &places {
        match DaemonFile::read(place) {
            Ok(daemon) if daemon.is_alive() => return Ok((place.clone(), daemon)),
            Ok(_) => {
                let text = format!(
                    "the coordinator in {} does not run any more: start it with `fallow coordinator run --dir {0}`",
                    place.display()
                );
                return Err(Failure::new(ExitCode::Unreachable, text));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file("read", &DaemonFile::path(place), error)),
        }
    }
    let text = format!(
        "no coordinator runs in {0} (there is no {1} and no {2}): name its directory with --dir, or start one with `fallow up` or `fallow coordinator run --dir {0}/coordinator`",
        dir.display(),
        DaemonFile::path(&places[0]).display(),
        DaemonFile::path(&places[1]).display(),
    );
    Err(Failure::new(ExitCode::Unreachable, text))
}

/// Connects to a coordinator at a loopback address.
///
/// # Errors
/// [`Failure`] for an address that is none or not loopback, and when nobody answers.
pub async fn connect(url: &str, token: &str) -> Result<Client, Failure> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| Failure::caused(ExitCode::BadInput, format!("{url:?} is no address"), error))?;
    require_loopback(url, endpoint.uri().host())?;
    let endpoint =
        endpoint.connect_timeout(Duration::from_secs(5)).timeout(Duration::from_secs(60)).tcp_nodelay(true);
    let channel = endpoint.connect().await.map_err(|error| {
        let text = format!("no coordinator answers at {url}: see whether it runs (`fallow coordinator run`)");
        Failure::caused(ExitCode::Unreachable, text, error)
    })?;
    let bearer = format!("Bearer {token}").parse();
    let bearer = bearer
        .map_err(|error| Failure::caused(ExitCode::Refused, "the operator's token is unusable", error))?;
    let credentials = Credentials { bearer, author: author().parse().ok() };
    Ok(OperatorClient::with_interceptor(channel, credentials).max_decoding_message_size(ANSWER_BYTES))
}

fn require_loopback(url: &str, host: Option<&str>) -> Result<(), Failure> {
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_loopback {
        return Ok(());
    }
    let text = format!(
        "{url} is not a loopback address: without mutual TLS, which does not exist yet, the token could be read on the way"
    );
    Err(Failure::bad_input(text))
}

/// For the audit record.
fn author() -> String {
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "operator".to_owned());
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_connected_to() {
        for good in ["127.0.0.1", "localhost", "[::1]", "127.8.0.1"] {
            assert!(require_loopback("url", Some(good)).is_ok(), "{good}");
        }
        for bad in [Some("10.0.0.1"), Some("example.org"), None] {
            assert!(require_loopback("url", bad).unwrap_err().to_string().contains("mutual TLS"));
        }
    }

    #[test]
    fn a_directory_without_a_coordinator_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let failure = find(dir.path()).unwrap_err();
        assert_eq!(failure.code(), ExitCode::Unreachable);
        assert!(failure.to_string().contains("coordinator/daemon.json"), "{failure}");
    }
}
