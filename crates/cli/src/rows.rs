//! Tables of objects with the server's columns, or with name and age if the server sends no `Table`.

use clap::ArgMatches;
use config::json_path::json_text;
use serde_json::Value as Json;

use crate::age;
use crate::output::{self, Format};
use crate::server::Kind;
use crate::table::Table;
use crate::targets::Selection;

/// The columns of a table besides those of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Show {
    /// The server's columns of low priority.
    pub(crate) wide: bool,
    /// The namespace.
    pub(crate) namespace: bool,
    /// The kind, as a prefix of the name.
    pub(crate) kind: bool,
}

impl Show {
    /// The columns for objects that the command line selects.
    pub(crate) fn of(matches: &ArgMatches, one: &Selection, kind: bool) -> Show {
        Show {
            wide: output::of(matches) == Some(Format::Table { wide: true }),
            namespace: one.namespace.is_none() && one.kind.namespaced,
            kind,
        }
    }
}

/// A table of objects of one kind. Rows can be added after others were printed.
pub(crate) struct Rows<'k> {
    kind: &'k Kind,
    show: Show,
    /// The headings of the selected server columns and their indexes. Only the first event of a watch describes them.
    columns: Vec<(usize, String)>,
    /// None before the first row.
    table: Option<Table>,
}

impl<'k> Rows<'k> {
    pub(crate) fn new(kind: &'k Kind, show: Show) -> Rows<'k> {
        Rows { kind, show, columns: Vec::new(), table: None }
    }

    /// The number of rows not yet printed.
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, Table::len)
    }

    /// Adds the rows of a response: a `Table`, a list or an object.
    pub(crate) fn add(&mut self, answer: &Json) {
        if answer["kind"] == "Table" {
            self.add_table(answer);
        } else if let Some(items) = answer["items"].as_array() {
            items.iter().for_each(|item| self.add_plain(item));
        } else {
            self.add_plain(answer);
        }
    }

    /// The lines of the rows added since the last call. The first row is preceded by the headings.
    pub(crate) fn lines(&mut self, headings: bool, color: bool) -> Vec<String> {
        self.table.as_mut().map_or(Vec::new(), |table| table.lines(headings, color))
    }

    fn add_table(&mut self, answer: &Json) {
        if let Some(columns) = answer["columnDefinitions"].as_array().filter(|columns| !columns.is_empty()) {
            let shown = columns.iter().enumerate();
            let shown = shown.filter(|(_, column)| self.show.wide || column["priority"].as_i64().unwrap_or(0) == 0);
            let name = |column: &Json| column["name"].as_str().unwrap_or_default().to_uppercase();
            self.columns = shown.map(|(index, column)| (index, name(column))).collect();
        }
        let (shown, names): (Vec<usize>, Vec<String>) = self.columns.iter().cloned().unzip();
        for row in answer["rows"].as_array().into_iter().flatten() {
            let cells = shown.iter().map(|index| cell(&row["cells"][*index])).collect();
            self.add_row(&names, &row["object"]["metadata"], cells);
        }
    }

    fn add_plain(&mut self, object: &Json) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let cells = vec![text("name"), age::since(&text("creationTimestamp"))];
        self.add_row(&["NAME".to_owned(), "AGE".to_owned()], &object["metadata"], cells);
    }

    fn add_row(&mut self, headings: &[String], meta: &Json, mut cells: Vec<String>) {
        let namespace = self.show.namespace;
        let table = self.table.get_or_insert_with(|| {
            let namespace = namespace.then_some("NAMESPACE".to_owned());
            Table::new(namespace.into_iter().chain(headings.iter().cloned()))
        });
        if let (true, Some(first)) = (self.show.kind, cells.first_mut()) {
            *first = self.kind.named(first);
        }
        if namespace {
            cells.insert(0, meta["namespace"].as_str().unwrap_or_default().to_owned());
        }
        table.row(cells);
    }
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => "<none>".to_owned(),
        value => json_text(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn server_columns_are_selected_by_priority() {
        let kind = Kind { kind: "VirtualService".into(), group: "networking.istio.io".into(), ..Kind::default() };
        let table = json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Hosts"}, {"name": "Extra", "priority": 1}],
            "rows": [{"cells": ["a", ["x"], null], "object": {"metadata": {"namespace": "n"}}}]
        });
        let lines = |show| {
            let mut rows = Rows::new(&kind, show);
            rows.add(&table);
            assert_eq!(rows.len(), 1);
            rows.lines(true, false)
        };
        assert_eq!(lines(Show::default()), ["NAME   HOSTS", "a      [\"x\"]"]);
        let all = Show { wide: true, namespace: true, kind: true };
        assert_eq!(
            lines(all),
            [
                "NAMESPACE   NAME                                   HOSTS   EXTRA",
                "n           virtualservice.networking.istio.io/a   [\"x\"]   <none>"
            ]
        );
    }

    #[test]
    fn later_events_of_a_watch_have_no_column_definitions() {
        let kind = Kind::default();
        let mut rows = Rows::new(&kind, Show::default());
        let event =
            |columns: Json| json!({"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": ["a", 1]}]});
        rows.add(&event(json!([{"name": "Name"}, {"name": "Data"}])));
        assert_eq!(rows.lines(true, false), ["NAME   DATA", "a      1"]);
        rows.add(&event(Json::Null));
        assert_eq!(rows.lines(true, false), ["a      1"]);
    }

    #[test]
    fn lists_are_printed_with_name_and_age() {
        let kind = Kind::default();
        let mut rows = Rows::new(&kind, Show::default());
        rows.add(&json!({"items": [{"metadata": {"name": "a"}}]}));
        assert_eq!(rows.lines(true, false), ["NAME   AGE", "a      <unknown>"]);
    }
}
