//! The resources of one proxy, fetched as a client does: the catalogues, then the referenced names.

use envoy::types;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use envoy_filter::Client as ClientOf;
use flow::CellId;
use model::audience::{EndpointsSection, GrpcAudience, LOCAL_CLUSTER, ListenerAudience, ResourceKey};
use model::xds::{Resource, ResourceType};
use registry::inputs::ProxyToken;
use serde_json::Value;
use world::{Audience, World};

/// All resources of a proxy, by type and name.
pub type Holdings = BTreeMap<(ResourceType, Arc<str>), Resource>;

/// A connected proxy. Its subscriptions stay open between steps, so that commits are incremental.
pub struct Client {
    /// The world's token for it.
    pub token: ProxyToken,
    /// Whether it reports extensions of Istio's Envoy build.
    pub istio: bool,
    /// Whether its agent answers DNS queries and requests the name table.
    pub resolves: bool,
    /// The listeners that a gRPC client or server requests, by name.
    pub targets: Vec<Arc<str>>,
    open: Vec<CellId>,
    holdings: Holdings,
}

impl Client {
    /// A proxy that has just connected and has no resources.
    pub fn new(token: ProxyToken) -> Client {
        Client {
            token,
            istio: false,
            resolves: false,
            targets: Vec::new(),
            open: Vec::new(),
            holdings: Holdings::new(),
        }
    }

    /// The resources after the last [`Client::refresh`].
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Closes all subscriptions.
    pub fn close(self, world: &mut World) {
        self.open.into_iter().for_each(|cell| world.close(cell));
    }

    /// Fetches everything again. Returns the previous resources.
    ///
    /// # Errors
    /// A resource that cannot be decoded, or a catalogue that lists what does not exist.
    pub fn refresh(&mut self, world: &mut World) -> Result<Holdings> {
        let mut walk = Walk {
            world,
            token: self.token,
            targets: &self.targets,
            resolves: self.resolves,
            open: Vec::new(),
            holdings: Holdings::new(),
        };
        let walked = walk.all();
        let (open, holdings) = (walk.open, walk.holdings);
        // New subscriptions are opened before the old ones are closed, so that resources in both are not derived again.
        let before = std::mem::replace(&mut self.open, open);
        before.into_iter().for_each(|cell| world.close(cell));
        walked?;
        Ok(std::mem::replace(&mut self.holdings, holdings))
    }
}

/// A resource as JSON, with decoded `Any`s.
///
/// # Errors
/// The bytes are not a message of the type.
pub fn json(kind: ResourceType, resource: &Resource) -> Result<Value> {
    protos::json(kind.type_url, &resource.body()).with_context(|| format!("{} {}", kind.short_name, resource.name()))
}

/// Collects the names that a resource references.
type Refer = fn(&Value, &mut BTreeSet<Arc<str>>);

struct Walk<'w> {
    world: &'w mut World,
    token: ProxyToken,
    targets: &'w [Arc<str>],
    resolves: bool,
    open: Vec<CellId>,
    holdings: Holdings,
}

