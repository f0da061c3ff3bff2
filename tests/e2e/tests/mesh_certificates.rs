//! Mutual TLS with certificates that Rutter's own authority signed: workloads join, their Envoys connect to the TLS port and to
//! each other with them, policies decide by their identities, and roots are rotated while requests run.

use std::time::Duration;

use e2e::guarded::{Ask, has, mesh_config, policy};
use e2e::issued::{ISTIOD, Issued, Member};
use e2e::objects::networking;
use e2e::secure::{Client, Key, Proof};
use e2e::secured::{WEB, peers};
use e2e::tls::Authority;
use e2e::{PATIENCE, both_protocols};
use test_harness::run::{Protocol, Result, Traffic, wait_for};

/// The caller that the server's sidecar reports when the client calls.
const CLIENT: &str = "URI=spiffe://cluster.local/ns/test/sa/client";

fn rule(policy: &str) -> String {
    networking("DestinationRule", "web", &format!("host: {WEB}, trafficPolicy: {{ {policy} }}"))
}

/// Each request uses a new connection between the sidecars, with a handshake of its own.
fn fresh_connections() -> String {
    rule("connectionPool: { http: { maxRequestsPerConnection: 1 } }")
}

fn strict() -> String {
    peers("default", "mtls: { mode: STRICT }")
}

both_protocols! {
    async fn workloads_prove_their_identity_with_certificates_of_the_authority(protocol) {
        let pair = Issued::start(protocol, "HTTP", &[], &[]).await?;
        // Automatic mutual TLS; clients without a certificate are accepted, too.
        pair.is_called_by(CLIENT).await?;
        pair.takes_plain_text(true).await?;
        pair.mesh.config.put("peers.yaml", &strict())?;
        pair.takes_plain_text(false).await?;
        pair.is_called_by(CLIENT).await?;
        // A rule can ask for mutual TLS, and for plaintext, which the server refuses.
        pair.mesh.config.put("rule.yaml", &rule("tls: { mode: ISTIO_MUTUAL }"))?;
        pair.is_called_by(CLIENT).await?;
        pair.mesh.config.put("rule.yaml", &rule("tls: { mode: DISABLE }"))?;
        pair.is_refused().await?;
        pair.mesh.config.put("rule.yaml", &rule("tls: { mode: ISTIO_MUTUAL }"))?;
        pair.is_called_by(CLIENT).await?;
        // The client refuses the server if its endpoint has another service account.
        pair.enlist("somebody", true, "")?;
        pair.is_refused().await?;
    }
}

