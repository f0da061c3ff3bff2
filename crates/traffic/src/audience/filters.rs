//! Selects the EnvoyFilters and patches for a proxy, by its class, version, metadata and labels. Conditions on clusters,
//! listeners and routes are evaluated where patches are applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::EnvoyFilter;
use config::istio::PolicyTargetReference;
use config::istio::envoy_filter::{
    ApplyTo, EnvoyConfigPatch, MOST_VERSIONS, ObjectMatch, PatchContext, PatchOperation,
};
use config::{Meta, Object, StringMap};
use flow::Reads;
use model::audience::{FilterRef, Filters};
use model::kube::GATEWAY_NAME;
use model::proxy::{Labels, Proxy, ProxyKind, selects};
use model::service::ObjectId;
use regex::Regex;
use registry::inputs::EnvoyFilters;

use super::cluster_patches::AddedBy;
use super::facts::Facts;
use crate::clusters::INBOUND_PASSTHROUGH;
use crate::listeners::inbound::VIRTUAL_INBOUND;
use crate::scope::particular;

/// API group of Gateways of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// Maximum length of a version expression in bytes.
const MAX_VERSION: usize = 1024;
/// Maximum size of a compiled version expression in bytes, and of the states that it keeps while matching.
const MAX_COMPILED: usize = 1 << 18;

/// The patches for a proxy, by the resources that they change.
#[derive(Clone, Default, Debug)]
pub(super) struct Selected {
    /// Filters for clusters.
    pub(super) clusters: BySection,
    /// Filters for listeners and their contents.
    pub(super) listeners: BySection,
    /// Filters for route tables.
    pub(super) routes: Filters,
    /// Filters for route tables that may match many virtual hosts of one.
    pub(super) shared_hosts: Filters,
    /// Extension configurations.
    pub(super) extensions: Filters,
}

/// The patches of resources that sidecars have in two catalogues, without those that every catalogue adds itself
/// ([`AddedBy::EveryList`]).
#[derive(Clone, Default, Debug)]
pub(super) struct BySection {
    /// All patches.
    pub(super) all: Filters,
    /// Filters that may change [`Section::Shared`](model::audience::Section::Shared).
    pub(super) shared: Filters,
    /// Filters that may change [`Section::Own`](model::audience::Section::Own). If some of them are
    /// [added by own lists](AddedBy::OwnLists), these are all: the own catalogue replaces the shared resources that they change.
    pub(super) own: Filters,
}

flow::index! {
    /// `EnvoyFilter` objects of a namespace.
    pub FiltersByNamespace: Arc<str> => members of EnvoyFilters = "envoy filters by namespace", filters_by_namespace_keys;
}

fn filters_by_namespace_keys(key: &ObjectId, _: &Arc<Object<EnvoyFilter>>) -> Vec<Arc<str>> {
    vec![key.namespace.clone()]
}

flow::rule! {
    /// The conditions of each EnvoyFilter on proxies; unchanged when only the patches' values change.
    pub FilterScopes: ObjectId => FilterScope = "scopes of envoy filters", derive_filter_scopes;
}

fn derive_filter_scopes(cx: &Reads<'_>, id: &ObjectId) -> Option<FilterScope> {
    let object = cx.get::<EnvoyFilters>(id)?;
    let spec = &object.spec;
    let mut versions = Versions::default();
    let patches = spec.config_patches.iter().enumerate();
    let patches = patches.filter_map(|(index, patch)| PatchScope::of(u16::try_from(index).ok()?, patch, &mut versions));
    Some(FilterScope {
        namespace: id.namespace.clone(),
        meta: Age::of(&object.meta),
        priority: spec.priority,
        selector: spec.workload_selector.as_ref().map(|s| s.labels.clone()),
        targets: spec.target_refs.clone(),
        patches: patches.collect(),
    })
}

/// The conditions of an EnvoyFilter on proxies.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterScope {
    namespace: Arc<str>,
    meta: Age,
    priority: i32,
    selector: Option<StringMap>,
    targets: Vec<PolicyTargetReference>,
    patches: Vec<PatchScope>,
}

