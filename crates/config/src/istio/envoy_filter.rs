//! EnvoyFilter: changes to the configuration that was made for Envoy.

use std::sync::Arc;

use protos::dynamic::{Completeness, DynamicMessage, Problem, ReflectMessage, check, read_json};
use serde_json::Value as Json;

use crate::istio::selection::PolicyTargetReference;
use crate::istio::workload::WorkloadSelector;
use crate::object::StringMap;

message! {
    /// Changes the configuration that proxies get, after it was made from everything else.
    pub struct EnvoyFilter where [
        rule "(has(self.workloadSelector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1"
            "workloadSelector and targetRefs exclude each other",
    ] {
        /// The workloads whose proxies are changed; absent: all of the namespace, or of the mesh in the root namespace.
        pub workload_selector: Option<WorkloadSelector>,
        /// The gateways or services whose proxies are changed, instead of `workloadSelector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// The changes, which are made one after the other.
        pub config_patches: Vec<EnvoyConfigPatch>,
        /// The order among filters: lower ones first. Equal ones are ordered by creation time and name.
        pub priority: i32,
    }
}

message! {
    /// One change.
    pub struct EnvoyConfigPatch {
        /// What sort of thing is changed.
        pub apply_to: ApplyTo,
        /// Which ones of the sort are changed; absent: all.
        pub matches: Option<EnvoyConfigMatch> as "match",
        /// The change.
        pub patch: Option<EnvoyPatch>,
    }
}

enumeration! {
    /// The sorts of things that can be changed.
    pub enum ApplyTo {
        /// None; a patch must name one.
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
        /// Route configurations, but for their virtual hosts.
        RouteConfiguration = "ROUTE_CONFIGURATION" 5,
        /// Virtual hosts of a route configuration.
        VirtualHost = "VIRTUAL_HOST" 6,
        /// Routes of a virtual host.
        HttpRoute = "HTTP_ROUTE" 7,
        /// Clusters.
        Cluster = "CLUSTER" 8,
        /// Configuration of extensions that is discovered by itself; it can be added only.
        ExtensionConfig = "EXTENSION_CONFIG" 9,
        /// The bootstrap configuration.
        Bootstrap = "BOOTSTRAP" 10,
        /// Listener filters of a listener.
        ListenerFilter = "LISTENER_FILTER" 11,
    }
}

enumeration! {
    /// For which traffic a thing was made.
    pub enum PatchContext {
        /// Any.
        #[default]
        Any = "ANY" 0,
        /// What arrives at a sidecar.
        SidecarInbound = "SIDECAR_INBOUND" 1,
        /// What leaves through a sidecar.
        SidecarOutbound = "SIDECAR_OUTBOUND" 2,
        /// What a gateway serves.
        Gateway = "GATEWAY" 3,
        /// What a waypoint serves.
        Waypoint = "WAYPOINT" 4,
    }
}

message! {
    /// Which things of a sort are changed; all conditions must hold.
    pub struct EnvoyConfigMatch where [
        rule "(has(self.context) && self.context == 'WAYPOINT') == has(self.waypoint)"
            "waypoint goes together with the context WAYPOINT",
    ] {
        /// The traffic that the thing was made for.
        pub context: PatchContext,
        /// The proxies.
        pub proxy: Option<ProxyMatch>,
        /// What the thing belongs to.
        pub object: Option<ObjectMatch>,
    }
}

oneof! {
    /// What a thing belongs to.
    pub enum ObjectMatch {
        /// A listener.
        Listener(ListenerMatch) = "listener",
        /// A route configuration.
        RouteConfiguration(RouteConfigurationMatch) = "routeConfiguration",
        /// A cluster.
        Cluster(ClusterMatch) = "cluster",
        /// A waypoint; with the context `WAYPOINT` only.
        Waypoint(WaypointMatch) = "waypoint",
    }
}

message! {
    /// Conditions on a proxy.
    pub struct ProxyMatch {
        /// A regular expression (RE2) that the version of Istio which the proxy reports must match.
        pub proxy_version: Arc<str>,
        /// Metadata of the proxy's node, each entry equal to this text.
        pub metadata: StringMap,
    }
}

