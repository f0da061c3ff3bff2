//! Which PeerAuthentication holds for a workload.
//!
//! The narrowest counts, and of several that are equally narrow the oldest: one whose selector selects the workload, then the
//! namespace's, then that of the mesh, which is the root namespace's; selectors mean nothing there. What one of them leaves
//! open the wider one says, and where none says anything both plain text and mutual TLS are taken.

use std::sync::Arc;

use config::Object;
use config::istio::{MutualTls, MutualTlsMode, PeerAuthentication};
use flow::{Index, Members, Reads, Relation, Rule};
use model::mtls::{Mode, MtlsModes};
use model::proxy::{Labels, selects};
use model::service::ObjectId;
use registry::inputs::{Mesh, PeerAuthentications};

/// PeerAuthentications by their namespace.
pub struct PeersByNamespace;

impl Relation for PeersByNamespace {
    const NAME: &'static str = "peer authentications by namespace";
    type Key = Arc<str>;
    type Row = Members<ObjectId>;
}

impl Index for PeersByNamespace {
    type Of = PeerAuthentications;
    fn keys(key: &ObjectId, _: &Arc<Object<PeerAuthentication>>) -> Vec<Arc<str>> {
        vec![key.namespace.clone()]
    }
}

/// PeerAuthentications with a selector, by namespace and one label of the selector, its first: a workload looks at those that
/// its own labels lead to, and is no reader of others.
pub struct PeersBySelector;

impl Relation for PeersBySelector {
    const NAME: &'static str = "peer authentications by selector";
    type Key = (Arc<str>, Arc<str>, Arc<str>);
    type Row = Members<ObjectId>;
}

impl Index for PeersBySelector {
    type Of = PeerAuthentications;
    fn keys(key: &ObjectId, row: &Arc<Object<PeerAuthentication>>) -> Vec<(Arc<str>, Arc<str>, Arc<str>)> {
        let first = selector(&row.spec).and_then(|labels| labels.first_key_value());
        let key = first.map(|(name, value)| (key.namespace.clone(), name.clone(), value.clone()));
        key.into_iter().collect()
    }
}

/// What the PeerAuthentications of a namespace say of all its workloads.
pub struct NamespacePeers;

impl Relation for NamespacePeers {
    const NAME: &'static str = "peer authentication of a namespace";
    type Key = Arc<str>;
    type Row = NamespacePeer;
}

/// See [`NamespacePeers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespacePeer {
    /// The mode for all workloads; none: as the mesh says.
    mode: Option<Mode>,
    /// Some are for single workloads.
    selects: bool,
}

impl Rule for NamespacePeers {
    fn derive(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<NamespacePeer> {
        let all = of_age(cx, namespace);
        let whole = all.iter().find(|object| selector(&object.spec).is_none());
        Some(NamespacePeer {
            mode: whole.and_then(|object| mode_of(object.spec.mtls.as_ref())),
            selects: all.iter().any(|object| selector(&object.spec).is_some()),
        })
    }
}

/// Which workloads of a namespace its PeerAuthentications leave in plain text; nothing where they say nothing. Whether the
/// others take plain text, too, makes no difference to it.
pub struct PlainPeers;

impl Relation for PlainPeers {
    const NAME: &'static str = "plain text in a namespace";
    type Key = Arc<str>;
    type Row = Arc<NamespacePlain>;
}

/// See [`PlainPeers`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespacePlain {
    /// For all workloads; none: as the mesh says.
    whole: Option<bool>,
    /// For single workloads, the oldest first.
    selecting: Vec<Selecting>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Selecting {
    labels: Labels,
    /// None: as the namespace says.
    plain: Option<bool>,
    /// By port, ascending. None: as at the others.
    ports: Vec<(u16, Option<bool>)>,
}

impl Rule for PlainPeers {
    fn derive(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<Arc<NamespacePlain>> {
        let is_plain = |tls: Option<&MutualTls>| mode_of(tls).map(|mode| mode == Mode::Disable);
        let mut found = NamespacePlain {
            whole: None,
            selecting: Vec::new(),
        };
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
}

/// What workloads take, for whoever asks for single ones, by namespace and labels.
pub struct WorkloadPeers;

impl Relation for WorkloadPeers {
    const NAME: &'static str = "peer authentication of a workload";
    type Key = (Arc<str>, Labels);
    type Row = MtlsModes;
}

impl Rule for WorkloadPeers {
    fn derive(cx: &Reads<'_>, (namespace, labels): &(Arc<str>, Labels)) -> Option<MtlsModes> {
        let mesh = cx.get::<Mesh>(&())?;
        Some(of_workload(cx, &mesh.config.root_namespace, namespace, labels))
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<PeersByNamespace>();
    b.index::<PeersBySelector>();
    b.world::<NamespacePeers, PeersByNamespace>();
    b.world::<PlainPeers, PeersByNamespace>();
    b.view::<WorkloadPeers>();
}

/// What a workload takes, by port. `root` is the mesh's root namespace; empty: it has none.
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

/// What the workloads of a namespace take for which nothing else is said.
pub fn of_namespace(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>) -> Mode {
    let said = |namespace| cx.get::<NamespacePeers>(namespace).and_then(|said| said.mode);
    let own = said(namespace);
    let of_mesh = || (!root.is_empty() && root != namespace).then(|| said(root)).flatten();
    own.or_else(of_mesh).unwrap_or_default()
}

/// Which workloads of a namespace take plain text only; nothing where all take mutual TLS.
pub fn plain(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>) -> Option<Plain> {
    let own = cx.get::<PlainPeers>(namespace).map(|row| (*row).clone());
    let of_mesh = (!root.is_empty() && root != namespace).then(|| cx.get::<PlainPeers>(root));
    let mesh = of_mesh.flatten().and_then(|row| row.whole).unwrap_or(false);
    let whole = own.as_ref().and_then(|own| own.whole).unwrap_or(mesh);
    // In the root namespace selectors mean nothing.
    let own = own.filter(|_| namespace != root);
    let single = |own: &Arc<NamespacePlain>| own.selecting.iter().any(Selecting::names_plain);
    let some = whole || own.as_ref().is_some_and(single);
    some.then_some(Plain { whole, own })
}

/// Which workloads of a namespace take plain text only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plain {
    whole: bool,
    own: Option<Arc<NamespacePlain>>,
}

impl Plain {
    /// Whether workloads take plain text only for which nothing else is said: [`of_namespace`] is [`Mode::Disable`].
    pub fn by_default(&self) -> bool {
        self.whole
    }

    /// Whether a workload with these labels takes plain text only at this port of its own.
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
    /// Whether it leaves anything in plain text by its own word.
    fn names_plain(&self) -> bool {
        self.plain == Some(true) || self.ports.iter().any(|(_, plain)| *plain == Some(true))
    }
}

/// The labels that a PeerAuthentication asks of workloads; none: it is for all of its namespace.
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

/// What is said of single ports. Validation has reported what is no port.
fn ports(spec: &PeerAuthentication) -> impl Iterator<Item = (u16, &MutualTls)> {
    let number = |(port, tls): (&Arc<str>, _)| Some((port.parse().ok()?, tls));
    spec.port_level_mtls
        .iter()
        .filter_map(move |(port, tls)| number((port, tls)))
}

fn mode_of(tls: Option<&MutualTls>) -> Option<Mode> {
    match tls?.mode {
        MutualTlsMode::Unset => None,
        MutualTlsMode::Disable => Some(Mode::Disable),
        MutualTlsMode::Permissive => Some(Mode::Permissive),
        MutualTlsMode::Strict => Some(Mode::Strict),
    }
}
