//! A policy's own reason for what it decided, as a value: typed until somebody prints it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A reason: any value that can be printed. Whoever knows the policy gets it back as what it is.
pub trait Reason: fmt::Debug + fmt::Display + Send + Sync + Any {}
impl<R: fmt::Debug + fmt::Display + Send + Sync + Any> Reason for R {}

/// A reason that is handed on.
#[derive(Clone)]
pub struct Why(Arc<dyn Reason>);

impl Why {
    /// Of a reason.
    pub fn new(reason: impl Reason) -> Self {
        Self(Arc::new(reason))
    }

    /// The reason itself, if it is of that type.
    pub fn reason<R: Reason>(&self) -> Option<&R> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }
}

impl fmt::Debug for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
