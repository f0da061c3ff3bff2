//! The path to a field, kept on the stack while an object is walked: nothing is allocated until a problem is found.

use std::fmt;

use crate::problem::{FieldPath, Segment};

/// The path to a field.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The object.
    Root,
    /// A field, or an entry of a map.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map, whose key is written in brackets.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// The path of a field.
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    /// The path of an item of a list.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// The path of an entry of a map, whose key is written in brackets.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    /// The same path with segments of its own.
    pub fn to_field_path(&self) -> FieldPath {
        match *self {
            Path::Root => FieldPath::root(),
            Path::Field(parent, name) => parent.to_field_path().then(Segment::Field(name.into())),
            Path::Index(parent, index) => parent.to_field_path().then(Segment::Index(index)),
            Path::Key(parent, key) => parent.to_field_path().then(Segment::Key(key.into())),
        }
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
