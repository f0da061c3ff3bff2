//! RequestAuthentications at real Envoys: which tokens are accepted, where they may be, where their claims go, and what happens
//! when keys cannot be had.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use e2e::issuer::{KeyServer, SigningKey, key_set, now};
use e2e::objects::{networking, static_entry, to};
use e2e::{Mesh, PATIENCE, both_protocols, done, rutter_binary};
use serde_json::{Value, json};
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, free_port, http, wait_for};

/// Flags with which the control plane may fetch keys from this machine, and does so often.
const FLAGS: [&str; 4] = ["--jwks-allowed", "127.0.0.0/8", "--jwks-refresh-interval", "1s"];
const ISSUER: &str = "https://issuer.example";

/// A RequestAuthentication with these rules (YAML in flow style) for workloads with this label.
fn authentication(app: &str, rules: &str) -> String {
    networking(
        "RequestAuthentication",
        app,
        &format!("selector: {{ matchLabels: {{ app: {app} }} }}, jwtRules: {rules}"),
    )
    .replace("networking.istio.io", "security.istio.io")
}

/// A workload with a sidecar whose inbound listener is called directly.
struct Workload {
    mesh: Mesh,
    #[allow(dead_code)]
    application: Backend,
    envoy: Envoy,
    address: SocketAddr,
}

impl Workload {
    async fn start(protocol: Protocol, rules: &str, flags: &[&str]) -> Result<Workload> {
        let application = Backend::start("v1", "web").await?;
        let port = free_port();
        let sidecar = networking(
            "Sidecar",
            "web",
            &format!(
                "workloadSelector: {{ labels: {{ app: web }} }}, egress: [{{ hosts: [nowhere/*] }}], \
                 ingress: [{{ port: {{ number: {port}, name: main, protocol: HTTP }}, bind: 127.0.0.1, \
                 captureMode: NONE, defaultEndpoint: '{}' }}]",
                application.address()
            ),
        );
        let files = [("sidecar.yaml", sidecar.as_str()), ("tokens.yaml", &authentication("web", rules))];
        let mesh = Mesh::start_with(&files, flags).await?;
        let node = Node::sidecar("web", "test", "127.0.0.1", &[("app", "web")]);
        let envoy = mesh.envoy(&node, protocol).await?;
        let address = ([127, 0, 0, 1], port).into();
        envoy.wait_for_listener(address).await?;
        Ok(Workload { mesh, application, envoy, address })
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Response> {
        let headers: Vec<_> = headers.iter().copied().chain([("host", "web.test")]).collect();
        http::get(self.address, path, &headers).await
    }

    /// The status of a request with a token in its usual place.
    async fn status(&self, token: &str) -> Result<u16> {
        let bearer = format!("Bearer {token}");
        Ok(self.get("/", &[("authorization", &bearer)]).await?.status.as_u16())
    }

    /// Waits until a request with this token has this status.
    async fn becomes(&self, token: &str, status: u16) -> Result<()> {
        let reached = || async { (self.status(token).await.ok()? == status).then_some(()) };
        let result = wait_for(&format!("status {status}"), PATIENCE, reached).await;
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; Envoy: {}", self.envoy.log()?).into()),
        }
    }
}

fn claims(more: &Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "sub": "alice", "aud": ["web"]});
    for (name, value) in more.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    claims
}

