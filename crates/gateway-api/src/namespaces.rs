//! Namespaces whose routes may attach to a listener.

use std::sync::Arc;

use flow::Reads;
use model::kube::{ListenerId, ListenerOwner};
use registry::inputs::namespace_labels;

use crate::plan::{self, AllowedNamespaces, ListenerPlan};

flow::rule! {
    /// Namespaces that the selector of a listener selects. A relation of its own, so that other changes of Gateways and
    /// namespaces stop here.
    pub SelectedByListener: (ListenerId, Arc<str>) => () = "namespaces that listeners select", derive_selected;
}

fn derive_selected(cx: &Reads<'_>, (listener, namespace): &(ListenerId, Arc<str>)) -> Option<()> {
    let listener = plan::spec(cx, listener)?;
    // Without a selector, no namespace is selected.
    let selector = listener.allowed_routes.namespaces.selector.as_ref()?;
    let labels = namespace_labels(cx, &(Arc::default(), namespace.clone()));
    selector.matches(&labels).then_some(())
}

/// Whether routes of a namespace may attach to a listener.
pub(crate) fn are_allowed(cx: &Reads<'_>, owner: &ListenerOwner, plan: &ListenerPlan, namespace: &Arc<str>) -> bool {
    match plan.namespaces {
        AllowedNamespaces::All => true,
        AllowedNamespaces::Same => owner.id().namespace == *namespace,
        AllowedNamespaces::Selected => {
            let listener = ListenerId { owner: owner.clone(), name: plan.name.clone() };
            cx.contains::<SelectedByListener>(&(listener, namespace.clone()))
        }
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<SelectedByListener>();
}
