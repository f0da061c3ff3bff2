//! Endpoints of clusters (EDS).

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{OutboundKey, Scope};
use model::xds::Resource;
use registry::inputs::Mesh;
use registry::{ServiceEndpoints, Services};
use traffic::policy::{DestinationPolicies, effective};

use crate::assignment::{self, Selection};
use crate::cluster::{discovery, has_persistent_sessions, is_dns};

/// Encoded endpoints of outbound clusters, shared by all clients to whom the cluster is the same.
pub struct LoadAssignments;

impl Relation for LoadAssignments {
    const NAME: &'static str = "load assignments";
    type Key = OutboundKey;
    type Row = Resource;
}

impl Rule for LoadAssignments {
    fn derive(cx: &Reads<'_>, key: &OutboundKey) -> Option<Resource> {
        let service = cx.get::<Services>(&key.service)?;
        let port = service.port(key.port)?;
        // Clusters of DNS names have their endpoints inside.
        if is_dns(discovery(&service, key.from_endpoints)) {
            return None;
        }
        let rule = key
            .policy
            .as_ref()
            .and_then(|policy| cx.get::<DestinationPolicies>(policy));
        let subset = rule.as_ref().and_then(|rule| rule.subset(&key.subset));
        if !key.subset.is_empty() && subset.is_none() {
            return None;
        }
        let policy = effective(rule.as_deref().map(|rule| &**rule), &key.subset, key.port);
        let mesh = cx.get::<Mesh>(&())?;
        let endpoints = cx.get::<ServiceEndpoints>(&key.service);
        let selection = Selection {
            port_name: &port.name,
            labels: subset.map(|subset| &subset.labels),
            // Below the share of healthy endpoints that is asked for Envoy uses all that it knows. Those that are not
            // ready must not be among them.
            unhealthy: policy
                .outlier_detection
                .is_none_or(|outlier| outlier.min_health_percent <= 0),
            draining: has_persistent_sessions(&service),
            dns: false,
            single: false,
        };
        let name = key.cluster_name();
        let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
        let (body, _) = assignment::encode(&name, endpoints, selection, &mesh.cluster_id);
        Some(Resource::new(name, body))
    }
}

/// The endpoints of a cluster, by its name, as clients of a scope see it. None for a name that means nothing to them.
pub struct Endpoints;

impl Relation for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = (Arc<Scope>, Arc<str>);
    type Row = Resource;
}

impl Rule for Endpoints {
    fn derive(cx: &Reads<'_>, (scope, name): &(Arc<Scope>, Arc<str>)) -> Option<Resource> {
        let key = traffic::clusters::resolve(cx, scope, name)?;
        cx.get::<LoadAssignments>(&key).map(|row| (*row).clone())
    }
}
