//! Verification of JSON Web Tokens, from RequestAuthentications.
//!
//! All rules of all policies that select a workload apply, in order of their issuers. Keys that are not inline are inputs
//! ([`FetchedKeys`]): [`WantedKeySources`] lists what must be fetched. While an issuer's keys are not known, its tokens are
//! rejected.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{JwtRule, RequestAuthentication};
use config::{KeySet, Object};
use flow::Reads;
use model::jwt::{FETCH_TIMEOUT, JwtPlan, JwtProvider, KeySource, ProviderKeys, WantedKeys, WantedSource};
use model::service::ObjectId;
use names::{ClusterName, Hostname, Protocol};
use registry::inputs::{FetchedKeys, JwksMode, Mesh, RequestAuthentications};
use registry::{Services, ServicesByHost};

flow::index! {
    /// RequestAuthentications by the sources of keys that their rules name.
    pub PoliciesByKeySource: KeySource => members of RequestAuthentications = "request authentications by key source", policies_by_key_source_keys;
}

fn policies_by_key_source_keys(_: &ObjectId, row: &Arc<Object<RequestAuthentication>>) -> Vec<KeySource> {
    let sources: BTreeSet<KeySource> = row.spec.jwt_rules.iter().filter_map(KeySource::of).collect();
    sources.into_iter().collect()
}

flow::rule! {
    /// The users of a source of keys that must be fetched; no row if proxies fetch the keys themselves.
    pub KeySourceUsers: KeySource => WantedSource = "users of key sources", derive_key_source_users;
    /// All sources of keys that must be fetched.
    pub WantedKeySources: () => Arc<WantedKeys> = "wanted key sources", derive_wanted_key_sources;
    /// The verification of tokens by the rules of a set of RequestAuthentications.
    pub JwtPlans: Arc<[ObjectId]> => Arc<JwtPlan> = "jwt plans", derive_jwt_plans;
}

fn derive_key_source_users(cx: &Reads<'_>, source: &KeySource) -> Option<WantedSource> {
    if let Fetcher::Proxies { .. } = fetcher(cx, source) {
        return None;
    }
    let policies = cx.get::<PoliciesByKeySource>(source)?;
    let mut wanted = WantedSource { timeout: std::time::Duration::ZERO, namespaces: BTreeSet::new() };
    for id in policies.iter() {
        let Some(policy) = cx.get::<RequestAuthentications>(id) else { continue };
        let rules = policy.spec.jwt_rules.iter().filter(|rule| KeySource::of(rule).as_ref() == Some(source));
        let longest = rules.map(|rule| rule.timeout.unwrap_or(FETCH_TIMEOUT)).max();
        wanted.timeout = wanted.timeout.max(longest.unwrap_or_default());
        wanted.namespaces.insert(id.namespace.clone());
    }
    Some(wanted)
}

fn derive_wanted_key_sources(cx: &Reads<'_>, (): &()) -> Option<Arc<WantedKeys>> {
    let sources = cx.keys::<PoliciesByKeySource>();
    let wanted = sources.iter().filter_map(|source| {
        let users = cx.get::<KeySourceUsers>(source)?;
        Some((source.clone(), (*users).clone()))
    });
    Some(Arc::new(wanted.collect()))
}

fn derive_jwt_plans(cx: &Reads<'_>, policies: &Arc<[ObjectId]>) -> Option<Arc<JwtPlan>> {
    let policies = policies.iter().filter_map(|id| cx.get::<RequestAuthentications>(id));
    let mut policies: Vec<Arc<Object<RequestAuthentication>>> = policies.map(|row| (*row).clone()).collect();
    policies.sort_by(|a, b| a.meta.by_age(&b.meta));
    let rules = policies.iter().flat_map(|policy| &policy.spec.jwt_rules);
    let mut providers: Vec<JwtProvider> =
        rules.map(|rule| JwtProvider { rule: rule.clone(), keys: keys_of(cx, rule) }).collect();
    providers.sort_by(|a, b| a.rule.issuer.cmp(&b.rule.issuer));
    Some(Arc::new(JwtPlan { providers }))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<PoliciesByKeySource>();
    b.view::<KeySourceUsers>();
    b.world::<WantedKeySources, registry::inputs::MeshDefaults>();
    b.view::<JwtPlans>();
}

/// The keys of a rule. Without keys no token of the issuer may be accepted.
fn keys_of(cx: &Reads<'_>, rule: &JwtRule) -> ProviderKeys {
    if !rule.jwks.is_empty() {
        return ProviderKeys::Local(KeySet::inline(&rule.jwks).unwrap_or_else(|_| KeySet::unverifiable()));
    }
    let Some(source) = KeySource::of(rule) else {
        return ProviderKeys::Local(KeySet::unverifiable());
    };
    if let Fetcher::Proxies { cluster, .. } = fetcher(cx, &source) {
        return ProviderKeys::Remote(cluster);
    }
    let fetched = cx.get::<FetchedKeys>(&source).map(|keys| (*keys).clone());
    ProviderKeys::Local(fetched.unwrap_or_else(KeySet::unverifiable))
}

/// Whether proxies fetch a source's keys themselves, but its host is no service of the mesh.
pub fn is_unknown_to_proxies(cx: &Reads<'_>, source: &KeySource) -> bool {
    matches!(fetcher(cx, source), Fetcher::Proxies { known: false, .. })
}

/// The component that fetches a source's keys.
enum Fetcher {
    ControlPlane,
    /// Proxies, through this cluster. If it is not known, they get no keys and reject the tokens.
    Proxies {
        cluster: Arc<str>,
        known: bool,
    },
}

fn fetcher(cx: &Reads<'_>, source: &KeySource) -> Fetcher {
    let mode = cx.get::<Mesh>(&()).map(|mesh| mesh.features.jwks).unwrap_or_default();
    let (KeySource::Uri(uri), JwksMode::Proxies | JwksMode::Hybrid) = (source, mode) else {
        return Fetcher::ControlPlane;
    };
    let Some((host, port)) = host_and_port(uri) else {
        return Fetcher::ControlPlane;
    };
    let known = Hostname::parse(host).is_ok_and(|host| {
        let services = cx.get::<ServicesByHost>(&host);
        let mut services = services.iter().flat_map(|keys| keys.iter()).filter_map(|key| cx.get::<Services>(key));
        services.any(|service| service.port(port).is_some_and(|port| port.protocol != Protocol::Udp))
    });
    match known || mode == JwksMode::Proxies {
        true => Fetcher::Proxies { cluster: ClusterName::outbound(port, "", host).to_string().into(), known },
        false => Fetcher::ControlPlane,
    }
}

/// The host and port of a URL that validation accepts.
fn host_and_port(uri: &str) -> Option<(&str, u16)> {
    let (rest, default) = match uri.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (uri.strip_prefix("http://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => Some((host, if port.is_empty() { default } else { port.parse().ok()? })),
        None => Some((authority, default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_url_follows_its_scheme() {
        let cases = [
            ("https://a.example/keys", Some(("a.example", 443))),
            ("http://a.example", Some(("a.example", 80))),
            ("http://a.example:8080/k?x=:9", Some(("a.example", 8080))),
            ("https://user:word@a.example/", Some(("a.example", 443))),
            ("https://[::1]/", Some(("[::1]", 443))),
            ("https://[::1]:8443/", Some(("[::1]", 8443))),
            ("http://a.example:/", Some(("a.example", 80))),
            ("http://a.example:99999/", None),
            ("ftp://a.example/", None),
        ];
        for (uri, want) in cases {
            assert_eq!(host_and_port(uri), want, "{uri}");
        }
    }
}
