//! Errors of patches.

use std::fmt;

/// The error of a patch. The text is suitable as the `message` of a `Status`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The patch is malformed (status 400, reason `BadRequest`).
    #[error("{0}")]
    Malformed(String),
    /// The applied configuration does not match its schema (status 500 without reason, as in Kubernetes).
    #[error("{0}")]
    Untyped(String),
    /// The patch cannot be applied to this object (status 422, reason `Invalid`).
    #[error("the server rejected our request due to an error in our request: {0}")]
    Unprocessable(String),
    /// The patch or its result exceeds a limit (status 413, reason `RequestEntityTooLarge`).
    #[error("{0}")]
    TooLarge(String),
    /// Other managers own fields that the apply would change (status 409, reason `Conflict`).
    #[error("{0}")]
    Conflict(Conflicts),
}

/// The conflicts of an apply, ordered by manager and path; never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts {
    /// One per manager and field.
    pub conflicts: Vec<Conflict>,
}

/// A field with another owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Conflict {
    /// The owner as in messages: `"kubectl" using v1`, or only `"controller"` for `Apply` owners.
    pub manager: String,
    /// The field: `.spec.ports[port=80,protocol="TCP"].name`.
    pub path: String,
}

impl Conflict {
    /// The message of the cause (reason `FieldManagerConflict`): `conflict with "kubectl" using v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

impl fmt::Display for Conflicts {
    /// The wording of kube-apiserver: one line for a single conflict, else a list per manager.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.conflicts.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", one.message(), one.path);
        }
        write!(f, "Apply failed with {} conflicts: ", self.conflicts.len())?;
        let mut before: Option<&str> = None;
        for conflict in &self.conflicts {
            if before != Some(&conflict.manager) {
                let gap = if before.is_some() { "\n" } else { "" };
                write!(f, "{gap}conflicts with {}:", conflict.manager)?;
                before = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.path)?;
        }
        Ok(())
    }
}
