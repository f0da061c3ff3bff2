//! Port 15012 with real Kubernetes API servers, which review the tokens: who gets which certificate and which stream.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use e2e::cluster::Namespace;
use e2e::home::{PATIENCE, Rutter};
use e2e::secure::{Client, Key, Proof, code};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Settings};
use test_harness::run::{Result, wait_for};
use tonic::Code;

/// A control plane in a cluster, and the root of its authority.
struct Plane<'a> {
    rutter: Rutter,
    home: &'a ControlPlane,
    space: Namespace<'a>,
    root: String,
}

impl<'a> Plane<'a> {
    async fn start(home: &'a ControlPlane, flags: &[&str]) -> Result<Plane<'a>> {
        let space = Namespace::create(home, "system").await?;
        let trusted = format!("{}/ztunnel", space.name());
        // Control planes in one cluster with authorities of their own must not write to the same ConfigMaps.
        let map = format!("root-of-{}", space.name());
        let own = ["--cluster-id", "home", "--trusted-node-accounts", &trusted];
        let own = [&own[..], &["--ca-server", "on", "--ca-cert-configmap", &map]].concat();
        let mut rutter = Rutter::idle(home, space.name(), None, &[&own, flags].concat())?;
        rutter.control.begin().await?;
        let read = || async {
            let path = format!("/api/v1/namespaces/{}/configmaps/{map}", space.name());
            let answer = home.request(test_harness::kubernetes::Method::GET, &path, &Value::Null).await.ok()?;
            let map: Value = serde_json::from_slice(&answer.body).ok()?;
            map["data"]["root-cert.pem"].as_str().map(str::to_owned)
        };
        let root = rutter.explained(wait_for("the root certificate", PATIENCE, read).await)?;
        Ok(Plane { rutter, home, space, root })
    }

    /// A name of the control plane.
    fn name(&self) -> String {
        format!("istiod.{}.svc", self.space.name())
    }

    async fn client(&self, certified: Option<(&str, &str)>) -> Result<Client> {
        let connect = || async {
            let name = self.name();
            Client::connect(self.rutter.control.secure(), (&self.root, &name), certified).await.ok()
        };
        self.rutter.explained(wait_for("a connection to the TLS port", PATIENCE, connect).await)
    }
}

/// Creates a service account and a pod of it on a node, and returns the pod's UID. There is no kubelet: the pod does not run.
async fn pod(space: &Namespace<'_>, name: &str, account: &str, node: &str) -> Result<String> {
    space.apply(&format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{ name: {account} }}\n")).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "a", "image": "a"}]},
    });
    space.apply(&pod.to_string()).await?;
    let uid = space.kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"], "").await?;
    Ok(uid.trim().to_owned())
}

/// A token of a service account for an audience, bound to a pod if there is one.
async fn token(space: &Namespace<'_>, account: &str, audience: &str, bound: Option<(&str, &str)>) -> Result<String> {
    let mut arguments = vec!["create", "token", account, "--audience", audience];
    if let Some((pod, uid)) = bound {
        arguments.extend(["--bound-object-kind", "Pod", "--bound-object-name", pod, "--bound-object-uid", uid]);
    }
    Ok(space.kubectl(&arguments, "").await?.trim().to_owned())
}

/// What `openssl x509` shows of a certificate.
fn shown(pem: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), pem)?;
    let output = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(file.path()).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a certificate has expired after this time, in seconds.
