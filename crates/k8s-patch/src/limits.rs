//! How big patches and what they make may be.

use serde_json::Value as Json;

use crate::Error;

/// How big patches and what they make may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Operations in a JSON patch.
    pub operations: usize,
    /// Levels of the patch, of its paths and of the result.
    pub depth: usize,
    /// Bytes of the result, as compact JSON.
    pub bytes: usize,
}

impl Default for Limits {
    /// 10,000 operations and 3 MiB as Kubernetes has it, and 100 levels.
    fn default() -> Limits {
        Limits {
            operations: 10_000,
            depth: 100,
            bytes: 3 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// Refuses a value that is too deep or too big.
    pub(crate) fn check(&self, what: &str, value: &Json) -> Result<(), Error> {
        match measure(value, self.depth) {
            None => Err(Error::TooLarge(format!(
                "{what} is nested deeper than {} levels",
                self.depth
            ))),
            Some(bytes) if bytes > self.bytes => Err(Error::TooLarge(format!(
                "{what} has {bytes} bytes, more than the {} that are allowed",
                self.bytes
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// About the bytes of a value as compact JSON (escapes are not counted); none: it has more levels than this.
pub(crate) fn measure(value: &Json, depth: usize) -> Option<usize> {
    match value {
        Json::Null => Some(4),
        Json::Bool(_) => Some(5),
        Json::Number(_) => Some(8),
        Json::String(text) => Some(text.len() + 2),
        Json::Array(items) => {
            let depth = depth.checked_sub(1)?;
            items
                .iter()
                .try_fold(2, |sum: usize, item| Some(sum + 1 + measure(item, depth)?))
        }
        Json::Object(fields) => {
            let depth = depth.checked_sub(1)?;
            fields.iter().try_fold(2, |sum: usize, (name, item)| {
                Some(sum + name.len() + 4 + measure(item, depth)?)
            })
        }
    }
}
