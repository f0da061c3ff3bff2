//! Label and field selectors in Kubernetes syntax.

mod field;
mod label;
mod lexer;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// The maximum length of a selector, in bytes.
const TEXT_LIMIT: usize = 16 * 1024;

/// A selector with a syntax error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl SelectorError {
    fn new(text: impl Into<String>) -> SelectorError {
        SelectorError(text.into())
    }
}

/// Rejects texts that are too long.
fn check_length(text: &str) -> Result<(), SelectorError> {
    match text.len() {
        0..=TEXT_LIMIT => Ok(()),
        bytes => Err(SelectorError(format!("the selector has {bytes} bytes; at most {TEXT_LIMIT} are allowed"))),
    }
}
