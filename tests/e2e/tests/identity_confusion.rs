//! Names that look like the right one: clients refuse servers, and servers refuse clients, whose certificate of a trusted root
//! has another name, however similar.
//!
//! The authority is plugged in, so that the test can sign with its key what Rutter never signs.

use std::path::Path;

use e2e::guarded::{Ask, has, mesh_config, policy};
use e2e::issued::Issued;
use e2e::objects::networking;
use e2e::secured::{WEB, peers};
use e2e::tls::{Authority, Identity};
use rcgen::SanType;
use test_harness::run::{Protocol, Result};

/// The caller that the server's sidecar reports when the client calls.
const CLIENT: &str = "URI=spiffe://cluster.local/ns/test/sa/client";

/// The trust domain in identities, and what replaces it.
const OTHER_DOMAINS: [&str; 8] = [
    "cluster.local.evil",
    "evil.cluster.local",
    "cluster.loca",
    "cluster.locall",
    "cluster-local",
    "cluster.local:443",
    "old.example",
    "*",
];

fn rule(tls: &str) -> String {
    let spec = format!("connectionPool: {{ http: {{ maxRequestsPerConnection: 1 }} }}{tls}");
    networking("DestinationRule", "web", &format!("host: {WEB}, trafficPolicy: {{ {spec} }}"))
}

/// A mesh whose authority is this one. Each request uses a new connection between the sidecars.
async fn start(authority: &Authority, directory: &Path) -> Result<Issued> {
    authority.plug_into(directory, &[authority])?;
    let (strict, rule) = (peers("default", "mtls: { mode: STRICT }"), rule(""));
    let files = [("peers.yaml", strict.as_str()), ("rule.yaml", &rule)];
    let flags = ["--root-ca-dir", &directory.display().to_string()];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &flags).await?;
    pair.is_called_by(CLIENT).await?;
    Ok(pair)
}

/// An identity of a service account of the namespace `test`, with something else in place of a part.
fn similar(account: &str) -> Vec<String> {
    let right = format!("spiffe://cluster.local/ns/test/sa/{account}");
    let domains = OTHER_DOMAINS.map(|domain| format!("spiffe://{domain}/ns/test/sa/{account}"));
    let changed = [
        format!("{right}x"),
        right[..right.len() - 1].to_owned(),
        format!("{right}/"),
        format!("{right}/x"),
        format!("{right}?x"),
        format!("{right}#x"),
        format!("{right}*"),
        format!("x{right}"),
        right.to_uppercase(),
        right.replace("/ns/test/", "/ns/tests/"),
        right.replace("/ns/test/", "/ns/tes/"),
        right.replace("/ns/test/", "/ns/other/"),
        right.replace("/ns/test/", "/ns/other/ns/test/"),
        right.replace("/ns/test/", "/ns/*/"),
        right.replace("/ns/test/", "/"),
        right.replace("/sa/", "//sa/"),
        right.replace("spiffe://", "https://"),
        right.replace(account, "*"),
        format!("spiffe://cluster.local/ns/test/sa/{account}%2f.."),
        format!("spiffe://cluster.local/ns/other/sa/../../test/sa/{account}"),
    ];
    domains.into_iter().chain(changed).collect()
}

/// Certificates of the authority that do not have this identity, each with a description.
fn imitations(authority: &Authority, account: &str) -> Result<Vec<(String, Identity)>> {
    let right = format!("spiffe://cluster.local/ns/test/sa/{account}");
    let mut all = Vec::new();
    for name in similar(account) {
        all.push((name.clone(), authority.workload(&name)?));
    }
    let dns = |name: &str| Ok::<_, rcgen::Error>(SanType::DnsName(name.try_into()?));
    all.push(("a DNS name like the identity".to_owned(), authority.named(vec![dns(&right)?], "x")?));
    all.push(("the host".to_owned(), authority.named(vec![dns(WEB)?], WEB)?));
    all.push((
        "a mail address".to_owned(),
        authority.named(vec![SanType::Rfc822Name(right.as_str().try_into()?)], "x")?,
    ));
    all.push(("only a common name".to_owned(), authority.named(Vec::new(), &right)?));
    all.push(("another root".to_owned(), Authority::new("mesh")?.workload(&right)?));
    Ok(all)
}

