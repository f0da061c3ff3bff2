//! Options of routes other than forwarding.

use super::*;

#[test]
fn rewrites() {
    let of = |rewrite: &str| {
        route(&format!("  - match: [{{uri: {{prefix: /a}}}}]\n    rewrite: {{{rewrite}}}\n    {TO_A}\n"))
    };
    check(
        &of("uri: /b, authority: c.example.com"),
        &[("route.prefixRewrite", json!("/b")), ("route.hostRewriteLiteral", json!("c.example.com"))],
    );
    check(
        &of(r"uriRegexRewrite: {match: '^/a/(.*)$', rewrite: '/\1'}"),
        &[
            ("route.regexRewrite", json!({"pattern": {"regex": "^/a/(.*)$"}, "substitution": "/\\1"})),
            ("route.prefixRewrite", Value::Null),
        ],
    );
}

#[test]
fn timeouts_and_retries() {
    let route = route(&format!(
        "  - timeout: 5s\n    retries: {{attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error,503'}}\n    {TO_A}\n"
    ));
    check(
        &route,
        &[
            ("route.timeout", json!("5s")),
            ("route.maxGrpcTimeout", json!("5s")),
            ("route.retryPolicy.numRetries", json!(3)),
            ("route.retryPolicy.perTryTimeout", json!("2s")),
            ("route.retryPolicy.retryOn", json!("gateway-error,retriable-status-codes")),
            ("route.retryPolicy.retriableStatusCodes", json!([503])),
        ],
    );
    let mesh = "defaultHttpRetryPolicy: {attempts: 0}";
    let http = format!("  - {TO_A}\n");
    assert_eq!(at(&routes_with(&http, &Destinations::at(80), mesh, None)[0], "route.retryPolicy"), &Value::Null);
}

#[test]
fn redirects() {
    let of = |redirect: &str| route(&format!("  - redirect: {{{redirect}}}\n"))["redirect"].clone();
    assert_eq!(of("uri: /b, authority: b.example.com"), json!({"hostRedirect": "b.example.com", "pathRedirect": "/b"}));
    assert_eq!(
        of("scheme: https, redirectCode: 308, port: 8443"),
        json!({"schemeRedirect": "https", "portRedirect": 8443, "responseCode": "PERMANENT_REDIRECT"})
    );
    assert_eq!(of("scheme: https, derivePort: FROM_PROTOCOL_DEFAULT"), json!({"schemeRedirect": "https"}));
    assert_eq!(
        of("scheme: https, derivePort: FROM_REQUEST_PORT"),
        json!({"schemeRedirect": "https", "portRedirect": 80})
    );
    assert_eq!(of("uri: /a, derivePort: FROM_REQUEST_PORT"), json!({"pathRedirect": "/a"}));
    for (code, name) in [(302, "FOUND"), (303, "SEE_OTHER"), (307, "TEMPORARY_REDIRECT")] {
        assert_eq!(of(&format!("uri: /b, redirectCode: {code}"))["responseCode"], name);
    }
}

#[test]
fn fixed_responses() {
    let of = |response: &str| route(&format!("  - directResponse: {{{response}}}\n"));
    check(
        &of("status: 503, body: {string: down}"),
        &[
            ("directResponse", json!({"status": 503, "body": {"inlineString": "down"}})),
            ("decorator.operation", json!("vs:80/*")),
        ],
    );
    check(&of("status: 200, body: {bytes: Zm9v}"), &[("directResponse.body", json!({"inlineBytes": "Zm9v"}))]);
    check(&of("status: 404"), &[("directResponse", json!({"status": 404}))]);
}

#[test]
fn faults() {
    let of = |fault: &str| {
        let route = route(&format!("  - fault: {{{fault}}}\n    {TO_A}\n"));
        let mut options = route["typedPerFilterConfig"]["envoy.filters.http.fault"].clone();
        if let Some(options) = options.as_object_mut() {
            options.remove("@type");
        }
        options
    };
    assert_eq!(
        of("delay: {percentage: {value: 0.1}, fixedDelay: 5s}, abort: {httpStatus: 400, percentage: {value: 50}}"),
        json!({
            "delay": {"percentage": {"numerator": 1000, "denominator": "MILLION"}, "fixedDelay": "5s"},
            "abort": {"percentage": {"numerator": 500000, "denominator": "MILLION"}, "httpStatus": 400},
        })
    );
    assert_eq!(
        of("abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}"),
        json!({"abort": {"percentage": {"numerator": 1000000, "denominator": "MILLION"}, "grpcStatus": 14}})
    );
}

