//! Translations of policies.

use std::sync::Arc;

use config::{AnyObject, ParseOptions, parse_documents};
use model::authorization::{All, Condition, Permission, Principal, Text};

use super::*;

fn translated(action: &str, rule: &str) -> Translation {
    let text = format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: p, namespace: shop}}, \
         spec: {{action: {action}, rules: [{rule}]}}}}"
    );
    let options = ParseOptions { degrade: true, ..ParseOptions::default() };
    let parsed = parse_documents(text.as_bytes(), "test", &options);
    let Some(AnyObject::AuthorizationPolicy(object)) = parsed.objects.into_iter().next() else {
        panic!("{text}: {:?}", parsed.diagnostics);
    };
    let id = ObjectId { namespace: "shop".into(), name: "p".into() };
    translation(&id, &object, &["new.domain".into(), "old.domain".into()])
}

fn only(rules: &Rules) -> &Rule {
    assert_eq!(rules.len(), 1);
    rules.values().next().unwrap_or_else(|| unreachable!())
}

fn principals(source: &str) -> All<Principal> {
    let translation = translated("ALLOW", &format!("{{from: [{{source: {source}}}]}}"));
    only(&translation.http).principals[0].clone()
}

fn identities(source: &str) -> Vec<Vec<Text>> {
    let [Condition { negated: false, any }] = &principals(source)[..] else { panic!("{source}") };
    let identity = |principal: &Principal| match principal {
        Principal::Identity(texts) => texts.clone(),
        other => panic!("{other:?}"),
    };
    any.iter().map(identity).collect()
}

fn exact(text: &str) -> Text {
    Text::Exact(text.into())
}

fn prefix(text: &str) -> Text {
    Text::Prefix(text.into())
}

fn suffix(text: &str) -> Text {
    Text::Suffix(text.into())
}

fn contains(text: &str) -> Text {
    Text::Contains(text.into())
}

fn segments(parts: &[&str]) -> Text {
    Text::Segments(parts.iter().map(|part| Arc::from(*part)).collect())
}

#[test]
fn identities_are_texts_and_no_patterns() {
    let accounts = identities("{serviceAccounts: [a.b, other/c]}");
    let account = |text: &str| [vec![suffix(text)], vec![contains(&format!("{text}/"))]];
    assert_eq!(accounts, [account("/ns/shop/sa/a.b"), account("/ns/other/sa/c")].concat());
    let namespaces = identities("{namespaces: [a.b, 'x*', '*y', '*', 'ab*ba']}");
    let expected = [
        vec![contains("/ns/a.b/")],
        vec![contains("/ns/x")],
        vec![contains("/ns/"), contains("y/sa/")],
        vec![contains("/ns/")],
        vec![segments(&["spiffe://", "/ns/ab", "ba/sa/"])],
    ];
    assert_eq!(namespaces, expected);
}

#[test]
fn trust_domains_of_the_mesh_are_the_same() {
    let of = |text: &str| identities(&format!("{{principals: ['{text}']}}"));
    let both = [vec![exact("spiffe://new.domain/ns/a/sa/b")], vec![exact("spiffe://old.domain/ns/a/sa/b")]];
    assert_eq!(of("old.domain/ns/a/sa/b"), both);
    assert_eq!(of("cluster.local/ns/a/sa/b"), both);
    assert_eq!(of("spiffe://new.domain/ns/a/sa/b"), both);
    assert_eq!(of("other/ns/a/sa/b"), [[exact("spiffe://other/ns/a/sa/b")]]);
    assert_eq!(of("*/ns/a/sa/b"), [[prefix("spiffe://"), suffix("/ns/a/sa/b")]]);
    assert_eq!(of("old.domain/ns/a/*"), [[prefix("spiffe://old.domain/ns/a/")]], "no complete identity");
    let all = of("*.domain/ns/a/sa/b");
    assert_eq!(all, [[prefix("spiffe://"), suffix(".domain/ns/a/sa/b")]], "it covers both");
    assert_eq!(of("*"), [[Text::Present]]);
    let domains = identities("{trustDomains: [old.domain, 'x*', '*.y']}");
    let expected = [
        [prefix("spiffe://new.domain/")],
        [prefix("spiffe://old.domain/")],
        [prefix("spiffe://x")],
        [segments(&["spiffe://", ".y/"])],
    ];
    assert_eq!(domains, expected, "a path that contains `.y/` does not count");
}

#[test]
fn hosts_match_with_any_port() {
    let hosts = |action: &str, field: &str, text: &str| {
        let translation = translated(action, &format!("{{to: [{{operation: {{{field}: ['{text}']}}}}]}}"));
        let [Condition { any, negated }] = &only(&translation.http).permissions[0][..] else { panic!("{text}") };
        assert_eq!(*negated, field == "notHosts");
        any.clone()
    };
    let host = Permission::Host;
    let with_port = Permission::HostWithPort;
    let named = [host(exact("a.com")), host(exact("a.com."))];
    let below = [host(suffix(".a.com")), host(suffix(".a.com."))];
    // `a.com:x` is allowed with neither of them, and denied with both.
    for (action, field) in [("ALLOW", "hosts"), ("DENY", "notHosts")] {
        let ports = [with_port(exact("a.com")), with_port(exact("a.com."))];
        assert_eq!(hosts(action, field, "a.com"), [named.clone(), ports].concat());
        let ports = [with_port(suffix(".a.com")), with_port(suffix(".a.com."))];
        assert_eq!(hosts(action, field, "*.a.com"), [below.clone(), ports].concat());
    }
    for (action, field) in [("DENY", "hosts"), ("ALLOW", "notHosts")] {
        let ports = [host(prefix("a.com:")), host(prefix("a.com.:"))];
        assert_eq!(hosts(action, field, "a.com"), [named.clone(), ports].concat());
        let ports = [host(contains(".a.com:")), host(contains(".a.com.:"))];
        assert_eq!(hosts(action, field, "*.a.com"), [below.clone(), ports].concat());
    }
    assert_eq!(hosts("ALLOW", "hosts", "a.com:80"), [host(exact("a.com:80"))]);
    assert_eq!(hosts("ALLOW", "hosts", "a.*"), [host(prefix("a."))]);
    assert_eq!(hosts("ALLOW", "hosts", "*"), [host(Text::Present)]);
}

