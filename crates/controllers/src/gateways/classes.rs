//! Creates the GatewayClasses of the control plane where they are missing. Existing ones are left as they are, whoever made
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::CONTROLLER;
use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id};

/// The class of Gateways in other clusters or networks, which only have addresses.
const REMOTE: (&str, &str, &str) =
    ("istio-remote", "istio.io/unmanaged-gateway", "Remote to this cluster. Does not deploy or affect configuration.");

/// Creates missing GatewayClasses.
#[derive(Default, Debug)]
pub struct GatewayClasses {
    /// The name of the class for which gateways are deployed.
    default: Arc<str>,
    found: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl GatewayClasses {
    /// With this name of the class for which gateways are deployed.
    pub fn new(default: &str) -> GatewayClasses {
        GatewayClasses { default: default.into(), ..GatewayClasses::default() }
    }

    /// Sets whether a class exists.
    pub fn class(&mut self, name: &str, there: bool) {
        match there {
            true => drop(self.found.insert(name.into())),
            false => drop(self.found.remove(name)),
        }
        self.ledger.forget(&target(name));
    }
}

impl Controller for GatewayClasses {
    fn plan(&mut self) -> Vec<Write> {
        let default = self.default.clone();
        let wanted = [(&*default, CONTROLLER, "The default Istio GatewayClass"), REMOTE];
        let create = |(name, controller, description): (&str, &str, &str)| {
            let fields = json!({"spec": {"controllerName": controller, "description": description}});
            let body = Body::Create { fields, manager: CONTROLLER };
            let missing = !self.found.contains(name);
            let write = missing.then(|| Write { target: target(name), uid: Arc::default(), body });
            self.ledger.settle(&target(name), write)
        };
        wanted.into_iter().filter_map(create).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
    }
}

fn target(name: &str) -> Target {
    Target::new(Resource::GATEWAY_CLASS, "", name)
}

/// Feeds the controller with the GatewayClasses.
pub struct ClassDriver(GatewayClasses);

impl ClassDriver {
    /// A driver that has seen no objects yet.
    pub fn new(default: &str) -> ClassDriver {
        ClassDriver(GatewayClasses::new(default))
    }
}

impl Driver for ClassDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(Resource::GATEWAY_CLASS)]
    }

    fn see(&mut self, _: usize, object: &Value, there: bool) {
        self.0.class(id(object).1, there);
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.0
    }
}
