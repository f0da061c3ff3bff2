use model::audience::{DefaultEndpoint, IpFamilies};
use model::service::{ObjectId, Registry, Resolution, Service};
use names::Protocol;
use protos::envoy::config::cluster::v3::Cluster;
use resources::istio::DestinationRule;
use serde_json::{Value, json};
use traffic::policy::DestinationPolicy;

use super::*;
use crate::testing::{self, at, check, object};

/// The cluster of a service's port 80 under a DestinationRule (its `spec`, indented by two) and mesh settings.
struct Case {
    service: Service,
    rule: Option<&'static str>,
    subset: &'static str,
    mesh: &'static str,
    from_endpoints: bool,
    lookup: Option<IpFamilies>,
    endpoints: Vec<Endpoint>,
}

impl Case {
    fn of(protocol: Protocol) -> Case {
        Case {
            service: testing::service(protocol),
            rule: None,
            subset: "",
            mesh: "",
            from_endpoints: false,
            lookup: None,
            endpoints: Vec::new(),
        }
    }

    fn rule(rule: &'static str) -> Case {
        Case { rule: Some(rule), ..Case::of(Protocol::Http) }
    }

    fn run(&self) -> Value {
        let rule = self.rule.map(|spec| {
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: rule, namespace: shop}}\nspec:\n  host: reviews\n{spec}"
            );
            let rule = object::<DestinationRule>(&text);
            DestinationPolicy {
                policy: rule.spec.traffic_policy.clone(),
                subsets: rule.spec.subsets.clone(),
                origins: vec![ObjectId { namespace: "shop".into(), name: "rule".into() }],
                selected: false,
            }
        });
        let mesh = testing::settings(self.mesh);
        let key = OutboundKey {
            service: self.service.key.clone(),
            port: 80,
            subset: self.subset.into(),
            policy: None,
            from_endpoints: self.from_endpoints,
            lookup: self.lookup,
        };
        let cluster = Outbound {
            key: &key,
            service: &self.service,
            port: &self.service.ports[0],
            mesh: &mesh,
            policy: merged(rule.as_ref(), &key, &mesh.config),
            labels: rule.as_ref().and_then(|rule| rule.subset(self.subset)).map(|subset| &subset.labels),
            origin: rule.as_ref().and_then(|rule| rule.origins.first()),
            endpoints: &self.endpoints,
        };
        testing::json::<Cluster>(&cluster.encode())
    }

    #[track_caller]
    fn check(&self, expected: &[(&str, Value)]) {
        check(&self.run(), expected);
    }
}

const HTTP: &str = "typedExtensionProtocolOptions.envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The packed HTTP options: their key has dots.
fn http(cluster: &Value) -> &Value {
    &cluster["typedExtensionProtocolOptions"][HTTP.split_once('.').unwrap().1]
}

#[test]
fn defaults_are_istios() {
    let cluster = Case::of(Protocol::Http).run();
    let name = "outbound|80||reviews.shop.svc.cluster.local";
    let none = u32::MAX;
    check(&cluster, &[
        ("name", json!(name)),
        ("altStatName", json!(format!("{name};"))),
        ("type", json!("EDS")),
        ("edsClusterConfig", json!({
            "serviceName": name,
            "edsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
        })),
        ("connectTimeout", json!("10s")),
        ("lbPolicy", json!("LEAST_REQUEST")),
        ("circuitBreakers.thresholds", json!([
            {"maxConnections": none, "maxPendingRequests": none, "maxRequests": none, "maxRetries": none},
        ])),
        ("commonLbConfig", json!({"healthyPanicThreshold": {}})),
        ("metadata.filterMetadata.istio", json!({"services": [
            {"host": "reviews.shop.svc.cluster.local", "name": "reviews", "namespace": "shop"},
        ]})),
        ("typedExtensionProtocolOptions", Value::Null),
        ("outlierDetection", Value::Null),
        ("transportSocket", Value::Null),
    ]);
}

#[test]
fn protocols() {
    let http2 = Case::of(Protocol::Grpc).run();
    assert_eq!(http(&http2)["explicitHttpConfig"], json!({"http2ProtocolOptions": {}}));
    let detected = Case::of(Protocol::Unsupported).run();
    let both = json!({"httpProtocolOptions": {}, "http2ProtocolOptions": {}});
    assert_eq!(http(&detected)["useDownstreamProtocolConfig"], both);
    assert_eq!(http(&Case::of(Protocol::Tcp).run()), &Value::Null);
}

