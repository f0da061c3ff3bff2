//! WasmPlugin and TrafficExtension: custom proxy filters.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::istio::selection::{ONE_TARGET, PolicySelector, PolicyTargetReference, WorkloadMode};

/// Pattern of a SHA-256 hash in hexadecimal; may be empty.
const SHA256: &str = "^$|^[a-f0-9]{64}$";

message! {
    /// Adds a WebAssembly filter to proxies.
    pub struct WasmPlugin where [
        exclusive(selector, targetRef, targetRefs),
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// Selects the workloads that the plugin applies to. If omitted, it applies to all workloads in its namespace,
        /// or in the mesh if it is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Gateway or service that the plugin is attached to, instead of `selector`. Deprecated in favor of
        /// `targetRefs`.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// Gateways or services that the plugin is attached to, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// URL of the module: `oci://`, `http://`, `https://` or `file://`. The scheme defaults to `oci://`.
        pub url: Arc<str> where [required, min 1, is module_url],
        /// SHA-256 checksum of the module in hexadecimal. If the `url` contains a checksum, both must be equal.
        pub sha256: Arc<str> where [pattern SHA256],
        /// Pull policy for an OCI image.
        pub image_pull_policy: PullPolicy,
        /// Name of the Secret with the credentials for the image registry, in the plugin's namespace.
        pub image_pull_secret: Arc<str> where [min 1, max 253],
        /// Public key that verifies the signature of the module.
        pub verification_key: Arc<str>,
        /// Configuration that is passed to the plugin.
        pub plugin_config: Option<Json> where [keep_unknown],
        /// Name of the plugin's root context within the module.
        pub plugin_name: Arc<str> where [min 1, max 256],
        /// Position of the plugin in the filter chain.
        pub phase: PluginPhase,
        /// Priority among plugins of the same phase. Higher values run first. Defaults to 0.
        pub priority: Option<i32> where [nullable],
        /// Behavior when the module cannot be loaded or fails.
        pub fail_strategy: FailStrategy,
        /// Settings of the Wasm virtual machine.
        pub vm_config: Option<VmConfig>,
        /// Traffic that the plugin applies to: traffic that at least one entry matches. If empty, it applies to all
        /// traffic.
        pub matches: Vec<TrafficSelector> as "match",
        /// Type of the filter.
        pub kind: PluginType as "type",
    }
}

message! {
    /// Adds a WebAssembly or Lua filter to proxies.
    pub struct TrafficExtension where [
        exclusive(selector, targetRefs), any(wasm, lua),
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" "selector and targetRefs are mutually exclusive",
        rule "has(self.wasm) != has(self.lua)" "exactly one of wasm and lua must be set",
    ] {
        /// Selects the workloads that the extension applies to. If omitted, it applies to all workloads in its
        /// namespace, or in the mesh if it is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Gateways or services that the extension is attached to, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Position of the extension in the filter chain.
        pub phase: ExecutionPhase,
        /// Priority among extensions of the same phase. Higher values run first. Defaults to 0.
        pub priority: Option<i32> where [nullable],
        /// Traffic that the extension applies to: traffic that at least one entry matches. If empty, it applies to all
        /// traffic.
        pub matches: Vec<TrafficSelector> as "match",
        /// Filter that the extension adds.
        pub filter: Option<ExtensionFilter>,
    }
}

oneof! {
    /// Filter of an extension.
    pub enum ExtensionFilter {
        /// WebAssembly module.
        Wasm(WasmConfig) = "wasm",
        /// Lua script.
        Lua(LuaConfig) = "lua",
    }
}

message! {
    /// WebAssembly module.
    pub struct WasmConfig {
        /// URL of the module: `oci://`, `http://`, `https://` or `file://`. The scheme defaults to `oci://`.
        pub url: Arc<str> where [required, min 1, is module_url],
        /// SHA-256 checksum of the module in hexadecimal. If the `url` contains a checksum, both must be equal.
        pub sha256: Arc<str> where [pattern SHA256],
        /// Pull policy for an OCI image.
        pub image_pull_policy: PullPolicy,
        /// Name of the Secret with the credentials for the image registry, in the extension's namespace.
        pub image_pull_secret: Arc<str> where [min 1, max 253],
        /// Public key that verifies the signature of the module.
        pub verification_key: Arc<str>,
        /// Configuration that is passed to the plugin.
        pub plugin_config: Option<Json> where [keep_unknown],
        /// Name of the plugin's root context within the module.
        pub plugin_name: Arc<str> where [min 1, max 256],
        /// Behavior when the module cannot be loaded or fails.
        pub fail_strategy: FailStrategy,
        /// Settings of the Wasm virtual machine.
        pub vm_config: Option<VmConfig>,
        /// Type of the filter.
        pub kind: PluginType as "type",
    }
}

