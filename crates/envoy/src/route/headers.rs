//! Header manipulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::{HeaderOperations, Headers};
use protos::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use protos::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use protos::envoy::config::route::v3::Route;
use protos::envoy::config::route::v3::weighted_cluster::{ClusterWeight, cluster_weight};

/// Header operations in Envoy's terms.
#[derive(Clone, Default)]
pub(crate) struct Operations {
    pub(crate) request_add: Vec<HeaderValueOption>,
    pub(crate) request_remove: Vec<String>,
    pub(crate) response_add: Vec<HeaderValueOption>,
    pub(crate) response_remove: Vec<String>,
    /// The new authority, for which Envoy has a separate field.
    pub(crate) authority: Option<String>,
}

impl Operations {
    /// Converts header operations, if there are any.
    pub(crate) fn of(headers: Option<&Headers>) -> Operations {
        let none = HeaderOperations::default();
        let direction = |part: fn(&Headers) -> Option<&HeaderOperations>| headers.and_then(part).unwrap_or(&none);
        let (request, response) = (direction(|h| h.request.as_ref()), direction(|h| h.response.as_ref()));
        let authority = [&request.set, &request.add].into_iter().find_map(authority_of);
        Operations {
            request_add: additions(request),
            request_remove: removals(request),
            response_add: additions(response),
            response_remove: removals(response),
            authority,
        }
    }

    /// Adds the operations to a route. Returns the new authority.
    pub(crate) fn add_to(self, route: &mut Route) -> Option<String> {
        route.request_headers_to_add.extend(self.request_add);
        route.request_headers_to_remove.extend(self.request_remove);
        route.response_headers_to_add.extend(self.response_add);
        route.response_headers_to_remove.extend(self.response_remove);
        self.authority
    }

    /// A cluster of a weighted route, with the operations.
    pub(crate) fn weighted(self, cluster: String, weight: Option<u32>) -> ClusterWeight {
        ClusterWeight {
            name: cluster,
            weight,
            request_headers_to_add: self.request_add,
            request_headers_to_remove: self.request_remove,
            response_headers_to_add: self.response_add,
            response_headers_to_remove: self.response_remove,
            host_rewrite_specifier: self.authority.map(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral),
            ..Default::default()
        }
    }
}

/// Headers to set, then headers to append, each ordered by name.
fn additions(operations: &HeaderOperations) -> Vec<HeaderValueOption> {
    let changeable = |(key, _): &(&Arc<str>, &Arc<str>)| !is_internal(key);
    let set = operations.set.iter().filter(changeable);
    let add = operations.add.iter().filter(changeable);
    set.map(|(key, value)| option(key, value, HeaderAppendAction::OverwriteIfExistsOrAdd))
        .chain(add.map(|(key, value)| option(key, value, HeaderAppendAction::AppendIfExistsOrAdd)))
        .collect()
}

/// A header to set or to append.
pub(crate) fn option(key: &str, value: &str, action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value: value.to_owned(), ..Default::default() }),
        append_action: action.into(),
        ..Default::default()
    }
}

fn removals(operations: &HeaderOperations) -> Vec<String> {
    operations.remove.iter().filter(|key| !is_internal(key)).map(|key| key.to_string()).collect()
}

/// Whether Envoy does not allow changes of this header.
pub(crate) fn is_internal(key: &str) -> bool {
    key.starts_with(':') || key.eq_ignore_ascii_case("host")
}

fn authority_of(headers: &BTreeMap<Arc<str>, Arc<str>>) -> Option<String> {
    let is_authority = |key: &str| key.eq_ignore_ascii_case("host") || key.eq_ignore_ascii_case(":authority");
    headers.iter().find(|(key, _)| is_authority(key)).map(|(_, value)| value.to_string())
}