#[test]
fn upgrades_to_http2() {
    let upgraded = |case: Case| at(http(&case.run()), "explicitHttpConfig.http2ProtocolOptions").is_object();
    let by_rule = "  trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}\n";
    let not_by_rule = "  trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}\n";
    let mesh = "h2UpgradePolicy: UPGRADE";
    assert!(upgraded(Case::rule(by_rule)));
    assert!(upgraded(Case { mesh, ..Case::of(Protocol::Http) }));
    assert!(!upgraded(Case { mesh, ..Case::of(Protocol::Tcp) }));
    assert!(!upgraded(Case { mesh, ..Case::of(Protocol::Unsupported) }));
    assert!(!upgraded(Case { mesh, ..Case::rule(not_by_rule) }));
    let client = "  trafficPolicy: {connectionPool: {http: {useClientProtocol: true}}}\n";
    let cluster = Case { mesh, ..Case::rule(client) }.run();
    assert!(http(&cluster)["useDownstreamProtocolConfig"].is_object());
}

#[test]
fn connection_pool() {
    let cluster = Case {
        mesh: "tcpKeepalive: {time: 7200s, interval: 75s}",
        ..Case::rule(
            "  trafficPolicy:
    connectionPool:
      tcp: {maxConnections: 10, connectTimeout: 250ms, maxConnectionDuration: 60s, tcpKeepalive: {probes: 9, time: 600s}}
      http: {http1MaxPendingRequests: 11, http2MaxRequests: 12, maxRequestsPerConnection: 13, maxRetries: 14, idleTimeout: 5s,
        h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 15, http2KeepAlive: {interval: 30s, timeout: 3s}}
    retryBudget: {percent: 25, budgetInterval: 10s}
",
        )
    };
    let cluster = cluster.run();
    check(&cluster, &[
        ("connectTimeout", json!("0.250s")),
        ("circuitBreakers.thresholds[0]", json!({
            "maxConnections": 10, "maxPendingRequests": 11, "maxRequests": 12, "maxRetries": 14,
            "retryBudget": {"budgetPercent": {"value": 25.0}, "budgetInterval": "10s", "minRetryConcurrency": 3},
        })),
        ("upstreamConnectionOptions.tcpKeepalive",
            json!({"keepaliveProbes": 9, "keepaliveTime": 600, "keepaliveInterval": 75})),
    ]);
    check(http(&cluster), &[
        ("commonHttpProtocolOptions",
            json!({"idleTimeout": "5s", "maxConnectionDuration": "60s", "maxRequestsPerConnection": 13})),
        ("explicitHttpConfig.http2ProtocolOptions",
            json!({"maxConcurrentStreams": 15, "connectionKeepalive": {"interval": "30s", "timeout": "3s"}})),
    ]);
}

#[test]
fn idle_time_of_tcp_holds_for_the_pool() {
    let cluster = Case::rule("  trafficPolicy: {connectionPool: {tcp: {idleTimeout: 30s}}}\n").run();
    assert_eq!(at(http(&cluster), "commonHttpProtocolOptions.idleTimeout"), "30s");
    // Envoy refuses options without a choice of protocol.
    assert_eq!(http(&cluster)["explicitHttpConfig"], json!({"httpProtocolOptions": {}}));
}

#[test]
fn outlier_detection() {
    Case::rule(
        "  trafficPolicy: {outlierDetection: {consecutive5xxErrors: 7, consecutiveGatewayErrors: 0, interval: 5m, baseEjectionTime: 15m,
    maxEjectionPercent: 100, minHealthPercent: 30, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 4}}\n",
    )
    .check(&[
        ("outlierDetection", json!({
            "consecutive5xx": 7, "enforcingConsecutive5xx": 100,
            "consecutiveGatewayFailure": 0, "enforcingConsecutiveGatewayFailure": 0,
            "interval": "300s", "baseEjectionTime": "900s", "maxEjectionPercent": 100, "enforcingSuccessRate": 0,
            "splitExternalLocalOriginErrors": true, "consecutiveLocalOriginFailure": 4,
            "enforcingConsecutiveLocalOriginFailure": 100, "enforcingLocalOriginSuccessRate": 0,
        })),
        ("commonLbConfig.healthyPanicThreshold", json!({"value": 30.0})),
    ]);
    Case::rule("  trafficPolicy: {outlierDetection: {}}\n").check(&[
        ("outlierDetection", json!({"enforcingSuccessRate": 0})),
        ("commonLbConfig.healthyPanicThreshold", json!({})),
    ]);
}

