//! Strangers who press at both ports: half of them say nothing, and half of them say little by little what
//! never becomes a request. Who is cut off comes again at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fallow_tls::{AccessString, Address, Connector};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::peers::PATIENCE;

/// Addresses that they come from, 127.0.0.2 and on.
const ADDRESSES: usize = 50;
/// Between two bytes.
const DRIP: Duration = Duration::from_millis(500);
/// The begin of a TLS handshake. What it announces never comes whole.
const HANDSHAKE: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
/// The begin of HTTP/2, of which the last byte is missing.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r";
const HTTP_1: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nX: ";

/// Where they press.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) access: AccessString,
    /// The projects'.
    pub(crate) http: SocketAddr,
}

impl Ports {
    fn fleet(&self) -> Address {
        self.access.addresses[0].clone()
    }
}

#[derive(Clone, Copy)]
enum Manner {
    Silent,
    /// Says this byte by byte, and the last one again and again.
    Drips(&'static [u8]),
    /// The same, when the TLS handshake is over. These come from the agents' own address.
    DripsWithinTls(&'static [u8]),
}

/// What happened to all of them.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) came: usize,
    pub(crate) cut_off: usize,
}

#[derive(Default)]
struct Counted {
    came: AtomicUsize,
    cut_off: AtomicUsize,
}

/// All of them, until this is dropped.
pub(crate) struct Strangers {
    counted: Arc<Counted>,
    _pressing: JoinSet<()>,
}

impl Strangers {
    pub(crate) fn begin(ports: &Ports, count: usize) -> Self {
        let counted = Arc::new(Counted::default());
        let mut pressing = JoinSet::new();
        for number in 0..count {
            let (ports, counted) = (ports.clone(), counted.clone());
            pressing.spawn(async move {
                loop {
                    press(&ports, number, &counted).await;
                }
            });
        }
        Self { counted, _pressing: pressing }
    }

    pub(crate) fn seen(&self) -> Seen {
        let Counted { came, cut_off } = &*self.counted;
        Seen { came: came.load(Ordering::Relaxed), cut_off: cut_off.load(Ordering::Relaxed) }
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(Seen) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !holds(self.seen()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{what}: {} came", self.seen().came));
    }
}

/// Comes once, and stays until it is cut off.
async fn press(ports: &Ports, number: usize, counted: &Counted) {
    let is_at_fleet = number.is_multiple_of(2);
    let manner = match (number / 2 % 10, is_at_fleet) {
        (0..5, _) => Manner::Silent,
        (5..9, true) => Manner::Drips(HANDSHAKE),
        (_, true) => Manner::DripsWithinTls(HTTP_2),
        (_, false) => Manner::Drips(HTTP_1),
    };
    let is_cut_off = match manner {
        Manner::DripsWithinTls(text) => {
            let connector = Connector::new(ports.access.authority, None).unwrap();
            match connector.connect(&ports.fleet()).await {
                Ok(stream) => {
                    counted.came.fetch_add(1, Ordering::Relaxed);
                    stay(stream, Some(text)).await;
                    true
                }
                Err(_) => false,
            }
        }
        Manner::Silent | Manner::Drips(_) => {
            let to = if is_at_fleet { ports.fleet().to_string().parse().unwrap() } else { ports.http };
            match from(number).connect(to).await {
                Ok(stream) => {
                    counted.came.fetch_add(1, Ordering::Relaxed);
                    let text = if let Manner::Drips(text) = manner { Some(text) } else { None };
                    stay::<TcpStream>(stream, text).await;
                    true
                }
                Err(_) => false,
            }
        }
    };
    if is_cut_off {
        counted.cut_off.fetch_add(1, Ordering::Relaxed);
    }
    // Who is refused at once does not turn for nothing.
    tokio::time::sleep(DRIP / 5).await;
}

/// A socket of one of the addresses.
fn from(number: usize) -> TcpSocket {
    let last = u8::try_from(2 + number / 2 % ADDRESSES).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
    socket
}

/// Says a byte now and then, or nothing, until the other end closes.
async fn stay<S: AsyncRead + AsyncWrite + Unpin>(stream: S, text: Option<&[u8]>) {
    let (mut reads, mut writes) = tokio::io::split(stream);
    let closed = async {
        let mut heard = [0; 1_024];
        while reads.read(&mut heard).await.is_ok_and(|count| count > 0) {}
    };
    let drip = async {
        let Some(text) = text else { return std::future::pending().await };
        for number in 0.. {
            let byte = text[number.min(text.len() - 1)];
            if writes.write_all(&[byte]).await.is_err() || writes.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(DRIP).await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = drip => {}
    }
}
