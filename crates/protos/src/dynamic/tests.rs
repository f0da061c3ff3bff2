use serde_json::{Value as Json, json};

use super::*;
use crate::Message;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const HTTP_FILTER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";

fn read(name: &str, value: &Json) -> (DynamicMessage, Vec<String>) {
    let (message, problems) = read_json(&descriptor(name).unwrap(), value);
    (message, problems.iter().map(ToString::to_string).collect())
}

fn checked(name: &str, value: &Json, completeness: Completeness) -> Vec<String> {
    let (message, problems) = read(name, value);
    assert_eq!(problems, [] as [String; 0]);
    let found = check(&message, completeness, &|_| None);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn reading_equals_deserializing() {
    let value = json!({
        "name": "a",
        "connect_timeout": "1.5s",
        "lbPolicy": "RING_HASH",
        "circuitBreakers": {"thresholds": [{"maxConnections": 3}]},
        "metadata": {"filterMetadata": {"b": {"x": [1, null]}, "a": {}}},
        "typedExtensionProtocolOptions": {"x": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "2s"}},
        "transportSocket": {"name": "t", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}},
    });
    let (message, problems) = read(CLUSTER, &value);
    assert_eq!(problems, [] as [String; 0]);
    let whole = DynamicMessage::deserialize(descriptor(CLUSTER).unwrap(), &value).unwrap();
    assert_eq!(message, whole);
    let decoded = DynamicMessage::decode(descriptor(CLUSTER).unwrap(), encode_dynamic(&message).as_slice()).unwrap();
    assert_eq!(decoded, whole);
}

#[test]
fn all_problems_are_reported_with_their_paths() {
    let value = json!({
        "name": 1,
        "nonsense": {},
        "connectTimeout": "soon",
        "circuitBreakers": {"thresholds": [{"maxConnections": "many"}, 4]},
        "lbPolicy": "NONE_SUCH",
        "loadAssignment": [],
        "type": "EDS",
        "clusterType": {"name": "x"},
        "typedExtensionProtocolOptions": {"x": {"@type": "a/no.such.v2.Message"}, "y": {"z": 1}},
    });
    let (_, problems) = read(CLUSTER, &value);
    let places: Vec<&str> = problems.iter().map(|p| p.split(": ").next().unwrap()).collect();
    let mut places = places.clone();
    places.sort_unstable();
    assert_eq!(
        places,
        [
            "circuitBreakers.thresholds[0].maxConnections",
            "circuitBreakers.thresholds[1]",
            "connectTimeout",
            "lbPolicy",
            "loadAssignment",
            "name",
            "nonsense",
            "type",
            "typedExtensionProtocolOptions[\"x\"].@type",
            "typedExtensionProtocolOptions[\"y\"]",
        ],
        "{problems:#?}"
    );
}

#[test]
fn rules_of_proto_files_are_checked() {
    let wrong = checked(
        CLUSTER,
        &json!({
            "connectTimeout": "-1s",
            "lbPolicy": 99,
            "edsClusterConfig": {},
            "commonLbConfig": {"localityWeightedLbConfig": {}},
            "outlierDetection": {"maxEjectionPercent": 101},
            "typedExtensionProtocolOptions": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
            }},
        }),
        Completeness::Whole,
    );
    for words in [
        "name: may not be empty",
        "connectTimeout: must be above 0, not -1",
        "lbPolicy: 99 is no value of LbPolicy",
        "outlierDetection.maxEjectionPercent: must be at most 100, not 101",
        "one of explicitHttpConfig, useDownstreamProtocolConfig, autoConfig is needed",
    ] {
        assert!(wrong.iter().any(|w| w.ends_with(words)), "{words} in {wrong:#?}");
    }
}

#[test]
fn only_the_set_field_of_a_oneof_is_checked() {
    let route = "envoy.config.route.v3.Route";
    let value = json!({"match": {"prefix": "/"}, "directResponse": {"status": 200}});
    assert_eq!(checked(route, &value, Completeness::Whole), [] as [String; 0]);
    let wrong = checked(route, &json!({"match": {}, "directResponse": {"status": 9}}), Completeness::Whole);
    assert!(wrong[0].starts_with("match: one of prefix, path, safeRegex"), "{wrong:?}");
    assert_eq!(wrong[1], "directResponse.status: must be at least 200 and below 600, not 9");
}

#[test]
fn only_set_fields_of_a_part_are_checked() {
    let part = json!({"outlierDetection": {"maxEjectionPercent": 101}});
    let wrong = checked(CLUSTER, &part, Completeness::Part);
    assert_eq!(wrong, ["outlierDetection.maxEjectionPercent: must be at most 100, not 101"]);
    assert_eq!(checked(CLUSTER, &json!({}), Completeness::Part), [] as [String; 0]);
    // Items of lists must be complete.
    let part = json!({"loadAssignment": {"clusterName": "a", "endpoints": [{"lbEndpoints": [{"endpoint": {"address": {}}}]}]}});
    assert_eq!(checked(CLUSTER, &part, Completeness::Part).len(), 1);
}

#[test]
fn packed_messages_are_checked_and_extra_checks_are_called() {
    let value = json!({"name": "lua", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
        "abort": {"httpStatus": 1000, "percentage": {}},
        "headers": [{"name": "a", "stringMatch": {"safeRegex": {"regex": "("}}}],
    }});
    let (message, problems) = read(HTTP_FILTER, &value);
    assert_eq!(problems, [] as [String; 0]);
    let found = check(&message, Completeness::Whole, &|m| {
        (m.descriptor().name() == "RegexMatcher").then(|| ("regex", "is odd".to_owned()))
    });
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "typedConfig.abort.httpStatus: must be at least 200 and below 600, not 1000",
            "typedConfig.headers[0].stringMatch.safeRegex.regex: is odd",
        ]
    );
}

#[test]
fn equal_messages_have_equal_bytes() {
    let entries: serde_json::Map<String, Json> = (0..100).map(|n| (format!("k{n}"), json!({"f": n}))).collect();
    let value = json!({"name": "a", "metadata": {"filterMetadata": entries}});
    let (first, _) = read(CLUSTER, &value);
    let bytes = encode_dynamic(&first);
    for _ in 0..5 {
        let (again, _) = read(CLUSTER, &value);
        assert_eq!(encode_dynamic(&again), bytes);
    }
    let typed = crate::envoy::config::cluster::v3::Cluster::decode(bytes.as_slice()).unwrap();
    assert_eq!(typed.encode_to_vec(), bytes, "as encoded by the generated code");
}

#[test]
fn deep_nesting_is_rejected() {
    let mut value = json!({});
    for _ in 0..90 {
        value = json!({"andMatch": {"rules": [value]}});
    }
    let (_, problems) = read("envoy.config.listener.v3.ListenerFilterChainMatchPredicate", &value);
    assert!(problems.iter().any(|p| p.contains("nested deeper")), "{problems:?}");
}

#[test]
fn the_rules_of_every_message_can_be_read() {
    for message in descriptor_pool().all_messages() {
        let empty = DynamicMessage::new(message.clone());
        check(&empty, Completeness::Whole, &|_| None);
        assert_eq!(check(&empty, Completeness::Part, &|_| None), [], "{}", message.full_name());
    }
}
