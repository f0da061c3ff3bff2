//! mTLS modes of workloads, from PeerAuthentications.
//!
//! The most specific PeerAuthentication wins, and the oldest of several equally specific ones: one whose selector
//! selects the workload, then the namespace's, then the mesh's (in the root namespace, where selectors are ignored).
//! Modes that it leaves unset are inherited. The default is permissive.

use std::sync::Arc;

use config::Object;
use config::istio::{MutualTls, MutualTlsMode, PeerAuthentication};
use flow::Reads;
use model::mtls::{Mode, MtlsModes};
use model::proxy::{Labels, selects};
use model::service::ObjectId;
use registry::inputs::{Mesh, PeerAuthentications};

flow::index! {
    /// PeerAuthentications by namespace.
    pub PeersByNamespace: Arc<str> => members of PeerAuthentications = "peer authentications by namespace", peers_by_namespace_keys;
}

fn peers_by_namespace_keys(key: &ObjectId, _: &Arc<Object<PeerAuthentication>>) -> Vec<Arc<str>> {
    vec![key.namespace.clone()]
}

flow::index! {
    /// PeerAuthentications with a selector, by namespace and the first label of the selector, so that a workload reads only
    /// candidates.
    pub PeersBySelector: (Arc<str>, Arc<str>, Arc<str>) => members of PeerAuthentications = "peer authentications by selector", peers_by_selector_keys;
}

fn peers_by_selector_keys(
    key: &ObjectId,
    row: &Arc<Object<PeerAuthentication>>,
) -> Vec<(Arc<str>, Arc<str>, Arc<str>)> {
    let first = selector(&row.spec).and_then(|labels| labels.first_key_value());
    let key = first.map(|(name, value)| (key.namespace.clone(), name.clone(), value.clone()));
    key.into_iter().collect()
}

flow::rule! {
    /// The modes that a namespace's PeerAuthentications set for all its workloads.
    pub NamespacePeers: Arc<str> => NamespacePeer = "peer authentication of a namespace", derive_namespace_peers;
}

/// See [`NamespacePeers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespacePeer {
    /// The mode for all workloads; none to inherit the mesh's.
    mode: Option<Mode>,
    /// Some PeerAuthentications select workloads.
    selects: bool,
}