impl Walk<'_> {
    fn all(&mut self) -> Result<()> {
        let listeners = self.audience(types::LISTENER)?;
        if let Some(ClientOf::<Arc<ListenerAudience>, Arc<GrpcAudience>>::Grpc(_)) = listeners.get() {
            return self.by_name();
        }
        let mut endpoints = self.wildcard(types::CLUSTER, endpoint_names)?;
        let own = self.world.own_audience(self.token, types::ENDPOINTS);
        if let Some(EndpointsSection::Own(own)) = own.as_ref().and_then(Audience::get)
            && own.workload.is_some()
        {
            // A cluster of the proxy's bootstrap.
            endpoints.insert(LOCAL_CLUSTER.into());
        }
        self.named(types::ENDPOINTS, endpoints)?;
        let mut routes = self.wildcard(types::LISTENER, listener_names)?;
        let extensions = routes.split_off(&Arc::from(EXTENSION));
        let extensions = extensions.iter().filter_map(|name| name.strip_prefix(EXTENSION));
        self.named(types::EXTENSION, extensions.map(Arc::from).collect())?;
        self.named(types::ROUTE, routes.clone())?;
        self.virtual_hosts(routes)?;
        if self.resolves {
            self.wildcard(types::NAME_TABLE, |_, _| {})?;
        }
        self.secrets()
    }

    /// The virtual hosts of these route tables, for a proxy that gets them over VHDS.
    fn virtual_hosts(&mut self, tables: BTreeSet<Arc<str>>) -> Result<()> {
        let Some(audience) = self.world.audience(self.token, types::VIRTUAL_HOST) else {
            return Ok(());
        };
        for table in tables {
            self.sections(types::VIRTUAL_HOST, &audience, &table, |_, _| {})?;
        }
        Ok(())
    }

    /// The secrets that clusters and listeners reference and that the proxy may have.
    fn secrets(&mut self) -> Result<()> {
        let Some(audience) = self.world.audience(self.token, types::SECRET) else {
            return Ok(());
        };
        let mut names = BTreeSet::new();
        for ((kind, _), resource) in &self.holdings {
            if [types::CLUSTER, types::LISTENER].contains(kind) {
                secret_names(&json(*kind, resource)?, &mut names);
            }
        }
        for name in names {
            if let Some(key) = self.world.resolve(&audience, &name) {
                self.fetch(types::SECRET, &key)?;
            }
        }
        Ok(())
    }

    /// As gRPC does: from each target to its listener, routes, clusters and endpoints.
    fn by_name(&mut self) -> Result<()> {
        let steps: [(ResourceType, Refer); 4] = [
            (types::LISTENER, listener_names),
            (types::ROUTE, cluster_names),
            (types::CLUSTER, endpoint_names),
            (types::ENDPOINTS, |_, _| {}),
        ];
        let mut names: BTreeSet<Arc<str>> = self.targets.iter().cloned().collect();
        for (kind, refer) in steps {
            let mut next = BTreeSet::new();
            for resource in self.named(kind, names)? {
                refer(&json(kind, &resource)?, &mut next);
            }
            names = next;
        }
        Ok(())
    }

    fn audience(&self, kind: ResourceType) -> Result<Audience> {
        self.world.audience(self.token, kind).context("the proxy has no audience")
    }

    fn wildcard(&mut self, kind: ResourceType, refer: Refer) -> Result<BTreeSet<Arc<str>>> {
        let audience = self.audience(kind)?;
        self.sections(kind, &audience, &Arc::default(), refer)
    }

    /// All resources on the shared and the own list, of which the latter replaces and hides those of the former.
    fn sections(
        &mut self,
        kind: ResourceType,
        shared: &Audience,
        collection: &Arc<str>,
        refer: Refer,
    ) -> Result<BTreeSet<Arc<str>>> {
        let own = self.world.own_audience(self.token, kind);
        let mut rows: BTreeMap<Arc<str>, ResourceKey> = BTreeMap::new();
        let mut found = false;
        for audience in std::iter::once(shared).chain(&own) {
            let Some((cell, catalogue)) = self.world.open_catalogue(audience, collection) else { continue };
            found = true;
            self.open.push(cell);
            rows.extend(catalogue.entries.iter().cloned());
        }
        anyhow::ensure!(found, "no catalogue");
        let mut names = BTreeSet::new();
        for (name, key) in rows.iter().filter(|(_, key)| **key != ResourceKey::Hidden) {
            let resource = self.fetch(kind, key)?.with_context(|| format!("listed but absent: {name}"))?;
            anyhow::ensure!(resource.name() == name, "listed as {name}, named {}", resource.name());
            refer(&json(kind, &resource)?, &mut names);
        }
        Ok(names)
    }

    /// The existing resources with these names.
    fn named(&mut self, kind: ResourceType, names: BTreeSet<Arc<str>>) -> Result<Vec<Resource>> {
        let audience = self.audience(kind)?;
        let own = self.world.own_audience(self.token, kind);
        let mut found = Vec::new();
        for name in names {
            let key = own.as_ref().and_then(|own| self.world.resolve(own, &name));
            let key = key
                .or_else(|| self.world.resolve(&audience, &name))
                .with_context(|| format!("cannot resolve {name}"))?;
            found.extend(self.fetch(kind, &key)?);
        }
        Ok(found)
    }

    fn fetch(&mut self, kind: ResourceType, key: &ResourceKey) -> Result<Option<Resource>> {
        let (cell, resource) = self.world.open(key);
        self.open.push(cell);
        if let Some(resource) = &resource {
            self.holdings.insert((kind, resource.name().clone()), resource.clone());
        }
        Ok(resource)
    }
}

fn endpoint_names(cluster: &Value, names: &mut BTreeSet<Arc<str>>) {
    if cluster["type"] == "EDS" {
        let name = cluster["edsClusterConfig"]["serviceName"].as_str().or(cluster["name"].as_str());
        names.extend(name.map(Arc::from));
    }
}

fn secret_names(value: &Value, names: &mut BTreeSet<Arc<str>>) {
    match value {
        Value::Object(fields) => {
            let served = fields.get("sdsConfig").is_some_and(|source| source.get("ads").is_some());
            let name = fields.get("name").and_then(Value::as_str).filter(|_| served);
            names.extend(name.map(Arc::from));
            fields.values().for_each(|v| secret_names(v, names));
        }
        Value::Array(items) => items.iter().for_each(|v| secret_names(v, names)),
        _ => {}
    }
}

fn cluster_names(routes: &Value, names: &mut BTreeSet<Arc<str>>) {
    let hosts = routes["virtualHosts"].as_array().into_iter().flatten();
    let routes = hosts.flat_map(|host| host["routes"].as_array().into_iter().flatten());
    for action in routes.map(|route| &route["route"]) {
        let weighted = action["weightedClusters"]["clusters"].as_array().into_iter().flatten();
        let named = weighted.map(|cluster| &cluster["name"]).chain([&action["cluster"]]);
        names.extend(named.filter_map(Value::as_str).map(Arc::from));
    }
}

/// A prefix that distinguishes names of extension configurations from those of route tables and sorts after them.
const EXTENSION: &str = "\u{10ffff}";

/// The names of the route tables and of the extension configurations that a listener references.
fn listener_names(listener: &Value, names: &mut BTreeSet<Arc<str>>) {
    match listener {
        Value::Object(fields) => {
            names.extend(fields.get("routeConfigName").and_then(Value::as_str).map(Arc::from));
            let name = fields.get("configDiscovery").and_then(|_| fields.get("name"));
            names.extend(name.and_then(Value::as_str).map(|name| format!("{EXTENSION}{name}").into()));
            fields.values().for_each(|v| listener_names(v, names));
        }
        Value::Array(items) => items.iter().for_each(|v| listener_names(v, names)),
        _ => {}
    }
}
