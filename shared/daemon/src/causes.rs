//! The text of an error with its causes.

use std::error::Error;

/// What an error and its causes say, the outermost first. What was said already is left out: libraries repeat
/// their causes in their own words.
pub fn texts(error: &dyn Error) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !texts.iter().any(|said| said.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts
}

/// The same on one line.
pub fn line(error: &dyn Error) -> String {
    texts(error).join(": ")
}

/// The cause of all causes. What wraps it may repeat the same in the words of libraries.
pub fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Said(&'static str, Option<Box<Said>>);

    impl fmt::Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Said {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_is_said_once() {
        let full = Said("disk full", None);
        let write = Said("cannot write x: disk full", Some(Box::new(full)));
        let error = Said("the store failed", Some(Box::new(write)));
        assert_eq!(texts(&error), ["the store failed", "cannot write x: disk full"]);
        assert_eq!(line(&error), "the store failed: cannot write x: disk full");
        assert_eq!(innermost(&error), "disk full");
        assert_eq!(line(&Said("alone", None)), "alone");
    }
}
