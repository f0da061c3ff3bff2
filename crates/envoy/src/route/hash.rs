//! Hash policies: the request properties that select an endpoint (`consistentHash` of a DestinationRule).

use config::istio::{HashKey, LbPolicy, LoadBalancerSettings};
use protos::envoy::config::route::v3::route_action::HashPolicy;
use protos::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter,
};

use crate::parts::duration;

/// The hash policy of a load balancer, if it needs one.
pub(crate) fn policy(settings: Option<&LoadBalancerSettings>) -> Option<HashPolicy> {
    let Some(LbPolicy::ConsistentHash(hash)) = settings?.policy.as_ref() else {
        return None;
    };
    let specifier = match hash.key.as_ref()? {
        HashKey::HttpHeaderName(name) if !name.is_empty() => {
            PolicySpecifier::Header(Header { header_name: name.to_string(), ..Default::default() })
        }
        HashKey::HttpCookie(cookie) if !cookie.name.is_empty() => PolicySpecifier::Cookie(Cookie {
            name: cookie.name.to_string(),
            path: cookie.path.to_string(),
            ttl: cookie.ttl.map(duration),
            attributes: cookie.attributes.iter().map(attribute).collect(),
        }),
        HashKey::UseSourceIp(source_ip) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: *source_ip })
        }
        HashKey::HttpQueryParameterName(name) if !name.is_empty() => {
            PolicySpecifier::QueryParameter(QueryParameter { name: name.to_string() })
        }
        // Envoy rejects empty names.
        HashKey::HttpHeaderName(_) | HashKey::HttpCookie(_) | HashKey::HttpQueryParameterName(_) => return None,
    };
    Some(HashPolicy { policy_specifier: Some(specifier), terminal: false })
}

fn attribute(attribute: &config::istio::CookieAttribute) -> CookieAttribute {
    CookieAttribute { name: attribute.name.to_string(), value: attribute.value.to_string() }
}
