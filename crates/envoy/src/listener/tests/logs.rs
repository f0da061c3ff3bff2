//! Access logs.

use super::*;

#[test]
fn access_logs() {
    let text = "accessLogFile: /dev/stdout";
    let value = run(&inbound(), text);
    check(
        &value,
        &[
            ("accessLog[0].name", json!("envoy.access_loggers.file")),
            ("accessLog[0].filter", json!({"responseFlagFilter": {"flags": ["NR"]}})),
            ("filterChains[0].filters[0].typedConfig.accessLog[0].filter", Value::Null),
            ("filterChains[0].filters[0].typedConfig.accessLog[0].typedConfig.path", json!("/dev/stdout")),
        ],
    );
    let format = |mesh: &str| {
        let manager = manager(discovered(), Direction::Outbound, mesh);
        at(&manager, "accessLog[0].typedConfig.logFormat").clone()
    };
    let line = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
        %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" \
        %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
        \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% \
        %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";
    assert_eq!(format(text), json!({"textFormatSource": {"inlineString": line}}));
    assert_eq!(
        format("{accessLogFile: /a, accessLogFormat: '%DURATION%'}"),
        json!({"textFormatSource": {"inlineString": "%DURATION%\n"}})
    );
    let fields = format("{accessLogFile: /a, accessLogEncoding: JSON}");
    check(
        &fields,
        &[
            ("jsonFormat.method", json!("%REQ(:METHOD)%")),
            ("jsonFormat.start_time", json!("%START_TIME%")),
            ("jsonFormat.route_name", json!("%ROUTE_NAME%")),
        ],
    );
    assert_eq!(fields["jsonFormat"].as_object().unwrap().len(), 24);
    assert_eq!(
        format(
            "{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: '{\"m\": \"%DURATION%\", \"n\": [1, true]}'}"
        ),
        json!({"jsonFormat": {"m": "%DURATION%", "n": [1.0, true]}})
    );
    let silent = run(&listener(Vec::new()), "{accessLogFile: /a, disableEnvoyListenerLog: true}");
    assert_eq!(silent["accessLog"], Value::Null);
}

fn inbound() -> ListenerSpec {
    ListenerSpec { direction: Direction::Inbound, ..listener(vec![chain(ChainKind::Tcp(tcp(&[("a", 0)])))]) }
}

#[test]
fn service_listeners_that_match_everything_have_no_log() {
    let logs = |change: &dyn Fn(&mut ListenerSpec)| {
        let mut spec = listener(vec![chain(ChainKind::Tcp(tcp(&[("a", 0)])))]);
        change(&mut spec);
        run(&spec, "accessLogFile: /dev/stdout")["accessLog"].is_array()
    };
    let by_name = |spec: &mut ListenerSpec| {
        let matches = ChainMatch { server_names: vec!["a.example".into()], ..ChainMatch::default() };
        spec.chains = vec![ChainSpec { matches, ..spec.chains[0].clone() }].into();
    };
    assert!(!logs(&|_| {}));
    assert!(logs(&by_name));
    assert!(!logs(&|spec| {
        by_name(spec);
        spec.default_chain = Some(Box::new(chain(ChainKind::Tcp(tcp(&[("a", 0)])))));
    }));
    assert!(logs(&|spec| spec.use_original_dst = true));
    assert!(logs(&|spec| spec.direction = Direction::Gateway));
}

/// A collector with a gRPC and an HTTP port.
pub(super) fn collector() -> Arc<Object<config::core::Service>> {
    testing::object(
        "apiVersion: v1\nkind: Service\nmetadata: {name: sink, namespace: obs}\n\
         spec: {clusterIP: 10.0.0.9, ports: [{name: grpc, port: 4317}, {name: http, port: 9411}]}\n",
    )
}

/// A mesh with these providers and defaults, as YAML in one line.
pub(super) fn providers(list: &str, defaults: &str) -> String {
    format!("{{extensionProviders: [{list}], defaultProviders: {{{defaults}}}}}")
}

