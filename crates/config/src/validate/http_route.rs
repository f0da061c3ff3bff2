//! HTTP routes of a VirtualService.

use std::sync::Arc;

use crate::decode::{Relations, Report};
use crate::form::{self, header};
use crate::istio::*;
use crate::problem::FieldPath;

impl Relations for HttpRoute {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let answers = [("redirect", self.redirect.is_some()), ("directResponse", self.direct_response.is_some())];
        if let Some((answer, _)) = answers.into_iter().find(|(_, set)| *set) {
            let others = [("fault", self.fault.is_some()), ("rewrite", self.rewrite.is_some())];
            r.none_of(path, &others, "exclusive-fields", |name| format!("{name} cannot be combined with {answer}"));
        }
        weights(r, &path.field("route"), self.route.iter().map(|d| d.weight));
        total(r, &path.field("route"), self.route.iter().map(|d| d.weight));
        let by_prefix = |m: &HttpMatchRequest| matches!(m.uri, None | Some(StringMatch::Prefix(_)));
        let rewrites = self.redirect.as_ref().is_some_and(|redirect| !redirect.prefix_rewrite.is_empty());
        if rewrites && !self.matches.iter().all(by_prefix) {
            let message = "prefixRewrite requires that all matches of uri are prefix matches";
            let at = path.field("redirect").field("prefixRewrite");
            r.error(&at, "exclusive-fields", message);
        }
        self.authority(r, &path.field("headers").field("request"));
    }
}

impl HttpRoute {
    /// Checks that the authority is set at most once, by a rewrite or by a header.
    fn authority(&self, r: &mut Report, path: &FieldPath) {
        let mut known = self.rewrite.as_ref().is_some_and(|rewrite| !rewrite.authority.is_empty());
        let request = self.headers.as_ref().and_then(|headers| headers.request.as_ref());
        for (field, values) in request.iter().flat_map(|r| [("set", &r.set), ("add", &r.add)]) {
            for name in values.keys().filter(|name| header::is_authority(name)) {
                if std::mem::replace(&mut known, true) {
                    let at = path.field(field).key(name.clone());
                    r.error(&at, "duplicate", "the authority is set more than once");
                }
            }
        }
    }
}

/// Checks that not all weights are 0.
pub(super) fn weights(r: &mut Report, path: &FieldPath, weights: impl ExactSizeIterator<Item = i32>) {
    if weights.len() > 1 && weights.into_iter().all(|weight| weight == 0) {
        let message = "at least one destination must have a weight greater than 0";
        r.error(path, "out-of-range", message);
    }
}

/// Checks that the weights of an HTTP route have a sum that Envoy accepts.
fn total(r: &mut Report, path: &FieldPath, weights: impl Iterator<Item = i32>) {
    let total: u64 = weights.filter_map(|weight| u64::try_from(weight).ok()).sum();
    if total > u64::from(u32::MAX) {
        let message = format!("the sum of the weights is {total}, which is more than {}", u32::MAX);
        r.error_with(path, "out-of-range", message, "divide all weights by the same number");
    }
}

/// Maximum number of headers that Envoy sets and appends in one direction.
const MAX_HEADERS: usize = 1000;

impl Relations for HeaderOperations {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let count = self.set.len() + self.add.len();
        if count > MAX_HEADERS {
            let message = format!("{count} headers are set and added; at most {MAX_HEADERS} are supported");
            r.error(path, "out-of-range", message);
        }
    }
}

impl Relations for Headers {
    /// Requests can set the authority. Responses have none, and nothing can remove it.
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let mut wrong: Vec<(FieldPath, &Arc<str>)> = Vec::new();
        for (field, changes) in [("request", &self.request), ("response", &self.response)] {
            let at = path.field(field);
            let Some(changes) = changes else {
                continue;
            };
            let removed = changes.remove.iter().enumerate();
            wrong.extend(removed.map(|(index, name)| (at.field("remove").index(index), name)));
            if field == "response" {
                for (field, values) in [("set", &changes.set), ("add", &changes.add)] {
                    wrong.extend(values.keys().map(|name| (at.field(field).key(name.clone()), name)));
                }
            }
        }
        for (at, name) in wrong.into_iter().filter(|(_, name)| header::is_authority(name)) {
            let message = format!("the header {name:?} cannot be changed by this operation");
            r.error(&at, "bad-header", message);
        }
    }
}

