//! Streams: the identity of their client, and their end when its certificate is not valid any more.

use std::sync::Arc;
use std::time::Duration;

use protos::Message as _;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use server::signing::Signing;
use server::{PageAccess, Security};

use crate::support::{CDS, Certified, Plane, SOTW, Setup, authority, certified, framed, identity, node, trust};

/// The status of a stream, or 0 if it is served.
async fn status(plane: &Plane, certified: Option<Certified>, token: Option<&str>, claims: (&str, &str)) -> u32 {
    let client = plane.client(certified).await.unwrap();
    let mut stream = client.subscribe(token, &node(claims.0, claims.1)).await.unwrap();
    match stream.next().await {
        Ok(message) => {
            assert_eq!(DiscoveryResponse::decode(message).unwrap().type_url, CDS);
            0
        }
        Err(answer) => answer.code,
    }
}

#[tokio::test]
async fn a_stream_needs_an_identity_that_is_that_of_its_node() {
    let plane = Plane::start().await;
    let cart = || Some(certified(&plane.authority, &identity("shop", "cart"), 0));
    for (what, certificate, token, claims, expected) in [
        ("no credentials", None, None, ("shop", "cart"), 16),
        ("a wrong token", None, Some("nonsense"), ("shop", "cart"), 16),
        ("a token", None, Some("shop/cart"), ("shop", "cart"), 0),
        ("a node without a service account", None, Some("shop/cart"), ("shop", ""), 0),
        ("a token, another namespace", None, Some("shop/cart"), ("bank", "cart"), 7),
        ("a token, another service account", None, Some("shop/cart"), ("shop", "admin"), 7),
        ("a certificate", cart(), None, ("shop", "cart"), 0),
        ("a certificate, another namespace", cart(), None, ("bank", "cart"), 7),
        ("a certificate goes before a token", cart(), Some("bank/vault"), ("bank", "vault"), 7),
    ] {
        assert_eq!(status(&plane, certificate, token, claims).await, expected, "{what}");
    }
    // A workload with an identity receives secrets.
    let client = plane.client(None).await.unwrap();
    let mut stream = client.subscribe(Some("shop/cart"), &node("shop", "cart")).await.unwrap();
    stream.next().await.unwrap();
    let (_, page) = plane.get(plane.server.addresses().monitoring, "/debug/syncz").await;
    assert!(page.contains("\"secrets\": \"served\""), "{page}");
}

#[tokio::test]
async fn the_checks_can_be_turned_off_and_then_nothing_is_proven() {
    let security = Security { check_identity: false, ..Security::default() };
    let plane = Plane::start_with(Setup { security, ..Setup::default() }).await;
    let client = plane.client(None).await.unwrap();
    let mut stream = client.subscribe(Some("shop/cart"), &node("bank", "vault")).await.unwrap();
    stream.next().await.unwrap();
    let (_, page) = plane.get(plane.server.addresses().monitoring, "/debug/syncz").await;
    assert!(page.contains("refused (--secrets-for)"), "{page}");
    let security = Security { authenticate_streams: false, ..Security::default() };
    let plane = Plane::start_with(Setup { security, ..Setup::default() }).await;
    assert_eq!(status(&plane, None, None, ("shop", "cart")).await, 0);
}

#[tokio::test]
async fn certificates_of_other_meshes_are_not_accepted() {
    let plane = Plane::start().await;
    let other = authority("other.example");
    let foreign = names::Identity::parse("spiffe://other.example/ns/shop/sa/cart").unwrap();
    let forged = certified(&other, &identity("shop", "cart"), 0);
    let of_other = certified(&other, &foreign, 0);
    for refused in [forged, of_other.clone()] {
        // With TLS 1.3, the client learns after its own part of the handshake that it is refused.
        let failed = match plane.client(Some(refused)).await {
            Err(_) => true,
            Ok(client) => client.connection.await.unwrap().is_err(),
        };
        assert!(failed);
    }
    // Even a mesh whose root is known has no namespaces here.
    let trust = Arc::new(trust(&plane.authority, &[("other.example", &other)]));
    plane.signing.send_modify(|signing| *signing = Arc::new(Signing { trust, ..(**signing).clone() }));
    assert_eq!(status(&plane, Some(of_other), None, ("shop", "cart")).await, 16);
}

