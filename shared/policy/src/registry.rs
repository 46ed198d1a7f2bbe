//! The registry: all policies that there are to choose from, kind by kind, and the one that holds where none is named.
//!
//! A policy of one's own is a file in the folder of its kind, and its line here: `file::Policy`. The line makes the file a
//! module of its kind, and gives the policy its name in compositions (`--policy CS2_WF3`), in the help of
//! `fallow simulate` and in the evaluation.

macro_rules! policies {
    // Whom to ask for how much work.
    (fetch) => {
        kind! { FetchPolicy, "WF", by default shortfall::Shortfall, of
            starvation::Starvation,
            shortfall::Shortfall,
        }
    };
}

/// Makes the files of a kind its modules, and its policies what there is to choose from.
macro_rules! kind {
    ($kind:ident, $prefix:literal, by default $of:ident::$default:ident, of $($file:ident::$policy:ident,)+) => {
        $(pub mod $file;)+

        impl $crate::choice::Kind for dyn $kind {
            const PREFIX: &'static str = $prefix;
            const ALL: &'static [&'static Self] = &[$(&$file::$policy),+];
            const DEFAULT: &'static Self = &$of::$default;
            fn name(&self) -> &'static str {
                $kind::name(self)
            }
            fn summary(&self) -> &'static str {
                $kind::summary(self)
            }
        }
    };
}
