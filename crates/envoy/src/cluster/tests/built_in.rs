//! Clusters without a service.

use super::*;

fn inbound(protocol: Protocol, endpoint: Option<DefaultEndpoint>, ip: IpFamilies, mesh: &str) -> Value {
    testing::json::<Cluster>(&special::inbound(&special::Inbound {
        port: 8080,
        protocol,
        endpoint: endpoint.as_ref(),
        ip,
        mesh: &testing::mesh(mesh),
        pool: None,
        service: None,
        rule: None,
    }))
}

#[test]
fn inbound_passthrough_connects_to_the_original_destination() {
    let cluster = inbound(Protocol::Http, None, IpFamilies::Dual, "");
    check(
        &cluster,
        &[
            ("name", json!("inbound|8080||")),
            ("altStatName", json!("inbound|8080||;")),
            ("type", json!("ORIGINAL_DST")),
            ("lbPolicy", json!("CLUSTER_PROVIDED")),
            ("cleanupInterval", json!("9223372035s")),
            ("upstreamBindConfig.sourceAddress", json!({"address": "127.0.0.6", "portValue": 0})),
            ("upstreamBindConfig.extraSourceAddresses[0].address", json!({"address": "::6", "portValue": 0})),
            ("circuitBreakers.thresholds[0].maxConnections", json!(u32::MAX)),
            ("typedExtensionProtocolOptions", Value::Null),
        ],
    );
    let six = inbound(Protocol::Grpc, None, IpFamilies::V6, "");
    assert_eq!(at(&six, "upstreamBindConfig.sourceAddress.address"), "::6");
    assert_eq!(http(&six)["explicitHttpConfig"], json!({"http2ProtocolOptions": {}}));
    assert!(http(&inbound(Protocol::Unsupported, None, IpFamilies::V4, ""))["useDownstreamProtocolConfig"].is_object());
}

#[test]
fn inbound_clusters_connect_to_the_applications_port() {
    let address = "loadAssignment.endpoints[0].lbEndpoints[0].endpoint.address";
    let case = |endpoint, mesh| inbound(Protocol::Http, endpoint, IpFamilies::V4, mesh);
    check(
        &case(Some(DefaultEndpoint::Loopback { port: 9090, v6: false }), ""),
        &[
            ("type", json!("STATIC")),
            (address, json!({"socketAddress": {"address": "127.0.0.1", "portValue": 9090}})),
            ("upstreamBindConfig", Value::Null),
        ],
    );
    check(
        &case(Some(DefaultEndpoint::Unix("unix:///a.sock".into())), ""),
        &[(address, json!({"pipe": {"path": "/a.sock"}}))],
    );
    check(
        &case(Some(DefaultEndpoint::Instance(9090)), ""),
        &[("type", json!("ORIGINAL_DST")), ("originalDstLbConfig", json!({"upstreamPortOverride": 9090}))],
    );
    check(
        &case(None, "inboundTrafficPolicy: {mode: LOCALHOST}"),
        &[(address, json!({"socketAddress": {"address": "127.0.0.1", "portValue": 8080}}))],
    );
}

#[test]
fn passthrough_and_black_hole_clusters() {
    let mesh = testing::mesh("");
    let cluster = testing::json::<Cluster>(&special::passthrough(&mesh));
    check(
        &cluster,
        &[
            ("name", json!("PassthroughCluster")),
            ("altStatName", json!("PassthroughCluster;")),
            ("type", json!("ORIGINAL_DST")),
            ("lbPolicy", json!("CLUSTER_PROVIDED")),
            ("circuitBreakers.thresholds[0].maxRequests", json!(u32::MAX)),
        ],
    );
    assert_eq!(at(http(&cluster), "commonHttpProtocolOptions.idleTimeout"), "300s");
    let inbound = testing::json::<Cluster>(&special::inbound_passthrough(&mesh, IpFamilies::V4));
    check(
        &inbound,
        &[
            ("name", json!("InboundPassthroughCluster")),
            ("upstreamBindConfig.sourceAddress.address", json!("127.0.0.6")),
        ],
    );
    let nowhere = testing::json::<Cluster>(&special::black_hole(&mesh));
    assert_eq!(
        nowhere,
        json!({"name": "BlackHoleCluster", "altStatName": "BlackHoleCluster;", "type": "STATIC", "connectTimeout": "10s"})
    );
}
