//! ReferenceGrants: which objects may be referred to from other namespaces.

use std::sync::Arc;

use config::Object;
use config::gateway_api::ReferenceGrant;
use config::gateway_api::reference::ReferenceGrantTo;
use flow::Reads;
use model::kube::RouteKind;
use model::service::ObjectId;
use registry::inputs::ReferenceGrants;

/// The group of the Gateway API.
pub(crate) const GROUP: &str = "gateway.networking.k8s.io";

/// Kinds of the Gateway API that refer to objects of other namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FromKind {
    /// `Gateway`.
    Gateway,
    /// `ListenerSet`.
    ListenerSet,
    /// A route.
    Route(RouteKind),
}

impl FromKind {
    /// The kind as in `kind:`.
    pub fn name(self) -> &'static str {
        match self {
            FromKind::Gateway => "Gateway",
            FromKind::ListenerSet => "ListenerSet",
            FromKind::Route(kind) => kind.name(),
        }
    }
}

/// The group of InferencePools.
pub(crate) const INFERENCE_GROUP: &str = "inference.networking.k8s.io";

/// Kinds that are referred to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ToKind {
    /// `Secret`.
    Secret,
    /// `ConfigMap`.
    ConfigMap,
    /// `Service`.
    Service,
    /// `InferencePool`.
    InferencePool,
}

impl ToKind {
    const ALL: [ToKind; 4] = [ToKind::Secret, ToKind::ConfigMap, ToKind::Service, ToKind::InferencePool];

    /// The kind as in `kind:`.
    pub fn name(self) -> &'static str {
        match self {
            ToKind::Secret => "Secret",
            ToKind::ConfigMap => "ConfigMap",
            ToKind::Service => "Service",
            ToKind::InferencePool => "InferencePool",
        }
    }

    /// The API group; empty for the core group.
    fn group(self) -> &'static str {
        match self {
            ToKind::InferencePool => INFERENCE_GROUP,
            ToKind::Secret | ToKind::ConfigMap | ToKind::Service => "",
        }
    }
}

/// A reference to an object of another namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// The kind of the objects that refer.
    pub from: FromKind,
    /// Their namespace.
    pub namespace: Arc<str>,
    /// The kind of the object.
    pub to: ToKind,
    /// The object.
    pub target: ObjectId,
}

flow::index! {
    /// ReferenceGrants by their namespace, which is that of the objects that may be referred to, and the kind of these.
    GrantsTo: (Arc<str>, ToKind) => members of ReferenceGrants = "reference grants by target", grants_to_keys;
}

flow::rule! {
    /// References that a ReferenceGrant allows.
    pub Grants: Reference => () = "granted references", derive_grant;
}

fn grants_to_keys(key: &ObjectId, row: &Arc<Object<ReferenceGrant>>) -> Vec<(Arc<str>, ToKind)> {
    let named = |kind: &ToKind| row.spec.to.iter().any(|to| &*to.group == kind.group() && &*to.kind == kind.name());
    ToKind::ALL.into_iter().filter(named).map(|kind| (key.namespace.clone(), kind)).collect()
}

fn derive_grant(cx: &Reads<'_>, key: &Reference) -> Option<()> {
    let grants = cx.get::<GrantsTo>(&(key.target.namespace.clone(), key.to))?;
    let allows = |grant: Option<&Arc<Object<ReferenceGrant>>>| grant.is_some_and(|grant| allows(&grant.spec, key));
    grants.iter().any(|id| cx.with::<ReferenceGrants, _>(id, allows)).then_some(())
}

fn allows(grant: &ReferenceGrant, key: &Reference) -> bool {
    let from = grant
        .from
        .iter()
        .any(|from| &*from.group == GROUP && &*from.kind == key.from.name() && from.namespace == key.namespace);
    let names = |name: &Option<Arc<str>>| name.as_ref().is_none_or(|name| *name == key.target.name);
    let holds = |to: &ReferenceGrantTo| &*to.group == key.to.group() && &*to.kind == key.to.name() && names(&to.name);
    from && grant.to.iter().any(holds)
}

/// Whether the object may be referred to: always from its own namespace, else if a ReferenceGrant allows it.
pub fn is_allowed(cx: &Reads<'_>, reference: &Reference) -> bool {
    reference.namespace == reference.target.namespace || cx.contains::<Grants>(reference)
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<GrantsTo>();
    b.view::<Grants>();
}
