//! Clusters derived from keys and rows.

mod built_in;
mod policy;
mod tls;

use config::istio::DestinationRule;
use model::audience::{DefaultEndpoint, IpFamilies};
use model::service::{ObjectId, Registry, Resolution, Service};
use names::Protocol;
use protos::envoy::config::cluster::v3::Cluster;
use serde_json::{Value, json};
use traffic::policy::{DestinationPolicy, effective_in};
use traffic::sessions::by_label;

use super::*;
use crate::testing::{self, at, check, object};

/// The cluster of a service's port 80 with a DestinationRule (its `spec`, indented by two) and mesh settings.
struct Case {
    service: Service,
    rule: Option<&'static str>,
    subset: &'static str,
    mesh: &'static str,
    from_endpoints: bool,
    from_gateway: bool,
    lookup: Option<IpFamilies>,
    endpoints: Vec<Endpoint>,
    client: model::tls::ClientFacts,
    automatic: bool,
    identities: registry::Identities,
}

impl Case {
    fn of(protocol: Protocol) -> Case {
        Case {
            service: testing::service(protocol),
            rule: None,
            subset: "",
            mesh: "",
            from_endpoints: false,
            from_gateway: false,
            lookup: None,
            endpoints: Vec::new(),
            client: Default::default(),
            automatic: false,
            identities: Default::default(),
        }
    }

    fn rule(rule: &'static str) -> Case {
        Case { rule: Some(rule), ..Case::of(Protocol::Http) }
    }

    fn run(&self) -> Value {
        let rule = self.rule.map(|spec| {
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: rule, namespace: shop}}\nspec:\n  host: reviews\n{spec}"
            );
            let rule = object::<DestinationRule>(&text);
            DestinationPolicy {
                policy: rule.spec.traffic_policy.clone(),
                subsets: rule.spec.subsets.clone(),
                origins: vec![ObjectId { namespace: "shop".into(), name: "rule".into() }],
                selected: false,
            }
        });
        let mesh = testing::settings(self.mesh);
        let key = OutboundKey {
            service: self.service.key.clone(),
            port: 80,
            subset: self.subset.into(),
            policy: None,
            from_endpoints: self.from_endpoints,
            from_gateway: self.from_gateway,
            lookup: self.lookup,
            view: None,
            sni_passthrough: false,
            client: self.client,
            client_certificate: None,
        };
        let cluster = Outbound {
            key: &key,
            service: &self.service,
            port: &self.service.ports[0],
            mesh: &mesh,
            policy: effective_in(&mesh.config, rule.as_ref(), &key.subset, key.port),
            labels: rule.as_ref().and_then(|rule| rule.subset(self.subset)).map(|subset| &subset.labels),
            origin: rule.as_ref().and_then(|rule| rule.origins.first()),
            endpoints: &self.endpoints,
            plain: Some(&Plain::default()),
            automatic: self.automatic,
            sessions: by_label(&self.service).is_some(),
            identities: Some(&self.identities),
        };
        testing::json::<Cluster>(&cluster.encode())
    }

    #[track_caller]
    fn check(&self, expected: &[(&str, Value)]) {
        check(&self.run(), expected);
    }
}

const HTTP: &str = "typedExtensionProtocolOptions.envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The packed HTTP options, whose key contains dots.
fn http(cluster: &Value) -> &Value {
    &cluster["typedExtensionProtocolOptions"][HTTP.split_once('.').unwrap().1]
}

#[test]
fn defaults_are_istios() {
    let cluster = Case::of(Protocol::Http).run();
    let name = "outbound|80||reviews.shop.svc.cluster.local";
    let none = u32::MAX;
    check(
        &cluster,
        &[
            ("name", json!(name)),
            ("altStatName", json!(format!("{name};"))),
            ("type", json!("EDS")),
            (
                "edsClusterConfig",
                json!({
                    "serviceName": name,
                    "edsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
                }),
            ),
            ("connectTimeout", json!("10s")),
            ("lbPolicy", json!("LEAST_REQUEST")),
            (
                "circuitBreakers.thresholds",
                json!([
                    {"maxConnections": none, "maxPendingRequests": none, "maxRequests": none, "maxRetries": none},
                ]),
            ),
            ("commonLbConfig", json!({"healthyPanicThreshold": {}})),
            (
                "metadata.filterMetadata.istio",
                json!({"services": [
                    {"host": "reviews.shop.svc.cluster.local", "name": "reviews", "namespace": "shop"},
                ]}),
            ),
            ("typedExtensionProtocolOptions", Value::Null),
            ("outlierDetection", Value::Null),
            ("transportSocket", Value::Null),
        ],
    );
}

#[test]
fn protocols_become_http_options() {
    let http2 = Case::of(Protocol::Grpc).run();
    assert_eq!(http(&http2)["explicitHttpConfig"], json!({"http2ProtocolOptions": {}}));
    let detected = Case::of(Protocol::Unsupported).run();
    let both = json!({"httpProtocolOptions": {}, "http2ProtocolOptions": {}});
    assert_eq!(http(&detected)["useDownstreamProtocolConfig"], both);
    let gateway = Case { from_gateway: true, ..Case::of(Protocol::Unsupported) };
    assert_eq!(http(&gateway.run()), &Value::Null);
    assert_eq!(http(&Case::of(Protocol::Tcp).run()), &Value::Null);
}

