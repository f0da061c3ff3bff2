//! Conditions on texts and changes of paths in one form.

use serde_json::Value as Json;

/// A condition on a text. Regular expressions that mean one of the others are never [`Text::Regex`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Text {
    Exact(String),
    Prefix(String),
    Regex(String),
    /// In any other form.
    Other(String),
}

impl Text {
    /// A regular expression that matches a whole text.
    pub(crate) fn of_regex(regex: &str) -> Text {
        match (unquoted(regex), regex.strip_suffix(".*").and_then(unquoted)) {
            (Some(text), _) => Text::Exact(text),
            (None, Some(text)) => Text::Prefix(text),
            (None, None) => Text::Regex(regex.to_owned()),
        }
    }

    /// A string matcher.
    pub(super) fn of_matcher(matcher: &Json) -> Text {
        let text = |field: &str| matcher[field].as_str();
        let plain = matcher["ignoreCase"] != true;
        match (text("exact"), text("prefix"), matcher["safeRegex"]["regex"].as_str()) {
            (Some(exact), _, _) if plain => Text::Exact(exact.to_owned()),
            (_, Some(prefix), _) if plain => Text::Prefix(prefix.to_owned()),
            (_, _, Some(regex)) if plain => Text::of_regex(regex),
            _ => Text::Other(matcher.to_string()),
        }
    }

    /// Whether each text that matches `other` matches this, too.
    pub(crate) fn covers(&self, other: &Text) -> bool {
        match (self, other) {
            (Text::Prefix(prefix), Text::Exact(text) | Text::Prefix(text)) => text.starts_with(prefix.as_str()),
            (Text::Prefix(prefix), Text::Regex(_)) => prefix.is_empty() || prefix == "/",
            _ => self == other,
        }
    }

    /// Whether no text matches both. False if that is not known. Of a regular expression, only the start is compared.
    pub(crate) fn is_disjoint(&self, other: &Text) -> bool {
        match (self, other) {
            (Text::Exact(a), Text::Exact(b)) => a != b,
            (Text::Exact(text), Text::Prefix(prefix)) | (Text::Prefix(prefix), Text::Exact(text)) => {
                !text.starts_with(prefix.as_str())
            }
            (Text::Prefix(a), Text::Prefix(b)) => apart(a, b),
            (Text::Regex(regex), Text::Exact(text)) | (Text::Exact(text), Text::Regex(regex)) => {
                !text.starts_with(&start(regex))
            }
            (Text::Regex(regex), Text::Prefix(prefix)) | (Text::Prefix(prefix), Text::Regex(regex)) => {
                apart(&start(regex), prefix)
            }
            (Text::Regex(a), Text::Regex(b)) => apart(&start(a), &start(b)),
            _ => false,
        }
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Text::Exact(text) => text.clone(),
            Text::Prefix(text) => format!("{text}*"),
            Text::Regex(text) => format!("~{text}"),
            Text::Other(text) => text.clone(),
        }
    }
}

/// Whether no text starts with both.
fn apart(a: &str, b: &str) -> bool {
    !a.starts_with(b) && !b.starts_with(a)
}

/// The text with which all texts start that a regular expression matches. Empty if it has alternatives or flags.
fn start(regex: &str) -> String {
    let mut out = String::new();
    if regex.contains('|') || regex.contains("(?") {
        return out;
    }
    let mut chars = regex.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if !c.is_alphanumeric() => out.push(c),
                _ => return out,
            },
            '?' | '*' | '{' => {
                out.pop();
                return out;
            }
            c if r".+()[]}^$".contains(c) => return out,
            c => out.push(c),
        }
    }
    out
}

/// The text that a regular expression without operators matches.
pub(super) fn unquoted(regex: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if !c.is_alphanumeric() => out.push(c),
                _ => return None,
            },
            c if r".+*?()|[]{}^$".contains(c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// A match of paths, as written in Envoy's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Written {
    Exact(String),
    Prefix(String),
    /// A prefix of whole segments.
    Separated(String),
    Regex(String),
}

