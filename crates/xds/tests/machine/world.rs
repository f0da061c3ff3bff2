//! A synthetic world: for each audience and type, names with a number that stands for the content.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use envoy::types::{CLUSTER, ENDPOINTS, EXTENSION, LISTENER, ROUTE, VIRTUAL_HOST};
use model::proxy::Proxy;
use model::xds::{Resource, ResourceType, ResourceTypes, collection_of};
use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use protos::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use protos::envoy::config::core::v3::TypedExtensionConfig;
use protos::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use protos::envoy::config::listener::v3::Listener;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use xds::{Changes, Code, Origin, Status};

pub(crate) type Audience = &'static str;
pub(crate) type Key = (ResourceType, Audience, Arc<str>);
type Tables = BTreeMap<(ResourceType, Audience), BTreeMap<String, Content>>;
pub(crate) type Catalogue = Arc<Vec<(Arc<str>, Key)>>;

/// The audience in the keys of rows that hide shared resources.
const HIDING: Audience = "hiding";

/// The content of a row that hides a shared resource.
pub(crate) fn hiding() -> Content {
    plain(0)
}

/// An audience without catalogues, which subscribes to everything by name.
pub(crate) const BY_NAME: Audience = "by name";

/// Whether an audience of own resources has the endpoints of a cluster; `None` for other audiences.
pub(crate) fn has_own_endpoints(audience: Audience, cluster: &str) -> Option<bool> {
    match audience {
        "x" => Some(cluster.starts_with('o')),
        "y" => Some(["o0", "c5"].contains(&cluster)),
        // Those of the benchmark.
        own if own.starts_with("own-") => Some(false),
        _ => None,
    }
}

/// The resource types of the tests.
pub(crate) fn types() -> ResourceTypes {
    ResourceTypes::new([CLUSTER, ENDPOINTS, LISTENER, ROUTE, VIRTUAL_HOST, EXTENSION]).unwrap()
}

/// The content of a synthetic resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    /// Two resources differ if their numbers do.
    pub(crate) number: u32,
    /// The clusters of a route.
    pub(crate) clusters: Vec<String>,
    /// Whether a cluster discovers its endpoints.
    pub(crate) discovers: bool,
}

pub(crate) fn plain(number: u32) -> Content {
    Content { number, clusters: Vec::new(), discovers: true }
}

/// A route to a cluster.
pub(crate) fn leading_to(cluster: &str, number: u32) -> Content {
    Content { clusters: vec![cluster.to_owned()], ..plain(number) }
}

#[derive(Default)]
pub(crate) struct World {
    /// The tables as written, which take effect with the next commit.
    tables: Tables,
    committed: Tables,
    /// The audience of each proxy, by id; moves change it.
    audiences: BTreeMap<u64, Audience>,
    next_token: u64,
    moves: BTreeMap<u64, Audience>,
    /// The audiences of the proxies' own clusters and endpoints, and their changes.
    own: BTreeMap<u64, Audience>,
    own_moves: BTreeMap<u64, Option<Audience>>,
    /// Open cells, by number, and how often each is open.
    open: BTreeMap<u32, (Opened, usize)>,
    /// The numbers of the open cells: of catalogues (true) and resources.
    numbers: BTreeMap<(bool, Key), u32>,
    next_cell: u32,
    /// The audience of proxies that connect from now on.
    pub(crate) newcomers: Option<Audience>,
    /// The audience of their own clusters.
    pub(crate) own_of_newcomers: Option<Audience>,
    pub(crate) refuse: bool,
    /// Names, and audiences, whose resources or catalogues cannot be derived if they are absent or empty.
    pub(crate) failing: BTreeSet<&'static str>,
    /// The number of calls that opened or resolved something.
    pub(crate) calls: Cell<usize>,
    /// The audiences whose catalogues were opened, in order.
    pub(crate) catalogues: Vec<Audience>,
}

#[derive(Clone, PartialEq)]
enum Opened {
    /// All names of a wildcard type, or those in this collection, and whether each only hides a shared resource.
    Catalogue(ResourceType, Audience, Arc<str>, Vec<(String, bool)>),
    Resource(Key, Option<Content>),
}

