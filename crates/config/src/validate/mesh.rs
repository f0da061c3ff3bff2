//! Validation of MeshConfig.

use std::sync::Arc;
use std::time::Duration;

use names::TrustDomain;

use crate::diagnostic::FieldPath;
use crate::mesh::{
    AuthenticationPolicy, ConnectionSettings, CustomTag, MeshConfig, PrivateKeyProvider, ProxyConfig, Tracer,
};
use crate::validate::{Report, common, headers, hosts, http_policy, locality, providers, traffic_policy, workload};

/// Minimum HTTP/2 flow-control window, in bytes.
const MIN_WINDOW: i32 = 65_535;

pub(super) fn check(r: &mut Report, mesh: &MeshConfig) {
    let path = FieldPath::spec();
    signed_port(r, &path.field("proxyListenPort"), mesh.proxy_listen_port);
    signed_port(r, &path.field("proxyInboundListenPort"), mesh.proxy_inbound_listen_port);
    if mesh.proxy_http_port != 0 {
        signed_port(r, &path.field("proxyHttpPort"), mesh.proxy_http_port);
    }
    timeouts(r, &path, mesh);
    traffic_policy::keepalive(r, &path.field("tcpKeepalive"), mesh.tcp_keepalive.as_ref());
    proxy_config(r, &path.field("defaultConfig"), &mesh.default_config);
    // Assume that outlier detection is set: each DestinationRule can configure it.
    if let Some(setting) = &mesh.locality_lb_setting {
        locality::check(r, &path.field("localityLbSetting"), setting, true);
    }
    if let Some(setting) = &mesh.zone_aware_lb_setting {
        locality::check_zone_aware(r, &path.field("zoneAwareLbSetting"), setting, true);
    }
    for (index, settings) in mesh.service_settings.iter().enumerate() {
        for (number, host) in settings.hosts.iter().enumerate() {
            let at = path.field("serviceSettings").index(index).field("hosts").index(number);
            hosts::wildcard_host(r, &at, host);
        }
    }
    trust(r, &path, mesh);
    exports(r, &path, mesh);
    if mesh.mesh_mtls.as_ref().is_some_and(|tls| !tls.ecdh_curves.is_empty()) {
        r.error(
            &path.field("meshMTLS").field("ecdhCurves"),
            "unsupported",
            "ecdhCurves is not supported for connections within the mesh",
        );
    }
    if let Some(policy) = &mesh.default_traffic_policy {
        let at = path.field("defaultTrafficPolicy");
        traffic_policy::connection_pool(r, &at.field("connectionPool"), policy.connection_pool.as_ref());
        traffic_policy::outlier_detection(r, &at.field("outlierDetection"), policy.outlier_detection.as_ref());
    }
    http_policy::retries(
        r,
        &path.field("defaultHttpRetryPolicy"),
        mesh.default_http_retry_policy.as_ref(),
    );
    providers::check(r, &path, mesh);
    providers::mesh_log_file(r, &path, mesh);
    providers::mesh_log_format(r, &path, mesh);
}

fn signed_port(r: &mut Report, path: &FieldPath, number: i32) {
    common::port(r, path, u32::try_from(number).unwrap_or(0));
}

fn timeouts(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let connect = path.field("connectTimeout");
    common::duration(r, &connect, Some(mesh.connect_timeout));
    if mesh.connect_timeout > Duration::from_secs(30) {
        r.error(&connect, "out-of-range", "connectTimeout must not exceed 30s");
    }
    for (field, value) in [
        ("protocolDetectionTimeout", mesh.protocol_detection_timeout),
        ("dnsRefreshRate", mesh.dns_refresh_rate),
    ] {
        let set = Some(value).filter(|value| !value.is_zero());
        common::duration(r, &path.field(field), set);
    }
    common::duration(r, &path.field("hboneIdleTimeout"), mesh.hbone_idle_timeout);
}

