//! Validation of traffic policies: of DestinationRules, their subsets and ports, and of the mesh configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use names::cluster::LONGEST_SNI;

use crate::diagnostic::FieldPath;
use crate::istio::*;
use crate::validate::{Report, common, hosts, locality};

/// Checks the policy of an object in the given namespace.
pub(super) fn check(r: &mut Report, path: &FieldPath, namespace: &str, policy: Option<&TrafficPolicy>) {
    let Some(policy) = policy else {
        return;
    };
    if *policy == TrafficPolicy::default() {
        r.error(path, "missing-field", "a trafficPolicy requires at least one field");
    }
    if policy.tunnel.is_some() && policy.proxy_protocol.is_some() {
        r.error(
            &path.field("tunnel"),
            "exclusive-fields",
            "only one of tunnel and proxyProtocol may be set",
        );
    }
    let outlier = policy.outlier_detection.as_ref();
    load_balancer(
        r,
        &path.field("loadBalancer"),
        policy.load_balancer.as_ref(),
        outlier.is_some(),
    );
    connection_pool(r, &path.field("connectionPool"), policy.connection_pool.as_ref());
    outlier_detection(r, &path.field("outlierDetection"), outlier);
    client_tls(r, &path.field("tls"), namespace, policy.tls.as_ref());
    for (index, port) in policy.port_level_settings.iter().enumerate() {
        port_policy(r, &path.field("portLevelSettings").index(index), namespace, port);
    }
    if let Some(tunnel) = &policy.tunnel {
        self::tunnel(r, &path.field("tunnel"), tunnel);
    }
    if let Some(budget) = &policy.retry_budget {
        let at = path.field("retryBudget");
        if let Some(percent) = budget.percent {
            common::percent(r, &at.field("percent"), percent);
        }
        common::duration(r, &at.field("budgetInterval"), budget.budget_interval);
    }
}

fn port_policy(r: &mut Report, path: &FieldPath, namespace: &str, policy: &PortTrafficPolicy) {
    match &policy.port {
        Some(port) if (1..=65535).contains(&port.number) => {}
        Some(port) => {
            let message = format!("port {} is invalid, so the settings have no effect", port.number);
            r.warning(&path.field("port").field("number"), "no-effect", message);
        }
        None => r.error(path, "missing-field", "port.number is required"),
    }
    let empty = PortTrafficPolicy {
        port: policy.port.clone(),
        ..PortTrafficPolicy::default()
    };
    if *policy == empty {
        r.error(
            path,
            "missing-field",
            "at least one setting is required in addition to port",
        );
    }
    let outlier = policy.outlier_detection.as_ref();
    load_balancer(
        r,
        &path.field("loadBalancer"),
        policy.load_balancer.as_ref(),
        outlier.is_some(),
    );
    connection_pool(r, &path.field("connectionPool"), policy.connection_pool.as_ref());
    outlier_detection(r, &path.field("outlierDetection"), outlier);
    client_tls(r, &path.field("tls"), namespace, policy.tls.as_ref());
}

fn tunnel(r: &mut Report, path: &FieldPath, tunnel: &TunnelSettings) {
    if !matches!(&*tunnel.protocol, "" | "CONNECT" | "POST") {
        r.error(
            &path.field("protocol"),
            "bad-value",
            "the protocol of a tunnel must be CONNECT or POST",
        );
    }
    if tunnel.target_host.parse::<std::net::IpAddr>().is_err() {
        hosts::fqdn(r, &path.field("targetHost"), &tunnel.target_host);
    }
    common::port(r, &path.field("targetPort"), tunnel.target_port);
}

fn load_balancer(r: &mut Report, path: &FieldPath, settings: Option<&LoadBalancerSettings>, has_outlier: bool) {
    let Some(settings) = settings else {
        return;
    };
    if let Some(LbPolicy::ConsistentHash(hash)) = &settings.policy {
        consistent_hash(r, &path.field("consistentHash"), hash);
    }
    if settings.locality_lb_setting.is_some() && settings.zone_aware_lb_setting.is_some() {
        let message = "only one of localityLbSetting and zoneAwareLbSetting may be set";
        r.error(&path.field("zoneAwareLbSetting"), "exclusive-fields", message);
    }
    if let Some(setting) = &settings.locality_lb_setting {
        locality::check(r, &path.field("localityLbSetting"), setting, has_outlier);
    }
    if let Some(setting) = &settings.zone_aware_lb_setting {
        locality::check_zone_aware(r, &path.field("zoneAwareLbSetting"), setting, has_outlier);
    }
    if let Some(warmup) = &settings.warmup {
        let at = path.field("warmup");
        match warmup.duration {
            None => r.error(&at, "missing-field", "a warmup requires a duration"),
            duration => common::duration(r, &at.field("duration"), duration),
        }
        if let Some(percent) = warmup.minimum_percent {
            common::percent(r, &at.field("minimumPercent"), percent);
        }
        if warmup.aggression.is_some_and(|aggression| aggression <= 0.0) {
            r.error(
                &at.field("aggression"),
                "out-of-range",
                "aggression must be greater than 0",
            );
        }
    }
}