fn expires_within(pem: &str, seconds: i64) -> Result<bool> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), pem)?;
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-checkend", &seconds.to_string(), "-in"]).arg(file.path());
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    match text.trim() {
        "Certificate will expire" => Ok(true),
        "Certificate will not expire" => Ok(false),
        _ => Err(format!("openssl: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// A workload gets a certificate by its token, connects with it, and renews it. Others get nothing.
async fn workloads() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, &[]).await?;
    let (shop, bank) = (Namespace::create(home, "shop").await?, Namespace::create(home, "bank").await?);
    let uid = pod(&shop, "cart-1", "cart", "n1").await?;
    pod(&bank, "vault-1", "vault", "n1").await?;
    let good = token(&shop, "cart", "istio-ca", Some(("cart-1", &uid))).await?;
    let client = plane.client(None).await?;
    let key = Key::new()?;
    let foreign = ["spiffe://cluster.local/ns/istio-system/sa/istiod", "spiffe://cluster.local/ns/bank/sa/vault"];
    let chain = client.create(Proof::token(&good), &key.request(&foreign)?, &[]).await??;
    let text = shown(&chain[0])?;
    let identity = format!("URI:spiffe://cluster.local/ns/{}/sa/cart", shop.name());
    assert!(text.contains(&identity), "{text}");
    assert!(!text.contains("sa/vault") && !text.contains("sa/istiod"), "{text}");
    assert_eq!(chain.last().unwrap().trim(), plane.root.trim(), "the root is the last element");

    let (name, own) = (shop.name().to_owned(), bank.name().to_owned());
    let certified = chain[..chain.len() - 1].concat();
    let secured = plane.client(Some((&certified, &key.pem()))).await?;
    let renewed = secured.create(Proof::default(), &Key::new()?.request(&[])?, &[]).await??;
    assert!(shown(&renewed[0])?.contains(&identity));
    let mut stream = secured.subscribe(Proof::default(), (&name, "cart")).await??;
    assert!(!stream.next().await?.resources.is_empty());
    // A valid workload that claims another namespace or service account.
    for claims in [(own.as_str(), "cart"), (&name, "default")] {
        for (client, proof) in [(&secured, Proof::default()), (&client, Proof::token(&good))] {
            assert_eq!(code(client.subscribe(proof, claims).await?).await, Code::PermissionDenied, "{claims:?}");
        }
    }
    assert_eq!(code(client.subscribe(Proof::token(&good), (&name, "cart")).await?).await, Code::Ok);

    // A token of another audience, of no workload, damaged, or of a cluster that is not known.
    let other = token(&shop, "cart", "vault", None).await?;
    // The last character of a signature may stand for fewer bits than it has, so the first one changes.
    let (signed, signature) = good.rsplit_once('.').ok_or("not a token")?;
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let damaged = format!("{signed}.{first}{}", &signature[1..]);
    for (what, proof) in [
        ("nothing", Proof::default()),
        ("another audience", Proof::token(&other)),
        ("damaged", Proof::token(&damaged)),
        ("another cluster", Proof { cluster: Some("away"), ..Proof::token(&good) }),
    ] {
        let refused = client.create(proof, &key.request(&[])?, &[]).await?.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Unauthenticated, "request authenticate failure"),
            "{what}"
        );
        assert_eq!(code(client.subscribe(proof, (&name, "cart")).await?).await, Code::Unauthenticated, "{what}");
    }
    // istioctl reads debug pages with a token; a workload sees its own namespace only.
    let page = client.debug(Proof::token(&good), "config_dump?proxyID=a").await??;
    assert!(page.contains("ClustersConfigDump"), "{page}");
    let refused = client.debug(Proof::token(&good), "configz").await?.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let log = plane.rutter.control.log()?;
    for secret in [&good, &other, &damaged] {
        let signature = secret.rsplit('.').next().unwrap();
        assert!(!log.contains(signature), "a token is in the log");
    }
    // A token of a pod that was deleted. Results are kept for some seconds.
    shop.kubectl(&["delete", "pod", "cart-1", "--force", "--grace-period=0"], "").await?;
    let refused = || async {
        let answer = client.create(Proof::token(&good), &key.request(&[]).ok()?, &[]).await.ok()?;
        (answer.err()?.code() == Code::Unauthenticated).then_some(())
    };
    plane.rutter.explained(wait_for("the token of a deleted pod to be refused", PATIENCE, refused).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_gets_what_its_token_proves_and_nothing_else() {
    workloads().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A node agent gets certificates of pods on its node, as ztunnel does.
async fn agents() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, &[]).await?;
    let shop = Namespace::create(home, "shop").await?;
    let uid = pod(&plane.space, "ztunnel-1", "ztunnel", "n1").await?;
    pod(&shop, "cart-1", "cart", "n1").await?;
    pod(&shop, "vault-1", "vault", "n2").await?;
    let agent = token(&plane.space, "ztunnel", "istio-ca", Some(("ztunnel-1", &uid))).await?;
    let workload = token(&shop, "cart", "istio-ca", None).await?;
    let client = plane.client(None).await?;
    let key = Key::new()?;
    let identity = |account: &str| format!("spiffe://cluster.local/ns/{}/sa/{account}", shop.name());
    let (cart, vault) = (identity("cart"), identity("vault"));
    let csr = key.request(&[&cart])?;
    let asked = [("ImpersonatedIdentity", cart.as_str())];
    // The pods arrive through a watch.
    let allowed = || async { client.create(Proof::token(&agent), &csr, &asked).await.ok()?.ok() };
    let chain = plane.rutter.explained(wait_for("the certificate of a pod", PATIENCE, allowed).await)?;
    assert!(shown(&chain[0])?.contains(&format!("URI:{cart}")));
    let elsewhere = [("ImpersonatedIdentity", vault.as_str())];
    // istiod signs this one: it looks at the pod's namespace and service account only.
    let foreign = cart.replace("cluster.local", "partner.example");
    let foreign = [("ImpersonatedIdentity", foreign.as_str())];
    for (what, token, asked) in [
        ("a pod on another node", &agent, &elsewhere),
        ("a workload that is no agent", &workload, &asked),
        ("another trust domain", &agent, &foreign),
    ] {
        let refused = client.create(Proof::token(token), &csr, asked).await?.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Unauthenticated, "request impersonation authentication failure"),
            "{what}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_agent_gets_certificates_of_its_node() {
    agents().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The answers that were compared with istiod's: lifetimes, labels of PEM, and large messages.
async fn answers() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, &[]).await?;
    let shop = Namespace::create(home, "shop").await?;
    shop.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: cart }\n").await?;
    let token = token(&shop, "cart", "istio-ca", None).await?;
    let client = plane.client(None).await?;
    let csr = Key::new()?.request(&[])?;
    let create = |csr: String, lifetime: i64| {
        let (client, token) = (&client, &token);
        async move { client.create_for(Proof::token(token), &csr, &[], lifetime).await }
    };
    let day = 86_400;
    for (lifetime, granted) in [(0, day), (-1, day), (i64::MIN, day), (3_600, 3_600), (89 * day, 89 * day)] {
        let chain = create(csr.clone(), lifetime).await??;
        assert!(expires_within(&chain[0], granted)?, "{lifetime}");
        assert!(!expires_within(&chain[0], granted - 600)?, "{lifetime}");
    }
    let older = csr.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
    assert!(create(older, 0).await?.is_ok(), "the label of older tools");
    let other = csr.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    let cases = [
        (csr.clone(), 91 * day, Code::InvalidArgument, "longer than the maximum of 7776000s"),
        (csr.clone(), i64::MAX, Code::InvalidArgument, "longer than the maximum of 7776000s"),
        ("hello".to_owned(), 0, Code::InvalidArgument, "is not PEM"),
        (String::new(), 0, Code::InvalidArgument, "is not PEM"),
        (other, 0, Code::InvalidArgument, "is not PEM"),
        ("a".repeat(40 << 10), 0, Code::InvalidArgument, "at most 32768 are accepted"),
        ("a".repeat(60 << 10), 0, Code::ResourceExhausted, "at most 49152 are accepted"),
    ];
    for (csr, lifetime, code, text) in cases {
        let refused = create(csr, lifetime).await?.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(text) && !refused.message().contains("--max-request-bytes"), "{refused}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_get_the_answers_of_istiod() {
    answers().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Tokens of another cluster of the mesh are reviewed there.
async fn clusters() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let away = ControlPlane::start(Settings::default()).await?;
    let plane = Plane::start(home, &[]).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "away", "labels": {"istio/multiCluster": "true"}},
        "stringData": {"away": away.user("reader", Some("system:masters"))?},
    });
    plane.space.apply(&secret.to_string()).await?;
    let shop = Namespace::create(&away, "shop").await?;
    shop.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: cart }\n").await?;
    let token = token(&shop, "cart", "istio-ca", None).await?;
    let client = plane.client(None).await?;
    let csr = Key::new()?.request(&[])?;
    let there = Proof { cluster: Some("away"), ..Proof::token(&token) };
    let known = || async { client.create(there, &csr, &[]).await.ok()?.ok() };
    let chain = plane.rutter.explained(wait_for("a certificate for the other cluster", PATIENCE, known).await)?;
    assert!(shown(&chain[0])?.contains(&format!("ns/{}/sa/cart", shop.name())));
    // The home cluster does not know the token.
    for proof in [Proof::token(&token), Proof { cluster: Some("home"), ..Proof::token(&token) }] {
        assert_eq!(client.create(proof, &csr, &[]).await?.unwrap_err().code(), Code::Unauthenticated);
    }
    let _ = plane.home;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_another_cluster_are_reviewed_there() {
    clusters().await.unwrap_or_else(|error| panic!("{error}"));
}