fn derive_namespace_peers(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<NamespacePeer> {
    let all = of_age(cx, namespace);
    let whole = all.iter().find(|object| selector(&object.spec).is_none());
    Some(NamespacePeer {
        mode: whole.and_then(|object| mode_of(object.spec.mtls.as_ref())),
        selects: all.iter().any(|object| selector(&object.spec).is_some()),
    })
}

flow::rule! {
    /// The workloads of a namespace that accept plain text only; none if there are no PeerAuthentications. Whether other
    /// workloads are permissive or strict is not part of it.
    pub PlainPeers: Arc<str> => Arc<NamespacePlain> = "plain text in a namespace", derive_plain_peers;
}

/// See [`PlainPeers`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespacePlain {
    /// For all workloads; none to inherit the mesh's.
    whole: Option<bool>,
    /// For selected workloads, the oldest first.
    selecting: Vec<Selecting>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Selecting {
    labels: Labels,
    /// None to inherit the namespace's.
    plain: Option<bool>,
    /// By port, ascending. None to inherit the workload's.
    ports: Vec<(u16, Option<bool>)>,
}

fn derive_plain_peers(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<Arc<NamespacePlain>> {
    let is_plain = |tls: Option<&MutualTls>| mode_of(tls).map(|mode| mode == Mode::Disable);
    let mut found = NamespacePlain { whole: None, selecting: Vec::new() };
    let mut whole_seen = false;
    for object in of_age(cx, namespace) {
        let spec = &object.spec;
        let plain = is_plain(spec.mtls.as_ref());
        match selector(spec) {
            Some(labels) => found.selecting.push(Selecting {
                labels: labels.clone(),
                plain,
                ports: ports(spec).map(|(port, tls)| (port, is_plain(Some(tls)))).collect(),
            }),
            None if !whole_seen => {
                whole_seen = true;
                found.whole = plain;
            }
            None => {}
        }
    }
    let says_nothing = found.whole.is_none() && found.selecting.is_empty();
    (!says_nothing).then(|| Arc::new(found))
}

flow::rule! {
    /// mTLS modes of workloads, by namespace and labels.
    pub WorkloadPeers: (Arc<str>, Labels) => MtlsModes = "peer authentication of a workload", derive_workload_peers;
}

fn derive_workload_peers(cx: &Reads<'_>, (namespace, labels): &(Arc<str>, Labels)) -> Option<MtlsModes> {
    let mesh = cx.get::<Mesh>(&())?;
    Some(of_workload(cx, &mesh.config.root_namespace, namespace, labels))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<PeersByNamespace>();
    b.index::<PeersBySelector>();
    b.world::<NamespacePeers, PeersByNamespace>();
    b.world::<PlainPeers, PeersByNamespace>();
    b.view::<WorkloadPeers>();
}

/// The mTLS modes of a workload. `root` is the mesh's root namespace; empty if it has none.
pub fn of_workload(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>, labels: &Labels) -> MtlsModes {
    let mode = of_namespace(cx, root, namespace);
    let own = cx.get::<NamespacePeers>(namespace);
    let selects = own.is_some_and(|own| own.selects) && namespace != root;
    let Some(policy) = selects.then(|| selecting(cx, namespace, labels)).flatten() else {
        return MtlsModes::new(mode, []);
    };
    let mode = mode_of(policy.spec.mtls.as_ref()).unwrap_or(mode);
    let ports = ports(&policy.spec).map(|(port, tls)| (port, mode_of(Some(tls)).unwrap_or(mode)));
    MtlsModes::new(mode, ports)
}

/// The default mode of a namespace's workloads.
pub fn of_namespace(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>) -> Mode {
    let configured = |namespace| cx.get::<NamespacePeers>(namespace).and_then(|configured| configured.mode);
    let own = configured(namespace);
    let of_mesh = || (!root.is_empty() && root != namespace).then(|| configured(root)).flatten();
    own.or_else(of_mesh).unwrap_or_default()
}

/// The plain-text workloads of a namespace; none if all accept mutual TLS.
pub fn plain(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>) -> Option<Plain> {
    let own = cx.get::<PlainPeers>(namespace).map(|row| (*row).clone());
    let of_mesh = (!root.is_empty() && root != namespace).then(|| cx.get::<PlainPeers>(root));
    let mesh = of_mesh.flatten().and_then(|row| row.whole).unwrap_or(false);
    let whole = own.as_ref().and_then(|own| own.whole).unwrap_or(mesh);
    // Selectors are ignored in the root namespace.
    let own = own.filter(|_| namespace != root);
    let single = |own: &Arc<NamespacePlain>| own.selecting.iter().any(Selecting::names_plain);
    let some = whole || own.as_ref().is_some_and(single);
    some.then_some(Plain { whole, own })
}

/// The plain-text workloads of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plain {
    whole: bool,
    own: Option<Arc<NamespacePlain>>,
}

impl Plain {
    /// Whether workloads accept plain text only by default: [`of_namespace`] is [`Mode::Disable`].
    pub fn by_default(&self) -> bool {
        self.whole
    }

    /// Whether a workload with these labels accepts plain text only at this port.
    pub fn at(&self, labels: &Labels, port: u16) -> bool {
        let mut selecting = self.own.iter().flat_map(|own| &own.selecting);
        let Some(policy) = selecting.find(|policy| selects(&policy.labels, labels)) else {
            return self.whole;
        };
        let of_port = policy.ports.iter().find(|(number, _)| *number == port);
        let of_port = of_port.and_then(|(_, plain)| *plain);
        of_port.or(policy.plain).unwrap_or(self.whole)
    }
}

impl Selecting {
    /// Whether it disables mTLS anywhere itself.
    fn names_plain(&self) -> bool {
        self.plain == Some(true) || self.ports.iter().any(|(_, plain)| *plain == Some(true))
    }
}

/// The selector of a PeerAuthentication; none if it applies to the whole namespace.
pub fn selector(spec: &PeerAuthentication) -> Option<&Labels> {
    let labels = spec.selector.as_ref().map(|selector| &selector.match_labels);
    labels.filter(|labels| !labels.is_empty())
}

/// The PeerAuthentications of a namespace, the oldest first.
pub fn of_age(cx: &Reads<'_>, namespace: &Arc<str>) -> Vec<Arc<Object<PeerAuthentication>>> {
    let ids = cx.get::<PeersByNamespace>(namespace);
    let objects = ids.iter().flat_map(|members| members.iter());
    let objects = objects.filter_map(|id| cx.get::<PeerAuthentications>(id));
    let mut objects: Vec<_> = objects.map(|object| (*object).clone()).collect();
    objects.sort_by(|a, b| a.meta.by_age(&b.meta));
    objects
}

/// The oldest PeerAuthentication that selects a workload by its labels.
fn selecting(cx: &Reads<'_>, namespace: &Arc<str>, labels: &Labels) -> Option<Arc<Object<PeerAuthentication>>> {
    let of_label = |(name, value): (&Arc<str>, &Arc<str>)| {
        let found = cx.get::<PeersBySelector>(&(namespace.clone(), name.clone(), value.clone()));
        found.map(|members| members.to_vec()).unwrap_or_default()
    };
    let ids = labels.iter().flat_map(of_label);
    let objects = ids.filter_map(|id| Some((*cx.get::<PeerAuthentications>(&id)?).clone()));
    let selecting =
        |object: &Arc<Object<PeerAuthentication>>| selector(&object.spec).is_some_and(|s| selects(s, labels));
    objects.filter(selecting).min_by(|a, b| a.meta.by_age(&b.meta))
}

/// Modes by port. Validation reports invalid port numbers.
fn ports(spec: &PeerAuthentication) -> impl Iterator<Item = (u16, &MutualTls)> {
    let number = |(port, tls): (&Arc<str>, _)| Some((port.parse().ok()?, tls));
    spec.port_level_mtls.iter().filter_map(move |(port, tls)| number((port, tls)))
}

fn mode_of(tls: Option<&MutualTls>) -> Option<Mode> {
    match tls?.mode {
        MutualTlsMode::Unset => None,
        MutualTlsMode::Disable => Some(Mode::Disable),
        MutualTlsMode::Permissive => Some(Mode::Permissive),
        MutualTlsMode::Strict => Some(Mode::Strict),
    }
}
