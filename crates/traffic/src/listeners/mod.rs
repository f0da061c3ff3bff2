//! Listeners of a proxy, as complete values: encoding makes no decisions.

pub(crate) mod chain;
pub(crate) mod entry;
pub mod inbound;
pub mod l4;
pub mod outbound;

use std::sync::Arc;

use flow::Reads;
use model::audience::{ListenerAudience, ProxyClass, ResourceKey, Section};
use model::listener::ListenerSpec;

use crate::Catalogue;
use crate::gateways::GatewayListeners;
use inbound::{InboundListeners, VIRTUAL_INBOUND};
use outbound::{OutboundListeners, OwnOutboundListeners};

flow::rule! {
    /// The listeners of an audience, or a section of them. The audience of [`Section::Shared`] has no inbound facts.
    pub ListenerCatalogue: (Section, Arc<ListenerAudience>) => Catalogue = "listener catalogue", derive_listener_catalogue;
}

fn derive_listener_catalogue(
    cx: &Reads<'_>,
    (section, audience): &(Section, Arc<ListenerAudience>),
) -> Option<Catalogue> {
    let plain = audience.unspecific();
    let outbound = || cx.get::<OutboundListeners>(&Arc::new(plain.without_inbound()?));
    let listeners = match (&plain.class, section) {
        // gRPC clients subscribe by name.
        (ProxyClass::Grpc | ProxyClass::Waypoint | ProxyClass::Ztunnel, _) => return None,
        (ProxyClass::Gateway(_), _) => vec![cx.get::<GatewayListeners>(&plain)?],
        (ProxyClass::Sidecar(_), Section::All) => vec![outbound()?, cx.get::<InboundListeners>(&plain)?],
        (ProxyClass::Sidecar(_), Section::Shared) => vec![outbound()?],
        (ProxyClass::Sidecar(_), Section::Own) => vec![cx.get::<InboundListeners>(&plain)?],
    };
    let taken = match section {
        // An outbound listener may have the name of an inbound one that a `Sidecar` binds.
        Section::Own if listeners.iter().flat_map(|list| list.iter()).any(|spec| &*spec.name != VIRTUAL_INBOUND) => {
            Some(outbound()?)
        }
        _ => None,
    };
    let is_taken =
        |spec: &&Arc<ListenerSpec>| taken.iter().any(|list| list.iter().any(|other| other.name == spec.name));
    let own = |spec: &Arc<ListenerSpec>| match audience.is_unspecific() {
        true => spec.clone(),
        false => Arc::new(ListenerSpec {
            overrides: audience.overrides.clone(),
            trace_identity: audience.trace_identity.clone(),
            ..(**spec).clone()
        }),
    };
    let entry = |spec: &Arc<ListenerSpec>| (spec.name.clone(), ResourceKey::Listener(own(spec)));
    let mut entries: Vec<_> =
        listeners.iter().flat_map(|list| list.iter()).filter(|spec| !is_taken(spec)).map(entry).collect();
    if *section == Section::Own {
        let own = cx.get::<OwnOutboundListeners>(&Arc::new(plain.without_inbound()?));
        let rows = own.iter().flat_map(|own| own.iter());
        entries.extend(rows.map(|(name, spec)| match spec {
            Some(spec) => entry(spec),
            None => (name.clone(), ResourceKey::Hidden),
        }));
    }
    Some(Catalogue::new(entries))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    l4::register(b);
    outbound::register(b);
    inbound::register(b);
    crate::gateways::register_listeners(b);
    b.view::<ListenerCatalogue>();
}
