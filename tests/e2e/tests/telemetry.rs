//! Telemetry of proxies: spans, log entries and log files, configured in the mesh settings.

#![allow(clippy::unwrap_used)]

use e2e::{Collector, HOST, PATIENCE, Shop, Told, both_protocols};
use protos::Message;
use protos::envoy::service::accesslog::v3::StreamAccessLogsMessage;
use protos::envoy::service::accesslog::v3::stream_access_logs_message::LogEntries;
use serde_json::Value;
use test_harness::run::{Envoy, Node, Protocol, Result, free_port, http, wait_for};

const ROUTE: &str = "[{ route: [{ destination: { host: shop.test.svc.cluster.local } }] }]";
const LOGS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
/// The client sees its own namespace only, without the collectors.
const SIDECAR: &str = "\
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: { name: own, namespace: test }
spec: { egress: [{ hosts: ['./*'] }] }
";

/// A collector as a service in another namespace.
fn service(collector: &Collector) -> String {
    let address = collector.address();
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{ name: sink, namespace: obs }}
spec:
  hosts: [sink.obs.example]
  resolution: STATIC
  ports: [{{ number: 9411, name: http, protocol: HTTP }}, {{ number: 4317, name: grpc, protocol: GRPC }}]
  endpoints: [{{ address: {}, ports: {{ http: {port}, grpc: {port} }} }}]
",
        address.ip(),
        port = address.port()
    )
}

/// MeshConfig with providers, default providers and proxy settings.
fn settings(providers: &str, defaults: &str, proxies: &str) -> String {
    format!(
        "\
apiVersion: mesh.istio.io/v1alpha1
kind: MeshConfig
metadata: {{ name: mesh }}
spec: {{ extensionProviders: [{providers}], defaultProviders: {{ {defaults} }}, defaultConfig: {{ {proxies} }} }}
"
    )
}

/// A shop with these settings, whose client does not see the collector.
async fn shop(protocol: Protocol, speaks: &str, collector: &Collector, settings: &str) -> Result<Shop> {
    let shop = Shop::speaking(speaks, protocol, &["v1"], ROUTE, "{ tls: { mode: DISABLE } }").await?;
    shop.mesh.config.put("sidecar.yaml", SIDECAR)?;
    shop.mesh.config.put("sink.yaml", &service(collector))?;
    shop.mesh.config.put("mesh.yaml", settings)?;
    Ok(shop)
}

async fn ask(shop: &Shop) -> Result<()> {
    let answer = shop.get("/hello?a=b", &[("x-team", "blue")]).await?;
    (answer.status == 200).then_some(()).ok_or_else(|| "no answer yet".into())
}

