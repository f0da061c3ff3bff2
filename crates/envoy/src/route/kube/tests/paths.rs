//! Rewrites and redirects.

use super::*;

/// The path that Envoy makes of `path`, which the match with this prefix holds for.
fn applied(change: PathChange, prefix: &str, path: &str) -> String {
    let prefix = prefix.trim_end_matches('/');
    match change {
        PathChange::None => path.to_owned(),
        PathChange::Full(full) => full,
        PathChange::Prefix(new) => {
            let matched = if prefix.is_empty() { "/" } else { prefix };
            format!("{new}{}", path.strip_prefix(matched).unwrap())
        }
        PathChange::Regex { pattern, substitution } => {
            assert_eq!((pattern, &*substitution), (format!("^{prefix}(/?)(.*)"), r"/\2"));
            let rest = path.strip_prefix(prefix).unwrap();
            format!("/{}", rest.strip_prefix('/').unwrap_or(rest))
        }
    }
}

/// The table of the specification, and the prefix `/`, which it does not have.
#[test]
fn prefixes_are_replaced_as_specified() {
    for (path, prefix, new, want) in [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/foo/", "/foo", "/", "/"),
        ("/foo", "/foo", "/", "/"),
        ("/foo", "/", "/xyz", "/xyz/foo"),
        ("/foo", "/", "/xyz/", "/xyz/foo"),
        ("/", "/", "/xyz", "/xyz/"),
        ("/foo", "/", "", "/foo"),
        ("/foo", "/", "/", "/foo"),
        ("/foo/bar", "/foo", "xyz", "/xyz/bar"),
    ] {
        let modifier = HttpPathModifier {
            kind: PathModifierType::ReplacePrefixMatch,
            replace_full_path: None,
            replace_prefix_match: Some(new.into()),
        };
        let change = action::path_change(&modifier, Some(prefix.trim_end_matches('/'))).unwrap();
        assert_eq!(applied(change, prefix, path), want, "{path} with {prefix} replaced by {new:?}");
        assert_eq!(action::path_change(&modifier, None), None);
    }
}

#[test]
fn rewrites() {
    let of = |prefix: &str, rewrite: &str| {
        route(&format!("matches: [{{path: {{value: {prefix}}}}}], filters: [{{type: URLRewrite, urlRewrite: {{{rewrite}}}}}], {TO_A}"))
            ["route"]
            .clone()
    };
    let full = |path: &str| of("/a", &format!("path: {{type: ReplaceFullPath, replaceFullPath: '{path}'}}"));
    let part = |prefix: &str, path: &str| {
        of(prefix, &format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: '{path}'}}"))
    };
    let whole = |substitution: &str| json!({"pattern": {"regex": "/.*"}, "substitution": substitution});
    check(&full("/b"), &[("regexRewrite", whole("/b")), ("hostRewriteLiteral", Value::Null)]);
    check(&full(r"/b\1"), &[("regexRewrite", whole(r"/b\\1"))]);
    check(&full(""), &[("regexRewrite", whole("/"))]);
    check(&part("/a", "/b"), &[("prefixRewrite", json!("/b")), ("regexRewrite", Value::Null)]);
    let removed = json!({"pattern": {"regex": r"^/a\.b(/?)(.*)"}, "substitution": r"/\2"});
    check(&part("/a.b/", "/"), &[("regexRewrite", removed), ("prefixRewrite", Value::Null)]);
    check(&part("/", "/b"), &[("prefixRewrite", json!("/b/"))]);
    check(&of("/a", "hostname: b.example.com"), &[("hostRewriteLiteral", json!("b.example.com"))]);
}

/// The redirect of a rule at a listener.
fn redirect_at(redirect: &str, port: u16, secure: bool) -> Value {
    let rule = format!(
        "[{{matches: [{{path: {{value: /a}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]}}]"
    );
    matches_at(&rule, port, secure, "")[0].as_ref().unwrap()["redirect"].clone()
}

#[test]
fn redirects() {
    let of = |redirect: &str| redirect_at(redirect, 80, false);
    let found = |fields: Value| {
        let mut all = json!({"responseCode": "FOUND"});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all
    };
    assert_eq!(of("hostname: b.example.com"), found(json!({"hostRedirect": "b.example.com"})));
    assert_eq!(of("scheme: https, statusCode: 301"), json!({"schemeRedirect": "https"}));
    for (code, name) in [(303, "SEE_OTHER"), (307, "TEMPORARY_REDIRECT"), (308, "PERMANENT_REDIRECT")] {
        assert_eq!(of(&format!("statusCode: {code}"))["responseCode"], name);
    }
    let full = of("path: {type: ReplaceFullPath, replaceFullPath: /b}");
    assert_eq!(full, found(json!({"pathRedirect": "/b"})));
    let part = of("path: {type: ReplacePrefixMatch, replacePrefixMatch: /b/}");
    assert_eq!(part, found(json!({"prefixRewrite": "/b"})));
    let removed = of("path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}");
    let rewrite = json!({"pattern": {"regex": "^/a(/?)(.*)"}, "substitution": r"/\2"});
    assert_eq!(removed, found(json!({"regexRewrite": rewrite})));
}

/// A port is only written if it is not the default of the resulting scheme.
#[test]
fn ports_of_redirects() {
    for (redirect, port, secure, want) in [
        ("hostname: b", 80, false, json!(null)),
        ("hostname: b", 8080, false, json!(8080)),
        ("hostname: b", 443, true, json!(null)),
        ("hostname: b", 8443, true, json!(8443)),
        ("hostname: b", 443, false, json!(443)),
        ("hostname: b", 80, true, json!(80)),
        ("scheme: https", 8080, false, json!(null)),
        ("scheme: http", 443, true, json!(null)),
        ("port: 80", 8080, false, json!(null)),
        ("port: 80", 443, true, json!(80)),
        ("port: 443", 443, true, json!(null)),
        ("scheme: https, port: 443", 80, false, json!(null)),
        ("scheme: https, port: 8443", 80, false, json!(8443)),
        ("scheme: http, port: 443", 80, false, json!(443)),
    ] {
        assert_eq!(redirect_at(redirect, port, secure)["portRedirect"], want, "{redirect} at {port}");
    }
}
