//! A real Envoy behind the relay.
#![allow(clippy::unwrap_used)]

mod fake;

use std::net::{Ipv4Addr, SocketAddr};

use agent_core::exchange::Health;
use fake::ads::{Ads, Seen};
use fake::{HEALTH, LISTENERS, NAMES, PATIENCE, ROOTS, Running, envoy_binary, rutter, until};
use protos::istio::networking::nds::v1::NameTable;
use protos::istio::networking::nds::v1::name_table::NameInfo;
use protos::{Any, any};
use serde_json::json;
use test_harness::run::{ConfigDir, Control, Envoy, Node, Protocol, free_port, http};

const BOTH: [Protocol; 2] = [Protocol::Sotw, Protocol::Delta];

fn listener(port: u16, text: &str) -> Any {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "s",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": text}}},
        ]}]},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    let listener = json!({
        "name": "l",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    });
    protos::pack_json("envoy.config.listener.v3.Listener", &listener).unwrap()
}

fn names(host: &str) -> Any {
    let info = NameInfo { ips: vec!["10.0.0.1".to_owned()], ..NameInfo::default() };
    any(&NameTable { table: [(host.to_owned(), info)].into() })
}

/// A ProxyConfig with these trust roots.
fn roots(certificates: &[&str]) -> Any {
    let config = json!({"caCertificatesPem": certificates});
    let typed = protos::pack_json("istio.mesh.v1alpha1.ProxyConfig", &config);
    typed.unwrap()
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap().pem()
}

async fn body(port: u16) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    http::get(address, "/", &[]).await.ok().map(|response| response.text())
}

