//! JSON parsing with limits and detection of duplicate keys.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};

use crate::decode::{DecodeError, Decoded, Limits};

/// Maximum number of reported duplicates.
const MAX_DUPLICATES: usize = 100;

/// Parses JSON text. The last value of a duplicate key is used.
pub(super) fn read(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut state = State {
        path: Vec::new(),
        duplicates: BTreeSet::new(),
        nodes: limits.nodes,
        depth: limits.depth,
        exceeded: None,
    };
    let mut input = serde_json::Deserializer::from_slice(body);
    let read = Node(&mut state).deserialize(&mut input).and_then(|value| input.end().map(|()| value));
    match (read, state.exceeded) {
        (_, Some(what)) => Err(DecodeError::TooLarge(what)),
        (Ok(object), None) => Ok(Decoded { object, duplicates: state.duplicates.into_iter().collect() }),
        (Err(error), None) => Err(DecodeError::Malformed(format!("json parse error: {error}"))),
    }
}

enum Step {
    Field(String),
    Index(usize),
}

struct State {
    path: Vec<Step>,
    duplicates: BTreeSet<String>,
    nodes: usize,
    depth: usize,
    exceeded: Option<String>,
}

impl State {
    fn duplicate(&mut self, name: &str) {
        if self.duplicates.len() >= MAX_DUPLICATES {
            return;
        }
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => text.extend([".", name]),
                // Writing to a string cannot fail.
                Step::Index(index) => drop(write!(text, "[{index}]")),
            }
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        self.duplicates.insert(text);
    }

    fn count<E: Error>(&mut self) -> Result<(), E> {
        match self.nodes.checked_sub(1) {
            Some(left) => self.nodes = left,
            None => return Err(self.exceed("the body has too many values")),
        }
        if self.path.len() > self.depth {
            return Err(self.exceed("the body is nested too deeply"));
        }
        Ok(())
    }

    fn exceed<E: Error>(&mut self, what: &str) -> E {
        self.exceeded = Some(what.to_owned());
        E::custom(what)
    }
}

struct Node<'s>(&'s mut State);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Json;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Json, D::Error> {
        self.0.count()?;
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut out = Vec::new();
        loop {
            self.0.path.push(Step::Index(out.len()));
            let item = items.next_element_seed(Node(&mut *self.0))?;
            self.0.path.pop();
            match item {
                Some(item) => out.push(item),
                None => return Ok(Json::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut out = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if out.contains_key(&name) {
                self.0.duplicate(&name);
            }
            self.0.path.push(Step::Field(name));
            let value = fields.next_value_seed(Node(&mut *self.0))?;
            if let Some(Step::Field(name)) = self.0.path.pop() {
                out.insert(name, value);
            }
        }
        Ok(Json::Object(out))
    }
}
