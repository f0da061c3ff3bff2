//! The objects of a mesh: Services with EndpointSlices, and the pods and nodes behind them.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::rules;

/// The number of nodes, among which endpoints are spread.
pub(crate) const NODES: usize = 50;
/// The creation time of all objects in a cluster.
pub(crate) const BEGIN: &str = "2026-01-01T00:00:00Z";

/// The size of the mesh.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Services in all.
    pub services: usize,
    /// Ports of each.
    pub ports: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// Namespaces, among which services and proxies are spread.
    pub namespaces: usize,
    /// Whether each service has its rules, and there are Sidecars and EnvoyFilters.
    pub rules: bool,
    /// Whether each namespace has a service and a DestinationRule for its own clients.
    pub private: bool,
    /// Whether each service has a cluster IP.
    pub cluster_ips: bool,
}

/// The object that a text describes.
pub(crate) fn read(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).context("our own text")
}

/// The node of an endpoint.
pub(crate) fn node_name(endpoint: usize) -> String {
    format!("node-{}", endpoint % NODES)
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(crate) fn node(number: usize) -> Value {
    let zone = format!("zone-{}", number % 3);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": format!("node-{number}"),
            "labels": {"topology.kubernetes.io/region": "region", "topology.kubernetes.io/zone": zone},
        },
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod_name(service: usize, endpoint: usize) -> String {
    format!("svc-{service}-5d9c7b8f6d-{endpoint:05}")
}

/// A pod as a Deployment makes it and a kubelet runs it.
pub(crate) fn pod(size: Size, service: usize, endpoint: usize) -> Value {
    let (app, address) = (format!("svc-{service}"), size.address(service * size.endpoints + endpoint, 10));
    let number = service * size.endpoints + endpoint;
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5d9c7b8f6d"),
        "uid": format!("00000000-0000-4000-a000-{service:012}"), "controller": true, "blockOwnerDeletion": true,
    });
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": BEGIN});
    let ports: Vec<Value> = (0..size.ports)
        .map(|port| json!({"name": format!("http-{port}"), "containerPort": 8080 + port, "protocol": "TCP"}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(service, endpoint),
            "generateName": format!("{app}-5d9c7b8f6d-"),
            "namespace": size.namespace(service),
            "labels": {
                "app": app, "version": "v1", "pod-template-hash": "5d9c7b8f6d",
                "security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": app,
                "service.istio.io/canonical-revision": "v1",
            },
            "annotations": {"kubectl.kubernetes.io/default-container": "app", "prometheus.io/scrape": "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node_name(number),
            "serviceAccountName": app,
            "containers": [
                {"name": "app", "image": "example.com/app:v1", "ports": ports,
                 "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
                {"name": "istio-proxy", "image": "example.com/proxy:v1",
                 "ports": [{"name": "http-envoy-prom", "containerPort": 15090, "protocol": "TCP"}]},
            ],
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "192.0.2.1",
            "startTime": BEGIN,
            "conditions": [
                condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled"),
            ],
        },
    })
}

/// A slice whose endpoints name their pods.
pub(crate) fn cluster_slice(size: Size, service: usize, generation: usize) -> Result<Value> {
    let mut slice = read(&size.slice(service, generation))?;
    let endpoints = slice["endpoints"].as_array_mut().context("a list")?;
    for (endpoint, value) in endpoints.iter_mut().enumerate() {
        let (name, namespace) = (pod_name(service, endpoint), size.namespace(service));
        value["targetRef"] = json!({"kind": "Pod", "name": name, "namespace": namespace});
    }
    Ok(slice)
}

impl Size {
    pub(crate) fn rules(self) -> Vec<String> {
        let mut all = if self.rules { rules::objects(self) } else { Vec::new() };
        if self.private {
            all.extend((0..self.namespaces).map(|number| rules::private(self, number)));
        }
        all
    }

    /// The namespace of a service or proxy.
    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("ns-{}", number % self.namespaces)
    }

    /// The address of the endpoint with this number, in a block.
    pub(crate) fn address(&self, number: usize, block: usize) -> String {
        format!("{block}.{}.{}.{}", 128 + number / 62_500, number / 250 % 250, number % 250 + 1)
    }

    /// A route that keeps this share, in percent, of one service's requests with it.
    pub(crate) fn split(&self, share: usize) -> String {
        let (own, other) = (self.host(0), self.host(1));
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: split, namespace: {} }}\n\
             spec:\n  hosts: [{own}]\n  http:\n  - route:\n\
             \x20   - {{ destination: {{ host: {own}, port: {{ number: 80 }} }}, weight: {share} }}\n\
             \x20   - {{ destination: {{ host: {other}, port: {{ number: 80 }} }}, weight: {} }}\n",
            self.namespace(0),
            100 - share
        )
    }

    pub(crate) fn host(&self, service: usize) -> String {
        format!("svc-{service}.{}.svc.cluster.local", self.namespace(service))
    }

    pub(crate) fn service(&self, number: usize) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: svc-{number}, namespace: {} }}\nspec:\n  \
             selector: {{ app: svc-{number} }}\n  ports:\n",
            self.namespace(number),
        );
        for port in 0..self.ports {
            let _ = writeln!(text, "  - {{ name: http-{port}, port: {}, targetPort: {} }}", 80 + port, 8080 + port);
        }
        if self.cluster_ips {
            let (block, rest) = (96 + number / 62_500, number % 62_500);
            let _ = writeln!(text, "  clusterIP: 10.{block}.{}.{}", rest / 250, rest % 250 + 1);
        }
        text
    }

    pub(crate) fn slice(&self, service: usize, generation: usize) -> String {
        let mut text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  \
             name: svc-{service}-a\n  namespace: {}\n  labels: {{ kubernetes.io/service-name: svc-{service} }}\nports:\n",
            self.namespace(service)
        );
        for port in 0..self.ports {
            let _ = writeln!(text, "- {{ name: http-{port}, port: {}, protocol: TCP }}", 8080 + port);
        }
        text.push_str("endpoints:\n");
        for endpoint in 0..self.endpoints {
            let number = service * self.endpoints + endpoint;
            // Addresses of another block where an endpoint was replaced.
            let block = if endpoint == 0 { 10 + generation % 40 } else { 10 };
            let address = self.address(number, block);
            let node = node_name(if endpoint == 0 { number + generation } else { number });
            let _ = writeln!(text, "- {{ addresses: [{address}], conditions: {{ ready: true }}, nodeName: {node} }}");
        }
        text
    }
}
