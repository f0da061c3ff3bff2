//! The cost of an injection: what the webhook does for a pod, from the decoded pod to the JSON patch.
//!
//! `cargo bench -p inject` injects pods of several forms with the chart's templates, and prints the latency and the processor
//! time of a pod.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use config::{Limits, MeshConfig, parse_yaml_json};
use inject::{Injector, Surroundings, difference, parameters};
use serde_json::{Value, json};

const SIDECAR: &str = include_str!("../../../deploy/helm/rutter/files/sidecar.yaml");
const GRPC_AGENT: &str = include_str!("../../../deploy/helm/rutter/files/grpc-agent.yaml");
const VALUES: &str = include_str!("../tests/values.yaml");
const ROUNDS: usize = 500;

fn main() {
    let config = json!({"policy": "enabled", "templates": {"sidecar": SIDECAR, "grpc-agent": GRPC_AGENT}});
    let values = parse_yaml_json(VALUES.as_bytes(), "", &Limits::default()).documents.remove(0).value;
    let begin = Instant::now();
    let injector = Injector::parse(&config.to_string(), &values.to_string()).unwrap();
    println!("reading the configuration: {:?}", begin.elapsed());
    let probe = json!({"httpGet": {"path": "/ready", "port": 8080}});
    let container = |name: &str| json!({"name": name, "image": "app:1", "readinessProbe": probe, "ports": [{"containerPort": 8080}]});
    let pod = |annotations: Value, containers: &[&str]| {
        let containers: Vec<Value> = containers.iter().map(|name| container(name)).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"},
            "annotations": annotations}, "spec": {"serviceAccountName": "web", "containers": containers}})
    };
    let plain = pod(json!({}), &["app"]);
    measure("one container", &injector, &plain, false);
    measure("one container, native sidecar", &injector, &plain, true);
    measure("ten containers", &injector, &pod(json!({}), &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]), false);
    measure(
        "gRPC with the agent",
        &injector,
        &pod(json!({"inject.istio.io/templates": "grpc-agent"}), &["app"]),
        false,
    );
    let injected = inject(&injector, &plain, false);
    measure("an injected pod again", &injector, &injected, false);
}

fn inject(injector: &Injector, pod: &Value, native_sidecars: bool) -> Value {
    let (mesh, none) = (MeshConfig::default(), BTreeMap::new());
    let around = Surroundings {
        mesh: &mesh,
        proxy_config: &mesh.default_config,
        revision: "",
        parameters: &parameters("/inject"),
        native_sidecars,
        namespace: None,
        openshift: false,
        compliance_policy: "",
        environment: &none,
        now: 0,
        seed: 0,
    };
    injector.inject(pod, &around).unwrap()
}

/// Prints the figures of many injections of a pod.
fn measure(what: &str, injector: &Injector, pod: &Value, native: bool) {
    let one = || {
        let patch = difference(pod, &inject(injector, pod, native));
        Value::Array(patch).to_string().len()
    };
    // The first ones fill caches.
    let size = (0..10).map(|_| one()).max().unwrap_or_default();
    let cpu_before = processor_time();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(one());
            begin.elapsed()
        })
        .collect();
    let cpu = (processor_time() - cpu_before) / u32::try_from(ROUNDS).unwrap();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: median {:.2?}, 99 % within {:.2?}, {cpu:.2?} CPU, patch {size} bytes", at(50), at(99));
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}
