//! Values that an element can hold, read and written in BOINC's way.

use fallow_domain::{Bytes, Duration, Flops, Instant, Speed};

use super::reader::{Reader, Tag};
use super::writer::Writer;
use crate::FormatError;

/// A value that can be the content of one element.
pub trait Value: Sized {
    /// Reads the element, or passes over it and gives nothing if its content is not of this kind.
    ///
    /// # Errors
    /// When the element has no end.
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError>;
    /// Writes the element `name`.
    fn write(&self, name: &str, writer: &mut Writer);
}

impl Value for String {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(reader.text(tag)?.map(Into::into))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.text(name, self);
    }
}

impl Value for bool {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        if tag.empty {
            return Ok(Some(true));
        }
        Ok(reader.text(tag)?.filter(|text| !text.is_empty()).and_then(|text| whole(&text)).map(|n| n != 0))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.plain(name, u8::from(*self));
    }
}

impl Value for f64 {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        if tag.empty {
            return Ok(None);
        }
        Ok(reader.text(tag)?.and_then(|text| float(&text)))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.double(name, *self);
    }
}

macro_rules! whole_numbers {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
                if tag.empty {
                    return Ok(None);
                }
                Ok(reader.text(tag)?.and_then(|text| whole(&text)).and_then(|n| n.try_into().ok()))
            }
            fn write(&self, name: &str, writer: &mut Writer) {
                writer.plain(name, self);
            }
        }
    )*};
}
whole_numbers!(i32, i64, u32, u64);

/// A value made of a floating-point number, if the number makes sense as one; written as a whole number or as
/// `%f`.
macro_rules! made_of_float {
    ($($kind:ty: $from:expr, $to:expr;)*) => {$(
        impl Value for $kind {
            fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
                let from: fn(f64) -> Option<Self> = $from;
                Ok(f64::read(reader, tag)?.and_then(from))
            }
            fn write(&self, name: &str, writer: &mut Writer) {
                let to: fn(&Self, &str, &mut Writer) = $to;
                to(self, name, writer);
            }
        }
    )*};
}
made_of_float! {
    Bytes: |v| Some(Self::from_f64(v)), |v, name, w| w.plain(name, v.0);
    Duration: |v| Some(Self::from_secs_f64(v)), |v, name, w| w.double(name, v.as_secs_f64());
    Instant: |v| Some(Self::from_secs_f64(v)), |v, name, w| w.double(name, v.as_secs_f64());
    Flops: |v| Self::new(v).ok(), |v, name, w| w.double(name, v.get());
    Speed: |v| Self::new(v).ok(), |v, name, w| w.double(name, v.get());
}

/// An element that may be missing.
impl<T: Value> Value for Option<T> {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(T::read(reader, tag)?.map(Some))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        if let Some(value) = self {
            value.write(name, writer);
        }
    }
}

/// A whole number as C's `strtol` with base 0 takes it; nothing at all is 0.
fn whole(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    if digits.is_empty() {
        return text.is_empty().then_some(0);
    }
    let (digits, base) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.starts_with('0') && digits.len() > 1 => (digits, 8),
        None => (digits, 10),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let number = i64::from_str_radix(digits, base).ok()?;
    Some(if negative { -number } else { number })
}

/// A floating-point number; nothing at all is 0, and what is not finite is no number.
fn float(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}
