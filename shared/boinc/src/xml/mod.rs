//! The XML dialect of BOINC: a lenient reader, a strict writer.
//!
//! BOINC's messages look like XML and are not: real ones hold raw `&` in URLs, `&#N;` that stands for
//! one *byte* of a UTF-8 character, elements without an end, junk before the root, and `<x>` and `<x/>` for
//! the same truth value. An XML library refuses the first real reply it meets, so the tokenizer is our own.
//!
//! **Model.** Tags, text, CDATA sections and comments; a NUL byte ends the input; white space around text is
//! trimmed; attributes matter in one place only (a message's priority). A value that does not fit its element
//! (`<nbytes>` with letters, a number that is not finite) leaves the element unmatched: it counts as absent,
//! as in BOINC. Truth values are `<x/>`, `<x>0</x>` and `<x>1</x>`. Whole numbers may be decimal, hexadecimal
//! (`0x`) or octal (`0`).
//!
//! **Unknown elements.** In a scheduler reply BOINC obeys elements inside an element it does not know:
//! `<bogus><request_delay>9</request_delay></bogus>` sets the delay, and so it does here. Everywhere else an
//! unknown element is skipped with all it holds if its tags match up; only an unknown tag without its end is
//! passed over alone.
//!
//! **Where we differ from BOINC, on purpose.** Elements in a message are shown and not obeyed. A `<` before
//! anything but a name, `/`, `!` or `?` is text. Text is taken to be UTF-8; bytes that are not become U+FFFD.
//!
//! **Bounds.** A tag is at most 4096 bytes, a text 262144, elements nest at most 64 deep. Reading is linear
//! in the input: an unknown element is looked at once per level that holds it.
//!
//! **The writer** puts one element on a line, escapes `<`, `&`, line ends and each byte above 127, writes
//! floating-point numbers as `%f` and truth values as 0 or 1, and drops control characters, which no BOINC
//! reader can take.

mod escape;
mod reader;
mod value;
mod writer;

pub use escape::{escape, unescape};
pub use reader::{Reader, Tag, find};
pub use value::Value;
pub use writer::Writer;

/// Defines a structure whose fields are elements of the same name, read in any order and written in this one.
macro_rules! elements {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
        impl $name {
            /// Takes the child `tag` if it is a field of this structure, and says whether it was.
            pub(crate) fn take<'a>(
                &mut self,
                reader: &mut $crate::xml::Reader<'a>,
                tag: &$crate::xml::Tag<'a>,
            ) -> Result<bool, $crate::FormatError> {
                match tag.name {
                    $(stringify!($field) => reader.set(tag, &mut self.$field)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
            /// Reads the children of `parent` up to its end; unknown ones are skipped.
            #[allow(dead_code, reason = "a structure that shares its element with others is filled by them")]
            pub(crate) fn fill<'a>(
                &mut self,
                reader: &mut $crate::xml::Reader<'a>,
                parent: &$crate::xml::Tag<'a>,
            ) -> Result<(), $crate::FormatError> {
                while let Some(tag) = reader.next_child(parent)? {
                    if !self.take(reader, &tag)? {
                        reader.skip(&tag)?;
                    }
                }
                Ok(())
            }
            /// Writes each field as an element.
            pub(crate) fn put(&self, writer: &mut $crate::xml::Writer) {
                $(writer.value(stringify!($field), &self.$field);)*
            }
        }
    };
}
pub(crate) use elements;
