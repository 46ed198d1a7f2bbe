//! Values for people, with their unit.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fallow_domain::{Bytes, Device, Duration, Fraction, GpuExclusion, Hours, MasterUrl, RequiredLayer};

use crate::units::{show_bytes, show_duration, show_fraction};

/// What stands for a value that may be left out, and is: files say it so, too.
pub(crate) const NO_LIMIT: &str = "no limit";

/// A value that is shown, as a file would read it but for quotes.
pub trait Shown {
    /// The value, for people.
    fn shown(&self) -> String;

    /// It leaves nothing at all, as hours do of which there are none.
    fn is_nothing(&self) -> bool {
        false
    }
}

impl Shown for bool {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for Fraction {
    fn shown(&self) -> String {
        show_fraction(*self)
    }
}

impl Shown for NonZeroU32 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for Duration {
    fn shown(&self) -> String {
        show_duration(*self)
    }
}

impl Shown for Bytes {
    fn shown(&self) -> String {
        show_bytes(*self)
    }
}

impl Shown for Hours {
    fn shown(&self) -> String {
        self.to_string()
    }

    fn is_nothing(&self) -> bool {
        self.is_never()
    }
}

impl Shown for BTreeSet<Device> {
    fn shown(&self) -> String {
        Device::list(self)
    }
}

impl Shown for BTreeSet<GpuExclusion> {
    fn shown(&self) -> String {
        match self.is_empty() {
            true => "none".to_owned(),
            false => self.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    }
}

impl Shown for BTreeSet<RequiredLayer> {
    fn shown(&self) -> String {
        RequiredLayer::list(self)
    }
}

impl Shown for BTreeSet<MasterUrl> {
    fn shown(&self) -> String {
        match self.is_empty() {
            true => "none".to_owned(),
            false => self.iter().map(MasterUrl::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

impl Shown for BTreeSet<String> {
    fn shown(&self) -> String {
        match self.is_empty() {
            true => "none".to_owned(),
            false => self.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| NO_LIMIT.to_owned(), T::shown)
    }
}
