//! How messages become bytes: as protobuf, in buffers that begin small. And how bytes become messages:
//! none is decoded that would take much more memory than its length lets expect ([`crate::layout`],
//! R6.10).

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder};

use crate::layout::Decodable;
use crate::weight::{self, Unfit};

/// What a buffer has to begin with, in bytes. Most links say nothing most of the time; it grows with a
/// message.
const BUFFER: usize = 512;
/// Bytes at which what is encoded is handed on.
const HANDED_ON: usize = 32 << 10;

/// Protobuf in buffers that begin small. tonic's own hold 8 KiB in each direction of each call, and a
/// coordinator keeps a call open for each agent.
#[derive(Clone, Debug)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Decodable + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = WeighingDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, HANDED_ON))
    }

    fn decoder(&mut self) -> Self::Decoder {
        WeighingDecoder(ProstDecoder::new(BufferSettings::new(BUFFER, HANDED_ON)))
    }
}

/// Decodes what takes no more memory than it may.
#[derive(Clone, Debug)]
pub struct WeighingDecoder<U>(ProstDecoder<U>);

impl<U: Message + Decodable + Default> Decoder for WeighingDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let length = from.remaining();
        // It is in one piece: what tonic reads into is.
        if from.chunk().len() != length {
            return Err(Status::internal("a message came in pieces"));
        }
        let most = U::ROOM.of(length);
        weight::of(U::layout(), from.chunk(), most).map_err(|unfit| refused(length, &unfit))?;
        self.0.decode(from)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// As tonic has it for what cannot be decoded.
fn refused(length: usize, unfit: &Unfit) -> Status {
    match unfit {
        Unfit::TooHeavy(_) => {
            Status::resource_exhausted(format!("a message of {length} bytes is not decoded: {unfit}"))
        }
        _ => Status::internal(format!("a message of {length} bytes cannot be decoded: {unfit}")),
    }
}
