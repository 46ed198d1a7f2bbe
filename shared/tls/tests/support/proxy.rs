//! A small HTTP proxy over real sockets, for tests. It knows every name: each is this machine.
#![allow(unreachable_pub, dead_code, reason = "each of several tests has this file as a module of its own")]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does with those who ask.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Lets them through, to the port that they name.
    Open,
    /// Lets them through, whatever they name, to this port.
    Elsewhere(u16),
    /// Lets those through who send this value of `Proxy-Authorization`, and answers 407 to others.
    Wants(&'static str),
    /// Answers so, and closes.
    Says(&'static str),
    /// Answers with a head that has no end.
    Endless,
    /// Says nothing.
    Silent,
}

#[derive(Default)]
struct Seen {
    asked: Vec<String>,
    ways: Vec<SocketAddr>,
}

/// The proxy. It serves as long as its process lives.
#[derive(Clone)]
pub struct TestProxy {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    seen: Arc<Mutex<Seen>>,
}

impl TestProxy {
    /// Begins to serve.
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self { address, manner: Arc::new(Mutex::new(manner)), seen: Arc::default() };
        let serving = proxy.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let proxy = serving.clone();
                // Whoever hangs up has seen enough.
                std::thread::spawn(move || drop(proxy.serve(stream)));
            }
        });
        proxy
    }

    /// Does something else from now on.
    pub fn becomes(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// Host and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked: the first line of each request without HTTP's version.
    pub fn asked(&self) -> Vec<String> {
        self.seen.lock().unwrap().asked.clone()
    }

    /// From where it connected for others.
    pub fn ways(&self) -> Vec<SocketAddr> {
        self.seen.lock().unwrap().ways.clone()
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let head = head(&mut client)?;
        let (line, rest) = head.split_once("\r\n").unwrap_or((&head, ""));
        let request = line.rsplit_once(' ').map_or(line, |(request, _)| request).to_owned();
        self.seen.lock().unwrap().asked.push(request.clone());
        let manner = self.manner.lock().unwrap().clone();
        let to = match manner {
            Manner::Open => None,
            Manner::Elsewhere(port) => Some(port),
            Manner::Wants(credentials) if is_known(rest, credentials) => None,
            Manner::Wants(_) => {
                return client.write_all(b"HTTP/1.1 407 Who Are You\r\nContent-Length: 0\r\n\r\n");
            }
            Manner::Says(answer) => return client.write_all(answer.as_bytes()),
            Manner::Endless => loop {
                client.write_all(b"HTTP/1.1 200 OK\r\nVia: a proxy\r\n")?;
            },
            // Until the other end has had enough.
            Manner::Silent => return client.read(&mut [0]).map(drop),
        };
        let (method, url) = request.split_once(' ').unwrap_or_default();
        let plain = url.strip_prefix("http://");
        let place = plain.map_or(url, |url| url.split('/').next().unwrap_or(url));
        let named = place.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
        let mut server = TcpStream::connect(("127.0.0.1", to.unwrap_or(named)))?;
        self.seen.lock().unwrap().ways.push(server.local_addr()?);
        match plain {
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
            Some(url) => {
                let path = url.find('/').map_or("/", |from| &url[from..]);
                server.write_all(
                    format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{rest}").as_bytes(),
                )?;
            }
        }
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
        let copied = io::copy(&mut server, &mut client);
        let _ = client.shutdown(Shutdown::Both);
        copied.map(drop)
    }
}

fn is_known(headers: &str, credentials: &str) -> bool {
    headers.lines().any(|line| {
        line.split_once(": ").is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("proxy-authorization") && value == credentials
        })
    })
}

fn head(client: &mut TcpStream) -> io::Result<String> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    client.set_read_timeout(None)?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}
