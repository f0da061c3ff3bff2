//! Limits of patches and their results.

use serde_json::Value as Json;

use crate::Error;

/// Limits of patches and their results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of operations of a JSON patch.
    pub operations: usize,
    /// Nesting of the patch, its paths and the result.
    pub depth: usize,
    /// Size of the result as compact JSON, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    /// 10,000 operations and 3 MiB, as in Kubernetes, and 100 levels.
    fn default() -> Limits {
        Limits { operations: 10_000, depth: 100, bytes: 3 * 1024 * 1024 }
    }
}

impl Limits {
    /// Checks nesting and size of a value.
    pub(crate) fn check(&self, what: &str, value: &Json) -> Result<(), Error> {
        match measure(value, self.depth) {
            None => Err(Error::TooLarge(format!("{what} is nested deeper than {} levels", self.depth))),
            Some(bytes) if bytes > self.bytes => {
                Err(Error::TooLarge(format!("{what} has {bytes} bytes, the maximum is {}", self.bytes)))
            }
            Some(_) => Ok(()),
        }
    }
}

/// The approximate size of a value as compact JSON, without escapes; none if it exceeds the nesting.
pub(crate) fn measure(value: &Json, depth: usize) -> Option<usize> {
    match value {
        Json::Null => Some(4),
        Json::Bool(_) => Some(5),
        Json::Number(_) => Some(8),
        Json::String(text) => Some(text.len() + 2),
        Json::Array(items) => {
            let depth = depth.checked_sub(1)?;
            items.iter().try_fold(2, |sum: usize, item| Some(sum + 1 + measure(item, depth)?))
        }
        Json::Object(fields) => {
            let depth = depth.checked_sub(1)?;
            fields.iter().try_fold(2, |sum: usize, (name, item)| Some(sum + name.len() + 4 + measure(item, depth)?))
        }
    }
}
