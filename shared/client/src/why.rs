//! Why the client does something: the reason of the policy that decided it, as it came, until somebody prints
//! it.

use std::fmt;

use fallow_domain::Duration;
use fallow_policy::rpc_session::WhyRpc;
use fallow_policy::rpc_timing::PageReason;

use crate::cause::Cause;

/// The figures behind something that is done.
#[derive(Clone, Debug)]
pub enum Why {
    /// Why a job runs, or gives way, by the CPU scheduling policy.
    Policy(fallow_policy::why::Why),
    /// Why a scheduler is called.
    Asks(WhyCalled),
    /// Why a master page is read.
    Reads(PageReason),
    /// What no policy decides that a composition chooses from.
    Own(Cause),
}

/// Why a scheduler is called, and for what.
#[derive(Clone, Debug)]
pub struct WhyCalled {
    /// Why an RPC is made.
    pub reason: WhyRpc,
    /// The work asked for, as one number.
    pub wanted: Duration,
    /// Jobs reported.
    pub reports: usize,
    /// It is asked for work although none of its jobs has been seen yet.
    pub unknown: bool,
    /// Why it is asked for work, by the policy, if that is what the RPC is made for.
    pub policy: Option<fallow_policy::why::Why>,
}

impl From<fallow_policy::why::Why> for Why {
    fn from(why: fallow_policy::why::Why) -> Self {
        Self::Policy(why)
    }
}
impl From<WhyCalled> for Why {
    fn from(why: WhyCalled) -> Self {
        Self::Asks(why)
    }
}
impl From<PageReason> for Why {
    fn from(why: PageReason) -> Self {
        Self::Reads(why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => why.fmt(f),
            Self::Asks(why) => why.fmt(f),
            Self::Reads(why) => why.fmt(f),
            Self::Own(cause) => cause.fmt(f),
        }
    }
}

impl fmt::Display for WhyCalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, wanted, reports, unknown, policy } = self;
        write!(f, "{reason}; asking for {wanted}, reporting {reports} jobs")?;
        if *unknown {
            f.write_str("; none of its jobs has been seen yet")?;
        }
        policy.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
    }
}
