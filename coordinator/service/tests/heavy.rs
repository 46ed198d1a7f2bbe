//! Messages that would become much more in memory than they are on the wire (R6.10).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use fallow_coordinator::daemon::{Coordinator, Options};
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::ListHostsRequest;
use futures_util::{StreamExt as _, stream};
use peers::{Identity, PATIENCE, channel, connect, enroll, hello, tokens};
use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use wire::from_agent::Body as Said;

const MIB: usize = 1 << 20;

/// Messages as bytes, whatever they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

/// How a call ends that says this and then waits.
async fn ended(channel: Channel, path: &'static str, bearer: Option<&str>, said: Vec<Vec<u8>>) -> Status {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    // An operator's request is one message, which is looked at when the request has ended.
    let rest = match bearer {
        Some(_) => stream::empty().left_stream(),
        None => stream::pending().right_stream(),
    };
    let said = stream::iter(said).chain(rest);
    let mut request = Request::new(said);
    if let Some(secret) = bearer {
        request.metadata_mut().insert("authorization", format!("Bearer {secret}").parse().unwrap());
    }
    let answered = async {
        let mut answers = client.streaming(request, PathAndQuery::from_static(path), Raw).await?.into_inner();
        loop {
            if answers.message().await?.is_none() {
                return Ok(());
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("it ends").unwrap_err()
}

async fn link_ended(identity: &Identity, said: Vec<Vec<u8>>) -> Status {
    ended(identity.channel().await, "/fallow.fleet.v1.Fleet/Link", None, said).await
}

/// A field of these bytes: its key, their length, themselves.
fn field(key: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

/// The most that this process, with the coordinator in it, has had of the memory so far.
fn most_resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn r6_10_a_message_of_millions_of_empty_parts_is_refused_and_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(Options::at(dir.path())).await.unwrap();
    let mut owner = connect(coordinator.access()).await.unwrap();
    let token = tokens(&mut owner, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let hello = wire::FromAgent { body: Some(Said::Hello(hello(&identity, "e", 0))), ..Default::default() };
    let hello = hello.encode_to_vec();
    let before = most_resident();
    // Entries; hosts; keys that are gone.
    for part in [&[0x12, 0][..], &[0x12, 2, 0x12, 0], &[0x1a, 0]] {
        let delta = field(0x22, &part.repeat((8 * MIB - 16) / part.len()));
        let status = link_ended(&identity, vec![hello.clone(), delta]).await;
        assert!(
            status.code() == Code::ResourceExhausted && status.message().contains("too many parts"),
            "{status}"
        );
    }
    // It does not come in place of a Hello, nor of what a stranger asks.
    let delta = field(0x22, &[0x12, 0].repeat(MIB));
    let status = link_ended(&identity, vec![delta.clone()]).await;
    assert!(
        status.code() == Code::ResourceExhausted && status.message().contains("first message"),
        "{status}"
    );
    let stranger = channel(coordinator.access(), None).await.unwrap();
    let status = ended(stranger, "/fallow.fleet.v1.Fleet/Enroll", None, vec![delta]).await;
    assert!(
        status.code() == Code::ResourceExhausted && status.message().contains("first message"),
        "{status}"
    );
    // Workunits, and their inputs.
    for part in [&[0x12, 0][..], &[0x12, 2, 0x22, 0]] {
        let (owner, path) =
            (channel(coordinator.access(), None).await.unwrap(), "/fallow.operator.v1.Operator/Submit");
        let secret = Some(coordinator.access().secret.as_str());
        let status = ended(owner, path, secret, vec![part.repeat((64 * MIB - 16) / part.len())]).await;
        assert!(
            status.code() == Code::ResourceExhausted && status.message().contains("too many parts"),
            "{status}"
        );
    }
    // Each message is there several times, on its way out of this process and into it; decoded, they would
    // take up to eight gigabytes.
    let took = most_resident().saturating_sub(before);
    assert!(took < 500 * MIB, "{took}");
    let hosts = owner.list_hosts(ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert_eq!(hosts.len(), 1);
    coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_hello_has_short_texts() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(Options::at(dir.path())).await.unwrap();
    let mut owner = connect(coordinator.access()).await.unwrap();
    let token = tokens(&mut owner, 1).await.remove(0);
    let identity = enroll(coordinator.access(), &token).await.unwrap();
    let long = "v".repeat(2_000);
    for hello in [
        wire::Hello { agent_version: long.clone(), ..hello(&identity, "e", 0) },
        wire::Hello { document_content: long.clone(), ..hello(&identity, "e", 0) },
        wire::Hello { agent_version: "1\n2".into(), ..hello(&identity, "e", 0) },
    ] {
        let status = peers::Agent::refused(&identity, hello).await;
        assert!(status.code() == Code::InvalidArgument && status.message().contains("1024"), "{status}");
    }
    coordinator.stop().await.unwrap();
}
