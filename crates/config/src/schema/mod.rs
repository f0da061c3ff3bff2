//! Schemas: what the fields of every kind mean and may hold, as data.
//!
//! A [`Schema`] is what decoding checks against, what the OpenAPI documents and CRDs are printed from, and what patches
//! merge by. For the kinds of Istio and of the Gateway API it is made by the same declarations as their Rust types
//! (`message!` and its like), so that neither has a field that the other lacks. The core kinds of Kubernetes, of which the
//! Rust types hold only what a mesh reads, are declared whole in a table of their own.
//!
//! [`Definition`] is a kind as clients see it: names, versions, scope, columns, schema.

#[macro_use]
pub(crate) mod facts;
mod core;
mod crd;
mod definition;
mod mesh;
mod meta;
pub mod openapi;
mod print;
mod reference;
pub mod wire;

#[cfg(test)]
mod tests;

pub use crd::crd;
pub use definition::{Column, Definition, Served, definitions, find, find_kind};
pub use meta::object_meta;
pub use print::to_openapi;
pub use reference::reference;

use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

/// What a value may be. Structural: every level has one type, and its fields are known (Kubernetes' "structural schema").
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// What it means, for people.
    pub description: Arc<str>,
    /// Its form.
    pub shape: Shape,
    /// Whether null is a value of its own and not an absent field.
    pub nullable: bool,
    /// What an absent field means.
    pub default: Option<Json>,
    /// Rules in CEL (`x-kubernetes-validations`).
    pub rules: Vec<Rule>,
    /// Whether an object or map is replaced as a whole when patches merge (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether a strategic merge patch drops the fields that it does not name (`retainKeys`): of the object, or of the
    /// items of a list.
    pub retain_keys: bool,
    /// The type that it is of, where OpenAPI documents have types by name.
    pub named: Option<Named>,
}

/// A type with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The name in OpenAPI documents, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// What the type means, where a field's description says what the field means.
    pub description: Arc<str>,
}

/// The form of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// An object with these fields.
    Object(Fields),
    /// An object whose keys users choose.
    Map(Arc<Schema>, Bounds),
    /// A list.
    List(Arc<Schema>, ListKind, Bounds),
    /// A text; the bounds are of its length in characters.
    Text {
        /// OpenAPI's `format`: `date-time`, `byte`, …
        format: Option<&'static str>,
        /// A regular expression (RE2) that it must match.
        pattern: Option<&'static str>,
        /// The only values, if they are limited.
        values: Vec<&'static str>,
        /// Length.
        bounds: Bounds,
    },
    /// A whole number.
    Integer {
        /// `int32` or `int64`.
        format: &'static str,
        /// The least value.
        min: Option<i64>,
        /// The greatest value.
        max: Option<i64>,
    },
    /// A number.
    Number {
        /// The least value.
        min: Option<f64>,
        /// The greatest value.
        max: Option<f64>,
    },
    /// True or false.
    Boolean,
    /// A whole number or a text (`x-kubernetes-int-or-string`).
    IntOrText,
    /// Anything (`x-kubernetes-preserve-unknown-fields`).
    Any,
}

/// The fields of an object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fields {
    /// The fields, by their names in JSON, in the order of declaration.
    pub fields: Vec<(&'static str, Arc<Schema>)>,
    /// Fields that must be there.
    pub required: Vec<&'static str>,
    /// Groups of which at most one field may be there (`oneof`).
    pub exclusive: Vec<Vec<&'static str>>,
    /// Whether fields that are not known are kept.
    pub open: bool,
}

impl Fields {
    /// The schema of a field.
    pub fn get(&self, name: &str) -> Option<&Arc<Schema>> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, schema)| schema)
    }
}

/// How a list merges (`x-kubernetes-list-type` and `x-kubernetes-patch-*`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ListKind {
    /// As a whole.
    #[default]
    Atomic,
    /// A set of scalars.
    Set,
    /// Items are objects that these fields tell apart. `patch_key` is the field by which a strategic merge patch tells them
    /// apart, where it has one.
    Map {
        /// The keys (`x-kubernetes-list-map-keys`).
        keys: Vec<&'static str>,
        /// `x-kubernetes-patch-merge-key`, with the strategy `merge`.
        patch_key: Option<&'static str>,
    },
}

/// How many or how long; none: unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// At least.
    pub min: Option<u64>,
    /// At most.
    pub max: Option<u64>,
}

/// A rule in CEL that a value must meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The expression; `self` is the value, `oldSelf` what it was.
    pub rule: &'static str,
    /// What is said when it does not hold.
    pub message: &'static str,
}

impl Schema {
    /// A schema of this shape and nothing else.
    pub fn new(shape: Shape) -> Schema {
        Schema {
            description: "".into(),
            shape,
            nullable: false,
            default: None,
            rules: Vec::new(),
            atomic: false,
            retain_keys: false,
            named: None,
        }
    }

    /// The same with this description.
    pub fn describe(mut self, description: impl Into<Arc<str>>) -> Schema {
        self.description = description.into();
        self
    }

    /// A text without further conditions.
    pub fn text() -> Schema {
        Schema::text_of(None)
    }

    /// A text of this `format`.
    pub fn text_of(format: Option<&'static str>) -> Schema {
        Schema::new(Shape::Text {
            format,
            pattern: None,
            values: Vec::new(),
            bounds: Bounds::default(),
        })
    }

    /// A whole number of this `format`.
    pub fn integer(format: &'static str) -> Schema {
        Schema::new(Shape::Integer {
            format,
            min: None,
            max: None,
        })
    }

    /// A list of these that merges as a whole.
    pub fn list(items: Arc<Schema>) -> Schema {
        Schema::new(Shape::List(items, ListKind::Atomic, Bounds::default()))
    }

    /// An object whose keys users choose.
    pub fn map(values: Arc<Schema>) -> Schema {
        Schema::new(Shape::Map(values, Bounds::default()))
    }

    /// The fields, if this is an object with known fields.
    pub fn fields(&self) -> Option<&Fields> {
        match &self.shape {
            Shape::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// The schema of a field of an object or of the values of a map.
    pub fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        match &self.shape {
            Shape::Object(fields) => fields.get(name),
            Shape::Map(values, _) => Some(values),
            _ => None,
        }
    }

    /// The schema of the items of a list.
    pub fn items(&self) -> Option<&Arc<Schema>> {
        match &self.shape {
            Shape::List(items, ..) => Some(items),
            _ => None,
        }
    }
}

/// All kinds, made once.
fn all() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| mesh::definitions().chain(core::definitions()).collect());
    &ALL
}