#[tokio::test]
async fn a_stream_ends_when_its_certificate_expires_or_its_root_is_removed() {
    let plane = Plane::start().await;
    let short = certified(&plane.authority, &identity("shop", "cart"), 4);
    let client = plane.client(Some(short)).await.unwrap();
    let mut stream = client.subscribe(None, &node("shop", "cart")).await.unwrap();
    stream.next().await.unwrap();
    let long = certified(&plane.authority, &identity("shop", "cart"), 0);
    let lasting = plane.client(Some(long)).await.unwrap();
    let mut stays = lasting.subscribe(None, &node("shop", "cart")).await.unwrap();
    stays.next().await.unwrap();
    let ended = stream.end().await;
    assert_eq!(ended.code, 16, "{ended:?}");
    assert!(ended.text.contains("expired"), "{ended:?}");

    // A change of the issuer alone, or of other roots, ends nothing.
    let other = authority("other.example");
    let more = Arc::new(trust(&plane.authority, &[("other.example", &other)]));
    plane.signing.send_modify(|signing| *signing = Arc::new(Signing { trust: more, ..(**signing).clone() }));
    // The connection of the stream that ended may still be listed.
    let listed = async || plane.get(plane.server.addresses().monitoring, "/debug/connections").await.1;
    while !listed().await.contains("\"totalClients\": 1") {}
    let none = Arc::new(trust(&other, &[]));
    plane.signing.send_modify(|signing| *signing = Arc::new(Signing { trust: none, ..(**signing).clone() }));
    let ended = stays.end().await;
    assert_eq!(ended.code, 16, "{ended:?}");
    assert!(ended.text.contains("leads to no root"), "{ended:?}");
    tokio::time::timeout(Duration::from_secs(20), lasting.connection).await.expect("the connection ends").unwrap().ok();
}

/// Requests a debug type over xDS with a token.
async fn debug(plane: &Plane, token: &str, kind: &str, names: &[&str]) -> Result<DiscoveryResponse, (u32, String)> {
    let request = DiscoveryRequest {
        type_url: kind.into(),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    let client = plane.client(None).await.unwrap();
    let bearer = format!("Bearer {token}");
    let mut stream = client.open(SOTW, &[("authorization", &bearer)], framed(&request.encode_to_vec())).await.unwrap();
    match stream.next().await {
        Ok(message) => Ok(DiscoveryResponse::decode(message).unwrap()),
        Err(answer) => Err((answer.code, answer.text)),
    }
}

/// CVE-2026-31838: debug pages of other namespaces were readable for any workload, over HTTP and over xDS.
#[tokio::test]
async fn cve_2026_31838_debug_pages_do_not_cross_namespaces_over_xds() {
    let security = Security { pages: PageAccess::Namespaces(["tools".to_owned()].into()), ..Security::default() };
    let plane = Plane::start_with(Setup { security, ..Setup::default() }).await;
    let mut open = Vec::new();
    for namespace in ["shop", "bank"] {
        let client = plane.client(None).await.unwrap();
        let mut stream = client.subscribe(Some(&format!("{namespace}/a")), &node(namespace, "a")).await.unwrap();
        stream.next().await.unwrap();
        open.push((client, stream));
    }
    let text = |response: DiscoveryResponse| String::from_utf8(response.resources[0].value.to_vec()).unwrap();
    for (token, all) in [("shop/a", false), ("istio-system/istiod", true), ("tools/viewer", true)] {
        for page in
            ["syncz", "configz", "connections", "mesh", "registryz", "endpointz", "proxyconfigz?proxyID=a.shop", ""]
        {
            let code = debug(&plane, token, "istio.io/debug", &[page]).await.map_err(|error| error.0);
            assert_eq!(code.err(), (!all).then_some(7), "{token} {page}");
        }
        let own = debug(&plane, token, "istio.io/debug", &["config_dump?proxyID=a.shop"]).await.unwrap();
        assert!(text(own).contains("ClustersConfigDump"), "{token}");
        for page in
            ["config_dump?proxyID=a.bank", "edsz?proxyID=a.bank", "ndsz?proxyID=a.bank", "config_dump?proxyID=bank"]
        {
            let other = text(debug(&plane, token, "istio.io/debug", &[page]).await.unwrap());
            assert_eq!(other.starts_with("Proxy not connected"), !all, "{token} {page}: {other}");
        }
        let synced = debug(&plane, token, "istio.io/debug/syncz", &[]).await.unwrap();
        assert_eq!(synced.resources.len(), if all { 2 } else { 1 }, "{token}");
        let dump = debug(&plane, token, "istio.io/debug/config_dump", &["a.bank"]).await.map_err(|error| error.0);
        assert_eq!(dump.err(), (!all).then_some(5), "{token}");
    }
    let page = debug(&plane, "nonsense", "istio.io/debug", &["syncz"]).await.unwrap_err();
    assert_eq!(page.0, 16);
}

#[tokio::test]
async fn the_configuration_is_for_control_planes_of_the_root_namespace() {
    let plane = Plane::start().await;
    let mut node = node("shop", "a");
    let api = protos::Value { kind: Some(protos::value::Kind::StringValue("api".into())) };
    node.metadata.as_mut().unwrap().fields.insert("GENERATOR".to_owned(), api);
    let mesh = DiscoveryRequest { node: Some(node), type_url: "core/v1alpha1/MeshConfig".into(), ..Default::default() };
    for (token, expected) in [("shop/a", Some(7)), ("istio-system/a", None), ("nonsense", Some(16))] {
        let client = plane.client(None).await.unwrap();
        let bearer = format!("Bearer {token}");
        let mut stream = client.open(SOTW, &[("authorization", &bearer)], framed(&mesh.encode_to_vec())).await.unwrap();
        assert_eq!(stream.next().await.err().map(|answer| answer.code), expected, "{token}");
    }
}
