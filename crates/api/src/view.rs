//! Representation of stored objects in the version and form that the client requests.

use std::fmt::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};
use config::schema::Definition;
use serde_json::{Map, Value, json};
use store::Stored;

use crate::answer::text;
use crate::media::{Form, Include};
use crate::table::{self, Table};

/// The representation of objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The kind.
    pub kind: &'static Definition,
    /// The requested version.
    pub version: &'static str,
    /// The requested form.
    pub form: Form,
    /// Whether the output is indented.
    pub pretty: bool,
    /// The current time in seconds since 1970, for ages.
    pub now: i64,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub revision: u64,
    pub token: Option<String>,
    pub remaining: Option<u64>,
}

impl View {
    /// The whole object in the requested version. Usually does not copy the content.
    pub(crate) fn whole(&self, stored: &Stored) -> Vec<Bytes> {
        if self.version == self.kind.versions[0].version {
            return vec![stored.json.clone()];
        }
        let from = format!("{{\"apiVersion\":\"{}\"", self.kind.api_version());
        let to = format!("{{\"apiVersion\":\"{}\"", self.kind.api_version_of(self.version));
        if stored.json.starts_with(from.as_bytes()) {
            return vec![to.into(), stored.json.slice(from.len()..)];
        }
        let mut value = stored.value();
        value["apiVersion"] = self.kind.api_version_of(self.version).into();
        vec![value.to_string().into()]
    }

    /// The response body for one object.
    pub(crate) fn one(&self, stored: &Stored) -> Vec<Bytes> {
        if self.pretty || self.form != Form::Whole {
            return vec![text(&self.value(stored), self.pretty)];
        }
        let mut pieces = self.whole(stored);
        pieces.push(Bytes::from_static(b"\n"));
        pieces
    }

    /// The response body for a list.
    pub(crate) fn list(&self, items: &[Stored], meta: &ListMeta) -> Vec<Bytes> {
        let metadata = list_meta(meta);
        let mut pieces = Vec::with_capacity(items.len() * 2 + 2);
        match self.form {
            Form::Table(include) => {
                let table = Table::of(self.kind);
                let mut rows = BytesMut::new();
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        rows.put_u8(b',');
                    }
                    rows.put_slice(self.row(&table, item, include).to_string().as_bytes());
                }
                let columns = Value::Array(table.columns());
                pieces.push(
                    format!(
                        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\
                         \"columnDefinitions\":{columns},\"rows\":["
                    )
                    .into(),
                );
                pieces.push(rows.freeze());
            }
            form => {
                let (kind, version) = match form {
                    Form::Partial => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
                    _ => (self.kind.list_kind(), self.kind.api_version_of(self.version)),
                };
                let head =
                    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
                pieces.push(head.into());
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        pieces.push(Bytes::from_static(b","));
                    }
                    match form {
                        Form::Partial => pieces.push(partial(&item.value()).to_string().into()),
                        _ => pieces.extend(self.whole(item)),
                    }
                }
            }
        }
        pieces.push(Bytes::from_static(b"]}\n"));
        if self.pretty { indented(&pieces) } else { pieces }
    }

    /// One line of a watch.
    pub(crate) fn event(&self, kind: &str, stored: &Stored) -> Bytes {
        let mut line = BytesMut::with_capacity(stored.json.len() + 64);
        line.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        match self.form {
            Form::Whole => self.whole(stored).into_iter().for_each(|piece| line.put(piece)),
            _ => line.put_slice(self.value(stored).to_string().as_bytes()),
        }
        line.put_slice(b"}\n");
        line.freeze()
    }

    /// A bookmark: everything up to this revision has been sent.
    pub(crate) fn bookmark(&self, revision: u64, initial: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let mut object = match self.form {
            Form::Partial => json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1" }),
            _ => json!({ "kind": self.kind.kind, "apiVersion": self.kind.api_version_of(self.version) }),
        };
        object["metadata"] = metadata;
        if let Form::Table(include) = self.form {
            let table = Table::of(self.kind);
            let row = json!({ "cells": table.cells(&object, self.now), "object": included(&object, include) });
            let metadata = json!({ "resourceVersion": revision.to_string() });
            object = table_of(table.columns(), metadata, row);
        }
        let mut line = json!({ "type": "BOOKMARK", "object": object }).to_string();
        line.push('\n');
        line.into()
    }

    /// The object in the requested form.
    pub(crate) fn value(&self, stored: &Stored) -> Value {
        let mut value = stored.value();
        value["apiVersion"] = self.kind.api_version_of(self.version).into();
        match self.form {
            Form::Whole => value,
            Form::Partial => partial(&value),
            Form::Table(include) => {
                let table = Table::of(self.kind);
                let metadata = json!({ "resourceVersion": stored.revision.to_string() });
                table_of(table.columns(), metadata, self.row_of(&table, &value, include))
            }
        }
    }

    /// A `Scale` as a table; none if the client did not request a table.
    pub(crate) fn scale(&self, scale: &Value) -> Option<Value> {
        let Form::Table(include) = self.form else {
            return None;
        };
        let row = json!({ "cells": table::scale_cells(scale, self.now), "object": included(scale, include) });
        let metadata = json!({ "resourceVersion": scale["metadata"]["resourceVersion"] });
        Some(table_of(table::scale_columns(), metadata, row))
    }

    fn row(&self, table: &Table, stored: &Stored, include: Include) -> Value {
        let mut value = stored.value();
        value["apiVersion"] = self.kind.api_version_of(self.version).into();
        self.row_of(table, &value, include)
    }

    fn row_of(&self, table: &Table, value: &Value, include: Include) -> Value {
        json!({ "cells": table.cells(value, self.now), "object": included(value, include) })
    }
}

/// A list's metadata as JSON text.
fn list_meta(meta: &ListMeta) -> String {
    let mut out = format!("{{\"resourceVersion\":\"{}\"", meta.revision);
    if let Some(token) = &meta.token {
        // Tokens are URL-safe base64 and need no escaping. Writing to a string cannot fail.
        let _ = write!(out, ",\"continue\":\"{token}\"");
    }
    if let Some(remaining) = meta.remaining.filter(|_| meta.token.is_some()) {
        let _ = write!(out, ",\"remainingItemCount\":{remaining}");
    }
    out.push('}');
    out
}

fn table_of(columns: Vec<Value>, metadata: Value, row: Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": [row],
    })
}

fn included(value: &Value, include: Include) -> Value {
    match include {
        Include::None => Value::Null,
        Include::Metadata => partial(value),
        Include::Object => value.clone(),
    }
}

fn partial(value: &Value) -> Value {
    let metadata = value.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

fn indented(pieces: &[Bytes]) -> Vec<Bytes> {
    let joined: Vec<u8> = pieces.concat();
    match serde_json::from_slice::<Value>(&joined) {
        Ok(value) => vec![text(&value, true)],
        // The text is always valid JSON; if not, it is sent unchanged.
        Err(_) => vec![joined.into()],
    }
}
