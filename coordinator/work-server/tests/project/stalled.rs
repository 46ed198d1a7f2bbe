//! Scheduler requests that never end, as many as there is room for.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use fallow_work_server::ProjectInfo;

use crate::client::Client;
use crate::http::{open, post};
use crate::wait::until;

/// A request that announces so much, of which the account key and so much come.
pub(crate) fn announced(info: &ProjectInfo, key: &str, length: usize, bytes: usize) -> TcpStream {
    let length = format!("Content-Length: {length}\r\n");
    let mut stream = open("POST", &format!("{}cgi", info.url), &length);
    let head = format!("<scheduler_request>\n<authenticator>{key}</authenticator>\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b' '; bytes]).unwrap();
    stream
}

/// The status with which the server answers this request, made longer by so much.
pub(crate) fn status_of(client: &Client, padding: usize) -> u16 {
    let end = "</scheduler_request>";
    let body = client.request.write().replace(end, &format!("{}{end}", " ".repeat(padding)));
    post(&format!("{}cgi", client.url), body.as_bytes()).status
}

/// Requests on their way, each with its account key, of which nothing comes but what keeps them alive.
pub(crate) struct Stalled<'a> {
    info: &'a ProjectInfo,
    /// How much each announces, and how much of it comes.
    size: (usize, usize),
    /// How long before one more is sent.
    start: Duration,
    requests: Vec<(String, TcpStream)>,
}

impl<'a> Stalled<'a> {
    /// None yet. Each will announce so much, of which so much comes.
    pub(crate) fn new(info: &'a ProjectInfo, announced: usize, come: usize) -> Self {
        Self { info, size: (announced, come), start: Duration::from_millis(20), requests: Vec::new() }
    }

    /// Begins so many requests of this client's account.
    pub(crate) fn begin(&mut self, client: &Client, count: usize) {
        for _ in 0..count {
            let key = client.request.authenticator.reveal().to_owned();
            let stream = announced(self.info, &key, self.size.0, self.size.1);
            self.requests.push((key, stream));
        }
    }

    /// Waits until they hold all that there is: until there is no room for one more, which `status` sends and
    /// whose answer it gives.
    ///
    /// Where that one came before some of these, they found no room, and are begun anew, with a longer start.
    /// What it held is free before it is answered: once it finds no room itself, only these can hold it.
    pub(crate) fn hold_all(&mut self, status: impl Fn() -> u16) {
        until("they hold all that there is", || {
            if self.go_on() {
                self.start = (self.start * 2).min(Duration::from_secs(2));
            }
            std::thread::sleep(self.start);
            status() == 503
        });
    }

    /// Sends one byte more of each: whoever sends nothing for a while is given up. Begins anew what was
    /// answered, and says whether there was such a one.
    fn go_on(&mut self) -> bool {
        let mut has_begun = false;
        for (key, stream) in &mut self.requests {
            if is_answered(stream) {
                *stream = announced(self.info, key, self.size.0, self.size.1);
                has_begun = true;
            }
            // One that was answered meanwhile is found the next time.
            let _ = stream.write_all(b" ");
        }
        has_begun
    }

    /// How many were answered, which none should be: they have not ended.
    pub(crate) fn answered(&self) -> usize {
        self.requests.iter().filter(|(_, stream)| is_answered(stream)).count()
    }
}

/// Whether something came back, or the connection is closed.
fn is_answered(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}