fn contains(told: &Told, text: &str) -> bool {
    told.body.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The client's span among those that a proxy sent in Zipkin's format.
fn client_span(told: &Told) -> Option<Value> {
    let spans: Vec<Value> = serde_json::from_slice(&told.body).ok()?;
    spans.into_iter().find(|span| span["kind"] == "CLIENT")
}

both_protocols! {
    async fn zipkin_gets_spans_with_tags(protocol) {
        let collector = Collector::start().await?;
        let providers = "{ name: zipkin, zipkin: { service: obs/sink.obs.example, port: 9411, \
            headers: [{ name: x-token, value: secret }] } }";
        // The client has settings of its own, so one request in a hundred is traced, and all requests that ask for it.
        let text = settings(providers, "tracing: [zipkin]", "");
        let shop = shop(protocol, "HTTP", &collector, &text).await?;
        let sampled = async || {
            let answer = shop.get("/hello", &[("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1")]).await?;
            (answer.status == 200).then_some(()).ok_or_else(|| "no answer yet".into())
        };
        let found = |told: &Told| client_span(told).map(|span| (span, told.token.clone()));
        let (span, token) = collector.wait_for("/api/v2/spans", sampled, found).await?;
        assert_eq!(token, "secret");
        assert_eq!(span["localEndpoint"]["serviceName"], "mesh", "{span:#}");
        let tags = &span["tags"];
        assert_eq!(tags["istio.namespace"], "test", "{span:#}");
        assert_eq!(tags["istio.canonical_service"], "unknown");
        assert_eq!(tags["istio.cluster_id"], "Kubernetes");
        assert_eq!(tags["upstream_cluster"], shop.cluster(""));
        assert_eq!(tags["http.status_code"], "200");
    }

    async fn services_of_logs_get_entries_of_requests(protocol) {
        let collector = Collector::start().await?;
        let providers = "{ name: als, envoyHttpAls: { service: sink.obs.example, port: 4317, logName: shop, \
            additionalRequestHeadersToLog: [x-team] } }";
        let shop = shop(protocol, "HTTP", &collector, &settings(providers, "accessLogging: [als]", "")).await?;
        let entry = |told: &Told| {
            let message = StreamAccessLogsMessage::decode(told.body.clone()).ok()?;
            match message.log_entries? {
                LogEntries::HttpLogs(logs) => logs.log_entry.into_iter().next(),
                LogEntries::TcpLogs(_) => None,
            }
        };
        let entry = collector.wait_for(LOGS, async || ask(&shop).await, entry).await?;
        let request = entry.request.unwrap();
        assert_eq!((&*request.path, &*request.authority), ("/hello?a=b", HOST));
        assert_eq!(request.request_headers.get("x-team").map(String::as_str), Some("blue"));
        assert_eq!(entry.response.unwrap().response_code, Some(200));
        assert_eq!(entry.common_properties.unwrap().upstream_cluster, shop.cluster(""));
    }

    async fn services_of_logs_get_entries_of_connections(protocol) {
        let collector = Collector::start().await?;
        let providers = "{ name: als, envoyTcpAls: { service: sink.obs.example, port: 4317, logName: bytes } }";
        let shop = shop(protocol, "TCP", &collector, &settings(providers, "accessLogging: [als]", "")).await?;
        let entry = |told: &Told| {
            let message = StreamAccessLogsMessage::decode(told.body.clone()).ok()?;
            match message.log_entries? {
                LogEntries::TcpLogs(logs) => logs.log_entry.into_iter().next(),
                LogEntries::HttpLogs(_) => None,
            }
        };
        let entry = collector.wait_for(LOGS, async || ask(&shop).await, entry).await?;
        assert_eq!(entry.common_properties.unwrap().upstream_cluster, shop.cluster(""));
        assert!(entry.connection_properties.unwrap().sent_bytes > 0);
    }

    async fn a_collector_of_opentelemetry_gets_spans_and_logs(protocol) {
        let collector = Collector::start().await?;
        let providers = "{ name: otel, opentelemetry: { service: sink.obs.example, port: 4317 } }, \
            { name: logs, envoyOtelAls: { service: sink.obs.example, port: 4317, \
            logFormat: { text: 'asked %REQ(X-TEAM)%', labels: { path: '%REQ_WITHOUT_QUERY(:PATH)%' } } } }";
        let text = settings(providers, "tracing: [otel], accessLogging: [logs]", "");
        let shop = shop(protocol, "HTTP", &collector, &text).await?;
        let sampled = async || {
            let id = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let answer = shop.get("/hello?a=b", &[("traceparent", id), ("x-team", "blue")]).await?;
            (answer.status == 200).then_some(()).ok_or_else(|| "no answer yet".into())
        };
        let spans = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let span = collector.wait_for(spans, &sampled, |told| Some(told.clone())).await?;
        for text in ["service.name", "mesh", "istio.namespace", "istio.canonical_revision", "latest"] {
            assert!(contains(&span, text), "{text} in {span:?}");
        }
        let logs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
        let log = collector.wait_for(logs, &sampled, |told| Some(told.clone())).await?;
        assert!(contains(&log, "asked blue") && contains(&log, "/hello") && !contains(&log, "a=b"), "{log:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_gets_lines_of_json() -> Result<()> {
    let collector = Collector::start().await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("log");
    let providers = format!(
        "{{ name: json, envoyFileAccessLog: {{ path: {}, omitEmptyValues: true, logFormat: \
         {{ labels: {{ who: '%REQ(X-TEAM)%', code: '%RESPONSE_CODE%', absent: '%REQ(X-ABSENT)%' }} }} }} }}",
        file.display()
    );
    let text = settings(&providers, "accessLogging: [json]", "");
    let shop = shop(Protocol::Delta, "HTTP", &collector, &text).await?;
    let line = || async {
        ask(&shop).await.ok()?;
        let text = std::fs::read_to_string(&file).ok()?;
        text.lines().next().map(str::to_owned)
    };
    let line = wait_for("a line in the log", PATIENCE, line).await?;
    assert_eq!(serde_json::from_str::<Value>(&line)?, serde_json::json!({ "who": "blue", "code": 200 }), "{line}");
    Ok(())
}

/// A proxy whose bootstrap has an access log service and a tracer, as agents generate it from the older mesh settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_settings_use_what_the_bootstrap_knows() -> Result<()> {
    let collector = Collector::start().await?;
    let shop = Shop::start(Protocol::Delta, &["v1"], ROUTE).await?;
    shop.mesh.config.put(
        "mesh.yaml",
        "apiVersion: mesh.istio.io/v1alpha1\nkind: MeshConfig\nmetadata: { name: mesh }\n\
         spec: { enableEnvoyAccessLogService: true }\n",
    )?;
    let port = free_port();
    let mut node = Node::sidecar("other", "test", "127.0.0.3", &[("service.istio.io/canonical-name", "buyer")]);
    node.metadata["PROXY_CONFIG"] = serde_json::json!({ "tracing": {
        "zipkin": { "address": collector.address().to_string() }, "sampling": 100,
        "customTags": { "team": { "header": { "name": "x-team", "defaultValue": "none" } } },
    } });
    node.metadata["HTTP_PROXY_PORT"] = port.to_string().into();
    let mut bootstrap = Envoy::bootstrap(&node, Protocol::Delta, shop.mesh.control.grpc());
    let like = bootstrap["static_resources"]["clusters"][0].clone();
    for (name, http2) in [("envoy_accesslog_service", true), ("zipkin", false)] {
        let mut cluster = like.clone();
        cluster["name"] = name.into();
        cluster["load_assignment"]["cluster_name"] = name.into();
        let socket =
            &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
        socket["address"] = collector.address().ip().to_string().into();
        socket["port_value"] = collector.address().port().into();
        if !http2 {
            cluster.as_object_mut().unwrap().remove("typed_extension_protocol_options");
        }
        bootstrap["static_resources"]["clusters"].as_array_mut().unwrap().push(cluster);
    }
    bootstrap["node"]["cluster"] = "buyer.test".into();
    bootstrap["tracing"] = serde_json::json!({ "http": { "name": "envoy.tracers.zipkin", "typed_config": {
        "@type": "type.googleapis.com/envoy.config.trace.v3.ZipkinConfig", "collector_cluster": "zipkin",
        "collector_endpoint": "/api/v2/spans", "collector_endpoint_version": "HTTP_JSON", "shared_span_context": false,
    } } });
    let proxy = Envoy::start_with(e2e::envoy_binary(), &bootstrap).await?;
    let listener = ([127, 0, 0, 1], port).into();
    proxy.wait_for_listener(listener).await?;
    let authority = format!("{HOST}:{}", shop.port);
    let traffic = async || {
        let answer = http::get(listener, "/hello", &[("host", &authority), ("x-team", "red")]).await?;
        (answer.status == 200).then_some(()).ok_or_else(|| "no answer yet".into())
    };
    let span = collector.wait_for("/api/v2/spans", &traffic, client_span).await?;
    assert_eq!(span["localEndpoint"]["serviceName"], "buyer.test", "{span:#}");
    assert_eq!(
        (&span["tags"]["team"], &span["tags"]["istio.canonical_service"]),
        (&Value::from("red"), &Value::from("buyer")),
        "{span:#}"
    );
    let entry = |told: &Told| {
        let message = StreamAccessLogsMessage::decode(told.body.clone()).ok()?;
        let name = message.identifier.as_ref()?.log_name.clone();
        matches!(message.log_entries, Some(LogEntries::HttpLogs(_))).then_some(name)
    };
    let name = collector.wait_for(LOGS, &traffic, entry).await?;
    assert_eq!(name, "http_envoy_accesslog");
    Ok(())
}
