//! The mesh: Kubernetes Services with EndpointSlices, as files or in a cluster, and the edits that are measured.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use test_harness::run::ConfigDir;

use crate::cluster::Cluster;
use crate::rules;
use crate::wire::Workload;

/// The number of nodes, among which endpoints are spread.
const NODES: usize = 50;
/// The creation time of all objects in a cluster.
const BEGIN: &str = "2026-01-01T00:00:00Z";

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
}

/// A mesh and its location.
pub struct Mesh {
    place: Place,
    size: Size,
}

enum Place {
    /// A directory: a file per service, one per service's endpoints, and one with a route.
    Files(ConfigDir),
    /// A real API server, with a pod for every endpoint.
    Cluster(Box<Cluster>),
}

impl Mesh {
    /// Writes it into a directory.
    pub fn write(size: Size) -> Result<Mesh> {
        let config = ConfigDir::new().map_err(anyhow::Error::from_boxed)?;
        for service in 0..size.services {
            let file = |name: String| config.path().join(name);
            fs::write(file(format!("service-{service}.yaml")), size.service(service))?;
            fs::write(file(format!("endpoints-{service}.yaml")), size.slice(service, 0))?;
        }
        fs::write(config.path().join("route.yaml"), size.split(90))?;
        fs::write(config.path().join("rules.yaml"), size.rules().join("---\n"))?;
        Ok(Mesh { place: Place::Files(config), size })
    }

    /// Fills a cluster with it, and with the pods and nodes behind it.
    pub async fn fill(size: Size) -> Result<Mesh> {
        let cluster = Cluster::start().await?;
        let named = |kind: &str, name: String| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let mut objects: Vec<Value> =
            (0..size.namespaces).map(|number| named("Namespace", size.namespace(number))).collect();
        objects.extend((0..NODES).map(node));
        for service in 0..size.services {
            objects.push(read(&size.service(service))?);
            objects.push(cluster_slice(size, service, 0)?);
            objects.extend((0..size.endpoints).map(|endpoint| pod(size, service, endpoint)));
        }
        objects.push(read(&size.split(90))?);
        for rule in size.rules() {
            objects.push(read(&rule)?);
        }
        objects.iter_mut().enumerate().for_each(|(number, object)| {
            object["metadata"]["uid"] = format!("00000000-0000-4000-8000-{number:012}").into();
            object["metadata"]["creationTimestamp"] = BEGIN.into();
        });
        cluster.fill(&objects).await?;
        cluster
            .witness(&[
                "/api/v1/services",
                "/apis/discovery.k8s.io/v1/endpointslices",
                "/apis/networking.istio.io/v1/virtualservices",
            ])
            .await?;
        Ok(Mesh { place: Place::Cluster(Box::new(cluster)), size })
    }

    /// Adds this many pods that belong to no service.
    pub async fn add_pods(&self, count: usize) -> Result<()> {
        let Place::Cluster(cluster) = &self.place else {
            return Ok(());
        };
        let more = Size { endpoints: count, ..self.size };
        let pods = (0..count).map(|endpoint| {
            let mut pod = pod(more, self.size.services + 100, endpoint);
            pod["metadata"]["uid"] = format!("00000000-0000-4000-9000-{endpoint:012}").into();
            pod["metadata"]["creationTimestamp"] = BEGIN.into();
            pod
        });
        cluster.fill(&pods.collect::<Vec<Value>>()).await
    }

    /// The flags with which `rutter serve` reads it.
    pub fn flags(&self, data: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        match &self.place {
            Place::Files(config) => vec!["--config-dir".to_owned(), text(config.path())],
            Place::Cluster(cluster) => vec![
                "--store".to_owned(),
                "kubernetes".to_owned(),
                "--kubeconfig".to_owned(),
                text(&cluster.kubeconfig()),
                "--data-dir".to_owned(),
                text(data),
            ],
        }
    }

    /// The time of the API server's last event, if there is one, since the previous call.
    pub fn told(&self) -> Option<Instant> {
        match &self.place {
            Place::Files(_) => None,
            Place::Cluster(cluster) => cluster.told(),
        }
    }

    /// The sidecar of an endpoint: of the second endpoint of each service in turn, then of the third, and so on. The
    /// first endpoint of a service is the one that changes. Sidecars beyond the number of endpoints share their pods.
    pub fn workload(&self, number: usize) -> Workload {
        let size = self.size;
        let (service, round) = (number % size.services, number / size.services);
        let endpoint = (1 + round % (size.endpoints - 1).max(1)) % size.endpoints;
        let instance = service * size.endpoints + endpoint;
        Workload {
            name: format!("load-{number}"),
            namespace: size.namespace(service),
            app: format!("svc-{service}"),
            ip: size.address(instance, 10),
            node: node_name(instance),
        }
    }

