//! AuthorizationPolicies that a real Envoy enforces: each action, source, operation and condition, allowed and denied.
#![allow(clippy::unwrap_used)]

use e2e::PATIENCE;
use e2e::guarded::{Ask, Guarded, mesh_config, policy};
use e2e::tls::Identity;
use test_harness::run::{Result, wait_for};

/// Identities of clients.
struct Clients {
    /// `test/client` of the mesh's trust domain.
    client: Identity,
    /// `test/client-2`, whose name begins with the other's.
    longer: Identity,
    /// `other/client`.
    other: Identity,
    /// `test/client` of the alias of the trust domain.
    alias: Identity,
    /// `test/aXb`, which an unescaped pattern `a.b` would match.
    dotted: Identity,
}

impl Clients {
    fn of(guarded: &Guarded) -> Result<Clients> {
        Ok(Clients {
            client: guarded.identity("spiffe://cluster.local/ns/test/sa/client")?,
            longer: guarded.identity("spiffe://cluster.local/ns/test/sa/client-2")?,
            other: guarded.identity("spiffe://cluster.local/ns/other/sa/client")?,
            alias: guarded.identity("spiffe://old.test/ns/test/sa/client")?,
            dotted: guarded.identity("spiffe://cluster.local/ns/test/sa/aXb")?,
        })
    }
}

/// A rule of a policy, a request that it matches, and one that it does not match.
struct Case<'a> {
    /// Sources and operations, each followed by a comma.
    rule: String,
    /// Further conditions, each preceded by a comma.
    when: String,
    matched: Ask<'a>,
    other: Ask<'a>,
}

fn source<'a>(source: &str, matched: Ask<'a>, other: Ask<'a>) -> Case<'a> {
    Case { rule: format!("from: [{{ source: {{ {source} }} }}],"), when: String::new(), matched, other }
}

fn operation<'a>(operation: &str, matched: Ask<'a>, other: Ask<'a>) -> Case<'a> {
    Case { rule: format!("to: [{{ operation: {{ {operation} }} }}],"), when: String::new(), matched, other }
}

fn when<'a>(condition: &str, matched: Ask<'a>, other: Ask<'a>) -> Case<'a> {
    Case { rule: String::new(), when: format!(", {{ {condition} }}"), matched, other }
}

