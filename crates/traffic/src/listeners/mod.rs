//! What a proxy listens for. Complete values: whoever encodes them decides nothing.

pub(crate) mod chain;
pub(crate) mod entry;
pub mod inbound;
pub mod l4;
pub mod outbound;

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{ListenerAudience, ResourceKey};
use model::listener::{ListenerSpec, Traced};
use model::proxy::ProxyKind;

use crate::Catalogue;
use crate::gateways::GatewayListeners;
use inbound::InboundListeners;
use outbound::OutboundListeners;

/// All listeners of an audience.
pub struct ListenerCatalogue;

impl Relation for ListenerCatalogue {
    const NAME: &'static str = "listener catalogue";
    type Key = Arc<ListenerAudience>;
    type Row = Catalogue;
}

impl Rule for ListenerCatalogue {
    fn derive(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Catalogue> {
        let listeners = match audience.kind {
            // Their listeners are found by name.
            ProxyKind::Grpc => return None,
            ProxyKind::Router => vec![cx.get::<GatewayListeners>(&common(audience))?],
            ProxyKind::Sidecar => {
                // What a workload serves is no part of what it calls.
                let served = common(audience);
                let caller = Arc::new(ListenerAudience {
                    inbound: Arc::from([]),
                    peers: Arc::default(),
                    ..(*served).clone()
                });
                vec![
                    cx.get::<OutboundListeners>(&caller)?,
                    cx.get::<InboundListeners>(&served)?,
                ]
            }
        };
        let own = |spec: &Arc<ListenerSpec>| match is_common(audience) {
            true => spec.clone(),
            false => Arc::new(ListenerSpec {
                settings: audience.settings.clone(),
                traced: audience.traced.clone(),
                ..(**spec).clone()
            }),
        };
        let entry = |spec: &Arc<ListenerSpec>| (spec.name.clone(), ResourceKey::Listener(own(spec)));
        Some(Catalogue::new(
            listeners.iter().flat_map(|list| list.iter()).map(entry).collect(),
        ))
    }
}

/// The audience of what a proxy's own settings and its traces do not decide: which listeners there are.
fn common(audience: &Arc<ListenerAudience>) -> Arc<ListenerAudience> {
    match is_common(audience) {
        true => audience.clone(),
        false => Arc::new(ListenerAudience {
            settings: Arc::default(),
            traced: Arc::default(),
            ..(**audience).clone()
        }),
    }
}

/// Whether listeners of this audience have nothing of the proxy's own.
fn is_common(audience: &ListenerAudience) -> bool {
    audience.settings.is_empty() && *audience.traced == Traced::default()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    l4::register(b);
    outbound::register(b);
    inbound::register(b);
    crate::gateways::register_listeners(b);
    b.view::<ListenerCatalogue>();
}
