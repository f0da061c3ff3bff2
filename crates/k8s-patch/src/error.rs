//! Why a patch was refused.

use std::fmt;

/// Why a patch was refused. The text of each is fit for the `message` of a Kubernetes `Status`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The patch is not a patch of its type (status 400, reason `BadRequest`).
    #[error("{0}")]
    Malformed(String),
    /// The configuration of an apply does not fit the schema of its kind (status 500, no reason: as Kubernetes has it).
    #[error("{0}")]
    Untyped(String),
    /// The patch cannot be applied to this object (status 422, reason `Invalid`).
    #[error("the server rejected our request due to an error in our request: {0}")]
    Unprocessable(String),
    /// The patch or what it makes of the object is beyond the limits (status 413, reason `RequestEntityTooLarge`).
    #[error("{0}")]
    TooLarge(String),
    /// Other managers own fields that an apply would change (status 409, reason `Conflict`).
    #[error("{0}")]
    Conflict(Conflicts),
}

/// All the fields for which an apply was refused, ordered by manager and path; never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts {
    /// One per manager and field.
    pub conflicts: Vec<Conflict>,
}

/// A field that somebody else owns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Conflict {
    /// Who owns it, as messages say it: `"kubectl" using v1`, or `"controller"` alone if it owns by apply.
    pub manager: String,
    /// The field: `.spec.ports[port=80,protocol="TCP"].name`.
    pub path: String,
}

impl Conflict {
    /// The message of the cause (its reason is `FieldManagerConflict`): `conflict with "kubectl" using v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

impl fmt::Display for Conflicts {
    /// As kube-apiserver words it: all on one line for a single conflict, otherwise a list per manager.
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