fn consistent_hash(r: &mut Report, path: &FieldPath, hash: &ConsistentHash) {
    if let Some(HashKey::HttpHeaderName(name)) = &hash.key {
        common::one_line(r, &path.field("httpHeaderName"), name);
    }
    if let Some(HashKey::HttpCookie(cookie)) = &hash.key {
        let at = path.field("httpCookie");
        if cookie.name.is_empty() {
            r.error(&at.field("name"), "missing-field", "a cookie requires a name");
        }
        let mut names = BTreeSet::new();
        for (index, attribute) in cookie.attributes.iter().enumerate() {
            let at = at.field("attributes").index(index);
            common::one_line(r, &at.field("value"), &attribute.value);
            let at = at.field("name");
            common::one_line(r, &at, &attribute.name);
            if attribute.name.is_empty() {
                r.error(&at, "missing-field", "an attribute requires a name");
            } else if !names.insert(&attribute.name) {
                r.error(&at, "duplicate", format!("duplicate attribute {:?}", &*attribute.name));
            }
        }
    }
    if hash.minimum_ring_size != 0 {
        let at = path.field("minimumRingSize");
        r.warning(
            &at,
            "deprecated",
            "minimumRingSize is deprecated; use ringHash.minimumRingSize",
        );
        if hash.algorithm.is_some() {
            let message = "minimumRingSize cannot be combined with ringHash or maglev";
            r.error(&at, "exclusive-fields", message);
        }
    }
    if let Some(HashAlgorithm::Maglev(maglev)) = &hash.algorithm
        && !(maglev.table_size < 5_000_011 && is_prime(maglev.table_size))
    {
        let message = "tableSize must be a prime number below 5000011";
        r.error(&path.field("maglev").field("tableSize"), "out-of-range", message);
    }
}

fn is_prime(number: u64) -> bool {
    let divides = |divisor: &u64| number.is_multiple_of(*divisor);
    number >= 2 && !(2..number).take_while(|d| d * d <= number).any(|d| divides(&d))
}

/// Checks the connection limits of a policy or of a Sidecar.
pub(super) fn connection_pool(r: &mut Report, path: &FieldPath, pool: Option<&ConnectionPoolSettings>) {
    let Some(pool) = pool else {
        return;
    };
    if pool.http.is_none() && pool.tcp.is_none() {
        r.error(path, "missing-field", "a connectionPool requires tcp or http");
    }
    if let Some(http) = &pool.http {
        http_pool(r, &path.field("http"), http);
    }
    if let Some(tcp) = &pool.tcp {
        let at = path.field("tcp");
        common::not_negative(r, &at.field("maxConnections"), tcp.max_connections);
        common::duration(r, &at.field("connectTimeout"), tcp.connect_timeout);
        common::duration(r, &at.field("maxConnectionDuration"), tcp.max_connection_duration);
        // Zero disables the timeout.
        let idle = tcp.idle_timeout.filter(|idle| *idle >= Duration::from_millis(1));
        common::duration(r, &at.field("idleTimeout"), idle);
        keepalive(r, &at.field("tcpKeepalive"), tcp.tcp_keepalive.as_ref());
    }
}

/// Checks the TCP keepalive settings of a policy or of the mesh configuration.
pub(super) fn keepalive(r: &mut Report, path: &FieldPath, keepalive: Option<&TcpKeepalive>) {
    if let Some(keepalive) = keepalive {
        common::duration(r, &path.field("time"), keepalive.time);
        common::duration(r, &path.field("interval"), keepalive.interval);
    }
}

fn http_pool(r: &mut Report, path: &FieldPath, http: &HttpPoolSettings) {
    for (field, value) in [
        ("http1MaxPendingRequests", http.http1_max_pending_requests),
        ("http2MaxRequests", http.http2_max_requests),
        ("maxRequestsPerConnection", http.max_requests_per_connection),
        ("maxRetries", http.max_retries),
        ("maxConcurrentStreams", http.max_concurrent_streams),
    ] {
        common::not_negative(r, &path.field(field), value);
    }
    common::duration(r, &path.field("idleTimeout"), http.idle_timeout);
    if http.h2_upgrade_policy == H2UpgradePolicy::Upgrade && http.use_client_protocol {
        let message = "useClientProtocol cannot be combined with h2UpgradePolicy UPGRADE";
        r.error(&path.field("useClientProtocol"), "exclusive-fields", message);
    }
    if let Some(pings) = &http.http2_keep_alive {
        let at = path.field("http2KeepAlive");
        for (field, value) in [("interval", pings.interval), ("timeout", pings.timeout)] {
            match value {
                None => r.error(&at, "missing-field", format!("http2KeepAlive requires {field}")),
                value => common::duration(r, &at.field(field), value),
            }
        }
    }
}