#[test]
fn outliers_by_status_code() {
    let codes = |list: &'static str| {
        let cluster = Case::rule(list).run();
        at(http(&cluster), "outlierDetection.errorMatcher").clone()
    };
    let status = |code: &str| json!({"httpResponseHeadersMatch": {"headers": [{"name": ":status", "stringMatch": {"exact": code}}]}});
    assert_eq!(codes("  trafficPolicy: {outlierDetection: {outlierDetectionHttpErrorCodes: [429]}}\n"), status("429"));
    assert_eq!(
        codes("  trafficPolicy: {outlierDetection: {outlierDetectionHttpErrorCodes: [429, 500]}}\n"),
        json!({"orMatch": {"rules": [status("429"), status("500")]}})
    );
}

#[test]
fn algorithms() {
    let cases = [
        ("simple: ROUND_ROBIN", "ROUND_ROBIN", Value::Null),
        ("simple: RANDOM", "RANDOM", Value::Null),
        ("simple: LEAST_CONN", "LEAST_REQUEST", Value::Null),
        ("simple: UNSPECIFIED", "LEAST_REQUEST", Value::Null),
        ("consistentHash: {useSourceIp: true}", "RING_HASH", json!({"minimumRingSize": "1024"})),
        ("consistentHash: {useSourceIp: true, minimumRingSize: 4096}", "RING_HASH", json!({"minimumRingSize": "4096"})),
        ("consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}", "RING_HASH", json!({"minimumRingSize": "64"})),
        ("consistentHash: {httpHeaderName: x, maglev: {tableSize: 101}}", "MAGLEV", json!({"tableSize": "101"})),
    ];
    for (settings, policy, config) in cases {
        let rule: &'static str = format!("  trafficPolicy: {{loadBalancer: {{{settings}}}}}\n").leak();
        let cluster = Case::rule(rule).run();
        // The first value of the enumeration is proto3's default, which JSON leaves out.
        let got = cluster["lbPolicy"].as_str().unwrap_or("ROUND_ROBIN");
        assert_eq!(got, policy, "{settings}");
        let found = ["ringHashLbConfig", "maglevLbConfig", "leastRequestLbConfig"].map(|name| &cluster[name]);
        assert_eq!(found.into_iter().find(|v| !v.is_null()).unwrap_or(&Value::Null), &config, "{settings}");
    }
}

#[test]
fn passthrough_as_algorithm() {
    let cluster = Case::rule("  trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}\n").run();
    check(&cluster, &[
        ("type", json!("ORIGINAL_DST")),
        ("lbPolicy", json!("CLUSTER_PROVIDED")),
        ("edsClusterConfig", Value::Null),
    ]);
}

#[test]
fn warm_up() {
    Case::rule("  trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN, warmupDurationSecs: 60s}}\n")
        .check(&[("roundRobinLbConfig", json!({"slowStartConfig": {"slowStartWindow": "60s"}}))]);
    Case::rule("  trafficPolicy: {loadBalancer: {warmup: {duration: 60s, aggression: 2}}}\n").check(&[(
        "leastRequestLbConfig.slowStartConfig",
        json!({
            "slowStartWindow": "60s",
            "aggression": {"defaultValue": 2.0, "runtimeKey": "rutter.warmup.aggression"},
            "minWeightPercent": {"value": 10.0},
        }),
    )]);
}

#[test]
fn subsets_and_ports() {
    let rule = "  trafficPolicy:
    loadBalancer: {simple: RANDOM}
    portLevelSettings: [{port: {number: 80}, connectionPool: {tcp: {maxConnections: 5}}}]
  subsets: [{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}}]
