//! WasmPlugin and TrafficExtension: filters of one's own.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::istio::selection::{PolicySelector, PolicyTargetReference, WorkloadMode};

/// Why a policy can be attached in one way only.
const ONE_TARGET: &str = "selector, targetRef and targetRefs exclude each other";
/// A hash in hexadecimal, or nothing.
const SHA256: &str = "^$|^[a-f0-9]{64}$";

message! {
    /// Puts a WebAssembly module into the filters of proxies.
    pub struct WasmPlugin where [
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// The gateway or service, instead of `selector`; `targetRefs` takes its place.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// The gateways or services, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Where the module is: `oci://`, `http://`, `https://` or `file://`; without a scheme it is `oci://`.
        pub url: Arc<str> where [required, min 1],
        /// The module's hash in hexadecimal; one in the `url` must be equal.
        pub sha256: Arc<str> where [pattern SHA256],
        /// When an image is fetched anew.
        pub image_pull_policy: PullPolicy,
        /// The Secret in the plugin's namespace by which the image is fetched.
        pub image_pull_secret: Arc<str> where [min 1, max 253],
        /// The public key that the module's signature is checked by.
        pub verification_key: Arc<str>,
        /// The configuration that the module gets.
        pub plugin_config: Option<Json> where [keep_unknown],
        /// The name of the plugin's root context in the module.
        pub plugin_name: Arc<str> where [min 1, max 256],
        /// Where the plugin stands among Istio's filters.
        pub phase: PluginPhase,
        /// The order among plugins of a phase: higher ones first; absent means 0.
        pub priority: Option<i32> where [nullable],
        /// What happens to traffic when the module fails.
        pub fail_strategy: FailStrategy,
        /// Settings of the virtual machine.
        pub vm_config: Option<VmConfig>,
        /// The traffic that passes the plugin, where one of these matches; empty: all.
        pub matches: Vec<TrafficSelector> as "match",
        /// What sort of filter it is.
        pub kind: PluginType as "type",
    }
}

message! {
    /// Puts a WebAssembly module or a Lua script into the filters of proxies.
    pub struct TrafficExtension where [
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" "selector and targetRefs exclude each other",
        rule "has(self.wasm) != has(self.lua)" "exactly one of wasm and lua must be set",
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// The gateways or services, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Where the extension stands among Istio's filters.
        pub phase: ExecutionPhase,
        /// The order among extensions of a phase: higher ones first; absent means 0.
        pub priority: Option<i32> where [nullable],
        /// The traffic that passes the extension, where one of these matches; empty: all.
        pub matches: Vec<TrafficSelector> as "match",
        /// The extension itself.
        pub filter: Option<ExtensionFilter>,
    }
}

oneof! {
    /// An extension.
    pub enum ExtensionFilter {
        /// A WebAssembly module.
        Wasm(WasmConfig) = "wasm",
        /// A Lua script.
        Lua(LuaConfig) = "lua",
    }
}

message! {
    /// A WebAssembly module.
    pub struct WasmConfig {
        /// Where the module is: `oci://`, `http://`, `https://` or `file://`; without a scheme it is `oci://`.
        pub url: Arc<str> where [required, min 1],
        /// The module's hash in hexadecimal; one in the `url` must be equal.
        pub sha256: Arc<str> where [pattern SHA256],
        /// When an image is fetched anew.
        pub image_pull_policy: PullPolicy,
        /// The Secret in the extension's namespace by which the image is fetched.
        pub image_pull_secret: Arc<str> where [min 1, max 253],
        /// The public key that the module's signature is checked by.
        pub verification_key: Arc<str>,
        /// The configuration that the module gets.
        pub plugin_config: Option<Json> where [keep_unknown],
        /// The name of the plugin's root context in the module.
        pub plugin_name: Arc<str> where [min 1, max 256],
        /// What happens to traffic when the module fails.
        pub fail_strategy: FailStrategy,
        /// Settings of the virtual machine.
        pub vm_config: Option<VmConfig>,
        /// What sort of filter it is.
        pub kind: PluginType as "type",
    }
}

