//! Clusters of services: `outbound|PORT|SUBSET|HOST`.

use bytes::Bytes;
use model::audience::{IpFamilies, OutboundKey};
use model::service::{Endpoint, ObjectId, Registry, Resolution, Service, ServicePort};
use protos::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig,
};
use protos::envoy::config::cluster::v3::cluster::{DiscoveryType, DnsLookupFamily, EdsClusterConfig, LbPolicy};
use protos::envoy::config::core::v3::{HealthStatus, HealthStatusSet};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use protos::envoy::r#type::v3::Percent;
use protos::{Message, Value, value::Kind};
use registry::Identities;
use registry::inputs::MeshSettings;
use resources::MeshConfig;
use traffic::policy::EffectivePolicy;
use traffic::policy::preference::{Preference, preference};

use super::draft::Draft;
use super::{balancer, outlier, pool, tls};
use crate::assignment::{self, Selection};
use crate::parts::{aggregated_discovery, duration, extension, istio_metadata, object, origin, stat_name, text};

/// Label of a service whose clients stay with one endpoint: draining ones are kept for them.
const PERSISTENT_SESSION_LABEL: &str = "istio.io/persistent-session";
/// The same, for sessions by header.
const PERSISTENT_SESSION_HEADER_LABEL: &str = "istio.io/persistent-session-header";
/// Questions over one socket until the resolver opens another.
const UDP_MAX_QUERIES: u32 = 100;
/// Spread of the times at which names are asked for again, in milliseconds.
const DNS_JITTER_MS: u64 = 100;

/// Everything that decides an outbound cluster.
pub(crate) struct Outbound<'a> {
    pub(crate) key: &'a OutboundKey,
    pub(crate) service: &'a Service,
    pub(crate) port: &'a ServicePort,
    pub(crate) mesh: &'a MeshSettings,
    /// The policy for this port and subset.
    pub(crate) policy: EffectivePolicy<'a>,
    /// The labels of the subset.
    pub(crate) labels: Option<&'a model::proxy::Labels>,
    /// The DestinationRule that the policy is from.
    pub(crate) origin: Option<&'a ObjectId>,
    /// The service's endpoints, where Envoy gets them with the cluster.
    pub(crate) endpoints: &'a [Endpoint],
    /// Who the endpoints are, where the TLS asks for it.
    pub(crate) identities: Option<&'a Identities>,
}

/// How Envoy finds the endpoints of a service.
pub(crate) fn discovery(service: &Service, from_endpoints: bool) -> DiscoveryType {
    match service.resolution {
        // An alias has no clusters.
        Resolution::Endpoints | Resolution::Alias => DiscoveryType::Eds,
        Resolution::Dns => DiscoveryType::StrictDns,
        Resolution::DnsRoundRobin => DiscoveryType::LogicalDns,
        Resolution::Passthrough if from_endpoints => DiscoveryType::Eds,
        Resolution::Passthrough => DiscoveryType::OriginalDst,
    }
}

/// Whether endpoints are asked from DNS.
pub(crate) fn is_dns(discovery: DiscoveryType) -> bool {
    matches!(discovery, DiscoveryType::StrictDns | DiscoveryType::LogicalDns)
}

