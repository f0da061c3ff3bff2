//! Listeners of a proxy, as complete values: encoding makes no decisions.

pub(crate) mod chain;
pub(crate) mod entry;
pub mod inbound;
pub mod l4;
pub mod outbound;

use std::sync::Arc;

use flow::Reads;
use model::audience::{ListenerAudience, ProxyClass, ResourceKey, SidecarListenerFacts};
use model::listener::ListenerSpec;

use crate::Catalogue;
use crate::gateways::GatewayListeners;
use inbound::InboundListeners;
use outbound::OutboundListeners;

flow::rule! {
    /// The catalogue of listeners of an audience.
    pub ListenerCatalogue: Arc<ListenerAudience> => Catalogue = "listener catalogue", derive_listener_catalogue;
}

fn derive_listener_catalogue(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Catalogue> {
    let shared = audience.shared();
    let listeners = match &shared.class {
        // gRPC clients subscribe by name.
        ProxyClass::Grpc | ProxyClass::Waypoint | ProxyClass::Ztunnel => return None,
        ProxyClass::Gateway(_) => vec![cx.get::<GatewayListeners>(&shared)?],
        ProxyClass::Sidecar(facts) => {
            vec![cx.get::<OutboundListeners>(&outbound_only(&shared, facts))?, cx.get::<InboundListeners>(&shared)?]
        }
    };
    let own = |spec: &Arc<ListenerSpec>| match audience.is_shared() {
        true => spec.clone(),
        false => Arc::new(ListenerSpec {
            overrides: audience.overrides.clone(),
            trace_identity: audience.trace_identity.clone(),
            ..(**spec).clone()
        }),
    };
    let entry = |spec: &Arc<ListenerSpec>| (spec.name.clone(), ResourceKey::Listener(own(spec)));
    Some(Catalogue::new(listeners.iter().flat_map(|list| list.iter()).map(entry).collect()))
}

/// The audience without the facts that decide inbound listeners only, so that workloads that serve different ports share
/// their outbound listeners.
fn outbound_only(audience: &ListenerAudience, facts: &SidecarListenerFacts) -> Arc<ListenerAudience> {
    Arc::new(ListenerAudience {
        class: ProxyClass::Sidecar(SidecarListenerFacts {
            inbound: Arc::default(),
            mtls: Arc::default(),
            exact_balance_inbound: false,
            ..facts.clone()
        }),
        ..audience.clone()
    })
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    l4::register(b);
    outbound::register(b);
    inbound::register(b);
    crate::gateways::register_listeners(b);
    b.view::<ListenerCatalogue>();
}
