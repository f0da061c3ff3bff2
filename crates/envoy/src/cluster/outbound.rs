//! Clusters of services: `outbound|PORT|SUBSET|HOST`.

use std::time::Duration;

use bytes::Bytes;
use config::MeshConfig;
use model::audience::{IpFamilies, OutboundKey};
use model::listener::DnsCache;
use model::service::{Endpoint, ObjectId, Registry, Resolution, Service, ServicePort, TargetPort};
use protos::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig,
};
use protos::envoy::config::cluster::v3::cluster::{
    DiscoveryType, DnsLookupFamily, EdsClusterConfig, LbConfig, LbPolicy, OriginalDstLbConfig,
};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use protos::envoy::r#type::v3::Percent;
use protos::{Message, Value, value::Kind};
use registry::Identities;
use registry::inputs::MeshSettings;
use traffic::policy::EffectivePolicy;
use traffic::policy::preference::{Preference, preference, zone_aware};
use traffic::stats;

use super::draft::Draft;
use super::{balancer, forward_proxy, outlier, pool, telemetry, tls};
use crate::assignment::{self, Plain, Selection};
use crate::dns_cache::lookup_family;
use crate::parts::{aggregated_discovery, duration, extension, istio_metadata, origin, stat_name, text};
use crate::pickers;

/// The number of queries per UDP socket before the resolver opens another.
const UDP_MAX_QUERIES: u32 = 100;
/// Envoy rejects refresh rates up to this one.
const LEAST_REFRESH_RATE: Duration = Duration::from_millis(1);
/// The jitter of DNS refreshes, in milliseconds.
const DNS_JITTER_MS: u64 = 100;

/// The facts that decide an outbound cluster.
pub(crate) struct Outbound<'a> {
    pub(crate) key: &'a OutboundKey,
    pub(crate) service: &'a Service,
    pub(crate) port: &'a ServicePort,
    pub(crate) mesh: &'a MeshSettings,
    /// The policy for this port and subset.
    pub(crate) policy: EffectivePolicy<'a>,
    /// The labels of the subset.
    pub(crate) labels: Option<&'a model::proxy::Labels>,
    /// The DestinationRule of the policy.
    pub(crate) origin: Option<&'a ObjectId>,
    /// The service's endpoints, if the cluster contains them.
    pub(crate) endpoints: &'a [Endpoint],
    /// Endpoints that receive plain text although they support the mesh's mutual TLS; `None`: all of them.
    pub(crate) plain: Option<&'a Plain>,
    /// Whether endpoints that support the mesh's mutual TLS use it without a rule (auto mTLS).
    pub(crate) automatic: bool,
    /// Whether clients have session affinity, so that draining endpoints are kept for them.
    pub(crate) sessions: bool,
    /// The identities of the endpoints, if the TLS mode needs them.
    pub(crate) identities: Option<&'a Identities>,
}

/// The discovery type of a service's clusters.
pub(crate) fn discovery(service: &Service, from_endpoints: bool) -> DiscoveryType {
    match service.resolution {
        // An alias has no clusters, and dynamic DNS uses a different cluster type.
        Resolution::Endpoints | Resolution::Alias | Resolution::DynamicDns => DiscoveryType::Eds,
        Resolution::Dns => DiscoveryType::StrictDns,
        Resolution::DnsRoundRobin | Resolution::DnsRace => DiscoveryType::LogicalDns,
        Resolution::Passthrough if from_endpoints => DiscoveryType::Eds,
        Resolution::Passthrough => DiscoveryType::OriginalDst,
    }
}

/// Whether Envoy resolves the endpoints with DNS.
pub(crate) fn is_dns(discovery: DiscoveryType) -> bool {
    matches!(discovery, DiscoveryType::StrictDns | DiscoveryType::LogicalDns)
}

