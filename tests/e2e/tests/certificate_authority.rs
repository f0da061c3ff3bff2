//! Where the certificate authority comes from: Secrets and files with a real Kubernetes API server, and stores of Rutter.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use e2e::issuer::{KeyServer, SigningKey, now};
use e2e::secure::{Client, Key, Proof};
use e2e::{done, rutter, rutter_binary};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Settings};
use test_harness::run::{Control, Result, wait_for};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "istio-system";
/// Pages that show what the control plane knows.
const PAGES: [&str; 8] = [
    "/metrics",
    "/version",
    "/debug/configz",
    "/debug/mesh",
    "/debug/registryz",
    "/debug/syncz",
    "/debug/worldz",
    "/debug/endpointz",
];

/// A root, or an issuer that it signed.
type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer(name: &str, root: Option<&Issuer>) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().unwrap();
    match root {
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
        Some(root) => CertifiedIssuer::signed_by(params, key, root).unwrap(),
    }
}

/// The Secret `cacerts` with this issuer and these roots.
fn cacerts(signer: &Issuer, chain: &[&Issuer], roots: &[&Issuer]) -> Value {
    let list = |list: &[&Issuer]| list.iter().map(|one| one.pem()).collect::<String>();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cacerts", "namespace": NAMESPACE},
        "stringData": {
            "ca-cert.pem": signer.pem(),
            "ca-key.pem": signer.key().serialize_pem(),
            "cert-chain.pem": list(chain),
            "root-cert.pem": list(roots),
        },
    })
}

/// A cluster with the namespace of the control plane.
async fn cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start(Settings::default()).await?;
    plane.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    plane.kubectl(&["create", "namespace", "shop"], "").await?;
    Ok(plane)
}

async fn replica(plane: &ControlPlane, data: &Path, more: &[&str]) -> Result<Control> {
    let (kubeconfig, data) = (plane.kubeconfig().display().to_string(), data.display().to_string());
    let flags = ["--store", "kubernetes", "--namespace", NAMESPACE, "--kubeconfig", &kubeconfig, "--data-dir", &data];
    let mut control = Control::idle(rutter_binary(), &[&flags[..], more].concat(), &[])?;
    control.begin().await?;
    Ok(control)
}

async fn apply(plane: &ControlPlane, object: &Value) -> Result<()> {
    plane.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &object.to_string()).await.map(drop)
}

/// A value of a Secret of the control plane.
async fn secret(plane: &ControlPlane, name: &str, key: &str) -> Option<String> {
    let template = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
    plane.kubectl(&["get", "secret", name, "-n", NAMESPACE, "-o", &template], "").await.ok()
}

/// Waits until a ConfigMap of a namespace has this value.
async fn published(plane: &ControlPlane, namespace: &str, map: &str, key: &str, value: &str) -> Result<()> {
    let template = format!("go-template={{{{index .data \"{key}\"}}}}");
    let template = &template;
    wait_for(&format!("{map} in {namespace}"), PATIENCE, || async move {
        let found = plane.kubectl(&["get", "configmap", map, "-n", namespace, "-o", template], "").await.ok()?;
        (found.trim() == value.trim()).then_some(())
    })
    .await
}

async fn roots_are(plane: &ControlPlane, value: &str) -> Result<()> {
    for namespace in ["shop", "default", NAMESPACE] {
        published(plane, namespace, "istio-ca-root-cert", "root-cert.pem", value).await?;
    }
    Ok(())
}

/// The lines of a private key that nobody else may have.
fn secret_lines(key: &str) -> Vec<&str> {
    let lines: Vec<&str> = key.lines().filter(|line| line.len() > 20 && !line.starts_with("-----")).collect();
    assert!(!lines.is_empty(), "it is not a key");
    lines
}