#[test]
fn logs_go_to_the_default_providers() {
    let sink = "service: sink.obs.svc.cluster.local, port: 4317";
    let list = format!(
        "{{name: z, envoyTcpAls: {{{sink}}}}}, \
         {{name: a, envoyHttpAls: {{{sink}, logName: mine, filterStateObjectsToLog: [x], additionalRequestHeadersToLog: [x-a]}}}}, \
         {{name: f, envoyFileAccessLog: {{omitEmptyValues: true, logFormat: {{labels: {{p: '%REQ_WITHOUT_QUERY(:PATH)%'}}}}}}}}, \
         {{name: o, envoyOtelAls: {{{sink}, logFormat: {{labels: {{b: x, a: '%PROTOCOL%'}}}}}}}}"
    );
    let mesh = providers(&list, "accessLogging: [z, A, f, o, unknown, f]");
    let value = run_with(&inbound(), &mesh, &[collector()]);
    let names: Vec<&Value> = value["accessLog"].as_array().unwrap().iter().map(|log| &log["name"]).collect();
    assert_eq!(
        names,
        [
            "envoy.access_loggers.http_grpc",
            "envoy.access_loggers.file",
            "envoy.access_loggers.open_telemetry",
            "envoy.access_loggers.tcp_grpc",
        ]
    );
    let logs = at(&value, "filterChains[0].filters[0].typedConfig.accessLog");
    let cluster =
        json!({"clusterName": "outbound|4317||sink.obs.svc.cluster.local", "authority": "sink.obs.svc.cluster.local"});
    check(
        logs,
        &[
            ("0.typedConfig.commonConfig.logName", json!("mine")),
            ("0.typedConfig.commonConfig.grpcService.envoyGrpc", cluster.clone()),
            ("0.typedConfig.commonConfig.filterStateObjectsToLog", json!(["x"])),
            ("0.typedConfig.additionalRequestHeadersToLog", json!(["x-a"])),
            ("1.typedConfig.path", json!("/dev/stdout")),
            ("1.typedConfig.logFormat.omitEmptyValues", json!(true)),
            ("1.typedConfig.logFormat.formatters[0].name", json!("envoy.formatter.req_without_query")),
            ("2.typedConfig.commonConfig.logName", json!("otel_envoy_accesslog")),
            ("2.typedConfig.attributes.values[0].key", json!("a")),
            ("2.typedConfig.attributes.values[0].value.stringValue", json!("%PROTOCOL%")),
            ("2.typedConfig.disableBuiltinLabels", json!(true)),
            ("3.typedConfig.commonConfig.logName", json!("tcp_envoy_accesslog")),
            ("3.typedConfig.commonConfig.transportApiVersion", json!("V3")),
        ],
    );
}

#[test]
fn mesh_settings_configure_the_built_in_provider() {
    let format = |mesh: &str| {
        let manager = manager(discovered(), Direction::Outbound, mesh);
        at(&manager, "accessLog[0].typedConfig").clone()
    };
    let mesh = "{accessLogFormat: '%DURATION%', accessLogFile: /other, defaultProviders: {accessLogging: [envoy]}}";
    check(
        &format(mesh),
        &[("path", json!("/dev/stdout")), ("logFormat.textFormatSource.inlineString", json!("%DURATION%\n"))],
    );
    // Providers without effect leave the older settings in force.
    let mesh = "{accessLogFile: /other, defaultProviders: {accessLogging: [unknown]}}";
    assert_eq!(format(mesh)["path"], "/other");
    let lost =
        providers("{name: a, envoyTcpAls: {service: gone.obs.svc.cluster.local, port: 1}}", "accessLogging: [a]");
    assert_eq!(format(&lost), Value::Null);
}

#[test]
fn logs_go_to_the_bootstraps_service() {
    let mesh = "{enableEnvoyAccessLogService: true, accessLogFile: /a}";
    let value = run(&inbound(), mesh);
    let cluster = |path: &str| format!("{path}.typedConfig.commonConfig.grpcService.envoyGrpc.clusterName");
    let name = |path: &str| format!("{path}.typedConfig.commonConfig.logName");
    let chain = "filterChains[0].filters[0].typedConfig.accessLog[1]";
    check(
        &value,
        &[
            (&cluster("accessLog[1]"), json!("envoy_accesslog_service")),
            (&name("accessLog[1]"), json!("listener_envoy_accesslog")),
            ("accessLog[1].filter.responseFlagFilter.flags", json!(["NR"])),
            (&cluster(chain), json!("envoy_accesslog_service")),
            (&name(chain), json!("tcp_envoy_accesslog")),
        ],
    );
    let manager = manager(discovered(), Direction::Inbound, mesh);
    assert_eq!(at(&manager, &name("accessLog[1]")), "http_envoy_accesslog");
}
