//! What is to be said of objects because of others.

use std::sync::Arc;

use flow::{CellId, Delta, Relation, Rule};
use model::service::ObjectId;
use policy::telemetry::TelemetryRemarks;
use resources::{Kind, ObjectKey};
use traffic::remarks::{
    DestinationRuleRemarks, GatewayRemarks, PeerAuthenticationRemarks, ProxyConfigRemarks, Remarks,
    ServiceEntryRemarks, SidecarRemarks, VirtualServiceRemarks,
};

use crate::World;

impl World {
    /// Watches an object: what is to be said of it now, and, by [`crate::Changes::remarks`], whenever that changes. None for an
    /// object of a kind of which nothing is ever said. Whoever watches ends it by [`World::close`].
    pub fn watch(&mut self, object: &ObjectKey) -> Option<(CellId, Remarks)> {
        match object.kind {
            Kind::VirtualService => Some(self.remarks::<VirtualServiceRemarks>(object)),
            Kind::DestinationRule => Some(self.remarks::<DestinationRuleRemarks>(object)),
            Kind::Gateway => Some(self.remarks::<GatewayRemarks>(object)),
            Kind::Sidecar => Some(self.remarks::<SidecarRemarks>(object)),
            Kind::ServiceEntry => Some(self.remarks::<ServiceEntryRemarks>(object)),
            Kind::ProxyConfig => Some(self.remarks::<ProxyConfigRemarks>(object)),
            Kind::PeerAuthentication => Some(self.remarks::<PeerAuthenticationRemarks>(object)),
            Kind::MeshConfig => Some(self.remarks::<TelemetryRemarks>(object)),
            _ => None,
        }
    }

    fn remarks<R: Rule<Key = ObjectId, Row = Remarks>>(&mut self, object: &ObjectKey) -> (CellId, Remarks) {
        let id = ObjectId {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        let cell = self.engine.subscribe::<R>(id);
        let row = self.engine.row::<R>(cell);
        (cell, row.map(|row| (*row).clone()).unwrap_or_default())
    }
}

/// What a commit changed of them.
pub(crate) fn of(delta: &Delta) -> Vec<(ObjectKey, Remarks)> {
    let mut all = Vec::new();
    add::<VirtualServiceRemarks>(Kind::VirtualService, delta, &mut all);
    add::<DestinationRuleRemarks>(Kind::DestinationRule, delta, &mut all);
    add::<GatewayRemarks>(Kind::Gateway, delta, &mut all);
    add::<SidecarRemarks>(Kind::Sidecar, delta, &mut all);
    add::<ServiceEntryRemarks>(Kind::ServiceEntry, delta, &mut all);
    add::<ProxyConfigRemarks>(Kind::ProxyConfig, delta, &mut all);
    add::<PeerAuthenticationRemarks>(Kind::PeerAuthentication, delta, &mut all);
    add::<TelemetryRemarks>(Kind::MeshConfig, delta, &mut all);
    all
}

fn add<R: Relation<Key = ObjectId, Row = Remarks>>(kind: Kind, delta: &Delta, to: &mut Vec<(ObjectKey, Remarks)>) {
    to.extend(delta.changes::<R>().iter().map(|change| {
        let key = ObjectKey::new(kind, &*change.key.namespace, &*change.key.name);
        let row: Option<&Arc<Remarks>> = change.after.as_ref();
        (key, row.map(|row| (**row).clone()).unwrap_or_default())
    }));
}