";
    Case::rule(rule).check(&[
        ("lbPolicy", json!("LEAST_REQUEST")),
        ("circuitBreakers.thresholds[0].maxConnections", json!(5)),
        ("metadata.filterMetadata.istio.config",
            json!("/apis/networking.istio.io/v1/namespaces/shop/destination-rule/rule")),
        ("metadata.filterMetadata.istio.subset", Value::Null),
    ]);
    Case { subset: "v1", ..Case::rule(rule) }.check(&[
        ("name", json!("outbound|80|v1|reviews.shop.svc.cluster.local")),
        ("lbPolicy", Value::Null),
        ("circuitBreakers.thresholds[0].maxConnections", json!(5)),
        ("metadata.filterMetadata.istio.subset", json!("v1")),
    ]);
}

#[test]
fn the_meshs_policy_is_under_every_rule() {
    let mesh = "defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}, outlierDetection: {maxEjectionPercent: 50}}";
    Case { mesh, ..Case::of(Protocol::Http) }.check(&[
        ("circuitBreakers.thresholds[0].maxConnections", json!(3)),
        ("outlierDetection.maxEjectionPercent", json!(50)),
    ]);
    let rule = "  trafficPolicy: {outlierDetection: {maxEjectionPercent: 10}}\n";
    Case { mesh, ..Case::rule(rule) }.check(&[
        ("circuitBreakers.thresholds[0].maxConnections", json!(3)),
        ("outlierDetection.maxEjectionPercent", json!(10)),
    ]);
}

#[test]
fn names_that_dns_resolves() {
    let case = |resolution, endpoints| Case {
        service: Service { resolution, registry: Registry::ServiceEntry, external: true, ..testing::service(Protocol::Http) },
        endpoints,
        mesh: "dnsRefreshRate: 30s",
        ..Case::of(Protocol::Http)
    };
    let names = || vec![testing::endpoint("10.0.0.1"), testing::endpoint("a.example.com"), testing::endpoint("b.example.com")];
    let cluster = case(Resolution::Dns, names()).run();
    check(&cluster, &[
        ("type", json!("STRICT_DNS")),
        ("dnsLookupFamily", json!("V4_ONLY")),
        ("dnsRefreshRate", json!("30s")),
        ("respectDnsTtl", json!(true)),
        ("typedDnsResolverConfig.typedConfig.udpMaxQueries", json!(100)),
        ("edsClusterConfig", Value::Null),
        ("metadata.filterMetadata.istio.external", json!(true)),
        ("metadata.filterMetadata.istio.services[0].name", json!("reviews.shop.svc.cluster.local")),
    ]);
    let addresses = |cluster: &Value| -> Vec<Value> {
        let endpoints = at(cluster, "loadAssignment.endpoints[0].lbEndpoints").as_array().unwrap();
        endpoints.iter().map(|e| at(e, "endpoint.address.socketAddress").clone()).collect()
    };
    let address = |text: &str| json!({"address": text, "portValue": 8080});
    assert_eq!(addresses(&cluster), [address("10.0.0.1"), address("a.example.com"), address("b.example.com")]);
    let logical = case(Resolution::DnsRoundRobin, names()).run();
    assert_eq!(logical["type"], "LOGICAL_DNS");
    assert_eq!(addresses(&logical), [address("10.0.0.1")]);
    case(Resolution::DnsRoundRobin, Vec::new()).check(&[("type", json!("STATIC")), ("loadAssignment", Value::Null)]);
    let both = Case { lookup: Some(IpFamilies::Dual), ..case(Resolution::Dns, names()) };
    both.check(&[("dnsLookupFamily", json!("ALL"))]);
}

#[test]
fn subsets_of_names_that_dns_resolves() {
    let case = |subset| Case {
        service: Service { resolution: Resolution::Dns, ..testing::service(Protocol::Http) },
        endpoints: vec![testing::endpoint("a.example.com")],
        subset,
        ..Case::rule("  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]\n")
    };
    case("v1").check(&[("type", json!("STRICT_DNS"))]);
    case("v2").check(&[("type", json!("STATIC")), ("loadAssignment", Value::Null)]);
}

