//! Published vulnerabilities of istiod and Envoy that let requests pass an AuthorizationPolicy, each as a test.
#![allow(clippy::unwrap_used)]

use e2e::guarded::{Ask, Guarded, has, mesh_config, policy};
use test_harness::run::{Node, Protocol, Result, free_port};

/// A policy that denies a path.
fn denies(path: &str) -> String {
    format!("action: DENY, rules: [{{ to: [{{ operation: {{ paths: ['{path}'] }} }}] }}]")
}

/// CVE-2019-12243: a policy was silently not enforced. Here: a policy that exists before the proxy connects, one that
/// changes, one whose mesh has no other policy, and one for a port without a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2019_12243_policies_are_enforced_from_the_first_request_on() -> Result<()> {
    let guarded = Guarded::start(&[("policy.yaml", &policy("first", &denies("/a")))]).await?;
    let status = async |line: &str| {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Ask::new(line).send(guarded.address()).await?.status)
    };
    assert_eq!(status("GET /a").await?, 403);
    assert_eq!(status("GET /b").await?, 200);
    guarded.protect("second", &denies("/b")).await?;
    Ask::new("GET /b").gets(guarded.address(), 403).await?;
    Ask::new("GET /a").gets(guarded.address(), 200).await?;
    Ok(())
}

/// CVE-2020-8595 and CVE-2021-39156: a query or a fragment made the path another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2020_8595_and_cve_2021_39156_query_and_fragment_are_no_part_of_the_path() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    guarded.protect("exact", &denies("/admin")).await?;
    Ask::new("GET /admin").gets(guarded.address(), 403).await?;
    for line in ["GET /admin?", "GET /admin?a=b", "GET /admin?#", "GET /admin#", "GET /admin#a", "GET /admin#?a"] {
        let answer = Ask::new(line).send(guarded.address()).await?;
        assert!(matches!(answer.status, 400 | 403), "{line}: {answer:?}");
    }
    // The same for a suffix, and for what is allowed only.
    guarded.protect("suffix", &denies("*/admin")).await?;
    Ask::new("GET /x/admin?a=b").gets(guarded.address(), 403).await?;
    guarded.protect("allow", "rules: [{ to: [{ operation: { paths: ['*/public'] } }] }]").await?;
    Ask::new("GET /x/public?a").gets(guarded.address(), 200).await?;
    for line in ["GET /admin?/public", "GET /admin#/public", "GET /admin?a=/x/public"] {
        let answer = Ask::new(line).send(guarded.address()).await?;
        assert!(matches!(answer.status, 400 | 403), "{line}: {answer:?}");
    }
    Ok(())
}

/// CVE-2021-31920: several and escaped slashes, as far as `pathNormalization` is set to make them equal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2021_31920_slashes_are_normalized_before_the_path_is_compared() -> Result<()> {
    let guarded = Guarded::start(&[("policy.yaml", &policy("admin", &denies("/a/admin")))]).await?;
    let cases: [(&str, &[&str], &[&str]); 4] = [
        ("NONE", &["GET /a/admin"], &["GET //a/admin", "GET /a/./admin", "GET /a%2Fadmin"]),
        ("BASE", &["GET /a/./admin", "GET /a/b/../admin"], &["GET //a/admin", "GET /a%2Fadmin"]),
        ("MERGE_SLASHES", &["GET //a/admin", "GET /a////admin"], &["GET /a%2Fadmin"]),
        ("DECODE_AND_MERGE_SLASHES", &["GET //a/admin", "GET /a%2Fadmin", "GET /a%2f%2fadmin", "GET /a%5cadmin"], &[]),
    ];
    for (normalization, denied, others) in cases {
        let mesh = mesh_config(&format!("pathNormalization: {{ normalization: {normalization} }}"));
        guarded.mesh.config.put("mesh.yaml", &mesh)?;
        for line in denied {
            Ask::new(line).gets(guarded.address(), 403).await?;
        }
        for line in others {
            Ask::new(line).gets(guarded.address(), 200).await?;
        }
    }
    Ok(())
}

/// CVE-2021-39155: a host in another case was another host. Here also a port and the dot at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2021_39155_hosts_have_no_case() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let rule = "rules: [{ to: [{ operation: { hosts: [secret.example.com, '*.internal'] } }] }]";
    guarded.protect("deny", &format!("action: DENY, {rule}")).await?;
    let host =
        async |host: &str, status| Ask::new("GET /").with(&[("host", host)]).gets(guarded.address(), status).await;
    host("secret.example.com", 403).await?;
    for name in [
        "Secret.Example.COM",
        "secret.example.com:80",
        "SECRET.example.com:8443",
        "secret.example.com.",
        "Secret.example.com.:80",
        "a.internal",
        "A.Internal",
        "a.INTERNAL:80",
        "a.internal.",
    ] {
        host(name, 403).await?;
    }
    for name in ["public.example.com", "secret.example.com.evil", "internal.example"] {
        host(name, 200).await?;
    }
    Ok(())
}

