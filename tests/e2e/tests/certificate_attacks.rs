//! An attacker at the certificate service and on the streams of the TLS port, without Kubernetes: requests that ask for more,
//! weak and huge keys, stolen tokens, and certificates that a workload signs itself.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use e2e::guarded::Ask;
use e2e::issued::{self, ISTIOD, Issued, Member, connect};
use e2e::secure::{Client, Key, Proof, code};
use e2e::secured::peers;
use e2e::tls::{Authority, Identity};
use e2e::{Mesh, PATIENCE, done};
use test_harness::run::{Protocol, Result, wait_for};
use tonic::Code;

/// Runs `openssl` in a directory, and returns its output.
fn openssl(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("openssl").current_dir(directory).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// A control plane with an authority, and its root.
async fn control() -> Result<(Mesh, String, tempfile::TempDir)> {
    let data = tempfile::tempdir()?;
    let mesh = issued::start(&[], &data, &[]).await?;
    let root = issued::root(&mesh.control).await?;
    Ok((mesh, root, data))
}

/// Requests with these options of `openssl req` get a certificate, which has the identity of the token and nothing else.
async fn contents() -> Result<()> {
    let (mesh, root, _data) = control().await?;
    let files = tempfile::tempdir()?;
    let client = connect(&mesh.control, (&root, ISTIOD), None).await?;
    for (what, options) in [
        ("a subject", &["-subj", "/CN=istiod.istio-system.svc/O=admins"][..]),
        (
            "other names",
            &[
                "-subj",
                "/",
                "-addext",
                "subjectAltName=URI:spiffe://cluster.local/ns/istio-system/sa/istiod,DNS:istiod.istio-system.svc,IP:10.0.0.1",
            ],
        ),
        (
            "an authority",
            &[
                "-subj",
                "/",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign",
            ],
        ),
        ("code signing", &["-subj", "/", "-addext", "extendedKeyUsage=codeSigning,OCSPSigning"]),
    ] {
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "key", "-nodes"];
        let csr = openssl(files.path(), &[&["req", "-new"], &curve[..], options].concat())?;
        let token = issued::token(&mesh.control, "shop", "cart").await?;
        let chain = client.create(Proof::token(&token), &csr, &[]).await??;
        std::fs::write(files.path().join("leaf"), &chain[0])?;
        let text = openssl(files.path(), &["x509", "-in", "leaf", "-noout", "-text"])?;
        assert!(text.contains("URI:spiffe://cluster.local/ns/shop/sa/cart"), "{what}: {text}");
        for wrong in ["istiod", "10.0.0.1", "admins", "CA:TRUE", "Certificate Sign", "CRL Sign", "Code Signing", "OCSP"]
        {
            assert!(!text.contains(wrong), "{what}: {wrong}: {text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_chooses_nothing_but_its_key() {
    contents().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn keys() -> Result<()> {
    let (mesh, root, _data) = control().await?;
    let files = tempfile::tempdir()?;
    let client = connect(&mesh.control, (&root, ISTIOD), None).await?;
    let ec = |curve: &'static str| ["-algorithm", "EC", "-pkeyopt", curve];
    for (what, options, accepted) in [
        ("P-256", &ec("ec_paramgen_curve:prime256v1")[..], true),
        ("P-384", &ec("ec_paramgen_curve:secp384r1"), true),
        ("RSA of 2,048 bits", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], true),
        ("RSA of 1,024 bits", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], false),
        ("RSA of 512 bits", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:512"], false),
        ("P-224", &ec("ec_paramgen_curve:secp224r1"), false),
        ("secp256k1", &ec("ec_paramgen_curve:secp256k1"), false),
        ("Ed25519", &["-algorithm", "ED25519"], false),
    ] {
        let generated = openssl(files.path(), &[&["genpkey", "-out", "key"], options].concat());
        if let Err(error) = generated {
            // Some versions of openssl refuse to create such a key.
            assert!(!accepted, "{what}: {error}");
            continue;
        }
        let csr = openssl(files.path(), &["req", "-new", "-key", "key", "-subj", "/"])?;
        let token = issued::token(&mesh.control, "shop", "cart").await?;
        match client.create(Proof::token(&token), &csr, &[]).await? {
            Ok(_) => assert!(accepted, "{what} is accepted"),
            Err(status) => {
                assert!(!accepted && status.code() == Code::InvalidArgument, "{what}: {status:?}");
            }
        }
    }
    // Requests with another key than the one that signed them, and with none.
    let (mine, other) = (Key::new()?.request(&[])?, Key::new()?.request(&[])?);
    let half = mine.len() / 2;
    let mixed = format!("{}{}", &mine[..half], &other[half..]);
    for csr in [mixed.as_str(), "", "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n", &root] {
        let token = issued::token(&mesh.control, "shop", "cart").await?;
        let status = client.create(Proof::token(&token), csr, &[]).await?.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{csr}: {status:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weak_and_foreign_keys_get_no_certificate() {
    keys().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn tokens() -> Result<()> {
    let (mesh, root, _data) = control().await?;
    let (control, csr) = (&mesh.control, Key::new()?.request(&[])?);
    let token = issued::token(control, "shop", "cart").await?;
    // Many present it at once, each over a connection of its own: one succeeds.
    let clients = futures::future::try_join_all((0..16).map(|_| connect(control, (&root, ISTIOD), None))).await?;
    let calls = clients.iter().map(|client| client.create(Proof::token(&token), &csr, &[]));
    let answers = futures::future::try_join_all(calls).await?;
    let (good, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(std::result::Result::is_ok);
    assert_eq!(good.len(), 1);
    assert!(refused.iter().all(|answer| answer.as_ref().is_err_and(|status| status.code() == Code::Unauthenticated)));

    let client = connect(control, (&root, ISTIOD), None).await?;
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let fresh = issued::token(control, "shop", "cart").await?;
    let parts: Vec<&str> = fresh.split('.').collect();
    let deleted = issued::token(control, "shop", "cart").await?;
    done(&kubeconfig, &["token", "delete", deleted.split('.').nth(1).ok_or("no id")?], "").await?;
    let last = if fresh.ends_with('a') { "b" } else { "a" };
    let forged = [
        ("used", token.clone()),
        ("deleted", deleted),
        ("with the secret of another", fresh.replace(parts[1], token.split('.').nth(1).ok_or("no id")?)),
        ("without a secret", parts[..2].join(".")),
        ("with an empty secret", format!("{}.", parts[..2].join("."))),
        ("with a changed secret", format!("{}{last}", &fresh[..fresh.len() - 1])),
        ("with a longer secret", format!("{fresh}a")),
        ("of another store", fresh.replace(parts[1], "../../secrets")),
    ];
    for (what, token) in &forged {
        let status = client.create(Proof::token(token), &csr, &[]).await?.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{what}: {status:?}");
        assert_eq!(status.message(), "request authenticate failure", "{what}: no reason is disclosed");
        let stream = code(client.subscribe(Proof::token(token), ("shop", "cart")).await?).await;
        assert_eq!(stream, Code::Unauthenticated, "{what}");
    }
    // A token is not used up by attempts with a wrong secret.
    client.create(Proof::token(&fresh), &csr, &[]).await??;
    let log = control.log()?;
    for token in [&token, &fresh] {
        assert!(!log.contains(token.rsplit('.').next().ok_or("no secret")?), "a token is in the log");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_and_forged_join_tokens_are_worthless() {
    tokens().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A certificate that a workload signs with its own, followed by its own.
fn signed_by_workload(files: &Path, (chain, key): &Identity) -> Result<Identity> {
    std::fs::write(files.join("chain"), chain)?;
    std::fs::write(files.join("key"), key)?;
    std::fs::write(files.join("names"), "subjectAltName=URI:spiffe://cluster.local/ns/istio-system/sa/istiod\n")?;
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "own", "-nodes"];
    openssl(files, &[&["req", "-new", "-subj", "/CN=a", "-out", "request"], &curve[..]].concat())?;
    let sign = ["x509", "-req", "-in", "request", "-CA", "chain", "-CAkey", "key", "-extfile", "names", "-days", "1"];
    let forged = openssl(files, &sign)?;
    Ok((format!("{forged}{chain}"), std::fs::read_to_string(files.join("own"))?))
}

async fn certificates() -> Result<()> {
    let strict = peers("default", "mtls: { mode: STRICT }");
    let pair = Issued::start(Protocol::Delta, "HTTP", &[("peers.yaml", &strict)], &[]).await?;
    let (control, root) = (&pair.mesh.control, pair.root().await?);
    let (files, csr) = (tempfile::tempdir()?, Key::new()?.request(&[])?);
    let own = pair.caller.identity();
    let stranger = Authority::new("mesh")?.workload("spiffe://cluster.local/ns/test/sa/client")?;
    let keyless = (own.0.clone(), Member::join(control, "test", "other").await?.identity().1);
    let forged = signed_by_workload(files.path(), &own)?;
    for (what, identity) in [("signed by a workload", &forged), ("of another authority", &stranger)] {
        let answer = Ask::new("GET /").by(identity).send(pair.entrance()).await?;
        assert_eq!(answer.status, 0, "{what}: {answer:?}");
        let address = control.secure();
        // With TLS 1.3, the client learns after its own part of the handshake that it is refused.
        if let Ok(client) = Client::connect(address, (&root, ISTIOD), Some((&identity.0, &identity.1))).await {
            assert!(!matches!(client.create(Proof::default(), &csr, &[]).await, Ok(Ok(_))), "{what}");
            let stream = client.subscribe(Proof::default(), ("test", "client")).await;
            assert!(!matches!(stream, Ok(Ok(_))), "{what}");
        }
    }
    // A certificate without its key.
    let refused = Client::connect(control.secure(), (&root, ISTIOD), Some((&keyless.0, &keyless.1))).await;
    let used = match refused {
        Err(_) => false,
        Ok(client) => matches!(client.create(Proof::default(), &csr, &[]).await, Ok(Ok(_))),
    };
    assert!(!used, "a certificate without its key");
    // The right one, as somebody else.
    let connected = connect(control, (&root, ISTIOD), Some((&own.0, &own.1))).await?;
    for claims in [("test", "web"), ("istio-system", "client"), ("other", "client"), ("", "client")] {
        let answer = code(connected.subscribe(Proof::default(), claims).await?).await;
        assert!(matches!(answer, Code::PermissionDenied | Code::InvalidArgument), "{claims:?}: {answer:?}");
    }
    assert_eq!(code(connected.subscribe(Proof::default(), ("test", "client")).await?).await, Code::Ok);
    let reached = || async { pair.get().await.ok().filter(|answer| answer.status.is_success()).map(drop) };
    wait_for("an answer after the attacks", PATIENCE, reached).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_sign_nothing_and_are_nobody_else() {
    certificates().await.unwrap_or_else(|error| panic!("{error}"));
}