both_protocols! {
    async fn tokens_are_verified(protocol) {
        let key = SigningKey::new("one")?;
        let server = KeyServer::start(0, &[&key]).await?;
        let rule = format!("[{{ issuer: '{ISSUER}', audiences: [web, shop], jwksUri: '{}' }}]", server.uri());
        let web = Workload::start(protocol, &rule, &FLAGS).await?;
        let good = key.sign(&claims(&json!({})))?;
        // The start waited for the keys.
        assert_eq!(web.status(&good).await?, 200);
        assert_eq!(web.get("/", &[]).await?.status.as_u16(), 200, "no token");
        assert_eq!(web.get(&format!("/?access_token={good}"), &[]).await?.status.as_u16(), 200);
        assert_eq!(web.get("/?access_token=nonsense", &[]).await?.status.as_u16(), 401);
        let other_key = SigningKey::new("one")?;
        let past = now()? - 3600;
        let cases = [
            ("expired", key.sign(&claims(&json!({"exp": past})))?, 401),
            ("not yet valid", key.sign(&claims(&json!({"nbf": past + 7200})))?, 401),
            ("another issuer", key.sign(&claims(&json!({"iss": "https://other.example"})))?, 401),
            ("another audience", key.sign(&claims(&json!({"aud": "other"})))?, 403),
            ("no audience", key.sign(&json!({"iss": ISSUER}))?, 403),
            ("another key with the same id", other_key.sign(&claims(&json!({})))?, 401),
            ("no token at all", "nonsense".to_owned(), 401),
            ("no signature", good.rsplit_once('.').unwrap().0.to_owned() + ".", 401),
        ];
        for (what, token, status) in cases {
            assert_eq!(web.status(&token).await?, status, "{what}");
        }
        // An algorithm of "none" is no way around the signature.
        let parts: Vec<&str> = good.split('.').collect();
        let none = format!("eyJhbGciOiJub25lIn0.{}.", parts[1]);
        assert_eq!(web.status(&none).await?, 401);
    }

    async fn tokens_have_places_and_claims_become_headers(protocol) {
        let key = SigningKey::new("one")?;
        let rule = format!(
            "[{{ issuer: '{ISSUER}', jwks: '{}', fromHeaders: [{{ name: x-token, prefix: 'Token ' }}], fromParams: [token], \
             fromCookies: [session], outputPayloadToHeader: x-payload, \
             outputClaimToHeaders: [{{ header: x-sub, claim: sub }}, {{ header: x-team, claim: org.team }}] }}]",
            key_set(&[&key])
        );
        let web = Workload::start(protocol, &rule, &[]).await?;
        let token = key.sign(&claims(&json!({"org": {"team": "blue"}})))?;
        let (header, cookie) = (format!("Token {token}"), format!("a=b; session={token}"));
        let places: [(&str, Vec<(&str, &str)>); 3] = [
            ("/", vec![("x-token", &header)]),
            (&format!("/?token={token}"), vec![]),
            ("/", vec![("cookie", &cookie)]),
        ];
        for (path, headers) in &places {
            let headers: Vec<_> = headers.iter().copied().chain([("x-sub", "mallory")]).collect();
            let answer = web.get(path, &headers).await?;
            assert_eq!(answer.status.as_u16(), 200, "{path}: {}", answer.text());
            let seen = answer.json()?["headers"].clone();
            assert_eq!(seen["x-sub"], "alice", "the header of the client is replaced: {seen}");
            assert_eq!(seen["x-team"], "blue");
            assert!(seen["x-payload"].as_str().is_some_and(|payload| payload.len() > 10), "{seen}");
            assert_eq!(seen["x-token"], Value::Null, "the token is not forwarded: {seen}");
        }
            // A client cannot send the header of a claim itself.
        let seen = web.get("/", &[("x-sub", "mallory")]).await?.json()?["headers"].clone();
        assert_eq!(seen["x-sub"], Value::Null, "{seen}");
        // The usual places are not read any more.
        assert_eq!(web.status("nonsense").await?, 200);
        let forged = format!("Token {}", SigningKey::new("one")?.sign(&claims(&json!({})))?);
        assert_eq!(web.get("/", &[("x-token", &forged)]).await?.status.as_u16(), 401);
    }

    async fn cve_2026_31837_tokens_are_rejected_while_there_are_no_keys(protocol) {
        let key = SigningKey::new("one")?;
        let port = free_port();
        let rule = format!("[{{ issuer: '{ISSUER}', jwksUri: 'http://127.0.0.1:{port}/keys' }}]");
        let web = Workload::start(protocol, &rule, &FLAGS).await?;
        let good = key.sign(&claims(&json!({})))?;
        assert_eq!(web.status(&good).await?, 401);
        assert_eq!(web.get("/", &[]).await?.status.as_u16(), 200, "no token");
        // The configuration contains no private key with which a token could be signed.
        let dump = web.mesh.control.debug("/debug/config_dump?proxyID=web.test").await?.text();
        assert!(dump.contains("origins-0") && !dump.contains("\\\"d\\\""), "{dump}");
        let server = KeyServer::start(port, &[&key]).await?;
        web.becomes(&good, 200).await?;
        // Later failures keep the keys.
        server.fail(true);
        let asked = server.requests();
        wait_for("more fetches", PATIENCE, || async { (server.requests() > asked + 1).then_some(()) }).await?;
        assert_eq!(web.status(&good).await?, 200);
        // Keys are rotated: first both, then the new one only.
        let new = SigningKey::new("two")?;
        let newer = new.sign(&claims(&json!({})))?;
        assert_eq!(web.status(&newer).await?, 401);
        server.set(&[&key, &new]);
        server.fail(false);
        web.becomes(&newer, 200).await?;
        assert_eq!(web.status(&good).await?, 200);
        server.set(&[&new]);
        web.becomes(&good, 401).await?;
        assert_eq!(web.status(&newer).await?, 200);
    }
}

