//! Validation of regular expressions, which Envoy matches with RE2.

use crate::form::Fault;
use crate::form::re2::{self, SyntaxError};

/// Maximum length of an expression in bytes, as in Istio.
const MAX_LENGTH: usize = 1024;

/// The largest program that Istio's proxies accept: their bootstrap sets `re2.max_program_size.error_level` to it.
pub const MAX_PROGRAM_SIZE: u32 = 32_768;

/// The largest program that Envoy accepts if its runtime does not set another limit.
pub const DEFAULT_PROGRAM_SIZE: u32 = 100;

/// The reason why Envoy would reject a regular expression.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum RegexError {
    #[error("the regular expression is empty")]
    Empty,
    #[error("the regular expression is longer than {MAX_LENGTH} characters")]
    TooLong,
    #[error("the regular expression is too large: RE2 compiles it to more than {MAX_PROGRAM_SIZE} instructions")]
    TooLarge,
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
}

/// A regular expression, which must not be empty. Some proxies reject a large one.
pub(crate) fn regex(text: &str) -> Result<(), Fault> {
    let size = check_regex(text).map_err(|error| Fault::new("bad-regex", error.to_string()))?;
    if size <= DEFAULT_PROGRAM_SIZE {
        return Ok(());
    }
    let message = format!(
        "RE2 compiles the regular expression to {size} instructions, and Envoy accepts {DEFAULT_PROGRAM_SIZE} by default; \
         the condition is left out for proxies without Istio's agent that report no higher RE2_MAX_PROGRAM_SIZE"
    );
    Err(Fault::warning("large-regex", message).hint("shorten the expression, above all its repetitions such as {1,64}"))
}

/// A regular expression for the control plane. It is not compiled here: an object may have thousands, most of which are not
/// used.
pub(crate) fn own_regex(text: &str) -> Result<(), Fault> {
    let check = || match text.len() {
        0 => Err(RegexError::Empty),
        length if length > MAX_LENGTH => Err(RegexError::TooLong),
        _ => re2::fits(text, MAX_PROGRAM_SIZE)?.then_some(()).ok_or(RegexError::TooLarge),
    };
    check().map_err(|error| Fault::new("bad-regex", error.to_string()))
}

/// The size of the program that Envoy compiles an expression to, or why every Envoy would reject it.
pub(crate) fn check_regex(regex: &str) -> Result<u32, RegexError> {
    if regex.is_empty() {
        return Err(RegexError::Empty);
    }
    if regex.len() > MAX_LENGTH {
        return Err(RegexError::TooLong);
    }
    re2::program_size(regex)?.filter(|size| *size <= MAX_PROGRAM_SIZE).ok_or(RegexError::TooLarge)
}

/// The number of instructions of the program that Envoy compiles a regular expression to, its "RE2 program size".
/// `None` if no Envoy accepts the expression.
pub fn regex_program_size(regex: &str) -> Option<u32> {
    re2::program_size(regex).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(check_regex(""), Err(RegexError::Empty));
        assert_eq!(check_regex(&"a".repeat(1024)), Ok(1028));
        assert_eq!(check_regex(&"a".repeat(1025)), Err(RegexError::TooLong));
        assert_eq!(check_regex(&"x{1000}y".repeat(32)), Ok(32_036));
        assert_eq!(check_regex(&"x{1000}y".repeat(33)), Err(RegexError::TooLarge));
        assert_eq!(check_regex(&"(x{1000}y)".repeat(100)), Err(RegexError::TooLarge));
        assert_eq!(check_regex("(a)\\1").map_err(|error| error.to_string().contains("\\1")), Err(true));
    }

    #[test]
    fn own_expressions() {
        let codes = |text: &str| own_regex(text).map_err(|fault| fault.message).err().unwrap_or_default();
        assert_eq!(codes("^1\\.2[0-9]{1,3}.*$"), "");
        for text in ["", "(", "(a)\\1", "((a{1,1000}){1,1000}){1,1000}", &"a".repeat(1025), &"x{1000}".repeat(40)] {
            assert!(!codes(text).is_empty(), "{text}");
        }
    }

    /// Hostile expressions neither overflow the stack nor take long.
    #[test]
    fn hostile() {
        for regex in [
            "(".repeat(1024),
            format!("{}a{}", "(".repeat(250), ")".repeat(250)),
            format!("{}a{}", "(".repeat(204), ")?".repeat(204)),
            "(?:a|".repeat(204),
            format!("{}a", "a|".repeat(511)),
            "(a?){0,1000}".repeat(85),
            "[a-z]{0,1000}".into(),
            "(?:||||||||||||||){1000}".into(),
            "(((a{0,10}){0,10}){0,10})".repeat(40),
            "a{0,1000}".repeat(113),
            "\\p{L}{1,500}".repeat(70),
        ] {
            let _ = check_regex(&regex);
        }
    }
}
