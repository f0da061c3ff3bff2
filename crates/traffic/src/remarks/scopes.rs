//! `Sidecar`s of a namespace of which another one is for the same workloads.

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::ObjectId;
use registry::inputs::Sidecars;
use resources::istio::Sidecar;
use resources::{FieldPath, Kind, Object};

use super::{CONFLICT, Remarks, remark, row};
use crate::audience::{SidecarsByNamespace, subset};

/// The remarks on each `Sidecar`.
pub struct SidecarRemarks;

impl Relation for SidecarRemarks {
    const NAME: &'static str = "remarks on sidecars";
    type Key = ObjectId;
    type Row = Remarks;
}

impl Rule for SidecarRemarks {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Remarks> {
        let own = cx.get::<Sidecars>(key)?;
        let members = cx.get::<SidecarsByNamespace>(&key.namespace)?;
        let others = members.iter().filter(|id| *id != key);
        let others = others.filter_map(|id| cx.get::<Sidecars>(id).map(|object| (*object).clone()));
        let before = others
            .filter(|other| other.meta.by_age(&own.meta).is_lt() && covers(other, &own))
            .min_by(|a, b| a.meta.by_age(&b.meta))?;
        let message = match own.spec.workload_selector {
            None => format!(
                "Sidecar {}/{} has no workloadSelector either and is older: this one is for nobody",
                before.meta.namespace, before.meta.name
            ),
            Some(_) => format!(
                "Sidecar {}/{} selects the same workloads and is older: this one is for nobody",
                before.meta.namespace, before.meta.name
            ),
        };
        let path = match own.spec.workload_selector {
            None => FieldPath::spec(),
            Some(_) => FieldPath::spec().field("workloadSelector"),
        };
        let hint = "a workload has one Sidecar: remove one of them, or select other workloads";
        row(vec![remark(Kind::Sidecar, key, CONFLICT, path, message, hint)])
    }
}

/// Whether a `Sidecar` is for all workloads that another one of its sort is for.
fn covers(one: &Arc<Object<Sidecar>>, other: &Arc<Object<Sidecar>>) -> bool {
    match (&one.spec.workload_selector, &other.spec.workload_selector) {
        (None, None) => true,
        (Some(one), Some(other)) => subset(&one.labels, &other.labels),
        // One with a selector goes before one without, for its workloads.
        _ => false,
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<SidecarRemarks>();
}