#[test]
fn cross_origin_sharing() {
    let route = route(&format!(
        "  - corsPolicy: {{allowOrigins: [{{exact: a}}, {{regex: '.*b'}}], allowMethods: [GET, PUT], allowHeaders: [x, y],
      exposeHeaders: [z], maxAge: 24h, allowCredentials: true, unmatchedPreflights: IGNORE}}\n    {TO_A}\n"
    ));
    let mut options = route["typedPerFilterConfig"]["envoy.filters.http.cors"].clone();
    options.as_object_mut().unwrap().remove("@type");
    assert_eq!(
        options,
        json!({
            "allowOriginStringMatch": [{"exact": "a"}, {"safeRegex": {"regex": ".*b"}}],
            "allowMethods": "GET,PUT", "allowHeaders": "x,y", "exposeHeaders": "z", "maxAge": "86400", "allowCredentials": true,
            "filterEnabled": {"defaultValue": {"numerator": 100}}, "forwardNotMatchingPreflights": false,
        })
    );
}

#[test]
fn mirrored_requests() {
    let route = route(&format!(
        "  - mirror: {{host: b.example.com, port: {{number: 80}}}}\n    mirrorPercentage: {{value: 25}}\n    {TO_A}\n"
    ));
    assert_eq!(
        at(&route, "route.requestMirrorPolicies"),
        &json!([{
            "cluster": "outbound|80||b.example.com",
            "runtimeFraction": {"defaultValue": {"numerator": 250000, "denominator": "MILLION"}},
            "traceSampled": false,
            "disableShadowHostSuffixAppend": true,
        }])
    );
    let several = routes(&format!(
        "  - mirrors: [{{destination: {{host: b.example.com, port: {{number: 80}}}}}}, {{destination: {{host: c.example.com, port: {{number: 80}}}}, percentage: {{value: 0}}}}]\n    {TO_A}\n"
    ));
    let policies = at(&several[0], "route.requestMirrorPolicies").as_array().unwrap();
    assert_eq!(policies.len(), 1);
    assert_eq!(at(&policies[0], "runtimeFraction"), &json!({"defaultValue": {"numerator": 100}}));
}

#[test]
fn hash_policies() {
    let of = |balancer: &str| {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: r, namespace: shop}}\nspec: {{host: a.example.com, trafficPolicy: {{loadBalancer: {{consistentHash: {{{balancer}}}}}}}}}"
        );
        let rule = object::<config::istio::DestinationRule>(&text);
        let policy = DestinationPolicy { policy: rule.spec.traffic_policy.clone(), ..Default::default() };
        let mut destinations = Destinations::at(80);
        destinations.know("a.example.com", None, Some(policy));
        let route = routes_with(&format!("  - {TO_A}\n"), &destinations, "", None).remove(0);
        // A retry must go to the same endpoint.
        assert_eq!(at(&route, "route.retryPolicy.retryHostPredicate"), &Value::Null);
        at(&route, "route.hashPolicy").clone()
    };
    assert_eq!(of("httpHeaderName: x-user"), json!([{"header": {"headerName": "x-user"}}]));
    assert_eq!(
        of("httpCookie: {name: user, path: /, ttl: 0s, attributes: [{name: SameSite, value: Lax}]}"),
        json!([{"cookie": {"name": "user", "path": "/", "ttl": "0s", "attributes": [{"name": "SameSite", "value": "Lax"}]}}])
    );
    assert_eq!(of("useSourceIp: true"), json!([{"connectionProperties": {"sourceIp": true}}]));
    assert_eq!(of("httpQueryParameterName: q"), json!([{"queryParameter": {"name": "q"}}]));
}
