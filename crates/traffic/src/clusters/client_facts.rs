//! Client facts that the endpoints of a cluster depend on.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::{ClientLocation, ClientView, EndpointsAudience, OutboundKey};
use model::proxy::Labels;
use model::service::Registry;
use registry::inputs::{Mesh, Sharing};
use registry::{NetworkGateways, Services};

use crate::policy::preference::{Preference, preference};
use crate::policy::{effective_in, merged};

flow::rule! {
    /// The client facts that the endpoints of each cluster depend on. A relation of its own, so that clients which differ only
    /// in other facts share the endpoints.
    pub RelevantClientFacts: OutboundKey => RelevantFacts = "relevant client facts", derive_relevant_client_facts;
}

/// The client facts that the endpoints of a cluster depend on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RelevantFacts {
    /// The cluster: only its endpoints are used.
    pub cluster: bool,
    /// The node: only its endpoints are used.
    pub node: bool,
    /// The network: endpoints of others are reached through gateways.
    pub network: bool,
    /// The locality.
    pub locality: bool,
    /// These labels.
    pub labels: BTreeSet<Arc<str>>,
}

fn derive_relevant_client_facts(cx: &Reads<'_>, key: &OutboundKey) -> Option<RelevantFacts> {
    let service = cx.get::<Services>(&key.service)?;
    let mesh = cx.get::<Mesh>(&())?;
    let rule = merged(cx, key.policy.as_ref());
    let policy = effective_in(&mesh.config, rule.as_deref(), &key.subset, key.port);
    let (unshared, kubernetes) = (mesh.sharing != Sharing::All, service.registry == Registry::Kubernetes);
    let mut relevant = RelevantFacts {
        cluster: service.cluster_local || service.node_local || (unshared && kubernetes),
        node: service.node_local,
        network: cx.with::<NetworkGateways, _>(&(), |gateways| gateways.is_some_and(|g| !g.is_empty())),
        ..RelevantFacts::default()
    };
    let preference = preference(&mesh.config, &policy, &service);
    match preference {
        Preference::Equal => {}
        Preference::Distribute(_) | Preference::ByLocality(_) => relevant.locality = true,
        Preference::ByLabels(names, failover) | Preference::ByRegion(names, failover) => {
            relevant.locality = !failover.is_empty() || matches!(preference, Preference::ByRegion(..));
            let own = names.iter().filter(|(_, instead)| instead.is_none());
            relevant.labels = own.map(|(name, _)| name.into()).collect();
        }
    }
    Some(relevant)
}

impl RelevantFacts {
    /// The facts of a client by which endpoints in a cluster (of a service that is resolved by DNS) are selected and
    /// prioritized; none if they are not. The network is ignored.
    pub fn preference(&self, location: &ClientLocation, cluster: &Arc<str>) -> Option<ClientView> {
        let cluster = Some(cluster.clone()).filter(|cluster| self.cluster && !cluster.is_empty());
        if !self.locality && self.labels.is_empty() && cluster.is_none() {
            return None;
        }
        let own = |name: &Arc<str>| Some((name.clone(), label(location, &Arc::default(), name)?));
        Some(ClientView {
            cluster,
            locality: self.locality.then(|| Arc::new(location.locality.clone())),
            labels: self.labels.iter().filter_map(own).collect::<Labels>(),
            ..ClientView::default()
        })
    }

    /// The relevant part of a client's location.
    pub fn view(&self, client: &EndpointsAudience) -> ClientView {
        let (location, cluster) = (&client.location, &client.scope.cluster);
        let known = |name: &Arc<str>| Some((name.clone(), label(location, cluster, name)?));
        ClientView {
            cluster: Some(cluster.clone()).filter(|cluster| self.cluster && !cluster.is_empty()),
            node: self.node.then(|| location.node.clone()),
            network: self.network.then(|| location.network.clone()),
            networks: location.networks.clone(),
            locality: self.locality.then(|| Arc::new(location.locality.clone())),
            labels: self.labels.iter().filter_map(known).collect::<Labels>(),
        }
    }
}

/// A client's label. As for endpoints, known topology overrides the workload's labels.
fn label(location: &ClientLocation, cluster: &Arc<str>, name: &str) -> Option<Arc<str>> {
    let known = match name {
        "topology.kubernetes.io/region" => &location.locality.region,
        "topology.kubernetes.io/zone" => &location.locality.zone,
        "topology.istio.io/subzone" => &location.locality.sub_zone,
        "topology.istio.io/network" => &location.network,
        "topology.istio.io/cluster" => cluster,
        "kubernetes.io/hostname" => &location.node,
        _ => return location.labels.get(name).cloned(),
    };
    Some(known).filter(|value| !value.is_empty()).or(location.labels.get(name)).cloned()
}
