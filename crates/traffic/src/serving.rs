//! Registration of resource types: how the subscriptions of a proxy become cells of relations.
//!
//! ```text
//! proxy ─ audience() ─► audience ─┬─ list() ────► catalogue cell ─► rows of (name, ResourceKey) ─┐
//!                                 └─ resolve() ──────────────────► ResourceKey ─────────────────┴─► resource cell
//! ```
//!
//! A type implements [`ServedType`] and is added with [`ServedTypes::register`]. Its relations are part of the
//! implementation, so that none can be forgotten: everything that serving opens, and every change that it receives, goes
//! through the relations that are registered here.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use flow::{CellId, Delta, Engine, Rule, Walk};
use model::audience::ResourceKey;
use model::open_key::OpenKey;
use model::xds::{Resource, ResourceType, ResourceTypes};

use crate::Catalogue;
use crate::audience::ProxyAudiences;

/// A resource type, and how its resources are derived.
pub trait ServedType: 'static {
    /// Its properties on the wire.
    const TYPE: ResourceType;
    /// The facts that two proxies must share to receive equal resources of this type.
    type Audience: Clone + Eq + Ord + Hash + Debug + Send + Sync + 'static;
    /// The relations that hold its catalogues: [`NoList`], [`List`] or [`Lists`].
    type Lists: ListKeys;
    /// The relations that hold its resources: a tuple.
    type Resources: ResourceRelations;

    /// The audience of a proxy; `None` if it gets nothing of this type.
    fn audience(proxy: &ProxyAudiences) -> Option<Self::Audience>;

    /// The audience of the resources that the proxy is sent in addition to those of [`ServedType::audience`], if any. For a
    /// type with catalogues, a row of this one replaces that of the other one with the same name, or hides it
    /// ([`ResourceKey::Hidden`]). For a named type, this audience has the names that it resolves, and the other one all others.
    fn own_audience(_proxy: &ProxyAudiences) -> Option<Self::Audience> {
        None
    }

    /// The catalogue of an audience: of a wildcard type (with an empty `collection`) or of a collection.
    fn list(_audience: &Self::Audience, _collection: &Arc<str>) -> Option<<Self::Lists as ListKeys>::Key> {
        None
    }

    /// The resource of this name, for audiences without a catalogue. A name that may exist later has a key whose resource is
    /// absent now. `None`: the audience can never have a resource of this name.
    fn resolve(_audience: &Self::Audience, _name: &Arc<str>) -> Option<ResourceKey> {
        None
    }

    /// The hostname of the service without which no audience has a resource of this name, if there is such a service. The
    /// name is not subscribed to until there is a service with the hostname.
    fn required_host(_name: &str) -> Option<&str> {
        None
    }

    /// The hostnames of the services that the names of an own audience require, unless they require none. `None`: they are not
    /// known.
    fn own_hosts(_audience: &Self::Audience) -> Option<Hosts> {
        None
    }
}

/// Hostnames.
pub type Hosts = Arc<BTreeSet<Arc<str>>>;

/// A relation whose rows are, or contain, served resources.
pub trait ResourceRelation: Rule {
    /// Whether acknowledgements of its resources count in the status of the objects that they are derived from.
    const COUNTED: bool = true;

    /// The key of the row that a resource key stands for; `None` if it is in another relation.
    fn key(key: &ResourceKey) -> Option<Self::Key>;

    /// The resource of a row.
    fn resource(row: &Self::Row) -> &Resource;
}

/// A relation whose rows are, or contain, catalogues.
pub trait ListRelation: Rule {
    /// Whether acknowledgements of the resources on its lists count in the status of the objects that the list is derived
    /// from.
    const COUNTED: bool = true;

    /// The catalogue of a row.
    fn catalogue(row: Arc<Self::Row>) -> Arc<Catalogue>;
}

/// A type without catalogues.
pub struct NoList;

/// A type whose catalogues are rows of one relation.
pub struct List<R>(std::marker::PhantomData<R>);

/// A type whose catalogues are rows of two relations or more: each parameter is a [`List`] or further `Lists`.
pub struct Lists<R, S>(std::marker::PhantomData<(R, S)>);

/// The key of a row of one or the other.
pub enum Either<K, L> {
    /// A key of the first type.
    First(K),
    /// A key of the second type.
    Second(L),
}

/// The catalogue relations of a type.
pub trait ListKeys {
    /// The key of a row of one of them.
    type Key;
    /// Subscribes to a catalogue.
    fn open(engine: &mut Engine, key: Self::Key) -> OpenedList;
    /// Adds the relations.
    fn add(to: &mut ServedTypes);
}

impl ListKeys for NoList {
    type Key = Infallible;

    fn open(_: &mut Engine, key: Infallible) -> OpenedList {
        match key {}
    }

    fn add(_: &mut ServedTypes) {}
}

impl<R: ListRelation> ListKeys for List<R> {
    type Key = R::Key;

    fn open(engine: &mut Engine, key: R::Key) -> OpenedList {
        let cell = engine.subscribe::<R>(key);
        (cell, engine.row::<R>(cell).map(R::catalogue).unwrap_or_default())
    }

