//! ProxyConfigs of a namespace of which another one is for the same workloads.

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::ObjectId;
use registry::inputs::ProxyConfigs;
use resources::istio::ProxyConfig;
use resources::{FieldPath, Kind, Object};

use super::{CONFLICT, Remarks, remark, row};
use crate::audience::subset;
use crate::proxy_config::ProxyConfigsByNamespace;

/// The remarks on each ProxyConfig.
pub struct ProxyConfigRemarks;

impl Relation for ProxyConfigRemarks {
    const NAME: &'static str = "remarks on proxy configs";
    type Key = ObjectId;
    type Row = Remarks;
}

impl Rule for ProxyConfigRemarks {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Remarks> {
        let own = cx.get::<ProxyConfigs>(key)?;
        let members = cx.get::<ProxyConfigsByNamespace>(&key.namespace)?;
        let others = members.iter().filter(|id| *id != key);
        let others = others.filter_map(|id| cx.get::<ProxyConfigs>(id).map(|object| (*object).clone()));
        let before = others
            .filter(|other| other.meta.by_age(&own.meta).is_lt() && covers(other, &own))
            .min_by(|a, b| a.meta.by_age(&b.meta))?;
        let (namespace, name) = (&before.meta.namespace, &before.meta.name);
        let (path, message) = match own.spec.selector {
            None => (
                FieldPath::spec(),
                format!("ProxyConfig {namespace}/{name} has no selector either and is older: this one has no effect"),
            ),
            Some(_) => (
                FieldPath::spec().field("selector"),
                format!(
                    "ProxyConfig {namespace}/{name} selects the same workloads and is older: this one has no effect"
                ),
            ),
        };
        let hint = "of those of a namespace one without a selector and one that selects a workload count: join them";
        row(vec![remark(Kind::ProxyConfig, key, CONFLICT, path, message, hint)])
    }
}

/// Whether a ProxyConfig is for all workloads that another one of its sort is for.
fn covers(one: &Arc<Object<ProxyConfig>>, other: &Arc<Object<ProxyConfig>>) -> bool {
    match (&one.spec.selector, &other.spec.selector) {
        (None, None) => true,
        // Without labels it is for nobody.
        (Some(one), Some(_)) if one.match_labels.is_empty() => false,
        (Some(one), Some(other)) => subset(&one.match_labels, &other.match_labels),
        _ => false,
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<ProxyConfigRemarks>();
}
