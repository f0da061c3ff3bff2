//! The JSON paths of columns: `.spec.hosts`, `.a\.b`, `['a']`, `[0]`, `[*]`, `[?(@.type=="Ready")].status`.

use serde_json::Value;

/// The values that a path selects; empty if the path is invalid.
pub(super) fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![value];
    let mut rest = path;
    while !rest.is_empty() {
        let Some((step, after)) = step(rest) else {
            return Vec::new();
        };
        found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        rest = after;
    }
    found
}

enum Step {
    Field(String),
    Index(i64),
    All,
    Where { path: String, equals: String },
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(at) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let at = if *at < 0 { items.len() as i64 + at } else { *at };
                usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Where { path, equals } => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let fits = |item: &&Value| find(item, path).iter().any(|value| value.as_str() == Some(equals));
                items.iter().filter(fits).collect()
            }
        }
    }
}

/// The first step of a path, and the rest.
fn step(path: &str) -> Option<(Step, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let mut name = String::new();
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next()?.1),
                '.' | '[' => return Some((Step::Field(name), &rest[at..])),
                c => name.push(c),
            }
        }
        return Some((Step::Field(name), ""));
    }
    let inner = path.strip_prefix('[')?;
    if let Some(filter) = inner.strip_prefix("?(@") {
        let (filter, rest) = filter.split_once(")]")?;
        let (path, equals) = filter.split_once("==")?;
        let equals = equals.trim().trim_matches(['"', '\'']).to_owned();
        let path = path.trim().to_owned();
        return Some((Step::Where { path, equals }, rest));
    }
    let (inside, rest) = inner.split_once(']')?;
    let step = match inside {
        "*" => Step::All,
        text if text.starts_with(['\'', '"']) => Step::Field(text.trim_matches(['\'', '"']).to_owned()),
        number => Step::Index(number.parse().ok()?),
    };
    Some((step, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_somewhere_or_nowhere() {
        let value = json!({
            "spec": { "hosts": ["a", "b"], "x.y": 1 },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] },
        });
        for (path, found) in [
            (".spec.hosts", "[[\"a\",\"b\"]]"),
            (".spec.hosts[0]", "[\"a\"]"),
            (".spec.hosts[-1]", "[\"b\"]"),
            (".spec.hosts[*]", "[\"a\",\"b\"]"),
            (r".spec.x\.y", "[1]"),
            (".spec['x.y']", "[1]"),
            (".status.conditions[?(@.type==\"Ready\")].status", "[\"True\"]"),
            (".status.conditions[?(@.type==\"No\")].status", "[]"),
            (".spec.hosts[9]", "[]"),
            (".none.at.all", "[]"),
            ("[", "[]"),
            ("spec", "[]"),
        ] {
            assert_eq!(json!(find(&value, path)).to_string(), found, "{path}");
        }
    }
}
