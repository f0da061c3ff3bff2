//! Metrics in Istio's form, which only Istio's build of Envoy makes.

use model::listener::{Direction, ListenerSpec};
use protos::stats::PluginConfig;
use security::telemetry::Telemetry;

/// The name of the filters, for HTTP and for connections.
pub(crate) const FILTER: &str = "istio.stats";

/// The statistics of a listener; `None` if they are not enabled or the proxy does not support them.
pub(crate) fn of(spec: &ListenerSpec, telemetry: &Telemetry) -> Option<PluginConfig> {
    (telemetry.metrics && spec.capabilities.istio_stats).then(|| PluginConfig {
        // Clients write what they like into `Host`. On the way out it is the own application's.
        disable_host_header_fallback: spec.direction != Direction::Outbound,
        ..Default::default()
    })
}
