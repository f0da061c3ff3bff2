//! Traces and metrics.

use super::logs::{collector, providers};
use super::*;

/// The tracing of a listener's connection manager.
fn tracing(direction: Direction, identity: TraceIdentity, mesh: &str) -> Value {
    let spec = ListenerSpec {
        direction,
        trace_identity: Arc::new(identity),
        ..listener(vec![chain(ChainKind::Http(discovered()))])
    };
    let value = run_with(&spec, mesh, &[collector()]);
    at(&value, "filterChains[0].filters[0].typedConfig.tracing").clone()
}

fn identity(tags: &[(&str, &str)], service: &str) -> TraceIdentity {
    TraceIdentity {
        tags: tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        service: service.into(),
    }
}

const SINK: &str = "sink.obs.svc.cluster.local";

#[test]
fn the_bootstraps_tracer() {
    let of = |mesh: &str| tracing(Direction::Outbound, TraceIdentity::default(), mesh);
    assert_eq!(of("{}"), Value::Null, "no tracer is configured");
    let zipkin = "zipkin: {address: 'zipkin:9411'}";
    assert_eq!(of(&format!("{{enableTracing: false, defaultConfig: {{tracing: {{{zipkin}}}}}}}")), Value::Null);
    let value = of(&format!("{{defaultConfig: {{tracing: {{{zipkin}}}}}}}"));
    assert_eq!(
        value,
        json!({
            "clientSampling": {"value": 100.0}, "randomSampling": {"value": 1.0}, "overallSampling": {"value": 100.0},
        })
    );
    let tags = "customTags: {b: {literal: {value: x}}, a: {header: {name: x-a, defaultValue: y}}, \
                c: {environment: {name: C}}, d: {literal: {value: ''}}, e: {header: {name: 'a b'}}}";
    let options = format!("{{defaultConfig: {{tracing: {{{zipkin}, sampling: 12.5, maxPathTagLength: 64, {tags}}}}}}}");
    let own = identity(&[("b", "own"), ("istio.namespace", "shop")], "");
    let value = tracing(Direction::Inbound, own, &options);
    let names: Vec<&str> =
        value["customTags"].as_array().unwrap().iter().map(|tag| tag["tag"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "a",
            "b",
            "c",
            "istio.authorization.dry_run.allow_policy.name",
            "istio.authorization.dry_run.allow_policy.result",
            "istio.authorization.dry_run.deny_policy.name",
            "istio.authorization.dry_run.deny_policy.result",
            "istio.namespace",
        ]
    );
    check(
        &value,
        &[
            ("randomSampling.value", json!(12.5)),
            ("maxPathTagLength", json!(64)),
            ("customTags[0].requestHeader", json!({"name": "x-a", "defaultValue": "y"})),
            ("customTags[1].literal.value", json!("x")),
            ("customTags[2].environment.name", json!("C")),
            ("customTags[7].literal.value", json!("shop")),
            ("customTags[3].metadata.metadataKey.path[0].key", json!("istio_dry_run_allow_shadow_effective_policy_id")),
            ("provider", Value::Null),
        ],
    );
}

