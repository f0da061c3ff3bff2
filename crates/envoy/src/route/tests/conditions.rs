//! Match conditions of routes.

use super::*;

#[test]
fn conditions() {
    let cases = [
        ("uri: {exact: /a}", json!({"path": "/a", "caseSensitive": true})),
        ("uri: {prefix: /a}, ignoreUriCase: true", json!({"prefix": "/a", "caseSensitive": false})),
        ("uri: {regex: '/a.*'}", json!({"safeRegex": {"regex": "/a.*"}, "caseSensitive": true})),
        ("method: {exact: GET}", json!([{"name": ":method", "stringMatch": {"exact": "GET"}}])),
        ("scheme: {exact: https}", json!([{"name": ":scheme", "stringMatch": {"exact": "https"}}])),
        ("authority: {prefix: a.}", json!([{"name": ":authority", "stringMatch": {"prefix": "a."}}])),
        (
            "headers: {x-a: {regex: 'v[12]'}}",
            json!([{"name": "x-a", "stringMatch": {"safeRegex": {"regex": "v[12]"}}}]),
        ),
        ("headers: {x-a: {}}", json!([{"name": "x-a", "presentMatch": true}])),
        ("withoutHeaders: {x-a: {}}", json!([{"name": "x-a", "presentMatch": true, "invertMatch": true}])),
        (
            "withoutHeaders: {x-a: {exact: b}}",
            json!([
                {"name": "x-a", "stringMatch": {"exact": "b"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true},
            ]),
        ),
        (
            "withoutHeaders: {b: {exact: c}}, headers: {z: {exact: y}, a: {exact: b}}, method: {exact: PUT}",
            json!([
                {"name": "a", "stringMatch": {"exact": "b"}},
                {"name": "b", "stringMatch": {"exact": "c"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true},
                {"name": "z", "stringMatch": {"exact": "y"}},
                {"name": ":method", "stringMatch": {"exact": "PUT"}},
            ]),
        ),
    ];
    for (condition, want) in cases {
        let route = route(&format!("  - match: [{{{condition}}}]\n    {TO_A}\n"));
        let got = if want.is_array() { &route["match"]["headers"] } else { &route["match"] };
        assert_eq!(got, &want, "{condition}");
    }
    let query = route(&format!("  - match: [{{queryParams: {{a: {{exact: b}}, c: {{}}}}}}]\n    {TO_A}\n"));
    let want = json!([{"name": "a", "stringMatch": {"exact": "b"}}, {"name": "c", "presentMatch": true}]);
    assert_eq!(query["match"]["queryParameters"], want);
}

#[test]
fn conditions_on_jwt_claims() {
    let http = format!("  - match: [{{headers: {{'@request.auth.claims.group': {{exact: admin}}}}}}]\n    {TO_A}\n");
    let route = &routes_with(&http, &Destinations::at(80), "", Some("gw"))[0];
    let one = json!({"stringMatch": {"exact": "admin"}});
    let want = json!([{
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{"key": "payload"}, {"key": "group"}],
        "value": {"orMatch": {"valueMatchers": [{"listMatch": {"oneOf": one}}, one]}},
    }]);
    assert_eq!(route["match"]["dynamicMetadata"], want);
}

#[test]
fn conditions_on_the_client_are_evaluated_in_advance() {
    let match_of = |condition: &str, gateway| {
        let http = format!("  - match: [{{uri: {{prefix: /x}}, {condition}}}]\n    {TO_A}\n");
        routes_with(&http, &Destinations::at(80), "", gateway).len()
    };
    let cases = [
        ("port: 80", None, 1),
        ("port: 81", None, 0),
        ("sourceLabels: {app: web}", None, 1),
        ("sourceLabels: {app: other}", None, 0),
        ("sourceNamespace: shop", None, 1),
        ("sourceNamespace: other", None, 0),
        ("gateways: [shop/gw]", None, 0),
        ("gateways: [shop/gw]", Some("gw"), 1),
        ("gateways: [mesh, shop/gw]", None, 1),
    ];
    for (condition, gateway, want) in cases {
        assert_eq!(match_of(condition, gateway), want, "{condition} {gateway:?}");
    }
}

#[test]
fn routes_after_a_catch_all_are_left_out() {
    let http = format!(
        "  - match: [{{uri: {{prefix: /a}}}}, {{uri: {{prefix: /}}}}, {{uri: {{prefix: /b}}}}]\n    {TO_A}\n  - {TO_A}\n"
    );
    let paths: Vec<Value> = routes(&http).iter().map(|route| at(route, "match.prefix").clone()).collect();
    assert_eq!(paths, [json!("/a"), json!("/")]);
}
