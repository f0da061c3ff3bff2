//! Tables for `kubectl get`.
//!
//! Columns come from the kind definitions. Most cells have a JSON path; cells that Kubernetes computes for core kinds are
//! computed with the same texts.

mod core;
mod pod;

use config::Timestamp;
use config::json_path::{JsonPath, json_text};
use config::schema::{Column, Definition};
use serde_json::{Value, json};

/// The time since a timestamp; `now` is in seconds since 1970.
fn since(time: &Value, now: i64) -> String {
    let time = time.as_str().and_then(Timestamp::parse);
    time.map_or_else(|| "<unknown>".into(), |time| time.age(now))
}

/// The columns of a kind.
pub(crate) struct Table {
    kind: &'static Definition,
    cells: Vec<Cell>,
}

/// The content of a column.
enum Cell {
    Name,
    Age,
    /// A column and its path; none if the cell is only computed.
    Of(&'static Column, Option<JsonPath>),
}

impl Cell {
    fn of(column: &'static Column) -> Cell {
        Cell::Of(column, JsonPath::parse(column.path).ok())
    }
}

impl Table {
    /// The columns of a kind: name, columns, age, and wide columns. Events have no name column.
    pub(crate) fn of(kind: &'static Definition) -> Table {
        let with = |wide: bool| kind.columns.iter().filter(move |c| (c.priority > 0) == wide).map(Cell::of);
        let mut cells = Vec::new();
        if !kind.columns.iter().any(|column| column.name == "Name") {
            cells.push(Cell::Name);
        }
        // Kinds with their own age or creation column do not get another one.
        if kind.columns.iter().any(|column| column.path == MADE) {
            cells.extend(kind.columns.iter().map(Cell::of));
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
        self.cells
            .iter()
            .map(|cell| match cell {
                Cell::Name => heading("Name", "string", "name", NAME, 0),
                Cell::Age => heading("Age", "date", "", AGE, 0),
                Cell::Of(c, _) => heading(c.name, c.kind, "", c.description, c.priority),
            })
            .collect()
    }

    /// The cells of an object.
    pub(crate) fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        self.cells
            .iter()
            .map(|cell| match cell {
                Cell::Name => object["metadata"]["name"].clone(),
                Cell::Age => since(&object["metadata"]["creationTimestamp"], now).into(),
                Cell::Of(column, path) => self.cell(column, path.as_ref(), object, now),
            })
            .collect()
    }

    fn cell(&self, column: &Column, path: Option<&JsonPath>, object: &Value, now: i64) -> Value {
        if self.kind.builtin
            && let Some(cell) = computed(self.kind.kind, column.name, object, now)
        {
            return cell;
        }
        let found = path.and_then(|path| path.find(object).into_iter().next());
        let Some(value) = found.filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        let only = |fits: bool| if fits { value.clone() } else { Value::Null };
        match column.kind {
            _ if column.path == MADE && column.name == "Age" => since(value, now).into(),
            "date" if column.path == MADE => value.clone(),
            "date" => since(value, now).into(),
            "integer" | "number" => only(value.is_number()),
            "boolean" => only(value.is_boolean()),
            _ => json_text(value).into(),
        }
    }
}

/// The computed cell of a column of a core kind; none if the column has a JSON path.
fn computed(kind: &str, column: &str, object: &Value, now: i64) -> Option<Value> {
    let column = column.to_ascii_lowercase();
    match kind {
        "Pod" => pod::cell(&column, object, now),
        kind => core::cell(kind, &column, object, now),
    }
}

/// The computed cells of these columns, for tests.
#[cfg(test)]
fn computed_cells(kind: &str, columns: &[&str], object: Value) -> Value {
    columns.iter().map(|column| computed(kind, column, &object, 1000).unwrap()).collect()
}

fn heading(name: &str, kind: &str, format: &str, description: &str, priority: u8) -> Value {
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

/// The headings of a `Scale`.
pub(crate) fn scale_columns() -> Vec<Value> {
    vec![
        heading("Name", "string", "name", NAME, 0),
        heading("Desired", "integer", "", "Desired number of replicas.", 0),
        heading("Available", "integer", "", "Current number of replicas.", 0),
        heading("Age", "date", "", AGE, 0),
    ]
}

/// The cells of a `Scale`.
pub(crate) fn scale_cells(scale: &Value, now: i64) -> Value {
    json!([
        scale["metadata"]["name"],
        scale["spec"]["replicas"],
        scale["status"]["replicas"],
        since(&scale["metadata"]["creationTimestamp"], now),
    ])
}

const MADE: &str = ".metadata.creationTimestamp";
const NAME: &str = "Name, unique for the kind in its namespace.";
const AGE: &str = "Time since creation.";