impl Written {
    /// The condition of a route; `None` for one of another form.
    pub(super) fn of(condition: &Json) -> Option<Written> {
        let text = |field: &str| condition[field].as_str().map(str::to_owned);
        text("path")
            .map(Written::Exact)
            .or_else(|| text("prefix").map(Written::Prefix))
            .or_else(|| text("pathSeparatedPrefix").map(Written::Separated))
            .or_else(|| condition["safeRegex"]["regex"].as_str().map(|regex| Written::Regex(regex.to_owned())))
    }

    /// The conditions that it consists of, with the change of the path in each.
    pub(super) fn parts(&self, change: &Change) -> Vec<(Text, Done)> {
        match self {
            Written::Exact(path) => vec![(Text::Exact(path.clone()), change.at_exact(path, false))],
            Written::Prefix(prefix) => vec![(any_path(prefix), change.at_prefix(prefix))],
            Written::Separated(prefix) => {
                let below = format!("{prefix}/");
                vec![
                    (Text::Exact(prefix.clone()), change.at_exact(prefix, true)),
                    (Text::Prefix(below.clone()), change.below(prefix, &below)),
                ]
            }
            Written::Regex(regex) => {
                let plain = regex.strip_prefix("(?i)");
                let text = match plain {
                    Some(_) => Text::Regex(regex.clone()),
                    None => match Text::of_regex(regex) {
                        Text::Prefix(prefix) => any_path(&prefix),
                        other => other,
                    },
                };
                vec![(text, change.at_regex())]
            }
        }
    }
}

/// Every path begins with a slash.
fn any_path(prefix: &str) -> Text {
    Text::Prefix(if prefix.is_empty() { "/".to_owned() } else { prefix.to_owned() })
}

/// A change of the path, as written in Envoy's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    None,
    Full(String),
    Prefix(String),
    Regex(String, String),
}

/// A change of the path for a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// The path stays.
    None,
    /// The path is replaced.
    Full(String),
    /// The matched prefix is replaced.
    Prefix(String),
    /// A regular expression and its substitution.
    Regex(String, String),
}

