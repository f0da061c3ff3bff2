//! The certificate service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ca::{Code, Lifetimes};
use config::core::Pod;
use config::{Object, Resource as _};
use protos::istio::v1::auth::IstioCertificateRequest;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use server::signing::{ExternalError, ExternalIssuer, Issuer, Signing, SigningRequest};
use world::Batch;

use crate::support::{Certified, Plane, Setup, facts, identity, node, request};

fn wanted(csr: String) -> IstioCertificateRequest {
    IstioCertificateRequest { csr, ..Default::default() }
}

fn metadata(pairs: &[(&str, &str)]) -> Option<protos::Struct> {
    let value = |text: &str| protos::Value { kind: Some(protos::value::Kind::StringValue(text.to_owned())) };
    let fields = pairs.iter().map(|(name, text)| ((*name).to_owned(), value(text)));
    Some(protos::Struct { fields: fields.collect() })
}

#[tokio::test]
async fn a_workload_gets_a_certificate_for_its_identity_and_renews_it_with_the_certificate() {
    let plane = Plane::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let foreign = ["spiffe://cluster.local/ns/istio-system/sa/istiod", "https://bank.example"];
    let answer = plane.create("shop/cart", &wanted(request(&key, &foreign))).await;
    let chain = answer.chain();
    assert_eq!(chain.len(), 2, "the leaf, and the root as the last element");
    let (names, life) = facts(&chain[0]);
    assert_eq!(names, ["spiffe://cluster.local/ns/shop/sa/cart"], "the request chooses no names");
    assert!(life > Duration::from_secs(86_000) && life <= Duration::from_secs(86_400), "{life:?}");
    assert_eq!(chain[1], plane.authority.roots_pem());

    let certified = Certified {
        chain: vec![CertificateDer::from_pem_slice(chain[0].as_bytes()).unwrap()],
        key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
    };
    let client = plane.client(Some(certified)).await.unwrap();
    let renewed = client.create(None, &wanted(request(&rcgen::KeyPair::generate().unwrap(), &[]))).await;
    assert_eq!(facts(&renewed.chain()[0]).0, names);
    // Discovery is served on the same connection.
    client.subscribe(None, &node("shop", "cart")).await.unwrap().next().await.unwrap();
    assert_eq!(plane.metric("citadel_server_csr_count ").await, 2.0);
    assert_eq!(plane.metric("citadel_server_success_cert_issuance_count ").await, 2.0);
    assert!(plane.metric("citadel_server_root_cert_expiry_seconds ").await > 86_400.0 * 3_600.0);
}

#[tokio::test]
async fn lifetimes_are_bounded() {
    let day = Duration::from_secs(86_400);
    let lifetimes = Lifetimes { default: day / 2, maximum: day };
    let plane = Plane::start_with(Setup { lifetimes, ..Setup::default() }).await;
    let key = rcgen::KeyPair::generate().unwrap();
    for (seconds, expected) in
        [(0, Ok(43_200)), (-5, Ok(43_200)), (600, Ok(600)), (86_400, Ok(86_400)), (86_401, Err(3)), (i64::MAX, Err(3))]
    {
        let wanted = IstioCertificateRequest { validity_duration: seconds, ..wanted(request(&key, &[])) };
        let answer = plane.create("shop/cart", &wanted).await;
        match expected {
            Ok(life) => {
                let found = facts(&answer.chain()[0]).1.as_secs();
                assert!(found <= life && found + 30 > life, "{seconds}: {found}");
            }
            Err(code) => {
                assert_eq!(answer.code, code, "{seconds}");
                assert!(
                    answer.text.starts_with("CSR signing error (") && answer.text.contains("MAX_WORKLOAD_CERT_TTL")
                );
            }
        }
    }
}

