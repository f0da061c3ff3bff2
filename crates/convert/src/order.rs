//! Keeps the order of rules: the first that matches counts in a VirtualService, the most specific match in HTTPRoutes.
//!
//! A match that an earlier one hides is left out. If a later match is more specific than an earlier one that also matches some
//! of its requests, the earlier rule gets a further match for the requests that both match, which is more specific still.

use config::gateway_api::filter::PathModifierType;
use config::gateway_api::http_route::{HttpPathMatch, HttpRouteMatch, HttpRouteRule, PathMatchType, TextMatchType};
use config::{FieldPath, ObjectKey};
use gateway_api::rank::Rank;

use crate::check::Text;
use crate::context::Context;

/// The maximum number of times that matches are added for those that were added before.
const MAX_PASSES: usize = 4;
/// The most matches that are added to the rules of one object.
const MAX_ADDED: usize = 256;

/// A converted rule and the path of the original.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Ordered {
    pub(crate) rule: HttpRouteRule,
    pub(crate) at: FieldPath,
}

/// Changes rules so that HTTPRoutes with them do what the first rule that matches says.
pub(crate) fn keep(cx: &mut Context<'_>, object: &ObjectKey, mut rules: Vec<Ordered>) -> Vec<Ordered> {
    without_hidden(cx, object, &mut rules);
    let mut added = 0;
    for _ in 0..MAX_PASSES {
        let before = added;
        for first in 0..rules.len() {
            for second in first + 1..rules.len() {
                let (head, tail) = rules.split_at_mut(second);
                added += prefer(cx, object, &mut head[first], &tail[0], MAX_ADDED.saturating_sub(added));
            }
        }
        if added == before {
            break;
        }
    }
    rules
}

/// Leaves out matches that earlier ones hide.
fn without_hidden(cx: &mut Context<'_>, object: &ObjectKey, rules: &mut Vec<Ordered>) {
    let mut earlier: Vec<HttpRouteMatch> = Vec::new();
    for ordered in rules.iter_mut() {
        ordered.rule.matches.retain(|found| {
            let hidden = earlier.iter().any(|one| covers(one, found));
            if hidden {
                let message = "an earlier match gets these requests; this one has no effect, and is left out";
                cx.note(object, ordered.at.clone(), message, "");
            }
            earlier.push(found.clone());
            !hidden
        });
    }
    rules.retain(|ordered| !ordered.rule.matches.is_empty());
}

/// Adds matches to the first rule for requests that the second one would get in its place. Returns their number.
fn prefer(cx: &mut Context<'_>, object: &ObjectKey, first: &mut Ordered, second: &Ordered, room: usize) -> usize {
    let without = |rule: &HttpRouteRule| HttpRouteRule { name: None, matches: Vec::new(), ..rule.clone() };
    if without(&first.rule) == without(&second.rule) {
        return 0;
    }
    let mut more: Vec<HttpRouteMatch> = Vec::new();
    let mut lost = false;
    for one in &first.rule.matches {
        for other in second.rule.matches.iter().filter(|other| precedes(other, one) && !is_disjoint(one, other)) {
            let both = intersection(one, other).filter(|_| !replaces_prefix(&first.rule) && more.len() < room);
            match both {
                Some(both) if first.rule.matches.contains(&both) || more.contains(&both) => {}
                Some(both) => more.push(both),
                None => lost = true,
            }
        }
    }
    if lost {
        let message = format!("this rule now precedes {}, because its match is more specific", first.at);
        cx.lost(object, second.at.clone(), message, "Write conditions that exclude each other");
    }
    first.rule.matches.extend(more.iter().cloned());
    more.len()
}

/// Whether the rule replaces the prefix of its only match.
fn replaces_prefix(rule: &HttpRouteRule) -> bool {
    rule.filters.iter().any(|filter| {
        let redirect = filter.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
        let rewrite = filter.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
        redirect.or(rewrite).is_some_and(|path| path.kind == PathModifierType::ReplacePrefixMatch)
    })
}

/// Whether a match is tried before another one among those of HTTPRoutes.
fn precedes(one: &HttpRouteMatch, other: &HttpRouteMatch) -> bool {
    matches!((Rank::of(one), Rank::of(other)), (Some(one), Some(other)) if one < other)
}

/// The paths of a match.
fn paths(path: &HttpPathMatch) -> Vec<Text> {
    let prefix = path.value.trim_end_matches('/');
    match path.kind {
        // The original prefix is one of characters; `/a` beside `/a/` is reported where it is added.
        PathMatchType::PathPrefix if path.value.ends_with('/') => vec![Text::Prefix(path.value.to_string())],
        PathMatchType::Exact => vec![Text::Exact(path.value.to_string())],
        PathMatchType::RegularExpression => vec![Text::of_regex(&path.value)],
        PathMatchType::PathPrefix => vec![Text::Exact(prefix.to_owned()), Text::Prefix(format!("{prefix}/"))],
    }
}

fn covers_path(one: &HttpPathMatch, other: &HttpPathMatch) -> bool {
    let wider = paths(one);
    paths(other).iter().all(|text| wider.iter().any(|wide| wide.covers(text)))
}