fn trust(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let domain = |r: &mut Report, at: &FieldPath, text: &str| {
        if let Err(error) = TrustDomain::parse(text) {
            r.error(at, "bad-value", error.to_string());
        }
    };
    domain(r, &path.field("trustDomain"), &mesh.trust_domain);
    for (index, alias) in mesh.trust_domain_aliases.iter().enumerate() {
        domain(r, &path.field("trustDomainAliases").index(index), alias);
    }
}

fn exports(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    if !hosts::is_label(&mesh.root_namespace) {
        let message = format!("{:?} is not a valid namespace name", &*mesh.root_namespace);
        r.error(&path.field("rootNamespace"), "bad-value", message);
    }
    let lists: [(&str, &[Arc<str>]); 3] = [
        ("defaultServiceExportTo", &mesh.default_service_export_to),
        ("defaultVirtualServiceExportTo", &mesh.default_virtual_service_export_to),
        (
            "defaultDestinationRuleExportTo",
            &mesh.default_destination_rule_export_to,
        ),
    ];
    for (field, list) in lists {
        let scope = if field == "defaultServiceExportTo" {
            common::ExportScope::Services
        } else {
            common::ExportScope::Routes
        };
        // `.` refers to the namespace of the object that the default applies to, so it equals no name.
        common::export_to(r, &path.field(field), ".", list, scope);
    }
}

fn proxy_config(r: &mut Report, path: &FieldPath, proxy: &ProxyConfig) {
    let needed = [
        ("configPath", &proxy.config_path),
        ("binaryPath", &proxy.binary_path),
        ("discoveryAddress", &proxy.discovery_address),
    ];
    for (field, _) in needed.into_iter().filter(|(_, value)| value.is_empty()) {
        r.error(
            &path.field(field),
            "missing-field",
            format!("{field} must not be empty"),
        );
    }
    signed_port(r, &path.field("proxyAdminPort"), proxy.proxy_admin_port);
    signed_port(r, &path.field("statusPort"), proxy.status_port);
    let drain = path.field("drainDuration");
    common::duration(r, &drain, Some(proxy.drain_duration));
    if proxy.drain_duration.subsec_nanos() != 0 {
        r.error(
            &drain,
            "out-of-range",
            "drainDuration must be a whole number of seconds",
        );
    }
    if proxy.control_plane_auth_policy == AuthenticationPolicy::Inherit {
        r.error(
            &path.field("controlPlaneAuthPolicy"),
            "bad-value",
            "INHERIT is not supported: there is no parent configuration",
        );
    }
    proxy_addresses(r, path, proxy);
    if let Some(probe) = &proxy.readiness_probe {
        workload::readiness_probe(r, &path.field("readinessProbe"), probe);
    }
    if let Some(settings) = &proxy.connection_settings {
        connection_settings(r, &path.field("connectionSettings"), settings);
    }
    if let Some(provider) = &proxy.private_key_provider {
        let at = path.field("privateKeyProvider");
        match provider {
            PrivateKeyProvider::Proxy => r.error(&at, "missing-field", "cryptomb or qat is required"),
            PrivateKeyProvider::Cryptomb(settings) | PrivateKeyProvider::Qat(settings) => {
                if settings.poll_delay.is_none_or(|delay| delay.is_zero()) {
                    r.error(&at, "missing-field", "pollDelay must be greater than 0");
                }
            }
        }
    }
}

fn connection_settings(r: &mut Report, path: &FieldPath, settings: &ConnectionSettings) {
    let minimums = [
        (
            "listenerPerConnectionBufferLimitBytes",
            settings.listener_per_connection_buffer_limit_bytes,
            0,
        ),
        (
            "clusterPerConnectionBufferLimitBytes",
            settings.cluster_per_connection_buffer_limit_bytes,
            0,
        ),
        ("httpMaxConcurrentStreams", settings.http_max_concurrent_streams, 1),
        (
            "http2InitialStreamWindowSize",
            settings.http2_initial_stream_window_size,
            MIN_WINDOW,
        ),
        (
            "http2InitialConnectionWindowSize",
            settings.http2_initial_connection_window_size,
            MIN_WINDOW,
        ),
        ("listenerConnectionLimit", settings.listener_connection_limit, 1),
        (
            "globalDownstreamConnectionLimit",
            settings.global_downstream_connection_limit,
            1,
        ),
    ];
    for (field, value, min) in minimums {
        if value.is_some_and(|value| value < min) {
            r.error(
                &path.field(field),
                "out-of-range",
                format!("{field} must be at least {min}"),
            );
        }
    }
}