message! {
    /// Conditions on a cluster.
    pub struct ClusterMatch {
        /// The service's port; 0 means any.
        pub port_number: u32,
        /// The service's full host name; empty means any.
        pub service: Arc<str>,
        /// The subset; empty means any.
        pub subset: Arc<str>,
        /// The cluster's exact name; empty means any.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a route configuration.
    pub struct RouteConfigurationMatch {
        /// The port that it serves; 0 means any.
        pub port_number: u32,
        /// The name of a gateway's port; for gateways only.
        pub port_name: Arc<str>,
        /// The Gateway that it was made for, as `namespace/name`; for gateways only.
        pub gateway: Arc<str>,
        /// The virtual host in it.
        pub vhost: Option<VirtualHostMatch>,
        /// The route configuration's exact name, such as `http.8080`; empty means any.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a virtual host.
    pub struct VirtualHostMatch {
        /// Its name, such as `reviews.default.svc.cluster.local:9080`; empty means any.
        pub name: Arc<str>,
        /// A domain that it serves; empty means any.
        pub domain_name: Arc<str>,
        /// The route in it.
        pub route: Option<RouteMatch>,
    }
}

message! {
    /// Conditions on a route.
    pub struct RouteMatch {
        /// Its name, which is `default` for routes that no VirtualService made; empty means any.
        pub name: Arc<str>,
        /// What it does.
        pub action: RouteAction,
    }
}

enumeration! {
    /// What a route does.
    pub enum RouteAction {
        /// Anything.
        #[default]
        Any = "ANY" 0,
        /// It forwards to a cluster.
        Route = "ROUTE" 1,
        /// It answers with a redirect.
        Redirect = "REDIRECT" 2,
        /// It answers with a fixed response.
        DirectResponse = "DIRECT_RESPONSE" 3,
    }
}

message! {
    /// Conditions on a listener.
    pub struct ListenerMatch {
        /// The port that it serves; 0 means any. It is the service's port for traffic that leaves.
        pub port_number: u32,
        /// Without effect.
        pub port_name: Arc<str>,
        /// The filter chain in it.
        pub filter_chain: Option<FilterChainMatch>,
        /// The name of a listener filter that it has; empty means any.
        pub listener_filter: Arc<str>,
        /// The listener's exact name; empty means any.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a filter chain.
    pub struct FilterChainMatch {
        /// Its name; empty means any.
        pub name: Arc<str>,
        /// A server name that it serves; empty means any.
        pub sni: Arc<str>,
        /// `raw_buffer` or `tls`, which it serves; empty means any.
        pub transport_protocol: Arc<str>,
        /// The application protocols that it serves, separated by commas; empty means any.
        pub application_protocols: Arc<str>,
        /// The network filter in it; needed to change network and HTTP filters at a certain place.
        pub filter: Option<FilterMatch>,
        /// The destination port that it serves; 0 means any.
        pub destination_port: u32,
    }
}

message! {
    /// Conditions on a network filter.
    pub struct FilterMatch {
        /// Its name, such as `envoy.filters.network.http_connection_manager`.
        pub name: Arc<str>,
        /// The HTTP filter in it; for `HTTP_FILTER` only.
        pub sub_filter: Option<SubFilterMatch>,
    }
}

message! {
    /// Conditions on a filter inside a filter.
    pub struct SubFilterMatch {
        /// Its name, such as `envoy.filters.http.router`.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a thing of a waypoint.
    pub struct WaypointMatch {
        /// The service's port; absent means any.
        pub port_number: Option<u32> where [rule "0 < self && self <= 65535" "a port is a number from 1 to 65535"],
        /// The route.
        pub route: Option<WaypointRouteMatch>,
        /// The filter.
        pub filter: Option<FilterMatch>,
    }
}

message! {
    /// Conditions on a route of a waypoint.
    pub struct WaypointRouteMatch {
        /// Its name; empty means any.
        pub name: Arc<str>,
    }
}

message! {
    /// How a thing is changed.
    pub struct EnvoyPatch {
        /// What is done.
        pub operation: PatchOperation,
        /// The thing, or the part of it that changes, as JSON of Envoy's message. Needed but for `REMOVE`.
        pub value: Option<Json> where [keep_unknown],
        /// Where an added filter is put among the others.
        pub filter_class: FilterClass,
    }
}

enumeration! {
    /// What is done with a thing.
    pub enum PatchOperation {
        /// Nothing; a patch must name an operation.
        #[default]
        Invalid = "INVALID" 0,
        /// The value is merged into it as protobuf does: lists grow.
        Merge = "MERGE" 1,
        /// The value is added to a list, such as the clusters or the routes of a virtual host.
        Add = "ADD" 2,
        /// It is taken out.
        Remove = "REMOVE" 3,
        /// The value is put before it.
        InsertBefore = "INSERT_BEFORE" 4,
        /// The value is put after it.
        InsertAfter = "INSERT_AFTER" 5,
        /// The value becomes the first of its list.
        InsertFirst = "INSERT_FIRST" 6,
        /// The value takes its place; for network and HTTP filters.
        Replace = "REPLACE" 7,
        /// The value is merged into it, and lists take the place of lists.
        MergeAndReplaceList = "MERGE_AND_REPLACE_LIST" 8,
    }
}

enumeration! {
    /// Among which filters an added one is put. Without effect, as in Istio.
    pub enum FilterClass {
        /// Where the operation says.
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
    /// The full name of Envoy's message for things of this sort; none for [`ApplyTo::Invalid`].
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

    /// Whether things of this sort stand in a list in which a patch may choose a place.
    pub const fn has_places(self) -> bool {
        matches!(
            self,
            ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::ListenerFilter | ApplyTo::HttpRoute
        )
    }
}

impl PatchOperation {
    /// Whether the value is merged into what is there.
    pub const fn merges(self) -> bool {
        matches!(self, PatchOperation::Merge | PatchOperation::MergeAndReplaceList)
    }
}

/// The value of a patch as Envoy's message, and what is wrong with it: it cannot be read, or breaks a rule that Envoy
/// keeps. What only gets merged may be incomplete. Fields that the message does not have are left out.
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

/// What Envoy would not take for a regular expression, or only at a cost that nobody can tell.
fn unbounded(message: &DynamicMessage) -> Option<(&'static str, String)> {
    if message.descriptor().full_name() != "envoy.type.matcher.v3.RegexMatcher" {
        return None;
    }
    let regex = message.get_field_by_name("regex")?;
    let regex = regex.as_str().filter(|regex| !regex.is_empty())?;
    crate::validate::regex_problem(regex).map(|problem| ("regex", problem))
}