/// Checks the outlier detection settings of a policy or of the mesh configuration.
pub(super) fn outlier_detection(r: &mut Report, path: &FieldPath, outlier: Option<&OutlierDetection>) {
    let Some(outlier) = outlier else {
        return;
    };
    if outlier.consecutive_errors != 0 {
        let message = "consecutiveErrors has no effect; use consecutiveGatewayErrors or consecutive5xxErrors";
        r.warning(&path.field("consecutiveErrors"), "deprecated", message);
    }
    let local = outlier
        .consecutive_local_origin_failures
        .is_some_and(|failures| failures > 0);
    if local && !outlier.split_external_local_origin_errors {
        let message = "consecutiveLocalOriginFailures requires splitExternalLocalOriginErrors";
        r.error(
            &path.field("consecutiveLocalOriginFailures"),
            "exclusive-fields",
            message,
        );
    }
    common::duration(r, &path.field("interval"), outlier.interval);
    common::duration(r, &path.field("baseEjectionTime"), outlier.base_ejection_time);
    common::percent(
        r,
        &path.field("maxEjectionPercent"),
        f64::from(outlier.max_ejection_percent),
    );
    common::percent(
        r,
        &path.field("minHealthPercent"),
        f64::from(outlier.min_health_percent),
    );
    for (index, code) in outlier.outlier_detection_http_error_codes.iter().enumerate() {
        if !(100..600).contains(code) {
            let at = path.field("outlierDetectionHttpErrorCodes").index(index);
            r.error(
                &at,
                "out-of-range",
                format!("a status code must be between 100 and 599, not {code}"),
            );
        }
    }
}

/// Checks TLS settings for connections to servers. `namespace` is the namespace of the object; empty for the mesh
/// configuration.
pub(super) fn client_tls(r: &mut Report, path: &FieldPath, namespace: &str, tls: Option<&ClientTlsSettings>) {
    let Some(tls) = tls else {
        return;
    };
    config_map(r, &path.field("credentialName"), namespace, &tls.credential_name);
    if tls.sni.len() > LONGEST_SNI {
        let message = format!(
            "the server name must not exceed {LONGEST_SNI} bytes, but has {}",
            tls.sni.len()
        );
        r.error(&path.field("sni"), "bad-value", message);
    }
    let skips_verification = tls.insecure_skip_verify == Some(true);
    let has_secret = !tls.credential_name.is_empty();
    let from_secret = matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual) && has_secret;
    if skips_verification && matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual) {
        let ca = !tls.ca_certificates.is_empty() || (tls.mode == ClientTlsMode::Simple && has_secret);
        if ca || !tls.subject_alt_names.is_empty() {
            let message =
                "insecureSkipVerify disables verification, so caCertificates and subjectAltNames must not be set";
            r.error(&path.field("insecureSkipVerify"), "exclusive-fields", message);
        }
    }
    let files = [
        &tls.client_certificate,
        &tls.private_key,
        &tls.ca_certificates,
        &tls.ca_crl,
    ];
    if from_secret && files.iter().any(|file| !file.is_empty()) {
        let message = "credentialName cannot be combined with paths of certificates";
        r.error(&path.field("credentialName"), "exclusive-fields", message);
    }
    if tls.mode == ClientTlsMode::Mutual && !from_secret {
        let needed = [
            ("clientCertificate", &tls.client_certificate),
            ("privateKey", &tls.private_key),
        ];
        for (field, _) in needed.into_iter().filter(|(_, value)| value.is_empty()) {
            r.error(
                &path.field(field),
                "missing-field",
                format!("the mode MUTUAL requires {field} or credentialName"),
            );
        }
    }
}

/// Checks a reference to a ConfigMap with CA certificates, `configmap://NAMESPACE/NAME`. It must be in the object's
/// namespace.
fn config_map(r: &mut Report, path: &FieldPath, namespace: &str, name: &str) {
    let Some(name) = name.strip_prefix("configmap://") else {
        return;
    };
    let mut parts = name.split('/');
    match (parts.next(), parts.next()) {
        (Some(other), Some(name)) if !other.is_empty() && !name.is_empty() => {
            if other != namespace || namespace.is_empty() {
                let message =
                    format!("the ConfigMap must be in the object's namespace, {namespace:?}, not in {other:?}");
                r.error(path, "bad-value", message);
            }
        }
        _ => r.error(
            path,
            "bad-value",
            "the reference must have the form configmap://NAMESPACE/NAME",
        ),
    }
}
