//! Rules of HTTPRoutes that cannot be served.

use config::gateway_api::filter::{HttpFilterType, HttpRouteFilter};
use config::gateway_api::http_route::HttpRouteRule;

/// Whether the rule has a filter that is not supported, or asks several external services. Its requests fail, because no filter
/// may be skipped.
pub fn is_unsupported(rule: &HttpRouteRule) -> bool {
    let count = |kind| rule.filters.iter().filter(|filter| filter.kind == kind).count();
    let only_headers = |filter: &HttpRouteFilter| {
        matches!(filter.kind, HttpFilterType::RequestHeaderModifier | HttpFilterType::ResponseHeaderModifier)
    };
    count(HttpFilterType::ExtensionRef) > 0
        || count(HttpFilterType::ExternalAuth) > 1
        || !rule.backend_refs.iter().flat_map(|backend| &backend.filters).all(only_headers)
}
