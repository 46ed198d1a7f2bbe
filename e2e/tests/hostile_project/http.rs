//! An HTTP server as far as projects need one: a thread for each connection, one request on each, any answer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest request that is read.
const REQUEST_MAX: usize = 64 << 20;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Such as `POST`.
    pub(crate) method: String,
    /// Without the leading slash.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// What a server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A whole, ordinary answer.
    Body(Vec<u8>),
    /// These bytes and no others, then the end of the connection.
    Raw(Vec<u8>),
    /// An ordinary answer so slowly: so many bytes a second.
    Drip(Vec<u8>, u32),
    /// The first bytes, then the others again and again, so many bytes a second, for as long as they are
    /// taken.
    Endless(Vec<u8>, Vec<u8>, f64),
    /// Nothing, and the connection stays.
    Silence,
    /// A status without a body, and a line of the head if there is one to say.
    Status(u16, String),
}

impl Answer {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Body(text.into().into_bytes())
    }

    pub(crate) fn moved(status: u16, to: &str) -> Self {
        Self::Status(status, format!("Location: {to}\r\n"))
    }
}

/// A server; it ends with the test's process.
pub(crate) struct Server {
    address: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts one on a free port of 127.0.0.`host`.
    pub(crate) fn start(
        host: u8,
        answer: impl Fn(&Request, &str) -> Answer + Send + Sync + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, own) = (Arc::clone(&asked), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen, own) = (answer.clone(), Arc::clone(&seen), own.clone());
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let Ok(Some(request)) = read(&mut stream) else { return };
                    seen.lock().unwrap().push(request.clone());
                    // The other side may go away at any time.
                    let _ = write(&mut stream, answer(&request, &own));
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The requests so far whose path begins so.
    pub(crate) fn asked(&self, path: &str) -> Vec<Request> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|request| request.path.starts_with(path)).cloned().collect()
    }
}

fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    stream.set_read_timeout(Some(fallow_e2e::PATIENCE))?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let mut whole = None;
    loop {
        if whole.is_none()
            && let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            whole = Some((head, end + 4, end + 4 + length.unwrap_or(0)));
        }
        if let Some((head, start, end)) = &whole
            && bytes.len() >= *end
        {
            let mut words = head.split(' ');
            let method = words.next().unwrap_or_default().to_owned();
            let path = words.next().unwrap_or_default().trim_start_matches('/').to_owned();
            return Ok(Some(Request { method, path, body: bytes[*start..*end].to_vec() }));
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            _ if bytes.len() > REQUEST_MAX => return Ok(None),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn write(stream: &mut TcpStream, answer: Answer) -> io::Result<()> {
    let head =
        |length: usize| format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    match answer {
        Answer::Body(body) => {
            stream.write_all(head(body.len()).as_bytes())?;
            stream.write_all(&body)
        }
        Answer::Raw(bytes) => stream.write_all(&bytes),
        Answer::Drip(body, per_second) => {
            stream.write_all(head(body.len()).as_bytes())?;
            for byte in body {
                stream.write_all(&[byte])?;
                std::thread::sleep(Duration::from_secs(1) / per_second);
            }
            Ok(())
        }
        Answer::Endless(first, then, speed) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            stream.write_all(&first)?;
            loop {
                stream.write_all(&then)?;
                std::thread::sleep(Duration::from_secs_f64(then.len() as f64 / speed));
            }
        }
        Answer::Silence => {
            // Ends when the other side gives up.
            stream.set_read_timeout(None)?;
            stream.read(&mut [0]).map(|_| ())
        }
        Answer::Status(status, line) => {
            let answer =
                format!("HTTP/1.1 {status} Said\r\nConnection: close\r\n{line}Content-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes())
        }
    }
}
