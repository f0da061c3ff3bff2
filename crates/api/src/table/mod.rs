//! Tables for `kubectl get`.
//!
//! Columns come from the kind definitions. Most cells have a JSON path; cells that Kubernetes computes for core kinds are
//! computed with the same texts.

mod age;
mod core;
mod path;
mod pod;

use config::schema::{Column, Definition};
use serde_json::{Value, json};

/// The columns of a kind.
pub(crate) struct Table {
    kind: &'static Definition,
    cells: Vec<Cell>,
}

/// The content of a column.
enum Cell {
    Name,
    Age,
    Of(&'static Column),
}

impl Table {
    /// The columns of a kind: name, columns, age, and wide columns. Events have no name column.
    pub(crate) fn of(kind: &'static Definition) -> Table {
        let with = |wide: bool| {
            kind.columns
                .iter()
                .filter(move |c| (c.priority > 0) == wide)
                .map(Cell::Of)
        };
        let mut cells = Vec::new();
        if !kind.columns.iter().any(|column| column.name == "Name") {
            cells.push(Cell::Name);
        }
        // Kinds with their own age or creation column do not get another one.
        if kind.columns.iter().any(|column| column.path == MADE) {
            cells.extend(kind.columns.iter().map(Cell::Of));
        } else {
            cells.extend(with(false));
            if kind.kind != "Event" {
                cells.push(Cell::Age);
            }
            cells.extend(with(true));
        }
        Table { kind, cells }
    }

    /// The headings.
    pub(crate) fn columns(&self) -> Vec<Value> {
        let column = |name: &str, kind: &str, format: &str, description: &str, priority: u8| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
        self.cells
            .iter()
            .map(|cell| match cell {
                Cell::Name => column("Name", "string", "name", NAME, 0),
                Cell::Age => column("Age", "date", "", AGE, 0),
                Cell::Of(c) => column(c.name, c.kind, "", c.description, c.priority),
            })
            .collect()
    }

    /// The cells of an object.
    pub(crate) fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        self.cells
            .iter()
            .map(|cell| match cell {
                Cell::Name => object["metadata"]["name"].clone(),
                Cell::Age => age::since(&object["metadata"]["creationTimestamp"], now).into(),
                Cell::Of(column) => self.cell(column, object, now),
            })
            .collect()
    }

    fn cell(&self, column: &Column, object: &Value, now: i64) -> Value {
        if self.kind.builtin
            && let Some(cell) = core::cell(self.kind.kind, column.name, object, now)
        {
            return cell;
        }
        let found = path::find(object, column.path);
        let Some(value) = found.first().filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match column.kind {
            _ if column.path == MADE && column.name == "Age" => age::since(value, now).into(),
            "date" if column.path == MADE => (*value).clone(),
            "date" => age::since(value, now).into(),
            "integer" | "number" => {
                if value.is_number() {
                    (*value).clone()
                } else {
                    Value::Null
                }
            }
            "boolean" => {
                if value.is_boolean() {
                    (*value).clone()
                } else {
                    Value::Null
                }
            }
            _ => match value {
                Value::String(_) => (*value).clone(),
                other => other.to_string().into(),
            },
        }
    }
}

/// The headings of a `Scale`.
pub(crate) fn scale_columns() -> Value {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": 0 });
    json!([
        column("Name", "string", "name", NAME),
        column("Desired", "integer", "", "Desired number of replicas."),
        column("Available", "integer", "", "Current number of replicas."),
        column("Age", "date", "", AGE),
    ])
}

/// The cells of a `Scale`.
pub(crate) fn scale_cells(scale: &Value, now: i64) -> Value {
    json!([
        scale["metadata"]["name"],
        scale["spec"]["replicas"],
        scale["status"]["replicas"],
        age::since(&scale["metadata"]["creationTimestamp"], now),
    ])
}

const MADE: &str = ".metadata.creationTimestamp";
const NAME: &str = "Name, unique for the kind in its namespace.";
const AGE: &str = "Time since creation.";