message! {
    /// A Lua script, which handles HTTP requests and responses.
    pub struct LuaConfig {
        /// The script, with `envoy_on_request` or `envoy_on_response`; at most 64 KiB.
        pub inline_code: Arc<str> where [required, min 1, max 65536],
    }
}

message! {
    /// Conditions on traffic, all of which must hold.
    pub struct TrafficSelector {
        /// The workload's side of the traffic.
        pub mode: WorkloadMode,
        /// The workload's ports, or the services' ports for traffic that leaves; empty: all.
        pub ports: Vec<TrafficPort> where [key number],
    }
}

message! {
    /// A port by its number.
    pub struct TrafficPort {
        /// The number.
        pub number: u32 where [required, min 1, max 65535],
    }
}

enumeration! {
    /// What sort of filter a module is.
    pub enum PluginType {
        /// HTTP.
        #[default]
        Unspecified = "UNSPECIFIED_PLUGIN_TYPE" 0,
        /// A filter of HTTP requests and responses.
        Http = "HTTP" 1,
        /// A filter of connections.
        Network = "NETWORK" 2,
    }
}

enumeration! {
    /// Where a plugin stands among Istio's filters.
    pub enum PluginPhase {
        /// At the end of the filters, before the router.
        #[default]
        Unspecified = "UNSPECIFIED_PHASE" 0,
        /// Before the authentication filters.
        Authn = "AUTHN" 1,
        /// Before the authorization filters and after authentication.
        Authz = "AUTHZ" 2,
        /// Before the statistics filters and after authorization.
        Stats = "STATS" 3,
    }
}

enumeration! {
    /// Where an extension stands among Istio's filters.
    pub enum ExecutionPhase {
        /// At the end of the filters, before the router.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// Before the authentication filters.
        Authn = "AUTHN" 1,
        /// Before the authorization filters and after authentication.
        Authz = "AUTHZ" 2,
        /// Before the statistics filters and after authorization.
        Stats = "STATS" 3,
    }
}

enumeration! {
    /// When an image is fetched anew.
    pub enum PullPolicy {
        /// `IfNotPresent`, but `Always` for the tag `latest`.
        #[default]
        Unspecified = "UNSPECIFIED_POLICY" 0,
        /// When there is none yet.
        IfNotPresent = "IfNotPresent" 1,
        /// When the plugin is put into a proxy.
        Always = "Always" 2,
    }
}

enumeration! {
    /// What happens to traffic when a module cannot be fetched or fails.
    pub enum FailStrategy {
        /// It is refused.
        #[default]
        FailClose = "FAIL_CLOSE" 0,
        /// It passes without the plugin.
        FailOpen = "FAIL_OPEN" 1,
        /// The module is started anew, and traffic is refused where that fails, too.
        FailReload = "FAIL_RELOAD" 2,
    }
}

message! {
    /// Settings of a virtual machine.
    pub struct VmConfig {
        /// The environment variables that the module sees.
        pub env: Vec<EnvVar> where [max 256, key name],
    }
}

message! {
    /// An environment variable.
    pub struct EnvVar where [
        rule "(has(self.valueFrom) ? self.valueFrom : '') != 'HOST' || !has(self.value)"
            "a value can be set with valueFrom INLINE only",
    ] {
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 256],
        /// Where its value comes from.
        pub value_from: EnvValueSource,
        /// Its value, with `INLINE` only.
        pub value: Arc<str> where [max 2048],
    }
}

enumeration! {
    /// Where the value of an environment variable comes from.
    pub enum EnvValueSource {
        /// From the field `value`.
        #[default]
        Inline = "INLINE" 0,
        /// From the proxy's environment.
        Host = "HOST" 1,
    }
}
