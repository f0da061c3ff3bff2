//! DNS names of pods: `HOSTNAME.SUBDOMAIN` below the namespace's domain.

use std::net::IpAddr;
use std::sync::Arc;

use flow::Reads;

use crate::inputs::{WorkloadObject, WorkloadObjectKey, WorkloadObjects};

flow::rule! {
    /// Pods with a DNS name. A relation of its own, so that readers do not depend on other changes of pods.
    pub PodNames: WorkloadObjectKey => PodName = "pod names", derive_pod_names;
}

/// The DNS name of a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodName {
    /// `hostname`, or the pod's name.
    pub hostname: Arc<str>,
    /// `subdomain`: the headless service of the name.
    pub subdomain: Arc<str>,
    /// The pod's addresses.
    pub addresses: Vec<IpAddr>,
}

fn derive_pod_names(cx: &Reads<'_>, key: &WorkloadObjectKey) -> Option<PodName> {
    let object = cx.get::<WorkloadObjects>(key)?;
    let WorkloadObject::Pod(pod) = &*object else {
        return None;
    };
    if pod.spec.subdomain.is_empty() {
        return None;
    }
    let hostname = match pod.spec.hostname.is_empty() {
        true => &key.id.name,
        false => &pod.spec.hostname,
    };
    Some(PodName {
        hostname: hostname.clone(),
        subdomain: pod.spec.subdomain.clone(),
        addresses: pod.spec.addresses().filter_map(|ip| ip.parse().ok()).collect(),
    })
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<PodNames>();
}
