//! Connection pools: `connectionPool` and `retryBudget` of a DestinationRule.

use std::time::Duration;

use config::MeshConfig;
use config::istio::{
    ConnectionPoolSettings, H2UpgradePolicy, Http2KeepAlive, HttpPoolSettings, RetryBudget, TcpKeepalive, TcpSettings,
};
use protos::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use protos::envoy::config::cluster::v3::circuit_breakers::thresholds::RetryBudget as BudgetOptions;
use protos::envoy::config::cluster::v3::{CircuitBreakers, UpstreamConnectionOptions};
use protos::envoy::config::core::v3::{KeepaliveSettings, TcpKeepalive as KeepaliveOptions};
use protos::envoy::r#type::v3::Percent;

use super::draft::Draft;
use crate::parts::duration;

/// The default share of requests that may be retries, in percent.
const RETRY_BUDGET_PERCENT: f64 = 20.0;
/// The default number of retries that are always allowed.
const RETRY_BUDGET_MINIMUM: u32 = 3;

/// Limits connections and requests. The default is no limit: Envoy's own defaults (1024 connections, 3 retries) cause
/// errors in a busy mesh.
pub(crate) fn apply(
    draft: &mut Draft,
    mesh: &MeshConfig,
    pool: Option<&ConnectionPoolSettings>,
    budget: Option<&RetryBudget>,
) {
    let none = ConnectionPoolSettings::default();
    let pool = pool.unwrap_or(&none);
    let (no_tcp, no_http) = (TcpSettings::default(), HttpPoolSettings::default());
    let (tcp, http) = (pool.tcp.as_ref().unwrap_or(&no_tcp), pool.http.as_ref().unwrap_or(&no_http));

    apply_connect_timeout(draft, mesh, tcp.connect_timeout);
    apply_keepalive(draft, mesh.tcp_keepalive.as_ref());
    apply_keepalive(draft, tcp.tcp_keepalive.as_ref());
    let thresholds = Thresholds {
        max_connections: Some(limit(tcp.max_connections)),
        max_pending_requests: Some(limit(http.http1_max_pending_requests)),
        max_requests: Some(limit(http.http2_max_requests)),
        max_retries: Some(limit(http.max_retries)),
        retry_budget: budget.map(retry_budget),
        ..Default::default()
    };
    let settings = mesh.default_config.connection_settings.as_ref();
    let buffer = settings.and_then(|settings| settings.cluster_per_connection_buffer_limit_bytes);
    draft.cluster.per_connection_buffer_limit_bytes = buffer.and_then(|bytes| u32::try_from(bytes).ok());
    draft.cluster.circuit_breakers = Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() });
    apply_http(draft, tcp, http);
}

/// Sets the connect timeout; the default is the mesh's.
pub(crate) fn apply_connect_timeout(draft: &mut Draft, mesh: &MeshConfig, timeout: Option<Duration>) {
    // Envoy rejects a timeout of zero.
    let timeout = timeout.filter(|d| !d.is_zero()).unwrap_or(mesh.connect_timeout);
    draft.cluster.connect_timeout = Some(timeout).filter(|d| !d.is_zero()).map(duration);
}

/// Whether HTTP/1.1 is upgraded to HTTP/2. A rule applies to any port, the mesh's setting only to ports that are
/// declared as HTTP.
pub(crate) fn upgrades_to_http2(
    mesh: &MeshConfig,
    pool: Option<&ConnectionPoolSettings>,
    protocol: names::Protocol,
) -> bool {
    let http = pool.and_then(|pool| pool.http.as_ref());
    if http.is_some_and(|http| http.use_client_protocol) {
        return false;
    }
    match http.map(|http| http.h2_upgrade_policy).unwrap_or_default() {
        H2UpgradePolicy::Upgrade => true,
        H2UpgradePolicy::DoNotUpgrade => false,
        H2UpgradePolicy::Default => {
            protocol.is_http() && mesh.h2_upgrade_policy == config::mesh::MeshH2UpgradePolicy::Upgrade
        }
    }
}

/// Sets the options of HTTP connections, which also limit the idle time of TCP connections in the pool.
fn apply_http(draft: &mut Draft, tcp: &TcpSettings, http: &HttpPoolSettings) {
    let idle = http.idle_timeout.or(tcp.idle_timeout);
    let max_requests = positive(http.max_requests_per_connection);
    let max_streams = positive(http.max_concurrent_streams);
    let keepalive = http.http2_keep_alive.as_ref();
    if idle.is_some() || max_requests.is_some() || tcp.max_connection_duration.is_some() {
        let common = draft.http().common_http_protocol_options.get_or_insert_default();
        if let Some(idle) = idle {
            common.idle_timeout = Some(duration(idle));
        }
        common.max_requests_per_connection = max_requests;
        common.max_connection_duration = tcp.max_connection_duration.map(duration);
    }
    if let Some(http2) = draft.http2() {
        http2.max_concurrent_streams = max_streams;
        http2.connection_keepalive = keepalive.and_then(pings);
    }
    if http.use_client_protocol {
        draft.speak_as_client();
    }
}

/// HTTP/2 keepalive. Envoy requires a timeout; the default is the interval.
fn pings(keepalive: &Http2KeepAlive) -> Option<KeepaliveSettings> {
    let timeout = keepalive.timeout.or(keepalive.interval)?;
    let settings = KeepaliveSettings {
        interval: keepalive.interval.map(duration),
        timeout: Some(duration(timeout)),
        ..Default::default()
    };
    let least = Duration::from_millis(1);
    (timeout >= least && keepalive.interval.is_none_or(|interval| interval >= least)).then_some(settings)
}

/// Sets TCP keepalive. Unset fields keep their values.
fn apply_keepalive(draft: &mut Draft, keepalive: Option<&TcpKeepalive>) {
    let Some(keepalive) = keepalive else { return };
    let options = draft.cluster.upstream_connection_options.get_or_insert_with(|| UpstreamConnectionOptions {
        // An empty message enables keepalive with the system's settings.
        tcp_keepalive: Some(KeepaliveOptions::default()),
        ..Default::default()
    });
    let probes = options.tcp_keepalive.get_or_insert_default();
    let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
    if keepalive.probes > 0 {
        probes.keepalive_probes = Some(keepalive.probes);
    }
    if let Some(time) = keepalive.time {
        probes.keepalive_time = Some(seconds(time));
    }
    if let Some(interval) = keepalive.interval {
        probes.keepalive_interval = Some(seconds(interval));
    }
}

fn retry_budget(budget: &RetryBudget) -> BudgetOptions {
    let minimum = if budget.min_retry_concurrency > 0 { budget.min_retry_concurrency } else { RETRY_BUDGET_MINIMUM };
    BudgetOptions {
        budget_percent: Some(Percent { value: budget.percent.unwrap_or(RETRY_BUDGET_PERCENT).clamp(0.0, 100.0) }),
        budget_interval: budget.budget_interval.map(duration),
        min_retry_concurrency: Some(minimum),
    }
}

/// A limit. Zero and negative values mean no limit.
fn limit(value: i32) -> u32 {
    positive(value).unwrap_or(u32::MAX)
}

fn positive(value: i32) -> Option<u32> {
    u32::try_from(value).ok().filter(|value| *value > 0)
}
