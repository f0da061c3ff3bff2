//! Istio's metrics, which only Istio's build of Envoy supports.

use model::listener::{Direction, ListenerSpec};
use protos::stats::PluginConfig;
use security::telemetry::Telemetry;

/// The name of the HTTP and network filters.
pub(crate) const FILTER: &str = "istio.stats";

/// The statistics of a listener; `None` if they are not enabled or the proxy does not support them.
pub(crate) fn of(spec: &ListenerSpec, telemetry: &Telemetry) -> Option<PluginConfig> {
    (telemetry.metrics && spec.capabilities.istio_stats).then(|| PluginConfig {
        // Clients control the `Host` header. Outbound requests come from the own application.
        disable_host_header_fallback: spec.direction != Direction::Outbound,
        ..Default::default()
    })
}
