//! What is wrong with what users wrote, and where.

use std::fmt;
use std::sync::Arc;

use crate::object::ObjectKey;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// The object is in force, but something of it does not do what it seems to.
    Warning,
    /// The object is refused.
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

/// One thing to say about one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Diagnostic {
    /// The file, for sources that have files.
    pub file: Option<Arc<str>>,
    /// The line in the file, counted from 1; 0 where there is none.
    pub line: u32,
    /// The column in the line, in characters counted from 1; 0 where there is none.
    pub column: u32,
    /// The object, where it could be told which it is.
    pub object: Option<ObjectKey>,
    /// The field, such as `spec.http[0].route[1].weight`; empty for the object or document as a whole.
    pub path: FieldPath,
    /// How bad it is.
    pub severity: Severity,
    /// A short stable word for the sort of problem, such as `unknown-field`.
    pub code: &'static str,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// The code of what is said of an object because another one goes before it.
    pub const CONFLICT: &'static str = "conflict";
    /// The code of what is said of an object because something that it names is not there.
    pub const MISSING_REFERENCE: &'static str = "missing-reference";

    /// What is found of an object in force when it is compared with others: there is no file to point into.
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

    /// Whether it makes the object refused.
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

/// One step of a [`FieldPath`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Segment {
    /// A field, by its name in JSON.
    Field(Arc<str>),
    /// An entry of a list, counted from 0.
    Index(usize),
    /// An entry of a map whose keys users choose.
    Key(Arc<str>),
}

/// The way from the root of an object to one of its fields.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// The object itself.
    pub fn root() -> FieldPath {
        FieldPath::default()
    }

    /// The path of the field `spec`.
    pub fn spec() -> FieldPath {
        FieldPath::root().field("spec")
    }

    /// The path of a field of what this path leads to.
    pub fn field(&self, name: impl Into<Arc<str>>) -> FieldPath {
        self.then(Segment::Field(name.into()))
    }

    /// The path of an entry of the list that this path leads to.
    pub fn index(&self, index: usize) -> FieldPath {
        self.then(Segment::Index(index))
    }

    /// The path of an entry of the map that this path leads to.
    pub fn key(&self, key: impl Into<Arc<str>>) -> FieldPath {
        self.then(Segment::Key(key.into()))
    }

    /// Whether it is the object itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The path as seen from what its first step leads to.
    pub(crate) fn without_first(&self) -> FieldPath {
        FieldPath(self.0.iter().skip(1).cloned().collect())
    }

    /// Whether `other` leads to the same place or to something inside it.
    pub(crate) fn contains(&self, other: &FieldPath) -> bool {
        other.0.starts_with(&self.0)
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// The path one step further.
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
