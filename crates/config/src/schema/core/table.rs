//! Parser of the tables of types: one block for each type, one line for each field.
//!
//! ```text
//! = PodSpec core.v1 -- Description.                 a type: name, package (or whole name), `atomic`, description
//! + Container                                       all fields of another type
//! containers! [Container] #2 by=name patch=name -- … a field: name, `!` if required, type, facts, description
//! ```
//!
//! `?` after a name: a zero (`""`, `0`, `false`) differs from an absent field. `#2`: the protobuf field number; `#2.1`:
//! the number in an embedded message, which JSON inlines. `+ Container #1` embeds another type.
//!
//! Types of fields: `text`, `int32`, `int64`, `bool`, `time`, `micro-time`, `bytes`, `quantity`, `any`, `IntOrString`,
//! `FieldsV1`, `ObjectMeta`, the name of a block, `[T]` for a list of T and `{T}` for a map to T. Facts: `by=` keys of
//! a list map, `patch=` its key in strategic merge patches, `patchonly=` the same for a list that is atomic otherwise,
//! `set`, `atomic`, `retain` (retainKeys), `null`, `default=` JSON without spaces, `in=` allowed values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::schema::{Fields, ListKind, Named, Schema, Shape, facts, meta};

/// The types of a table.
pub(super) struct Table {
    blocks: BTreeMap<&'static str, Block>,
    types: BTreeMap<&'static str, Arc<Schema>>,
    /// Errors in the table; a test checks that there are none.
    pub(super) faults: Vec<String>,
}

struct Block {
    full_name: &'static str,
    atomic: bool,
    description: &'static str,
    lines: Vec<&'static str>,
}

impl Table {
    /// Parses a table.
    pub(super) fn read(texts: &[&'static str]) -> Table {
        let mut table = Table { blocks: BTreeMap::new(), types: BTreeMap::new(), faults: Vec::new() };
        for text in texts {
            let mut current = None;
            for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
                match line.strip_prefix("= ") {
                    Some(head) => current = table.open(head),
                    None => match current.and_then(|name| table.blocks.get_mut(name)) {
                        Some(block) => block.lines.push(line),
                        None => table.faults.push(format!("a field outside a type: {line}")),
                    },
                }
            }
        }
        table
    }

    fn open(&mut self, head: &'static str) -> Option<&'static str> {
        let (words, description) = head.split_once(" -- ").unwrap_or((head, ""));
        let mut words = words.split(' ');
        let (name, package) = (words.next()?, words.next()?);
        let block = Block {
            full_name: full_name(package, name),
            atomic: words.next() == Some("atomic"),
            description,
            lines: Vec::new(),
        };
        if self.blocks.insert(name, block).is_some() {
            self.faults.push(format!("{name} is there twice"));
        }
        Some(name)
    }

    /// The full name of a type and its description.
    pub(super) fn named(&self, name: &str) -> Option<Named> {
        self.blocks.get(name).map(|block| Named { name: block.full_name, description: block.description.into() })
    }

    /// The lines of a type's fields.
    pub(super) fn lines(&self, name: &str) -> Option<&[&'static str]> {
        self.blocks.get(name).map(|block| &block.lines[..])
    }

    /// The fields of a type.
    pub(super) fn fields(&mut self, name: &str) -> Fields {
        let Some(block) = self.blocks.get(name) else {
            self.faults.push(format!("there is no type {name}"));
            return Fields::default();
        };
        let mut fields = Fields::default();
        for line in block.lines.clone() {
            match line.strip_prefix("+ ") {
                Some(other) => {
                    let inherited = self.fields(other.split(' ').next().unwrap_or_default());
                    fields.fields.extend(inherited.fields);
                    fields.required.extend(inherited.required);
                }
                None => self.field(line, &mut fields),
            }
        }
        fields
    }

    fn field(&mut self, line: &'static str, fields: &mut Fields) {
        let Some(read) = Line::read(line) else {
            return self.faults.push(format!("a field needs a type: {line}"));
        };
        let mut schema = (*self.resolve(read.of_type)).clone();
        schema.description = read.description.into();
        let mut facts = read.facts();
        if facts.any(|word| !apply(&mut schema, word)) || read.description.is_empty() {
            self.faults.push(format!("unclear: {line}"));
        }
        if read.required {
            fields.required.push(read.name);
        }
        fields.fields.push((read.name, Arc::new(schema)));
    }

    /// The schema of a type expression.
    pub(super) fn resolve(&mut self, of_type: &'static str) -> Arc<Schema> {
        if let Some(items) = of_type.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            return Arc::new(Schema::list(self.resolve(items)));
        }
        if let Some(values) = of_type.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            return Arc::new(Schema::map(self.resolve(values)));
        }
        if let Some(schema) = simple(of_type) {
            return schema;
        }
        if let Some(known) = self.types.get(of_type) {
            return known.clone();
        }
        let fields = self.fields(of_type);
        let mut schema = Schema::new(Shape::Object(fields));
        if let Some(block) = self.blocks.get(of_type) {
            schema.description = block.description.into();
            schema.atomic = block.atomic;
        }
        schema.named = self.named(of_type);
        let schema = Arc::new(schema);
        self.types.insert(of_type, schema.clone());
        schema
    }
}