/// The order of filters with the same priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Age {
    created: Option<config::Timestamp>,
    /// `NAME.NAMESPACE`, as Istio compares them.
    name: String,
}

impl Age {
    fn of(meta: &Meta) -> Age {
        Age { created: meta.creation_timestamp, name: format!("{}.{}", meta.name, meta.namespace) }
    }
}

/// The conditions of a patch on proxies.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PatchScope {
    pub(super) index: u16,
    sort: Sort,
    context: PatchContext,
    /// The traffic of a sidecar whose resources it may change: outbound, and inbound.
    pub(super) directions: (bool, bool),
    /// It names the cluster, the service or the virtual host that it changes, or it adds one.
    names_one: bool,
    /// It adds a cluster or a listener.
    adds: bool,
    pub(super) version: Option<Version>,
    pub(super) metadata: StringMap,
}

/// The type of resource that a patch changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    Clusters,
    Listeners,
    /// Route tables; those of inbound ports are part of the listener.
    Routes,
    Extensions,
}

impl PatchScope {
    fn of(index: u16, patch: &EnvoyConfigPatch, versions: &mut Versions) -> Option<PatchScope> {
        let sort = match patch.apply_to {
            ApplyTo::Cluster => Sort::Clusters,
            ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => Sort::Routes,
            ApplyTo::ExtensionConfig => Sort::Extensions,
            ApplyTo::Listener
            | ApplyTo::FilterChain
            | ApplyTo::NetworkFilter
            | ApplyTo::HttpFilter
            | ApplyTo::ListenerFilter => Sort::Listeners,
            // The agent applies these itself.
            ApplyTo::Bootstrap | ApplyTo::Invalid => return None,
        };
        patch.patch.as_ref()?;
        let matches = patch.matches.as_ref();
        let proxy = matches.and_then(|m| m.proxy.as_ref());
        let version = proxy.map(|p| &p.proxy_version).filter(|v| !v.is_empty());
        Some(PatchScope {
            index,
            sort,
            context: matches.map(|m| m.context).unwrap_or_default(),
            directions: directions(patch),
            names_one: names_one(patch),
            adds: adds(patch),
            version: version.map(|version| versions.get(version)),
            metadata: proxy.map(|p| p.metadata.clone()).unwrap_or_default(),
        })
    }

    /// Whether the patch is for this proxy.
    fn is_for(&self, proxy: &Proxy) -> bool {
        self.version.as_ref().is_none_or(|version| version.matches(&proxy.version))
            && self.metadata.iter().all(|(key, value)| proxy.metadata.get(key) == Some(value))
    }

    /// Whether the patch is for one cluster, for those of one service, or adds one; not for inbound traffic only.
    pub(super) fn is_of_few_clusters(&self) -> bool {
        self.sort == Sort::Clusters && self.names_one && self.directions.0
    }

    /// Whether the patch changes listeners of such a proxy, and whether it changes other resources.
    fn targets(&self, kind: ProxyKind) -> (bool, bool) {
        let context = match (self.context, kind) {
            (PatchContext::Any, ProxyKind::Sidecar) => (true, true),
            (PatchContext::SidecarInbound, ProxyKind::Sidecar) => (true, false),
            (PatchContext::SidecarOutbound, ProxyKind::Sidecar)
            | (PatchContext::Gateway | PatchContext::Any, ProxyKind::Router) => (false, true),
            _ => (false, false),
        };
        let (inbound, other) = context;
        match self.sort {
            Sort::Clusters => (false, inbound || other),
            Sort::Listeners => (inbound || other, false),
            Sort::Routes => context,
            // Requested by name, wherever they are used.
            Sort::Extensions => (false, true),
        }
    }
}

/// Whether a patch is for one cluster or those of one service, for one virtual host of a route table, or adds one.
fn names_one(patch: &EnvoyConfigPatch) -> bool {
    let operation = patch.patch.as_ref().map(|change| change.operation);
    let adds = operation == Some(PatchOperation::Add);
    let names = match patch.matches.as_ref().and_then(|matches| matches.object.as_ref()) {
        Some(ObjectMatch::Cluster(of)) => !of.name.is_empty() || !of.service.is_empty(),
        Some(ObjectMatch::RouteConfiguration(of)) => {
            of.vhost.as_ref().is_some_and(|host| !host.name.is_empty() || !host.domain_name.is_empty())
        }
        _ => false,
    };
    match patch.apply_to {
        ApplyTo::Cluster | ApplyTo::VirtualHost => adds || names,
        ApplyTo::HttpRoute => names,
        // This operation can replace all virtual hosts.
        ApplyTo::RouteConfiguration => operation != Some(PatchOperation::MergeAndReplaceList),
        _ => false,
    }
}

