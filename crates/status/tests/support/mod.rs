//! The objects of the planner's tests.

use config::Observed;
use config::{Kind, ObjectKey};

/// The key of a VirtualService.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::VirtualService, "default", name)
}

/// A valid VirtualService without a status.
pub(crate) fn subject(name: &str, generation: i64) -> Observed {
    let (diagnostics, parents) = (Vec::new(), Vec::new());
    Observed {
        key: key(name),
        uid: "u1".into(),
        generation,
        diagnostics,
        assigned: false,
        parents,
        status: None,
        original: None,
    }
}