/// A parsed line of a field.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Whether the field is required.
    pub(super) required: bool,
    /// Whether a zero differs from an absent field.
    pub(super) presence: bool,
    pub(super) of_type: &'static str,
    words: &'static str,
    description: &'static str,
}

impl Line {
    /// Returns none if the line is not a field.
    pub(super) fn read(line: &'static str) -> Option<Line> {
        let (words, description) = line.split_once(" -- ").unwrap_or((line, ""));
        let (name, words) = words.split_once(' ')?;
        let (of_type, words) = words.split_once(' ').unwrap_or((words, ""));
        let presence = name.ends_with('?');
        let name = name.trim_end_matches('?');
        Some(Line {
            name: name.trim_end_matches('!'),
            required: name.ends_with('!'),
            presence,
            of_type,
            words,
            description,
        })
    }

    fn facts(&self) -> impl Iterator<Item = &'static str> {
        self.words.split(' ').filter(|word| !word.is_empty() && !word.starts_with('#'))
    }

    /// Whether it has this fact.
    pub(super) fn has(&self, fact: &str) -> bool {
        self.facts().any(|word| word == fact)
    }

    /// Its protobuf field numbers, from the outermost message in; empty if it has none.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let found = self.words.split(' ').find_map(|word| word.strip_prefix('#'));
        found.map(numbers).unwrap_or_default()
    }
}

/// Parses `2.1` as the numbers 2 and 1.
pub(super) fn numbers(text: &str) -> Vec<u32> {
    text.split('.').filter_map(|number| number.parse().ok()).collect()
}

/// The types that are not blocks.
fn simple(of_type: &str) -> Option<Arc<Schema>> {
    let schema = match of_type {
        "text" => Schema::text(),
        "int32" => Schema::integer("int32"),
        "int64" => Schema::integer("int64"),
        "bool" => Schema::new(Shape::Boolean),
        "any" => Schema::new(Shape::Any),
        "bytes" => Schema::text_of(Some("byte")),
        "time" => meta::time(),
        "micro-time" => meta::named(
            Schema::text_of(Some("date-time")),
            "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            "A time in RFC 3339, with microseconds.",
        ),
        // Quantities may be written as numbers.
        "quantity" => meta::named(
            Schema::new(Shape::Any),
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            "A number with an optional unit, such as `m`, `Ki`, `M` or `Gi`.",
        ),
        "IntOrString" => meta::named(
            Schema::new(Shape::IntOrText),
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            "An integer or a string.",
        ),
        "FieldsV1" => meta::fields_v1(),
        "ObjectMeta" => return Some(meta::object_meta()),
        _ => return None,
    };
    Some(Arc::new(schema))
}

/// Applies a fact. Returns false if the fact is unknown.
fn apply(schema: &mut Schema, word: &'static str) -> bool {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    match key {
        "set" => facts::set(schema),
        "atomic" => schema.atomic = true,
        "retain" => schema.retain_keys = true,
        "null" => schema.nullable = true,
        "in" => facts::values_of(schema, &value.split('|').collect::<Vec<_>>()),
        "default" => match serde_json::from_str(value) {
            Ok(value) => schema.default = Some(value),
            Err(_) => return false,
        },
        "by" => value.split(',').for_each(|name| facts::key(schema, name)),
        "patch" => facts::patch_key(schema, value),
        "patchonly" => {
            let Shape::List(_, kind, _) = &mut schema.shape else {
                return false;
            };
            *kind = ListKind::Map { keys: vec![value], patch_key: Some(value) };
        }
        _ => return false,
    }
    true
}

/// The name of a type in the OpenAPI documents of Kubernetes. Leaked: it is made once.
fn full_name(package: &str, name: &str) -> &'static str {
    let is_whole = package.rsplit('.').next().is_some_and(|last| last.starts_with(char::is_uppercase));
    let name = match package {
        "meta.v1" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        whole if is_whole => format!("io.k8s.api.{whole}"),
        package => format!("io.k8s.api.{package}.{name}"),
    };
    Box::leak(name.into_boxed_str())
}