async fn authorized() -> Result<()> {
    let key = SigningKey::new("one")?;
    let rule = format!("[{{ issuer: '{ISSUER}', jwks: '{}' }}]", key_set(&[&key]));
    let web = Workload::start(Protocol::Delta, &rule, &[]).await?;
    let to = |path: &str| format!("to: [{{ operation: {{ paths: [{path}] }} }}]");
    let when = |path: &str, key: &str, value: &str| {
        format!("{{ {}, when: [{{ key: '{key}', values: ['{value}'] }}] }}", to(path))
    };
    let rules = [
        format!("{{ from: [{{ source: {{ requestPrincipals: ['{ISSUER}/alice'] }} }}], {} }}", to("/alice")),
        when("/admin", "request.auth.claims[groups]", "admins"),
        when("/team", "request.auth.claims[org][team]", "blue"),
        when("/audience", "request.auth.audiences", "web"),
        when("/scope", "request.auth.claims[scope]", "write"),
    ];
    let spec = format!("selector: {{ matchLabels: {{ app: web }} }}, action: ALLOW, rules: [{}]", rules.join(", "));
    let policy = networking("AuthorizationPolicy", "web", &spec).replace("networking.istio.io", "security.istio.io");
    web.mesh.config.put("policy.yaml", &policy)?;
    let denied = || async { (web.get("/", &[]).await.ok()?.status.as_u16() == 403).then_some(()) };
    wait_for("the policy", PATIENCE, denied).await?;
    let status = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        Ok::<_, test_harness::run::Error>(web.get(path, &[("authorization", &bearer)]).await?.status.as_u16())
    };
    let alice = key.sign(&claims(&json!({"scope": "read write"})))?;
    let bob =
        key.sign(&claims(&json!({"sub": "bob", "aud": "other", "groups": ["admins"], "org": {"team": "blue"}})))?;
    let forged = SigningKey::new("one")?.sign(&claims(&json!({"groups": ["admins"]})))?;
    for (path, of_alice, of_bob) in
        [("/alice", 200, 403), ("/admin", 403, 200), ("/team", 403, 200), ("/audience", 200, 403), ("/scope", 200, 403)]
    {
        assert_eq!(status(path, &alice).await?, of_alice, "{path}");
        assert_eq!(status(path, &bob).await?, of_bob, "{path}");
        assert_eq!(status(path, &forged).await?, 401, "{path}");
        assert_eq!(web.get(path, &[]).await?.status.as_u16(), 403, "{path} without a token");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_use_what_tokens_prove() {
    authorized().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn internal_addresses() -> Result<()> {
    let key = SigningKey::new("one")?;
    let server = KeyServer::start(0, &[&key]).await?;
    let (uri, port) = (server.uri(), server.uri().split(':').nth(2).unwrap().to_owned());
    let localhost = format!("http://localhost:{port}");
    let rules =
        format!("[{{ issuer: '{ISSUER}', jwksUri: '{uri}' }}, {{ issuer: 'http://x', jwksUri: '{localhost}' }}]");
    let web = Workload::start(Protocol::Delta, &rules, &["--jwks-refresh-interval", "1s"]).await?;
    let failures = || async {
        let page = web.mesh.control.debug("/metrics").await.ok()?.text();
        let line = page.lines().find(|line| line.starts_with("pilot_jwks_resolver_network_fetch_fail_total"))?;
        let count: f64 = line.rsplit(' ').next()?.parse().ok()?;
        (count >= 4.0).then_some(())
    };
    wait_for("refused fetches", PATIENCE, failures).await?;
    assert_eq!(server.requests(), 0);
    assert_eq!(web.status(&key.sign(&claims(&json!({})))?).await?, 401);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ghsa_fgw5_hp8f_xfhc_keys_are_not_fetched_from_internal_addresses() {
    internal_addresses().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn several_rules() -> Result<()> {
    let (first, second) = (SigningKey::new("one")?, SigningKey::new("two")?);
    let server = KeyServer::start(0, &[&second]).await?;
    let rules = format!(
        "[{{ issuer: '{ISSUER}', jwks: '{}' }}, {{ issuer: '{}' }}]",
        key_set(&[&first]),
        // Its keys are found by discovery.
        server.issuer()
    );
    let web = Workload::start(Protocol::Delta, &rules, &FLAGS).await?;
    let by_first = first.sign(&claims(&json!({})))?;
    let by_second = second.sign(&claims(&json!({"iss": server.issuer()})))?;
    assert_eq!(web.status(&by_first).await?, 200);
    assert_eq!(web.status(&by_second).await?, 200);
    assert_eq!(web.get("/", &[]).await?.status.as_u16(), 200);
    // The key of one issuer signs no tokens of another.
    let mixed = second.sign(&claims(&json!({})))?;
    assert_eq!(web.status(&mixed).await?, 401);
    // A policy that is removed leaves no check behind.
    web.mesh.config.remove("tokens.yaml")?;
    web.becomes("nonsense", 200).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_one_of_several_issuers_is_accepted() {
    several_rules().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn claim_routes(protocol: Protocol) -> Result<()> {
    let key = SigningKey::new("one")?;
    let (one, two) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
    let port = free_port();
    let server = format!("{{ port: {{ number: {port}, name: http, protocol: HTTP }}, hosts: ['*'] }}");
    let gateway = networking("Gateway", "front", &format!("selector: {{ app: front }}, servers: [{server}]"));
    let routes = networking(
        "VirtualService",
        "routes",
        &format!(
            "hosts: ['*'], gateways: [front], http: [\
             {{ match: [{{ headers: {{ '@request.auth.claims.groups': {{ exact: admins }} }} }}], {} }}, \
             {{ match: [{{ headers: {{ '@request.auth.claims[org.example][team]': {{ prefix: bl }} }} }}], {} }}, {{ {} }}]",
            to("two.test", 80),
            to("two.test", 80),
            to("one.test", 80)
        ),
    );
    let rule = format!("[{{ issuer: '{ISSUER}', jwks: '{}' }}]", key_set(&[&key]));
    let entries = static_entry("one", "one.test", (80, "HTTP"), one.address())
        + "---\n"
        + &static_entry("two", "two.test", (80, "HTTP"), two.address());
    let files = [("gateway.yaml", gateway.as_str()), ("routes.yaml", &routes), ("entries.yaml", &entries)];
    let mesh = Mesh::start(&files).await?;
    let envoy = mesh.envoy(&Node::gateway("front", "test", "127.0.0.3", &[("app", "front")]), protocol).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    let version = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("authorization", &bearer)] };
        let answer = http::get(address, "/", headers).await?;
        Ok::<_, test_harness::run::Error>((answer.status.as_u16(), answer.header("x-version").to_owned()))
    };
    let v = |text: &str| (200, text.to_owned());
    let admin = key.sign(&claims(&json!({"groups": ["users", "admins"]})))?;
    // Without a RequestAuthentication the condition never holds, whatever a client sends.
    wait_for("the routes", PATIENCE, || async { (version("").await.ok()? == v("v1")).then_some(()) }).await?;
    assert_eq!(version(&admin).await?, v("v1"));
    mesh.config.put("tokens.yaml", &authentication("front", &rule))?;
    wait_for("the route by claims", PATIENCE, || async { (version(&admin).await.ok()? == v("v2")).then_some(()) })
        .await?;
    assert_eq!(version("").await?, v("v1"));
    assert_eq!(version(&key.sign(&claims(&json!({"groups": "admins"})))?).await?, v("v2"));
    assert_eq!(version(&key.sign(&claims(&json!({"groups": ["users"]})))?).await?, v("v1"));
    let nested = json!({"org.example": {"team": "blue"}});
    assert_eq!(version(&key.sign(&claims(&nested))?).await?, v("v2"));
    assert_eq!(version(&SigningKey::new("one")?.sign(&claims(&nested))?).await?.0, 401);
    Ok(())
}

both_protocols! {
    async fn a_gateway_routes_by_claims(protocol) {
        claim_routes(protocol).await?;
    }
}

async fn reported() -> Result<()> {
    let data = tempfile::tempdir()?;
    let control = Control::start_with_api(rutter_binary(), data.path(), &["--jwks-allowed", "127.0.0.1"]).await?;
    let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
    let port = free_port();
    let rule = format!("[{{ issuer: '{ISSUER}', jwksUri: 'http://127.0.0.1:{port}/keys' }}]");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n---\n";
    done(&kubeconfig, &["create", "-f", "-"], &format!("{namespace}{}", authentication("web", &rule))).await?;
    let path = "jsonpath={.status.conditions[?(@.type=='ResolvedRefs')].message}";
    let message = async || {
        let get = ["get", "requestauthentication", "web", "-n", "test", "-o", path];
        done(&kubeconfig, &get, "").await
    };
    let has = async |text: &str| {
        let reached = || async { message().await.ok().filter(|message| message.contains(text)) };
        wait_for(&format!("`{text}` in the status"), PATIENCE, reached).await
    };
    let failed = has("the keys cannot be fetched").await?;
    assert!(failed.contains("tokens of the issuer are rejected; the next attempt is at 20"), "{failed}");
    let _server = KeyServer::start(port, &[&SigningKey::new("one")?]).await?;
    let gone = || async { message().await.ok().filter(|message| !message.contains("cannot be fetched")) };
    wait_for("the status without the failure", PATIENCE * 4, gone).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_why_there_are_no_keys() {
    reported().await.unwrap_or_else(|error| panic!("{error}"));
}