/// Maximum length of the name of a query parameter in bytes.
const MAX_PARAMETER: usize = 1024;

impl Relations for HttpMatchRequest {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if let Some(StringMatch::Regex(text)) = &self.uri {
            r.form(&path.field("uri").field("regex"), form::regex, text);
        }
        let texts = [("scheme", &self.scheme), ("method", &self.method), ("authority", &self.authority)];
        let texts = texts.into_iter().flat_map(|(field, text)| Some((path.field(field), text.as_ref()?)));
        let maps = [
            ("headers", &self.headers),
            ("queryParams", &self.query_params),
            ("withoutHeaders", &self.without_headers),
        ];
        let entries = maps.into_iter().flat_map(|(field, map)| {
            // Istio treats this invalid regular expression as a presence match.
            let is_star = |text: &StringMatch| matches!(text, StringMatch::Regex(star) if &**star == "*");
            let checked = map.iter().filter(move |(_, text)| field != "withoutHeaders" || !is_star(text));
            checked.map(move |(name, text)| (path.field(field).key(name.clone()), text))
        });
        for (at, text) in texts.chain(entries) {
            match text {
                StringMatch::Prefix(prefix) if prefix.is_empty() => {
                    r.error(&at.field("prefix"), "bad-value", "the prefix must not be empty");
                }
                StringMatch::Regex(text) => r.form(&at.field("regex"), form::regex, text),
                _ => {}
            }
        }
        for name in self.query_params.keys().filter(|name| name.len() > MAX_PARAMETER) {
            let message = format!("the name of a query parameter must not be longer than {MAX_PARAMETER} bytes");
            r.error(&path.field("queryParams").key(name.clone()), "out-of-range", message);
        }
        if self.ignore_uri_case && matches!(self.uri, None | Some(StringMatch::Regex(_))) {
            let message = "ignoreUriCase applies only to exact and prefix matches of uri";
            r.warning(&path.field("ignoreUriCase"), "no-effect", message);
        }
    }
}

impl Relations for Destination {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let port = self.port.as_ref().map(|port| port.number);
        if let Some(number) = port.filter(|number| !(1..=65535).contains(number)) {
            let message = format!("a port must be between 1 and 65535, not {number}");
            r.error(&path.field("port").field("number"), "out-of-range", message);
        }
    }
}

impl Relations for HttpRetry {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let more =
            self.per_try_timeout.is_some() || !self.retry_on.is_empty() || self.retry_remote_localities.is_some();
        if self.attempts == 0 && more {
            let message = "attempts is 0, which disables retries, so no other retry setting may be set";
            r.error(path, "exclusive-fields", message);
        }
    }
}

impl Relations for Delay {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        resolution(r, path, self.percentage.as_ref());
    }
}

impl Relations for Abort {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        resolution(r, path, self.percentage.as_ref());
        if self.kind.is_none() {
            r.warning(path, "no-effect", "the abort has no status");
        }
    }
}

/// Checks that the percentage of a fault is 0 or at least 0.0001, Envoy's resolution.
fn resolution(r: &mut Report, path: &FieldPath, percentage: Option<&Percent>) {
    if percentage.is_some_and(|Percent { value }| *value > 0.0 && *value < 0.0001) {
        let message = "percentages below 0.0001 are not supported";
        r.error(&path.field("percentage"), "out-of-range", message);
    }
}

impl Relations for CorsPolicy {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        for (index, origin) in self.allow_origins.iter().enumerate() {
            let at = path.field("allowOrigins").index(index);
            match origin {
                StringMatch::Regex(text) => r.form(&at.field("regex"), form::regex, text),
                StringMatch::Exact(text) | StringMatch::Prefix(text) if !text.is_empty() => {}
                _ => r.error(&at, "missing-field", "an origin requires exact, prefix or regex"),
            }
        }
    }
}
