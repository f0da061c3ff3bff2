//! EnvoyFilter: patches for the generated Envoy configuration.

use std::sync::Arc;

use protos::dynamic::{Completeness, DynamicMessage, Problem, ReflectMessage, check, read_json};
use serde_json::Value as Json;

use crate::istio::selection::PolicyTargetReference;
use crate::istio::workload::WorkloadSelector;
use crate::object::StringMap;

/// The number of different `proxyVersion` expressions of an EnvoyFilter that are used.
pub const MOST_VERSIONS: usize = 16;

message! {
    /// Patches the Envoy configuration that is generated from all other resources.
    pub struct EnvoyFilter: Relations where [
        exclusive(workloadSelector, targetRefs),
        rule "(has(self.workloadSelector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1"
            "workloadSelector and targetRefs are mutually exclusive",
    ] {
        /// Selects the workloads whose proxies are patched. If omitted, all proxies in the namespace are patched, or
        /// all proxies in the mesh if the object is in the root namespace.
        pub workload_selector: Option<WorkloadSelector>,
        /// Gateways or services whose proxies are patched, instead of `workloadSelector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Patches, applied in order.
        pub config_patches: Vec<EnvoyConfigPatch>,
        /// Priority among EnvoyFilters. Lower values are applied first; equal values are ordered by creation time and
        /// name.
        pub priority: i32,
    }
}

message! {
    /// One patch.
    pub struct EnvoyConfigPatch: Relations {
        /// Kind of configuration to patch.
        pub apply_to: ApplyTo where [needed],
        /// Conditions on the configuration to patch. If omitted, all configuration of the kind matches.
        pub matches: Option<EnvoyConfigMatch> as "match",
        /// Patch to apply.
        pub patch: Option<EnvoyPatch> where [needed],
    }
}

enumeration! {
    /// Kind of configuration that a patch applies to.
    pub enum ApplyTo {
        /// Unset. A patch must set a kind.
        #[default]
        Invalid = "INVALID" 0,
        /// Listeners.
        Listener = "LISTENER" 1,
        /// Filter chains of a listener.
        FilterChain = "FILTER_CHAIN" 2,
        /// Network filters of a filter chain.
        NetworkFilter = "NETWORK_FILTER" 3,
        /// HTTP filters of an HTTP connection manager.
        HttpFilter = "HTTP_FILTER" 4,
        /// Route configurations, except for their virtual hosts.
        RouteConfiguration = "ROUTE_CONFIGURATION" 5,
        /// Virtual hosts of a route configuration.
        VirtualHost = "VIRTUAL_HOST" 6,
        /// Routes of a virtual host.
        HttpRoute = "HTTP_ROUTE" 7,
        /// Clusters.
        Cluster = "CLUSTER" 8,
        /// Extension configurations served by ECDS. They can only be added.
        ExtensionConfig = "EXTENSION_CONFIG" 9,
        /// Bootstrap configuration.
        Bootstrap = "BOOTSTRAP" 10,
        /// Listener filters of a listener.
        ListenerFilter = "LISTENER_FILTER" 11,
    }
}

enumeration! {
    /// Traffic that a part of the configuration is generated for.
    pub enum PatchContext {
        /// Any traffic.
        #[default]
        Any = "ANY" 0,
        /// Inbound traffic of a sidecar.
        SidecarInbound = "SIDECAR_INBOUND" 1,
        /// Outbound traffic of a sidecar.
        SidecarOutbound = "SIDECAR_OUTBOUND" 2,
        /// Traffic of a gateway.
        Gateway = "GATEWAY" 3,
        /// Traffic of a waypoint.
        Waypoint = "WAYPOINT" 4,
    }
}

message! {
    /// Conditions on the configuration to patch, all of which must match.
    pub struct EnvoyConfigMatch where [
        rule "(has(self.context) && self.context == 'WAYPOINT') == has(self.waypoint)"
            "waypoint must be set if and only if the context is WAYPOINT",
    ] {
        /// Traffic that the configuration is generated for.
        pub context: PatchContext,
        /// Conditions on the proxy.
        pub proxy: Option<ProxyMatch>,
        /// Conditions on the Envoy resource.
        pub object: Option<ObjectMatch>,
    }
}

oneof! {
    /// Conditions on an Envoy resource.
    pub enum ObjectMatch {
        /// Conditions on a listener.
        Listener(ListenerMatch) = "listener",
        /// Conditions on a route configuration.
        RouteConfiguration(RouteConfigurationMatch) = "routeConfiguration",
        /// Conditions on a cluster.
        Cluster(ClusterMatch) = "cluster",
        /// Conditions on a waypoint's configuration. Requires the context `WAYPOINT`.
        Waypoint(WaypointMatch) = "waypoint",
    }
}

message! {
    /// Conditions on a proxy.
    pub struct ProxyMatch {
        /// Regular expression (RE2) that the Istio version reported by the proxy must match.
        pub proxy_version: Arc<str> where [is own_regex],
        /// Node metadata of the proxy. Each value must be equal.
        pub metadata: StringMap,
    }
}

