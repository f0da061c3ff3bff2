//! Merged DestinationRules, and the effective policy of a subset and port.

use std::sync::Arc;

use config::MeshConfig;
use config::istio::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, OutlierDetection, ProxyProtocol, RetryBudget,
    Subset, TrafficPolicy, TunnelSettings,
};
use flow::Reads;
use gateway_api::backend_policy::{BackendPolicies, BackendPolicy, BackendTls, ServicePortKey};
use model::audience::{OutboundKey, PolicyKey};
use model::service::ObjectId;
use registry::inputs::DestinationRules;

use super::groups::grouped;
use super::{DestinationRuleSummaries, DestinationRulesByHost};
use crate::hosts::Pattern;

flow::rule! {
    /// The merged DestinationRules that a key names.
    pub DestinationPolicies: PolicyKey => Arc<DestinationPolicy> = "destination policies", derive_destination_policies;
}

/// Merged DestinationRules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DestinationPolicy {
    /// The policy of all subsets: that of the first rule that sets one.
    pub policy: Option<TrafficPolicy>,
    /// The subsets of all rules; the first of several with one name wins.
    pub subsets: Vec<Subset>,
    /// The rules, in order of precedence.
    pub origins: Vec<ObjectId>,
    /// The policy was selected by its `workloadSelector`.
    pub selected: bool,
}

impl DestinationPolicy {
    /// The subset of this name.
    pub fn subset(&self, name: &str) -> Option<&Subset> {
        self.subsets.iter().find(|s| &*s.name == name)
    }
}

fn derive_destination_policies(cx: &Reads<'_>, key: &PolicyKey) -> Option<Arc<DestinationPolicy>> {
    let members = cx.get::<DestinationRulesByHost>(&Pattern::of(&key.host))?;
    let own = members.iter().filter(|id| id.namespace == key.namespace);
    let summaries = own.filter_map(|id| cx.get::<DestinationRuleSummaries>(id)).map(|s| (*s).clone());
    let rules = summaries.filter(|s| s.host == key.host).collect();
    let group = grouped(rules).into_iter().find(|g| g.key == *key)?;
    let mut out = DestinationPolicy { selected: group.head().selector.is_some(), ..Default::default() };
    for rule in &group.rules {
        let Some(object) = cx.get::<DestinationRules>(&rule.id) else {
            continue;
        };
        if out.policy.is_none() {
            out.policy = object.spec.traffic_policy.clone();
        }
        for subset in &object.spec.subsets {
            if out.subset(&subset.name).is_none() {
                out.subsets.push(subset.clone());
            }
        }
        out.origins.push(rule.id.clone());
    }
    Some(Arc::new(out))
}

/// The merged rules of a key; none without a key, or if the rules do not exist anymore.
pub fn merged(cx: &Reads<'_>, key: Option<&PolicyKey>) -> Option<Arc<DestinationPolicy>> {
    cx.get::<DestinationPolicies>(key?).map(|row| (*row).clone())
}

/// The rules of an outbound cluster.
pub struct ClusterRules<'k> {
    key: &'k OutboundKey,
    /// The merged rules.
    pub merged: Option<Arc<DestinationPolicy>>,
    /// The settings of the Gateway API's policies for the port.
    backend: Option<Arc<BackendPolicy>>,
}

impl<'k> ClusterRules<'k> {
    /// Reads them. None if the cluster's subset does not exist anymore.
    pub fn read(cx: &Reads<'_>, key: &'k OutboundKey) -> Option<ClusterRules<'k>> {
        let merged = merged(cx, key.policy.as_ref());
        let port = ServicePortKey { service: key.service.clone(), port: key.port };
        let backend = cx.get::<BackendPolicies>(&port).map(|row| (*row).clone());
        let rules = ClusterRules { key, merged, backend };
        (key.subset.is_empty() || rules.subset().is_some()).then_some(rules)
    }

    /// The cluster's subset.
    pub fn subset(&self) -> Option<&Subset> {
        self.merged.as_ref()?.subset(&self.key.subset)
    }

    /// The effective policy of the subset and port, with the mesh's defaults.
    pub fn effective<'a>(&'a self, mesh: &'a MeshConfig) -> EffectivePolicy<'a> {
        let mut policy = effective_in(mesh, self.merged.as_deref(), &self.key.subset, self.key.port);
        let Some(backend) = &self.backend else { return policy };
        policy.retry_budget = policy.retry_budget.or(backend.retry_budget.as_ref());
        if policy.tls.is_none() {
            match &backend.tls {
                Some(BackendTls::Settings(settings)) => policy.tls = Some(settings),
                Some(BackendTls::Unusable) => policy.is_refused = true,
                None => {}
            }
        }
        policy
    }
}

/// The effective traffic policy of a subset and port; absent fields have the mesh's defaults.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct EffectivePolicy<'a> {
    /// Load balancing.
    pub load_balancer: Option<&'a LoadBalancerSettings>,
    /// Limits on connections and requests.
    pub connection_pool: Option<&'a ConnectionPoolSettings>,
    /// Outlier detection.
    pub outlier_detection: Option<&'a OutlierDetection>,
    /// TLS to the endpoints.
    pub tls: Option<&'a ClientTlsSettings>,
    /// TCP in an HTTP tunnel.
    pub tunnel: Option<&'a TunnelSettings>,
    /// The PROXY protocol to the endpoints.
    pub proxy_protocol: Option<&'a ProxyProtocol>,
    /// The retry budget.
    pub retry_budget: Option<&'a RetryBudget>,
    /// No connection may be made: the certificates of the endpoints cannot be verified.
    pub is_refused: bool,
}

