//! Limits of connections and requests: `connectionSettings` of the mesh's default ProxyConfig.

use std::time::Duration;

use config::MeshConfig;
use config::mesh::{ConnectionProfile, ConnectionSettings, HeadersWithUnderscoresAction, PathWithEscapedSlashesAction};
use model::listener::Direction;
use protos::envoy::config::core::v3::HttpProtocolOptions;
use protos::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction as Underscores;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::PathWithEscapedSlashesAction as Slashes;

use crate::parts::duration;

/// The minimum HTTP/2 window in Envoy.
const LEAST_WINDOW: u32 = 65_535;

/// The effective settings of a listener. For gateways with the profile `EDGE`, the defaults are Envoy's recommendations
/// for edge proxies.
pub(super) fn settings(mesh: &MeshConfig, direction: Direction) -> Option<ConnectionSettings> {
    let written = mesh.default_config.connection_settings.as_ref()?.clone();
    if written.profile != ConnectionProfile::Edge || direction != Direction::Gateway {
        return Some(written);
    }
    let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
    let kib = |kib: i32| Some(kib * 1024);
    Some(ConnectionSettings {
        listener_per_connection_buffer_limit_bytes: written.listener_per_connection_buffer_limit_bytes.or(kib(32)),
        http_idle_timeout: written.http_idle_timeout.or(minutes(60)),
        http_stream_idle_timeout: written.http_stream_idle_timeout.or(minutes(5)),
        http_request_timeout: written.http_request_timeout.or(minutes(5)),
        http_request_headers_timeout: written.http_request_headers_timeout.or(minutes(1)),
        http_max_concurrent_streams: written.http_max_concurrent_streams.or(Some(100)),
        http2_initial_stream_window_size: written.http2_initial_stream_window_size.or(kib(64)),
        http2_initial_connection_window_size: written.http2_initial_connection_window_size.or(kib(1024)),
        http_headers_with_underscores_action: match written.http_headers_with_underscores_action {
            HeadersWithUnderscoresAction::Unspecified => HeadersWithUnderscoresAction::RejectRequest,
            other => other,
        },
        http_merge_slashes: written.http_merge_slashes.or(Some(true)),
        http_path_with_escaped_slashes_action: match written.http_path_with_escaped_slashes_action {
            PathWithEscapedSlashesAction::Unspecified => PathWithEscapedSlashesAction::UnescapeAndRedirect,
            other => other,
        },
        ..written
    })
}

/// The buffer limit per connection of a gateway's listener, if any.
pub(super) fn buffer(mesh: &MeshConfig, direction: Direction) -> Option<u32> {
    if direction != Direction::Gateway {
        return None;
    }
    at_least(0, settings(mesh, direction)?.listener_per_connection_buffer_limit_bytes)
}

/// Sets the limits of an HTTP connection manager. They override the mesh's `pathNormalization`.
pub(super) fn apply(manager: &mut HttpConnectionManager, settings: &ConnectionSettings) {
    let before = manager.common_http_protocol_options.take().unwrap_or_default();
    let common = HttpProtocolOptions {
        idle_timeout: settings.http_idle_timeout.map(duration).or(before.idle_timeout),
        max_connection_duration: settings.http_max_connection_duration.map(duration),
        max_stream_duration: settings.http_max_stream_duration.map(duration),
        headers_with_underscores_action: underscores(settings.http_headers_with_underscores_action).into(),
        ..Default::default()
    };
    if common != HttpProtocolOptions::default() {
        manager.common_http_protocol_options = Some(common);
    }
    let replace = |old: &mut Option<protos::Duration>, new: Option<Duration>| {
        if let Some(new) = new {
            *old = Some(duration(new));
        }
    };
    replace(&mut manager.stream_idle_timeout, settings.http_stream_idle_timeout);
    replace(&mut manager.request_timeout, settings.http_request_timeout);
    replace(&mut manager.request_headers_timeout, settings.http_request_headers_timeout);
    replace(&mut manager.drain_timeout, settings.http_drain_timeout);
    apply_http2(manager, settings);
    if let Some(merge) = settings.http_merge_slashes {
        manager.merge_slashes = merge;
    }
    if let Some(slashes) = slashes(settings.http_path_with_escaped_slashes_action) {
        manager.path_with_escaped_slashes_action = slashes.into();
    }
}

fn apply_http2(manager: &mut HttpConnectionManager, settings: &ConnectionSettings) {
    let streams = at_least(1, settings.http_max_concurrent_streams);
    let of_stream = at_least(LEAST_WINDOW, settings.http2_initial_stream_window_size);
    let of_connection = at_least(LEAST_WINDOW, settings.http2_initial_connection_window_size);
    if streams.or(of_stream).or(of_connection).is_some() {
        let options = manager.http2_protocol_options.get_or_insert_default();
        options.max_concurrent_streams = streams;
        options.initial_stream_window_size = of_stream;
        options.initial_connection_window_size = of_connection;
    }
}

fn underscores(action: HeadersWithUnderscoresAction) -> Underscores {
    match action {
        HeadersWithUnderscoresAction::RejectRequest => Underscores::RejectRequest,
        HeadersWithUnderscoresAction::DropHeader => Underscores::DropHeader,
        HeadersWithUnderscoresAction::Unspecified | HeadersWithUnderscoresAction::Allow => Underscores::Allow,
    }
}

fn slashes(action: PathWithEscapedSlashesAction) -> Option<Slashes> {
    match action {
        PathWithEscapedSlashesAction::Unspecified => None,
        PathWithEscapedSlashesAction::KeepUnchanged => Some(Slashes::KeepUnchanged),
        PathWithEscapedSlashesAction::RejectRequest => Some(Slashes::RejectRequest),
        PathWithEscapedSlashesAction::UnescapeAndRedirect => Some(Slashes::UnescapeAndRedirect),
        PathWithEscapedSlashesAction::UnescapeAndForward => Some(Slashes::UnescapeAndForward),
    }
}

/// The value, unless it is below Envoy's minimum.
fn at_least(least: u32, value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value >= least)
}