#[tokio::test]
async fn requests_that_are_not_in_order_are_refused_with_istiods_codes() {
    let plane = Plane::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let good = request(&key, &[]);
    // A character of the key.
    let at = good.len() / 2;
    let other = if &good[at..=at] == "A" { "B" } else { "A" };
    let damaged = format!("{}{other}{}", &good[..at], &good[at + 1..]);
    for (what, token, csr, code, text) in [
        ("no token", "", good.clone(), 16, "request authenticate failure"),
        ("a wrong token", "a", good.clone(), 16, "request authenticate failure"),
        ("an empty request", "shop/cart", String::new(), 3, "CSR signing error ("),
        ("garbage", "shop/cart", "\u{0}".repeat(1000), 3, "CSR signing error ("),
        ("a damaged request", "shop/cart", damaged, 3, "CSR signing error ("),
        ("a certificate", "shop/cart", plane.authority.roots_pem().to_owned(), 3, "CSR signing error ("),
        ("a huge request", "shop/cart", format!("{good}{}", "\n".repeat(40_000)), 3, "CSR signing error ("),
        ("a huge message", "shop/cart", "a".repeat(50_000), 8, "a request of"),
        ("a weak key", "shop/cart", WEAK.to_owned(), 3, "CSR signing error ("),
    ] {
        let answer = plane.create(token, &wanted(csr)).await;
        assert_eq!(answer.code, code, "{what}: {answer:?}");
        assert!(answer.text.starts_with(text), "{what}: {answer:?}");
    }
    plane.signing.send_modify(|signing| {
        *signing = Arc::new(Signing { issuer: Issuer::Unavailable("no key".into()), ..(**signing).clone() });
    });
    let answer = plane.create("shop/cart", &wanted(good)).await;
    assert_eq!((answer.code, &*answer.text), (13, "CSR signing error (the certificate authority is not ready)"));
    assert_eq!(plane.metric("citadel_server_authentication_failure_count ").await, 2.0);
    assert_eq!(plane.metric("citadel_server_csr_parsing_err_count ").await, 6.0);
    assert_eq!(plane.metric("citadel_server_csr_sign_err_count{error=\"CA_NOT_READY\"} ").await, 1.0);
}

/// A request with an RSA key of 1,024 bits, made with `openssl req -new -newkey rsa:1024`.
const WEAK: &str = include_str!("weak.csr");

/// Pods of a node agent and of workloads.
async fn pods(plane: &Plane) {
    let pod = |namespace: &str, name: &str, account: &str, node: &str| {
        let spec = Pod { service_account_name: account.into(), node_name: node.into(), ..Pod::default() };
        let mut object = Object::new(namespace, name, spec);
        object.meta.uid = format!("uid-{name}").into();
        Pod::into_any(Arc::new(object))
    };
    let mut batch = Batch::new();
    batch.put(pod("istio-system", "ztunnel-1", "ztunnel", "n1"));
    batch.put(pod("shop", "cart-1", "cart", "n1"));
    batch.put(pod("bank", "vault-1", "vault", "n2"));
    batch.put(pod("shop", "imitation", "cart", "n1"));
    plane.world.commit(batch).await.unwrap();
    plane.world.wanted_names().await.unwrap();
}

#[tokio::test]
async fn a_node_agent_gets_certificates_of_pods_on_its_node() {
    let plane = Plane::start().await;
    pods(&plane).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let cart = "spiffe://cluster.local/ns/shop/sa/cart";
    let ask = async |token: &str, asked: &str| {
        let csr = request(&key, &[asked]);
        let metadata = metadata(&[("ImpersonatedIdentity", asked), ("Other", "x")]);
        plane.create(token, &IstioCertificateRequest { metadata, ..wanted(csr) }).await
    };
    let answer = ask("istio-system/ztunnel/ztunnel-1", cart).await;
    assert_eq!(facts(&answer.chain()[0]).0, [cart]);
    for (what, token, asked) in [
        ("a pod on another node", "istio-system/ztunnel/ztunnel-1", "spiffe://cluster.local/ns/bank/sa/vault"),
        ("no pod", "istio-system/ztunnel/ztunnel-1", "spiffe://cluster.local/ns/shop/sa/admin"),
        ("another mesh", "istio-system/ztunnel/ztunnel-1", "spiffe://other.example/ns/shop/sa/cart"),
        ("no identity", "istio-system/ztunnel/ztunnel-1", "cart"),
        ("an account that is not trusted", "shop/cart/imitation", cart),
        ("a pod that was deleted", "istio-system/ztunnel/ztunnel-0", cart),
        ("a pod with another service account", "istio-system/ztunnel/cart-1", cart),
        ("a token that is not bound to a pod", "istio-system/ztunnel", cart),
    ] {
        let answer = ask(token, asked).await;
        assert_eq!(answer.code, 16, "{what}: {answer:?}");
        assert!(
            answer.text.starts_with("request ") && answer.text.ends_with("authenticate failure")
                || answer.text.ends_with("authentication failure"),
            "{what}: {answer:?}"
        );
        assert!(!answer.text.contains("node"), "{what}: the reason is for the log");
    }
    assert_eq!(plane.metric("citadel_server_id_extraction_err_count ").await, 8.0);
}

