//! Adapts the world to the interface of the xDS hub: the crates `xds` and `world` do not know each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::ObjectKey;
use flow::CellId;
use model::audience::ResourceKey;
use model::proxy::Proxy;
use model::xds::{Resource, ResourceType};
use registry::inputs::ProxyToken;
use world::{Audience, Catalogue, Conflicts, World};
use xds::{Code, Origin, Status};

/// The world as the source of the hub's resources.
pub(crate) struct ServedWorld {
    pub(crate) world: World,
    /// The conflicts that changed since the last turn because proxies connected or disconnected.
    pub(crate) conflicts: Vec<(ObjectKey, Conflicts)>,
}

/// The hub of streams over the world.
pub(crate) type Hub = xds::Hub<ServedWorld>;
/// The changes of a commit that concern the hub.
pub(crate) type Changes = xds::Changes<ServedWorld>;
/// The differences of changed catalogues.
pub(crate) type Compared = xds::Compared<ServedWorld>;

impl ServedWorld {
    /// Converts the changes of a commit for the hub.
    pub(crate) fn changes(changes: world::Changes) -> Changes {
        xds::Changes {
            resources: changes.resources,
            catalogues: changes.catalogues,
            moved: changes.moved,
            appeared: changes.hosts.iter().map(|host| host.as_str().into()).collect(),
        }
    }
}

impl Origin for ServedWorld {
    type Token = ProxyToken;
    type Cell = CellId;
    // `None` for a proxy that has disconnected or receives nothing of the type.
    type Audience = Option<Audience>;
    type Key = ResourceKey;
    type Catalogue = Arc<Catalogue>;

    fn connect(&mut self, proxies: &[Arc<Proxy>]) -> Vec<Result<ProxyToken, Status>> {
        let (tokens, conflicts) = self.world.connect_all(proxies);
        self.conflicts.extend(conflicts);
        let unknown: Vec<ProxyToken> =
            tokens.iter().copied().filter(|token| !self.world.has_audiences(*token)).collect();
        if !unknown.is_empty() {
            self.disconnect(&unknown);
        }
        let error = || Status::new(Code::Unavailable, "this proxy cannot be served, because of an internal error");
        tokens.into_iter().map(|token| if unknown.contains(&token) { Err(error()) } else { Ok(token) }).collect()
    }

    fn disconnect(&mut self, tokens: &[ProxyToken]) {
        self.conflicts.extend(self.world.disconnect_all(tokens));
    }

    fn audience(&self, token: ProxyToken, kind: ResourceType) -> Option<Audience> {
        self.world.audience(token, kind)
    }

    fn own_audience(&self, token: ProxyToken, kind: ResourceType) -> Option<Option<Audience>> {
        self.world.own_audience(token, kind).map(Some)
    }

    fn open_catalogue(
        &mut self,
        _: ResourceType,
        audience: &Option<Audience>,
        collection: &Arc<str>,
    ) -> Option<(CellId, Arc<Catalogue>)> {
        self.world.open_catalogue(audience.as_ref()?, collection)
    }

    fn rows(catalogue: &Arc<Catalogue>) -> &[(Arc<str>, ResourceKey)] {
        &catalogue.entries
    }

    fn hides(key: &ResourceKey) -> bool {
        *key == ResourceKey::Hidden
    }

    fn resolve(&self, _: ResourceType, audience: &Option<Audience>, name: &Arc<str>) -> Option<ResourceKey> {
        self.world.resolve(audience.as_ref()?, name)
    }

    fn requires<'n>(&self, kind: ResourceType, name: &'n str) -> Option<&'n str> {
        self.world.required_host(kind, name)
    }

    fn own_required(&self, _: ResourceType, audience: &Option<Audience>) -> Option<Arc<BTreeSet<Arc<str>>>> {
        self.world.own_hosts(audience.as_ref()?)
    }

    fn has(&self, host: &str) -> bool {
        self.world.has_host(host)
    }

    fn open(&mut self, key: &ResourceKey) -> (CellId, Option<Resource>) {
        self.world.open(key)
    }

    fn open_all(&mut self, keys: &[&ResourceKey]) -> Vec<(CellId, Option<Resource>)> {
        self.world.open_all(keys)
    }

    fn failed(&self, cell: CellId) -> bool {
        self.world.is_failed(cell)
    }

    fn close(&mut self, cell: CellId) {
        self.world.close(cell);
    }
}

#[cfg(test)]
mod tests;
