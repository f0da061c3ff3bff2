//! Precedence of the matches of HTTPRoutes and GRPCRoutes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use config::gateway_api::grpc_route::GrpcRouteMatch;
use config::gateway_api::http_route::{HttpRouteMatch, PathMatchType, TextMatchType};
use config::{MAX_PROGRAM_SIZE, regex_program_size};

use crate::grpc;

/// The order of a match among those of one host: the least is tried first. The fields are in the order of comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// All requests match.
    catch_all: bool,
    path: PathRank,
    /// The length of a condition on a gRPC service, if the path has a regular expression.
    service: Reverse<usize>,
    /// The length of the path, without a slash at the end of a prefix.
    length: Reverse<usize>,
    any_method: bool,
    headers: Reverse<usize>,
    queries: Reverse<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum PathRank {
    Exact,
    Prefix,
    Regex,
}

impl Rank {
    /// The rank of a match. None if it has a regular expression that proxies cannot use, so that it never holds.
    pub fn of(condition: &HttpRouteMatch) -> Option<Rank> {
        if !expressions(condition).all(is_usable) {
            return None;
        }
        let value = &*condition.path.value;
        let (path, value) = match condition.path.kind {
            PathMatchType::Exact => (PathRank::Exact, value),
            PathMatchType::PathPrefix => (PathRank::Prefix, value.strip_suffix('/').unwrap_or(value)),
            PathMatchType::RegularExpression => (PathRank::Regex, value),
        };
        // Only the first of several conditions on one name counts.
        let headers: BTreeSet<String> = condition.headers.iter().map(|one| one.name.to_ascii_lowercase()).collect();
        let queries: BTreeSet<&str> = condition.query_params.iter().map(|one| &*one.name).collect();
        let any_method = condition.method.is_none();
        let unconditional = any_method && headers.is_empty() && queries.is_empty();
        Some(Rank {
            catch_all: unconditional && path == PathRank::Prefix && value.is_empty(),
            path,
            service: Reverse(0),
            length: Reverse(value.len()),
            any_method,
            headers: Reverse(headers.len()),
            queries: Reverse(queries.len()),
        })
    }

    /// The rank of a match of calls. Conditions on services precede those that only name a method.
    pub(crate) fn of_grpc(condition: &GrpcRouteMatch) -> Option<Rank> {
        let mut rank = Rank::of(&grpc::as_http_match(condition))?;
        if rank.path == PathRank::Regex {
            let service = condition.method.as_ref().and_then(|method| grpc::named(method).0);
            rank.service = Reverse(service.map_or(0, str::len));
        }
        Some(rank)
    }

    /// Whether all requests match.
    pub fn is_catch_all(&self) -> bool {
        self.catch_all
    }
}

/// The regular expressions of a match.
fn expressions(condition: &HttpRouteMatch) -> impl Iterator<Item = &str> {
    let path = (condition.path.kind == PathMatchType::RegularExpression).then_some(&*condition.path.value);
    let is_regex = |kind: &TextMatchType| *kind == TextMatchType::RegularExpression;
    let headers = condition.headers.iter().filter(move |one| is_regex(&one.kind)).map(|one| &*one.value);
    let queries = condition.query_params.iter().filter(move |one| is_regex(&one.kind)).map(|one| &*one.value);
    path.into_iter().chain(headers).chain(queries)
}

fn is_usable(regex: &str) -> bool {
    regex_program_size(regex).is_some_and(|size| size <= MAX_PROGRAM_SIZE)
}

#[cfg(test)]
mod tests {
    use config::gateway_api::grpc_route::{GrpcHeaderMatch, GrpcMethodMatch};
    use config::gateway_api::http_route::{HttpHeaderMatch, HttpMethod, HttpPathMatch, HttpQueryParamMatch};

    use super::*;

    fn path(kind: PathMatchType, value: &str) -> HttpRouteMatch {
        let path = HttpPathMatch { kind, value: value.into() };
        HttpRouteMatch { path, ..HttpRouteMatch::default() }
    }

    fn prefix(value: &str) -> HttpRouteMatch {
        path(PathMatchType::PathPrefix, value)
    }