#[tokio::test]
async fn a_client_certificate_does_not_impersonate() {
    let plane = Plane::start().await;
    pods(&plane).await;
    let certified = crate::support::certified(&plane.authority, &identity("istio-system", "ztunnel"), 0);
    let client = plane.client(Some(certified)).await.unwrap();
    let csr = request(&rcgen::KeyPair::generate().unwrap(), &[]);
    let metadata = metadata(&[("ImpersonatedIdentity", "spiffe://cluster.local/ns/shop/sa/cart")]);
    let answer = client.create(None, &IstioCertificateRequest { metadata, ..wanted(csr) }).await;
    assert_eq!((answer.code, &*answer.text), (16, "request impersonation authentication failure"));
}

/// Records the request, and refuses signers that it does not know.
struct Elsewhere;

#[async_trait]
impl ExternalIssuer for Elsewhere {
    async fn sign(&self, request: &SigningRequest) -> Result<Vec<String>, ExternalError> {
        match request.signer.as_deref() {
            Some("example.com/a") => {
                Ok(vec![format!("{:?} {:?}", request.identities, request.lifetime), "roots".to_owned()])
            }
            other => Err(ExternalError {
                code: Code::InvalidArgument,
                message: format!("no signer {other:?}"),
                label: "CERT_GEN_ERROR",
            }),
        }
    }
}

#[tokio::test]
async fn another_authority_signs_what_was_checked() {
    let plane = Plane::start().await;
    plane.signing.send_modify(|signing| {
        *signing = Arc::new(Signing { issuer: Issuer::External(Arc::new(Elsewhere)), ..(**signing).clone() });
    });
    let csr = request(&rcgen::KeyPair::generate().unwrap(), &[]);
    let ask = async |csr: &str, signer: &str| {
        let metadata = metadata(&[("CertSigner", signer)]);
        plane.create("shop/cart", &IstioCertificateRequest { metadata, ..wanted(csr.to_owned()) }).await
    };
    let chain = ask(&csr, "example.com/a").await.chain();
    assert_eq!(chain, [format!("{:?} 86400s", [identity("shop", "cart")]), "roots".to_owned()]);
    let refused = ask(&csr, "example.com/b").await;
    assert_eq!((refused.code, &*refused.text), (3, "CSR signing error (no signer Some(\"example.com/b\"))"));
    assert_eq!(ask("garbage", "example.com/a").await.code, 3, "it is not forwarded");
}

#[tokio::test]
async fn certificates_are_issued_on_the_tls_port_only() {
    let plane = Plane::start().await;
    let (_, page) = plane.get(plane.server.addresses().http, "/ready").await;
    assert!(page.starts_with("ready"), "{page}");
    let socket = tokio::net::TcpStream::connect(plane.server.addresses().grpc).await.unwrap();
    let (mut send, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(socket),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://rutter{}", crate::support::CREATE))
        .header("content-type", "application/grpc")
        .header("authorization", "Bearer shop/cart")
        .body(http_body_util::Full::new(crate::support::framed(b"")))
        .unwrap();
    let response = send.send_request(request).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
}
