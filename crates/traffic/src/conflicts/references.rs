//! References of VirtualServices and DestinationRules that do not resolve: requests that depend on them get 503.
//!
//! Clients may see different services and policies. A reference resolves if it does for one of the clients that see the
//! object, so that no object is reported that works for some of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::{Destination, VirtualService};
use config::{Diagnostic, FieldPath, Kind, Object};
use flow::Reads;
use model::audience::{PolicyKey, Scope};
use model::proxy::Labels;
use model::service::{ExportTo, ObjectId, Resolution, Service, ServiceKey};
use names::{Hostname, Protocol};
use registry::inputs::{DestinationRules, Mesh, MeshSettings};
use registry::{Gateways, ServiceEndpoints, Services, ServicesByHost, VirtualServices};

use super::diagnostic;
use crate::policy::{DestinationRuleSummaries, merged, policies_for};
use crate::virtual_service::{Binding, with_full_names};

flow::rule! {
    /// The references of each VirtualService, also of a delegate, that do not resolve.
    pub(super) UnresolvedByVirtualService: ObjectId => Arc<[Diagnostic]> = "unresolved references of virtual services", derive_of_virtual_service;
    /// The references of each DestinationRule that do not resolve.
    pub(super) UnresolvedByDestinationRule: ObjectId => Arc<[Diagnostic]> = "unresolved references of destination rules", derive_of_destination_rule;
    /// Whether an endpoint of a service has these labels. A relation of its own, so that a change of other endpoints stops
    /// here.
    SubsetHasEndpoints: (ServiceKey, Labels) => () = "subsets with endpoints", derive_subset_has_endpoints;
}