impl Outbound<'_> {
    /// Encodes the cluster.
    pub(crate) fn encode(&self) -> Bytes {
        let name = self.key.cluster_name();
        let mut draft = Draft::new(&name, discovery(self.service, self.key.from_endpoints));
        draft.balancing();
        if is_dns(draft.discovery()) && self.resolve_names(&mut draft).is_none() {
            // Envoy rejects some DNS clusters without endpoints. A static cluster responds with 503, as intended.
            draft.set_discovery(DiscoveryType::Static);
        }
        if !self.key.sni_passthrough {
            self.choose_protocol(&mut draft);
        }
        let mesh = &self.mesh.config;
        if !mesh.outbound_cluster_stat_name.is_empty() {
            let pattern = &mesh.outbound_cluster_stat_name;
            let prefix = stats::prefix(pattern, self.service, self.key.port, &self.key.subset, 0);
            draft.cluster.alt_stat_name = stat_name(&prefix);
        }
        self.apply_policy(&mut draft, mesh);
        if self.service.resolution == Resolution::DynamicDns && draft.discovery() != DiscoveryType::Static {
            self.go_by_name(&mut draft);
        }
        if draft.discovery() == DiscoveryType::Eds {
            let eds_config = Some(aggregated_discovery());
            draft.cluster.eds_cluster_config = Some(EdsClusterConfig { eds_config, service_name: name });
        }
        draft.cluster.metadata = istio_metadata(self.metadata());
        draft.finish()
    }

    /// Adds endpoints to the cluster, whose names Envoy resolves. `None` if there are none.
    // The replacement of these options is unknown to Envoys older than a year.
    #[allow(deprecated)]
    fn resolve_names(&self, draft: &mut Draft) -> Option<()> {
        let selection = Selection {
            port_name: &self.port.name,
            labels: self.labels,
            dns: true,
            single: draft.discovery() == DiscoveryType::LogicalDns,
            mutual_tls: self.plain,
            only_mutual_tls: self.key.sni_passthrough,
            view: self.key.view.as_deref(),
            ..Selection::default()
        };
        let name = &draft.cluster.name;
        let preferred = preference(&self.mesh.config, &self.policy, self.service);
        let (bytes, count) = assignment::encode(name, self.endpoints, selection, None, preferred);
        if count == 0 {
            return None;
        }
        let cluster = &mut draft.cluster;
        cluster.load_assignment = Some(ClusterLoadAssignment::decode(bytes).ok()?);
        let family = match self.key.lookup {
            _ if self.service.resolution == Resolution::DnsRace => DnsLookupFamily::All,
            Some(families) => lookup_family(families),
            // Shared by clients of all families, so it uses the family that most of them can reach.
            None => DnsLookupFamily::V4Preferred,
        };
        cluster.dns_lookup_family = family.into();
        let resolver = CaresDnsResolverConfig { udp_max_queries: Some(UDP_MAX_QUERIES), ..Default::default() };
        cluster.typed_dns_resolver_config = Some(extension("envoy.network.dns_resolver.cares", &resolver));
        cluster.dns_jitter = Some(duration(Duration::from_millis(DNS_JITTER_MS)));
        let rate = Some(self.mesh.config.dns_refresh_rate).filter(|rate| *rate > LEAST_REFRESH_RATE);
        cluster.dns_refresh_rate = rate.map(duration);
        cluster.respect_dns_ttl = true;
        Some(())
    }

    /// Connects to the host that a request names, at the service's port.
    fn go_by_name(&self, draft: &mut Draft) {
        let cache = DnsCache {
            host: Some(self.service.key.hostname.as_arc().clone()),
            families: self.key.lookup.unwrap_or(IpFamilies::V4),
            resolver: None,
        };
        forward_proxy::go_by(draft, &cache);
    }

    fn choose_protocol(&self, draft: &mut Draft) {
        if self.port.protocol.is_http() || self.port.protocol.is_unsupported() {
            draft.keep_case(&self.mesh.config);
        }
        if self.port.protocol.is_http2() {
            draft.speak_http2();
        } else if self.port.protocol.is_unsupported() && !self.key.from_gateway {
            draft.speak_as_client();
        }
    }

    fn apply_policy(&self, draft: &mut Draft, mesh: &MeshConfig) {
        let policy = self.policy;
        let pool = policy.connection_pool;
        if !self.key.sni_passthrough && pool::upgrades_to_http2(mesh, pool, self.port.protocol) {
            draft.speak_http2();
        }
        pool::apply(draft, mesh, pool, policy.retry_budget);
        outlier::apply(draft, policy.outlier_detection);
        // Endpoints that are not ready are sent as unhealthy. Without a panic threshold of zero, Envoy would use them
        // if there are many of them.
        draft.balancing().healthy_panic_threshold.get_or_insert(Percent { value: 0.0 });
        if self.sessions {
            draft.keep_draining();
        }
        balancer::apply(draft, policy.load_balancer);
        if draft.discovery() == DiscoveryType::OriginalDst {
            draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
            draft.cluster.lb_config = self.port_override();
        }
        draft.balancing().locality_config_specifier = self.locality_config(mesh);
        if self.service.registry == Registry::Pool {
            pickers::follow(draft);
        }
        // Passthrough traffic is encrypted by the client.
        if !self.key.sni_passthrough {
            let towards = tls::Towards {
                key: self.key,
                service: self.service,
                mesh,
                automatic: self.automatic,
                identities: self.identities,
            };
            tls::apply(draft, towards, policy.tls, policy.proxy_protocol);
            if policy.is_refused {
                tls::close(draft);
            }
        }
    }

    /// The port of connections, if it differs from the original destination's.
    fn port_override(&self) -> Option<LbConfig> {
        let target = match (self.service.registry, self.service.resolution, &self.port.target) {
            (Registry::ServiceEntry, Resolution::Passthrough, Some(TargetPort::Number(port))) => *port,
            _ => return None,
        };
        Some(LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
            upstream_port_override: Some(target.into()),
            ..Default::default()
        }))
    }

    /// Locality-weighted or zone-aware load balancing.
    fn locality_config(&self, mesh: &MeshConfig) -> Option<LocalityConfigSpecifier> {
        if let Some(setting) = zone_aware(mesh, &self.policy, self.service) {
            return Some(LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig {
                // Envoy enables it by default if it knows the client's cluster.
                routing_enabled: (setting.enabled == Some(false)).then_some(Percent { value: 0.0 }),
                min_cluster_size: setting.min_cluster_size,
                ..Default::default()
            }));
        }
        weighs_localities(&preference(mesh, &self.policy, self.service))
            .then_some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {}))
    }

    /// The metadata that telemetry and `istioctl` read.
    fn metadata(&self) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        if let Some(id) = self.origin {
            fields.push(origin("destination-rule", id));
            if !self.key.subset.is_empty() {
                fields.push(("subset", text(&*self.key.subset)));
            }
            if tls::is_custom(self.policy.tls) {
                fields.push(("alpn_override", text("false")));
            }
        }
        if self.service.external && self.key.subset.is_empty() {
            fields.push(("external", Value { kind: Some(Kind::BoolValue(true)) }));
        }
        fields.push(telemetry::services(self.service));
        fields
    }
}

/// Whether Envoy uses the weights of localities in clusters with this preference.
pub(crate) fn weighs_localities(preference: &Preference<'_>) -> bool {
    match preference {
        Preference::Distribute(_) | Preference::ByLabels(..) => true,
        Preference::ByLocality(failover) => !failover.is_empty(),
        Preference::ByRegion(..) | Preference::Equal => false,
    }
}
