//! JSON merge patch (RFC 7386).

use serde_json::Value as Json;

use crate::{Error, Limits};

/// Applies a merge patch: objects are merged, null removes, other values are replaced.
///
/// # Errors
/// The patch is not an object, or a limit is exceeded.
pub fn merge_patch(document: &Json, patch: &Json, limits: &Limits) -> Result<Json, Error> {
    if !patch.is_object() {
        return Err(Error::Malformed("error decoding patch: expected an object".into()));
    }
    limits.check("the patch", patch)?;
    let mut result = document.clone();
    json_patch::merge(&mut result, patch);
    limits.check("the patched object", &result)?;
    Ok(result)
}
