//! The world as the source of served resources: audiences, catalogues and resources, and their changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{ChangeSet, Diagnostic, FieldPath, Kind, ObjectKey, Severity};
use flow::{CellId, Delta, Engine};
use model::audience::ResourceKey;
use model::open_key::OpenKey;
use model::xds::{Resource, ResourceType, ResourceTypes};
use names::Hostname;
use registry::inputs::{Mesh, MeshSettings, ProxyToken, Sources};
use registry::objects;
use registry::tables::Overridden;
use registry::{GatewayNames, ServicesByHost};
use security::request_authentication::WantedKeySources;
use traffic::Catalogue;
use traffic::audience::Audiences;
use traffic::conflicts::Conflicts;
use traffic::serving::{Hosts, ServedTypes};

use crate::{Facts, World, conflicts, standings};

/// The facts that proxies must share to receive equal resources of one type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Audience {
    kind: ResourceType,
    key: OpenKey,
}

impl Audience {
    /// The audience as its type knows it, if it is of this type.
    pub fn get<A: 'static>(&self) -> Option<&A> {
        self.key.get()
    }
}

/// The changes of a commit that serving needs.
#[derive(Default, Debug)]
pub struct Changes {
    /// The commit's number, ascending.
    pub epoch: u64,
    /// Subscribed resources that changed; `None`: the resource no longer exists.
    pub resources: Vec<(CellId, Option<Resource>)>,
    /// Subscribed catalogues that changed.
    pub catalogues: Vec<(CellId, Arc<Catalogue>)>,
    /// Proxies whose audiences changed.
    pub moved: Vec<ProxyToken>,
    /// Hostnames of services that did not exist before.
    pub hosts: Vec<Hostname>,
    /// Watched objects whose conflicts changed; empty if there are none any more.
    pub conflicts: Vec<(ObjectKey, Conflicts)>,
    /// Watched objects of the Gateway API whose facts changed ([`World::watch_standing`]).
    pub standings: Vec<(ObjectKey, Facts)>,
    /// EnvoyFilters whose left-out patches changed ([`crate::Reach::unmade`]).
    pub patching: Vec<ObjectKey>,
    /// The objects that took effect, changed, or ceased to be in effect.
    pub objects: ChangeSet,
    /// The number of objects among them that were not in effect before, by kind.
    pub added: BTreeMap<Kind, u64>,
    /// Objects that a source with a lower rank overrides now.
    pub overridden: Vec<Diagnostic>,
    /// The mesh-wide settings, if they changed.
    pub mesh: Option<Arc<MeshSettings>>,
    /// Whether the names to resolve changed ([`World::wanted_names`]).
    pub names: bool,
    /// Whether the sources of keys to fetch changed ([`World::wanted_keys`]).
    pub keys: bool,
    /// Rules that panicked, with key and message. Their cells keep the previous row.
    pub panics: Vec<String>,
}

impl Changes {
    /// Whether nothing changed for proxies.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.catalogues.is_empty() && self.moved.is_empty()
    }

    pub(crate) fn of(types: &ServedTypes, engine: &Engine, delta: &Delta) -> Changes {
        let panics = delta.panics().iter();
        let (objects, added) = objects::changes(delta);
        Changes {
            epoch: delta.epoch(),
            resources: types.changed_resources(delta),
            catalogues: types.changed_lists(delta),
            moved: delta.changes::<Audiences>().map(|c| *c.key).collect(),
            hosts: delta.changes::<ServicesByHost>().filter(|c| c.before.is_none()).map(|c| c.key.clone()).collect(),
            conflicts: conflicts::of(delta),
            standings: standings::of(delta),
            patching: envoy_filter::changed_patches(delta),
            objects,
            added,
            overridden: overridden(engine, delta),
            mesh: delta.changes::<Mesh>().find_map(|c| c.after.as_deref().cloned()),
            names: delta.changes::<GatewayNames>().next().is_some(),
            keys: delta.changes::<WantedKeySources>().next().is_some(),
            panics: panics.map(shown).collect(),
        }
    }
}

pub(crate) fn shown(panic: &flow::Panic) -> String {
    format!("{}[{}]: {}", panic.rule, panic.key, panic.message)
}

