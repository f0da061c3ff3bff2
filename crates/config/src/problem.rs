//! Properties of a problem: how severe it is, and the path of the field that it is about.

use std::fmt;
use std::sync::Arc;

/// Severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Information.
    Info,
    /// The object is applied, but a part of it does not behave as it appears to.
    Warning,
    /// The object is rejected.
    Error,
}

impl Severity {
    /// `error`, `warning` or `info`.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A segment of a [`FieldPath`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Segment {
    /// Field, by JSON name.
    Field(Arc<str>),
    /// Entry of a list, counted from 0.
    Index(usize),
    /// Entry of a map with user-defined keys.
    Key(Arc<str>),
}

/// Path from the root of an object to one of its fields.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// Path of the object itself.
    pub fn root() -> FieldPath {
        FieldPath::default()
    }

    /// Path of the field `spec`.
    pub fn spec() -> FieldPath {
        FieldPath::root().field("spec")
    }

    /// Path of a field of the value at this path.
    pub fn field(&self, name: impl Into<Arc<str>>) -> FieldPath {
        self.then(Segment::Field(name.into()))
    }

    /// Path of an entry of the list at this path.
    pub fn index(&self, index: usize) -> FieldPath {
        self.then(Segment::Index(index))
    }

    /// Path of an entry of the map at this path.
    pub fn key(&self, key: impl Into<Arc<str>>) -> FieldPath {
        self.then(Segment::Key(key.into()))
    }

    /// Whether the path is that of the object itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Segments, starting at the root.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether `other` is the same path or a path within it.
    pub(crate) fn contains(&self, other: &FieldPath) -> bool {
        other.0.starts_with(&self.0)
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// Path extended by one segment.
    pub(crate) fn then(&self, segment: Segment) -> FieldPath {
        let mut segments = Vec::with_capacity(self.0.len() + 1);
        segments.extend_from_slice(&self.0);
        segments.push(segment);
        FieldPath(segments)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if position == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
