//! What the endpoints of a cluster depend on of a client.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{ClientView, EndpointsAudience, OutboundKey, Place};
use model::proxy::Labels;
use model::service::Registry;
use registry::inputs::{Mesh, Sharing};
use registry::{NetworkGateways, Services};

use crate::policy::preference::{Preference, preference};
use crate::policy::{effective_in, merged};

/// What the endpoints of each cluster depend on of a client. Apart from the endpoints, so that clients share all that
/// differs in nothing that matters to them.
pub struct ClientNeeds;

impl Relation for ClientNeeds {
    const NAME: &'static str = "needs of clusters";
    type Key = OutboundKey;
    type Row = Needs;
}

/// What the endpoints of a cluster depend on of a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Endpoints of the client's cluster only.
    pub cluster: bool,
    /// Endpoints of the client's node only.
    pub node: bool,
    /// Networks have a meaning.
    pub network: bool,
    /// The client's locality.
    pub locality: bool,
    /// These labels of the client.
    pub labels: BTreeSet<Arc<str>>,
}

impl Rule for ClientNeeds {
    fn derive(cx: &Reads<'_>, key: &OutboundKey) -> Option<Needs> {
        let service = cx.get::<Services>(&key.service)?;
        let mesh = cx.get::<Mesh>(&())?;
        let rule = merged(cx, key.policy.as_ref());
        let policy = effective_in(&mesh.config, rule.as_deref(), &key.subset, key.port);
        let (unshared, kubernetes) = (mesh.sharing != Sharing::All, service.registry == Registry::Kubernetes);
        let mut needs = Needs {
            cluster: service.cluster_local || service.node_local || (unshared && kubernetes),
            node: service.node_local,
            network: cx.with::<NetworkGateways, _>(&(), |gateways| gateways.is_some_and(|g| !g.is_empty())),
            ..Needs::default()
        };
        let preference = preference(&mesh.config, &policy, &service);
        match preference {
            Preference::Equal => {}
            Preference::Distribute(_) | Preference::ByLocality(_) => needs.locality = true,
            Preference::ByLabels(names, failover) | Preference::ByRegion(names, failover) => {
                needs.locality = !failover.is_empty() || matches!(preference, Preference::ByRegion(..));
                let own = names.iter().filter(|(_, instead)| instead.is_none());
                needs.labels = own.map(|(name, _)| name.into()).collect();
            }
        }
        Some(needs)
    }
}

impl Needs {
    /// The part of a client's place by which the endpoints of a cluster go one before the other; none where nothing
    /// is preferred. Only what the proxy itself is, and not its network or cluster.
    pub fn preference(&self, place: &Place) -> Option<ClientView> {
        if !self.locality && self.labels.is_empty() {
            return None;
        }
        let own = |name: &Arc<str>| Some((name.clone(), label(place, &Arc::default(), name)?));
        Some(ClientView {
            locality: self.locality.then(|| Arc::new(place.locality.clone())),
            labels: self.labels.iter().filter_map(own).collect::<Labels>(),
            ..ClientView::default()
        })
    }

    /// The part of a client's place that a cluster with these needs asks for.
    pub fn view(&self, client: &EndpointsAudience) -> ClientView {
        let (place, cluster) = (&client.place, &client.scope.cluster);
        let known = |name: &Arc<str>| Some((name.clone(), label(place, cluster, name)?));
        ClientView {
            cluster: Some(cluster.clone()).filter(|cluster| self.cluster && !cluster.is_empty()),
            node: self.node.then(|| place.node.clone()),
            network: self.network.then(|| place.network.clone()),
            networks: place.networks.clone(),
            locality: self.locality.then(|| Arc::new(place.locality.clone())),
            labels: self.labels.iter().filter_map(known).collect::<Labels>(),
        }
    }
}

/// A client's label: what it is known to be in goes before what its workload says, as with endpoints.
fn label(place: &Place, cluster: &Arc<str>, name: &str) -> Option<Arc<str>> {
    let known = match name {
        "topology.kubernetes.io/region" => &place.locality.region,
        "topology.kubernetes.io/zone" => &place.locality.zone,
        "topology.istio.io/subzone" => &place.locality.sub_zone,
        "topology.istio.io/network" => &place.network,
        "topology.istio.io/cluster" => cluster,
        "kubernetes.io/hostname" => &place.node,
        _ => return place.labels.get(name).cloned(),
    };
    Some(known)
        .filter(|value| !value.is_empty())
        .or(place.labels.get(name))
        .cloned()
}
