//! The agent's side of the control socket.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::protocol::{ANSWER, Request, Response};
use crate::error::AgentError;

/// Longest request.
const REQUEST_MAX: u64 = 64 * 1024;
/// How long a peer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most peers at once; more have to wait.
const PEERS: usize = 16;

/// Opens the socket, for the owner only.
///
/// # Errors
/// [`AgentError::System`].
pub fn bind(path: &Path) -> Result<UnixListener, AgentError> {
    let fail =
        |error| AgentError::system(format!("cannot open the control socket {}", path.display()), error);
    // Under another name first, so that it is never there with another mode. The directory's lock says that nobody
    // else listens here, so what lies there is left over.
    let new = path.with_extension("new");
    for old in [path, &new] {
        crate::files::remove(old).map_err(fail)?;
    }
    let (short, _dir) = super::short_path(&new).map_err(fail)?;
    let listener = UnixListener::bind(short).map_err(fail)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    std::fs::rename(&new, path).map_err(fail)?;
    Ok(listener)
}

/// Answers peers for ever. `carry_out` hands a request to the engine.
pub async fn serve<F, R>(listener: UnixListener, carry_out: F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let (carry_out, room) = (Arc::new(carry_out), Arc::new(Semaphore::new(PEERS)));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let carry_out = Arc::clone(&carry_out);
                tokio::spawn(async move {
                    talk(stream, &*carry_out).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept at the control socket");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn talk<F, R>(mut stream: UnixStream, carry_out: &F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let response = match refusal(&stream) {
        Some(error) => Response::failed(&error),
        None => answer(&mut stream, carry_out).await,
    };
    let mut line = serde_json::to_vec(&response).unwrap_or_default();
    line.push(b'\n');
    match timeout(PATIENCE, stream.write_all(&line)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a peer at the control socket did not wait for its answer"),
        Err(_) => tracing::debug!("a peer at the control socket took too long to read its answer"),
    }
}

fn refusal(stream: &UnixStream) -> Option<AgentError> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => None,
        Ok(peer) => Some(AgentError::refused(format!(
            "user {} may not control this agent: only its own user ({own}) and root may",
            peer.uid()
        ))),
        Err(error) => Some(AgentError::refused(format!("the system does not say who is asking: {error}"))),
    }
}

async fn answer<F, R>(stream: &mut UnixStream, carry_out: &F) -> Response
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let mut line = String::new();
    let read = timeout(PATIENCE, BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)).await;
    let request = match read.map_err(|_| "it took too long to come".to_owned()) {
        Ok(Ok(_)) => serde_json::from_str::<Request>(&line).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(why) => Err(why),
    };
    match request {
        Err(why) => Response::failed(&AgentError::bad_input(format!(
            "this is no request ({why}): one line of JSON such as {{\"command\":\"status\"}} is expected"
        ))),
        Ok(request) => {
            let (reply, response) = oneshot::channel();
            let answered = async {
                carry_out(request, reply).await;
                response.await
            };
            let failed = |why: &str| Response::failed(&AgentError::unreachable(why));
            match timeout(ANSWER, answered).await {
                Ok(Ok(response)) => response,
                Ok(Err(_)) => failed("the agent is just ending"),
                Err(_) => failed("the agent is too busy to answer: try again, and look at its log"),
            }
        }
    }
}