/// A rule for a host allows each port, but not a longer name that begins like it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_something_after_the_port_is_another_one() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let host =
        async |host: &str, status| Ask::new("GET /").with(&[("host", host)]).gets(guarded.address(), status).await;
    guarded.protect("only", "rules: [{ to: [{ operation: { hosts: [a.test, '*.b.test', '[::1]'] } }] }]").await?;
    for name in ["a.test", "A.test:80", "a.test.:8443", "c.b.test:80", "[::1]:80"] {
        host(name, 200).await?;
    }
    for name in
        ["a.test:80@evil.test", "a.test:@evil.test:80", "c.b.test:80.evil.test", "evil:c.b.test:80", "[::1]:80@evil"]
    {
        host(name, 403).await?;
    }
    // A policy that denies it stays on the safe side.
    guarded.protect("not", "action: DENY, rules: [{ to: [{ operation: { hosts: [a.test] } }] }]").await?;
    host("b.test", 200).await?;
    host("a.test:80@evil.test", 403).await?;
    Ok(())
}

/// CVE-2026-39350: names of service accounts were regular expressions, so that `a.b` matched `aXb`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2026_39350_names_are_no_patterns() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let identity = |namespace: &str, account: &str| {
        guarded.identity(&format!("spiffe://cluster.local/ns/{namespace}/sa/{account}"))
    };
    let (right, wrong) = (identity("a.b", "x.y")?, identity("aXb", "xZy")?);
    let sources =
        ["serviceAccounts: [a.b/x.y]", "namespaces: [a.b]", "principals: ['*/sa/x.y']", "principals: ['*x.y']"];
    for (index, source) in sources.into_iter().enumerate() {
        let rule = format!("rules: [{{ from: [{{ source: {{ {source} }} }}] }}]");
        guarded.protect(&format!("allow-{index}"), &rule).await?;
        Ask::new("GET /").by(&wrong).gets(guarded.address(), 403).await?;
        Ask::new("GET /").by(&right).gets(guarded.address(), 200).await?;
        guarded.protect(&format!("deny-{index}"), &format!("action: DENY, {rule}")).await?;
        Ask::new("GET /").by(&right).gets(guarded.address(), 403).await?;
        Ask::new("GET /").by(&wrong).gets(guarded.address(), 200).await?;
    }
    Ok(())
}

/// A policy for a gateway: by labels, by host in any case, and by the address of the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_enforce_policies() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let port = free_port();
    let objects = format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{ name: front, namespace: test }}\n\
         spec: {{ selector: {{ app: front }}, servers: [{{ port: {{ number: {port}, name: http, protocol: HTTP }}, \
         hosts: ['*'] }}] }}\n---\n{}---\n{}",
        e2e::objects::static_entry("app", "app.test", (80, "HTTP"), guarded.backend.address()),
        e2e::objects::networking(
            "VirtualService",
            "app",
            "hosts: ['*'], gateways: [front], http: [{ route: [{ destination: { host: app.test, port: { number: 80 } } }] }]"
        ),
    );
    guarded.mesh.config.put("gateway.yaml", &objects)?;
    let node = Node::gateway("front", "test", "127.0.0.3", &[("app", "front")]);
    let gateway = guarded.mesh.envoy(&node, Protocol::Delta).await?;
    gateway.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
    let to = ([127, 0, 0, 1], port).into();
    let ask = |host: &'static [(&'static str, &'static str)]| Ask::new("GET /").with(host);
    ask(&[("host", "a.test")]).gets(to, 200).await?;
    let selector = "selector: { matchLabels: { app: front } }";
    let rule = format!("{selector}, action: DENY, rules: [{{ to: [{{ operation: {{ hosts: [a.test] }} }}] }}]");
    guarded.mesh.config.put("policy.yaml", &policy("front", &rule))?;
    has(&gateway, "policy[front]", true).await?;
    ask(&[("host", "A.TEST:80")]).gets(to, 403).await?;
    ask(&[("host", "b.test")]).gets(to, 200).await?;
    // The sidecar of the namespace is not selected.
    ask(&[("host", "a.test")]).gets(guarded.address(), 200).await?;
    // A gateway does not believe what clients write about their address.
    let blocks = format!("{selector}, rules: [{{ from: [{{ source: {{ remoteIpBlocks: [10.0.0.0/8] }} }}] }}]");
    guarded.mesh.config.put("policy.yaml", &policy("blocks", &blocks))?;
    has(&gateway, "policy[blocks]", true).await?;
    ask(&[("host", "a.test"), ("x-forwarded-for", "10.0.0.1")]).gets(to, 403).await?;
    guarded.mesh.config.put("policy.yaml", &policy("local", &blocks.replace("10.0.0.0/8", "127.0.0.0/8")))?;
    ask(&[("host", "a.test")]).gets(to, 200).await?;
    Ok(())
}
