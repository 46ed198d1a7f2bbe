//! The other side of the control socket: what commands use.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use fallow_domain::printable::shell_path;

use super::disk::DiskStatus;
use super::protocol::{ANSWER, LINE_MAX, Request, Response};
use super::status::Status;
use crate::dir::DataDir;
use crate::error::AgentError;

/// How long to wait for an answer: a little longer than the agent takes at most.
const PATIENCE: Duration = ANSWER.saturating_add(Duration::from_secs(15));

/// Likewise where nothing is to be done but to say how things are.
const PATIENCE_TO_HEAR: Duration = Duration::from_secs(20);

/// Asks the agent that runs in `dir`.
///
/// # Errors
/// [`AgentError::Unreachable`] when none runs there, else what the agent says.
pub fn ask(dir: &DataDir, request: &Request) -> Result<(String, Option<Box<Status>>), AgentError> {
    respond(dir, request)?.into_result()
}

/// Asks the agent that runs in `dir` about the disk.
///
/// # Errors
/// As [`ask`].
pub fn ask_disk(dir: &DataDir) -> Result<DiskStatus, AgentError> {
    match respond(dir, &Request::Disk {})? {
        Response::Done { disk: Some(disk), .. } => Ok(*disk),
        response => {
            response.into_result()?;
            Err(AgentError::unreachable("the agent answers without a word about the disk"))
        }
    }
}

/// Asks the machine's agent at the socket for people, if there is one.
///
/// # Errors
/// As [`ask`].
pub fn ask_at(socket: &Path, request: &Request) -> Result<(String, Option<Box<Status>>), AgentError> {
    let connected = super::short_path(socket).and_then(|(short, _dir)| UnixStream::connect(short));
    let shown = socket.display();
    let stream = connected.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => AgentError::refused(format!(
            "{shown} is not for you: it is for the members of a group, which the administrator of this machine can put you into"
        )),
        _ => AgentError::unreachable(format!("the agent of this machine does not run ({shown}: {error})")),
    })?;
    converse(&stream, &format!("the agent at {shown}"), request)?.into_result()
}

fn respond(dir: &DataDir, request: &Request) -> Result<Response, AgentError> {
    let socket = dir.control_socket();
    let connected = super::short_path(&socket).and_then(|(short, _dir)| UnixStream::connect(short));
    let stream = connected.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => AgentError::refused(format!(
            "{} is closed to you: if an agent runs there, control it as the user that it runs as, or as root",
            socket.display()
        )),
        _ if let Err(owned @ AgentError::BadInput { .. }) = dir.check_owner() => owned,
        _ => AgentError::unreachable(format!(
            "no agent runs in {}: start it with `fallow-agent run --dir {}`, or name its directory with --dir",
            dir.path().display(),
            shell_path(dir.path())
        )),
    })?;
    converse(&stream, &format!("the agent in {}", dir.path().display()), request)
}

fn converse(stream: &UnixStream, agent: &str, request: &Request) -> Result<Response, AgentError> {
    let patience = match request {
        Request::Status {} | Request::Disk {} => PATIENCE_TO_HEAR,
        _ => PATIENCE,
    };
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => AgentError::unreachable(format!(
            "{agent} has not answered for {} s: its process may be stopped, or the machine is very busy; try again, and look \
             at its log",
            patience.as_secs()
        )),
        _ => AgentError::unreachable(format!("{agent} does not answer: {error}")),
    };
    stream.set_read_timeout(Some(patience)).map_err(fail)?;
    stream.set_write_timeout(Some(patience)).map_err(fail)?;
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    let mut writer = stream;
    // Who is refused may have his answer before he has asked, and nobody listens any more.
    let asked = writer.write_all(&line);
    let mut answer = String::new();
    let read = BufReader::new(stream.take(LINE_MAX)).read_line(&mut answer);
    if answer.is_empty() {
        asked.and(read.map(drop)).map_err(fail)?;
    }
    if answer.is_empty() {
        return Err(AgentError::unreachable(format!("{agent} ended before it answered: look at its log")));
    }
    serde_json::from_str(&answer)
        .map_err(|error| fail(std::io::Error::other(format!("its answer cannot be read: {error}"))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn whoever_asks_an_agent_that_stands_still_is_told_so_in_seconds() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        // As of a process that is stopped: the system takes the call, and nobody answers.
        let _listener = UnixListener::bind(&socket).unwrap();
        let error = ask_at(&socket, &Request::Status {}).unwrap_err().to_string();
        assert!(error.contains("has not answered for 20 s: its process may be stopped"), "{error}");
    }
}