    fn add(to: &mut ServedTypes) {
        to.lists.insert(R::NAME, ListOps::of::<R>());
    }
}

impl<R: ListKeys, S: ListKeys> ListKeys for Lists<R, S> {
    type Key = Either<R::Key, S::Key>;

    fn open(engine: &mut Engine, key: Either<R::Key, S::Key>) -> OpenedList {
        match key {
            Either::First(key) => R::open(engine, key),
            Either::Second(key) => S::open(engine, key),
        }
    }

    fn add(to: &mut ServedTypes) {
        R::add(to);
        S::add(to);
    }
}

/// The resource relations of a type: a tuple of them.
pub trait ResourceRelations {
    /// Adds the relations.
    fn add(to: &mut ServedTypes);
}

macro_rules! resource_relations {
    ($($relation:ident),+) => {
        impl<$($relation: ResourceRelation),+> ResourceRelations for ($($relation,)+) {
            fn add(to: &mut ServedTypes) {
                $(to.resources.insert($relation::NAME, ResourceOps::of::<$relation>());)+
            }
        }
    };
}

resource_relations!(A);
resource_relations!(A, B);
resource_relations!(A, B, C);
resource_relations!(A, B, C, D);

/// A subscription: its cell, and the resource if there is one.
pub type Opened = (CellId, Option<Resource>);

/// A subscription to a catalogue: its cell and the catalogue.
pub type OpenedList = (CellId, Arc<Catalogue>);

/// The registered types and their relations.
#[derive(Default)]
pub struct ServedTypes {
    types: Vec<TypeOps>,
    resources: BTreeMap<&'static str, ResourceOps>,
    lists: BTreeMap<&'static str, ListOps>,
}

/// An implementation of [`ServedType`].
struct TypeOps {
    kind: ResourceType,
    audience: fn(&ProxyAudiences) -> Option<OpenKey>,
    own_audience: fn(&ProxyAudiences) -> Option<OpenKey>,
    list: fn(&mut Engine, &OpenKey, &Arc<str>) -> Option<OpenedList>,
    resolve: fn(&OpenKey, &Arc<str>) -> Option<ResourceKey>,
    required_host: fn(&str) -> Option<&str>,
    own_hosts: fn(&OpenKey) -> Option<Hosts>,
}

/// A resource relation.
struct ResourceOps {
    counted: bool,
    open: fn(&mut Engine, &ResourceKey) -> Option<Opened>,
    open_all: fn(&mut Engine, &[&ResourceKey], &mut [Option<Opened>]),
    changes: fn(&Delta, &mut Vec<Opened>),
    walk_to: fn(Walk) -> Walk,
}

/// A catalogue relation.
struct ListOps {
    counted: bool,
    changes: fn(&Delta, &mut Vec<OpenedList>),
    walk_to: fn(Walk) -> Walk,
}

impl ServedTypes {
    /// Adds a type and its relations.
    pub fn register<T: ServedType>(&mut self) -> &mut ServedTypes {
        self.types.push(TypeOps {
            kind: T::TYPE,
            audience: |proxy| T::audience(proxy).map(OpenKey::new),
            own_audience: |proxy| T::own_audience(proxy).map(OpenKey::new),
            list: |engine, audience, collection| {
                let key = T::list(audience.get()?, collection)?;
                Some(T::Lists::open(engine, key))
            },
            resolve: |audience, name| T::resolve(audience.get()?, name),
            required_host: T::required_host,
            own_hosts: |audience| T::own_hosts(audience.get()?),
        });
        T::Lists::add(self);
        T::Resources::add(self);
        self
    }

