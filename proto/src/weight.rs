//! What a message takes of the memory once it is decoded, found out before it is (R6.10).
//!
//! The bytes are walked along the message's layout: each field is looked at once, what is no message is
//! passed over, nothing is allocated, and the walk ends where there is too much. It says an upper bound:
//! lists as if they had just grown, and each text as if the allocator had been unlucky.

use prost::DecodeError;
use prost::bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::layout::{Kind, Layout};

/// What the allocator takes beside what it is asked for, at most.
const ALLOCATION: usize = 32;
/// A list begins with room for so many.
const FIRST: usize = 4;
/// A list that has just grown has room for twice as many as are in it.
const GROWN: usize = 2;
/// Bytes of the longest number in a list.
const NUMBER: usize = 8;
/// Messages within messages: none has as many, and a decoder follows no more.
const DEPTH: u32 = 100;

/// A message that is not decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// It would take too much.
    #[error("it would take more than {} MiB of memory: it has too many parts", .0 >> 20)]
    TooHeavy(usize),
    /// Its bytes are no message.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// It ends within a field.
    #[error("it ends within a field")]
    Cut,
    /// Messages lie within messages beyond all bounds.
    #[error("messages lie within each other more than {DEPTH} times")]
    TooDeep,
    /// It has what protobuf's third version has no more.
    #[error("it has a group in it")]
    Group,
}

/// What the message in these bytes takes once it is decoded, at most; an error if that is more than `most`.
pub(crate) fn of(layout: &Layout, bytes: &[u8], most: usize) -> Result<usize, Unfit> {
    let mut walk = Walk { weight: 0, most };
    walk.add(layout.bytes)?;
    walk.message(layout, bytes, DEPTH)?;
    Ok(walk.weight)
}

struct Walk {
    weight: usize,
    most: usize,
}

impl Walk {
    fn add(&mut self, bytes: usize) -> Result<(), Unfit> {
        self.weight = self.weight.saturating_add(bytes);
        if self.weight > self.most { Err(Unfit::TooHeavy(self.most)) } else { Ok(()) }
    }

    /// What a message's fields keep elsewhere.
    fn message(&mut self, layout: &Layout, mut bytes: &[u8], depth: u32) -> Result<(), Unfit> {
        let depth = depth.checked_sub(1).ok_or(Unfit::TooDeep)?;
        // One bit for each field that was there. Of those with higher numbers each counts as the first.
        let mut met = 0_u64;
        while !bytes.is_empty() {
            let (number, wire_type) = decode_key(&mut bytes)?;
            let kind = layout.fields.get(number as usize).copied().unwrap_or(Kind::Plain);
            let bit = 1_u64.checked_shl(number).unwrap_or(0);
            let is_first = met & bit == 0;
            met |= bit;
            match wire_type {
                WireType::Varint => {
                    decode_varint(&mut bytes)?;
                    self.number(kind)?;
                }
                WireType::SixtyFourBit => {
                    bytes = bytes.get(8..).ok_or(Unfit::Cut)?;
                    self.number(kind)?;
                }
                WireType::ThirtyTwoBit => {
                    bytes = bytes.get(4..).ok_or(Unfit::Cut)?;
                    self.number(kind)?;
                }
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut bytes)?).map_err(|_| Unfit::Cut)?;
                    let content = bytes.get(..length).ok_or(Unfit::Cut)?;
                    bytes.advance(length);
                    self.content(kind, content, is_first, depth)?;
                }
                WireType::StartGroup | WireType::EndGroup => return Err(Unfit::Group),
            }
        }
        Ok(())
    }

    fn number(&mut self, kind: Kind) -> Result<(), Unfit> {
        match kind {
            Kind::Numbers => self.add(GROWN * NUMBER + ALLOCATION),
            _ => Ok(()),
        }
    }

    fn content(&mut self, kind: Kind, content: &[u8], is_first: bool, depth: u32) -> Result<(), Unfit> {
        match kind {
            Kind::Plain => Ok(()),
            // Each number has a byte at least.
            Kind::Numbers => self.add(content.len().saturating_mul(GROWN * NUMBER) + ALLOCATION),
            Kind::Text => self.text(content),
            Kind::Texts => {
                self.listed(size_of::<String>(), is_first)?;
                self.text(content)
            }
            Kind::Message(layout) => self.message(layout, content, depth),
            Kind::Boxed(layout) => {
                self.add(layout.bytes + ALLOCATION)?;
                self.message(layout, content, depth)
            }
            Kind::Messages(layout) => {
                self.listed(layout.bytes, is_first)?;
                self.message(layout, content, depth)
            }
        }
    }

    fn text(&mut self, content: &[u8]) -> Result<(), Unfit> {
        if content.is_empty() { Ok(()) } else { self.add(content.len() + ALLOCATION) }
    }

    /// One more in a list of parts of so many bytes.
    fn listed(&mut self, bytes: usize, is_first: bool) -> Result<(), Unfit> {
        self.add(if is_first { FIRST * bytes + ALLOCATION } else { GROWN * bytes })
    }
}

#[cfg(test)]
#[path = "weight_tests.rs"]
mod tests;
