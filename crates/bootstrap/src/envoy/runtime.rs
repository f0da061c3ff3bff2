//! Values of Envoy's runtime, and the limit of connections.

use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostics;
use crate::node::Node;

/// The deprecated runtime value with the limit of connections.
const RUNTIME_LIMIT: &str = "overload.global_downstream_max_connections";
/// The entry of `proxyMetadata` with the limit of connections.
const METADATA_LIMIT: &str = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";

/// The runtime values: defaults, and `runtimeValues` over them. An empty value removes a default.
pub(super) fn values(node: &Node) -> Map<String, Value> {
    let mut values: Map<String, Value> = [
        ("re2.max_program_size.error_level", json!("32768")),
        ("envoy.reloadable_features.http_reject_path_with_fragment", json!(false)),
        ("envoy.reloadable_features.fixed_heap_use_allocated", json!(true)),
        ("envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update", json!(false)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    if node.options.fips {
        values.insert("envoy.reloadable_features.google_grpc_disable_tls_13".to_owned(), true.into());
    }
    if !node.options.strip_fragment {
        let name = "envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled";
        values.insert(name.to_owned(), false.into());
    }
    for (name, value) in &node.settings.runtime_values {
        let value = match &**value {
            "" => {
                values.remove(&**name);
                continue;
            }
            // Envoy accepts booleans of feature flags only as such.
            "true" => true.into(),
            "false" => false.into(),
            text => text.into(),
        };
        values.insert(name.to_string(), value);
    }
    values
}

/// The maximum number of connections of the proxy: that of the settings, of the metadata or of the runtime, in this order.
pub(super) fn max_connections(node: &Node, diagnostics: &mut Diagnostics) -> i64 {
    let settings = &node.settings;
    let connections = settings.connection_settings.as_ref();
    if let Some(limit) =
        connections.and_then(|settings| settings.global_downstream_connection_limit).filter(|limit| *limit > 0)
    {
        return limit.into();
    }
    let given = [
        (format!("proxyMetadata.{METADATA_LIMIT}"), settings.proxy_metadata.get(METADATA_LIMIT)),
        (format!("runtimeValues.{RUNTIME_LIMIT}"), settings.runtime_values.get(RUNTIME_LIMIT)),
    ];
    for (place, text) in given {
        match text.map(|text| text.parse::<i64>()) {
            Some(Ok(limit)) if limit > 0 => return limit,
            Some(_) => diagnostics.add(place, "is not a number of connections above 0; it is ignored"),
            None => {}
        }
    }
    i32::MAX.into()
}