/// Whether a patch may change a sidecar's resources for outbound traffic, and for inbound traffic. A resource that it adds
/// is in the catalogue of resources with similar names, because a name that exists there is not added.
fn directions(patch: &EnvoyConfigPatch) -> (bool, bool) {
    let matches = patch.matches.as_ref();
    let change = patch.patch.as_ref();
    let value = change.and_then(|change| change.value.as_ref());
    let adds = adds(patch);
    let name = match matches.and_then(|m| m.object.as_ref()) {
        _ if adds => value.and_then(|value| value.get("name")?.as_str()),
        Some(ObjectMatch::Cluster(cluster)) => Some(&*cluster.name),
        Some(ObjectMatch::Listener(listener)) => Some(&*listener.name),
        _ => None,
    };
    let inbound = name.filter(|name| !name.is_empty()).map(is_inbound);
    match (inbound, matches.map(|m| m.context).unwrap_or_default()) {
        (Some(inbound), context) if adds || context == PatchContext::Any => (!inbound, inbound),
        (_, PatchContext::Any) => (true, true),
        (_, context) => (context != PatchContext::SidecarInbound, context == PatchContext::SidecarInbound),
    }
}

/// Whether a patch adds a cluster or a listener.
fn adds(patch: &EnvoyConfigPatch) -> bool {
    let operation = patch.patch.as_ref().map(|change| change.operation);
    matches!(patch.apply_to, ApplyTo::Cluster | ApplyTo::Listener)
        && operation.is_some_and(|operation| !operation.merges() && operation != PatchOperation::Remove)
}

/// Whether a cluster or listener of this name is for inbound traffic.
fn is_inbound(name: &str) -> bool {
    name.starts_with("inbound|") || name == INBOUND_PASSTHROUGH || name == VIRTUAL_INBOUND
}

/// A regular expression for versions.
#[derive(Clone, Debug)]
pub(super) struct Version {
    expression: Arc<str>,
    /// None if it is invalid or too large: it matches no proxy.
    compiled: Option<Arc<Regex>>,
}

/// The expressions of an EnvoyFilter, each compiled once.
#[derive(Default)]
struct Versions(BTreeMap<Arc<str>, Version>);

impl Versions {
    /// The compiled expression. One too many matches no proxy.
    fn get(&mut self, expression: &Arc<str>) -> Version {
        if let Some(known) = self.0.get(expression) {
            return known.clone();
        }
        if self.0.len() >= MOST_VERSIONS {
            return Version { expression: expression.clone(), compiled: None };
        }
        let version = Version::of(expression);
        self.0.insert(expression.clone(), version.clone());
        version
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.expression == other.expression
    }
}

impl Version {
    fn of(expression: &Arc<str>) -> Version {
        let mut builder = regex::RegexBuilder::new(expression);
        let compile = || builder.size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build().ok().map(Arc::new);
        Version { expression: expression.clone(), compiled: (expression.len() <= MAX_VERSION).then(compile).flatten() }
    }

    fn matches(&self, version: &str) -> bool {
        let compiled = self.compiled.as_ref();
        !version.is_empty() && compiled.is_some_and(|compiled| compiled.is_match(version))
    }
}

