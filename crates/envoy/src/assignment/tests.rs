//! The encoding compared to that of prost, and the endpoints that are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::service::ObjectId;
use protos::Message;
use protos::envoy::config::core::v3 as core;
use protos::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use protos::envoy::config::endpoint::v3::{self as eds, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use protos::{Struct, Value, value::Kind};

use super::*;

const HTTP: Selection<'_> = Selection {
    port_name: "http",
    labels: None,
    unhealthy: true,
    draining: false,
    dns: false,
    single: false,
    own: None,
    view: None,
    mutual_tls: None,
    only_mutual_tls: false,
};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn endpoint(address: &str, locality: &str) -> Endpoint {
    let ip = address.parse().map(EndpointAddress::Ip);
    let named = || match address.strip_prefix("unix://") {
        Some(path) => EndpointAddress::Unix(path.into()),
        None => EndpointAddress::Hostname(address.into()),
    };
    Endpoint {
        address: ip.unwrap_or_else(|_| named()),
        also: None,
        cluster: "Kubernetes".into(),
        mutual_tls: false,
        own_cluster: false,
        ports: Arc::new(BTreeMap::from([("http".into(), 8080), ("tcp".into(), 9000)])),
        labels: Arc::new(labels(&[("app", "reviews"), ("version", "v1")])),
        locality: Locality::parse(locality),
        weight: 1,
        network: "".into(),
        service_account: "".into(),
        health: Health::Healthy,
        node: "".into(),
        workload: Some(ObjectId { namespace: "shop".into(), name: "reviews-v1".into() }),
    }
}

fn decode(bytes: Bytes) -> ClusterLoadAssignment {
    ClusterLoadAssignment::decode(bytes).unwrap()
}

fn run(endpoints: &[Endpoint], selection: Selection<'_>) -> ClusterLoadAssignment {
    let (bytes, count) = encode("outbound|80||reviews", endpoints, selection, None, Preference::Equal);
    let assignment = decode(bytes);
    assert_eq!(count, assignment.endpoints.iter().map(|group| group.lb_endpoints.len()).sum::<usize>());
    assignment
}

fn socket(address: &str, port: u32) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: address.to_owned(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

fn want_endpoint(address: core::Address, health: core::HealthStatus, weight: u32, workload: &str) -> LbEndpoint {
    let text = Value { kind: Some(Kind::StringValue(workload.to_owned())) };
    let istio = Struct { fields: [("workload".to_owned(), text)].into() };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(eds::Endpoint { address: Some(address), ..Default::default() })),
        health_status: health.into(),
        metadata: Some(core::Metadata { filter_metadata: [("istio".to_owned(), istio)].into(), ..Default::default() }),
        load_balancing_weight: Some(weight),
    }
}

#[test]
fn bytes_equal_those_of_prost() {
    let mut endpoints: Vec<Endpoint> = (0..300u16)
        .map(|n| {
            endpoint(&format!("10.0.{}.{}", n / 256, n % 256), ["r1/z1/s1", "r1/z2", "r2", ""][usize::from(n % 4)])
        })
        .collect();
    endpoints.push(endpoint("2001:db8::7", "r1/z2"));
    endpoints.push(endpoint("unix:///var/run/app.sock", ""));
    endpoints[5].health = Health::Unhealthy;
    endpoints[6].weight = 4_000_000_000;
    endpoints[10].weight = 4_000_000_000;
    endpoints[7].weight = 0;
    let (bytes, _) = encode("outbound|80||reviews", &endpoints, HTTP, None, Preference::Equal);

    let mut names = ["", "r1/z1/s1", "r1/z2", "r2"].into_iter();
    let mut want = ClusterLoadAssignment { cluster_name: "outbound|80||reviews".to_owned(), ..Default::default() };
    for locality in names.by_ref().map(Locality::parse) {
        let members = endpoints.iter().filter(|e| e.locality == locality);
        let lb_endpoints: Vec<LbEndpoint> = members
            .map(|e| {
                let address = match &e.address {
                    EndpointAddress::Ip(ip) => socket(&ip.to_string(), 8080),
                    EndpointAddress::Hostname(name) => socket(name, 8080),
                    EndpointAddress::Unix(path) => core::Address {
                        address: Some(core::address::Address::Pipe(core::Pipe { path: path.to_string(), mode: 0 })),
                    },
                };
                let health = match e.health {
                    Health::Healthy => core::HealthStatus::Healthy,
                    Health::Unhealthy => core::HealthStatus::Unhealthy,
                    Health::Draining => core::HealthStatus::Draining,
                };
                want_endpoint(address, health, e.weight.max(1), "reviews-v1;shop;reviews;v1;Kubernetes")
            })
            .collect();
        let weight = lb_endpoints.iter().fold(0u32, |sum, e| sum.saturating_add(e.load_balancing_weight.unwrap()));
        want.endpoints.push(LocalityLbEndpoints {
            locality: Some(core::Locality {
                region: locality.region.to_string(),
                zone: locality.zone.to_string(),
                sub_zone: locality.sub_zone.to_string(),
            }),
            lb_endpoints,
            load_balancing_weight: Some(weight),
            ..Default::default()
        });
    }
    assert_eq!(decode(bytes.clone()), want);
    assert_eq!(bytes, want.encode_to_vec());
}

