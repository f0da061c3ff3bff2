//! Measures the cost of admitting an object: `cargo run --release -p admission --example cost`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use admission::{FieldValidation, Limits, Operation, Review, Subresource, decode};
use config::schema::find;
use serde_json::json;

const ROUNDS: u32 = 2000;

fn main() {
    let route = |name: &str| {
        json!({"match": [{"uri": {"prefix": format!("/{name}")}}], "timeout": "5s",
            "retries": {"attempts": 3, "perTryTimeout": "2s"},
            "route": [{"destination": {"host": "reviews", "subset": "v1"}, "weight": 90},
                {"destination": {"host": "reviews", "subset": "v2"}, "weight": 10}]})
    };
    let routes: Vec<_> = ["a", "b", "c"].iter().map(|name| route(name)).collect();
    measure("networking.istio.io", "virtualservices", &json!({"hosts": ["reviews"], "http": routes}));
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}], "backendRefs": [{"name": "b", "port": 80}]});
    measure(
        "gateway.networking.k8s.io",
        "httproutes",
        &json!({"parentRefs": [{"name": "g"}], "hostnames": ["a.example.com"], "rules": [rule, rule, rule]}),
    );
    measure("", "services", &json!({"selector": {"app": "a"}, "ports": [{"name": "http", "port": 80}]}));
}

fn measure(group: &str, plural: &str, spec: &serde_json::Value) {
    let definition = find(group, plural).unwrap();
    let review = Review {
        definition,
        version: definition.versions[0].version,
        operation: Operation::Create,
        subresource: Subresource::None,
        field_validation: FieldValidation::Strict,
        namespace: Some("n"),
        name: None,
    };
    let body = json!({"apiVersion": definition.api_version(), "kind": definition.kind, "metadata": {"name": "x"}, "spec": spec});
    let body = body.to_string();
    let once = || {
        let decoded = decode(body.as_bytes(), None, &Limits::default()).unwrap();
        admission::admit(&review, decoded, None).unwrap()
    };
    // The first one compiles the rules of the kind.
    let start = Instant::now();
    once();
    let first = start.elapsed();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        once();
    }
    println!("{plural}: {:?} each (the first {first:?})", start.elapsed() / ROUNDS);
}
