//! Templates of `-o jsonpath=…`: text with expressions in braces, which are a [`JsonPath`] (`{.spec.hosts[0]}`) or a quoted
//! string (`{"\n"}`). `range`, slices, unions and recursive descent are not supported: use `kubectl` or `-o json` with `jq` for
//! them.

use config::json_path::{JsonPath, JsonPathError, end_outside_quotes, json_text, quoted};
use serde_json::Value as Json;

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Text(String),
    Query(JsonPath),
}

impl Template {
    /// Parses a template. Text without braces that starts like a path is one path.
    pub(crate) fn parse(text: &str) -> Result<Template, JsonPathError> {
        if !text.contains('{') && text.starts_with(['.', '$', '[']) {
            return Ok(Template(vec![Piece::Query(JsonPath::parse(text)?)]));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let end = end_outside_quotes(after, '}')
                .ok_or_else(|| JsonPathError { text: text.to_owned(), problem: "a brace is not closed" })?;
            let inner = after[..end].trim();
            pieces.push(match quoted(inner) {
                Some(literal) => Piece::Text(unescaped(literal)),
                None => Piece::Query(JsonPath::parse(inner)?),
            });
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }

    /// Renders the template for a value. Several results of one path are separated by spaces.
    pub(crate) fn render(&self, value: &Json) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Query(path) => path.find(value).into_iter().map(json_text).collect::<Vec<_>>().join(" "),
        };
        self.0.iter().map(piece).collect()
    }
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next().map(|c| match c {
                'n' => '\n',
                't' => '\t',
                c => c,
            })),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn render(template: &str) -> String {
        let value = json!({"kind": "A", "spec": {"hosts": ["a", "b"], "n": 7, "a.b": true, "none": null},
            "status": {"conditions": [{"type": "X", "status": "no"}, {"type": "Y", "status": "yes"}]}});
        Template::parse(template).unwrap().render(&value)
    }

    #[test]
    fn templates_render() {
        for (template, expected) in [
            (".kind", "A"),
            ("{.kind}", "A"),
            ("{$.spec.hosts}", "[\"a\",\"b\"]"),
            ("{.spec.hosts[*]}", "a b"),
            ("{.spec.hosts[-1]}{\"\\n\"}", "b\n"),
            ("{.spec.hosts[9]}{.spec.none}{.nothing.at.all}", ""),
            ("{.spec.a\\.b}/{.spec['a.b']}", "true/true"),
            ("n={.spec.n}{'}'}", "n=7}"),
            ("{.status.conditions[?(@.type==\"Y\")].status}", "yes"),
            ("{.status.conditions[*].type}", "X Y"),
        ] {
            assert_eq!(render(template), expected, "{template}");
        }
    }

    #[test]
    fn syntax_errors_are_reported() {
        for text in ["{.a", "{.a[0}", "{.a[x]}", "{..a}", "{.a[?(@.b>1)]}", "{range .items[*]}", "{.a b}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-a.$@*\\[\\]{}()?='\"\\\\ 0-9]{0,30}") {
            if let Ok(template) = Template::parse(&text) {
                template.render(&json!({"a": [1, {"a": 2}]}));
            }
        }
    }
}