/// The policy of a subset (empty for none) and port.
///
/// Port settings replace the four fields that ports can set, including absent ones. A subset's fields override the
/// rule's one by one.
pub fn effective<'a>(policy: Option<&'a DestinationPolicy>, subset: &str, port: u16) -> EffectivePolicy<'a> {
    let Some(policy) = policy else {
        return EffectivePolicy::default();
    };
    let base = policy.policy.as_ref().map(|p| level(p, port).0).unwrap_or_default();
    let over = policy.subset(subset).and_then(|s| s.traffic_policy.as_ref());
    match over.map(|p| level(p, port)) {
        None => base,
        // The port's settings replace all four fields.
        Some((over, true)) => EffectivePolicy {
            tunnel: base.tunnel,
            proxy_protocol: base.proxy_protocol,
            retry_budget: base.retry_budget,
            ..over
        },
        Some((over, false)) => EffectivePolicy {
            is_refused: false,
            load_balancer: over.load_balancer.or(base.load_balancer),
            connection_pool: over.connection_pool.or(base.connection_pool),
            outlier_detection: over.outlier_detection.or(base.outlier_detection),
            tls: over.tls.or(base.tls),
            tunnel: over.tunnel.or(base.tunnel),
            proxy_protocol: over.proxy_protocol.or(base.proxy_protocol),
            retry_budget: over.retry_budget.or(base.retry_budget),
        },
    }
}

/// The policy of a subset and port with the mesh's defaults.
pub fn effective_in<'a>(
    mesh: &'a MeshConfig,
    policy: Option<&'a DestinationPolicy>,
    subset: &str,
    port: u16,
) -> EffectivePolicy<'a> {
    let mut policy = effective(policy, subset, port);
    if let Some(default) = &mesh.default_traffic_policy {
        policy.connection_pool = policy.connection_pool.or(default.connection_pool.as_ref());
        policy.outlier_detection = policy.outlier_detection.or(default.outlier_detection.as_ref());
    }
    policy
}

/// A policy's settings for a port, and whether they are port-level settings.
fn level(policy: &TrafficPolicy, port: u16) -> (EffectivePolicy<'_>, bool) {
    let is_port = |number: u32| number == u32::from(port);
    let own = policy.port_level_settings.iter().find(|p| p.port.as_ref().is_some_and(|p| is_port(p.number)));
    if let Some(own) = own {
        let settings = EffectivePolicy {
            load_balancer: own.load_balancer.as_ref(),
            connection_pool: own.connection_pool.as_ref(),
            outlier_detection: own.outlier_detection.as_ref(),
            tls: own.tls.as_ref(),
            ..EffectivePolicy::default()
        };
        return (settings, true);
    }
    let settings = EffectivePolicy {
        load_balancer: policy.load_balancer.as_ref(),
        connection_pool: policy.connection_pool.as_ref(),
        outlier_detection: policy.outlier_detection.as_ref(),
        tls: policy.tls.as_ref(),
        tunnel: policy.tunnel.as_ref(),
        proxy_protocol: policy.proxy_protocol.as_ref(),
        retry_budget: policy.retry_budget.as_ref(),
        is_refused: false,
    };
    (settings, false)
}

#[cfg(test)]
mod tests {
    use config::istio::{PortSelector, PortTrafficPolicy};

    use super::*;

    fn retries(most: i32) -> OutlierDetection {
        OutlierDetection { max_ejection_percent: most, ..Default::default() }
    }

    fn port(number: u32, outlier: Option<i32>) -> PortTrafficPolicy {
        let port = Some(PortSelector { number });
        PortTrafficPolicy { port, outlier_detection: outlier.map(retries), ..Default::default() }
    }

    fn policy() -> DestinationPolicy {
        let top = TrafficPolicy {
            outlier_detection: Some(retries(1)),
            connection_pool: Some(ConnectionPoolSettings::default()),
            retry_budget: Some(RetryBudget::default()),
            port_level_settings: vec![port(80, Some(2))],
            ..Default::default()
        };
        let v1 = TrafficPolicy {
            outlier_detection: Some(retries(3)),
            port_level_settings: vec![port(90, None)],
            ..Default::default()
        };
        let subset = |name: &str, policy| Subset { name: name.into(), traffic_policy: policy, ..Default::default() };
        DestinationPolicy {
            policy: Some(top),
            subsets: vec![subset("v1", Some(v1)), subset("v2", None)],
            ..Default::default()
        }
    }

    #[test]
    fn ports_replace_and_subsets_overlay() {
        let policy = policy();
        let ejection =
            |subset, port| effective(Some(&policy), subset, port).outlier_detection.map(|o| o.max_ejection_percent);
        let pool = |subset, port| effective(Some(&policy), subset, port).connection_pool.is_some();
        assert_eq!((ejection("", 70), pool("", 70)), (Some(1), true));
        assert_eq!((ejection("", 80), pool("", 80)), (Some(2), false));
        assert_eq!((ejection("v1", 70), pool("v1", 70)), (Some(3), true));
        assert_eq!((ejection("v1", 80), pool("v1", 80)), (Some(3), false));
        assert_eq!((ejection("v1", 90), pool("v1", 90)), (None, false));
        assert_eq!((ejection("v2", 80), pool("v2", 80)), (Some(2), false));
        assert!(effective(Some(&policy), "v1", 90).retry_budget.is_some());
        assert!(effective(Some(&policy), "", 80).retry_budget.is_none());
        assert_eq!(effective(None, "", 80), EffectivePolicy::default());
    }
}