/// The conditions beside the path, by what they concern.
fn conditions(found: &HttpRouteMatch) -> Vec<(String, Text)> {
    let text = |kind: TextMatchType, value: &str| match kind {
        TextMatchType::Exact => Text::Exact(value.to_owned()),
        TextMatchType::RegularExpression => Text::of_regex(value),
    };
    let headers = found.headers.iter().map(|one| (one.name.to_lowercase(), text(one.kind, &one.value)));
    let queries = found.query_params.iter().map(|one| (format!("?{}", one.name), text(one.kind, &one.value)));
    let method = found.method.iter().map(|method| (":method".to_owned(), Text::Exact(method.name().to_owned())));
    headers.chain(queries).chain(method).collect()
}

/// Whether the first match holds whenever the second one does.
fn covers(one: &HttpRouteMatch, other: &HttpRouteMatch) -> bool {
    let narrower = conditions(other);
    let implied =
        |(name, wide): &(String, Text)| narrower.iter().any(|(other, text)| other == name && wide.covers(text));
    covers_path(&one.path, &other.path) && conditions(one).iter().all(implied)
}

/// Whether no request matches both.
fn is_disjoint(one: &HttpRouteMatch, other: &HttpRouteMatch) -> bool {
    let theirs = paths(&other.path);
    let apart = paths(&one.path).iter().all(|text| theirs.iter().all(|other| text.is_disjoint(other)));
    let others = conditions(other);
    apart
        || conditions(one)
            .iter()
            .any(|(name, text)| others.iter().any(|(theirs, other)| theirs == name && text.is_disjoint(other)))
}

/// The match of requests that both match. None if it cannot be expressed.
fn intersection(one: &HttpRouteMatch, other: &HttpRouteMatch) -> Option<HttpRouteMatch> {
    let path = if covers_path(&one.path, &other.path) {
        other.path.clone()
    } else if covers_path(&other.path, &one.path) {
        one.path.clone()
    } else {
        return None;
    };
    let mut both = HttpRouteMatch { path, ..other.clone() };
    both.method = both.method.or(one.method);
    for header in &one.headers {
        match both.headers.iter().find(|known| known.name.eq_ignore_ascii_case(&header.name)) {
            Some(known) if (known.kind, &known.value) == (header.kind, &header.value) => {}
            Some(_) => return None,
            None => both.headers.push(header.clone()),
        }
    }
    for query in &one.query_params {
        match both.query_params.iter().find(|known| known.name == query.name) {
            Some(known) if known == query => {}
            Some(_) => return None,
            None => both.query_params.push(query.clone()),
        }
    }
    Some(both)
}

#[cfg(test)]
mod tests {
    use config::gateway_api::http_route::{HttpHeaderMatch, HttpMethod};

    use super::*;

    fn path(kind: PathMatchType, value: &str) -> HttpRouteMatch {
        HttpRouteMatch { path: HttpPathMatch { kind, value: value.into() }, ..HttpRouteMatch::default() }
    }

    fn prefix(value: &str) -> HttpRouteMatch {
        path(PathMatchType::PathPrefix, value)
    }

    fn header(name: &str, value: &str, of: HttpRouteMatch) -> HttpRouteMatch {
        let header = HttpHeaderMatch { name: name.into(), value: value.into(), ..HttpHeaderMatch::default() };
        HttpRouteMatch { headers: vec![header], ..of }
    }

    #[test]
    fn wider_matches_cover_narrower_ones() {
        assert!(covers(&prefix("/"), &path(PathMatchType::RegularExpression, "/[a-z]")));
        assert!(covers(&prefix("/a"), &path(PathMatchType::Exact, "/a/b")));
        assert!(covers(&prefix("/a"), &prefix("/a/")));
        assert!(!covers(&prefix("/a"), &path(PathMatchType::Exact, "/ab")));
        assert!(covers(&prefix("/a"), &header("x", "1", prefix("/a/b"))));
        assert!(!covers(&header("x", "1", prefix("/a")), &prefix("/a/b")));
    }

    #[test]
    fn what_both_match() {
        let get = HttpRouteMatch { method: Some(HttpMethod::Get), ..prefix("/") };
        let both = intersection(&get, &header("x", "1", prefix("/a"))).unwrap();
        assert_eq!((&*both.path.value, both.method, both.headers.len()), ("/a", Some(HttpMethod::Get), 1));
        let (one, other) = (header("x", "1", prefix("/")), header("x", "2", prefix("/a")));
        assert!(is_disjoint(&one, &other) && intersection(&one, &other).is_none());
        assert!(is_disjoint(&prefix("/a"), &prefix("/b")) && !is_disjoint(&prefix("/a"), &prefix("/a/b")));
    }

    #[test]
    fn more_specific_matches_come_first() {
        let ordered = [
            path(PathMatchType::Exact, "/a"),
            prefix("/a/b"),
            header("x", "1", prefix("/a")),
            prefix("/a/"),
            header("x", "1", prefix("/")),
            path(PathMatchType::RegularExpression, "/a.*"),
            prefix("/"),
        ];
        assert!(ordered.windows(2).all(|pair| precedes(&pair[0], &pair[1])));
    }
}