/// `openssl s_client` verifies chain and names, and speaks TLS 1.2 and 1.3 only.
async fn handshakes() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, &["--custom-hosts", "mesh.example.com"]).await?;
    drop(plane.client(None).await?);
    let root = tempfile::NamedTempFile::new()?;
    std::fs::write(root.path(), &plane.root)?;
    let address = plane.rutter.control.secure().to_string();
    let connect = |more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address, "-alpn", "h2", "-verify_return_error", "-CAfile"]);
        command.arg(root.path()).args(more).stdin(std::process::Stdio::null());
        let output = command.output().expect("openssl runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for name in [plane.name(), "mesh.example.com".to_owned(), format!("istiod-remote.{}.svc", plane.space.name())] {
        for version in ["-tls1_2", "-tls1_3"] {
            let (good, text) = connect(&[version, "-verify_hostname", &name, "-servername", &name]);
            assert!(good && text.contains("Verify return code: 0 (ok)"), "{name} {version}: {text}");
            assert!(text.contains("ALPN protocol: h2"), "{text}");
        }
    }
    assert!(!connect(&["-verify_hostname", "other.example.com"]).0);
    assert!(!connect(&["-tls1_1"]).0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_verifies_the_chain_and_the_names() {
    handshakes().await.unwrap_or_else(|error| panic!("{error}"));
}