message! {
    /// Conditions on a cluster.
    pub struct ClusterMatch {
        /// Port of the service. 0 matches any port.
        pub port_number: u32,
        /// Fully qualified host name of the service. Empty matches any service.
        pub service: Arc<str>,
        /// Subset of the service. Empty matches any subset.
        pub subset: Arc<str>,
        /// Exact name of the cluster. Empty matches any name.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a route configuration.
    pub struct RouteConfigurationMatch {
        /// Port that the route configuration serves. 0 matches any port.
        pub port_number: u32,
        /// Name of the Gateway port. Applies to gateways only.
        pub port_name: Arc<str>,
        /// Gateway that the route configuration is generated for, as `namespace/name`. Applies to gateways only.
        pub gateway: Arc<str>,
        /// Conditions on a virtual host of the route configuration.
        pub vhost: Option<VirtualHostMatch>,
        /// Exact name of the route configuration, such as `http.8080`. Empty matches any name.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a virtual host.
    pub struct VirtualHostMatch {
        /// Name of the virtual host, such as `reviews.default.svc.cluster.local:9080`. Empty matches any name.
        pub name: Arc<str>,
        /// Domain that the virtual host serves. Empty matches any domain.
        pub domain_name: Arc<str>,
        /// Conditions on a route of the virtual host.
        pub route: Option<RouteMatch>,
    }
}

message! {
    /// Conditions on a route.
    pub struct RouteMatch {
        /// Name of the route. Routes without a VirtualService are named `default`. Empty matches any name.
        pub name: Arc<str>,
        /// Action of the route.
        pub action: RouteAction,
    }
}

enumeration! {
    /// Action of a route.
    pub enum RouteAction {
        /// Any action.
        #[default]
        Any = "ANY" 0,
        /// Forwards to a cluster.
        Route = "ROUTE" 1,
        /// Responds with a redirect.
        Redirect = "REDIRECT" 2,
        /// Responds with a fixed response.
        DirectResponse = "DIRECT_RESPONSE" 3,
    }
}

message! {
    /// Conditions on a listener.
    pub struct ListenerMatch {
        /// Port that the listener serves. For outbound listeners, this is the service port. 0 matches any port.
        pub port_number: u32,
        /// Has no effect.
        pub port_name: Arc<str>,
        /// Conditions on a filter chain of the listener.
        pub filter_chain: Option<FilterChainMatch>,
        /// Name of a listener filter of the listener. Empty matches any listener.
        pub listener_filter: Arc<str>,
        /// Exact name of the listener. Empty matches any name.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a filter chain.
    pub struct FilterChainMatch {
        /// Name of the filter chain. Empty matches any name.
        pub name: Arc<str>,
        /// Server name (SNI) that the filter chain matches. Empty matches any.
        pub sni: Arc<str>,
        /// Transport protocol that the filter chain matches: `raw_buffer` or `tls`. Empty matches any.
        pub transport_protocol: Arc<str>,
        /// Application protocols (ALPN) that the filter chain matches, separated by commas. Empty matches any.
        pub application_protocols: Arc<str>,
        /// Conditions on a network filter of the filter chain. Required to insert network or HTTP filters at a specific
        /// position.
        pub filter: Option<FilterMatch>,
        /// Destination port that the filter chain matches. 0 matches any port.
        pub destination_port: u32,
        /// Name of the transport socket of the filter chain. Not compared.
        pub transport_socket: Arc<str> where [
            warn "not-served" "istiod does not compare the transport socket either; the patch applies whatever it is",
        ],
    }
}

message! {
    /// Conditions on a network filter.
    pub struct FilterMatch {
        /// Name of the filter, such as `envoy.filters.network.http_connection_manager`.
        pub name: Arc<str> where [needed, is filter_name],
        /// Conditions on an HTTP filter within the network filter. Applies to `HTTP_FILTER` only.
        pub sub_filter: Option<SubFilterMatch>,
    }
}

message! {
    /// Conditions on a filter within another filter.
    pub struct SubFilterMatch {
        /// Name of the filter, such as `envoy.filters.http.router`.
        pub name: Arc<str> where [needed, is filter_name],
    }
}

message! {
    /// Conditions on the configuration of a waypoint.
    pub struct WaypointMatch {
        /// Port of the service. If omitted, any port matches.
        pub port_number: Option<u32> where [
            rule "0 < self && self <= 65535" "a port must be a number from 1 to 65535", from 1, to 65535,
        ],
        /// Conditions on a route.
        pub route: Option<WaypointRouteMatch>,
        /// Conditions on a filter.
        pub filter: Option<FilterMatch>,
    }
}

message! {
    /// Conditions on a route of a waypoint.
    pub struct WaypointRouteMatch {
        /// Name of the route. Empty matches any name.
        pub name: Arc<str>,
    }
}

message! {
    /// Patch operation and its value.
    pub struct EnvoyPatch {
        /// Operation of the patch.
        pub operation: PatchOperation where [needed],
        /// Envoy message, or the part of it to merge, as JSON. Required for all operations except `REMOVE`.
        pub value: Option<Json> where [keep_unknown],
        /// Position of an added filter relative to Istio's filters.
        pub filter_class: FilterClass where [
            warn "no-effect" "filterClass has no effect; the operation determines the position",
        ],
    }
}

enumeration! {
    /// Operation of a patch.
    pub enum PatchOperation {
        /// Unset. A patch must set an operation.
        #[default]
        Invalid = "INVALID" 0,
        /// Merges the value with protobuf merge semantics: lists are appended.
        Merge = "MERGE" 1,
        /// Adds the value to a list, such as the clusters or the routes of a virtual host.
        Add = "ADD" 2,
        /// Removes the matching configuration.
        Remove = "REMOVE" 3,
        /// Inserts the value before the matching configuration.
        InsertBefore = "INSERT_BEFORE" 4,
        /// Inserts the value after the matching configuration.
        InsertAfter = "INSERT_AFTER" 5,
        /// Inserts the value at the start of the list.
        InsertFirst = "INSERT_FIRST" 6,
        /// Replaces the matching configuration. Applies to network and HTTP filters.
        Replace = "REPLACE" 7,
        /// Merges the value, but replaces lists instead of appending to them.
        MergeAndReplaceList = "MERGE_AND_REPLACE_LIST" 8,
    }
}

enumeration! {
    /// Position of an added filter relative to Istio's filters. Has no effect, as in Istio.
    pub enum FilterClass {
        /// Position given by the operation.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// After Istio's authentication filters.
        Authn = "AUTHN" 1,
        /// After Istio's authorization filters.
        Authz = "AUTHZ" 2,
        /// Before Istio's statistics filters.
        Stats = "STATS" 3,
    }
}

impl ApplyTo {
    /// Full name of the Envoy message that this kind of patch applies to; `None` for [`ApplyTo::Invalid`].
    pub const fn message(self) -> Option<&'static str> {
        Some(match self {
            ApplyTo::Invalid => return None,
            ApplyTo::Listener => "envoy.config.listener.v3.Listener",
            ApplyTo::FilterChain => "envoy.config.listener.v3.FilterChain",
            ApplyTo::NetworkFilter => "envoy.config.listener.v3.Filter",
            ApplyTo::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
            ApplyTo::ListenerFilter => "envoy.config.listener.v3.ListenerFilter",
            ApplyTo::RouteConfiguration => "envoy.config.route.v3.RouteConfiguration",
            ApplyTo::VirtualHost => "envoy.config.route.v3.VirtualHost",
            ApplyTo::HttpRoute => "envoy.config.route.v3.Route",
            ApplyTo::Cluster => "envoy.config.cluster.v3.Cluster",
            ApplyTo::ExtensionConfig => "envoy.config.core.v3.TypedExtensionConfig",
            ApplyTo::Bootstrap => "envoy.config.bootstrap.v3.Bootstrap",
        })
    }

    /// Whether a patch can choose a position within a list.
    pub const fn is_ordered(self) -> bool {
        matches!(self, ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::ListenerFilter | ApplyTo::HttpRoute)
    }
}

impl PatchOperation {
    /// Whether the value is merged into existing configuration.
    pub const fn merges(self) -> bool {
        matches!(self, PatchOperation::Merge | PatchOperation::MergeAndReplaceList)
    }
}

/// Decodes the value of a patch as an Envoy message and reports its problems: JSON that does not decode, and violations
/// of Envoy's validation rules. Required fields may be missing from a value that is merged. Unknown fields are dropped.
pub fn patch_value(apply_to: ApplyTo, patch: &EnvoyPatch) -> (Option<DynamicMessage>, Vec<Problem>) {
    let descriptor = apply_to.message().and_then(protos::dynamic::descriptor);
    let (Some(descriptor), Some(value)) = (descriptor, &patch.value) else {
        return (None, Vec::new());
    };
    if patch.operation == PatchOperation::Remove || !value.is_object() {
        return (None, Vec::new());
    }
    let (message, mut problems) = read_json(&descriptor, value);
    let completeness = match patch.operation.merges() {
        true => Completeness::Part,
        false => Completeness::Whole,
    };
    problems.extend(check(&message, completeness, &unbounded));
    (Some(message), problems)
}

/// Reports a regular expression that Envoy would reject or whose cost is not bounded.
fn unbounded(message: &DynamicMessage) -> Option<(&'static str, String)> {
    if message.descriptor().full_name() != "envoy.type.matcher.v3.RegexMatcher" {
        return None;
    }
    let regex = message.get_field_by_name("regex")?;
    let regex = regex.as_str().filter(|regex| !regex.is_empty())?;
    crate::form::check_regex(regex).err().map(|error| ("regex", error.to_string()))
}