/// The order of the first requests of each type after the one for listeners.
fn own_order(requests: &[Seen], stream: usize) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    for seen in requests.iter().filter(|seen| seen.stream == stream) {
        if [LISTENERS, NAMES, ROOTS, HEALTH].contains(&&*seen.type_url) && !types.contains(&seen.type_url) {
            types.push(seen.type_url.clone());
        }
    }
    types
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_configured_and_the_agent_handles_its_own_types() {
    for protocol in BOTH {
        let (port, pem) = (free_port(), certificate());
        let ads = Ads::start().await;
        let set = |ads: &Ads, text: &str| {
            ads.set(LISTENERS, vec![("l", listener(port, text))]);
            ads.set(NAMES, vec![("", names(text))]);
            ads.set(ROOTS, vec![("", roots(&[&pem]))]);
        };
        set(&ads, "one");
        let relay = Running::start(ads.address, |settings| (settings.names, settings.roots) = (true, true));
        relay.health.send_replace(Health::Healthy);
        let node = Node::sidecar("a", "b", "10.0.0.9", &[]);
        let envoy = Envoy::start(&envoy_binary(), &node, protocol, relay.socket().as_path()).await.unwrap();
        until("the first response", Some(&envoy), async || body(port).await.filter(|body| body == "one")).await;
        until("the name table", None, async || relay.names.borrow().as_ref()?.table.contains_key("one").then_some(()))
            .await;
        until("the roots", None, async || (**relay.roots.borrow() == [pem.clone()]).then_some(())).await;
        until("the health", None, async || (ads.requests(HEALTH).len() == 1).then_some(())).await;
        assert_eq!(own_order(&ads.requests(""), 1), [LISTENERS, NAMES, ROOTS, HEALTH]);
        let expected = if protocol == Protocol::Sotw { "v1" } else { "" };
        for type_url in [NAMES, ROOTS] {
            let ack = |seen: &Seen| seen.nonce == "n1" && seen.error.is_none() && seen.version == expected;
            until("an ACK", None, async || ads.requests(type_url).iter().any(ack).then_some(())).await;
        }
        let headers = &ads.headers()[0];
        assert_eq!(
            (&headers["authorization"], &headers["clusterid"], &headers["x-team"]),
            (&"Bearer secret".parse().unwrap(), &"east".parse().unwrap(), &"a".parse().unwrap(),)
        );

        // A ProxyConfig that is not valid is rejected, and the last one stays.
        ads.set(ROOTS, vec![("", roots(&["nonsense"]))]);
        let nack = |seen: &Seen| {
            seen.nonce == "n2" && seen.error.as_deref() == Some("caCertificatesPem[0] has no PEM certificate")
        };
        until("a NACK", None, async || ads.requests(ROOTS).iter().any(nack).then_some(())).await;
        assert_eq!(**relay.roots.borrow(), vec![pem.clone()]);

        // Health is reported when it changes, and after reconnecting.
        relay.health.send_replace(Health::Unhealthy { reason: "the probe failed".to_owned() });
        let report = |seen: &Seen| seen.error.as_deref() == Some("the probe failed");
        until("a report", None, async || ads.requests(HEALTH).iter().any(report).then_some(())).await;
        assert_eq!(*relay.relay.connected().borrow(), 1);
        let address = ads.address;
        drop(ads);
        until("the disconnect", None, async || (*relay.relay.connected().borrow() == 0).then_some(())).await;
        let ads = Ads::start_at(address).await;
        set(&ads, "two");
        until("the second response", Some(&envoy), async || body(port).await.filter(|body| body == "two")).await;
        until("the name table", None, async || relay.names.borrow().as_ref()?.table.contains_key("two").then_some(()))
            .await;
        until("a report", None, async || ads.requests(HEALTH).iter().any(report).then_some(())).await;
        let stream = ads.requests(HEALTH)[0].stream;
        assert_eq!(own_order(&ads.requests(""), stream), [LISTENERS, NAMES, ROOTS, HEALTH]);

        // The proxy saw only its own types.
        let log = envoy.log().unwrap();
        assert!(!log.contains("NameTable") && !log.contains("ProxyConfig"), "{log}");
        assert_eq!(envoy.stat("update_rejected$").await.unwrap(), 0);
        assert!(relay.metric("istiod_connection_terminations", "cancelled") >= 1.0);
        assert!(relay.metric("xds_proxy_requests", "") >= 8.0 && relay.metric("xds_proxy_responses", "") >= 6.0);
        drop(envoy);
        until("the end", None, async || {
            (relay.metric("envoy_connection_terminations", "cancelled") == 1.0).then_some(())
        })
        .await;
        relay.stop.send_replace(true);
        let socket = relay.socket();
        tokio::time::timeout(PATIENCE, relay.relay.stopped()).await.unwrap();
        assert!(!socket.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rutter_configures_a_proxy_through_the_relay_and_again_after_a_restart() {
    let Some(rutter) = rutter() else {
        eprintln!("skipped: build rutter first, or set RUTTER_BIN");
        return;
    };
    for protocol in BOTH {
        let config = ConfigDir::new().unwrap();
        let (port, second) = (free_port(), free_port());
        let entry = |name: &str, port: u16| {
            let spec = json!({"hosts": [format!("{name}.example.com")], "ports": [{"number": port, "name": "http", "protocol": "HTTP"}],
                "resolution": "STATIC", "location": "MESH_INTERNAL", "addresses": ["127.0.0.1"], "endpoints": [{"address": "10.9.9.9"}]});
            json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": name, "namespace": "b"}, "spec": spec})
                .to_string()
        };
        config.put("a.yaml", &entry("first", port)).unwrap();
        let mut control = Control::start(&rutter, config.path(), &[]).await.unwrap();
        let relay = Running::start(control.grpc(), |settings| settings.names = true);
        let node = Node::sidecar("a", "b", "10.0.0.9", &[]);
        let mut node = node;
        node.metadata["DNS_CAPTURE"] = "true".into();
        let envoy = Envoy::start(&envoy_binary(), &node, protocol, relay.socket().as_path()).await.unwrap();
        let has = async |host: &str, port: u16| {
            let cluster = envoy.endpoints(&format!("outbound|{port}||{host}")).await.ok()??;
            let named = relay.names.borrow().as_ref()?.table.contains_key(host);
            (cluster == [format!("10.9.9.9:{port}")] && named).then_some(())
        };
        until("the first service", Some(&envoy), async || has("first.example.com", port).await).await;
        control.kill().await.unwrap();
        until("the disconnect", None, async || (*relay.relay.connected().borrow() == 0).then_some(())).await;
        config.put("b.yaml", &entry("second", second)).unwrap();
        control.begin().await.unwrap();
        until("the second service", Some(&envoy), async || has("second.example.com", second).await).await;
        assert!(has("first.example.com", port).await.is_some());
        assert_eq!(envoy.stat("update_rejected$").await.unwrap(), 0);
    }
}
