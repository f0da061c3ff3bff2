//! What a proxy's metadata asks for in its listeners. Agents write it from environment variables; as with Istio what cannot be
//! read is as if it were not there.

use model::listener::Tuning;
use model::proxy::Proxy;

/// What a proxy asks for.
pub(super) fn of(proxy: &Proxy) -> Tuning {
    let text = |key: &str| proxy.metadata.get(key).map(|text| &**text);
    let switched = |key: &str| text(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let idle = text("IDLE_TIMEOUT").and_then(config::parse_duration);
    Tuning {
        idle_timeout_ms: idle.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        exact_balance_in: switched("INBOUND_LISTENER_EXACT_BALANCE"),
        exact_balance_out: switched("OUTBOUND_LISTENER_EXACT_BALANCE"),
        http_proxy_port: text("HTTP_PROXY_PORT").and_then(|text| text.parse().ok()),
        static_ports: proxy.static_ports,
    }
}
