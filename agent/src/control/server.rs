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
/// How long people may take to ask: there are many, and places for few.
const PEOPLES_PATIENCE: Duration = Duration::from_secs(1);
/// How long somebody who is refused may take to ask.
const REFUSED_PATIENCE: Duration = Duration::from_millis(500);
/// Most peers at once; more have to wait.
const PEERS: usize = 16;

/// Who is answered at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The agent's own user and root, whatever they ask.
    Owner,
    /// Whoever may open the socket, by what the system lets people do with files: the status, and a pause.
    People,
}

impl Door {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::People => 0o660,
        }
    }

    /// Why a request is not for whoever asks here.
    fn refuses(self, request: &Request) -> Option<AgentError> {
        match (self, request) {
            (Self::Owner, _) | (Self::People, Request::Status {} | Request::Snooze { .. }) => None,
            (Self::People, _) => Some(AgentError::refused(
                "people of this machine may ask for the status, and have it rest for a while (snooze): for anything else ask as \
                 the user that the agent runs as, or as root",
            )),
        }
    }
}

/// Opens the socket, for those alone whom the door is for.
///
/// # Errors
/// [`AgentError::System`].
pub fn bind(path: &Path, door: Door) -> Result<UnixListener, AgentError> {
    let fail =
        |error| AgentError::system(format!("cannot open the control socket {}", path.display()), error);
    // Under another name first, so that it is never there with another mode. The directory's lock says that
    // nobody else listens here, so what lies there is left over.
    let new = path.with_extension("new");
    for old in [path, &new] {
        crate::files::remove(old).map_err(fail)?;
    }
    let (short, _dir) = super::short_path(&new).map_err(fail)?;
    let listener = UnixListener::bind(short).map_err(fail)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(door.mode())).map_err(fail)?;
    std::fs::rename(&new, path).map_err(fail)?;
    Ok(listener)
}

/// Places for peers. Clones are of the same places.
#[derive(Clone, Debug)]
pub struct Peers(Arc<Semaphore>);

impl Default for Peers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PEERS)))
    }
}

impl Peers {
    /// Waits until every peer has its answer, for so long at most. Nobody new is answered from then on.
    pub async fn answered(&self, patience: Duration) {
        let all = u32::try_from(PEERS).unwrap_or(u32::MAX);
        if let Ok(Ok(places)) = timeout(patience, self.0.acquire_many(all)).await {
            places.forget();
        }
    }
}

/// Answers peers for ever. `carry_out` hands a request to the engine.
///
/// `wary` where jobs can reach the socket: they are known by that they can gain no privileges, as everything
/// that they start, and nobody who can gain none is answered then.
pub async fn serve<F, R>(listener: UnixListener, door: Door, Peers(room): Peers, wary: bool, carry_out: F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let carry_out = Arc::new(carry_out);
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let carry_out = Arc::clone(&carry_out);
                tokio::spawn(async move {
                    talk(stream, door, wary, &*carry_out).await;
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

async fn talk<F, R>(mut stream: UnixStream, door: Door, wary: bool, carry_out: &F)
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let response = match refusal(&stream, door, wary) {
        Some(error) => {
            // Whoever asks is still writing, and could not read an answer that came before. He is not waited
            // for as long as others: jobs can be many.
            let _ = timeout(REFUSED_PATIENCE, hear(&mut stream)).await;
            Response::failed(&error)
        }
        None => answer(&mut stream, door, carry_out).await,
    };
    let mut line = serde_json::to_vec(&response).unwrap_or_default();
    line.push(b'\n');
    match timeout(PATIENCE, stream.write_all(&line)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a peer at the control socket did not wait for its answer"),
        Err(_) => tracing::debug!("a peer at the control socket took too long to read its answer"),
    }
}

fn refusal(stream: &UnixStream, door: Door, wary: bool) -> Option<AgentError> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if wary && !peer.pid().is_some_and(may_gain_privileges) => Some(AgentError::refused(
            "jobs of this agent can reach this socket, since they may use the network or this system has no filters of system calls: \
             nobody is answered who can gain no privileges, as they cannot (NoNewPrivs in /proc/self/status); ask from a shell \
             that is not restricted so",
        )),
        Ok(peer) if door == Door::People || peer.uid() == own || peer.uid() == 0 => None,
        Ok(peer) => Some(AgentError::refused(format!(
            "user {} may not control this agent: only its own user ({own}) and root may",
            peer.uid()
        ))),
        Err(error) => Some(AgentError::refused(format!("the system does not say who is asking: {error}"))),
    }
}

