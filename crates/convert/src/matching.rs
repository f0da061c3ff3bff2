//! Converts conditions on requests.

use std::sync::Arc;

use config::gateway_api::http_route::{
    HttpHeaderMatch, HttpMethod, HttpPathMatch, HttpQueryParamMatch, HttpRouteMatch, PathMatchType, TextMatchType,
};
use config::istio::{HttpMatchRequest, StringMatch};
use config::{FieldPath, is_header_name};

use crate::Prefixes;
use crate::rule::Rules;

/// The longest path or regular expression of a path.
const MAX_PATH: usize = 1024;
/// Methods that a match can name.
const METHODS: [HttpMethod; 9] = [
    HttpMethod::Get,
    HttpMethod::Head,
    HttpMethod::Post,
    HttpMethod::Put,
    HttpMethod::Delete,
    HttpMethod::Connect,
    HttpMethod::Options,
    HttpMethod::Trace,
    HttpMethod::Patch,
];

/// The path of a condition, before its form is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Uri {
    Any,
    Exact(Arc<str>),
    Prefix(Arc<str>),
    /// The path and everything below it.
    Segments(Arc<str>),
    Regex(Arc<str>),
}

/// A converted condition. The path of the match is still open.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    pub(crate) uri: Uri,
    pub(crate) ignore_case: bool,
    pub(crate) rest: HttpRouteMatch,
    /// The path of the field.
    pub(crate) at: FieldPath,
}

/// Converts a condition. None, with a remark, if it has a part that cannot be expressed.
pub(crate) fn condition(rules: &mut Rules<'_, '_>, found: &HttpMatchRequest, at: &FieldPath) -> Option<Condition> {
    let mut whole = true;
    let mut lose = |rules: &mut Rules<'_, '_>, path: FieldPath, what: &str, hint: &str| {
        rules.lost(path, format!("{what}; the match is left out"), hint);
        whole = false;
    };
    let split = "Divide the VirtualService, or keep it";
    if found.scheme.is_some() {
        lose(rules, at.field("scheme"), "a match has no condition on the scheme", "Bind the routes to a listener");
    }
    if found.authority.is_some() {
        lose(rules, at.field("authority"), "a match has no condition on the authority", "Use the hosts of the route");
    }
    for name in found.without_headers.keys() {
        let path = at.field("withoutHeaders").key(name.clone());
        lose(rules, path, "a match has no condition on missing headers", split);
    }
    let mut rest = HttpRouteMatch::default();
    match &found.method {
        None | Some(StringMatch::Present) => {}
        Some(StringMatch::Exact(method)) if METHODS.iter().any(|known| known.name() == &**method) => {
            rest.method = METHODS.into_iter().find(|known| known.name() == &**method);
        }
        Some(_) => lose(rules, at.field("method"), "a match names one standard method", "Write a match per method"),
    }
    for (name, text) in &found.headers {
        match (is_header_name(name), text_match(text)) {
            (true, Some((kind, value))) => {
                rest.headers.push(HttpHeaderMatch { kind, name: name.clone(), value });
            }
            _ => lose(rules, at.field("headers").key(name.clone()), "no such condition on a header", split),
        }
    }
    for (name, text) in &found.query_params {
        match (is_header_name(name), text_match(text)) {
            (true, Some((kind, value))) => {
                rest.query_params.push(HttpQueryParamMatch { kind, name: name.clone(), value });
            }
            _ => lose(rules, at.field("queryParams").key(name.clone()), "no such condition on a parameter", split),
        }
    }
    if !found.stat_prefix.is_empty() {
        rules.note(at.field("statPrefix"), "a route has no statistics of its own", "");
    }
    let uri = match &found.uri {
        None | Some(StringMatch::Present) => Uri::Any,
        Some(StringMatch::Exact(text)) => Uri::Exact(text.clone()),
        Some(StringMatch::Prefix(text)) if text.is_empty() || &**text == "/" => Uri::Any,
        Some(StringMatch::Prefix(text)) => Uri::Prefix(text.clone()),
        Some(StringMatch::Regex(text)) if text.is_empty() => Uri::Exact(text.clone()),
        Some(StringMatch::Regex(text)) => Uri::Regex(text.clone()),
    };
    whole.then(|| Condition { uri, ignore_case: found.ignore_uri_case, rest, at: at.clone() })
}

