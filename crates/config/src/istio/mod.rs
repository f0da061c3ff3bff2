//! Istio's kinds: the API groups `networking`, `security`, `telemetry` and `extensions.istio.io`, with all their
//! fields.
//!
//! Names follow the proto files. An unset proto3 field is an empty string, list or map, zero, or `None` where unset
//! differs from the zero value.

pub mod authentication;
pub mod authorization_policy;
pub mod connection;
pub mod destination;
pub mod destination_rule;
pub mod envoy_filter;
pub mod extension;
pub mod gateway;
pub mod http_route;
pub mod load_balancer;
pub mod proxy_config;
pub mod references;
pub mod selection;
pub mod service_entry;
pub mod sidecar;
pub mod telemetry;
pub mod virtual_service;
pub mod workload;

pub use authentication::{JwtRule, MutualTls, MutualTlsMode, PeerAuthentication, RequestAuthentication};
pub use authorization_policy::AuthorizationPolicy;
pub use connection::{
    ClientTlsMode, ClientTlsSettings, ConnectionPoolSettings, H2UpgradePolicy, Http2KeepAlive, HttpPoolSettings,
    OutlierDetection, TcpKeepalive, TcpSettings,
};
pub use destination::{Destination, PortSelector, StringMatch};
pub use destination_rule::{
    DestinationRule, PortTrafficPolicy, ProxyProtocol, ProxyProtocolVersion, RetryBudget, Subset, TrafficPolicy,
    TunnelSettings,
};
pub use envoy_filter::EnvoyFilter;
pub use extension::{TrafficExtension, WasmPlugin};
pub use gateway::{Gateway, Port, Server, ServerTlsMode, ServerTlsSettings, TlsCertificate, TlsProtocol};
pub use http_route::{
    Abort, AbortType, CorsPolicy, Delay, DelayType, Delegate, HeaderOperations, Headers, HttpBody, HttpDirectResponse,
    HttpFaultInjection, HttpMirrorPolicy, HttpRedirect, HttpRetry, HttpRewrite, Percent, RedirectPort,
    RedirectPortSelection, RegexRewrite, UnmatchedPreflights,
};
pub use load_balancer::{
    ConsistentHash, CookieAttribute, Distribute, Failover, HashAlgorithm, HashKey, HttpCookie, LbPolicy,
    LoadBalancerSettings, LocalityLoadBalancerSetting, MagLev, RingHash, SimpleLb, WarmupConfiguration,
    ZoneAwareLoadBalancerSetting,
};
pub use proxy_config::ProxyConfig;
pub use selection::{PolicySelector, PolicyTargetReference, WorkloadMode};
pub use service_entry::{Location, Resolution, ServiceEntry, ServicePort};
pub use sidecar::{
    CaptureMode, EgressListener, IngressListener, OutboundMode, OutboundTrafficPolicy, Sidecar, SidecarPort,
};
pub use telemetry::Telemetry;
pub use virtual_service::{
    HttpAction, HttpMatchRequest, HttpRoute, HttpRouteDestination, L4MatchAttributes, RouteDestination, TcpRoute,
    TlsMatchAttributes, TlsRoute, VirtualService,
};
pub use workload::{
    ExecCheck, GrpcCheck, HealthCheck, HttpCheck, HttpCheckHeader, ReadinessProbe, TcpCheck, WorkloadEntry,
    WorkloadGroup, WorkloadGroupMetadata, WorkloadSelector,
};
