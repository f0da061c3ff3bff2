//! Objects that come, change and go while a control plane runs.

use std::collections::VecDeque;

use anyhow::Result;

use crate::mesh::Mesh;
use crate::objects::Size;

/// The number of objects of each kind that exist at the same time.
const ALIVE: usize = 20;
/// Spreads consecutive numbers over all services.
const STRIDE: usize = 7919;

/// The texts of an object, and of what belongs to it, by its number and its generation.
type Texts = fn(Size, usize, usize) -> Vec<String>;

const KINDS: [(&str, Texts); 8] = [
    ("service", service),
    ("virtual-service", virtual_service),
    ("destination-rule", destination_rule),
    ("service-entry", service_entry),
    ("authorization-policy", authorization_policy),
    ("peer-authentication", peer_authentication),
    ("sidecar", sidecar),
    ("envoy-filter", envoy_filter),
];

/// Adds, changes and removes objects of all kinds in turn. Names are never used again.
pub(crate) struct Churn<'m> {
    mesh: &'m Mesh,
    size: Size,
    alive: [VecDeque<usize>; KINDS.len()],
    turn: usize,
    /// The number of edits so far.
    pub(crate) edits: u64,
}

impl<'m> Churn<'m> {
    pub(crate) fn new(mesh: &'m Mesh, size: Size) -> Churn<'m> {
        Churn { mesh, size, alive: Default::default(), turn: 0, edits: 0 }
    }

    /// Moves one endpoint of a service to another address and node. Adds an object of the next kind, changes another one
    /// and removes the oldest.
    pub(crate) async fn step(&mut self) -> Result<()> {
        let (turn, size) = (self.turn, self.size);
        self.turn += 1;
        let moved = (turn * STRIDE % size.services, turn % 39 + 1);
        self.mesh.change_endpoints(std::iter::once(moved)).await?;
        let (name, texts) = KINDS[turn % KINDS.len()];
        // Beyond the numbers of the mesh, also of what single changes add.
        let number = size.services + 1000 + turn;
        self.mesh.create(&format!("{name}-{number}"), &texts(size, number, 0)).await?;
        let alive = &mut self.alive[turn % KINDS.len()];
        alive.push_back(number);
        self.edits += 2;
        if let Some(number) = alive.get(alive.len() / 2) {
            self.mesh.change(&format!("{name}-{number}"), &texts(size, *number, turn)).await?;
            self.edits += 1;
        }
        if alive.len() > ALIVE
            && let Some(number) = alive.pop_front()
        {
            self.mesh.remove(&format!("{name}-{number}"), &texts(size, number, 0)).await?;
            self.edits += 1;
        }
        Ok(())
    }

    /// Removes all objects that it added.
    pub(crate) async fn end(&mut self) -> Result<()> {
        for ((name, texts), alive) in KINDS.iter().zip(&mut self.alive) {
            for number in std::mem::take(alive) {
                self.mesh.remove(&format!("{name}-{number}"), &texts(self.size, number, 0)).await?;
            }
        }
        Ok(())
    }
}

/// The service of the mesh that an object is about.
fn subject(size: Size, number: usize) -> usize {
    number * STRIDE % size.services
}

/// The start of an Istio object.
fn head(size: Size, group: &str, kind: &str, number: usize) -> String {
    let namespace = size.namespace(subject(size, number));
    format!(
        "apiVersion: {group}.istio.io/v1\nkind: {kind}\n\
         metadata: {{ name: churn-{number}, namespace: {namespace} }}\nspec:\n"
    )
}

fn service(size: Size, number: usize, generation: usize) -> Vec<String> {
    // Cluster IPs of services that are gone are used again; generations change the endpoints.
    vec![size.service(number), size.slice(number, generation % 40)]
}

fn virtual_service(size: Size, number: usize, generation: usize) -> Vec<String> {
    let host = size.host(subject(size, number));
    let head = head(size, "networking", "VirtualService", number);
    vec![format!(
        "{head}  hosts: [{host}]\n  http:\n  - timeout: {}s\n    match: [{{ uri: {{ prefix: /churn-{number} }} }}]\n\
         \x20   route: [{{ destination: {{ host: {host}, port: {{ number: 80 }} }} }}]\n\
         \x20 - route: [{{ destination: {{ host: {host}, port: {{ number: 80 }} }} }}]\n",
        generation % 50 + 1
    )]
}

fn destination_rule(size: Size, number: usize, generation: usize) -> Vec<String> {
    let host = size.host(subject(size, number));
    let head = head(size, "networking", "DestinationRule", number);
    vec![format!(
        "{head}  host: {host}\n  trafficPolicy: {{ connectionPool: {{ http: {{ http2MaxRequests: {} }} }} }}\n\
         \x20 subsets:\n  - {{ name: v{number}, labels: {{ version: v1 }} }}\n",
        generation + 1
    )]
}

fn service_entry(size: Size, number: usize, generation: usize) -> Vec<String> {
    let head = head(size, "networking", "ServiceEntry", number);
    vec![format!(
        "{head}  hosts: [churn-{number}.example.com]\n  resolution: STATIC\n\
         \x20 ports: [{{ number: 443, name: tls, protocol: TLS }}]\n\
         \x20 endpoints: [{{ address: 203.0.113.{} }}]\n",
        generation % 250 + 1
    )]
}

fn authorization_policy(size: Size, number: usize, generation: usize) -> Vec<String> {
    let head = head(size, "security", "AuthorizationPolicy", number);
    vec![format!(
        "{head}  selector: {{ matchLabels: {{ app: svc-{} }} }}\n  rules:\n  - to: [{{ operation: {{ paths: [/{generation}] }} }}]\n",
        subject(size, number)
    )]
}

fn peer_authentication(size: Size, number: usize, generation: usize) -> Vec<String> {
    let head = head(size, "security", "PeerAuthentication", number);
    let mode = if generation.is_multiple_of(2) { "PERMISSIVE" } else { "STRICT" };
    let app = subject(size, number);
    vec![format!("{head}  selector: {{ matchLabels: {{ app: svc-{app} }} }}\n  mtls: {{ mode: {mode} }}\n")]
}

/// Limits one proxy to its own namespace and another one.
fn sidecar(size: Size, number: usize, generation: usize) -> Vec<String> {
    let head = head(size, "networking", "Sidecar", number);
    let (app, other) = (subject(size, number), size.namespace(generation));
    vec![format!(
        "{head}  workloadSelector: {{ labels: {{ app: svc-{app} }} }}\n  egress:\n  - hosts: [./*, {other}/*]\n"
    )]
}

/// Changes one cluster of the proxies of one service.
fn envoy_filter(size: Size, number: usize, generation: usize) -> Vec<String> {
    let head = head(size, "networking", "EnvoyFilter", number).replacen("io/v1\n", "io/v1alpha3\n", 1);
    let (app, host) = (subject(size, number), size.host(subject(size, number + 1)));
    vec![format!(
        "{head}  workloadSelector: {{ labels: {{ app: svc-{app} }} }}\n  configPatches:\n  - applyTo: CLUSTER\n\
         \x20   match: {{ context: SIDECAR_OUTBOUND, cluster: {{ service: {host} }} }}\n\
         \x20   patch: {{ operation: MERGE, value: {{ connect_timeout: {}s }} }}\n",
        generation % 50 + 1
    )]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::objects::read;

    #[test]
    fn all_generations_of_an_object_have_one_name_and_differ() -> Result<()> {
        let size = Size {
            services: 10,
            ports: 2,
            endpoints: 3,
            namespaces: 2,
            rules: false,
            private: false,
            cluster_ips: true,
        };
        for (kind, texts) in KINDS {
            let name = |generation| -> Result<BTreeSet<String>> {
                texts(size, 1017, generation).iter().map(|text| Ok(read(text)?["metadata"].to_string())).collect()
            };
            assert_eq!(name(0)?, name(7)?, "{kind}");
            assert_ne!(texts(size, 1017, 0), texts(size, 1017, 7), "{kind}");
            assert_ne!(
                name(0)?,
                texts(size, 1018, 0)
                    .iter()
                    .map(|text| Ok(read(text)?["metadata"].to_string()))
                    .collect::<Result<_>>()?
            );
        }
        Ok(())
    }
}