/// A condition on a text: equal, or a regular expression. None for an empty value.
fn text_match(text: &StringMatch) -> Option<(TextMatchType, Arc<str>)> {
    let regex = |text: String| Some((TextMatchType::RegularExpression, text.into()));
    match text {
        StringMatch::Present => regex(".*".to_owned()),
        StringMatch::Exact(value) => (!value.is_empty()).then(|| (TextMatchType::Exact, value.clone())),
        StringMatch::Prefix(prefix) => regex(format!("{}.*", quoted(prefix))),
        StringMatch::Regex(text) if &**text == "*" => regex(".*".to_owned()),
        StringMatch::Regex(text) => (!text.is_empty()).then(|| (TextMatchType::RegularExpression, text.clone())),
    }
}

/// The path of a match.
pub(crate) fn with_path(rules: &mut Rules<'_, '_>, found: &Condition) -> HttpRouteMatch {
    let path = match (&found.uri, found.ignore_case) {
        (Uri::Any, _) => HttpPathMatch::default(),
        (Uri::Segments(text), _) => path(PathMatchType::PathPrefix, text.to_string()),
        (Uri::Exact(text), false) if is_path(text) => path(PathMatchType::Exact, text.to_string()),
        (Uri::Prefix(text), false) if is_path(text) && rules.prefixes() == Prefixes::Segments => {
            widened(rules, found, text);
            path(PathMatchType::PathPrefix, text.to_string())
        }
        (Uri::Exact(text), any_case) => path(PathMatchType::RegularExpression, expression(text, any_case, "")),
        (Uri::Prefix(text), any_case) => {
            if !any_case {
                let message = format!(
                    "the prefix {text} does not end with a segment, and is a regular expression, which is tried after other paths"
                );
                let hint = "Use `--prefixes segments` if the paths of the application consist of whole segments";
                rules.note(found.at.field("uri"), message, hint);
            }
            path(PathMatchType::RegularExpression, expression(text, any_case, ".*"))
        }
        (Uri::Regex(text), _) => path(PathMatchType::RegularExpression, text.to_string()),
    };
    if path.value.len() > MAX_PATH {
        rules.lost(found.at.field("uri"), format!("the path is longer than {MAX_PATH} bytes"), "Shorten it");
    }
    HttpRouteMatch { path, ..found.rest.clone() }
}

/// Says how a prefix of whole segments differs from one of characters.
pub(crate) fn widened(rules: &mut Rules<'_, '_>, found: &Condition, text: &str) {
    let message = match text.strip_suffix('/') {
        Some(start) => format!("PathPrefix {text} also matches {start}, which the prefix {text} does not"),
        None => format!("PathPrefix {text} does not match {text}x, which the prefix {text} does"),
    };
    rules.lost(found.at.field("uri"), message, "Check that no client uses such a path");
}

/// Joins conditions on `P` and on everything below `P/`, if they are equal otherwise.
pub(crate) fn joined(found: Vec<Condition>) -> Vec<Condition> {
    let mut out: Vec<Condition> = Vec::new();
    for one in found {
        let pair = out.iter_mut().find(|other| {
            let below = |exact: &str, prefix: &str| prefix.strip_suffix('/') == Some(exact) && is_path(prefix);
            let is_pair = match (&other.uri, &one.uri) {
                (Uri::Exact(exact), Uri::Prefix(prefix)) | (Uri::Prefix(prefix), Uri::Exact(exact)) => {
                    below(exact, prefix)
                }
                _ => false,
            };
            is_pair && other.rest == one.rest && !other.ignore_case && !one.ignore_case
        });
        match pair {
            Some(pair) => {
                if let Uri::Prefix(text) | Uri::Exact(text) = &pair.uri {
                    pair.uri = Uri::Segments(text.trim_end_matches('/').into());
                }
            }
            None => out.push(one),
        }
    }
    out
}

/// A path of this type.
pub(crate) fn path(kind: PathMatchType, value: String) -> HttpPathMatch {
    HttpPathMatch { kind, value: value.into() }
}

/// A regular expression for a text and what may follow it.
fn expression(text: &str, any_case: bool, behind: &str) -> String {
    format!("{}{}{behind}", if any_case { "(?i)" } else { "" }, quoted(text))
}

/// A regular expression that matches only this text.
fn quoted(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Whether a match can have the path without a regular expression.
pub(crate) fn is_path(text: &str) -> bool {
    let bad = ["//", "/./", "/../", "%2f", "%2F", "#"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "-/._~!$&'()*+,;=:@%".contains(c);
    text.starts_with('/')
        && text.chars().all(plain)
        && !bad.iter().any(|part| text.contains(part))
        && !text.ends_with("/..")
        && !text.ends_with("/.")
}