#[test]
fn path_templates() {
    let of = |text: &str| path(text);
    let template = |text: &str| Some(Permission::PathTemplate(text.into()));
    assert_eq!(of("/a/{*}/b/{**}"), template("/a/*/b/**"));
    assert_eq!(of("/{**}/b"), template("/**/b"));
    assert_eq!(of("/a/{*}/"), template("/a/*/"));
    for bad in ["a/{*}", "/{**}/{*}", "/a b/{*}", "//{*}", "/{*}//", "/x{*}"] {
        assert_eq!(of(bad), None, "{bad}");
    }
    assert_eq!(of(&format!("/{{*}}/{}", "a".repeat(256))), None, "Envoy accepts 256 bytes");
    assert_eq!(of("/a*"), Some(Permission::Path(prefix("/a"))));
}

fn path(text: &str) -> Option<Permission> {
    let translator = |allows| Translator { traffic: Traffic::Http, allows, namespace: "shop", domains: &[] };
    let operation = config::istio::authorization_policy::Operation { paths: vec![text.into()], ..Default::default() };
    let to = config::istio::authorization_policy::To { operation: Some(operation) };
    let rule = config::istio::authorization_policy::Rule { to: vec![to], ..Default::default() };
    let denied = translator(false).rule(&rule).map(|rule| rule.permissions[0].is_empty());
    let allowed = translator(true).rule(&rule);
    assert_eq!(denied, Some(allowed.is_none()), "a path that cannot be evaluated is no condition of DENY");
    Some(allowed?.permissions.remove(0).remove(0).any.remove(0))
}

#[test]
fn tokens_have_an_issuer_and_a_subject() {
    let of = |text: &str| {
        let [Condition { any, .. }] = &principals(&format!("{{requestPrincipals: ['{text}']}}"))[..] else {
            panic!("{text}")
        };
        any.clone()
    };
    let token = |issuer, subject| Principal::Token(issuer, subject);
    assert_eq!(of("https://a/b/c"), [token(exact("https://a/b"), exact("c"))]);
    assert_eq!(of("*"), [token(Text::Present, Text::Present)]);
    assert_eq!(of("https://a/*"), [token(exact("https://a"), Text::Present)], "not those of the issuer https://a/b");
    assert_eq!(of("https://a/b*"), [token(exact("https://a"), prefix("b"))]);
    assert_eq!(of("*/b"), [token(Text::Present, exact("b"))]);
    assert_eq!(of("*.a/b"), [token(suffix(".a"), exact("b"))]);
    assert_eq!(
        (of("a*"), of("*b")),
        (vec![token(prefix("a"), Text::Present)], vec![token(Text::Present, suffix("b"))])
    );
}

#[test]
fn connections_have_no_requests() {
    let rule = "{from: [{source: {principals: [a]}}], to: [{operation: {ports: ['80'], methods: [GET]}}]}";
    let allowed = translated("ALLOW", rule);
    assert!(allowed.tcp.is_empty());
    assert_eq!((allowed.http.len(), &allowed.differs[..]), (1, &[0][..]));
    let denied = translated("DENY", rule);
    let [Condition { any, .. }] = &only(&denied.tcp).permissions[0][..] else { panic!("{denied:?}") };
    assert_eq!(any[..], [Permission::Port(80)]);
    assert_eq!(denied.differs, [0]);
    let plain = translated("ALLOW", "{from: [{source: {principals: [a]}}], to: [{operation: {ports: ['80']}}]}");
    assert_eq!(plain.http, plain.tcp);
    assert!(plain.differs.is_empty());
}

#[test]
fn attributes() {
    let keys = [
        ("request.headers[X-A]", "a*", true),
        ("source.ip", "10.0.0.0/8", true),
        ("remote.ip", "::1", true),
        ("source.namespace", "a", true),
        ("source.serviceAccount", "a", true),
        ("source.trustDomain", "a", true),
        ("source.principal", "a", true),
        ("request.auth.principal", "a/b", true),
        ("request.auth.audiences", "a", true),
        ("request.auth.presenter", "a", true),
        ("request.auth.claims[a][b]", "a", true),
        ("destination.ip", "10.0.0.1", false),
        ("destination.port", "80", false),
        ("connection.sni", "a", false),
        ("experimental.envoy.filters.network.mysql_proxy[db]", "[a]", false),
    ];
    for (key, value, principal) in keys {
        let rule = format!("{{when: [{{key: '{key}', values: ['{value}'], notValues: ['{value}']}}]}}");
        let found = translated("ALLOW", &rule);
        let rule = only(&found.http);
        let counts = (rule.principals[0].len(), rule.permissions[0].len());
        assert_eq!(counts, if principal { (2, 0) } else { (0, 2) }, "{key}");
    }
    let unknown = "{when: [{key: destination.name, values: [a]}]}";
    assert!(translated("ALLOW", unknown).http.is_empty());
    assert!(only(&translated("DENY", unknown).http).permissions[0].is_empty(), "it denies more, not less");
}
