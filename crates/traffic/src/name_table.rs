//! Services in an agent's name table.

use std::sync::Arc;

use flow::Reads;
use model::audience::{NameAudience, ResourceKey, Scope};
use model::service::ServiceKey;

use crate::Catalogue;
use crate::scope;

flow::rule! {
    /// The catalogue of name tables: one resource, without a name.
    pub NameTableCatalogue: Arc<NameAudience> => Catalogue = "name table catalogue", derive_name_table_catalogue;
}

fn derive_name_table_catalogue(_: &Reads<'_>, audience: &Arc<NameAudience>) -> Option<Catalogue> {
    let only = (Arc::default(), ResourceKey::NameTable(audience.clone()));
    Some(Catalogue::new(vec![only]))
}

/// The services that a client's egress listeners import, one for each hostname, ascending. Services that only
/// VirtualServices lead to are excluded: clients cannot call them.
pub fn services(cx: &Reads<'_>, scope: &Arc<Scope>) -> Vec<ServiceKey> {
    let Some(visible) = scope::visible(cx, scope) else {
        return Vec::new();
    };
    let everything = |services: &Arc<[_]>| Arc::ptr_eq(services, &visible.services);
    let all = visible.services.iter().map(|service| &service.key);
    if visible.listeners.iter().any(|listener| everything(&listener.services)) {
        return all.cloned().collect();
    }
    let admitted = |key: &&ServiceKey| visible.listeners.iter().any(|l| l.find(&key.hostname).is_some());
    all.filter(admitted).cloned().collect()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<NameTableCatalogue>();
}