    /// The types as the xDS server knows them. Checks the registration.
    ///
    /// # Panics
    /// The types are inconsistent, or the engine lacks a rule of theirs.
    pub fn types(&self, engine: &Engine) -> ResourceTypes {
        let stats = engine.stats();
        for name in self.resources.keys().chain(self.lists.keys()) {
            assert!(stats.relation(name).is_some(), "the rule {name} is not registered");
        }
        let types = ResourceTypes::new(self.types.iter().map(|one| one.kind));
        types.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The audience of a proxy for a type.
    pub fn audience(&self, proxy: &ProxyAudiences, kind: ResourceType) -> Option<OpenKey> {
        (self.of(kind)?.audience)(proxy)
    }

    /// The audience of a proxy for its own resources of a type ([`ServedType::own_audience`]).
    pub fn own_audience(&self, proxy: &ProxyAudiences, kind: ResourceType) -> Option<OpenKey> {
        (self.of(kind)?.own_audience)(proxy)
    }

    /// Subscribes to a catalogue of an audience.
    pub fn open_list(
        &self,
        engine: &mut Engine,
        (kind, audience): (ResourceType, &OpenKey),
        collection: &Arc<str>,
    ) -> Option<OpenedList> {
        (self.of(kind)?.list)(engine, audience, collection)
    }

    /// The resource of this name for an audience.
    pub fn resolve(&self, kind: ResourceType, audience: &OpenKey, name: &Arc<str>) -> Option<ResourceKey> {
        (self.of(kind)?.resolve)(audience, name)
    }

    /// The hostname that a name requires ([`ServedType::required_host`]).
    pub fn required_host<'n>(&self, kind: ResourceType, name: &'n str) -> Option<&'n str> {
        (self.of(kind)?.required_host)(name)
    }

    /// The hostnames that the names of an own audience require ([`ServedType::own_hosts`]).
    pub fn own_hosts(&self, kind: ResourceType, audience: &OpenKey) -> Option<Hosts> {
        (self.of(kind)?.own_hosts)(audience)
    }

    /// Subscribes to a resource.
    ///
    /// # Panics
    /// No registered relation has such a key.
    pub fn open(&self, engine: &mut Engine, key: &ResourceKey) -> Opened {
        let opened = self.resources.values().find_map(|relation| (relation.open)(engine, key));
        opened.unwrap_or_else(|| panic!("no registered relation has the key {key:?}"))
    }

    /// Subscribes to many resources. Those of one relation are derived together.
    ///
    /// # Panics
    /// No registered relation has one of the keys.
    pub fn open_all(&self, engine: &mut Engine, keys: &[&ResourceKey]) -> Vec<Opened> {
        let mut opened: Vec<Option<Opened>> = vec![None; keys.len()];
        for relation in self.resources.values() {
            (relation.open_all)(engine, keys, &mut opened);
        }
        let each = keys.iter().zip(opened);
        each.map(|(key, opened)| opened.unwrap_or_else(|| self.open(engine, key))).collect()
    }

    /// The subscribed resources that a commit changed.
    pub fn changed_resources(&self, delta: &Delta) -> Vec<Opened> {
        let mut all = Vec::new();
        self.resources.values().for_each(|relation| (relation.changes)(delta, &mut all));
        all
    }

    /// The subscribed catalogues that a commit changed.
    pub fn changed_lists(&self, delta: &Delta) -> Vec<OpenedList> {
        let mut all = Vec::new();
        self.lists.values().for_each(|relation| (relation.changes)(delta, &mut all));
        all
    }

    /// Whether the relation of this name holds catalogues.
    pub fn is_list(&self, relation: &str) -> bool {
        self.lists.contains_key(relation)
    }

    /// A walk that also looks for the resources and catalogues whose acknowledgements count in the status of objects.
    pub fn walk_to_counted(&self, walk: Walk) -> Walk {
        let resources = self.resources.values().filter(|relation| relation.counted);
        let lists = self.lists.values().filter(|relation| relation.counted);
        let targets = resources.map(|relation| relation.walk_to);
        targets.chain(lists.map(|relation| relation.walk_to)).fold(walk, |walk, to| to(walk))
    }

    fn of(&self, kind: ResourceType) -> Option<&TypeOps> {
        self.types.iter().find(|one| one.kind == kind)
    }
}

impl ResourceOps {
    fn of<R: ResourceRelation>() -> ResourceOps {
        ResourceOps {
            counted: R::COUNTED,
            open: |engine, key| {
                let cell = engine.subscribe::<R>(R::key(key)?);
                Some((cell, engine.row::<R>(cell).map(|row| R::resource(&row).clone())))
            },
            open_all: |engine, keys, opened| {
                let keys = keys.iter().enumerate();
                let (at, keys): (Vec<usize>, Vec<R::Key>) =
                    keys.filter_map(|(at, key)| Some((at, R::key(key)?))).unzip();
                for (at, cell) in at.into_iter().zip(engine.subscribe_all::<R>(&keys)) {
                    let resource = engine.row::<R>(cell).map(|row| R::resource(&row).clone());
                    opened[at] = Some((cell, resource));
                }
            },
            changes: |delta, to| {
                for change in delta.changes::<R>() {
                    let after = change.after.as_deref().map(R::resource);
                    // A row may also hold what is not served.
                    if after != change.before.as_deref().map(R::resource) {
                        to.push((change.cell, after.cloned()));
                    }
                }
            },
            walk_to: Walk::to::<R>,
        }
    }
}

impl ListOps {
    fn of<R: ListRelation>() -> ListOps {
        ListOps {
            counted: R::COUNTED,
            changes: |delta, to| {
                let catalogue = |row: Option<Arc<R::Row>>| row.map(R::catalogue).unwrap_or_default();
                to.extend(delta.changes::<R>().map(|change| (change.cell, catalogue(change.after))));
            },
            walk_to: Walk::to::<R>,
        }
    }
}

macro_rules! list_relations {
    ($($relation:path = $value:literal),+ $(,)?) => {
        $(impl ListRelation for $relation {
            const COUNTED: bool = $value;

            fn catalogue(row: Arc<Catalogue>) -> Arc<Catalogue> {
                row
            }
        })+
    };
}

list_relations!(
    crate::clusters::ClusterCatalogue = true,
    crate::listeners::ListenerCatalogue = true,
    crate::routes::SharedHostCatalogue = false,
    crate::routes::VirtualHostCatalogue = false,
    crate::name_table::NameTableCatalogue = false,
    crate::trust_bundle::TrustBundleCatalogue = false,
);