/// The patches for a proxy, from its namespace and the root namespace, in the order in which they are applied.
pub(super) fn selected(facts: &Facts<'_>) -> Selected {
    let (cx, proxy, labels, root) = (facts.cx, facts.proxy, facts.labels, facts.root());
    let mut found: Vec<(ObjectId, Arc<FilterScope>)> = Vec::new();
    let mut namespaces = vec![root];
    if proxy.namespace != *root {
        namespaces.push(&proxy.namespace);
    }
    for namespace in namespaces.into_iter().filter(|namespace| !namespace.is_empty()) {
        let ids = cx.get::<FiltersByNamespace>(namespace);
        for id in ids.iter().flat_map(|members| members.iter()) {
            let scope = cx.get::<FilterScopes>(id);
            found.extend(scope.filter(|s| s.selects(proxy, labels, namespace)).map(|s| (id.clone(), s)));
        }
    }
    found.sort_by_cached_key(|(_, scope)| scope.rank(root));
    let choose = |wanted: &dyn Fn(&FilterScope, &PatchScope) -> bool| -> Filters {
        let chosen = found.iter().filter_map(|(id, scope)| {
            scope.refer(id, &|patch: &PatchScope| wanted(scope, patch) && patch.is_for(proxy))
        });
        chosen.collect()
    };
    let refer = |wanted: &dyn Fn(&PatchScope) -> bool| choose(&|_, patch| wanted(patch));
    // The own catalogues of a sidecar have resources for outbound traffic, too.
    let particular = particular::few_hosts(cx, &facts.scope).is_some();
    let is_own = |patch: &PatchScope| patch.directions.1 || particular && !patch.adds;
    let by_section = |wanted: &dyn Fn(&PatchScope) -> bool| {
        let added_by = |scope: &FilterScope, patch: &PatchScope| AddedBy::of(scope, patch, root);
        let listed =
            |scope: &FilterScope, patch: &PatchScope| wanted(patch) && added_by(scope, patch) != AddedBy::EveryList;
        let replaces = !choose(&|scope, patch| wanted(patch) && added_by(scope, patch) == AddedBy::OwnLists).is_empty();
        BySection {
            all: choose(&listed),
            shared: choose(&|scope, patch| {
                patch.directions.0 && wanted(patch) && added_by(scope, patch) == AddedBy::Audiences
            }),
            own: match replaces {
                true => choose(&|scope, patch| listed(scope, patch) || patch.directions.1 && wanted(patch)),
                false => refer(&|patch| is_own(patch) && wanted(patch)),
            },
        }
    };
    let of_routes = |patch: &PatchScope| patch.sort == Sort::Routes && patch.targets(proxy.kind).1;
    Selected {
        clusters: by_section(&|patch| patch.sort == Sort::Clusters && patch.targets(proxy.kind).1),
        listeners: by_section(&|patch| patch.targets(proxy.kind).0),
        routes: refer(&of_routes),
        shared_hosts: refer(&|patch| of_routes(patch) && !patch.names_one),
        extensions: refer(&|patch| patch.sort == Sort::Extensions),
    }
}

impl FilterScope {
    /// The order in which filters are applied: by priority, then those of the root namespace first, then by age.
    pub(super) fn rank(&self, root: &str) -> (i32, bool, Age) {
        (self.priority, *self.namespace != *root, self.meta.clone())
    }

    /// Whether it is for some workloads, or one namespace.
    pub(super) fn is_for_some(&self, root: &str) -> bool {
        self.selector.is_some() || !self.targets.is_empty() || *self.namespace != *root
    }

    fn selects(&self, proxy: &Proxy, labels: &Labels, namespace: &Arc<str>) -> bool {
        if self.targets.is_empty() {
            return self.selector.as_ref().is_none_or(|selector| selects(selector, labels));
        }
        let gateway = labels.get(GATEWAY_NAME);
        *namespace == proxy.namespace
            && self.targets.iter().any(|target| {
                &*target.group == GATEWAY_GROUP
                    && &*target.kind == "Gateway"
                    && Some(&target.name) == gateway
                    && (target.namespace.is_empty() || target.namespace == *namespace)
            })
    }

    /// A reference to the matching patches; none without any.
    pub(super) fn refer(&self, id: &ObjectId, wanted: &dyn Fn(&PatchScope) -> bool) -> Option<FilterRef> {
        let patches: Arc<[u16]> = self.patches.iter().filter(|p| wanted(p)).map(|p| p.index).collect();
        (!patches.is_empty()).then(|| FilterRef { id: id.clone(), patches })
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<FiltersByNamespace>();
    b.world::<FilterScopes, EnvoyFilters>();
}
