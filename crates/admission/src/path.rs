//! The way to a field, kept on the stack while an object is walked: it costs nothing until something is wrong.

use std::fmt;

/// The way to a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The object.
    Root,
    /// A field, or an entry of a map.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map whose keys are long or have dots, in brackets.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    /// `spec.ports[0].name`, `data[tls.crt]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => f.write_str("<nil>"),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(Path::Root, index) => write!(f, "[{index}]"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(Path::Root, key) => write!(f, "[{key}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}
