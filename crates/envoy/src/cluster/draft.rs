//! A cluster under construction: the message, and the HTTP options that are packed into it.

use bytes::Bytes;
use config::MeshConfig;
use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy};
use protos::envoy::config::cluster::v3::{Cluster, cluster};
use protos::envoy::config::core::v3::{HealthStatus, HealthStatusSet, Http1ProtocolOptions, Http2ProtocolOptions};
use protos::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use protos::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use protos::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
};

use crate::headers;
use crate::parts::{any, stat_name};

/// The key of the HTTP options among a cluster's extension options.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// A cluster that is not complete.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) cluster: Cluster,
    /// `None` means HTTP/1.1 with Envoy's defaults.
    pub(crate) http: Option<HttpProtocolOptions>,
    /// Whether the case of HTTP/1 header names is preserved.
    keeps_case: bool,
}

impl Draft {
    /// A cluster with a name and a discovery type.
    pub(crate) fn new(name: &str, discovery: DiscoveryType) -> Draft {
        let cluster = Cluster { name: name.to_owned(), alt_stat_name: stat_name(name), ..Default::default() };
        let mut draft = Draft { cluster, ..Default::default() };
        draft.set_discovery(discovery);
        draft
    }

    /// Sets the discovery type.
    pub(crate) fn set_discovery(&mut self, discovery: DiscoveryType) {
        self.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(discovery.into()));
    }

    pub(crate) fn discovery(&self) -> DiscoveryType {
        match self.cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::Type(number)) => number.try_into().unwrap_or(DiscoveryType::Static),
            _ => DiscoveryType::Static,
        }
    }

    /// Keeps the original destination of connections.
    pub(crate) fn set_original_destination(&mut self) {
        self.set_discovery(DiscoveryType::OriginalDst);
        self.cluster.lb_policy = LbPolicy::ClusterProvided.into();
        self.cluster.load_assignment = None;
    }

    /// The HTTP options, for modification.
    pub(crate) fn http(&mut self) -> &mut HttpProtocolOptions {
        self.http.get_or_insert_default()
    }

    /// The common load balancing options, for modification.
    pub(crate) fn balancing(&mut self) -> &mut cluster::CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_default()
    }

    /// Keeps draining endpoints for clients with session affinity.
    pub(crate) fn keep_draining(&mut self) {
        let kept = [HealthStatus::Healthy, HealthStatus::Draining, HealthStatus::Unknown, HealthStatus::Degraded];
        self.balancing().override_host_status = Some(HealthStatusSet { statuses: kept.map(i32::from).to_vec() });
    }

    /// Uses HTTP/2, unless another protocol was chosen before.
    pub(crate) fn speak_http2(&mut self) {
        let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
        self.http().upstream_protocol_options.get_or_insert_with(|| explicit(http2));
    }

    /// Uses the protocol of the downstream connection: HTTP/2 or HTTP/1.1.
    pub(crate) fn speak_as_client(&mut self) {
        self.http().upstream_protocol_options =
            Some(UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
                http_protocol_options: Some(Http1ProtocolOptions::default()),
                http2_protocol_options: Some(Http2ProtocolOptions::default()),
                ..Default::default()
            }));
    }

    /// Preserves the case of header names in HTTP/1.1 if the mesh settings require it.
    pub(crate) fn keep_case(&mut self, mesh: &MeshConfig) {
        self.keeps_case = headers::keep_case(mesh);
    }

    /// The HTTP/2 options, if HTTP/2 is always spoken.
    pub(crate) fn http2(&mut self) -> Option<&mut Http2ProtocolOptions> {
        match self.http.as_mut()?.upstream_protocol_options.as_mut()? {
            UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(options)),
            }) => Some(options),
            _ => None,
        }
    }

    /// Encodes the cluster.
    pub(crate) fn finish(mut self) -> Bytes {
        if self.keeps_case {
            self.http();
        }
        if let Some(mut http) = self.http {
            // Envoy requires a choice of protocol if there are options.
            http.upstream_protocol_options
                .get_or_insert_with(|| explicit(ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default())));
            if self.keeps_case
                && let Some(http1) = http.upstream_protocol_options.as_mut().and_then(http1_of)
            {
                http1.header_key_format = Some(headers::in_their_case());
            }
            self.cluster.typed_extension_protocol_options.insert(HTTP_OPTIONS.to_owned(), any(&http));
        }
        protos::encode(&self.cluster)
    }
}

fn explicit(protocol: ProtocolConfig) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config: Some(protocol) })
}

/// The HTTP/1 options, if HTTP/1 may be used.
fn http1_of(options: &mut UpstreamProtocolOptions) -> Option<&mut Http1ProtocolOptions> {
    match options {
        UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(ProtocolConfig::HttpProtocolOptions(http1)),
        }) => Some(http1),
        UpstreamProtocolOptions::UseDownstreamProtocolConfig(config) => config.http_protocol_options.as_mut(),
        _ => None,
    }
}
