//! Small messages that several resources use.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use protos::envoy::config::core::v3 as core;
use protos::envoy::config::listener::v3::{Filter, filter};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::{HttpFilter, http_filter};
use protos::envoy::r#type::matcher::v3 as matcher;
use protos::envoy::r#type::v3 as percent;
use protos::{Any, Message, Name, Struct, Value, value::Kind};
use security::telemetry::Backend;

/// The suffix of resource names in statistics, by which the bootstrap's tag rules find the end of the name.
const STAT_DELIMITER: char = ';';

/// A name for statistics, followed by a semicolon.
pub(crate) fn stat_name(name: &str) -> String {
    format!("{name}{STAT_DELIMITER}")
}

/// A regular expression that matches only this text (RE2).
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

/// Packs a message into an `Any`.
pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    protos::any(message)
}

pub(crate) fn extension<M: Message + Name>(name: &str, config: &M) -> core::TypedExtensionConfig {
    core::TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(config)) }
}

pub(crate) fn transport_socket<M: Message + Name>(name: &str, config: &M) -> core::TransportSocket {
    let config = core::transport_socket::ConfigType::TypedConfig(any(config));
    core::TransportSocket { name: name.to_owned(), config_type: Some(config) }
}

pub(crate) fn network_filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(any(config))) }
}

pub(crate) fn http_filter<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(config))),
        ..Default::default()
    }
}

/// ADS on the same stream. Envoy waits without a timeout for the first response, because starting without it would lose
/// requests.
pub(crate) fn aggregated_discovery() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(Default::default())),
        initial_fetch_timeout: Some(seconds(0)),
        resource_api_version: core::ApiVersion::V3.into(),
        ..Default::default()
    }
}

/// A TCP address.
pub(crate) fn socket_address(address: IpAddr, port: u16) -> core::SocketAddress {
    core::SocketAddress {
        address: address.to_string(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
        ..Default::default()
    }
}

/// A TCP address as an `Address`.
pub(crate) fn address(ip: IpAddr, port: u16) -> core::Address {
    core::Address { address: Some(core::address::Address::SocketAddress(socket_address(ip, port))) }
}

pub(crate) fn udp_address(ip: IpAddr, port: u16) -> core::Address {
    let socket =
        core::SocketAddress { protocol: core::socket_address::Protocol::Udp.into(), ..socket_address(ip, port) };
    core::Address { address: Some(core::address::Address::SocketAddress(socket)) }
}

/// A Unix domain socket. Istio's prefix `unix://` is removed.
pub(crate) fn pipe(path: &str) -> core::Address {
    let path = path.strip_prefix("unix://").unwrap_or(path).to_owned();
    core::Address { address: Some(core::address::Address::Pipe(core::Pipe { path, mode: 0 })) }
}

/// A range of addresses.
pub(crate) fn range(range: &IpNet) -> core::CidrRange {
    core::CidrRange { address_prefix: range.network().to_string(), prefix_len: Some(u32::from(range.prefix_len())) }
}

/// A file that the proxy reads.
pub(crate) fn file(path: &str) -> core::DataSource {
    core::DataSource { specifier: Some(core::data_source::Specifier::Filename(path.to_owned())), ..Default::default() }
}

pub(crate) fn grpc_service(to: &Backend) -> core::GrpcService {
    envoy_grpc(to.cluster(), &to.authority)
}

/// A gRPC service by its cluster; an empty authority means the name of the cluster.
pub(crate) fn envoy_grpc(cluster: impl Into<String>, authority: &str) -> core::GrpcService {
    let target = core::grpc_service::EnvoyGrpc {
        cluster_name: cluster.into(),
        authority: authority.to_owned(),
        ..Default::default()
    };
    core::GrpcService {
        target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(target)),
        ..Default::default()
    }
}

/// A duration of whole seconds.
pub(crate) fn seconds(seconds: i64) -> protos::Duration {
    protos::Duration { seconds, nanos: 0 }
}

pub(crate) fn duration(duration: Duration) -> protos::Duration {
    protos::duration(duration)
}

/// A regular expression that must match the whole text.
pub(crate) fn regex(regex: &str) -> matcher::RegexMatcher {
    matcher::RegexMatcher { regex: regex.to_owned(), ..Default::default() }
}

pub(crate) fn exact(text: &str) -> matcher::StringMatcher {
    let pattern = matcher::string_matcher::MatchPattern::Exact(text.to_owned());
    matcher::StringMatcher { match_pattern: Some(pattern), ignore_case: false }
}

/// A percentage of requests with a precision of 0.0001. Values out of range are clamped to 0 or 100.
pub(crate) fn millionths(value: f64) -> percent::FractionalPercent {
    let numerator = (value.clamp(0.0, 100.0) * 10_000.0) as u32;
    percent::FractionalPercent { numerator, denominator: percent::fractional_percent::DenominatorType::Million.into() }
}

/// A whole percentage of requests. Values above 100 are clamped.
pub(crate) fn hundredths(value: u32) -> percent::FractionalPercent {
    percent::FractionalPercent {
        numerator: value.min(100),
        denominator: percent::fractional_percent::DenominatorType::Hundred.into(),
    }
}

/// A percentage that has no runtime override.
pub(crate) fn fraction(value: percent::FractionalPercent) -> core::RuntimeFractionalPercent {
    core::RuntimeFractionalPercent { default_value: Some(value), runtime_key: String::new() }
}

/// A string as a dynamic value.
pub(crate) fn text(value: impl Into<String>) -> Value {
    Value { kind: Some(Kind::StringValue(value.into())) }
}

/// A dynamic object.
pub(crate) fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

/// Metadata under `istio`, where telemetry and `istioctl` look for it; `None` if there are no fields.
pub(crate) fn istio_metadata(fields: Vec<(&'static str, Value)>) -> Option<core::Metadata> {
    if fields.is_empty() {
        return None;
    }
    let filter_metadata = [("istio".to_owned(), object(fields))].into();
    Some(core::Metadata { filter_metadata, ..Default::default() })
}

/// The source object of a resource, as metadata `istio.config`: `/apis/networking.istio.io/v1/namespaces/…`. `kind` is
/// in kebab case.
pub(crate) fn origin(kind: &str, id: &model::service::ObjectId) -> (&'static str, Value) {
    origin_in("networking.istio.io/v1", kind, id)
}

/// As [`origin`], for an object of this group and version.
pub(crate) fn origin_in(version: &str, kind: &str, id: &model::service::ObjectId) -> (&'static str, Value) {
    let path = format!("/apis/{version}/namespaces/{}/{kind}/{}", id.namespace, id.name);
    ("config", text(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_clamped() {
        assert_eq!(millionths(0.0001).numerator, 1);
        assert_eq!(millionths(33.3).numerator, 333_000);
        assert_eq!(millionths(150.0).numerator, 1_000_000);
        assert_eq!(millionths(-1.0).numerator, 0);
        assert_eq!(millionths(f64::NAN).numerator, 0);
        assert_eq!(hundredths(200).numerator, 100);
    }

    #[test]
    fn a_socket_path_has_no_scheme() {
        for path in ["unix:///var/run/a", "/var/run/a"] {
            let Some(core::address::Address::Pipe(pipe)) = pipe(path).address else { panic!("not a pipe") };
            assert_eq!(pipe.path, "/var/run/a");
        }
    }
}
