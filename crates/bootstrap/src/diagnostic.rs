//! Problems in the input of a bootstrap.

use std::fmt;

/// A value that is not used, or that has no effect. The agent logs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The place of the value: a variable, an annotation, a file or a field of ProxyConfig.
    pub place: String,
    /// The problem and its remedy. It never contains a secret.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A list of diagnostics that functions add to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Adds a problem.
    pub(crate) fn add(&mut self, place: impl Into<String>, message: impl fmt::Display) {
        self.0.push(Diagnostic { place: place.into(), message: message.to_string() });
    }
}