fn proxy_addresses(r: &mut Report, path: &FieldPath, proxy: &ProxyConfig) {
    let service = |s: &Option<crate::mesh::RemoteService>| s.as_ref().map(|s| s.address.clone()).unwrap_or_default();
    let addresses = [
        (path.field("discoveryAddress"), proxy.discovery_address.clone()),
        (path.field("statsdUdpAddress"), proxy.statsd_udp_address.clone()),
        (
            path.field("envoyMetricsServiceAddress"),
            proxy.envoy_metrics_service_address.clone(),
        ),
        (
            path.field("envoyMetricsService").field("address"),
            service(&proxy.envoy_metrics_service),
        ),
        (
            path.field("envoyAccessLogService").field("address"),
            service(&proxy.envoy_access_log_service),
        ),
    ];
    for (at, address) in addresses.iter().filter(|(_, address)| !address.is_empty()) {
        host_and_port(r, at, address);
    }
    let Some(tracing) = &proxy.tracing else {
        return;
    };
    let at = path.field("tracing");
    common::percent(r, &at.field("sampling"), tracing.sampling);
    traffic_policy::client_tls(r, &at.field("tlsSettings"), "", tracing.tls_settings.as_ref());
    match &tracing.tracer {
        Some(Tracer::Zipkin(tracer)) => host_and_port(r, &at.field("zipkin").field("address"), &tracer.address),
        Some(Tracer::Datadog(tracer)) => host_and_port(r, &at.field("datadog").field("address"), &tracer.address),
        Some(Tracer::Lightstep(tracer)) => {
            let at = at.field("lightstep");
            host_and_port(r, &at.field("address"), &tracer.address);
            if tracer.access_token.is_empty() {
                r.error(&at.field("accessToken"), "missing-field", "accessToken is required");
            }
            unsupported_tracer(r, &at, "Lightstep");
        }
        Some(Tracer::Stackdriver(_)) => unsupported_tracer(r, &at.field("stackdriver"), "Stackdriver"),
        Some(Tracer::OpenCensusAgent(_)) => unsupported_tracer(r, &at.field("openCensusAgent"), "OpenCensus"),
        None => {}
    }
    for (name, tag) in &tracing.custom_tags {
        let at = at.field("customTags").key(name.clone());
        let empty = match tag {
            CustomTag::Nothing => true,
            CustomTag::Literal(tag) => tag.value.is_empty(),
            CustomTag::Environment(tag) => tag.name.is_empty(),
            CustomTag::Header(tag) => !headers::is_name(&tag.name),
        };
        if empty || name.is_empty() {
            let message =
                "the tag is ignored: it requires a name and one of literal.value, environment.name and header.name";
            r.warning(&at, "bad-value", message);
        }
    }
}

fn unsupported_tracer(r: &mut Report, path: &FieldPath, name: &str) {
    let message = format!("Envoy no longer supports {name}: proxies with this setting report no traces");
    r.warning_with(path, "unsupported", message, "use an opentelemetry provider");
}

/// Checks an address `host:port`. The host can be a placeholder for the node's address.
fn host_and_port(r: &mut Report, path: &FieldPath, text: &str) {
    let Some((host, port)) = text.rsplit_once(':') else {
        return r.error(path, "bad-value", format!("{text:?} must have the form HOST:PORT"));
    };
    match port.parse() {
        Ok(number) => common::port(r, path, number),
        Err(_) => r.error(path, "bad-value", format!("{port:?} is not a valid port number")),
    }
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host != "$(HOST_IP)" && bare.parse::<std::net::IpAddr>().is_err() {
        hosts::fqdn(r, path, host);
    }
}