impl Change {
    /// The change of an action, and removes it there.
    pub(super) fn take(action: &mut Json) -> Change {
        let Some(fields) = action.as_object_mut() else { return Change::None };
        let rewrite = fields.remove("regexRewrite");
        let prefix = fields.remove("prefixRewrite");
        let full = fields.remove("pathRedirect");
        let text = |value: Option<Json>| value.as_ref().and_then(Json::as_str).map(str::to_owned);
        if let Some(rewrite) = rewrite {
            let pattern = rewrite["pattern"]["regex"].as_str().unwrap_or_default();
            let substitution = rewrite["substitution"].as_str().unwrap_or_default();
            return match pattern {
                "/.*" => Change::Full(substitution.replace(r"\\", r"\")),
                _ => Change::Regex(pattern.to_owned(), substitution.to_owned()),
            };
        }
        match (text(prefix), text(full)) {
            (Some(prefix), _) if !prefix.is_empty() => Change::Prefix(prefix),
            (_, Some(full)) => Change::Full(full),
            _ => Change::None,
        }
    }

    /// The change where the whole path is matched.
    fn at_exact(&self, path: &str, separated: bool) -> Done {
        match self {
            Change::None => Done::None,
            Change::Full(text) | Change::Prefix(text) if *text == path => Done::None,
            Change::Full(text) | Change::Prefix(text) => Done::Full(text.clone()),
            Change::Regex(pattern, _) if separated && removes(pattern, path) => Done::Full("/".to_owned()),
            Change::Regex(pattern, substitution) => Done::Regex(pattern.clone(), substitution.clone()),
        }
    }

    /// The change where a prefix is matched.
    fn at_prefix(&self, prefix: &str) -> Done {
        match self {
            Change::None => Done::None,
            Change::Full(text) => Done::Full(text.clone()),
            Change::Prefix(text) if *text == prefix => Done::None,
            Change::Prefix(text) => Done::Prefix(text.clone()),
            Change::Regex(pattern, substitution) => Done::Regex(pattern.clone(), substitution.clone()),
        }
    }

    /// Below a prefix of whole segments.
    fn below(&self, prefix: &str, below: &str) -> Done {
        match self {
            Change::Prefix(text) => Change::Prefix(format!("{text}/")).at_prefix(below),
            Change::Regex(pattern, _) if removes(pattern, prefix) => Done::Prefix("/".to_owned()),
            other => other.at_prefix(below),
        }
    }

    /// The change where a regular expression matches the whole path.
    fn at_regex(&self) -> Done {
        match self {
            Change::Prefix(text) => Done::Full(text.clone()),
            other => other.at_prefix(""),
        }
    }
}

/// Whether a rewrite removes this prefix and the slash behind it, with the substitution `/\2`.
fn removes(pattern: &str, prefix: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("(/?)(.*)"));
    inner.and_then(unquoted).is_some_and(|text| text == prefix)
}

impl Done {
    /// As JSON for comparison.
    pub(super) fn json(&self) -> Json {
        match self {
            Done::None => Json::Null,
            Done::Full(text) => Json::from(text.as_str()),
            Done::Prefix(text) => Json::from(format!("{text}…")),
            Done::Regex(pattern, substitution) => Json::from(format!("{pattern} → {substitution}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_mean_a_text_or_a_prefix() {
        assert_eq!(Text::of_regex(r"/a\.b"), Text::Exact("/a.b".into()));
        assert_eq!(Text::of_regex(r"/a\.b.*"), Text::Prefix("/a.b".into()));
        assert_eq!(Text::of_regex(".*"), Text::Prefix(String::new()));
        assert_eq!(Text::of_regex(r"/\d"), Text::Regex(r"/\d".into()));
        assert_eq!(Text::of_regex("/a.b"), Text::Regex("/a.b".into()));
    }

    #[test]
    fn a_prefix_of_segments_is_a_path_and_a_prefix() {
        let written = Written::Separated("/a".into());
        let shown = |change: Change| -> Vec<String> {
            let parts = written.parts(&change);
            parts.iter().map(|(text, done)| format!("{} {}", text.shown(), done.json())).collect()
        };
        assert_eq!(shown(Change::None), ["/a null", "/a/* null"]);
        assert_eq!(shown(Change::Prefix("/b".into())), ["/a \"/b\"", "/a/* \"/b/…\""]);
        let removed = Change::Regex("^/a(/?)(.*)".into(), r"/\2".into());
        assert_eq!(shown(removed), ["/a \"/\"", "/a/* \"/…\""]);
    }

    #[test]
    fn texts_that_cannot_both_match() {
        let (exact, prefix) = (|text: &str| Text::Exact(text.into()), |text: &str| Text::Prefix(text.into()));
        assert!(exact("/a").is_disjoint(&prefix("/b")));
        assert!(!exact("/ab").is_disjoint(&prefix("/a")));
        assert!(prefix("/a").is_disjoint(&prefix("/b")));
        let regex = |text: &str| Text::Regex(text.into());
        assert!(!prefix("/a").is_disjoint(&regex("/[0-9]")));
        assert!(prefix("/a").is_disjoint(&regex("/p/[0-9]")));
        assert!(!prefix("/pa").is_disjoint(&regex("/pb*a")));
        assert!(!prefix("/a").is_disjoint(&regex("/p/[0-9]|/a")));
        assert!(regex("/p/[0-9]").is_disjoint(&regex("/q.*")));
        assert!(exact("/x").is_disjoint(&regex("/p.")) && !exact("/px").is_disjoint(&regex("/p.")));
    }
}