impl World {
    pub(crate) fn put(&mut self, kind: ResourceType, audience: Audience, name: &str, content: Content) {
        self.tables.entry((kind, audience)).or_default().insert(name.to_owned(), content);
    }

    pub(crate) fn remove(&mut self, kind: ResourceType, audience: Audience, name: &str) {
        self.table(kind, audience).remove(name);
    }

    pub(crate) fn table(&mut self, kind: ResourceType, audience: Audience) -> &mut BTreeMap<String, Content> {
        self.tables.entry((kind, audience)).or_default()
    }

    pub(crate) fn get(&self, kind: ResourceType, audience: Audience, name: &str) -> Option<&Content> {
        self.tables.get(&(kind, audience))?.get(name)
    }

    pub(crate) fn audience_of(&self, token: u64) -> Audience {
        self.audiences[&token]
    }

    pub(crate) fn last_token(&self) -> u64 {
        self.next_token
    }

    pub(crate) fn relocate(&mut self, token: u64, audience: Audience) {
        self.moves.insert(token, audience);
    }

    /// Gives a proxy clusters of its own.
    pub(crate) fn give(&mut self, token: u64, audience: Option<Audience>) {
        self.own_moves.insert(token, audience);
    }

    /// The audience of a proxy's own clusters.
    pub(crate) fn own_of(&self, token: u64) -> Option<Audience> {
        self.own.get(&token).copied()
    }

    /// Open resources: cell, key, and the number of what it holds.
    pub(crate) fn open_resources(&self) -> Vec<(u32, Key, Option<u32>)> {
        let resources = self.open.iter().filter_map(|(id, (cell, _))| match cell {
            Opened::Resource(key, content) => Some((*id, key.clone(), content.as_ref().map(|content| content.number))),
            Opened::Catalogue(..) => None,
        });
        resources.collect()
    }

    /// The cell of an open catalogue.
    pub(crate) fn catalogue_cell(&self, kind: ResourceType, audience: Audience) -> Option<u32> {
        let is = |cell: &Opened| matches!(cell, Opened::Catalogue(k, a, ..) if (*k, *a) == (kind, audience));
        self.open.iter().find(|(_, (cell, _))| is(cell)).map(|(id, _)| *id)
    }

    pub(crate) fn open_cells(&self) -> usize {
        self.open.len()
    }

    /// Reports the differences from the last reported state of open cells.
    pub(crate) fn commit(&mut self) -> Changes<World> {
        let before = endpoint_names(&self.committed);
        self.committed = self.tables.clone();
        let now = endpoint_names(&self.committed);
        let appeared = now.difference(&before).map(|name| name.as_str().into()).collect();
        let mut changes = Changes { appeared, ..Changes::default() };
        for (token, audience) in std::mem::take(&mut self.moves) {
            if self.audiences.insert(token, audience) != Some(audience) {
                changes.moved.push(token);
            }
        }
        for (token, audience) in std::mem::take(&mut self.own_moves) {
            let before = match audience {
                Some(audience) => self.own.insert(token, audience),
                None => self.own.remove(&token),
            };
            if before != audience && !changes.moved.contains(&token) {
                changes.moved.push(token);
            }
        }
        let cells: Vec<u32> = self.open.keys().copied().collect();
        for id in cells {
            let now = self.present(&self.open[&id].0);
            if now == self.open[&id].0 {
                continue;
            }
            match &now {
                Opened::Catalogue(kind, audience, _, names) => {
                    changes.catalogues.push((id, rows(*kind, audience, names)))
                }
                Opened::Resource(key, content) => changes.resources.push((id, resource(key, content.as_ref()))),
            }
            self.open.get_mut(&id).unwrap().0 = now;
        }
        changes
    }

