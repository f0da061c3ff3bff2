//! Schemas of all kinds.
//!
//! Decoding checks objects against a [`Schema`]. OpenAPI documents and CRDs are printed from it, and it decides how
//! patches merge. For the kinds of Istio and of the Gateway API, the macros that declare the Rust types (`message!` and
//! others) also make the schemas. The Rust types of core kinds have only the fields that a mesh reads; a table declares
//! their schemas.
//!
//! A [`Definition`] describes a kind: names, versions, scope, columns, schema.

#[macro_use]
pub(crate) mod facts;
mod check;
mod core;
mod crd;
mod definition;
mod mesh;
mod meta;
mod normalize;
pub mod openapi;
mod pattern;
mod print;
pub mod wire;

#[cfg(test)]
mod tests;

pub(crate) use check::Check;
pub use crd::crd;
pub use definition::{Column, Definition, Served, definitions, find, find_kind};
pub use meta::object_meta;
pub use normalize::{Normalization, normalize};
pub use pattern::matches;
pub use print::to_openapi;

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value as Json};

/// The schema of a value. It is structural, as Kubernetes defines the term: every level has one type with known fields.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The description.
    pub description: Arc<str>,
    /// The shape.
    pub shape: Shape,
    /// Whether null differs from an absent field.
    pub nullable: bool,
    /// The default.
    pub default: Option<Json>,
    /// CEL rules (`x-kubernetes-validations`).
    pub rules: Vec<Rule>,
    /// Whether an object or map is replaced as a whole when patches merge (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether a strategic merge patch removes fields that it does not contain (`retainKeys`), from the object or from
    /// the items of a list.
    pub retain_keys: bool,
    /// The named type in OpenAPI documents, if any.
    pub named: Option<Named>,
    /// Checks of the control plane, which are not part of CRDs.
    pub(crate) checks: Vec<Check>,
    /// Another spelling of the field's name, which published CRDs have, too.
    pub(crate) spelling: Option<&'static str>,
}

/// A type with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The name in OpenAPI documents, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// The description of the type. The schema of a field has the description of the field.
    pub description: Arc<str>,
}

/// The shape of a value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// An object with these fields.
    Object(Fields),
    /// An object whose keys users choose.
    Map(Arc<Schema>, Bounds),
    /// A list.
    List(Arc<Schema>, ListKind, Bounds),
    /// A string.
    Text {
        /// OpenAPI's `format`: `date-time`, `byte`, …
        format: Option<&'static str>,
        /// A regular expression (RE2) that it must match.
        pattern: Option<&'static str>,
        /// The allowed values; empty if all are.
        values: Vec<&'static str>,
        /// Length in characters.
        bounds: Bounds,
    },
    /// An integer.
    Integer {
        /// `int32` or `int64`.
        format: &'static str,
        /// The minimum.
        min: Option<i64>,
        /// The maximum.
        max: Option<i64>,
    },
    /// A number.
    Number {
        /// The minimum.
        min: Option<f64>,
        /// The maximum.
        max: Option<f64>,
    },
    /// A boolean.
    Boolean,
    /// An integer or a string (`x-kubernetes-int-or-string`).
    IntOrText,
    /// Any value (`x-kubernetes-preserve-unknown-fields`).
    Any,
}

/// The fields of an object.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The name of the Rust type that declares the fields; empty if a table declares them.
    pub message: &'static str,
    /// The fields, by their names in JSON, in the order of declaration.
    pub fields: Vec<(&'static str, Arc<Schema>)>,
    /// Required fields.
    pub required: Vec<&'static str>,
    /// Groups of fields of which at most one may be set (`oneof`).
    pub exclusive: Vec<Vec<&'static str>>,
    /// Other spellings of names that published CRDs have as fields of their own, and the fields they stand for.
    pub spellings: Vec<(&'static str, &'static str)>,
    /// Whether unknown fields are preserved.
    pub open: bool,
}

impl Fields {
    /// No fields yet, of the message with this name.
    pub(crate) fn of_message(message: &'static str) -> Fields {
        Fields { message, ..Fields::default() }
    }

    /// The schema of a field, by any of its spellings.
    pub fn get(&self, name: &str) -> Option<&Arc<Schema>> {
        let spelling = self.spellings.iter().find(|(spelling, _)| *spelling == name);
        let name = spelling.map_or(name, |(_, field)| field);
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, schema)| schema)
    }
}

/// How a list merges (`x-kubernetes-list-type` and `x-kubernetes-patch-*`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ListKind {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// A set of scalars.
    Set,
    /// A list of objects that is keyed by these fields. Strategic merge patches identify the items by `patch_key`.
    Map {
        /// The keys (`x-kubernetes-list-map-keys`).
        keys: Vec<&'static str>,
        /// `x-kubernetes-patch-merge-key`, with the strategy `merge`.
        patch_key: Option<&'static str>,
    },
}

/// Bounds of a length or number of entries. None means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// The minimum.
    pub min: Option<u64>,
    /// The maximum.
    pub max: Option<u64>,
}

/// A CEL rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The expression. `self` is the value, `oldSelf` the value before the update.
    pub rule: &'static str,
    /// The message if the rule is violated.
    pub message: &'static str,
}

impl Schema {
    /// A schema with this shape.
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
            spelling: None,
            checks: Vec::new(),
        }
    }

    /// The same with this description.
    pub fn describe(mut self, description: impl Into<Arc<str>>) -> Schema {
        self.description = description.into();
        self
    }

    /// A string.
    pub fn text() -> Schema {
        Schema::text_of(None)
    }

    /// A string of this `format`.
    pub fn text_of(format: Option<&'static str>) -> Schema {
        Schema::new(Shape::Text { format, pattern: None, values: Vec::new(), bounds: Bounds::default() })
    }

    /// An integer of this `format`.
    pub fn integer(format: &'static str) -> Schema {
        Schema::new(Shape::Integer { format, min: None, max: None })
    }

    /// An atomic list.
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

    /// The values of the keys of an item of a list map; `self` is the schema of the items. None if the item is not an
    /// object.
    pub fn identity(&self, item: &Json, keys: &[&'static str]) -> Option<Json> {
        let object = item.as_object()?;
        let mut identity = Map::new();
        for key in keys {
            let default = || self.field(key).and_then(|schema| schema.default.as_ref());
            if let Some(value) = object.get(*key).or_else(default) {
                identity.insert((*key).to_owned(), value.clone());
            }
        }
        Some(Json::Object(identity))
    }

    /// The schema of the items of a list.
    pub fn items(&self) -> Option<&Arc<Schema>> {
        match &self.shape {
            Shape::List(items, ..) => Some(items),
            _ => None,
        }
    }
}

/// All definitions.
fn all() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| mesh::definitions().chain(core::definitions()).collect());
    &ALL
}