async fn servers() -> Result<()> {
    let (authority, directory) = (Authority::new("mesh")?, tempfile::tempdir()?);
    let pair = start(&authority, directory.path()).await?;
    let right = authority.workload("spiffe://cluster.local/ns/test/sa/web")?;
    for (what, imitation) in imitations(&authority, "web")? {
        let before = pair.backend.requests();
        pair.present(&imitation).await?;
        let answer = pair.get().await?;
        assert_eq!((answer.status.as_u16(), pair.backend.requests()), (503, before), "{what}: {}", answer.text());
    }
    pair.present(&right).await?;
    pair.is_called_by(CLIENT).await?;

    // The names in a rule replace the identity of the endpoints. They are exact.
    let names = |name: &str| rule(&format!(", tls: {{ mode: ISTIO_MUTUAL, subjectAltNames: ['{name}'] }}"));
    for name in ["spiffe://cluster.local/ns/test/sa/we", "spiffe://cluster.local/ns/test/sa/*", "*", "web", WEB] {
        pair.mesh.config.put("rule.yaml", &names(name))?;
        pair.is_refused().await?;
        assert_eq!(pair.get().await?.status.as_u16(), 503, "{name}");
        pair.mesh.config.put("rule.yaml", &names("spiffe://cluster.local/ns/test/sa/web"))?;
        pair.is_called_by(CLIENT).await?;
    }
    pair.mesh.config.put("rule.yaml", &rule(""))?;
    pair.is_called_by(CLIENT).await?;

    // An identity of another trust domain is the same workload only if the domain is an alias.
    pair.present(&authority.workload("spiffe://old.example/ns/test/sa/web")?).await?;
    pair.is_refused().await?;
    pair.mesh.config.put("mesh.yaml", &mesh_config("trustDomainAliases: [old.example]"))?;
    pair.is_called_by(CLIENT).await?;
    for other in ["spiffe://old.example.evil/ns/test/sa/web", "spiffe://old.example/ns/test/sa/webx"] {
        pair.present(&authority.workload(other)?).await?;
        assert_eq!(pair.get().await?.status.as_u16(), 503, "{other}");
    }
    pair.present(&authority.workload("spiffe://old.example/ns/test/sa/web")?).await?;
    pair.is_called_by(CLIENT).await?;
    pair.mesh.config.remove("mesh.yaml")?;
    pair.is_refused().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_refuses_a_server_with_a_similar_name() {
    servers().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn clients() -> Result<()> {
    let (authority, directory) = (Authority::new("mesh")?, tempfile::tempdir()?);
    let pair = start(&authority, directory.path()).await?;
    let allow = "rules: [{ from: [{ source: { principals: [cluster.local/ns/test/sa/client] } }] }]";
    pair.mesh.config.put("policy.yaml", &policy("by-principal", allow))?;
    has(&pair.server, "policy[by-principal]", true).await?;
    let right = authority.workload("spiffe://cluster.local/ns/test/sa/client")?;
    Ask::new("GET /").by(&right).gets(pair.entrance(), 200).await?;
    for (what, imitation) in imitations(&authority, "client")? {
        let before = pair.backend.requests();
        let answer = Ask::new("GET /").by(&imitation).send(pair.entrance()).await?;
        // In the trust domain, it is another workload; otherwise the handshake fails.
        let known = what.starts_with("spiffe://cluster.local/");
        assert_eq!(answer.status, if known { 403 } else { 0 }, "{what}: {}", answer.text);
        assert_eq!(pair.backend.requests(), before, "{what}");
    }
    // An alias is accepted, and is the same principal.
    let alias = authority.workload("spiffe://old.example/ns/test/sa/client")?;
    pair.mesh.config.put("mesh.yaml", &mesh_config("trustDomainAliases: [old.example]"))?;
    Ask::new("GET /").by(&alias).gets(pair.entrance(), 200).await?;
    let other = authority.workload("spiffe://old.example.evil/ns/test/sa/client")?;
    assert_eq!(Ask::new("GET /").by(&other).send(pair.entrance()).await?.status, 0);
    pair.mesh.config.remove("mesh.yaml")?;
    Ask::new("GET /").by(&alias).gets(pair.entrance(), 0).await?;

    // Prefixes and suffixes in a policy, and namespaces, are compared with whole names.
    for (name, source, passing) in [
        ("suffix", "principals: ['*/ns/test/sa/client']", &["client"][..]),
        ("prefix", "principals: ['cluster.local/ns/test/sa/client*']", &["client", "client2"]),
        ("namespace", "namespaces: [test]", &["client", "client2", "my-client"]),
        ("account", "serviceAccounts: [client]", &["client"]),
    ] {
        let spec = format!("rules: [{{ from: [{{ source: {{ {source} }} }}] }}]");
        pair.mesh.config.put("policy.yaml", &policy(name, &spec))?;
        has(&pair.server, &format!("policy[{name}]"), true).await?;
        for account in ["client", "client2", "my-client"] {
            let own = authority.workload(&format!("spiffe://cluster.local/ns/test/sa/{account}"))?;
            let status = if passing.contains(&account) { 200 } else { 403 };
            Ask::new("GET /").by(&own).gets(pair.entrance(), status).await?;
        }
        for namespace in ["tests", "my-test", "tes"] {
            let own = authority.workload(&format!("spiffe://cluster.local/ns/{namespace}/sa/client"))?;
            Ask::new("GET /").by(&own).gets(pair.entrance(), 403).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_refuses_a_client_with_a_similar_name() {
    clients().await.unwrap_or_else(|error| panic!("{error}"));
}
