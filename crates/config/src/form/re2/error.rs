//! The reasons for which RE2 cannot parse an expression.

/// Maximum number of repetitions, also of nested ones together.
pub(super) const MAX_REPEAT: u32 = 1000;

/// Maximum number of nested groups. RE2 has no such limit.
pub(super) const MAX_DEPTH: usize = 250;

/// The reason why RE2 cannot parse an expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SyntaxError {
    #[error("a part of the regular expression repeats more than {MAX_REPEAT} times")]
    RepeatSize,
    #[error("a part of the regular expression has a maximum of repetitions below its minimum")]
    RepeatOrder,
    #[error("more than {MAX_DEPTH} nested groups")]
    Depth,
    #[error("not a regular expression in RE2 syntax: missing )")]
    MissingParen,
    #[error("not a regular expression in RE2 syntax: unexpected )")]
    UnexpectedParen,
    #[error("not a regular expression in RE2 syntax: missing ]")]
    MissingBracket,
    #[error("not a regular expression in RE2 syntax: a \\ at the end")]
    TrailingBackslash,
    #[error("not a regular expression in RE2 syntax: a repetition operator without an operand")]
    RepeatArgument,
    #[error("not a regular expression in RE2 syntax: a repetition operator must not be repeated; use parentheses")]
    RepeatOperator,
    #[error(
        "not a regular expression in RE2 syntax: unknown escape sequence {0}; there are no back references, and code \
         points above \\xff must be written as characters"
    )]
    Escape(String),
    #[error("not a regular expression in RE2 syntax: {0} is not a character class or range")]
    Range(String),
    #[error("not a regular expression in RE2 syntax: unknown group {0}; there is no look-around")]
    Group(String),
    #[error("not a regular expression in RE2 syntax: invalid name of a group: {0}")]
    GroupName(String),
}
