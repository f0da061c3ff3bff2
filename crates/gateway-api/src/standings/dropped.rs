//! Rules of routes that are not served, and why.

use std::collections::BTreeMap;

use config::gateway_api::http_route::HttpRouteRule;
use model::standing::{Fact, condition};
use registry::inputs::RouteObject;

use crate::grpc;
use crate::rank::Rank;
use crate::rules;

/// The parts of a route that are not served.
#[derive(Default)]
pub(super) struct Dropped {
    /// The number of rules.
    all: usize,
    /// The rules of which nothing is served, by reason.
    rules: BTreeMap<&'static str, Vec<usize>>,
    /// The matches of other rules that are not served, by rule.
    matches: BTreeMap<usize, Vec<usize>>,
}

impl Dropped {
    pub(super) fn of(route: &RouteObject) -> Dropped {
        // Rules of other routes have nothing that is not served.
        let http = grpc::http_route(route);
        http.map(|http| Dropped::of_http(&http.rules)).unwrap_or_default()
    }

    fn of_http(rules: &[HttpRouteRule]) -> Dropped {
        let mut dropped = Dropped { all: rules.len(), ..Dropped::default() };
        for (index, rule) in rules.iter().enumerate() {
            let bad = rule.matches.iter().enumerate().filter(|(_, one)| Rank::of(one).is_none());
            let bad: Vec<usize> = bad.map(|(at, _)| at).collect();
            if rules::is_unsupported(rule) {
                dropped.add(index, "a filter is not supported");
            } else if !bad.is_empty() && bad.len() == rule.matches.len() {
                dropped.add(index, "a regular expression cannot be used");
            } else if !bad.is_empty() {
                dropped.matches.insert(index, bad);
            }
        }
        dropped
    }

    fn add(&mut self, rule: usize, why: &'static str) {
        self.rules.entry(why).or_default().push(rule);
    }

    /// Whether nothing of the route is served.
    pub(super) fn is_whole(&self) -> bool {
        let dropped: usize = self.rules.values().map(Vec::len).sum();
        dropped > 0 && dropped == self.all
    }

    /// The condition of a route that is accepted without these parts. None if all of it is served.
    pub(super) fn partially_invalid(&self) -> Option<Fact> {
        let message = self.message();
        (!message.is_empty()).then(|| Fact::yes(condition::PARTIALLY_INVALID, UNSUPPORTED_VALUE, message))
    }

    /// `Dropped Rule(s) 0, 2: a filter is not supported; …`; empty if all of the route is served.
    pub(super) fn message(&self) -> String {
        let rules = self.rules.iter().map(|(why, rules)| format!("Dropped Rule(s) {}: {why}", numbers(rules)));
        let matches = self.matches.iter().map(|(rule, matches)| {
            format!("Dropped Rule(s) {rule}: matches {}: a regular expression cannot be used", numbers(matches))
        });
        rules.chain(matches).collect::<Vec<_>>().join("; ")
    }
}

/// The reason of conditions about parts that are not served.
pub(super) const UNSUPPORTED_VALUE: &str = "UnsupportedValue";

fn numbers(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