/// Checks all cases as rules of an `ALLOW` policy and of a `DENY` policy. A header of the requests names the case, so that
/// only its rule counts.
async fn check(guarded: &Guarded, cases: &[Case<'_>]) -> Result<()> {
    let rules = cases.iter().enumerate().map(|(index, case)| {
        let named = format!("{{ key: 'request.headers[x-case]', values: ['{index}'] }}");
        format!("{{ {} when: [{named}{}] }}", case.rule, case.when)
    });
    let rules = rules.collect::<Vec<_>>().join(", ");
    for (action, permits) in [("ALLOW", true), ("DENY", false)] {
        guarded.protect(&action.to_lowercase(), &format!("action: {action}, rules: [{rules}]")).await?;
        for (index, case) in cases.iter().enumerate() {
            let number = index.to_string();
            for (ask, matches) in [(&case.matched, true), (&case.other, false)] {
                let headers = [ask.headers, &[("x-case", number.as_str())]].concat();
                let status = if matches == permits { 200 } else { 403 };
                let explained = |error| format!("{action} {}{}: {error}", case.rule, case.when);
                ask.clone().with(&headers).gets(guarded.address(), status).await.map_err(explained)?;
            }
        }
    }
    Ok(())
}

fn get(path: &str) -> Ask<'_> {
    Ask::new(path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_source_is_recognized() -> Result<()> {
    let config = mesh_config("trustDomain: cluster.local, trustDomainAliases: [old.test]");
    let guarded = Guarded::start(&[("mesh.yaml", &config)]).await?;
    let Clients { client, longer, other, alias, dotted } = &Clients::of(&guarded)?;
    let root = || get("GET /");
    let from = |address: &'static [(&'static str, &'static str)]| root().with(address);
    let near: &[(&str, &str)] = &[("x-forwarded-for", "10.1.2.3")];
    let far: &[(&str, &str)] = &[("x-forwarded-for", "192.0.2.1")];
    let cases = [
        source("principals: [cluster.local/ns/test/sa/client]", root().by(client), root().by(longer)),
        source("principals: [cluster.local/ns/test/sa/client]", root().by(client), root()),
        source("principals: [cluster.local/ns/test/sa/client]", root().by(alias), root().by(other)),
        source("principals: ['cluster.local/ns/test/*']", root().by(longer), root().by(other)),
        source("principals: ['*/sa/client-2']", root().by(longer), root().by(client)),
        source("principals: ['*']", root().by(other), root()),
        source("notPrincipals: [cluster.local/ns/test/sa/client]", root().by(other), root().by(client)),
        source("notPrincipals: ['*']", root(), root().by(client)),
        source("namespaces: [test]", root().by(client), root().by(other)),
        source("namespaces: ['te*', nobody]", root().by(client), root().by(other)),
        source("notNamespaces: [test]", root().by(other), root().by(client)),
        source("serviceAccounts: [client]", root().by(client), root().by(longer)),
        source("serviceAccounts: [other/client]", root().by(other), root().by(client)),
        source("notServiceAccounts: [client]", root().by(longer), root().by(client)),
        source("serviceAccounts: [aXb]", root().by(dotted), root().by(client)),
        source("trustDomains: [cluster.local]", root().by(alias), root()),
        source("trustDomains: ['old*']", root().by(alias), root().by(client)),
        source("notTrustDomains: ['old*']", root().by(client), root().by(alias)),
        source("remoteIpBlocks: [10.1.0.0/16]", from(near), from(far)),
        source("notRemoteIpBlocks: [10.1.2.3]", from(far), from(near)),
        source("ipBlocks: [127.0.0.0/8], notPrincipals: ['*']", from(far), root().by(client)),
        source("notIpBlocks: [10.0.0.0/8], principals: ['*']", root().by(client), root()),
    ];
    check(&guarded, &cases).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_is_recognized() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let host = |value: &'static [(&'static str, &'static str)]| get("GET /").with(value);
    let (ours, theirs): (&[_], &[_]) = (&[("host", "a.example.com")], &[("host", "b.example.org")]);
    let upper: &[_] = &[("host", "A.Example.COM:8080")];
    let (port, other) = (guarded.http.to_string(), guarded.tcp);
    let cases = [
        operation("hosts: [a.example.com]", host(ours), host(theirs)),
        operation("hosts: [a.example.com]", host(upper), host(theirs)),
        operation("hosts: ['*.example.com']", host(upper), host(theirs)),
        operation("hosts: ['a.*']", host(ours), host(theirs)),
        operation("notHosts: [a.example.com]", host(theirs), host(upper)),
        operation("methods: [GET]", get("GET /"), get("POST /")),
        operation("notMethods: [GET, 'PU*']", get("POST /"), get("PUT /")),
        operation("paths: [/a]", get("GET /a"), get("GET /a/b")),
        operation("paths: [/a]", get("GET /a?b=c"), get("GET /b?c=/a")),
        operation("paths: ['/a/*', '*.html']", get("GET /a/b"), get("GET /b/a/")),
        operation("paths: ['/a/*', '*.html']", get("GET /x.html"), get("GET /x.htm")),
        operation("paths: ['*'], methods: [GET]", get("GET /x"), get("POST /x")),
        operation("notPaths: ['/a/*']", get("GET /b"), get("GET /a/b")),
        operation("paths: ['/a/{*}/b']", get("GET /a/x/b"), get("GET /a/x/y/b")),
        operation("paths: ['/a/{*}/b']", get("GET /a/x/b?q=1"), get("GET /a/b")),
        operation("paths: ['/a/{*}/']", get("GET /a/x/"), get("GET /a/x")),
        operation("paths: ['/a/{**}']", get("GET /a/x/y"), get("GET /b/x")),
        operation("paths: ['/{**}/z']", get("GET /a/b/z"), get("GET /a/b")),
        operation("notPaths: ['/a/{*}']", get("GET /a/b/c"), get("GET /a/b")),
        operation(&format!("ports: ['{port}'], paths: [/p]"), get("GET /p"), get("GET /q")),
        operation(&format!("notPorts: ['{other}'], paths: [/p]"), get("GET /p"), get("GET /q")),
    ];
    check(&guarded, &cases).await?;
    // A rule for another port does not match here.
    guarded
        .protect("port", &format!("action: ALLOW, rules: [{{ to: [{{ operation: {{ ports: ['{other}'] }} }}] }}]"))
        .await?;
    get("GET /").gets(guarded.address(), 403).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_condition_is_recognized() -> Result<()> {
    let config = mesh_config("trustDomain: cluster.local, trustDomainAliases: [old.test]");
    let guarded = Guarded::start(&[("mesh.yaml", &config)]).await?;
    let Clients { client, longer, other, alias, .. } = &Clients::of(&guarded)?;
    let root = || get("GET /");
    let with = |headers: &'static [(&'static str, &'static str)]| root().with(headers);
    let (mine, others): (&[_], &[_]) = (&[("x-user", "ann")], &[("x-user", "bob")]);
    let (near, far): (&[_], &[_]) = (&[("x-forwarded-for", "10.1.2.3")], &[("x-forwarded-for", "192.0.2.1")]);
    let port = guarded.http;
    let sni = |sni: &'static str| Ask { sni, ..root().by(client) };
    let and = |condition: &str| format!("{condition} }}, {{ key: 'request.headers[x-user]', values: [ann]");
    let cases = [
        when("key: 'request.headers[X-User]', values: [ann]", with(mine), with(others)),
        when("key: 'request.headers[x-user]', values: ['*']", with(others), root()),
        when("key: 'request.headers[x-user]', notValues: ['b*']", with(mine), with(others)),
        when(&and("key: source.ip, values: [127.0.0.1]"), with(mine), with(others)),
        when(&and("key: source.ip, notValues: [10.0.0.0/8]"), with(mine), with(others)),
        when("key: remote.ip, values: [10.1.0.0/16]", with(near), with(far)),
        when("key: source.namespace, values: [test]", root().by(client), root().by(other)),
        when("key: source.namespace, notValues: [test]", root().by(other), root().by(client)),
        when("key: source.serviceAccount, values: [client]", root().by(client), root().by(longer)),
        when("key: source.trustDomain, values: ['old.*']", root().by(alias), root().by(client)),
        when("key: source.principal, values: ['*/client']", root().by(other), root().by(longer)),
        when("key: source.principal, notValues: ['*']", root(), root().by(client)),
        when(&and("key: destination.ip, values: [127.0.0.0/8]"), with(mine), with(others)),
        when(&and("key: destination.ip, notValues: [10.0.0.1]"), with(mine), with(others)),
        when(&and(&format!("key: destination.port, values: ['{port}']")), with(mine), with(others)),
        when("key: connection.sni, values: ['*.wanted.test']", sni("a.wanted.test"), sni("b.test")),
    ];
    check(&guarded, &cases).await?;
    // No filter before wrote such metadata, so that a condition that excludes a value holds.
    let metadata = "key: 'experimental.envoy.filters.http.rbac[shadow_engine_result]', notValues: [x]";
    guarded.protect("metadata", &format!("action: DENY, rules: [{{ when: [{{ {metadata} }}] }}]")).await?;
    root().gets(guarded.address(), 403).await?;
    // Tokens are not verified without a RequestAuthentication, so nobody has any of their attributes.
    for key in ["principal", "audiences", "presenter", "claims[a][b]"] {
        let rule = |list: &str| format!("{{ when: [{{ key: 'request.auth.{key}', {list}: ['*'] }}] }}");
        let name = format!("token-{}", key.len());
        guarded.protect(&name, &format!("action: ALLOW, rules: [{}]", rule("values"))).await?;
        root().gets(guarded.address(), 403).await?;
        guarded.protect(&format!("no-{name}"), &format!("action: ALLOW, rules: [{}]", rule("notValues"))).await?;
        root().gets(guarded.address(), 200).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_have_an_order() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let to = guarded.address();
    get("GET /").gets(to, 200).await?;
    let path = |path: &str| format!("rules: [{{ to: [{{ operation: {{ paths: ['{path}'] }} }}] }}]");
    // An ALLOW policy denies what it does not match, a DENY policy goes before it, an AUDIT policy never denies.
    let policies = [
        policy("allow", &format!("action: ALLOW, {}", path("/a*"))),
        policy("deny", &format!("action: DENY, {}", path("/ab*"))),
        policy("audit", &format!("action: AUDIT, {}", path("/aa"))),
        policy("more", &path("/c")),
    ];
    guarded.put(&policies.join("---\n"), "policy[more]").await?;
    for (line, status) in [("GET /a", 200), ("GET /aa", 200), ("GET /ab", 403), ("GET /b", 403), ("GET /c", 200)] {
        get(line).gets(to, status).await?;
    }
    guarded.put(&policies[2], "policy[audit]").await?;
    guarded.has("policy[deny]", false).await?;
    for line in ["GET /aa", "GET /ab", "GET /b"] {
        get(line).gets(to, 200).await?;
    }
    // Without a rule, an ALLOW policy denies everything; with an empty one, a DENY policy does.
    guarded.mesh.config.put("policy.yaml", &policy("none", ""))?;
    get("GET /a").gets(to, 403).await?;
    guarded.protect("open", "rules: [{}]").await?;
    get("GET /a").gets(to, 200).await?;
    guarded.protect("closed", "action: DENY, rules: [{}]").await?;
    get("GET /a").gets(to, 403).await?;
    // Policies of other workloads, and of other namespaces, do not matter; those of the root namespace do.
    let elsewhere = policy("elsewhere", "selector: { matchLabels: { app: other } }");
    let other = policy("other", "").replace("namespace: test", "namespace: other");
    guarded.mesh.config.put("policy.yaml", &format!("{elsewhere}---\n{other}"))?;
    get("GET /a").gets(to, 200).await?;
    let root =
        policy("root", "selector: { matchLabels: { app: web } }").replace("namespace: test", "namespace: istio-system");
    guarded.mesh.config.put("root.yaml", &root)?;
    get("GET /a").gets(to, 403).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_only_counts() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let to = guarded.address();
    let dry = |name: &str, action: &str, path: &str| {
        let spec = format!("action: {action}, rules: [{{ to: [{{ operation: {{ paths: [{path}] }} }}] }}]");
        policy(name, &spec).replace("namespace: test", "namespace: test, annotations: { istio.io/dry-run: 'true' }")
    };
    let both = format!("{}---\n{}", dry("dry-deny", "DENY", "/a"), dry("dry-allow", "ALLOW", "/b"));
    guarded.put(&both, "policy[dry-allow]").await?;
    let (deny, allow) = ("istio_dry_run_deny_.shadow", "istio_dry_run_allow_.shadow");
    let cases = [
        ("GET /a", format!("{deny}_denied")),
        ("GET /b", format!("{deny}_allowed")),
        ("GET /b", format!("{allow}_allowed")),
        ("GET /c", format!("{allow}_denied")),
    ];
    for (line, counted) in &cases {
        let count = async || guarded.sidecar.stat(&format!("rbac.*{counted}$")).await.ok();
        let before = count().await;
        let reached = || async {
            let answer = get(line).send(to).await.ok()?;
            (answer.status == 200 && count().await > before).then_some(())
        };
        wait_for(counted, PATIENCE, reached).await?;
    }
    // Beside a policy that counts, it still only counts.
    let denies = policy("deny", "action: DENY, rules: [{ to: [{ operation: { paths: [/c] } }] }]");
    guarded.put(&format!("{both}---\n{denies}"), "policy[deny]").await?;
    get("GET /c").gets(to, 403).await?;
    get("GET /a").gets(to, 200).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_other_protocols_are_checked() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let Clients { client, other, .. } = &Clients::of(&guarded)?;
    let (tcp, http) = ((std::net::Ipv4Addr::LOCALHOST, guarded.tcp).into(), guarded.address());
    let root = || get("GET /");
    root().gets(tcp, 200).await?;
    guarded.protect("by-name", "rules: [{ from: [{ source: { namespaces: [test] } }] }]").await?;
    root().by(other).gets(tcp, 0).await?;
    root().by(client).gets(tcp, 200).await?;
    root().gets(tcp, 0).await?;
    // An ALLOW rule with a condition on requests matches no connection, and a DENY rule ignores the condition.
    let ports = format!("ports: ['{}', '{}']", guarded.tcp, guarded.http);
    let rule = format!("rules: [{{ to: [{{ operation: {{ {ports}, paths: [/a] }} }}] }}]");
    guarded.protect("allow-path", &rule).await?;
    get("GET /a").gets(tcp, 0).await?;
    get("GET /a").gets(http, 200).await?;
    guarded.protect("deny-path", &format!("action: DENY, {rule}")).await?;
    get("GET /b").gets(http, 200).await?;
    get("GET /b").gets(tcp, 0).await?;
    let only_http = rule.replace(&format!("'{}', ", guarded.tcp), "");
    guarded.protect("deny-path-http", &format!("action: DENY, {only_http}")).await?;
    get("GET /b").gets(tcp, 200).await?;
    get("GET /a").gets(http, 403).await?;
    let stats = guarded.sidecar.stats("^tcp.rbac").await?;
    assert!(stats.get("tcp.rbac.denied").is_some_and(|denied| *denied >= 3), "{stats:?}");
    Ok(())
}
