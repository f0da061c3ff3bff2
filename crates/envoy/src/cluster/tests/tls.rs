//! Upstream TLS and the PROXY protocol.

use super::*;

#[test]
fn tls_with_files() {
    let cluster = Case::rule(
        "  trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /certs/cert.pem, privateKey: /certs/key.pem,
    caCertificates: /certs/ca.pem, sni: reviews.example.com, subjectAltNames: [reviews.example.com]}}\n",
    )
    .run();
    let file = |path: &str| json!({"filename": path});
    let folder = json!({"path": "/certs"});
    check(
        &cluster,
        &[
            ("transportSocket.name", json!("envoy.transport_sockets.tls")),
            ("transportSocket.typedConfig.sni", json!("reviews.example.com")),
            (
                "transportSocket.typedConfig.commonTlsContext.tlsParams",
                json!({"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"}),
            ),
            (
                "transportSocket.typedConfig.commonTlsContext.tlsCertificates[0]",
                json!({"certificateChain": file("/certs/cert.pem"), "privateKey": file("/certs/key.pem"), "watchedDirectory": folder}),
            ),
            ("transportSocket.typedConfig.commonTlsContext.validationContext.trustedCa", file("/certs/ca.pem")),
            (
                "transportSocket.typedConfig.commonTlsContext.validationContext.matchTypedSubjectAltNames[0]",
                json!({"sanType": "DNS", "matcher": {"exact": "reviews.example.com"}}),
            ),
            ("metadata.filterMetadata.istio.alpn_override", json!("false")),
        ],
    );
    assert_eq!(http(&cluster), &Value::Null);
}

#[test]
fn tls_without_names_verifies_the_requested_one() {
    let case = |rule| Case { service: testing::service(Protocol::Http2), ..Case::rule(rule) };
    let cluster = case("  trafficPolicy: {tls: {mode: SIMPLE}}\n").run();
    let options = json!({"autoSni": true, "autoSanValidation": true});
    assert_eq!(http(&cluster)["upstreamHttpProtocolOptions"], options);
    check(
        &cluster,
        &[
            ("transportSocket.typedConfig.commonTlsContext.alpnProtocols", json!(["h2"])),
            (
                "transportSocket.typedConfig.commonTlsContext.validationContext.trustedCa",
                json!({"filename": "/etc/ssl/certs/ca-certificates.crt"}),
            ),
        ],
    );
    let unchecked = case("  trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true}}\n").run();
    assert_eq!(http(&unchecked)["upstreamHttpProtocolOptions"], json!({"autoSni": true}));
    check(&unchecked, &[("transportSocket.typedConfig.commonTlsContext.validationContext", json!({}))]);
}

#[test]
fn proxy_protocol_wraps_the_transport_socket() {
    Case::rule("  trafficPolicy: {proxyProtocol: {version: V2}}\n").check(&[
        ("transportSocket.name", json!("envoy.transport_sockets.upstream_proxy_protocol")),
        ("transportSocket.typedConfig.config", json!({"version": "V2"})),
        ("transportSocket.typedConfig.transportSocket.name", json!("envoy.transport_sockets.raw_buffer")),
    ]);
    Case::rule("  trafficPolicy: {proxyProtocol: {}, tls: {mode: SIMPLE, sni: a}}\n")
        .check(&[("transportSocket.typedConfig.transportSocket.name", json!("envoy.transport_sockets.tls"))]);
}
