//! A policy's own reason for what it decided, as a value: typed until somebody prints it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A reason: any value that can be printed. Whoever knows the policy gets it back as what it is.
pub trait Explain: fmt::Debug + fmt::Display + Send + Sync + Any {}
impl<R: fmt::Debug + fmt::Display + Send + Sync + Any> Explain for R {}

/// A reason whose type is not known to whoever hands it on.
#[derive(Clone)]
pub struct Why {
    /// All reasons of one decision.
    of: Arc<dyn Explanations>,
    /// Which of them this one is.
    place: usize,
}

impl Why {
    /// For one reason.
    pub fn new(reason: impl Explain) -> Self {
        Self { of: Arc::new([reason]), place: 0 }
    }

    /// One for each of a decision's reasons, in their order. They share one allocation, however many they
    /// are.
    pub fn each(reasons: Vec<impl Explain>) -> impl Iterator<Item = Self> {
        let places = 0..reasons.len();
        let of: Arc<dyn Explanations> = Arc::new(reasons);
        places.map(move |place| Self { of: Arc::clone(&of), place })
    }

    /// The reason itself, if it is of that type.
    pub fn reason<R: Explain>(&self) -> Option<&R> {
        let any: &dyn Any = self.any_reason()?;
        any.downcast_ref()
    }

    fn any_reason(&self) -> Option<&dyn Explain> {
        self.of.at(self.place)
    }
}

trait Explanations: Send + Sync {
    fn at(&self, place: usize) -> Option<&dyn Explain>;
}
impl<R: Explain, const N: usize> Explanations for [R; N] {
    fn at(&self, place: usize) -> Option<&dyn Explain> {
        self.get(place).map(|reason| reason as &dyn Explain)
    }
}
impl<R: Explain> Explanations for Vec<R> {
    fn at(&self, place: usize) -> Option<&dyn Explain> {
        self.get(place).map(|reason| reason as &dyn Explain)
    }
}

impl fmt::Debug for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any_reason().map_or(Ok(()), |reason| fmt::Debug::fmt(reason, f))
    }
}
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any_reason().map_or(Ok(()), |reason| fmt::Display::fmt(reason, f))
    }
}
