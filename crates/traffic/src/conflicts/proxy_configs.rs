//! Conflicts of ProxyConfigs: others for the same workloads.

use config::istio::ProxyConfig;
use config::{FieldPath, Kind};
use flow::Reads;
use model::proxy::selects;
use model::service::ObjectId;
use registry::inputs::ProxyConfigs;

use super::{Conflicts, conflict, older, row};
use crate::proxy_config::ProxyConfigsByNamespace;

flow::rule! {
    /// The conflicts of each ProxyConfig.
    pub ProxyConfigConflicts: ObjectId => Conflicts = "conflicts on proxy configs", derive_proxy_config_conflicts;
}

fn derive_proxy_config_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<ProxyConfigs>(key)?;
    let members = cx.get::<ProxyConfigsByNamespace>(&key.namespace)?;
    let all = members.iter().filter_map(|id| cx.get::<ProxyConfigs>(id));
    let before = older(&own, all.map(|object| (*object).clone()), covers)?;
    let (namespace, name) = (&before.meta.namespace, &before.meta.name);
    let (path, message) = match own.spec.selector {
        None => (
            FieldPath::spec(),
            format!("ProxyConfig {namespace}/{name} has no selector either and is older: this one has no effect"),
        ),
        Some(_) => (
            FieldPath::spec().field("selector"),
            format!("ProxyConfig {namespace}/{name} selects the same workloads and is older: this one has no effect"),
        ),
    };
    let hint = "of those of a namespace one without a selector and one that selects a workload count: join them";
    row(vec![conflict(Kind::ProxyConfig, key, path, message, hint)])
}

/// Whether a ProxyConfig covers all workloads of another one of its kind.
fn covers(one: &ProxyConfig, other: &ProxyConfig) -> bool {
    match (&one.selector, &other.selector) {
        (None, None) => true,
        // Without labels it selects nothing.
        (Some(one), Some(_)) if one.match_labels.is_empty() => false,
        (Some(one), Some(other)) => selects(&one.match_labels, &other.match_labels),
        _ => false,
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<ProxyConfigConflicts>();
}
