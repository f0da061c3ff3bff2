//! Conflicts of ProxyConfigs: others for the same workloads.

use config::{FieldPath, Kind};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::ProxyConfigs;

use super::{Conflicts, conflict, row, selectors};

flow::rule! {
    /// The conflicts of each ProxyConfig.
    pub ProxyConfigConflicts: ObjectId => Conflicts = "conflicts on proxy configs", derive_proxy_config_conflicts;
}

fn derive_proxy_config_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<ProxyConfigs>(key)?;
    let labels = own.spec.selector.as_ref().map(|selector| &selector.match_labels);
    let ObjectId { namespace, name } = selectors::covering(cx, Kind::ProxyConfig, &own.meta, labels)?;
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

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<ProxyConfigConflicts>();
}
