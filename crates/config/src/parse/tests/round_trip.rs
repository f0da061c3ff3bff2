//! For every kind, a value that conforms to the schema is the same after decoding, encoding and decoding.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::same_spec;
use crate::decode::{Decoder, Problem, Unknown};
use crate::object::Meta;
use crate::parse::{conform, json, object};
use crate::problem::FieldPath;
use crate::schema::{Bounds, Fields, Schema, Shape};
use crate::yaml::Node;
use crate::{AnyObject, Kind};

/// Texts of many formats, so that some match every pattern of a schema.
const TEXTS: &[&str] = &[
    "a",
    "b",
    "",
    "A",
    "x-a",
    "a.example.com",
    "*.example.com",
    "10.0.0.1",
    "/a",
    "/b%20c",
    "1s",
    "1h30m",
    "250ms",
    "1500ms",
    "1.5s",
    "0s",
    "System",
    "IPAddress",
    "HTTP",
    "example.com/a",
    "https://a.example.com",
    "*",
    "a b",
    "Ready",
    "8080",
    "true",
    "null",
    "1e3",
    "\u{e4}\n",
];

/// Choices made by a sequence of bytes. At its end, every choice is the least.
struct Choices<'b>(std::slice::Iter<'b, u8>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.0.next().map_or(0, |byte| usize::from(*byte) % count.max(1))
    }

    fn value(&mut self, schema: &Schema) -> Json {
        match &schema.shape {
            Shape::Object(fields) => Json::Object(self.object(fields)),
            Shape::Map(values, bounds) => {
                let count = self.count(*bounds);
                let keys = ["a", "b", "example.com/c", "d"];
                let entry = |key: &&str| ((*key).to_owned(), self.value(values));
                Json::Object(keys.iter().take(count).map(entry).collect())
            }
            Shape::List(items, _, bounds) => (0..self.count(*bounds)).map(|_| self.value(items)).collect(),
            Shape::Text { values, .. } if !values.is_empty() => json!(values[self.below(values.len())]),
            Shape::Text { format, pattern, bounds, .. } => self.text(*format, *pattern, *bounds),
            Shape::Integer { min, max, .. } => {
                let (min, max) = (min.unwrap_or(-3), max.unwrap_or(1 << 31));
                let near = i64::try_from(self.below(5)).unwrap();
                json!(if self.below(2) == 0 { min + near.min(max - min) } else { max - near.min(max - min) })
            }
            Shape::Number { min, max } => {
                let step = [0.0, 0.5, 0.1][self.below(3)];
                json!(min.unwrap_or(-1.0).max(max.unwrap_or(1.0) - 1.0) + step)
            }
            Shape::Boolean => json!(self.below(2) == 1),
            Shape::IntOrText => [json!(1), json!("a")][self.below(2)].clone(),
            Shape::Any => [json!({ "a": [1, "b", null] }), json!({}), json!("1")][self.below(3)].clone(),
        }
    }

    fn object(&mut self, fields: &Fields) -> Map<String, Json> {
        let mut out = Map::new();
        if fields.open && fields.fields.is_empty() && self.below(2) == 1 {
            out.insert("own".into(), json!({ "x": [1.5, true] }));
        }
        let mut left_out: Vec<&str> = Vec::new();
        for group in &fields.exclusive {
            let kept = self.below(group.len());
            left_out.extend(group.iter().enumerate().filter(|(n, _)| *n != kept).map(|(_, name)| *name));
        }
        for (name, schema) in &fields.fields {
            let wanted = fields.required.contains(name) || (self.below(3) == 1 && !left_out.contains(name));
            if wanted {
                out.insert((*name).to_owned(), self.value(schema));
            }
        }
        out
    }

    fn count(&mut self, bounds: Bounds) -> usize {
        let least = usize::try_from(bounds.min.unwrap_or(0)).unwrap();
        let most = bounds.max.map_or(3, |max| usize::try_from(max).unwrap());
        (least + self.below(3)).min(most)
    }

    fn text(&mut self, format: Option<&str>, pattern: Option<&'static str>, bounds: Bounds) -> Json {
        let formed: &[&str] = match format {
            Some("duration") => &["1s", "0.1s", "1h30m", "0s"],
            Some("date-time") => &["2026-08-02T10:00:00Z", "2026-08-02T10:00:00.5+02:00"],
            Some("byte") => &["Zm8=", ""],
            _ => TEXTS,
        };
        let fits = |text: &&&str| {
            let length = text.chars().count() as u64;
            bounds.min.is_none_or(|min| length >= min)
                && bounds.max.is_none_or(|max| length <= max)
                && pattern.is_none_or(|pattern| matches(pattern, text))
        };
        let fitting: Vec<&&str> = formed.iter().filter(fits).collect();
        assert!(!fitting.is_empty(), "none of the texts has the form {format:?}, {pattern:?}, {bounds:?}");
        json!(fitting[self.below(fitting.len())])
    }
}