    /// Gives one endpoint of each of these services another address; `generation` says which.
    pub async fn change_endpoints(&self, changes: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        match &self.place {
            Place::Files(config) => {
                for (service, generation) in changes {
                    let text = self.size.slice(service, generation);
                    put(config, &format!("endpoints-{service}.yaml"), &text)?;
                }
                Ok(())
            }
            Place::Cluster(cluster) => {
                let slices = changes.map(|(service, generation)| cluster_slice(self.size, service, generation));
                cluster.change(slices.collect::<Result<Vec<Value>>>()?).await
            }
        }
    }

    /// Sets the share, in percent, of one service's requests that stay with it; the others go to the next service.
    pub async fn route(&self, share: usize) -> Result<()> {
        let text = self.size.split(share);
        match &self.place {
            Place::Files(config) => put(config, "route.yaml", &text),
            Place::Cluster(cluster) => cluster.change(vec![read(&text)?]).await,
        }
    }

    /// Adds an EnvoyFilter that changes one cluster of all sidecars.
    pub async fn add_filter(&self) -> Result<()> {
        let text = rules::filter_of_all(self.size);
        match &self.place {
            Place::Files(config) => put(config, "filter.yaml", &text),
            Place::Cluster(cluster) => cluster.create(&read(&text)?).await,
        }
    }

    /// Adds a service with endpoints; `number` is beyond those that there are. Clients of a node-local service only call
    /// endpoints on their own node.
    pub async fn add_service(&self, number: usize, node_local: bool) -> Result<()> {
        let (mut service, slice) = (self.size.service(number), self.size.slice(number, 0));
        if node_local {
            service = service.replacen("spec:\n", "spec:\n  internalTrafficPolicy: Local\n", 1);
        }
        match &self.place {
            Place::Files(config) => put(config, &format!("service-{number}.yaml"), &format!("{service}---\n{slice}")),
            Place::Cluster(cluster) => {
                cluster.create(&read(&service)?).await?;
                cluster.create(&read(&slice)?).await
            }
        }
    }
}

fn put(config: &ConfigDir, name: &str, text: &str) -> Result<()> {
    config.put(name, text).map_err(anyhow::Error::from_boxed)
}

fn read(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).context("our own text")
}

/// The node of an endpoint.
fn node_name(endpoint: usize) -> String {
    format!("node-{}", endpoint % NODES)
}

fn node(number: usize) -> Value {
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
fn pod(size: Size, service: usize, endpoint: usize) -> Value {
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
fn cluster_slice(size: Size, service: usize, generation: usize) -> Result<Value> {
    let mut slice = read(&size.slice(service, generation))?;
    let endpoints = slice["endpoints"].as_array_mut().context("a list")?;
    for (endpoint, value) in endpoints.iter_mut().enumerate() {
        let (name, namespace) = (pod_name(service, endpoint), size.namespace(service));
        value["targetRef"] = json!({"kind": "Pod", "name": name, "namespace": namespace});
    }
    Ok(slice)
}

impl Size {
    fn rules(self) -> Vec<String> {
        if self.rules { rules::objects(self) } else { Vec::new() }
    }

    /// The namespace of a service or proxy.
    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("ns-{}", number % self.namespaces)
    }

    /// The address of the endpoint with this number, in a block.
    fn address(&self, number: usize, block: usize) -> String {
        format!("{block}.{}.{}.{}", 128 + number / 62_500, number / 250 % 250, number % 250 + 1)
    }

    /// A route that keeps this share, in percent, of one service's requests with it.
    fn split(&self, share: usize) -> String {
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

    fn service(&self, number: usize) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: svc-{number}, namespace: {} }}\nspec:\n  \
             clusterIP: 10.{}.{}.{}\n  selector: {{ app: svc-{number} }}\n  ports:\n",
            self.namespace(number),
            96 + number / 62_500,
            number / 250 % 250,
            number % 250 + 1
        );
        for port in 0..self.ports {
            let _ = writeln!(text, "  - {{ name: http-{port}, port: {}, targetPort: {} }}", 80 + port, 8080 + port);
        }
        text
    }

    fn slice(&self, service: usize, generation: usize) -> String {
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
            let node = node_name(number);
            let _ = writeln!(text, "- {{ addresses: [{address}], conditions: {{ ready: true }}, nodeName: {node} }}");
        }
        text
    }
}
