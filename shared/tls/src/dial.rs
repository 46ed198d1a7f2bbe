//! Which of a coordinator's addresses is taken.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tonic::transport::Uri;

use crate::client::CONNECT;
use crate::{Address, ConnectError, Connector, Proxy};

/// A way to a coordinator.
#[derive(Debug)]
pub struct Dialled {
    /// The channel.
    pub channel: tonic::transport::Channel,
    /// The proxy that it goes through.
    pub proxy: Option<Proxy>,
}

/// Connects to the first of these addresses that answers as the fleet's coordinator, and gives a channel over
/// `endpoint`'s settings, whose own address counts for nothing. A channel that lost its connection makes
/// another to the same address.
///
/// They are tried in their order. The next one is begun as soon as one has failed, or has said nothing for a
/// while; that one may still answer, as of a coordinator that is flooded with connections.
///
/// # Errors
/// Of the address that came nearest: another's certificate says more than silence.
pub async fn dial(
    connector: &Connector,
    addresses: &[Address],
    endpoint: &tonic::transport::Endpoint,
) -> Result<Dialled, ConnectError> {
    let (address, first) = first_of(connector, addresses).await?;
    let redial = Redial {
        connector: connector.clone(),
        address: address.clone(),
        first: Arc::new(Mutex::new(Some(first))),
    };
    let proxy = connector.proxy(&address);
    match endpoint.connect_with_connector(redial).await {
        Ok(channel) => Ok(Dialled { channel, proxy }),
        Err(error) => Err(ConnectError::NoCoordinator { address, source: io::Error::other(error) }),
    }
}

/// The connections that were begun beside the one that is taken end with this.
async fn first_of(
    connector: &Connector,
    addresses: &[Address],
) -> Result<(Address, TlsStream<TcpStream>), ConnectError> {
    let mut waiting = addresses.iter().cloned();
    let mut begun = JoinSet::new();
    let mut failed = None;
    loop {
        if let Some(address) = waiting.next() {
            let connector = connector.clone();
            begun.spawn(async move { connector.connect(&address).await.map(|stream| (address, stream)) });
        }
        let ended = tokio::select! {
            ended = begun.join_next() => ended,
            () = tokio::time::sleep(CONNECT), if waiting.len() > 0 => continue,
        };
        match ended {
            None => return Err(failed.unwrap_or(ConnectError::NoAddress)),
            Some(Ok(Ok(taken))) => return Ok(taken),
            Some(Ok(Err(error))) => {
                if failed.is_none() || !error.may_pass() {
                    failed = Some(error);
                }
            }
            // The runtime is ending.
            Some(Err(_)) => {}
        }
    }
}

/// What tonic asks for connections: the one that stands already, and new ones after it.
struct Redial {
    connector: Connector,
    address: Address,
    first: Arc<Mutex<Option<TlsStream<TcpStream>>>>,
}

impl tower::Service<Uri> for Redial {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = ConnectError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (connector, address) = (self.connector.clone(), self.address.clone());
        Box::pin(async move {
            match first {
                Some(stream) => Ok(TokioIo::new(stream)),
                None => connector.connect(&address).await.map(TokioIo::new),
            }
        })
    }
}