/// Whether a text matches a pattern; each is compiled once.
fn matches(pattern: &'static str, text: &str) -> bool {
    static COMPILED: Mutex<BTreeMap<&str, Regex>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("no panic while it was locked");
    let regex = compiled.entry(pattern);
    regex.or_insert_with(|| Regex::new(pattern).expect("a pattern")).is_match(text)
}

/// The tree of an object of the kind.
fn tree(kind: Kind, spec: &Json) -> Node {
    let whole = json!({ "apiVersion": kind.api_version(), "kind": kind.name(), "spec": spec });
    json::node(&whole, 64).expect("not too deep")
}

fn read(kind: Kind, root: &Node) -> (Option<AnyObject>, Vec<Problem>) {
    let mut cx = Decoder::new(Unknown::Refuse, 100);
    let object = object::decode_any(kind, root, Meta::new(kind, "default", "a"), &mut cx);
    (object, cx.into_problems())
}

fn against_schema(kind: Kind, root: &Node) -> Vec<Problem> {
    let spec = root.get("spec").expect("a spec");
    conform::check(spec, spec.at, &plain(&kind.content_schema()), FieldPath::spec(), 100)
}

/// The schema without the checks of the control plane, whose formats the generated texts do not have.
fn plain(schema: &Schema) -> Schema {
    let inner = |schema: &Arc<Schema>| Arc::new(plain(schema));
    let shape = match &schema.shape {
        Shape::Object(fields) => Shape::Object(Fields {
            fields: fields.fields.iter().map(|(name, schema)| (*name, inner(schema))).collect(),
            ..fields.clone()
        }),
        Shape::Map(values, bounds) => Shape::Map(inner(values), *bounds),
        Shape::List(items, kind, bounds) => Shape::List(inner(items), kind.clone(), *bounds),
        shape => shape.clone(),
    };
    let checks = Vec::new();
    Schema { shape, checks, ..schema.clone() }
}

/// Whether the object conforms to its schema.
fn there_and_back(kind: Kind, bytes: &[u8]) -> Result<bool, TestCaseError> {
    let schema: Arc<Schema> = kind.content_schema();
    let spec = Choices(bytes.iter()).value(&schema);
    let root = tree(kind, &spec);
    let (object, problems) = read(kind, &root);
    // Schemas do not express everything, for example that a text is a number.
    let Some(object) = object.filter(|_| problems.is_empty()) else {
        return Ok(false);
    };
    let written = object.spec_json();
    let root_again = tree(kind, &written);
    let (again, problems) = read(kind, &root_again);
    prop_assert!(problems.is_empty(), "{kind}: {spec} becomes {written}: {problems:?}");
    let again = again.expect("an object without problems");
    prop_assert!(same_spec(&again, &object), "{kind}: {spec} becomes {written}, which is {:?}", again);
    prop_assert_eq!(&again.spec_json(), &written);
    let good = against_schema(kind, &root).is_empty();
    if good {
        let problems = against_schema(kind, &root_again);
        prop_assert!(problems.is_empty(), "{kind}: {spec} becomes {written}: {problems:?}");
    }
    Ok(good)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_a_schema_admits_is_written_as_it_is_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for kind in Kind::ALL.iter().filter(|kind| kind.is_complete()) {
            there_and_back(*kind, &bytes)?;
        }
    }
}

/// The property is not vacuous: most generated objects of every kind are valid.
#[test]
fn most_objects_of_every_kind_are_good() {
    for kind in Kind::ALL.iter().copied().filter(|kind| kind.is_complete()) {
        let tries = (0..40u8).map(|seed| {
            let bytes: Vec<u8> =
                (0..400u16).map(|n| (n as u8).wrapping_mul(37).rotate_left(3) ^ seed.wrapping_mul(91)).collect();
            there_and_back(kind, &bytes).unwrap()
        });
        let good = tries.filter(|good| *good).count();
        assert!(good >= 30, "{kind}: {good} of 40");
    }
}