    fn present(&self, cell: &Opened) -> Opened {
        match cell {
            Opened::Catalogue(kind, audience, of, _) => {
                let table = self.committed.get(&(*kind, *audience));
                let names =
                    table.into_iter().flatten().filter(|(name, _)| of.is_empty() || collection_of(name) == Some(of));
                let names = names.map(|(name, content)| (name.clone(), *content == hiding()));
                Opened::Catalogue(*kind, audience, of.clone(), names.collect())
            }
            Opened::Resource(key, _) => {
                let content = self.committed.get(&(key.0, key.1)).and_then(|table| table.get(&*key.2));
                Opened::Resource(key.clone(), content.cloned())
            }
        }
    }

    fn connect_one(&mut self) -> Result<u64, Status> {
        if self.refuse {
            return Err(Status::new(Code::InvalidArgument, "not today"));
        }
        self.next_token += 1;
        self.audiences.insert(self.next_token, self.newcomers.unwrap_or("a"));
        if let Some(own) = self.own_of_newcomers {
            self.own.insert(self.next_token, own);
        }
        Ok(self.next_token)
    }

    fn open_cell(&mut self, cell: Opened) -> u32 {
        self.calls.update(|calls| calls + 1);
        let number = *self.numbers.entry(cell.key()).or_insert_with(|| {
            self.next_cell += 1;
            self.next_cell
        });
        if let Some((_, count)) = self.open.get_mut(&number) {
            *count += 1;
        } else {
            let cell = self.present(&cell);
            self.open.insert(number, (cell, 1));
        }
        number
    }
}

impl Origin for World {
    type Token = u64;
    type Cell = u32;
    type Audience = Audience;
    type Key = Key;
    type Catalogue = Catalogue;

    fn connect(&mut self, proxies: &[Arc<Proxy>]) -> Vec<Result<u64, Status>> {
        proxies.iter().map(|_| self.connect_one()).collect()
    }

    fn disconnect(&mut self, tokens: &[u64]) {
        for token in tokens {
            self.audiences.remove(token);
            self.moves.remove(token);
            self.own.remove(token);
            self.own_moves.remove(token);
        }
    }

    fn audience(&self, token: u64, _: ResourceType) -> Audience {
        self.audiences[&token]
    }

    fn own_audience(&self, token: u64, kind: ResourceType) -> Option<Audience> {
        self.own_of(token).filter(|_| [CLUSTER, ENDPOINTS, VIRTUAL_HOST].contains(&kind))
    }

    fn open_catalogue(&mut self, kind: ResourceType, audience: &Audience, of: &Arc<str>) -> Option<(u32, Catalogue)> {
        if *audience == BY_NAME {
            return None;
        }
        self.catalogues.push(audience);
        let id = self.open_cell(Opened::Catalogue(kind, audience, of.clone(), Vec::new()));
        let Opened::Catalogue(.., names) = &self.open[&id].0 else { unreachable!() };
        Some((id, rows(kind, audience, names)))
    }

    fn rows(catalogue: &Catalogue) -> &[(Arc<str>, Key)] {
        catalogue
    }

    fn hides((_, audience, _): &Key) -> bool {
        *audience == HIDING
    }

    fn resolve(&self, kind: ResourceType, audience: &Audience, name: &Arc<str>) -> Option<Key> {
        self.calls.update(|calls| calls + 1);
        let never = name.starts_with("never") || kind == ENDPOINTS && has_own_endpoints(audience, name) == Some(false);
        (!never).then(|| (kind, *audience, name.clone()))
    }

