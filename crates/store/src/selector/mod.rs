//! Label and field selectors, as Kubernetes writes them.

mod field;
mod label;
mod lexer;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// No selector's text is longer, in bytes.
const TEXT_LIMIT: usize = 16 * 1024;

/// A selector that cannot be read: what is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

impl SelectorError {
    fn new(text: impl Into<String>) -> SelectorError {
        SelectorError(text.into())
    }
}

/// Refuses texts beyond the limit before anything is read.
fn check_length(text: &str) -> Result<(), SelectorError> {
    match text.len() {
        0..=TEXT_LIMIT => Ok(()),
        bytes => Err(SelectorError(format!(
            "the selector has {bytes} bytes; at most {TEXT_LIMIT} are read"
        ))),
    }
}
