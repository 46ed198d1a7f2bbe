//! How messages become bytes: as protobuf, in buffers that begin small.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

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
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, HANDED_ON))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, HANDED_ON))
    }
}