#[test]
fn headless_services() {
    let case = |from_endpoints| Case {
        service: Service { resolution: Resolution::Passthrough, headless: true, ..testing::service(Protocol::Tcp) },
        from_endpoints,
        ..Case::of(Protocol::Tcp)
    };
    case(false).check(&[("type", json!("ORIGINAL_DST")), ("lbPolicy", json!("CLUSTER_PROVIDED"))]);
    case(true).check(&[("type", json!("EDS")), ("lbPolicy", json!("LEAST_REQUEST"))]);
}

#[test]
fn tls_with_files() {
    let cluster = Case::rule(
        "  trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /certs/cert.pem, privateKey: /certs/key.pem,
    caCertificates: /certs/ca.pem, sni: reviews.example.com, subjectAltNames: [reviews.example.com]}}\n",
    )
    .run();
    let file = |path: &str| json!({"filename": path});
    let folder = json!({"path": "/certs"});
    check(&cluster, &[
        ("transportSocket.name", json!("envoy.transport_sockets.tls")),
        ("transportSocket.typedConfig.sni", json!("reviews.example.com")),
        ("transportSocket.typedConfig.commonTlsContext.tlsParams",
            json!({"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"})),
        ("transportSocket.typedConfig.commonTlsContext.tlsCertificates[0]",
            json!({"certificateChain": file("/certs/cert.pem"), "privateKey": file("/certs/key.pem"), "watchedDirectory": folder})),
        ("transportSocket.typedConfig.commonTlsContext.validationContext.trustedCa", file("/certs/ca.pem")),
        ("transportSocket.typedConfig.commonTlsContext.validationContext.matchTypedSubjectAltNames[0]",
            json!({"sanType": "DNS", "matcher": {"exact": "reviews.example.com"}})),
        ("metadata.filterMetadata.istio.alpn_override", json!("false")),
    ]);
    assert_eq!(http(&cluster), &Value::Null);
}

#[test]
fn tls_without_names_checks_the_requested_one() {
    let case = |rule| Case { service: testing::service(Protocol::Http2), ..Case::rule(rule) };
    let cluster = case("  trafficPolicy: {tls: {mode: SIMPLE}}\n").run();
    let options = json!({"autoSni": true, "autoSanValidation": true});
    assert_eq!(http(&cluster)["upstreamHttpProtocolOptions"], options);
    check(&cluster, &[
        ("transportSocket.typedConfig.commonTlsContext.alpnProtocols", json!(["h2"])),
        ("transportSocket.typedConfig.commonTlsContext.validationContext.trustedCa",
            json!({"filename": "/etc/ssl/certs/ca-certificates.crt"})),
    ]);
    let unchecked = case("  trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true}}\n").run();
    assert_eq!(http(&unchecked)["upstreamHttpProtocolOptions"], json!({"autoSni": true}));
    check(&unchecked, &[("transportSocket.typedConfig.commonTlsContext.validationContext", json!({}))]);
}

#[test]
fn proxy_protocol_goes_around_what_is_there() {
    Case::rule("  trafficPolicy: {proxyProtocol: {version: V2}}\n").check(&[
        ("transportSocket.name", json!("envoy.transport_sockets.upstream_proxy_protocol")),
        ("transportSocket.typedConfig.config", json!({"version": "V2"})),
        ("transportSocket.typedConfig.transportSocket.name", json!("envoy.transport_sockets.raw_buffer")),
    ]);
    Case::rule("  trafficPolicy: {proxyProtocol: {}, tls: {mode: SIMPLE, sni: a}}\n").check(&[
        ("transportSocket.typedConfig.transportSocket.name", json!("envoy.transport_sockets.tls")),
    ]);
}

#[test]
fn names_in_statistics_follow_the_meshs_pattern() {
    let mesh = "outboundClusterStatName: \"%SERVICE%|%SERVICE_PORT%|%SERVICE_PORT_NAME%|%SERVICE_FQDN%|%SUBSET_NAME%\"";
    Case { mesh, ..Case::of(Protocol::Http) }
        .check(&[("altStatName", json!("reviews.shop|80|http|reviews.shop.svc.cluster.local|;"))]);
}

#[test]
fn persistent_sessions_keep_draining_endpoints() {
    let mut service = testing::service(Protocol::Http);
    service.labels.insert("istio.io/persistent-session".into(), "cookie".into());
    Case { service, ..Case::of(Protocol::Http) }.check(&[(
        "commonLbConfig.overrideHostStatus.statuses",
        json!(["HEALTHY", "DRAINING", "UNKNOWN", "DEGRADED"]),
    )]);
}