fn overridden(engine: &Engine, delta: &Delta) -> Vec<Diagnostic> {
    let name = |rank| engine.get::<Sources>(&rank).map_or_else(|| "a source".into(), |name| (*name).clone());
    let overridden = objects::newly_overridden(engine, delta).into_iter();
    let diagnostic = |Overridden { object, rank, by }: Overridden| {
        let (source, by) = (name(rank), name(by));
        let origin = object.meta().origin.as_ref();
        Diagnostic {
            file: Some(origin.map_or_else(|| source.clone(), |origin| origin.file.clone())),
            line: origin.map_or(0, |origin| origin.line),
            column: u32::from(origin.is_some()),
            object: Some(object.key()),
            path: FieldPath::root(),
            severity: Severity::Warning,
            code: "defined-in-two-sources",
            message: format!("{by} and {source} define this object; {by} takes precedence"),
            hint: Some("keep one of them".into()),
        }
    };
    overridden.map(diagnostic).collect()
}

impl World {
    /// The resource types that are served.
    pub fn types(&self) -> &ResourceTypes {
        &self.types
    }

    /// The audience of a connected proxy for a type. `None` if the proxy is not connected or does not receive the type.
    pub fn audience(&self, token: ProxyToken, kind: ResourceType) -> Option<Audience> {
        let audiences = self.engine.get::<Audiences>(&token)?;
        let key = self.served.audience(&audiences, kind)?;
        Some(Audience { kind, key })
    }

    /// The audience of a connected proxy for its own resources of a wildcard type, which it is sent in addition. `None` if
    /// it has none.
    pub fn own_audience(&self, token: ProxyToken, kind: ResourceType) -> Option<Audience> {
        let audiences = self.engine.get::<Audiences>(&token)?;
        let key = self.served.own_audience(&audiences, kind)?;
        Some(Audience { kind, key })
    }

    /// Subscribes to the catalogue of a wildcard type (with an empty `collection`) or of a collection (a route table's
    /// virtual hosts). `None` if the audience has none, as for named types and for gRPC clients, which subscribe by
    /// name.
    pub fn open_catalogue(&mut self, audience: &Audience, collection: &Arc<str>) -> Option<(CellId, Arc<Catalogue>)> {
        let Audience { kind, key } = audience;
        self.served.open_list(&mut self.engine, (*kind, key), collection)
    }

    /// The resource of this name for an audience that subscribes by name.
    pub fn resolve(&self, audience: &Audience, name: &Arc<str>) -> Option<ResourceKey> {
        self.served.resolve(audience.kind, &audience.key, name)
    }

    /// The hostname of the service without which no audience has a resource of this name, if there is such a service.
    pub fn required_host<'n>(&self, kind: ResourceType, name: &'n str) -> Option<&'n str> {
        self.served.required_host(kind, name)
    }

    /// The hostnames of the services that the names of an own audience require, unless they require none. `None`: they are not
    /// known.
    pub fn own_hosts(&self, audience: &Audience) -> Option<Hosts> {
        self.served.own_hosts(audience.kind, &audience.key)
    }

    /// Whether there is a service with this hostname.
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.contains(host)
    }

    pub(crate) fn note_hosts(&mut self, delta: &Delta) {
        for change in delta.changes::<ServicesByHost>() {
            let hosts = Arc::make_mut(&mut self.hosts);
            match change.after {
                Some(_) => drop(hosts.insert(change.key.as_str().into())),
                None => drop(hosts.remove(change.key.as_str())),
            }
        }
    }

    /// Subscribes to a resource: from now on commits report its changes.
    pub fn open(&mut self, key: &ResourceKey) -> (CellId, Option<Resource>) {
        self.served.open(&mut self.engine, key)
    }

    /// Subscribes to many resources, like [`World::open`], deriving them together.
    pub fn open_all(&mut self, keys: &[&ResourceKey]) -> Vec<(CellId, Option<Resource>)> {
        self.served.open_all(&mut self.engine, keys)
    }

    /// Whether what a cell holds could not be derived, or only a part of it, because a rule panicked.
    pub fn is_failed(&self, cell: CellId) -> bool {
        self.engine.is_failed(cell)
    }

    /// Whether the audiences of a connected proxy are known. They are not if their rule panicked.
    pub fn has_audiences(&self, token: ProxyToken) -> bool {
        self.engine.get::<Audiences>(&token).is_some()
    }

    /// Ends a subscription. Call it once for each time that the cell was opened.
    pub fn close(&mut self, cell: CellId) {
        self.engine.unsubscribe(cell);
    }

    /// Whether what closed resources were derived from may remain.
    pub fn has_unused(&self) -> bool {
        self.engine.has_unused()
    }

    /// Drops a part of what closed resources were derived from.
    pub fn drop_unused(&mut self) {
        self.engine.drop_unused();
    }
}