/// Checks that a key is in no log, page or file.
async fn is_kept(key: &str, controls: &[&Control], data: &Path) -> Result<()> {
    let der = KeyPair::from_pem(key)?.serialize_der();
    // A part of the private number of a P-256 key, or of a prime of an RSA key.
    let private = if der.len() < 200 { &der[36..68] } else { &der[der.len() / 2..der.len() / 2 + 32] };
    let mut parts: Vec<&[u8]> = secret_lines(key).into_iter().map(str::as_bytes).collect();
    parts.push(private);
    let hidden = |what: &str, bytes: &[u8]| {
        assert!(!parts.iter().any(|part| contains(bytes, part)), "{what} contains the private key");
    };
    for control in controls {
        hidden("the log", control.log()?.as_bytes());
        for page in PAGES {
            hidden(page, control.debug(page).await?.text().as_bytes());
        }
        hidden("/ready", control.readiness().await?.text().as_bytes());
    }
    let mut directories = vec![data.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true => directories.push(path),
                false => hidden(&path.display().to_string(), &std::fs::read(&path).unwrap_or_default()),
            }
        }
    }
    Ok(())
}

async fn self_signed() -> Result<()> {
    let plane = cluster().await?;
    let data = tempfile::tempdir()?;
    // The root is due after about 12 seconds: 40 percent of its life of 220 seconds are left then.
    let flags = [
        "--self-signed-ca-ttl",
        "100s",
        "--self-signed-ca-grace",
        "40",
        "--self-signed-ca-check-interval",
        "1s",
        "--log-level",
        "trace,h2=info,hyper=info",
    ];
    let (one, two) = (data.path().join("one"), data.path().join("two"));
    let (one, two) = tokio::join!(replica(&plane, &one, &flags), replica(&plane, &two, &flags));
    let (one, two) = (one?, two?);
    let first =
        wait_for("a self-signed authority", PATIENCE, || secret(&plane, "istio-ca-secret", "ca-cert.pem")).await?;
    let logs = [one.log()?, two.log()?].concat();
    assert_eq!(logs.matches("created a self-signed certificate authority").count(), 1, "{logs}");
    let kind = ["get", "secret", "istio-ca-secret", "-n", NAMESPACE, "-o", "jsonpath={.type}"];
    assert_eq!(plane.kubectl(&kind, "").await?, "istio.io/ca-root");
    roots_are(&plane, &first).await?;
    let changed = r#"{"data":{"root-cert.pem":"other"}}"#;
    let patch = ["patch", "configmap", "istio-ca-root-cert", "-n", "shop", "--type=merge", "-p", changed];
    plane.kubectl(&patch, "").await?;
    published(&plane, "shop", "istio-ca-root-cert", "root-cert.pem", &first).await?;

    // One replica rotates the root from the same key; both publish the new one.
    let key = secret(&plane, "istio-ca-secret", "ca-key.pem").await.ok_or("no key")?;
    let is_new = |roots: &String| roots.matches("BEGIN CERTIFICATE").count() == 1 && roots.trim() != first.trim();
    wait_for("another root", PATIENCE, || async {
        secret(&plane, "istio-ca-secret", "root-cert.pem").await.filter(is_new)
    })
    .await?;
    assert_eq!(secret(&plane, "istio-ca-secret", "ca-key.pem").await.ok_or("no key")?, key);
    wait_for("the new root in the namespaces", PATIENCE, || async {
        let template = "go-template={{index .data \"root-cert.pem\"}}";
        let get = ["get", "configmap", "istio-ca-root-cert", "-n", "shop", "-o", template];
        plane.kubectl(&get, "").await.ok().filter(is_new)
    })
    .await?;
    // A deleted Secret comes back with the same key.
    plane.kubectl(&["delete", "secret", "istio-ca-secret", "-n", NAMESPACE], "").await?;
    let restored = wait_for("the Secret", PATIENCE, || secret(&plane, "istio-ca-secret", "ca-key.pem")).await?;
    assert_eq!(restored, key);
    is_kept(&key, &[&one, &two], data.path()).await?;
    // The command shows what is published.
    let shown = done(&plane.kubeconfig(), &["ca", "root"], "").await?;
    assert!(shown.contains("BEGIN CERTIFICATE") && !shown.contains("PRIVATE"), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_create_one_authority_rotate_it_and_publish_its_roots() {
    self_signed().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn plugged_in() -> Result<()> {
    let plane = cluster().await?;
    let data = tempfile::tempdir()?;
    let (root, other) = (issuer("root", None), issuer("other", None));
    let (first, second) = (issuer("first", Some(&root)), issuer("second", Some(&root)));
    apply(&plane, &cacerts(&first, &[&first], &[&root])).await?;
    let control = replica(&plane, data.path(), &["--multiroot-mesh", "on"]).await?;
    control.wait_for_log("subject=\"CN=first\"").await?;
    roots_are(&plane, &root.pem()).await?;
    assert!(secret(&plane, "istio-ca-secret", "ca-key.pem").await.is_none(), "no other authority is created");

    // An incomplete set and another root keep the last good set, and say so.
    let remove = r#"[{"op":"remove","path":"/data/ca-key.pem"}]"#;
    plane.kubectl(&["patch", "secret", "cacerts", "-n", NAMESPACE, "--type=json", "-p", remove], "").await?;
    control.wait_for_log("the Secret cacerts: ca-key.pem is missing").await?;
    apply(&plane, &cacerts(&other, &[], &[&other])).await?;
    control.wait_for_log("the roots replace current ones").await?;
    roots_are(&plane, &root.pem()).await?;

    // Another issuer of the same root is used at once; a root is added.
    apply(&plane, &cacerts(&second, &[&second], &[&root])).await?;
    control.wait_for_log("subject=\"CN=second\"").await?;
    apply(&plane, &cacerts(&second, &[&second], &[&root, &other])).await?;
    roots_are(&plane, &[root.pem(), other.pem()].concat()).await?;

    // Revocation lists reach the namespaces.
    let lists = [revocation(&root), revocation(&second)].concat();
    let mut with_lists = cacerts(&second, &[&second], &[&root, &other]);
    with_lists["stringData"]["ca-crl.pem"] = lists.clone().into();
    apply(&plane, &with_lists).await?;
    published(&plane, "shop", "istio-ca-crl", "ca-crl.pem", &lists).await?;
    for key in [first.key(), second.key()] {
        is_kept(&key.serialize_pem(), &[&control], data.path()).await?;
    }
    Ok(())
}

/// An empty revocation list.
fn revocation(issuer: &Issuer) -> String {
    let now = std::time::SystemTime::now();
    let day = Duration::from_secs(86_400);
    let params = rcgen::CertificateRevocationListParams {
        this_update: (now - day).into(),
        next_update: (now + day).into(),
        crl_number: rcgen::SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugged_in_authority_is_reloaded_and_a_broken_one_is_refused() {
    plugged_in().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn in_a_store() -> Result<()> {
    let data = tempfile::tempdir()?;
    let mut control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let shown = || async { done(&kubeconfig, &["ca", "root"], "").await.ok() };
    let root = wait_for("the root", PATIENCE, shown).await?;
    assert!(root.contains("BEGIN CERTIFICATE"), "{root}");
    let key_file = data.path().join("authority.key");
    assert_eq!(std::fs::metadata(&key_file)?.len(), 32);

    // The record is not served, not even to the administrator, and not exported.
    let exported = done(&kubeconfig, &["export"], "").await?;
    assert!(!exported.contains("sealedKey") && !exported.contains("PRIVATE KEY"), "{exported}");
    for page in PAGES {
        let text = control.debug(page).await?.text();
        assert!(!text.contains("sealedKey") && !text.contains("PRIVATE KEY"), "{page}");
    }
    let stolen = files(&data.path().join("store"))?;
    assert!(contains(&stolen, b"sealedKey"), "the record is in the store");
    assert!(!contains(&stolen, b"PRIVATE KEY"), "the key in the store is encrypted");

    // The authority survives a restart, but not the loss of its key file.
    control.stop().await?;
    let mut again = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = again.kubeconfig().ok_or("no kubeconfig")?;
    assert_eq!(done(&kubeconfig, &["ca", "root"], "").await?, root);
    again.stop().await?;
    std::fs::remove_file(&key_file)?;
    let without = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    without.wait_for_log("it is missing, and the key of the certificate authority in the store cannot be read").await?;
    assert!(!key_file.exists(), "no other key replaces it");
    Ok(())
}

fn files(directory: &Path) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            all.extend(std::fs::read(path)?);
        }
    }
    Ok(all)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_of_a_store_is_encrypted_with_a_file_outside_of_it() {
    in_a_store().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn join_tokens() -> Result<()> {
    let data = tempfile::tempdir()?;
    let control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let run = async |arguments: &str| done(&kubeconfig, &arguments.split(' ').collect::<Vec<_>>(), "").await;
    assert!(run("token list").await?.contains("No join tokens"));
    let token = run("token create -n shop --service-account cart --ttl 10m").await?.trim().to_owned();
    let id = token.split('.').nth(1).ok_or("not a token")?.to_owned();
    let secret = token.rsplit('.').next().ok_or("not a token")?.to_owned();
    let listed = run("token list").await?;
    assert!(listed.contains(&id) && listed.contains("cart") && listed.contains("valid"), "{listed}");
    assert!(!listed.contains(&secret), "{listed}");
    // Only a digest leaves the command.
    let stored = run(&format!("get secret rutter-join-token-{id} -n istio-system -o yaml")).await?;
    let everything = [stored, control.log()?, run("export").await?].concat();
    assert!(!everything.contains(&secret));
    let raw = files(&data.path().join("store"))?;
    assert!(!contains(&raw, secret.as_bytes()), "the token is in the store");
    run(&format!("token delete {id}")).await?;
    assert!(run("token list").await?.contains("No join tokens"));
    for wrong in ["token create -n shop --ttl 8d", "token create -n shop --service-account A/B", "token delete ../x"] {
        let refused = rutter(&kubeconfig, &wrong.split(' ').collect::<Vec<_>>(), "").await?;
        assert!(!refused.status.success(), "{wrong}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn join_tokens_are_managed_on_the_command_line() {
    join_tokens().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The name of the control plane in its certificate.
const ISTIOD: &str = "istiod.istio-system.svc";
const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

async fn connected(control: &Control, root: &str, certified: Option<(&str, &str)>) -> Result<Client> {
    let connect = || async { Client::connect(control.secure(), (root, ISTIOD), certified).await.ok() };
    let connected = wait_for("a connection to the TLS port", PATIENCE, connect).await;
    connected.map_err(|error| format!("{error}; {}", control.log_end().unwrap_or_default()).into())
}

/// Whether a certificate contains a text, such as an identity.
fn has_text(pem: &str, text: &str) -> bool {
    use rustls::pki_types::pem::PemObject as _;
    let der = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    contains(&der, text.as_bytes())
}

async fn joined() -> Result<()> {
    let data = tempfile::tempdir()?;
    let mut control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let run = async |arguments: &str| done(&kubeconfig, &arguments.split(' ').collect::<Vec<_>>(), "").await;
    let root = wait_for("the root", PATIENCE, || async { run("ca root").await.ok() }).await?;
    let token = run("token create -n shop --service-account cart").await?.trim().to_owned();
    let key = Key::new()?;
    // The names of the request do not matter.
    let csr = key.request(&["spiffe://cluster.local/ns/istio-system/sa/admin"])?;
    let client = connected(&control, &root, None).await?;
    let nobody = client.create(Proof::default(), &csr, &[]).await?.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated, "{nobody:?}");
    let chain = client.create(Proof::token(&token), &csr, &[]).await??;
    assert!(has_text(&chain[0], CART) && !has_text(&chain[0], "admin"));
    assert_eq!(chain.last().map(|root| root.trim()), Some(root.trim()));

    // A stolen token is useless afterwards, also after a restart. The certificate renews itself.
    let replayed = client.create(Proof::token(&token), &csr, &[]).await?.unwrap_err();
    assert_eq!(replayed.code(), Code::Unauthenticated, "{replayed:?}");
    assert!(!replayed.message().contains(&token));
    control.stop().await?;
    let again = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let client = connected(&again, &root, None).await?;
    let replayed = client.create(Proof::token(&token), &csr, &[]).await?.unwrap_err();
    assert_eq!(replayed.code(), Code::Unauthenticated, "{replayed:?}");
    again.wait_for_log("already used").await?;
    let leaf = chain[0].clone();
    let renewing = connected(&again, &root, Some((&leaf, &key.pem()))).await?;
    let renewed = renewing.create(Proof::default(), &csr, &[]).await??;
    assert!(has_text(&renewed[0], CART) && renewed[0] != leaf);
    let secret = token.rsplit('.').next().ok_or("not a token")?;
    let logs = [control.log()?, again.log()?].concat();
    assert!(!logs.contains(secret), "a token is in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_token_gives_one_certificate_which_renews_itself() {
    joined().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn of_an_issuer() -> Result<()> {
    let (key, other) = (SigningKey::new("a")?, SigningKey::new("b")?);
    let server = KeyServer::start(0, &[&key]).await?;
    let rule = json!({"issuer": server.issuer(), "audiences": ["istio-ca"]}).to_string();
    let data = tempfile::tempdir()?;
    let control = Control::start_with_api(rutter_binary(), data.path(), &["--jwt-rule", &rule]).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let root = wait_for("the root", PATIENCE, || async { done(&kubeconfig, &["ca", "root"], "").await.ok() }).await?;
    let client = connected(&control, &root, None).await?;
    let csr = Key::new()?.request(&[])?;
    let subject = "system:serviceaccount:shop:cart";
    let good = json!({"iss": server.issuer(), "sub": subject, "aud": "istio-ca", "exp": now()? + 600});
    let token = key.sign(&good)?;
    // The keys are being fetched.
    let issued = || async { client.create(Proof::token(&token), &csr, &[]).await.ok()?.ok() };
    let chain = wait_for("a certificate", PATIENCE, issued)
        .await
        .map_err(|error| format!("{error}; {:?}", control.log_end()))?;
    assert!(has_text(&chain[0], CART));
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let refused = [
        other.sign(&good)?,
        key.sign(&with("exp", json!(now()? - 600)))?,
        key.sign(&with("aud", json!("other")))?,
        key.sign(&with("iss", json!("https://other.example")))?,
        key.sign(&with("sub", json!("system:admin")))?,
    ];
    for token in refused {
        let answer = client.create(Proof::token(&token), &csr, &[]).await?.unwrap_err();
        assert_eq!((answer.code(), answer.message()), (Code::Unauthenticated, "request authenticate failure"));
    }
    // A token can be used again: it proves the workload to discovery, too.
    assert!(client.create(Proof::token(&token), &csr, &[]).await?.is_ok());
    assert!(!control.log()?.contains(&token), "a token is in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_configured_issuer_gives_certificates() {
    of_an_issuer().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Signs approved requests for a signer as a signer of a real cluster does, and returns leaf and root.
async fn signer(plane: &ControlPlane, directory: &Path, name: &str) -> Result<()> {
    let file = |name: &str| directory.join(name).display().to_string();
    let openssl = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = std::process::Command::new("openssl").args(arguments).output()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
        }
    };
    loop {
        let listed: Value = serde_json::from_str(&plane.kubectl(&["get", "csr", "-o", "json"], "").await?)?;
        for csr in listed["items"].as_array().into_iter().flatten().filter(|csr| csr["spec"]["signerName"] == name) {
            let conditions = csr["status"]["conditions"].as_array().into_iter().flatten();
            let approved = conditions.into_iter().any(|one| one["type"] == "Approved");
            if !approved || csr["status"]["certificate"].is_string() {
                continue;
            }
            let id = csr["metadata"]["name"].as_str().unwrap_or_default();
            std::fs::write(file("request.b64"), csr["spec"]["request"].as_str().unwrap_or_default())?;
            std::fs::write(file("request"), openssl(&["base64", "-d", "-A", "-in", &file("request.b64")])?)?;
            let signed = openssl(&[
                "x509",
                "-req",
                "-in",
                &file("request"),
                "-CA",
                &file("root"),
                "-CAkey",
                &file("key"),
                "-copy_extensions",
                "copy",
                "-days",
                "1",
            ])?;
            let chain = [signed, std::fs::read(file("root"))?].concat();
            std::fs::write(file("chain"), chain)?;
            let encoded = String::from_utf8(openssl(&["base64", "-A", "-in", &file("chain")])?)?;
            let patch = json!({"status": {"certificate": encoded}}).to_string();
            // Rutter may have given up meanwhile.
            let _ =
                plane.kubectl(&["patch", "csr", id, "--subresource=status", "--type=merge", "-p", &patch], "").await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn registration() -> Result<()> {
    let plane = cluster().await?;
    let (data, files) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let root = issuer("signer", None);
    std::fs::write(files.path().join("root"), root.pem())?;
    std::fs::write(files.path().join("key"), root.key().serialize_pem())?;
    let flags = ["--external-ca", "ISTIOD_RA_KUBERNETES_API", "--cert-signer-domain", "example.com"];
    let control = replica(&plane, data.path(), &flags).await?;
    let own = wait_for("the own root", PATIENCE, || secret(&plane, "istio-ca-secret", "ca-cert.pem")).await?;
    plane.kubectl(&["create", "serviceaccount", "cart", "-n", "shop"], "").await?;
    let token = plane.kubectl(&["create", "token", "cart", "-n", "shop", "--audience", "istio-ca"], "").await?;
    let proof = Proof::token(token.trim());
    let client = connected(&control, &own, None).await?;
    let key = Key::new()?;
    let mesh = [("CertSigner", "mesh")];

    // The signer takes the names from the request, so others are refused before it sees them.
    for names in [&["spiffe://cluster.local/ns/istio-system/sa/admin"][..], &[CART, "https://admin.example"], &[]] {
        let refused = client.create(proof, &key.request(names)?, &mesh).await?.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{names:?}: {refused:?}");
    }
    let csr = key.request(&[CART])?;
    let unknown = client.create(proof, &csr, &[]).await?.unwrap_err();
    assert!(unknown.message().contains("K8S_SIGNER"), "{unknown:?}");
    let none = plane.kubectl(&["get", "csr", "-o", "name"], "").await?;
    assert!(!none.contains("csr-workload"), "{none}");

    let signing = signer(&plane, files.path(), "example.com/mesh");
    let asking = async {
        let chain = client.create(proof, &csr, &mesh).await??;
        assert!(has_text(&chain[0], CART));
        assert_eq!((chain.len(), chain[1].trim()), (2, root.pem().trim()), "leaf and root");
        // Its certificate is accepted for renewal.
        let renewing = connected(&control, &own, Some((&chain[0], &key.pem()))).await?;
        let renewed = renewing.create(Proof::default(), &csr, &mesh).await??;
        assert!(has_text(&renewed[0], CART) && renewed[0] != chain[0]);
        Result::Ok(())
    };
    tokio::select! {
        ended = signing => ended?,
        asked = asking => asked?,
    }
    // The requests are deleted.
    wait_for("no requests", PATIENCE, || async {
        let left = plane.kubectl(&["get", "csr", "-o", "name"], "").await.ok()?;
        (!left.contains("csr-workload")).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_of_the_cluster_issues_certificates_for_proved_identities_only() {
    registration().await.unwrap_or_else(|error| panic!("{error}"));
}
