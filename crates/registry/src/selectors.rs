//! Selects Kubernetes services of a workload by labels.

use std::sync::Arc;

use flow::Reads;
use model::proxy::{Labels, selects};

use crate::inputs::{ServiceObject, ServiceObjectKey, ServiceObjects};

flow::index! {
    /// Services with a selector, by cluster, namespace and the first label of the selector, so that a lookup by the labels
    /// of a workload reads only candidates.
    pub ServicesBySelector: SelectorKey => members of ServiceObjects = "services by selector", services_by_selector_keys;
}

/// See [`ServicesBySelector`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SelectorKey {
    cluster: Arc<str>,
    namespace: Arc<str>,
    label: (Arc<str>, Arc<str>),
}

fn services_by_selector_keys(key: &ServiceObjectKey, row: &ServiceObject) -> Vec<SelectorKey> {
    let ServiceObject::Kubernetes(service) = row else {
        return Vec::new();
    };
    let first = service.spec.selector.iter().next();
    let key = first.map(|(name, value)| SelectorKey {
        cluster: key.cluster.clone(),
        namespace: key.id.namespace.clone(),
        label: (name.clone(), value.clone()),
    });
    key.into_iter().collect()
}

/// The services of a cluster (as in [`ServiceObjectKey::cluster`]) and namespace that select a workload with these
/// labels.
pub fn selecting(cx: &Reads<'_>, cluster: &Arc<str>, namespace: &Arc<str>, labels: &Labels) -> Vec<ServiceObjectKey> {
    let of_label = |(name, value): (&Arc<str>, &Arc<str>)| {
        let found = cx.get::<ServicesBySelector>(&SelectorKey {
            cluster: cluster.clone(),
            namespace: namespace.clone(),
            label: (name.clone(), value.clone()),
        });
        found.map(|members| members.to_vec()).unwrap_or_default()
    };
    let selecting = |key: &ServiceObjectKey| {
        cx.with::<ServiceObjects, _>(key, |object| match object {
            Some(ServiceObject::Kubernetes(service)) => selects(&service.spec.selector, labels),
            _ => false,
        })
    };
    labels.iter().flat_map(of_label).filter(selecting).collect()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<ServicesBySelector>();
}
