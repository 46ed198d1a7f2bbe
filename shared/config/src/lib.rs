//! TOML files that people write, read so that everything wrong is named at once: scenarios and groups of
//! hosts.
//!
//! A reader walks over the parsed file ([`Walk`]) and asks for what each table may hold ([`Section`]); a bad
//! value counts as left out while the rest is read. What is wrong becomes a [`Diagnostic`] with file, line,
//! key, what was expected and what may have been meant. What values mean together is for the reader to say
//! ([`Problem`]). What a finding shows of the file has stars for the values of keys that the reader names
//! as secret ([`Walk::hiding`]).
//!
//! Texts in, values out: this room opens no file.
#![forbid(unsafe_code)]

mod diagnostic;
mod problem;
mod secret;
mod shown;
mod suggest;
mod units;
mod value;
mod walk;

pub use diagnostic::{Diagnostic, Diagnostics, Source};
pub use problem::{Problem, Severity};
pub use shown::Shown;
pub use suggest::suggest;
pub use units::{
    BadAmount, amount, not_negative, parse_bytes, parse_duration, show_bytes, show_duration, show_fraction,
    write_amount, write_bytes, write_duration,
};
pub use value::{BadValue, FromValue, amount_value, text, unexpected, whole, word};
pub use walk::{Fields, Section, Walk};
