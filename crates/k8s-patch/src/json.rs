//! JSON patch (RFC 6902).

use json_patch::{Patch, PatchErrorKind, PatchOperation};
use serde_json::Value as Json;

use crate::limits::measure;
use crate::{Error, Limits};

/// Applies all operations of a JSON patch, or none.
///
/// # Errors
/// The patch is not a list of operations, an operation fails, or a limit is exceeded.
pub fn json_patch(document: &Json, patch: &Json, limits: &Limits) -> Result<Json, Error> {
    limits.check("the patch", patch)?;
    if let Some(count) = patch.as_array().map(Vec::len).filter(|&count| count > limits.operations) {
        return Err(Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {}, got {count}",
            limits.operations
        )));
    }
    let operations = decode(patch)?;
    let mut result = document.clone();
    let mut spent = Spent::default();
    for (position, operation) in operations.iter().enumerate() {
        check(operation, position, &result, &mut spent, limits)?;
        json_patch::patch_unsafe(&mut result, std::slice::from_ref(operation))
            .map_err(|error| operation_error(operation, position, &error.kind))?;
    }
    if !result.is_object() {
        return Err(Error::Unprocessable("the patched document is not an object".into()));
    }
    limits.check("the patched object", &result)?;
    Ok(result)
}

fn decode(patch: &Json) -> Result<Patch, Error> {
    let Some(operations) = patch.as_array() else {
        return Err(Error::Malformed("error decoding patch: expected a list of operations".into()));
    };
    let mut decoded = Vec::with_capacity(operations.len());
    for (position, operation) in operations.iter().enumerate() {
        let read = serde::Deserialize::deserialize(operation);
        decoded.push(read.map_err(|error| match operation.is_object() {
            true => Error::Unprocessable(format!("operation {position}: {error}")),
            false => Error::Malformed(format!("error decoding patch: operation {position}: {error}")),
        })?);
    }
    Ok(Patch(decoded))
}

/// The cost of copies and moves so far, in bytes.
#[derive(Default)]
struct Spent {
    copied: usize,
    moved: usize,
}

/// Moves cost time but no memory: their total may be this multiple of the byte limit.
const MOVES: usize = 16;

/// Checks limits before an operation: the depth of its path, and the depth and size of copied or moved values.
///
/// Otherwise, a few operations could exhaust memory by repeated copies, or the stack by repeated moves.
fn check(
    operation: &PatchOperation,
    position: usize,
    document: &Json,
    spent: &mut Spent,
    limits: &Limits,
) -> Result<(), Error> {
    if operation.path().count() > limits.depth {
        let text = format!("the path of operation {position} has more than {} steps", limits.depth);
        return Err(Error::TooLarge(text));
    }
    let (from, sum, limit) = match operation {
        PatchOperation::Copy(copy) => (&copy.from, &mut spent.copied, limits.bytes),
        PatchOperation::Move(moved) => (&moved.from, &mut spent.moved, limits.bytes.saturating_mul(MOVES)),
        _ => return Ok(()),
    };
    let Some(source) = document.pointer(from.as_str()) else {
        return Ok(());
    };
    match measure(source, limits.depth) {
        None => Err(Error::TooLarge(format!(
            "the value of operation {position} is nested deeper than {} levels",
            limits.depth
        ))),
        Some(bytes) => {
            *sum = sum.saturating_add(bytes);
            if *sum <= limit {
                return Ok(());
            }
            Err(Error::TooLarge(format!("operations up to {position} copy or move more than {limit} bytes")))
        }
    }
}

fn operation_error(operation: &PatchOperation, position: usize, kind: &PatchErrorKind) -> Error {
    let name = match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    };
    let path = operation.path();
    Error::Unprocessable(match kind {
        PatchErrorKind::TestFailed => format!("testing value {path} failed (operation {position})"),
        PatchErrorKind::InvalidPointer => {
            format!("{name} operation does not apply: doc is missing path: \"{path}\" (operation {position})")
        }
        other => format!("{name} operation does not apply: \"{path}\": {other} (operation {position})"),
    })
}
