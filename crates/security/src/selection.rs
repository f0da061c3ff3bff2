//! Selects the policies of a workload: by its labels, or because they are attached to its gateway.
//!
//! A policy of the root namespace applies to workloads in all namespaces, any other policy to those in its own. With a
//! selector it applies to workloads with these labels, without one to all. A policy with `targetRefs` applies to the
//! objects that it names: proxies of a Gateway of the Gateway API in the policy's namespace. Services, ServiceEntries and
//! GatewayClasses have proxies of their own in ambient mode only (waypoints), so that references to them select no
//! sidecar and no other gateway.
//!
//! A workload reads only candidates: what a namespace has for all its workloads, and the policies whose selector begins
//! with one of the workload's labels. What a policy demands is not read, so that the set of policies of a workload does
//! not depend on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::istio::{AuthorizationPolicy, PolicySelector, PolicyTargetReference, RequestAuthentication};
use flow::{Members, Reads, Relation};
use model::audience::PolicyIds;
use model::kube::GATEWAY_NAME;
use model::proxy::{Labels, selects};
use model::service::ObjectId;
use registry::inputs::{AuthorizationPolicies, RequestAuthentications};

/// API group of Gateways of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The workloads that a policy applies to, as far as an index can know them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// All workloads of the namespace, or of the mesh.
    All,
    /// Some of them, by labels.
    Some,
    /// Workloads with this label, the first one of the selector.
    Label(Arc<str>, Arc<str>),
    /// The proxies of a Gateway of the Gateway API.
    Gateway(Arc<str>),
    /// The proxies of all Gateways of a class.
    GatewayClass(Arc<str>),
    /// The proxies that serve a Service.
    Service(Arc<str>),
    /// The proxies that serve a ServiceEntry.
    ServiceEntry(Arc<str>),
}

impl Place {
    /// The place of a reference; none for an object that no policy can be attached to.
    pub fn of_target(target: &PolicyTargetReference) -> Option<Place> {
        let name = target.name.clone();
        match (&*target.group, &*target.kind) {
            (GATEWAY_GROUP, "Gateway") => Some(Place::Gateway(name)),
            (GATEWAY_GROUP, "GatewayClass") => Some(Place::GatewayClass(name)),
            ("" | "core", "Service") => Some(Place::Service(name)),
            ("networking.istio.io", "ServiceEntry") => Some(Place::ServiceEntry(name)),
            _ => None,
        }
    }
}

/// The policies that a namespace has for all its workloads, or for all of the mesh.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespacePolicies {
    /// Ascending.
    all: PolicyIds,
    /// Others select workloads by labels.
    selects: bool,
}

/// The specification of a policy that selects workloads.
pub trait Targeted: Sized + 'static {
    /// The objects.
    type Objects: Relation<Key = ObjectId, Row = Arc<Object<Self>>>;
    /// The objects by namespace and place.
    type ByPlace: Relation<Key = (Arc<str>, Place), Row = Members<ObjectId>>;
    /// See [`NamespacePolicies`].
    type OfNamespace: Relation<Key = Arc<str>, Row = NamespacePolicies>;
    /// The labels of each object's selector.
    type Selectors: Relation<Key = ObjectId, Row = Labels>;

    /// The selector.
    fn selector(&self) -> Option<&PolicySelector>;

    /// The objects that it is attached to. With any, the selector is ignored.
    fn targets(&self) -> &[PolicyTargetReference];

    /// The labels that it selects workloads by; none for all.
    fn labels(&self) -> Option<&Labels> {
        self.selector().map(|selector| &selector.match_labels).filter(|labels| !labels.is_empty())
    }
}

/// Implements [`Targeted`] with relations of these names and labels.
macro_rules! targeted {
    ($($spec:ident in $objects:ident: $by_place:ident $place_label:literal, $of_namespace:ident $namespace_label:literal,
       $selectors:ident $selector_label:literal;)*) => {$(
        flow::index! {
            #[doc = concat!("The ", $place_label, ".")]
            pub $by_place: (Arc<str>, Place) => members of $objects = $place_label, places::<$spec>;
        }

        flow::rule! {
            #[doc = concat!("The ", $namespace_label, "; none if it has none that select by labels or for all.")]
            pub $of_namespace: Arc<str> => NamespacePolicies = $namespace_label, derive_of_namespace::<$spec>;
            #[doc = concat!("The ", $selector_label, "; unchanged when only the rest of a policy changes.")]
            pub $selectors: ObjectId => Labels = $selector_label, derive_selector::<$spec>;
        }

        impl Targeted for $spec {
            type Objects = $objects;
            type ByPlace = $by_place;
            type OfNamespace = $of_namespace;
            type Selectors = $selectors;

            fn selector(&self) -> Option<&PolicySelector> {
                self.selector.as_ref()
            }

            fn targets(&self) -> &[PolicyTargetReference] {
                match &self.target_refs[..] {
                    [] => self.target_ref.as_slice(),
                    several => several,
                }
            }
        }
    )*

        /// Adds this module's rules.
        pub(crate) fn register(b: &mut flow::Builder) {
            $(
                b.index::<$by_place>();
                b.view::<$of_namespace>();
                b.view::<$selectors>();
            )*
        }
    };
}

