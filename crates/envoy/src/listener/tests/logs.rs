//! Access logs.

use super::*;

#[test]
fn access_logs() {
    let text = "accessLogFile: /dev/stdout";
    let value = run(&listener(vec![chain(ChainKind::Tcp(tcp(&[("a", 0)])))]), text);
    check(
        &value,
        &[
            ("accessLog[0].name", json!("envoy.access_loggers.file")),
            ("accessLog[0].filter", json!({"responseFlagFilter": {"flags": ["NR"]}})),
            (
                "filterChains[0].filters[0].typedConfig.accessLog[0].filter",
                Value::Null,
            ),
            (
                "filterChains[0].filters[0].typedConfig.accessLog[0].typedConfig.path",
                json!("/dev/stdout"),
            ),
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
        format("{accessLogFile: /a, accessLogFormat: '%METHOD%'}"),
        json!({"textFormatSource": {"inlineString": "%METHOD%"}})
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
            "{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: '{\"m\": \"%METHOD%\", \"n\": [1, true]}'}"
        ),
        json!({"jsonFormat": {"m": "%METHOD%", "n": [1.0, true]}})
    );
    let silent = run(
        &listener(Vec::new()),
        "{accessLogFile: /a, disableEnvoyListenerLog: true}",
    );
    assert_eq!(silent["accessLog"], Value::Null);
}