fn inbound(protocol: Protocol, endpoint: Option<DefaultEndpoint>, ip: IpFamilies, mesh: &str) -> Value {
    testing::json::<Cluster>(&special::inbound(8080, protocol, endpoint.as_ref(), ip, &testing::mesh(mesh), None))
}

#[test]
fn to_the_application_where_the_client_dialled() {
    let cluster = inbound(Protocol::Http, None, IpFamilies::Dual, "");
    check(&cluster, &[
        ("name", json!("inbound|8080||")),
        ("altStatName", json!("inbound|8080||;")),
        ("type", json!("ORIGINAL_DST")),
        ("lbPolicy", json!("CLUSTER_PROVIDED")),
        ("cleanupInterval", json!("9223372035s")),
        ("upstreamBindConfig.sourceAddress", json!({"address": "127.0.0.6", "portValue": 0})),
        ("upstreamBindConfig.extraSourceAddresses[0].address", json!({"address": "::6", "portValue": 0})),
        ("circuitBreakers.thresholds[0].maxConnections", json!(u32::MAX)),
        ("typedExtensionProtocolOptions", Value::Null),
    ]);
    let six = inbound(Protocol::Grpc, None, IpFamilies::V6, "");
    assert_eq!(at(&six, "upstreamBindConfig.sourceAddress.address"), "::6");
    assert_eq!(http(&six)["explicitHttpConfig"], json!({"http2ProtocolOptions": {}}));
    assert!(http(&inbound(Protocol::Unsupported, None, IpFamilies::V4, ""))["useDownstreamProtocolConfig"].is_object());
}

#[test]
fn to_the_application_where_it_says_it_listens() {
    let address = "loadAssignment.endpoints[0].lbEndpoints[0].endpoint.address";
    let case = |endpoint, mesh| inbound(Protocol::Http, endpoint, IpFamilies::V4, mesh);
    check(&case(Some(DefaultEndpoint::Loopback(9090)), ""), &[
        ("type", json!("STATIC")),
        (address, json!({"socketAddress": {"address": "127.0.0.1", "portValue": 9090}})),
        ("upstreamBindConfig", Value::Null),
    ]);
    check(&case(Some(DefaultEndpoint::Unix("unix:///a.sock".into())), ""), &[(address, json!({"pipe": {"path": "/a.sock"}}))]);
    check(&case(Some(DefaultEndpoint::Instance(9090)), ""), &[
        ("type", json!("ORIGINAL_DST")),
        ("originalDstLbConfig", json!({"upstreamPortOverride": 9090})),
    ]);
    check(&case(None, "inboundTrafficPolicy: {mode: LOCALHOST}"), &[
        (address, json!({"socketAddress": {"address": "127.0.0.1", "portValue": 8080}})),
    ]);
}

#[test]
fn clusters_to_anywhere_and_to_nowhere() {
    let mesh = testing::mesh("");
    let cluster = testing::json::<Cluster>(&special::passthrough(&mesh));
    check(&cluster, &[
        ("name", json!("PassthroughCluster")),
        ("altStatName", json!("PassthroughCluster;")),
        ("type", json!("ORIGINAL_DST")),
        ("lbPolicy", json!("CLUSTER_PROVIDED")),
        ("circuitBreakers.thresholds[0].maxRequests", json!(u32::MAX)),
    ]);
    assert_eq!(at(http(&cluster), "commonHttpProtocolOptions.idleTimeout"), "300s");
    let inbound = testing::json::<Cluster>(&special::inbound_passthrough(&mesh, IpFamilies::V4));
    check(&inbound, &[
        ("name", json!("InboundPassthroughCluster")),
        ("upstreamBindConfig.sourceAddress.address", json!("127.0.0.6")),
    ]);
    let nowhere = testing::json::<Cluster>(&special::black_hole(&mesh));
    assert_eq!(
        nowhere,
        json!({"name": "BlackHoleCluster", "altStatName": "BlackHoleCluster;", "type": "STATIC", "connectTimeout": "10s"})
    );
}
