use super::*;
use protos::envoy::config::core::v3::{BuildVersion, Locality as ProtoLocality};

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

fn node(id: &str, metadata: impl IntoIterator<Item = (&'static str, Value)>) -> Node {
    Node { id: id.to_owned(), metadata: Some(object(metadata)), ..Node::default() }
}

const SIDECAR: &str = "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local";

#[test]
fn all_supported_fields_are_parsed() {
    let labels = Kind::StructValue(object([("app", text("web")), ("version", text("v1"))]));
    let annotations = Kind::StructValue(object([("resource.opentelemetry.io/service.name", text("the-web"))]));
    let node = Node {
        cluster: "web.shop".into(),
        locality: Some(ProtoLocality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() }),
        extensions: vec![
            Extension { name: "istio.alpn".into(), ..Extension::default() },
            Extension { name: "cryptomb".into(), category: "envoy.tls.key_providers".into(), ..Extension::default() },
            Extension { name: "istio.stats".into(), disabled: true, ..Extension::default() },
            Extension {
                type_urls: vec!["envoy.tcp.metadataexchange.config.MetadataExchange".into()],
                ..Extension::default()
            },
            Extension {
                type_urls: vec!["type.googleapis.com/io.istio.http.peer_metadata.Config".into()],
                ..Extension::default()
            },
        ],
        ..node(
            SIDECAR,
            [
                ("NAMESPACE", text("other")),
                ("INSTANCE_IPS", text("10.0.0.1,fd00::1, nonsense")),
                ("LABELS", Value { kind: Some(labels) }),
                ("NETWORK", text("n1")),
                ("REQUESTED_NETWORK_VIEW", text("n2, n1,,n2")),
                ("NODE_NAME", text("worker")),
                ("CLUSTER_ID", text("c1")),
                ("SERVICE_ACCOUNT", text("web")),
                ("POD_PORTS", text(r#"[{"name":"http","containerPort":8080,"protocol":"TCP"},{"containerPort":9}]"#)),
                ("INTERCEPTION_MODE", text("NONE")),
                ("HTTP10", text("1")),
                ("UNPRIVILEGED_POD", Value { kind: Some(Kind::BoolValue(true)) }),
                ("ISTIO_VERSION", text("1.28.0")),
                ("ANNOTATIONS", Value { kind: Some(annotations) }),
                ("PROXY_CONFIG", Value { kind: Some(Kind::NumberValue(1.0)) }),
            ],
        )
    };
    let expected = Proxy {
        kind: ProxyKind::Sidecar,
        id: "web-1.shop".into(),
        namespace: "other".into(),
        dns_domain: "shop.svc.cluster.local".into(),
        vhds: false,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        labels: [("app".into(), "web".into()), ("version".into(), "v1".into())].into(),
        locality: Locality::parse("r/z/s"),
        network: "n1".into(),
        network_view: vec!["n1".into(), "n2".into()],
        node: "worker".into(),
        cluster_id: "c1".into(),
        service_account: "web".into(),
        interception: InterceptionMode::None,
        capabilities: Capabilities { istio_alpn: true, istio_stats: false, cryptomb: true, qat: false },
        accepts_http10: true,
        static_ports: STATIC_PORTS,
        unprivileged: true,
        own_workload: None,
        settings: None,
        resolver: None,
        ports: [("http".into(), 8080)].into(),
        secrets: Default::default(),
        version: "1.28.0".into(),
        span_names: SpanNames { cluster: "web.shop".into(), annotated: "the-web".into() },
        metadata: Arc::new(texts(&node)),
    };
    assert_eq!(settings_of(r#"{"a": 1}"#).unwrap().as_deref(), Some("{}"), "other settings are dropped");
    let text = r#"{"gatewayTopology":{"numTrustedProxies":2},"proxyHeaders":{"requestId":{"disabled":true}}}"#;
    assert_eq!(settings_of(text).unwrap().as_deref(), Some(text));
    let deep = format!(r#"{{"proxyHeaders": {}1{}}}"#, "[".repeat(30), "]".repeat(30));
    let long = format!(r#"{{"proxyHeaders": {{"server": {{"value": "{}"}}}}}}"#, "a".repeat(SETTINGS_TEXT));
    for bad in [deep, long] {
        assert!(matches!(settings_of(&bad), Err(NodeError::Metadata { key: "PROXY_CONFIG", .. })));
    }
    assert_eq!(expected.metadata.get("ISTIO_VERSION").map(|v| &**v), Some("1.28.0"));
    assert!(!expected.metadata.contains_key("LABELS"), "values other than texts are left out");
    assert_eq!(parse_node(&node), Ok(expected.clone()));
    assert_eq!(decode_node(protos::encode(&node)), Ok(expected));
}

#[test]
fn missing_fields_have_defaults() {
    let proxy = parse_node(&Node { id: SIDECAR.into(), ..Node::default() }).unwrap();
    assert_eq!((&*proxy.namespace, proxy.interception), ("shop", InterceptionMode::Redirect));
    assert_eq!(proxy.capabilities, Capabilities::default());
    assert!(!proxy.accepts_http10 && !proxy.unprivileged && proxy.locality.is_empty());

    let proxy =
        parse_node(&node("router~~gw.ns~", [("NAMESPACE", text("ns")), ("INSTANCE_IPS", text("::1"))])).unwrap();
    assert_eq!((proxy.kind, &*proxy.dns_domain), (ProxyKind::Router, "ns.svc.cluster.local"));
    assert_eq!(proxy.addresses, ["::1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn unsupported_nodes_are_rejected_with_a_reason() {
    let many = (0..=ADDRESSES).map(|n| format!("10.0.{}.{}", n / 200, n % 200 + 2)).collect::<Vec<_>>().join(",");
    let long = "x".repeat(TEXT + 1);
    type Metadata = Vec<(&'static str, Value)>;
    let refused: [(&str, Metadata, &str); 12] = [
        ("sidecar~10.0.0.1~x", vec![], "four parts"),
        ("envoy~10.0.0.1~x.y~y.svc", vec![], "unknown type"),
        ("waypoint~10.0.0.1~x.y~y.svc", vec![], "clients of type waypoint are not served"),
        ("ztunnel~10.0.0.1~x.y~y.svc", vec![], "clients of type ztunnel are not served"),
        (SIDECAR, vec![("GENERATOR", text("event"))], "GENERATOR is neither grpc"),
        ("sidecar~nowhere~x.y~y.svc", vec![], "no IP address"),
        ("sidecar~10.0.0.1~x~", vec![], "no namespace"),
        (SIDECAR, vec![("INTERCEPTION_MODE", text("MAGIC"))], "INTERCEPTION_MODE is \"MAGIC\""),
        (SIDECAR, vec![("NETWORK", Value { kind: Some(Kind::NumberValue(1.0)) })], "NETWORK is not a text"),
        (SIDECAR, vec![("LABELS", text("a=b"))], "LABELS is not an object"),
        (SIDECAR, vec![("CLUSTER_ID", text(&long))], "CLUSTER_ID is longer"),
        (SIDECAR, vec![("INSTANCE_IPS", text(&many))], "INSTANCE_IPS"),
    ];
    for (id, metadata, reason) in refused {
        let error = parse_node(&node(id, metadata)).unwrap_err().to_string();
        assert!(error.contains(reason), "{id}: {error}");
    }
    assert!(matches!(decode_node(Bytes::from_static(b"\xff")), Err(NodeError::Malformed(_))));
}

fn texts(node: &Node) -> model::proxy::Metadata {
    let fields = node.metadata.iter().flat_map(|metadata| &metadata.fields);
    let texts = fields.filter_map(|(key, value)| match &value.kind {
        Some(Kind::StringValue(text)) => Some((key.as_str().into(), text.as_str().into())),
        _ => None,
    });
    texts.collect()
}

/// The settings of a node whose agent reports this JSON.
fn settings_of(json: &str) -> Result<Option<Arc<str>>, NodeError> {
    let settings: serde_json::Value = serde_json::from_str(json).unwrap();
    let node = serde_json::json!({
        "id": "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local",
        "metadata": { "PROXY_CONFIG": settings },
    });
    parse_node(&protos::from_json(&node).unwrap()).map(|proxy| proxy.settings)
}

#[test]
fn vhds_support_depends_on_the_envoy_version() {
    let taken = |name: &str, (major_number, minor_number): (u32, u32)| {
        let version = SemanticVersion { major_number, minor_number, patch: 9 };
        let build = BuildVersion { version: Some(version), ..BuildVersion::default() };
        let proxy = parse_node(&Node {
            user_agent_name: name.to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
            ..node("sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", [])
        })
        .unwrap();
        proxy.vhds
    };
    assert!(!taken("envoy", (1, 36)));
    assert!(taken("envoy", (1, 37)));
    assert!(taken("envoy", (1, 38)));
    assert!(taken("envoy", (2, 0)));
    assert!(!taken("gRPC Go", (1, 79)));
}
