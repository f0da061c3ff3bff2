//! Classes of Gateways.

use std::sync::Arc;

use flow::Reads;
use registry::inputs::GatewayClasses;

pub use model::standing::CONTROLLERS;

/// The class that exists without an object.
const BUILT_IN: &str = "istio";
/// The controller of Gateways that run elsewhere. They are only references to them.
const REMOTE_CONTROLLER: &str = "istio.io/unmanaged-gateway";
/// The class of such Gateways that exists without an object.
const BUILT_IN_REMOTE: &str = "istio-remote";

/// A class that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Its Gateways are served. With the name of the controller.
    Served(&'static str),
    /// Its Gateways run elsewhere.
    Remote,
}

flow::rule! {
    /// The classes that are known.
    pub KnownClasses: Arc<str> => Class = "known gateway classes", derive_known;
    /// The names of the classes that are served.
    pub Classes: Arc<str> => () = "served gateway classes", derive_class;
}

fn derive_known(cx: &Reads<'_>, name: &Arc<str>) -> Option<Class> {
    cx.with::<GatewayClasses, _>(name, |object| match object {
        Some(object) => of_controller(&object.spec.controller_name),
        None => match &**name {
            BUILT_IN => Some(Class::Served(CONTROLLERS[0])),
            BUILT_IN_REMOTE => Some(Class::Remote),
            _ => None,
        },
    })
}

fn of_controller(name: &str) -> Option<Class> {
    let served = CONTROLLERS.into_iter().find(|own| *own == name).map(Class::Served);
    served.or_else(|| (name == REMOTE_CONTROLLER).then_some(Class::Remote))
}

fn derive_class(cx: &Reads<'_>, name: &Arc<str>) -> Option<()> {
    matches!(*cx.get::<KnownClasses>(name)?, Class::Served(_)).then_some(())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<KnownClasses>();
    b.view::<Classes>();
}
