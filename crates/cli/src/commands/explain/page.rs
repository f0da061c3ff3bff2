//! What is printed about a field.

use serde_json::Value as Json;

use super::schemas::Schemas;
use crate::server::Kind;
use crate::style::Paint;

/// How wide texts are.
const WIDTH: usize = 80;
/// How deep `--recursive` goes.
const MAX_DEPTH: usize = 24;

/// The text about a kind or a field.
pub(super) struct Page<'d> {
    pub(super) schemas: Schemas<'d>,
    pub(super) colour: bool,
    pub(super) recursive: bool,
    pub(super) out: String,
}

impl Page<'_> {
    pub(super) fn write(mut self, kind: &Kind, path: &[String], schema: &Json) -> String {
        if !kind.group.is_empty() {
            self.line(&format!("GROUP:      {}", kind.group));
        }
        self.line(&format!("KIND:       {}", kind.kind));
        self.line(&format!("VERSION:    {}\n", kind.version));
        // The page does not outlive the document, but the borrow checker sees the argument alone.
        let schemas = Schemas {
            document: self.schemas.document,
        };
        if let Some(field) = path.last() {
            let kind = schemas.type_of(schema, 0);
            let field = Paint::Bold.apply(field, self.colour);
            self.line(&format!("FIELD: {field} <{kind}>\n"));
        }
        self.line("DESCRIPTION:");
        let text = schemas.description(schema);
        self.text(if text.is_empty() { "<empty>" } else { text }, 4);
        self.values(schema, 4);
        let inner = schemas.inner(schema);
        if inner["properties"].is_object() {
            self.line("\nFIELDS:");
            self.fields(inner, 2, 0);
        }
        self.out
    }

    fn fields(&mut self, schema: &Json, indent: usize, depth: usize) {
        let schemas = Schemas {
            document: self.schemas.document,
        };
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        let mut fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, field) in fields {
            let required = if required.contains(&name.as_str()) {
                " -required-"
            } else {
                ""
            };
            let kind = Paint::Cyan.apply(&format!("<{}>", schemas.type_of(field, 0)), self.colour);
            let name = Paint::Bold.apply(name, self.colour);
            self.line(&format!("{}{name}\t{kind}{required}", " ".repeat(indent)));
            if self.recursive {
                let inner = schemas.inner(field);
                if depth < MAX_DEPTH && inner["properties"].is_object() {
                    self.fields(inner, indent + 2, depth + 1);
                }
                continue;
            }
            self.values(field, indent + 2);
            self.text(schemas.description(field), indent + 2);
            self.line("");
        }
    }

    fn values(&mut self, schema: &Json, indent: usize) {
        let values: Vec<String> = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(crate::jsonpath::text)
            .collect();
        if !values.is_empty() {
            self.text(&format!("one of: {}", values.join(", ")), indent);
        }
    }

    fn text(&mut self, text: &str, indent: usize) {
        for paragraph in text.split('\n') {
            let mut line = String::new();
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
                    self.line(&format!("{}{line}", " ".repeat(indent)));
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            if !line.is_empty() {
                self.line(&format!("{}{line}", " ".repeat(indent)));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(&crate::style::printable_paint(line));
        self.out.push('\n');
    }
}
