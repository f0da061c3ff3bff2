//! Builds the audience of secrets.

use std::sync::Arc;

use config::istio::DestinationRule;
use config::mesh::{PrivateKeyProvider, ProxyConfig};
use gateway_api::binding::GatewayAccounts;
use model::audience::{Account, SecretAudience};
use model::proxy::{Capabilities, ProxyKind, SecretRight};
use model::service::ObjectId;
use model::tls::{KeyProvider, KeyProviderSort};
use registry::inputs::DestinationRules;

use super::class::Class;
use super::facts::Facts;
use super::overrides::Overrides;

/// The audience of a proxy with a right to secrets; others get none.
pub(super) fn audience(facts: &Facts<'_>, class: &Class, overrides: &Overrides) -> Option<SecretAudience> {
    let proxy = facts.proxy;
    let account = match proxy.secrets {
        SecretRight::None => return None,
        SecretRight::Namespace => None,
        SecretRight::Account => Some(proxy.service_account.clone()),
    };
    let set = class.gateway().map(|facts| facts.set.clone()).unwrap_or_default();
    let own = set.gateways.iter().filter(|id| id.namespace == proxy.namespace);
    let kube = set.kube.iter().filter(|id| account.as_ref().is_none_or(|account| has_account(facts, id, account)));
    Some(SecretAudience {
        key_provider: key_provider(overrides.settings(facts.mesh), proxy.capabilities),
        namespace: proxy.namespace.clone(),
        cluster: facts.mesh.cluster_of_id(&proxy.cluster_id),
        account: account.clone(),
        gateways: own.cloned().collect(),
        kube: kube.cloned().collect(),
    })
}

/// Whether the proxies of a Gateway of the Gateway API may have this service account. A proxy only claims its labels, so the
/// account must be the one of the Gateway.
fn has_account(facts: &Facts<'_>, gateway: &ObjectId, account: &Arc<str>) -> bool {
    facts.cx.with::<GatewayAccounts, _>(gateway, |own| own.is_none_or(|own| own == account))
}

/// The service account that must be allowed to list Secrets, for a proxy whose configuration may refer to some: every
/// gateway, and sidecars that a DestinationRule or a `Sidecar` gives a `credentialName`.
pub(super) fn reader(facts: &Facts<'_>, audience: &SecretAudience) -> Option<Account> {
    let refers = match facts.proxy.kind {
        ProxyKind::Router => true,
        ProxyKind::Sidecar => sidecar_refers(facts),
        ProxyKind::Grpc => false,
    };
    let name = audience.account.clone().filter(|_| refers)?;
    Some(Account { cluster: audience.cluster.clone(), namespace: audience.namespace.clone(), name })
}

fn sidecar_refers(facts: &Facts<'_>) -> bool {
    let in_rule = |rule: &DestinationRule| {
        let policies = rule.traffic_policy.iter().chain(rule.subsets.iter().flat_map(|subset| &subset.traffic_policy));
        let of_ports =
            policies.clone().flat_map(|policy| policy.port_level_settings.iter().filter_map(|port| port.tls.as_ref()));
        let mut all = policies.filter_map(|policy| policy.tls.as_ref()).chain(of_ports);
        all.any(|tls| !tls.credential_name.is_empty())
    };
    let rule = |id| facts.cx.with::<DestinationRules, _>(id, |rule| rule.is_some_and(|rule| in_rule(&rule.spec)));
    let mut ingress = facts.sidecar.iter().flat_map(|sidecar| &sidecar.spec.ingress);
    let tls = |listener: &config::istio::IngressListener| {
        listener.tls.as_ref().is_some_and(|tls| !tls.credential_name.is_empty() || !tls.credential_names.is_empty())
    };
    ingress.any(tls) || facts.scope.selected_rules.iter().any(rule)
}

/// The configured provider of private key operations, if the proxy's build supports it: others would NACK the secret.
fn key_provider(settings: &ProxyConfig, build: Capabilities) -> Option<KeyProvider> {
    let (sort, settings) = match settings.private_key_provider.as_ref()? {
        PrivateKeyProvider::Cryptomb(settings) if build.cryptomb => (KeyProviderSort::Cryptomb, settings),
        PrivateKeyProvider::Qat(settings) if build.qat => (KeyProviderSort::Qat, settings),
        _ => return None,
    };
    Some(KeyProvider { sort, poll_delay: settings.poll_delay?, fallback: settings.fallback.unwrap_or_default() })
}