fn derive_of_virtual_service(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let object = cx.get::<VirtualServices>(key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let mut check = Check::new(cx, (Kind::VirtualService, key), &object, &mesh);
    let spec = with_full_names(&object.spec, &key.namespace, &mesh);
    check.gateways(&spec.gateways);
    check.destinations(&spec);
    (!check.found.is_empty()).then(|| check.found.into())
}

fn derive_of_destination_rule(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let rule = cx.get::<DestinationRuleSummaries>(key)?;
    let object = cx.get::<DestinationRules>(key)?;
    if rule.host.is_wildcard() {
        return None;
    }
    let own = (Kind::DestinationRule, key);
    let mut check = Check { cx, own, export_to: rule.export_to.clone(), found: Vec::new() };
    let services = check.services(&rule.host, &FieldPath::spec().field("host"), "the rule has no effect");
    for (index, subset) in object.spec.subsets.iter().enumerate() {
        let is_empty = |service: &(ServiceKey, Arc<Service>)| !check.has_endpoints(service, &subset.labels);
        if !services.is_empty() && services.iter().all(is_empty) {
            let path = FieldPath::spec().field("subsets").index(index).field("labels");
            check.report(path, no_endpoints(&subset.name, &rule.host), NO_ENDPOINTS_HINT);
        }
    }
    (!check.found.is_empty()).then(|| check.found.into())
}

fn derive_subset_has_endpoints(cx: &Reads<'_>, (service, labels): &(ServiceKey, Labels)) -> Option<()> {
    let endpoints = cx.get::<ServiceEndpoints>(service)?;
    let has = |(key, value): (&Arc<str>, &Arc<str>), e: &model::service::Endpoint| e.label(key) == Some(value);
    endpoints.iter().any(|e| labels.iter().all(|label| has(label, e))).then_some(())
}

const NO_ENDPOINTS_HINT: &str = "label the workloads, or correct the labels of the subset";

fn no_endpoints(subset: &str, host: &Hostname) -> String {
    format!("no endpoint of {host} has the labels of the subset {subset}: requests to it get 503")
}

/// Checks the references of one object.
struct Check<'a> {
    cx: &'a Reads<'a>,
    own: (Kind, &'a ObjectId),
    export_to: ExportTo,
    found: Vec<Diagnostic>,
}

impl<'a> Check<'a> {
    fn new(
        cx: &'a Reads<'a>,
        own: (Kind, &'a ObjectId),
        object: &Object<VirtualService>,
        mesh: &MeshSettings,
    ) -> Check<'a> {
        let default = &mesh.config.default_virtual_service_export_to;
        let export_to = registry::services::export_to(&object.spec.export_to, default, &own.1.namespace);
        Check { cx, own, export_to, found: Vec::new() }
    }

    fn report(&mut self, path: FieldPath, message: String, hint: &str) {
        // Several routes may have the same wrong reference; each has its own path.
        let (kind, id) = self.own;
        self.found.push(diagnostic(kind, id, Diagnostic::MISSING_REFERENCE, path, message, hint));
    }

    fn gateways(&mut self, names: &[Arc<str>]) {
        for (index, name) in names.iter().enumerate() {
            let Some(Binding::Gateway(id)) = Binding::parse(name) else { continue };
            if self.cx.with::<Gateways, _>(&id, |gateway| gateway.is_none()) {
                let path = FieldPath::spec().field("gateways").index(index);
                let message = format!("there is no Gateway {name}: no gateway has these routes");
                self.report(path, message, "create the Gateway, or correct its name");
            }
        }
    }

    fn destinations(&mut self, spec: &VirtualService) {
        let at = |list: &str, index| FieldPath::spec().field(list).index(index);
        for (index, route) in spec.http.iter().enumerate() {
            let path = at("http", index);
            let several = route.route.len() > 1;
            for (index, to) in route.route.iter().enumerate() {
                let path = path.field("route").index(index).field("destination");
                self.destination(&to.destination, path, !several || to.weight > 0);
            }
            if let Some(mirror) = &route.mirror {
                self.destination(mirror, path.field("mirror"), true);
            }
            for (index, mirror) in route.mirrors.iter().enumerate() {
                self.destination(&mirror.destination, path.field("mirrors").index(index).field("destination"), true);
            }
        }
        let tcp = spec.tcp.iter().enumerate().map(|(index, route)| (at("tcp", index), &route.route));
        let tls = spec.tls.iter().enumerate().map(|(index, route)| (at("tls", index), &route.route));
        for (path, route) in tcp.chain(tls) {
            for (index, to) in route.iter().enumerate() {
                let path = path.field("route").index(index).field("destination");
                self.destination(&to.destination, path, route.len() == 1 || to.weight > 0);
            }
        }
    }

    /// Checks a destination: its host, port and subset, and whether the subset has endpoints if it is `used`.
    fn destination(&mut self, to: &Destination, path: FieldPath, used: bool) {
        let Ok(host) = Hostname::parse(&to.host) else { return };
        let services = self.services(&host, &path.field("host"), "requests to it get 503");
        if services.is_empty() {
            return;
        }
        if let Some(number) = to.port.as_ref().map(|port| port.number) {
            let has = |(_, service): &(ServiceKey, Arc<Service>)| {
                let mut ports = service.ports.iter().filter(|port| port.protocol != Protocol::Udp);
                ports.any(|port| u32::from(port.number) == number)
            };
            if !services.iter().any(has) {
                let ports = services.iter().flat_map(|(_, service)| service.ports.iter().map(|port| port.number));
                let ports: BTreeSet<u16> = ports.collect();
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                let message = format!("{host} has no TCP port {number}: requests to it get 503");
                let hint = format!("its ports are {}", ports.join(", "));
                self.report(path.field("port").field("number"), message, &hint);
                return;
            }
        }
        if !to.subset.is_empty() {
            self.subset(&services, (&host, &to.subset), path.field("subset"), used);
        }
    }

    fn subset(
        &mut self,
        services: &[(ServiceKey, Arc<Service>)],
        (host, name): (&Hostname, &str),
        path: FieldPath,
        used: bool,
    ) {
        let (mut exists, mut has_endpoints) = (false, false);
        for service in services {
            for policy in self.policies(&service.0) {
                if let Some(subset) = merged(self.cx, Some(&policy)).as_ref().and_then(|rules| rules.subset(name)) {
                    exists = true;
                    has_endpoints |= !used || self.has_endpoints(service, &subset.labels);
                }
            }
        }
        if !exists {
            let message = format!("no DestinationRule for {host} has the subset {name}: requests to it get 503");
            self.report(path, message, "add the subset to a DestinationRule that the clients see, or correct its name");
        } else if !has_endpoints {
            self.report(path, no_endpoints(name, host), NO_ENDPOINTS_HINT);
        }
    }

    /// The services of a host that some of the clients see. Reports that there are none.
    fn services(&mut self, host: &Hostname, path: &FieldPath, effect: &str) -> Vec<(ServiceKey, Arc<Service>)> {
        let keys = self.cx.get::<ServicesByHost>(host);
        let keys = keys.iter().flat_map(|keys| keys.iter());
        let all = keys.filter_map(|key| Some((key.clone(), (*self.cx.get::<Services>(key)?).clone())));
        let (seen, hidden): (Vec<_>, Vec<_>) = all.partition(|(_, service)| self.shares(&service.export_to));
        if seen.is_empty() {
            let (message, hint) = match hidden.first() {
                None => (
                    format!("there is no service {host}: {effect}"),
                    "create the Service or ServiceEntry, or correct the name",
                ),
                Some((key, _)) => (
                    format!(
                        "the service {host} of namespace {} is not exported to the clients: {effect}",
                        key.namespace
                    ),
                    "extend exportTo of the service",
                ),
            };
            self.report(path.clone(), message, hint);
        }
        seen
    }

    /// Whether a namespace sees both the object and something that is exported like this.
    fn shares(&self, export_to: &ExportTo) -> bool {
        match (&self.export_to, export_to) {
            (ExportTo::All, ExportTo::All) => true,
            (ExportTo::All, ExportTo::Namespaces(names)) | (ExportTo::Namespaces(names), ExportTo::All) => {
                !names.is_empty()
            }
            (ExportTo::Namespaces(own), ExportTo::Namespaces(theirs)) => !own.is_disjoint(theirs),
        }
    }

    /// The policies of clients that see the object. If all namespaces see it, its own and the service's stand for them.
    fn policies(&self, service: &ServiceKey) -> BTreeSet<PolicyKey> {
        let namespaces = match &self.export_to {
            ExportTo::All => BTreeSet::from([self.own.1.namespace.clone(), service.namespace.clone()]),
            ExportTo::Namespaces(names) => names.clone(),
        };
        let scope = |namespace| Scope {
            namespace,
            sidecar: None,
            selected_rules: Vec::new(),
            cluster: Arc::default(),
            assigned: false,
        };
        namespaces.into_iter().flat_map(|namespace| policies_for(self.cx, &scope(namespace), service)).collect()
    }

    /// Whether a subset with these labels has endpoints, or needs none because clients do not choose between them.
    fn has_endpoints(&self, (key, service): &(ServiceKey, Arc<Service>), labels: &Labels) -> bool {
        let chosen =
            !matches!(service.resolution, Resolution::Passthrough | Resolution::DynamicDns | Resolution::Alias);
        !chosen || labels.is_empty() || self.cx.get::<SubsetHasEndpoints>(&(key.clone(), labels.clone())).is_some()
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<SubsetHasEndpoints>();
    b.view::<UnresolvedByVirtualService>();
    b.view::<UnresolvedByDestinationRule>();
}
