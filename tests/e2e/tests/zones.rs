//! Zone-aware load balancing: the proxy keeps requests in its zone unless this overloads the zone.

use std::net::{IpAddr, SocketAddr};

use e2e::objects::networking;
use e2e::{Mesh, both_protocols, envoy_binary};
use serde_json::json;
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port};

/// Pods of the client's workload, one in each zone; the proxy runs beside the first.
const CLIENTS: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 6]];

/// The client's workload in the first zone and optionally the second: its service, pods and nodes.
fn clients(port: u16, zones: usize) -> String {
    let mut objects = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: client, namespace: test }}\n\
         spec: {{ clusterIP: 198.19.0.30, selector: {{ app: client }}, ports: [{{ name: http, port: {port}, targetPort: {port} }}] }}\n"
    );
    let mut endpoints = Vec::new();
    for (number, address) in CLIENTS.iter().enumerate().take(zones) {
        let (ip, zone) = (IpAddr::from(*address), format!("z{number}"));
        objects += &format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{ name: n{number}, labels: {{ \
             topology.kubernetes.io/region: r, topology.kubernetes.io/zone: {zone} }} }}\n\
             ---\napiVersion: v1\nkind: Pod\nmetadata: {{ name: client-5f6-aaaa{number}, namespace: test, \
             labels: {{ app: client, pod-template-hash: 5f6 }} }}\nspec: {{ nodeName: n{number} }}\n\
             status: {{ podIP: {ip}, phase: Running, conditions: [{{ type: Ready, status: \"True\" }}] }}\n"
        );
        endpoints.push(format!(
            "{{ addresses: [{ip}], nodeName: n{number}, \
             targetRef: {{ kind: Pod, name: client-5f6-aaaa{number}, namespace: test }} }}"
        ));
    }
    objects
        + &format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{ name: client-a, namespace: test, \
             labels: {{ kubernetes.io/service-name: client }} }}\naddressType: IPv4\n\
             ports: [{{ name: http, port: {port}, protocol: TCP }}]\nendpoints: [{}]\n",
            endpoints.join(", ")
        )
}

/// The service with these endpoints, each in a zone.
fn shop(port: u16, endpoints: &[(SocketAddr, usize)]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|(at, zone)| format!("{{ address: {}, ports: {{ http: {} }}, locality: r/z{zone} }}", at.ip(), at.port()))
        .collect();
    let spec = format!(
        "hosts: [shop.test], location: MESH_INTERNAL, resolution: STATIC, \
         ports: [{{ number: {port}, name: http, protocol: HTTP }}], endpoints: [{}]",
        endpoints.join(", ")
    );
    networking("ServiceEntry", "shop", &spec)
}

/// A sidecar that knows the other instances of its own workload.
async fn client(mesh: &Mesh, protocol: Protocol) -> Result<Envoy> {
    let ip = IpAddr::from(CLIENTS[0]).to_string();
    let labels = [("app", "client"), ("pod-template-hash", "5f6")];
    let mut node = Node::sidecar("client-5f6-aaaa0", "test", &ip, &labels);
    node.metadata["ENABLE_SELF_DISCOVERY"] = "true".into();
    node.metadata["WORKLOAD_NAME"] = "client".into();
    node.locality = json!({ "region": "r", "zone": "z0" });
    let mut bootstrap = Envoy::bootstrap(&node, protocol, mesh.control.grpc());
    bootstrap["cluster_manager"] = json!({ "local_cluster_name": "local_cluster" });
    let own = json!({
        "name": "local_cluster",
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": { "service_name": "local_cluster", "eds_config": { "ads": {}, "resource_api_version": "V3" } },
    });
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(own);
    }
    Envoy::start_with(envoy_binary(), &bootstrap).await
}

/// The first zone's share of requests, within four standard deviations of a random choice.
async fn assert_near(traffic: &Traffic, wanted: f64) -> Result<()> {
    traffic.next(20).await?; // under way during a change
    let counts = traffic.next(600).await?;
    let allowed = 4.0 * (wanted * (1.0 - wanted) / counts.requests as f64).sqrt();
    let share = counts.share("z0");
    assert!((share - wanted).abs() <= allowed, "{share:.3} instead of {wanted} stay in the zone: {counts:?}");
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}

both_protocols! {
    async fn requests_stay_in_their_zone_as_far_as_there_is_room(protocol) {
        let mut backends = Vec::new();
        for (zone, name) in [("z0", "a"), ("z0", "b"), ("z1", "c"), ("z1", "d"), ("z1", "e")] {
            backends.push(Backend::start(zone, name).await?);
        }
        let at = |numbers: &[usize]| -> Vec<(SocketAddr, usize)> {
            numbers.iter().map(|number| (backends[*number].address(), usize::from(*number > 1))).collect()
        };
        let (port, own) = (free_port(), free_port());
        let rule = networking("DestinationRule", "shop", "host: shop.test, trafficPolicy: { tls: { mode: DISABLE }, \
            outlierDetection: { consecutive5xxErrors: 5 }, loadBalancer: { zoneAwareLbSetting: { minClusterSize: 1 } } }");
        let mesh = Mesh::start(&[
            ("clients.yaml", &clients(own, 2)),
            ("shop.yaml", &shop(port, &at(&[0, 1, 2, 3]))),
            ("rule.yaml", &rule),
        ]).await?;
        let client = client(&mesh, protocol).await?;
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        client.wait_for_listener(address).await?;
        let instances = async |zones: usize| {
            let addresses: Vec<String> = CLIENTS.iter().take(zones).map(|ip| format!("{}:{own}", IpAddr::from(*ip))).collect();
            mesh.wait_for_endpoints(&client, "local_cluster", &addresses).await
        };
        let endpoints = async |numbers: &[usize]| {
            let addresses: Vec<String> = at(numbers).iter().map(|(at, _)| at.to_string()).collect();
            mesh.wait_for_endpoints(&client, &format!("outbound|{port}||shop.test"), &addresses).await
        };
        instances(2).await?;
        // Half of the clients and half of the endpoints are in the zone.
        let traffic = Traffic::start(address, "/", &[("host", "shop.test")], 500, 8);
        assert_near(&traffic, 1.0).await?;
        // A quarter of the endpoints cannot serve half of the requests: every second one goes elsewhere.
        mesh.config.put("shop.yaml", &shop(port, &at(&[0, 2, 3, 4])))?;
        endpoints(&[0, 2, 3, 4]).await?;
        assert_near(&traffic, 0.5).await?;
        // Now all clients are in the zone.
        mesh.config.put("clients.yaml", &clients(own, 1))?;
        instances(1).await?;
        assert_near(&traffic, 0.25).await?;
        assert_eq!(traffic.stop().await.errors, 0);
    }
}