message! {
    /// Lua script that processes HTTP requests and responses.
    pub struct LuaConfig {
        /// Source of the script, which defines `envoy_on_request` or `envoy_on_response`. The limit is 64 KiB.
        pub inline_code: Arc<str> where [required, min 1, max 65536, is lua],
    }
}

message! {
    /// Conditions on traffic, all of which must match.
    pub struct TrafficSelector {
        /// Whether the workload is the client or the server of the traffic.
        pub mode: WorkloadMode,
        /// Ports of the workload for inbound traffic, or of the service for outbound traffic. If empty, all ports
        /// match.
        pub ports: Vec<TrafficPort> where [key number],
    }
}

message! {
    /// Port by number.
    pub struct TrafficPort {
        /// Port number.
        pub number: u32 where [required, min 1, max 65535],
    }
}

enumeration! {
    /// Type of a Wasm filter.
    pub enum PluginType {
        /// HTTP filter.
        #[default]
        Unspecified = "UNSPECIFIED_PLUGIN_TYPE" 0,
        /// HTTP filter.
        Http = "HTTP" 1,
        /// Network filter, which processes connections.
        Network = "NETWORK" 2,
    }
}

enumeration! {
    /// Position of a plugin in the filter chain.
    pub enum PluginPhase {
        /// At the end of the filter chain, before the router.
        #[default]
        Unspecified = "UNSPECIFIED_PHASE" 0,
        /// Before Istio's authentication filters.
        Authn = "AUTHN" 1,
        /// After Istio's authentication filters and before its authorization filters.
        Authz = "AUTHZ" 2,
        /// After Istio's authorization filters and before its statistics filters.
        Stats = "STATS" 3,
    }
}

enumeration! {
    /// Position of an extension in the filter chain.
    pub enum ExecutionPhase {
        /// At the end of the filter chain, before the router.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// Before Istio's authentication filters.
        Authn = "AUTHN" 1,
        /// After Istio's authentication filters and before its authorization filters.
        Authz = "AUTHZ" 2,
        /// After Istio's authorization filters and before its statistics filters.
        Stats = "STATS" 3,
    }
}

enumeration! {
    /// Pull policy for an OCI image.
    pub enum PullPolicy {
        /// `Always` for the tag `latest`, otherwise `IfNotPresent`.
        #[default]
        Unspecified = "UNSPECIFIED_POLICY" 0,
        /// Pulls the image if it is not cached.
        IfNotPresent = "IfNotPresent" 1,
        /// Pulls the image every time the plugin is added to a proxy.
        Always = "Always" 2,
    }
}

enumeration! {
    /// Behavior when a module cannot be fetched or fails at runtime.
    pub enum FailStrategy {
        /// Rejects the traffic.
        #[default]
        FailClose = "FAIL_CLOSE" 0,
        /// Forwards the traffic without the plugin.
        FailOpen = "FAIL_OPEN" 1,
        /// Restarts the module. Rejects the traffic if the restart fails.
        FailReload = "FAIL_RELOAD" 2,
    }
}

message! {
    /// Settings of a Wasm virtual machine.
    pub struct VmConfig {
        /// Environment variables that the module can read.
        pub env: Vec<EnvVar> where [max 256, key name],
    }
}

message! {
    /// Environment variable of a Wasm module.
    pub struct EnvVar: Relations where [
        rule "(has(self.valueFrom) ? self.valueFrom : '') != 'HOST' || !has(self.value)"
            "value requires valueFrom INLINE",
    ] {
        /// Name of the variable.
        pub name: Arc<str> where [required, min 1, max 256],
        /// Source of the value.
        pub value_from: EnvValueSource,
        /// Value of the variable. Requires `valueFrom: INLINE`.
        pub value: Arc<str> where [max 2048],
    }
}

enumeration! {
    /// Source of the value of an environment variable.
    pub enum EnvValueSource {
        /// The field `value`.
        #[default]
        Inline = "INLINE" 0,
        /// The environment of the proxy.
        Host = "HOST" 1,
    }
}