targeted! {
    AuthorizationPolicy in AuthorizationPolicies:
        AuthorizationPoliciesByPlace "authorization policies by place",
        AuthorizationPoliciesOfNamespace "authorization policies of a namespace",
        AuthorizationSelectors "selectors of authorization policies";
    RequestAuthentication in RequestAuthentications:
        RequestAuthenticationsByPlace "request authentications by place",
        RequestAuthenticationsOfNamespace "request authentications of a namespace",
        RequestAuthenticationSelectors "selectors of request authentications";
}

/// The places of a policy, without duplicates.
fn places<P: Targeted>(key: &ObjectId, row: &Arc<Object<P>>) -> Vec<(Arc<str>, Place)> {
    let of = |place| (key.namespace.clone(), place);
    let targets = row.spec.targets();
    if !targets.is_empty() {
        let own = targets.iter().filter(|target| target.namespace.is_empty() || target.namespace == key.namespace);
        let places: BTreeSet<Place> = own.filter_map(Place::of_target).collect();
        return places.into_iter().map(of).collect();
    }
    match row.spec.labels().and_then(|labels| labels.first_key_value()) {
        None => vec![of(Place::All)],
        Some((name, value)) => vec![of(Place::Some), of(Place::Label(name.clone(), value.clone()))],
    }
}

fn derive_of_namespace<P: Targeted>(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<NamespacePolicies> {
    let at = |place| cx.get::<P::ByPlace>(&(namespace.clone(), place));
    let all = at(Place::All).map(|members| members.iter().cloned().collect()).unwrap_or_default();
    let found = NamespacePolicies { all, selects: at(Place::Some).is_some() };
    (found != NamespacePolicies::default()).then_some(found)
}

fn derive_selector<P: Targeted>(cx: &Reads<'_>, id: &ObjectId) -> Option<Labels> {
    cx.get::<P::Objects>(id)?.spec.labels().cloned()
}

/// The policies that select a workload, ascending. `root` is the mesh's root namespace; empty if it has none.
pub fn of_workload<P: Targeted>(cx: &Reads<'_>, root: &Arc<str>, namespace: &Arc<str>, labels: &Labels) -> PolicyIds {
    let of_mesh = Some(root).filter(|root| !root.is_empty() && *root != namespace);
    let mut found: Vec<PolicyIds> = Vec::new();
    for place in of_mesh.into_iter().chain([namespace]) {
        if let Some(policies) = cx.get::<P::OfNamespace>(place) {
            found.push(policies.all.clone());
            if policies.selects {
                found.push(by_labels::<P>(cx, place, labels));
            }
        }
    }
    if let Some(gateway) = labels.get(GATEWAY_NAME) {
        let attached = cx.get::<P::ByPlace>(&(namespace.clone(), Place::Gateway(gateway.clone())));
        found.extend(attached.map(|members| members.iter().cloned().collect::<PolicyIds>()));
    }
    found.retain(|ids| !ids.is_empty());
    match &found[..] {
        [] => PolicyIds::default(),
        [only] => only.clone(),
        several => {
            let all: BTreeSet<&ObjectId> = several.iter().flat_map(|ids| ids.iter()).collect();
            all.into_iter().cloned().collect()
        }
    }
}

/// The policies of a namespace whose selector selects these labels, ascending.
fn by_labels<P: Targeted>(cx: &Reads<'_>, namespace: &Arc<str>, labels: &Labels) -> PolicyIds {
    let of_label = |(name, value): (&Arc<str>, &Arc<str>)| {
        let place = Place::Label(name.clone(), value.clone());
        let found = cx.get::<P::ByPlace>(&(namespace.clone(), place));
        found.map(|members| members.to_vec()).unwrap_or_default()
    };
    let selecting = |id: &ObjectId| {
        cx.with::<P::Selectors, _>(id, |selector| selector.is_some_and(|selector| selects(selector, labels)))
    };
    let found: BTreeSet<ObjectId> = labels.iter().flat_map(of_label).filter(selecting).collect();
    found.into_iter().collect()
}