/// The line that a peer writes, or why there is none.
async fn hear(stream: &mut UnixStream) -> Result<String, String> {
    let mut line = String::new();
    match timeout(PATIENCE, BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)).await {
        Ok(Ok(_)) => Ok(line),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long to come".to_owned()),
    }
}

/// Whether a process that is there could gain privileges by a set-user-id program.
fn may_gain_privileges(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"));
    value.is_some_and(|value| value.trim() == "0")
}

async fn answer<F, R>(stream: &mut UnixStream, door: Door, carry_out: &F) -> Response
where
    F: Fn(Request, oneshot::Sender<Response>) -> R,
    R: Future<Output = ()>,
{
    let line = match door {
        Door::Owner => hear(stream).await,
        Door::People => timeout(PEOPLES_PATIENCE, hear(stream))
            .await
            .unwrap_or_else(|_| Err("it took too long to come".to_owned())),
    };
    let request =
        line.and_then(|line| serde_json::from_str::<Request>(&line).map_err(|error| error.to_string()));
    match request {
        Err(why) => Response::failed(&AgentError::bad_input(format!(
            "this is no request ({why}): one line of JSON such as {{\"command\":\"status\"}} is expected"
        ))),
        Ok(request) if let Some(error) = door.refuses(&request) => Response::failed(&error),
        Ok(request) => {
            let asks_for_the_end = matches!(request, Request::Stop {});
            let (reply, response) = oneshot::channel();
            let answered = async {
                carry_out(request, reply).await;
                response.await
            };
            let failed = |why: &str| Response::failed(&AgentError::unreachable(why));
            match timeout(ANSWER, answered).await {
                Ok(Ok(response)) => response,
                // It was heard, and the end came before the engine looked who had asked for it.
                Ok(Err(_)) if asks_for_the_end => Response::ending(),
                Ok(Err(_)) => failed("the agent is just ending"),
                Err(_) => failed("the agent is too busy to answer: try again, and look at its log"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// What a peer gets for a request that nobody looks at any more.
    async fn unheard(line: &'static [u8]) -> String {
        let (stream, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let asking = std::thread::spawn(move || {
            peer.write_all(line).unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            answer
        });
        talk(UnixStream::from_std(stream).unwrap(), Door::Owner, false, &|_, reply| async { drop(reply) })
            .await;
        asking.join().unwrap()
    }

    #[tokio::test]
    async fn who_asks_for_the_end_is_told_that_it_comes_however_soon_it_does() {
        let stop = unheard(b"{\"command\":\"stop\"}\n").await;
        assert!(stop.contains("the agent is ending"), "{stop}");
        let status = unheard(b"{\"command\":\"status\"}\n").await;
        assert!(status.contains("the agent is just ending"), "{status}");
    }

    #[tokio::test]
    async fn answers_are_waited_for_at_the_end_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let peers = Peers::default();
        let (heard, mut asked) = tokio::sync::mpsc::channel(1);
        let serving =
            serve(bind(&path, Door::Owner).unwrap(), Door::Owner, peers.clone(), false, move |_, reply| {
                let heard = heard.clone();
                async move { drop(heard.send(reply).await) }
            });
        let serving = tokio::spawn(serving);
        let mut peer = UnixStream::connect(&path).await.unwrap();
        peer.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
        let reply = asked.recv().await.unwrap();
        serving.abort();
        peers.answered(Duration::from_millis(1)).await;
        reply.send(Response::ending()).unwrap();
        peers.answered(Duration::from_secs(60)).await;
        // It is there already: nobody is given time to write it now.
        let mut answer = [0; 256];
        let read = peer.into_std().unwrap().read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.contains("the agent is ending"), "{answer}");
    }
}
