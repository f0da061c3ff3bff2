//! Diagnostics: problems in the configuration and where they are.

use std::fmt;
use std::sync::Arc;

use crate::object::ObjectKey;

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

/// A problem at a place in the configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Diagnostic {
    /// File that contains the object; `None` for other sources.
    pub file: Option<Arc<str>>,
    /// Line in the file, counted from 1; 0 if unknown.
    pub line: u32,
    /// Column in the line, in characters counted from 1; 0 if unknown.
    pub column: u32,
    /// Object that the diagnostic is about, if it could be identified.
    pub object: Option<ObjectKey>,
    /// Field, such as `spec.http[0].route[1].weight`; empty for the object or document as a whole.
    pub path: FieldPath,
    /// Severity.
    pub severity: Severity,
    /// Short, stable identifier of the kind of problem, such as `unknown-field`.
    pub code: &'static str,
    /// Description of the problem, without a trailing period.
    pub message: String,
    /// Suggested remedy.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Code of diagnostics about an object that another object overrides.
    pub const CONFLICT: &'static str = "conflict";
    /// Code of diagnostics about a reference to an object that does not exist.
    pub const MISSING_REFERENCE: &'static str = "missing-reference";

    /// Creates a warning about an applied object. There is no position in a file.
    pub fn warning(object: ObjectKey, code: &'static str, path: FieldPath, message: String, hint: &str) -> Diagnostic {
        Diagnostic {
            file: None,
            line: 0,
            column: 0,
            object: Some(object),
            path,
            severity: Severity::Warning,
            code,
            message,
            hint: Some(hint.to_owned()),
        }
    }

    /// Whether the object is rejected.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    /// `mesh.yaml:7:9: error: VirtualService default/a: spec.http[0].timeout: … [bad-value] (hint: …)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if self.file.is_some() || self.line > 0 {
            f.write_str(" ")?;
        }
        write!(f, "{}: ", self.severity)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} [{}]", self.message, self.code)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
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