#[test]
fn zipkin() {
    let mesh = |more: &str| {
        let list = format!("{{name: z, zipkin: {{service: obs/{SINK}, port: 9411{more}}}}}");
        providers(&list, "tracing: [Z]")
    };
    let plain = tracing(Direction::Outbound, TraceIdentity::default(), &mesh(""));
    check(
        &plain,
        &[
            ("provider.name", json!("envoy.tracers.zipkin")),
            ("provider.typedConfig.collectorCluster", json!(format!("outbound|9411||{SINK}"))),
            ("provider.typedConfig.collectorEndpoint", json!("/api/v2/spans")),
            ("provider.typedConfig.collectorHostname", json!(SINK)),
            ("provider.typedConfig.collectorEndpointVersion", json!("HTTP_JSON")),
            ("provider.typedConfig.traceId128bit", json!(true)),
            ("provider.typedConfig.sharedSpanContext", json!(false)),
            ("provider.typedConfig.collectorService", Value::Null),
            ("spawnUpstreamSpan", Value::Null),
            ("randomSampling.value", json!(1.0)),
        ],
    );
    let more = mesh(
        ", path: spans, enable64bitTraceId: true, traceContextOption: USE_B3_WITH_W3C_PROPAGATION, maxTagLength: 7, \
         headers: [{name: x-a, value: b}, {name: x-b, envName: NOT_THERE}]",
    );
    let value = tracing(Direction::Gateway, TraceIdentity::default(), &more);
    check(
        &value,
        &[
            ("maxPathTagLength", json!(7)),
            ("spawnUpstreamSpan", json!(true)),
            ("provider.typedConfig.traceId128bit", Value::Null),
            ("provider.typedConfig.traceContextOption", json!("USE_B3_WITH_W3C_PROPAGATION")),
            (
                "provider.typedConfig.collectorService.httpUri",
                json!({"uri": format!("http://{SINK}/spans"), "cluster": format!("outbound|9411||{SINK}"), "timeout": "5s"}),
            ),
            (
                "provider.typedConfig.collectorService.requestHeadersToAdd",
                json!([{"header": {"key": "x-a", "value": "b"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}]),
            ),
        ],
    );
}

#[test]
fn open_telemetry() {
    let of = |more: &str| {
        let list = format!("{{name: o, opentelemetry: {{service: {SINK}, port: 4317{more}}}}}");
        tracing(Direction::Outbound, identity(&[], "web.shop"), &providers(&list, "tracing: [o]"))
    };
    let grpc = of(", grpc: {timeout: 3s, initialMetadata: [{name: k, value: v}]}, resourceDetectors: {dynatrace: {}}");
    let prefix = "provider.typedConfig";
    let path = |rest: &str| format!("{prefix}.{rest}");
    check(
        &grpc,
        &[
            ("provider.name", json!("envoy.tracers.opentelemetry")),
            (&path("serviceName"), json!("web.shop")),
            (&path("grpcService.envoyGrpc.clusterName"), json!(format!("outbound|4317||{SINK}"))),
            (&path("grpcService.timeout"), json!("3s")),
            (&path("grpcService.initialMetadata"), json!([{"key": "k", "value": "v"}])),
            (&path("resourceDetectors[0].name"), json!("envoy.tracers.opentelemetry.resource_detectors.dynatrace")),
            (&path("httpService"), Value::Null),
        ],
    );
    let http = of(", http: {path: /v1/traces, headers: [{name: a, value: b}]}, \
         serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS, dynatraceSampler: {tenant: t, clusterId: 5}");
    check(
        &http,
        &[
            (&path("httpService.httpUri.uri"), json!(format!("{SINK}/v1/traces"))),
            (&path("httpService.httpUri.timeout"), json!("10s")),
            (&path("grpcService"), Value::Null),
            (&path("resourceDetectors[0].name"), json!("envoy.tracers.opentelemetry.resource_detectors.environment")),
            (&path("sampler.typedConfig.tenant"), json!("t")),
            (
                &path("sampler.typedConfig.httpService.httpUri.uri"),
                json!(format!("{SINK}/api/v2/samplingConfiguration")),
            ),
            ("randomSampling.value", json!(100.0)),
        ],
    );
    let other = of(&format!(
        ", dynatraceSampler: {{tenant: t, clusterId: 5, httpService: {{service: {SINK}, port: 9411, http: {{path: /s}}}}}}"
    ));
    assert_eq!(at(&other, &path("sampler.typedConfig.httpService.httpUri.uri")), &json!(format!("{SINK}/s")));
    let nowhere = of(", dynatraceSampler: {tenant: t, clusterId: 5}");
    assert_eq!(nowhere, Value::Null, "the sampler's service does not exist");
}

#[test]
fn other_tracers() {
    let of = |kind: &str| {
        let mesh = providers(&format!("{{name: t, {kind}}}"), "tracing: [t]");
        tracing(Direction::Inbound, identity(&[], "web.shop"), &mesh)
    };
    let datadog = of(&format!("datadog: {{service: {SINK}, port: 9411, maxTagLength: 3}}"));
    check(
        &datadog,
        &[
            ("provider.typedConfig.serviceName", json!("web.shop")),
            ("provider.typedConfig.collectorHostname", json!(SINK)),
            ("maxPathTagLength", json!(3)),
        ],
    );
    let sky = of(&format!("skywalking: {{service: {SINK}, port: 4317, accessToken: secret}}"));
    check(
        &sky,
        &[
            ("spawnUpstreamSpan", json!(true)),
            ("provider.typedConfig.clientConfig.backendToken", json!("secret")),
            ("provider.typedConfig.grpcService.envoyGrpc.authority", json!(SINK)),
        ],
    );
    for none in [
        format!("lightstep: {{service: {SINK}, port: 4317, accessToken: a}}"),
        format!("opencensus: {{service: {SINK}, port: 4317}}"),
        "stackdriver: {}".to_owned(),
        "prometheus: {}".to_owned(),
        format!("zipkin: {{service: {SINK}, port: 1}}"),
        "zipkin: {service: gone.obs.svc.cluster.local, port: 9411}".to_owned(),
        "zipkin: {service: '10.0.0.1', port: 9411}".to_owned(),
    ] {
        assert_eq!(of(&none), Value::Null, "{none}");
    }
}

#[test]
fn metrics_need_istios_build() {
    let names = |capable: bool, direction, mesh: &str| {
        let spec = ListenerSpec {
            direction,
            capabilities: Capabilities { istio_stats: capable, ..Default::default() },
            ..listener(vec![chain(ChainKind::Http(discovered())), chain(ChainKind::Tcp(tcp(&[("a", 0)])))])
        };
        run(&spec, mesh)
    };
    let mesh = "{defaultProviders: {metrics: [prometheus]}}";
    let filters = |value: &Value| {
        let http = at(value, "filterChains[0].filters[0].typedConfig.httpFilters").as_array().unwrap().iter();
        let tcp = at(value, "filterChains[1].filters").as_array().unwrap().iter();
        http.chain(tcp).filter(|filter| filter["name"] == "istio.stats").cloned().collect::<Vec<_>>()
    };
    assert!(filters(&names(false, Direction::Inbound, mesh)).is_empty());
    assert!(filters(&names(true, Direction::Inbound, "{}")).is_empty());
    let outbound = filters(&names(true, Direction::Outbound, mesh));
    assert_eq!(outbound.len(), 2, "{outbound:?}");
    assert_eq!(outbound[0]["typedConfig"]["disableHostHeaderFallback"], Value::Null);
    for direction in [Direction::Inbound, Direction::Gateway] {
        let found = filters(&names(true, direction, mesh));
        assert_eq!(found[1]["typedConfig"]["disableHostHeaderFallback"], true, "{found:?}");
    }
}