async fn policies() -> Result<()> {
    let (strict, rule) = (strict(), fresh_connections());
    let files = [("peers.yaml", strict.as_str()), ("rule.yaml", &rule)];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &[]).await?;
    pair.is_called_by(CLIENT).await?;
    let control = &pair.mesh.control;
    let (client, other) = (pair.caller.identity(), Member::join(control, "test", "client2").await?.identity());
    let away = Member::join(control, "other", "client").await?.identity();
    let put = async |name: &str, spec: &str| {
        pair.mesh.config.put("policy.yaml", &policy(name, spec))?;
        has(&pair.server, &format!("policy[{name}]"), true).await
    };
    let passes = async |expected: [bool; 3]| -> Result<()> {
        for (identity, expected) in [&client, &other, &away].into_iter().zip(expected) {
            Ask::new("GET /").by(identity).gets(pair.entrance(), if expected { 200 } else { 403 }).await?;
        }
        let status = if expected[0] { 200 } else { 403 };
        let answered = || async { pair.get().await.ok().filter(|answer| answer.status.as_u16() == status).map(drop) };
        wait_for(&format!("{status} through the client's sidecar"), PATIENCE, answered).await
    };
    let from = |source: &str| format!("rules: [{{ from: [{{ source: {{ {source} }} }}] }}]");
    put("by-principal", &from("principals: [cluster.local/ns/test/sa/client]")).await?;
    passes([true, false, false]).await?;
    put("by-namespace", &from("namespaces: [test]")).await?;
    passes([true, true, false]).await?;
    put("by-account", &from("serviceAccounts: [other/client]")).await?;
    passes([false, false, true]).await?;
    put("by-prefix", &from("principals: ['cluster.local/ns/test/sa/client*']")).await?;
    passes([true, true, false]).await?;
    put("denied", &format!("action: DENY, {}", from("principals: [cluster.local/ns/test/sa/client]"))).await?;
    passes([false, true, true]).await?;
    put("denied-others", &format!("action: DENY, {}", from("notPrincipals: [cluster.local/ns/test/sa/client]")))
        .await?;
    passes([true, false, false]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_decide_by_identities_of_the_authority() {
    policies().await.unwrap_or_else(|error| panic!("{error}"));
}

fn count(roots: &str) -> usize {
    roots.matches("BEGIN CERTIFICATE").count()
}

async fn same_key() -> Result<()> {
    // The root is due after some seconds, and a new one again after as many.
    let flags =
        ["--self-signed-ca-ttl", "100s", "--self-signed-ca-grace", "40", "--self-signed-ca-check-interval", "1s"];
    let (strict, rule) = (strict(), fresh_connections());
    let files = [("peers.yaml", strict.as_str()), ("rule.yaml", &rule)];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &flags).await?;
    pair.is_called_by(CLIENT).await?;
    let traffic = Traffic::start(pair.address(), "/", &[("host", WEB)], 100, 10);
    let old = pair.web.roots();
    for web_first in [true, false] {
        let before = pair.root().await?;
        let rotated = || async { pair.root().await.ok().filter(|roots| *roots != before) };
        let roots = wait_for("a rotated root", 3 * PATIENCE, rotated).await?;
        // Envoy uses the first root of a key, even if it has expired.
        assert_eq!(count(&roots), 1);
        traffic.next(100).await?;
        // One side has a certificate of the new root and trusts it, the other does not know it.
        if web_first {
            pair.renew_web().await?;
            assert_ne!(pair.web.roots(), old);
        } else {
            pair.renew_caller().await?;
        }
        traffic.next(100).await?;
        pair.renew_web().await?;
        pair.renew_caller().await?;
        traffic.next(100).await?;
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    pair.is_called_by(CLIENT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_signed_root_is_rotated_without_a_failed_request() {
    same_key().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The steps of `docs/operations/certificate-authority.md`.
async fn migration() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    old.plug_into(directory.path(), &[&old])?;
    let path = directory.path().display().to_string();
    let flags = ["--root-ca-dir", &path, "--multiroot-mesh", "on"];
    let (strict, rule) = (strict(), fresh_connections());
    let files = [("peers.yaml", strict.as_str()), ("rule.yaml", &rule)];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &flags).await?;
    pair.is_called_by(CLIENT).await?;
    assert_eq!(pair.root().await?.trim(), old.pem.trim());
    let before = pair.caller.identity();
    let traffic = Traffic::start(pair.address(), "/", &[("host", WEB)], 100, 10);
    traffic.next(50).await?;

    // Another root at once would separate workloads that renewed from others. It is refused.
    new.plug_into(directory.path(), &[&new])?;
    pair.mesh.control.wait_for_log("the roots replace current ones").await?;
    pair.renew_caller().await?;
    assert_eq!(pair.caller.roots().trim(), old.pem.trim());
    traffic.next(50).await?;

    let steps: [(&Authority, &[&Authority]); 3] = [(&old, &[&old, &new]), (&new, &[&old, &new]), (&new, &[&new])];
    for (signer, roots) in steps {
        signer.plug_into(directory.path(), roots)?;
        let expected: String = roots.iter().map(|root| root.pem.as_str()).collect();
        // Each step is complete when all workloads have renewed.
        renewed(&pair, &expected, signer, &traffic).await?;
        traffic.next(100).await?;
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    pair.is_called_by(CLIENT).await?;
    // A certificate of the old root is not accepted any more, by nobody.
    let answer = Ask::new("GET /").by(&before).send(pair.entrance()).await?;
    assert_eq!(answer.status, 0, "{answer:?}");
    Ask::new("GET /").by(&pair.caller.identity()).gets(pair.entrance(), 200).await?;
    let (roots, csr) = (pair.caller.roots(), Key::new()?.request(&[])?);
    let stale = Client::connect(pair.mesh.control.secure(), (&roots, ISTIOD), Some((&before.0, &before.1))).await;
    if let Ok(stale) = stale {
        let answer = stale.create(Proof::default(), &csr, &[]).await;
        assert!(!matches!(answer, Ok(Ok(_))), "it does not renew");
    }
    Ok(())
}

/// Renews the certificates of both sides until they are of this authority and have these roots.
async fn renewed(pair: &Issued, roots: &str, signer: &Authority, traffic: &Traffic) -> Result<()> {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        pair.renew_web().await?;
        traffic.next(30).await?;
        pair.renew_caller().await?;
        let current = [&pair.web, &pair.caller].iter().all(|member| member.roots().trim() == roots.trim());
        // A leaf of this authority verifies with its root only.
        if current && signer.signed(&pair.web.identity())? && signer.signed(&pair.caller.identity())? {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            return Err(format!("the set is not used: {}", pair.mesh.control.log_end()?).into());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_migrate_to_another_root_without_a_failed_request() {
    migration().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The steps of "Change the trust domain" in `docs/operations/certificate-authority.md`.
async fn domains() -> Result<()> {
    let (strict, rule) = (strict(), fresh_connections());
    let from = |domain: &str| {
        let source = format!("principals: [{domain}/ns/test/sa/client]");
        policy("clients", &format!("rules: [{{ from: [{{ source: {{ {source} }} }}] }}]"))
    };
    let old = from("cluster.local");
    let files = [("peers.yaml", strict.as_str()), ("rule.yaml", &rule), ("policy.yaml", &old)];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &[]).await?;
    pair.is_called_by(CLIENT).await?;
    let before = pair.caller.identity();
    let traffic = Traffic::start(pair.address(), "/", &[("host", WEB)], 100, 10);
    let mesh = |spec: &str| pair.mesh.config.put("mesh.yaml", &mesh_config(spec));
    let knows = async |text: &str, known: bool| -> Result<()> {
        has(&pair.server, text, known).await?;
        let reached = || async {
            let page = pair.client.admin("/config_dump?resource=dynamic_active_clusters").await.ok()?.text();
            (page.contains(text) == known).then_some(())
        };
        wait_for(&format!("{text} in the client's clusters: {known}"), PATIENCE, reached).await
    };
    // Both accept both.
    mesh("trustDomain: cluster.local, trustDomainAliases: [new.example]")?;
    knows("spiffe://new.example/", true).await?;
    traffic.next(50).await?;
    // New certificates have the new name, which policies for the old one permit.
    mesh("trustDomain: new.example, trustDomainAliases: [cluster.local]")?;
    let renamed = || async {
        pair.caller.renew(&pair.mesh.control).await.ok()?;
        pair.caller.is_used_by(&pair.client).await.ok()?;
        pair.caller().await.filter(|caller| caller.contains("URI=spiffe://new.example/ns/test/sa/client"))
    };
    wait_for("an identity of the new trust domain", PATIENCE, renamed).await?;
    traffic.next(50).await?;
    pair.renew_web().await?;
    pair.is_called_by("By=spiffe://new.example/ns/test/sa/web").await?;
    traffic.next(50).await?;
    // Nothing refers to the old name any more.
    pair.mesh.config.put("policy.yaml", &from("new.example"))?;
    has(&pair.server, "new.example/ns/test/sa/client", true).await?;
    traffic.next(50).await?;
    pair.mesh.config.put("mesh.yaml", &mesh_config("trustDomain: new.example"))?;
    knows("spiffe://cluster.local/", false).await?;
    traffic.next(100).await?;
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    assert_eq!(Ask::new("GET /").by(&before).send(pair.entrance()).await?.status, 0, "the old name is unknown");
    // The sidecars still receive changes, over streams with their new identities.
    pair.mesh.config.put("rule.yaml", &self::rule("tls: { mode: DISABLE }"))?;
    pair.is_refused().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trust_domain_is_changed_without_a_failed_request() {
    domains().await.unwrap_or_else(|error| panic!("{error}"));
}
