//! Clusters with DestinationRules.

use super::*;

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
    check(
        &cluster,
        &[
            ("connectTimeout", json!("0.250s")),
            (
                "circuitBreakers.thresholds[0]",
                json!({
                    "maxConnections": 10, "maxPendingRequests": 11, "maxRequests": 12, "maxRetries": 14,
                    "retryBudget": {"budgetPercent": {"value": 25.0}, "budgetInterval": "10s", "minRetryConcurrency": 3},
                }),
            ),
            (
                "upstreamConnectionOptions.tcpKeepalive",
                json!({"keepaliveProbes": 9, "keepaliveTime": 600, "keepaliveInterval": 75}),
            ),
        ],
    );
    check(
        http(&cluster),
        &[
            (
                "commonHttpProtocolOptions",
                json!({"idleTimeout": "5s", "maxConnectionDuration": "60s", "maxRequestsPerConnection": 13}),
            ),
            (
                "explicitHttpConfig.http2ProtocolOptions",
                json!({"maxConcurrentStreams": 15, "connectionKeepalive": {"interval": "30s", "timeout": "3s"}}),
            ),
        ],
    );
}

#[test]
fn the_tcp_idle_timeout_applies_to_the_pool() {
    let cluster = Case::rule("  trafficPolicy: {connectionPool: {tcp: {idleTimeout: 30s}}}\n").run();
    assert_eq!(at(http(&cluster), "commonHttpProtocolOptions.idleTimeout"), "30s");
    // Envoy rejects options without a choice of protocol.
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
        (
            "consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}",
            "RING_HASH",
            json!({"minimumRingSize": "64"}),
        ),
        ("consistentHash: {httpHeaderName: x, maglev: {tableSize: 101}}", "MAGLEV", json!({"tableSize": "101"})),
    ];
    for (settings, policy, config) in cases {
        let rule: &'static str = format!("  trafficPolicy: {{loadBalancer: {{{settings}}}}}\n").leak();
        let cluster = Case::rule(rule).run();
        // JSON omits the first value of an enumeration, the proto3 default.
        let got = cluster["lbPolicy"].as_str().unwrap_or("ROUND_ROBIN");
        assert_eq!(got, policy, "{settings}");
        let found = ["ringHashLbConfig", "maglevLbConfig", "leastRequestLbConfig"].map(|name| &cluster[name]);
        assert_eq!(found.into_iter().find(|v| !v.is_null()).unwrap_or(&Value::Null), &config, "{settings}");
    }
}

#[test]
fn passthrough_as_algorithm() {
    let cluster = Case::rule("  trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}\n").run();
    check(
        &cluster,
        &[("type", json!("ORIGINAL_DST")), ("lbPolicy", json!("CLUSTER_PROVIDED")), ("edsClusterConfig", Value::Null)],
    );
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
        (
            "metadata.filterMetadata.istio.config",
            json!("/apis/networking.istio.io/v1/namespaces/shop/destination-rule/rule"),
        ),
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
fn rules_inherit_the_meshs_policy() {
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