    /// Endpoints exist only for names that have some in any audience.
    fn requires<'n>(&self, kind: ResourceType, name: &'n str) -> Option<&'n str> {
        (kind == ENDPOINTS).then_some(name)
    }

    fn own_required(&self, _: ResourceType, audience: &Audience) -> Option<Arc<BTreeSet<Arc<str>>>> {
        let names: &[&str] = match *audience {
            "y" => &["o0", "c5"],
            own if own.starts_with("own-") => &[],
            // It is not known of `x`.
            _ => return None,
        };
        Some(Arc::new(names.iter().map(|name| Arc::from(*name)).collect()))
    }

    fn has(&self, name: &str) -> bool {
        let mut tables = self.committed.range((ENDPOINTS, "")..).take_while(|((kind, _), _)| *kind == ENDPOINTS);
        tables.any(|(_, table)| table.contains_key(name))
    }

    fn open(&mut self, key: &Key) -> (u32, Option<Resource>) {
        assert!(!World::hides(key));
        let id = self.open_cell(Opened::Resource(key.clone(), None));
        let Opened::Resource(_, content) = &self.open[&id].0 else { unreachable!() };
        (id, resource(key, content.as_ref()))
    }

    fn failed(&self, cell: u32) -> bool {
        match &self.open[&cell].0 {
            Opened::Catalogue(_, audience, _, _) => self.failing.contains(audience),
            Opened::Resource(key, content) => content.is_none() && self.failing.contains(&*key.2),
        }
    }

    fn close(&mut self, cell: u32) {
        let (_, count) = self.open.get_mut(&cell).expect("closed more often than opened");
        *count -= 1;
        if *count == 0
            && let Some((gone, _)) = self.open.remove(&cell)
        {
            self.numbers.remove(&gone.key());
        }
    }
}

impl Opened {
    fn key(&self) -> (bool, Key) {
        match self {
            Opened::Catalogue(kind, audience, of, _) => (true, (*kind, *audience, of.clone())),
            Opened::Resource(key, _) => (false, key.clone()),
        }
    }
}

/// The names that have endpoints in any audience.
fn endpoint_names(tables: &Tables) -> BTreeSet<String> {
    let tables = tables.iter().filter(|((kind, _), _)| *kind == ENDPOINTS);
    tables.flat_map(|(_, table)| table.keys().cloned()).collect()
}

fn rows(kind: ResourceType, audience: Audience, names: &[(String, bool)]) -> Catalogue {
    let row = |(name, hides): &(String, bool)| {
        let audience = if *hides { HIDING } else { audience };
        (Arc::from(&**name), (kind, audience, Arc::from(&**name)))
    };
    Arc::new(names.iter().map(row).collect())
}

fn resource(key: &Key, content: Option<&Content>) -> Option<Resource> {
    content.map(|content| Resource::new(key.2.clone(), body(key.0, &key.2, content)))
}

/// A virtual host with this number, which its harmless form does not have.
fn host(number: String) -> VirtualHost {
    VirtualHost { domains: vec!["d".to_owned()], request_headers_to_remove: vec![number], ..VirtualHost::default() }
}

/// The encoding of a synthetic resource.
pub(crate) fn body(kind: ResourceType, name: &str, content: &Content) -> Bytes {
    let name = name.to_owned();
    let number = content.number.to_string();
    match kind.short_name {
        "CDS" => protos::encode(&Cluster {
            name,
            alt_stat_name: number,
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(
                if content.discovers { DiscoveryType::Eds } else { DiscoveryType::Static }.into(),
            )),
            eds_cluster_config: content.discovers.then(EdsClusterConfig::default),
            ..Cluster::default()
        }),
        "EDS" => protos::encode(&ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints { priority: content.number, ..LocalityLbEndpoints::default() }],
            ..ClusterLoadAssignment::default()
        }),
        "LDS" => protos::encode(&Listener { name, stat_prefix: number, ..Listener::default() }),
        "RDS" => protos::encode(&RouteConfiguration {
            name,
            internal_only_headers: vec![number],
            virtual_hosts: content
                .clusters
                .iter()
                .map(|cluster| match cluster.split_once('#') {
                    None => VirtualHost { name: cluster.clone(), ..VirtualHost::default() },
                    Some((name, number)) => VirtualHost { name: name.to_owned(), ..host(number.to_owned()) },
                })
                .collect(),
            ..RouteConfiguration::default()
        }),
        "ECDS" => protos::encode(&TypedExtensionConfig {
            name,
            typed_config: Some(protos::Any { type_url: number, ..protos::Any::default() }),
        }),
        "VHDS" => protos::encode(&VirtualHost { name, ..host(number) }),
        other => panic!("the synthetic mesh has no {other:?}"),
    }
}