impl Outbound<'_> {
    /// The encoded cluster.
    pub(crate) fn encode(&self) -> Bytes {
        let name = self.key.cluster_name();
        let mut draft = Draft::new(&name, discovery(self.service, self.key.from_endpoints));
        draft.balancing();
        if is_dns(draft.discovery()) && self.resolve_names(&mut draft).is_none() {
            // Envoy refuses some clusters of DNS names that have none. This one answers with 503, as it should.
            draft.set_discovery(DiscoveryType::Static);
        }
        if !self.key.passed_through {
            self.choose_protocol(&mut draft);
        }
        let mesh = &self.mesh.config;
        if !mesh.outbound_cluster_stat_name.is_empty() {
            draft.cluster.alt_stat_name = stat_name(&self.stat_prefix(mesh));
        }
        self.apply_policy(&mut draft, mesh);
        if draft.discovery() == DiscoveryType::Eds {
            let eds_config = Some(aggregated_discovery());
            draft.cluster.eds_cluster_config = Some(EdsClusterConfig {
                eds_config,
                service_name: name,
            });
        }
        draft.cluster.metadata = istio_metadata(self.metadata());
        draft.finish()
    }

    /// Names and addresses come with the cluster, and Envoy asks DNS for the names. None if there are none.
    // The options have a newer place, which Envoys older than a year do not know.
    #[allow(deprecated)]
    fn resolve_names(&self, draft: &mut Draft) -> Option<()> {
        let selection = Selection {
            port_name: &self.port.name,
            labels: self.labels,
            dns: true,
            single: draft.discovery() == DiscoveryType::LogicalDns,
            only_mutual_tls: self.key.passed_through,
            ..Selection::default()
        };
        let name = &draft.cluster.name;
        let (bytes, count) = assignment::encode(name, self.endpoints, selection, None, Preference::Equal);
        if count == 0 {
            return None;
        }
        let cluster = &mut draft.cluster;
        cluster.load_assignment = Some(ClusterLoadAssignment::decode(bytes).ok()?);
        let family = match self.key.lookup {
            Some(IpFamilies::V4) => DnsLookupFamily::V4Only,
            Some(IpFamilies::V6) => DnsLookupFamily::V6Only,
            Some(IpFamilies::Dual) => DnsLookupFamily::All,
            // Shared by clients of all families: what most of them can reach.
            None => DnsLookupFamily::V4Preferred,
        };
        cluster.dns_lookup_family = family.into();
        let resolver = CaresDnsResolverConfig {
            udp_max_queries: Some(UDP_MAX_QUERIES),
            ..Default::default()
        };
        cluster.typed_dns_resolver_config = Some(extension("envoy.network.dns_resolver.cares", &resolver));
        cluster.dns_jitter = Some(duration(std::time::Duration::from_millis(DNS_JITTER_MS)));
        cluster.dns_refresh_rate = Some(duration(self.mesh.config.dns_refresh_rate)).filter(|d| d.seconds > 0);
        cluster.respect_dns_ttl = true;
        Some(())
    }

    fn choose_protocol(&self, draft: &mut Draft) {
        if self.port.protocol.is_http2() {
            draft.speak_http2();
        } else if self.port.protocol.is_unsupported() && !self.key.from_gateway {
            draft.speak_as_client();
        }
    }

    fn apply_policy(&self, draft: &mut Draft, mesh: &MeshConfig) {
        let policy = self.policy;
        let pool = policy.connection_pool;
        if !self.key.passed_through && pool::upgrades_to_http2(mesh, pool, self.port.protocol) {
            draft.speak_http2();
        }
        pool::apply(draft, mesh, pool, policy.retry_budget);
        outlier::apply(draft, policy.outlier_detection);
        // Endpoints that are not ready are sent as unhealthy. Without a threshold of zero Envoy would use them, too,
        // as soon as there are many of them.
        draft
            .balancing()
            .healthy_panic_threshold
            .get_or_insert(Percent { value: 0.0 });
        if has_persistent_sessions(self.service) {
            let kept = [
                HealthStatus::Healthy,
                HealthStatus::Draining,
                HealthStatus::Unknown,
                HealthStatus::Degraded,
            ];
            draft.balancing().override_host_status = Some(HealthStatusSet {
                statuses: kept.map(i32::from).to_vec(),
            });
        }
        balancer::apply(draft, policy.load_balancer);
        if draft.discovery() == DiscoveryType::OriginalDst {
            draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
            draft.cluster.lb_config = None;
        }
        if weighs_localities(preference(mesh, &policy, self.service)) {
            // Without this Envoy takes no notice of the localities' weights.
            let weighted = LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {});
            draft.balancing().locality_config_specifier = Some(weighted);
        }
        // What is passed on unopened has its own TLS.
        if !self.key.passed_through {
            let towards = tls::Towards {
                key: self.key,
                service: self.service,
                mesh,
                identities: self.identities,
            };
            tls::apply(draft, towards, policy.tls, policy.proxy_protocol);
        }
    }

    /// What telemetry and `istioctl` read.
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
            fields.push((
                "external",
                Value {
                    kind: Some(Kind::BoolValue(true)),
                },
            ));
        }
        let service = object([
            ("host", text(self.service.key.hostname.as_str())),
            ("name", text(self.service_name())),
            ("namespace", text(&*self.service.key.namespace)),
        ]);
        let service = Value {
            kind: Some(Kind::StructValue(service)),
        };
        let list = prost_types::ListValue { values: vec![service] };
        fields.push((
            "services",
            Value {
                kind: Some(Kind::ListValue(list)),
            },
        ));
        fields
    }

    /// The short name of a Kubernetes service; the hostname of others.
    fn service_name(&self) -> &str {
        match self.service.registry {
            Registry::Kubernetes | Registry::Import => &self.service.object.name,
            Registry::ServiceEntry => self.service.key.hostname.as_str(),
        }
    }

    /// The mesh's pattern for names in statistics, filled in.
    fn stat_prefix(&self, mesh: &MeshConfig) -> String {
        let host = self.service.key.hostname.as_str();
        let short = match self.service.registry {
            Registry::Kubernetes | Registry::Import => {
                format!("{}.{}", self.service.object.name, self.service.key.namespace)
            }
            Registry::ServiceEntry => host.to_owned(),
        };
        let values = [
            ("%SERVICE%", &*short),
            ("%SERVICE_NAME%", self.service_name()),
            ("%SERVICE_FQDN%", host),
            ("%SUBSET_NAME%", &self.key.subset),
            ("%TARGET_PORT%", "0"),
            ("%SERVICE_PORT%", &self.port.number.to_string()),
            ("%SERVICE_PORT_NAME%", &self.port.name),
        ];
        let pattern = mesh.outbound_cluster_stat_name.to_string();
        values
            .into_iter()
            .fold(pattern, |name, (operator, value)| name.replace(operator, value))
    }
}

/// Whether shares or an order of localities are asked for, beyond the near ones first.
fn weighs_localities(preference: Preference<'_>) -> bool {
    match preference {
        Preference::Distribute(_) | Preference::ByLabels(..) => true,
        Preference::ByLocality(failover) => !failover.is_empty(),
        Preference::Equal => false,
    }
}

/// Whether clients of a service stay with one endpoint, so that draining ones are kept for them.
pub(crate) fn has_persistent_sessions(service: &Service) -> bool {
    [PERSISTENT_SESSION_LABEL, PERSISTENT_SESSION_HEADER_LABEL]
        .into_iter()
        .any(|label| service.labels.get(label).is_some_and(|value| !value.is_empty()))
}