#[test]
fn only_endpoints_with_the_port_and_the_labels_are_sent() {
    let mut other = endpoint("10.0.0.2", "");
    other.ports = Arc::new(BTreeMap::from([("tcp".into(), 9000)]));
    let mut second = endpoint("10.0.0.3", "");
    second.labels = Arc::new(labels(&[("app", "reviews"), ("version", "v2")]));
    let endpoints = [endpoint("10.0.0.1", ""), other, second];
    let addresses = |assignment: ClusterLoadAssignment| -> Vec<(String, u32)> {
        let all = assignment.endpoints.into_iter().flat_map(|group| group.lb_endpoints);
        all.map(|e| match e.host_identifier.unwrap() {
            HostIdentifier::Endpoint(e) => match e.address.unwrap().address.unwrap() {
                core::address::Address::SocketAddress(a) => match a.port_specifier.unwrap() {
                    core::socket_address::PortSpecifier::PortValue(port) => (a.address, port),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect()
    };
    let pairs =
        |list: &[(&str, u32)]| -> Vec<(String, u32)> { list.iter().map(|(a, p)| ((*a).to_owned(), *p)).collect() };
    assert_eq!(addresses(run(&endpoints, HTTP)), pairs(&[("10.0.0.1", 8080), ("10.0.0.3", 8080)]));
    let tcp = Selection { port_name: "tcp", ..HTTP };
    assert_eq!(addresses(run(&endpoints, tcp)), pairs(&[("10.0.0.1", 9000), ("10.0.0.2", 9000), ("10.0.0.3", 9000)]));
    let v2 = labels(&[("version", "v2")]);
    let subset = Selection { labels: Some(&v2), ..HTTP };
    assert_eq!(addresses(run(&endpoints, subset)), pairs(&[("10.0.0.3", 8080)]));
}

#[test]
fn health_decides() {
    let with = |health| Endpoint { health, ..endpoint("10.0.0.1", "") };
    let endpoints = [with(Health::Healthy), with(Health::Unhealthy), with(Health::Draining)];
    let states = |selection| -> Vec<i32> {
        run(&endpoints, selection).endpoints.iter().flat_map(|g| &g.lb_endpoints).map(|e| e.health_status).collect()
    };
    assert_eq!(states(HTTP), [1, 2]);
    assert_eq!(states(Selection { unhealthy: false, ..HTTP }), [1]);
    assert_eq!(states(Selection { unhealthy: false, draining: true, ..HTTP }), [1, 3]);
}

#[test]
fn only_dns_clusters_have_endpoints_with_names() {
    let endpoints = [endpoint("10.0.0.1", ""), endpoint("a.example.com", ""), endpoint("unix:///a", "")];
    let count = |selection| run(&endpoints, selection).endpoints.iter().map(|g| g.lb_endpoints.len()).sum::<usize>();
    assert_eq!(count(HTTP), 2);
    assert_eq!(count(Selection { dns: true, ..HTTP }), 2);
    assert_eq!(count(Selection { dns: true, single: true, ..HTTP }), 1);
    assert_eq!(count(Selection { port_name: "none", ..HTTP }), 0);
}

#[test]
fn workload_metadata_for_telemetry() {
    let text = |endpoint: Endpoint| {
        let mut assignment = run(&[endpoint], HTTP);
        let metadata = assignment.endpoints.remove(0).lb_endpoints.remove(0).metadata.unwrap();
        match metadata.filter_metadata["istio"].fields["workload"].kind.clone().unwrap() {
            Kind::StringValue(text) => text,
            other => panic!("{other:?}"),
        }
    };
    let workload = |name: &str, pairs: &[(&str, &str)]| Endpoint {
        workload: Some(ObjectId { namespace: "shop".into(), name: name.into() }),
        labels: Arc::new(labels(pairs)),
        ..endpoint("10.0.0.1", "")
    };
    let cases = [
        (workload("web-5d8f9-x2x4z", &[("pod-template-hash", "5d8f9")]), "web;shop;web;;Kubernetes"),
        (workload("web-1", &[("pod-template-hash", "5d8f9")]), "web-1;shop;web-1;;Kubernetes"),
        (workload("vm", &[("app", "a"), ("version", "latest")]), "vm;shop;a;;Kubernetes"),
        (
            workload("vm", &[("app", "a"), ("service.istio.io/canonical-name", "b"), ("version", "v3")]),
            "vm;shop;b;v3;Kubernetes",
        ),
        (Endpoint { workload: None, ..workload("", &[]) }, ";;;;Kubernetes"),
    ];
    for (endpoint, want) in cases {
        assert_eq!(text(endpoint), want);
    }
}