#[test]
fn upgrades_to_http2() {
    let upgraded = |case: Case| at(http(&case.run()), "explicitHttpConfig.http2ProtocolOptions").is_object();
    let by_rule = "  trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}\n";
    let not_by_rule = "  trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}\n";
    let mesh = "h2UpgradePolicy: UPGRADE";
    assert!(upgraded(Case::rule(by_rule)));
    assert!(upgraded(Case { mesh, ..Case::of(Protocol::Http) }));
    assert!(!upgraded(Case { mesh, ..Case::of(Protocol::Tcp) }));
    assert!(!upgraded(Case { mesh, ..Case::of(Protocol::Unsupported) }));
    assert!(!upgraded(Case { mesh, ..Case::rule(not_by_rule) }));
    let client = "  trafficPolicy: {connectionPool: {http: {useClientProtocol: true}}}\n";
    let cluster = Case { mesh, ..Case::rule(client) }.run();
    assert!(http(&cluster)["useDownstreamProtocolConfig"].is_object());
}

#[test]
fn dns_services_become_dns_clusters() {
    let case = |resolution, endpoints| Case {
        service: Service {
            resolution,
            registry: Registry::ServiceEntry,
            external: true,
            ..testing::service(Protocol::Http)
        },
        endpoints,
        mesh: "dnsRefreshRate: 30s",
        ..Case::of(Protocol::Http)
    };
    let names =
        || vec![testing::endpoint("10.0.0.1"), testing::endpoint("a.example.com"), testing::endpoint("b.example.com")];
    let cluster = case(Resolution::Dns, names()).run();
    check(
        &cluster,
        &[
            ("type", json!("STRICT_DNS")),
            ("dnsLookupFamily", json!("V4_PREFERRED")),
            ("dnsRefreshRate", json!("30s")),
            ("respectDnsTtl", json!(true)),
            ("typedDnsResolverConfig.typedConfig.udpMaxQueries", json!(100)),
            ("edsClusterConfig", Value::Null),
            ("metadata.filterMetadata.istio.external", json!(true)),
            ("metadata.filterMetadata.istio.services[0].name", json!("reviews.shop.svc.cluster.local")),
        ],
    );
    let addresses = |cluster: &Value| -> Vec<Value> {
        let endpoints = at(cluster, "loadAssignment.endpoints[0].lbEndpoints").as_array().unwrap();
        endpoints.iter().map(|e| at(e, "endpoint.address.socketAddress").clone()).collect()
    };
    let address = |text: &str| json!({"address": text, "portValue": 8080});
    assert_eq!(addresses(&cluster), [address("10.0.0.1"), address("a.example.com"), address("b.example.com")]);
    let logical = case(Resolution::DnsRoundRobin, names()).run();
    assert_eq!(logical["type"], "LOGICAL_DNS");
    assert_eq!(addresses(&logical), [address("10.0.0.1")]);
    case(Resolution::DnsRoundRobin, Vec::new()).check(&[("type", json!("STATIC")), ("loadAssignment", Value::Null)]);
    for (family, want) in [(IpFamilies::V4, "V4_ONLY"), (IpFamilies::V6, "V6_ONLY"), (IpFamilies::Dual, "ALL")] {
        let case = Case { lookup: Some(family), ..case(Resolution::Dns, names()) };
        case.check(&[("dnsLookupFamily", json!(want))]);
    }
}

#[test]
fn subsets_of_dns_services_become_dns_clusters() {
    let case = |subset| Case {
        service: Service { resolution: Resolution::Dns, ..testing::service(Protocol::Http) },
        endpoints: vec![testing::endpoint("a.example.com")],
        subset,
        ..Case::rule("  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]\n")
    };
    case("v1").check(&[("type", json!("STRICT_DNS"))]);
    case("v2").check(&[("type", json!("STATIC")), ("loadAssignment", Value::Null)]);
}

#[test]
fn headless_services() {
    let case = |from_endpoints| Case {
        service: Service { resolution: Resolution::Passthrough, headless: true, ..testing::service(Protocol::Tcp) },
        from_endpoints,
        ..Case::of(Protocol::Tcp)
    };
    case(false).check(&[("type", json!("ORIGINAL_DST")), ("lbPolicy", json!("CLUSTER_PROVIDED"))]);
    case(true).check(&[("type", json!("EDS")), ("lbPolicy", json!("LEAST_REQUEST"))]);
}

#[test]
fn statistics_names_follow_the_meshs_pattern() {
    let mesh = "outboundClusterStatName: \"%SERVICE%|%SERVICE_PORT%|%SERVICE_PORT_NAME%|%SERVICE_FQDN%|%SUBSET_NAME%\"";
    Case { mesh, ..Case::of(Protocol::Http) }
        .check(&[("altStatName", json!("reviews.shop|80|http|reviews.shop.svc.cluster.local|;"))]);
}

#[test]
fn persistent_sessions_keep_draining_endpoints() {
    let mut service = testing::service(Protocol::Http);
    service.labels.insert("istio.io/persistent-session".into(), "cookie".into());
    Case { service, ..Case::of(Protocol::Http) }.check(&[(
        "commonLbConfig.overrideHostStatus.statuses",
        json!(["HEALTHY", "DRAINING", "UNKNOWN", "DEGRADED"]),
    )]);
}
