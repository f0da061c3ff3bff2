//! Endpoints with a sidecar that accept plain text only, because of PeerAuthentications.
//!
//! It is split into relations so that readers depend on little: whether a namespace has plain-text workloads at all,
//! and the plain-text endpoints of one service. A policy for one workload affects only the services of this workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::service::{Endpoint, ObjectId, ServiceKey};
use registry::ServiceEndpoints;
use registry::inputs::Mesh;

use crate::peers::{self, Plain};

flow::rule! {
    /// Namespaces with workloads that accept plain text only.
    pub PlainNamespaces: Arc<str> => () = "namespaces with plain text", derive_plain_namespaces;
}

fn derive_plain_namespaces(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<()> {
    in_namespace(cx, namespace).map(|_| ())
}

flow::rule! {
    /// Namespaces whose workloads accept plain text only by default.
    pub PlainByDefault: Arc<str> => () = "namespaces in plain text", derive_plain_by_default;
}

fn derive_plain_by_default(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<()> {
    in_namespace(cx, namespace)?.by_default().then_some(())
}

flow::rule! {
    /// The endpoints of a service that support mutual TLS but accept plain text only.
    pub PlainEndpoints: ServiceKey => Arc<Places> = "plain text towards a service", derive_plain_endpoints;
}

/// Ports of workloads: workload, id of its cluster, port.
pub type Places = BTreeSet<(ObjectId, Arc<str>, u16)>;

fn derive_plain_endpoints(cx: &Reads<'_>, key: &ServiceKey) -> Option<Arc<Places>> {
    let endpoints = cx.get::<ServiceEndpoints>(key)?;
    let mut out = BTreeSet::new();
    for namespace in namespaces(&endpoints) {
        let Some(plain) = in_namespace(cx, namespace) else {
            continue;
        };
        for (endpoint, id) in secure(&endpoints).filter(|(_, id)| id.namespace == *namespace) {
            let ports = endpoint.ports.values().copied();
            let ports = ports.filter(|port| plain.at(&endpoint.labels, *port));
            out.extend(ports.map(|port| (id.clone(), endpoint.cluster.clone(), port)));
        }
    }
    Some(Arc::new(out))
}

flow::rule! {
    /// Names of a service's ports whose endpoints all accept mutual TLS, for clients that do not select endpoints
    /// themselves.
    pub MutualTlsPorts: ServiceKey => BTreeSet<Arc<str>> = "ports with mutual tls", derive_mutual_tls_ports;
}

fn derive_mutual_tls_ports(cx: &Reads<'_>, key: &ServiceKey) -> Option<BTreeSet<Arc<str>>> {
    let endpoints = cx.get::<ServiceEndpoints>(key)?;
    let plain = of_service(cx, key, &endpoints);
    let mut ports: BTreeMap<&Arc<str>, bool> = BTreeMap::new();
    for endpoint in endpoints.iter() {
        for (name, port) in &*endpoint.ports {
            let taken = endpoint.mutual_tls && !plain.as_ref().is_some_and(|plain| has(plain, endpoint, *port));
            *ports.entry(name).or_insert(true) &= taken;
        }
    }
    let all = ports.into_iter().filter(|(_, all)| *all);
    Some(all.map(|(name, _)| name.clone()).collect())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<PlainNamespaces>();
    b.view::<PlainByDefault>();
    b.view::<PlainEndpoints>();
    b.view::<MutualTlsPorts>();
}

/// Whether the workloads of a namespace accept plain text only by default.
pub fn by_default(cx: &Reads<'_>, namespace: &Arc<str>) -> bool {
    cx.with::<PlainByDefault, _>(namespace, |plain| plain.is_some())
}

/// The plain-text endpoints of a service among those that support mutual TLS; none in most meshes.
pub fn of_service(cx: &Reads<'_>, service: &ServiceKey, endpoints: &[Endpoint]) -> Option<Arc<Places>> {
    let is_plain = |namespace: &Arc<str>| cx.with::<PlainNamespaces, _>(namespace, |plain| plain.is_some());
    let some = namespaces(endpoints).into_iter().any(is_plain);
    some.then(|| cx.get::<PlainEndpoints>(service).map(|row| (*row).clone()))?
}

/// Whether it contains an endpoint at this port of its workload.
pub fn has(places: &Places, endpoint: &Endpoint, port: u16) -> bool {
    let place = |id: &ObjectId| (id.clone(), endpoint.cluster.clone(), port);
    endpoint.workload.as_ref().is_some_and(|id| places.contains(&place(id)))
}

/// Endpoints that support mutual TLS, with their workload.
fn secure(endpoints: &[Endpoint]) -> impl Iterator<Item = (&Endpoint, &ObjectId)> {
    let secure = endpoints.iter().filter(|endpoint| endpoint.mutual_tls);
    secure.filter_map(|endpoint| Some((endpoint, endpoint.workload.as_ref()?)))
}

/// The namespaces of their workloads without duplicates. Most services have one.
fn namespaces(endpoints: &[Endpoint]) -> Vec<&Arc<str>> {
    let mut seen: Vec<&Arc<str>> = Vec::new();
    for (_, id) in secure(endpoints) {
        if seen.last() != Some(&&id.namespace) && !seen.contains(&&id.namespace) {
            seen.push(&id.namespace);
        }
    }
    seen
}

fn in_namespace(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<Plain> {
    let mesh = cx.get::<Mesh>(&())?;
    peers::plain(cx, &mesh.config.root_namespace, namespace)
}
