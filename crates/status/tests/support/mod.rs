//! What tests of the planner are about.

use config::{Kind, ObjectKey};
use status::Subject;

/// The key of a VirtualService.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::VirtualService, "default", name)
}

/// It, valid and without a status.
pub(crate) fn subject(name: &str, generation: i64) -> Subject {
    Subject {
        key: key(name),
        uid: "u1".into(),
        generation,
        diagnostics: Vec::new(),
        status: None,
    }
}
