//! Tables of objects with the server's columns, or with name and age if the server sends no `Table`.

use serde_json::Value as Json;

use crate::age;
use crate::jsonpath;
use crate::server::Kind;
use crate::table::Table;

/// The columns of a table besides those of the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Show {
    /// The server's columns of low priority.
    pub(crate) wide: bool,
    /// The namespace.
    pub(crate) namespace: bool,
    /// All labels.
    pub(crate) labels: bool,
    /// A column for each of these labels.
    pub(crate) label_columns: Vec<String>,
    /// The kind, as a prefix of the name.
    pub(crate) kind: bool,
    /// The type of the watch event.
    pub(crate) event: bool,
}

/// A table of objects of one kind. Rows can be added after others were printed.
pub(crate) struct Rows<'k> {
    kind: &'k Kind,
    show: Show,
    /// The indexes of the selected server columns; none before the first `Table`.
    shown: Option<Vec<usize>>,
    table: Table,
}

impl<'k> Rows<'k> {
    pub(crate) fn new(kind: &'k Kind, show: Show) -> Rows<'k> {
        Rows {
            kind,
            show,
            shown: None,
            table: Table::default(),
        }
    }

    /// Adds the rows of a response: a `Table`, a list or an object. Returns the number of rows.
    pub(crate) fn add(&mut self, answer: &Json, event: &str) -> usize {
        let before = self.table.len();
        if answer["kind"] == "Table" {
            self.add_table(answer, event);
        } else if let Some(items) = answer["items"].as_array() {
            items.iter().for_each(|item| self.add_plain(item, event));
        } else {
            self.add_plain(answer, event);
        }
        self.table.len() - before
    }

    /// The lines added since the last call.
    pub(crate) fn lines(&mut self, headings: bool, color: bool) -> Vec<String> {
        self.table.lines(headings, color)
    }

    fn add_table(&mut self, answer: &Json, event: &str) {
        if self.shown.is_none() {
            let definitions = answer["columnDefinitions"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let is_shown = |column: &Json| self.show.wide || column["priority"].as_i64().unwrap_or(0) == 0;
            let shown: Vec<usize> = (0..definitions.len())
                .filter(|index| is_shown(&definitions[*index]))
                .collect();
            let names = shown
                .iter()
                .map(|index| definitions[*index]["name"].as_str().unwrap_or_default().to_uppercase());
            self.start(names.collect());
            self.shown = Some(shown);
        }
        let shown = self.shown.clone().unwrap_or_default();
        for row in answer["rows"].as_array().into_iter().flatten() {
            let cells = shown.iter().map(|index| cell(&row["cells"][*index])).collect();
            self.add_row(&row["object"], cells, event);
        }
    }

    fn add_plain(&mut self, object: &Json, event: &str) {
        if self.shown.is_none() {
            self.start(vec!["NAME".to_owned(), "AGE".to_owned()]);
            self.shown = Some(Vec::new());
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let cells = vec![text("name"), age::since(&text("creationTimestamp"))];
        self.add_row(object, cells, event);
    }

    fn start(&mut self, own: Vec<String>) {
        let mut headings = Vec::new();
        if self.show.event {
            headings.push("EVENT".to_owned());
        }
        if self.show.namespace {
            headings.push("NAMESPACE".to_owned());
        }
        headings.extend(own);
        for label in &self.show.label_columns {
            headings.push(label.rsplit('/').next().unwrap_or(label).to_uppercase());
        }
        if self.show.labels {
            headings.push("LABELS".to_owned());
        }
        self.table = Table::new(headings);
    }

    fn add_row(&mut self, object: &Json, mut own: Vec<String>, event: &str) {
        let meta = &object["metadata"];
        if let (true, Some(first)) = (self.show.kind, own.first_mut()) {
            *first = self.kind.named(first);
        }
        let mut cells = Vec::new();
        if self.show.event {
            cells.push(event.to_owned());
        }
        if self.show.namespace {
            cells.push(meta["namespace"].as_str().unwrap_or_default().to_owned());
        }
        cells.extend(own);
        for label in &self.show.label_columns {
            cells.push(meta["labels"][label].as_str().unwrap_or_default().to_owned());
        }
        if self.show.labels {
            cells.push(labels(&meta["labels"]));
        }
        self.table.row(cells);
    }
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => "<none>".to_owned(),
        value => jsonpath::text(value),
    }
}

/// Labels as `a=b,c=d`; `<none>` if there are none.
pub(crate) fn labels(labels: &Json) -> String {
    let mut all: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    all.sort();
    match all.is_empty() {
        true => "<none>".to_owned(),
        false => all.join(","),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn server_columns_are_selected_by_priority() {
        let kind = Kind {
            kind: "VirtualService".into(),
            group: "networking.istio.io".into(),
            ..Kind::default()
        };
        let table = json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Hosts"}, {"name": "Extra", "priority": 1}],
            "rows": [{"cells": ["a", ["x"], null], "object": {"metadata": {"namespace": "n", "labels": {"b/app": "web", "a": "1"}}}}]
        });
        let lines = |show| {
            let mut rows = Rows::new(&kind, show);
            assert_eq!(rows.add(&table, "ADDED"), 1);
            rows.lines(true, false)
        };
        assert_eq!(lines(Show::default()), ["NAME   HOSTS", "a      [\"x\"]"]);
        let all = Show {
            wide: true,
            namespace: true,
            labels: true,
            label_columns: vec!["b/app".into()],
            kind: true,
            event: true,
        };
        assert_eq!(
            lines(all),
            [
                "EVENT   NAMESPACE   NAME                                   HOSTS   EXTRA    APP   LABELS",
                "ADDED   n           virtualservice.networking.istio.io/a   [\"x\"]   <none>   web   a=1,b/app=web"
            ]
        );
    }

    #[test]
    fn lists_are_printed_with_name_and_age() {
        let kind = Kind::default();
        let mut rows = Rows::new(&kind, Show::default());
        rows.add(&json!({"items": [{"metadata": {"name": "a"}}]}), "");
        assert_eq!(rows.lines(true, false), ["NAME   AGE", "a      <unknown>"]);
    }
}
