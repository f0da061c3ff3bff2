//! Conflicts of watched objects that a commit changed.

use std::sync::Arc;

use config::{Kind, ObjectKey};
use flow::{CellId, Delta, Relation, Rule};
use model::service::ObjectId;
use security::telemetry::TelemetryConflicts;
use traffic::conflicts::{
    AuthorizationPolicyConflicts, Conflicts, DestinationRuleConflicts, GatewayConflicts, PeerAuthenticationConflicts,
    ProxyConfigConflicts, RequestAuthenticationConflicts, RouteConflicts, ServiceEntryConflicts, SidecarConflicts,
    VirtualServiceConflicts,
};

use crate::World;
use crate::standings::{route_id, route_key};

impl World {
    /// Watches the conflicts of an object. Returns the current ones; [`crate::Changes::conflicts`] reports changes.
    /// `None` for kinds without conflicts. [`World::close`] ends the watch.
    pub fn watch(&mut self, object: &ObjectKey) -> Option<(CellId, Conflicts)> {
        match object.kind {
            Kind::VirtualService => Some(self.conflicts::<VirtualServiceConflicts>(object)),
            Kind::DestinationRule => Some(self.conflicts::<DestinationRuleConflicts>(object)),
            Kind::Gateway => Some(self.conflicts::<GatewayConflicts>(object)),
            Kind::Sidecar => Some(self.conflicts::<SidecarConflicts>(object)),
            Kind::ServiceEntry => Some(self.conflicts::<ServiceEntryConflicts>(object)),
            Kind::ProxyConfig => Some(self.conflicts::<ProxyConfigConflicts>(object)),
            Kind::PeerAuthentication => Some(self.conflicts::<PeerAuthenticationConflicts>(object)),
            Kind::AuthorizationPolicy => Some(self.conflicts::<AuthorizationPolicyConflicts>(object)),
            Kind::RequestAuthentication => Some(self.conflicts::<RequestAuthenticationConflicts>(object)),
            Kind::MeshConfig => Some(self.conflicts::<TelemetryConflicts>(object)),
            Kind::HttpRoute | Kind::GrpcRoute if object.cluster.is_empty() => {
                Some(self.conflicts_of::<RouteConflicts>(route_id(object)?))
            }
            _ => None,
        }
    }

    fn conflicts<R: Rule<Key = ObjectId, Row = Conflicts>>(&mut self, object: &ObjectKey) -> (CellId, Conflicts) {
        self.conflicts_of::<R>(ObjectId { namespace: object.namespace.clone(), name: object.name.clone() })
    }

    fn conflicts_of<R: Rule<Row = Conflicts>>(&mut self, id: R::Key) -> (CellId, Conflicts) {
        let cell = self.engine.subscribe::<R>(id);
        let row = self.engine.row::<R>(cell);
        (cell, row.map(|row| (*row).clone()).unwrap_or_default())
    }
}

/// The conflicts that a commit changed.
pub(crate) fn of(delta: &Delta) -> Vec<(ObjectKey, Conflicts)> {
    let mut all = Vec::new();
    add::<VirtualServiceConflicts>(Kind::VirtualService, delta, &mut all);
    add::<DestinationRuleConflicts>(Kind::DestinationRule, delta, &mut all);
    add::<GatewayConflicts>(Kind::Gateway, delta, &mut all);
    add::<SidecarConflicts>(Kind::Sidecar, delta, &mut all);
    add::<ServiceEntryConflicts>(Kind::ServiceEntry, delta, &mut all);
    add::<ProxyConfigConflicts>(Kind::ProxyConfig, delta, &mut all);
    add::<PeerAuthenticationConflicts>(Kind::PeerAuthentication, delta, &mut all);
    add::<AuthorizationPolicyConflicts>(Kind::AuthorizationPolicy, delta, &mut all);
    add::<RequestAuthenticationConflicts>(Kind::RequestAuthentication, delta, &mut all);
    add::<TelemetryConflicts>(Kind::MeshConfig, delta, &mut all);
    all.extend(delta.changes::<RouteConflicts>().filter_map(|change| {
        let row: Option<&Arc<Conflicts>> = change.after.as_ref();
        Some((route_key(change.key)?, row.map(|row| (**row).clone()).unwrap_or_default()))
    }));
    all
}

fn add<R: Relation<Key = ObjectId, Row = Conflicts>>(kind: Kind, delta: &Delta, to: &mut Vec<(ObjectKey, Conflicts)>) {
    to.extend(delta.changes::<R>().map(|change| {
        let key = ObjectKey::new(kind, &*change.key.namespace, &*change.key.name);
        let row: Option<&Arc<Conflicts>> = change.after.as_ref();
        (key, row.map(|row| (**row).clone()).unwrap_or_default())
    }));
}
