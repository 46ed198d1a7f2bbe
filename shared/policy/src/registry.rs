//! The registry: all policies that there are to choose from, kind by kind, and the one that holds where a
//! composition's name names none.
//!
//! A policy of one's own is a file in the folder of its kind, and its line here: `file::Policy`. The line
//! makes the file a module of its kind, and gives the policy its name in compositions (`--policy CS2_WF3`),
//! in the help of `fallow simulate` and in the evaluation.

macro_rules! policies {
    // Which jobs run.
    (cpu) => {
        kind! { CpuPolicy, "CS", by default late_first::LateFirst, of
            by_share::ByShare,
            late_first::LateFirst,
        }
    };
    // Whom to ask for how much work.
    (fetch) => {
        kind! { FetchPolicy, "WF", by default shortfall::Shortfall, of
            starvation::Starvation,
            shortfall::Shortfall,
            just_in_time::JustInTime,
        }
    };
    // Which jobs a server sends.
    (send) => {
        kind! { SendPolicy, "WS", by default in_time::InTime, of
            as_asked::AsAsked,
            in_time::InTime,
            by_on_time::ByOnTime,
        }
    };
    // How long a job still takes.
    (completion) => {
        kind! { CompletionPolicy, "JC", by default corrected::Corrected, of
            by_size::BySize,
            corrected::Corrected,
            by_quantile::ByQuantile,
        }
    };
    // By what account projects are compared.
    (accounting) => {
        kind! { AccountingPolicy, "", by default debts::ByDebts, of
            debts::ByDebts,
            recent_credit::ByRecentCredit,
        }
    };
}

/// Makes the files of a kind its modules, and its policies what there is to choose from.
macro_rules! kind {
    ($kind:ident, $prefix:literal, by default $of:ident::$default:ident, of $($file:ident::$policy:ident,)+) => {
        $(pub mod $file;)+

        impl $crate::choice::PolicyKind for dyn $kind {
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