    fn headers(names: &[&str], of: HttpRouteMatch) -> HttpRouteMatch {
        let header = |name: &&str| HttpHeaderMatch { name: (*name).into(), value: "x".into(), ..Default::default() };
        HttpRouteMatch { headers: names.iter().map(header).collect(), ..of }
    }

    fn queries(names: &[&str], of: HttpRouteMatch) -> HttpRouteMatch {
        let query = |name: &&str| HttpQueryParamMatch { name: (*name).into(), value: "x".into(), ..Default::default() };
        HttpRouteMatch { query_params: names.iter().map(query).collect(), ..of }
    }

    fn get(of: HttpRouteMatch) -> HttpRouteMatch {
        HttpRouteMatch { method: Some(HttpMethod::Get), ..of }
    }

    #[test]
    fn order() {
        let ordered = [
            get(path(PathMatchType::Exact, "/a")),
            path(PathMatchType::Exact, "/a"),
            prefix("/a/b/c"),
            get(headers(&["x"], prefix("/a"))),
            get(prefix("/a/")),
            headers(&["x", "y"], prefix("/a")),
            queries(&["q", "r"], headers(&["x"], prefix("/a"))),
            queries(&["q"], headers(&["x"], prefix("/a"))),
            queries(&["q"], prefix("/a")),
            prefix("/a"),
            headers(&["x"], prefix("/")),
            path(PathMatchType::RegularExpression, "/long.*"),
            path(PathMatchType::RegularExpression, ".*"),
            prefix("/"),
        ];
        let ranks: Vec<Rank> = ordered.iter().map(|one| Rank::of(one).unwrap()).collect();
        for (at, pair) in ranks.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{at}: {:?} before {:?}", ordered[at], ordered[at + 1]);
        }
        assert_eq!(ranks.iter().filter(|rank| rank.is_catch_all()).count(), 1);
    }

    #[test]
    fn order_of_calls() {
        use TextMatchType::{Exact, RegularExpression};
        let of = |kind, service: &str, method: &str, header: bool| {
            let given = |text: &str| (!text.is_empty()).then(|| text.into());
            let method = GrpcMethodMatch { kind, service: given(service), method: given(method) };
            let header = header.then(|| GrpcHeaderMatch { name: "x".into(), value: "y".into(), ..Default::default() });
            GrpcRouteMatch { method: Some(method), headers: header.into_iter().collect() }
        };
        let ordered = [
            of(Exact, "a.B", "Get", true),
            of(Exact, "a.B", "Get", false),
            of(Exact, "a.B", "", true),
            of(Exact, "a.B", "", false),
            of(RegularExpression, "a.*", "G.*", false),
            of(RegularExpression, "a.*", "", false),
            of(RegularExpression, "a", "Get.*", false),
            of(Exact, "", "GetEverything", false),
            GrpcRouteMatch::default(),
        ];
        let ranks: Vec<Rank> = ordered.iter().map(|one| Rank::of_grpc(one).unwrap()).collect();
        for (at, pair) in ranks.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{at}: {:?} before {:?}", ordered[at], ordered[at + 1]);
        }
        assert_eq!(ranks.iter().filter(|rank| rank.is_catch_all()).count(), 1);
        assert_eq!(Rank::of_grpc(&of(RegularExpression, "(", "", false)), None);
    }

    #[test]
    fn only_the_first_condition_on_a_name_counts() {
        assert_eq!(Rank::of(&headers(&["X", "x"], prefix("/"))), Rank::of(&headers(&["x"], prefix("/"))));
        assert_ne!(Rank::of(&queries(&["X", "x"], prefix("/"))), Rank::of(&queries(&["x"], prefix("/"))));
    }

    #[test]
    fn a_match_that_can_never_hold_has_no_rank() {
        assert_eq!(Rank::of(&path(PathMatchType::RegularExpression, "(")), None);
        let mut bad = headers(&["x"], prefix("/"));
        bad.headers[0].kind = TextMatchType::RegularExpression;
        assert!(Rank::of(&bad).is_some());
        bad.headers[0].value = "[".into();
        assert_eq!(Rank::of(&bad), None);
    }
}
