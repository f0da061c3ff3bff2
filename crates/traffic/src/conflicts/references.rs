//! References of VirtualServices and DestinationRules that do not resolve: requests that depend on them get 503.
//!
//! Clients may see different services and policies. A reference resolves if it does for one of the clients that see the
//! object, so that no object is reported that works for some of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::references::{Reference, Target, of_destination_rule, of_virtual_service};
use config::{Diagnostic, FieldPath, Kind, ObjectKey};
use flow::Reads;
use model::audience::{PolicyKey, Scope};
use model::proxy::Labels;
use model::service::{ExportTo, ObjectId, Resolution, Service, ServiceKey};
use names::{Hostname, Protocol};
use registry::inputs::{DestinationRules, Mesh};
use registry::{Gateways, ServiceEndpoints, Services, ServicesByHost, VirtualServices};

use super::diagnostic;
use crate::policy::{DestinationRuleSummaries, merged, policies_for};

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
    let default = &mesh.config.default_virtual_service_export_to;
    let export_to = registry::services::export_to(&object.spec.export_to, default, &key.namespace);
    let mut check = Check { cx, own: (Kind::VirtualService, key), export_to, found: Vec::new() };
    check.all(of_virtual_service(&object.spec, &key.namespace, &mesh.domain));
    (!check.found.is_empty()).then(|| check.found.into())
}

fn derive_of_destination_rule(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let rule = cx.get::<DestinationRuleSummaries>(key)?;
    let object = cx.get::<DestinationRules>(key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let own = (Kind::DestinationRule, key);
    let mut check = Check { cx, own, export_to: rule.export_to.clone(), found: Vec::new() };
    let services = check.all(of_destination_rule(&object.spec, &key.namespace, &mesh.domain));
    for (index, subset) in object.spec.subsets.iter().enumerate() {
        let is_empty = |service: &Found| !check.has_endpoints(service, &subset.labels);
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

/// A service with its key.
type Found = (ServiceKey, Arc<Service>);

/// Checks the references of one object.
struct Check<'a> {
    cx: &'a Reads<'a>,
    own: (Kind, &'a ObjectId),
    export_to: ExportTo,
    found: Vec<Diagnostic>,
}

impl Check<'_> {
    fn report(&mut self, path: FieldPath, message: String, hint: &str) {
        // Several routes may have the same wrong reference; each has its own path.
        let (kind, id) = self.own;
        self.found.push(diagnostic(kind, id, Diagnostic::MISSING_REFERENCE, path, message, hint));
    }

    fn missing(&mut self, reference: &Reference) {
        let (kind, id) = self.own;
        self.found.push(reference.missing(ObjectKey::new(kind, &*id.namespace, &*id.name)));
    }

    /// Checks references; returns the services of the last host. Delegates and credentials have rules of their own.
    fn all(&mut self, references: impl IntoIterator<Item = Reference>) -> Vec<Found> {
        // A port or a subset follows its host, and is not checked if there is no such service or port.
        let mut services = Vec::new();
        for reference in references {
            match &reference.target {
                Target::Gateway { namespace, name } => {
                    let id = ObjectId { namespace: namespace.clone(), name: name.clone() };
                    if self.cx.with::<Gateways, _>(&id, |gateway| gateway.is_none()) {
                        self.missing(&reference);
                    }
                }
                Target::Host { host, effect } => services = self.services(host, effect, &reference),
                Target::Port { number, .. } => {
                    if !services.is_empty() && !self.has_port(&services, *number, &reference) {
                        services.clear();
                    }
                }
                Target::Subset { host, name, used } if !services.is_empty() => {
                    self.subset(&services, (host, name, *used), &reference);
                }
                Target::Subset { .. } | Target::Delegate { .. } | Target::Credential { .. } => {}
            }
        }
        services
    }

    /// Whether one of the services has a TCP port. Reports the ports that there are.
    fn has_port(&mut self, services: &[Found], number: u32, reference: &Reference) -> bool {
        let has = |(_, service): &Found| {
            let mut ports = service.ports.iter().filter(|port| port.protocol != Protocol::Udp);
            ports.any(|port| u32::from(port.number) == number)
        };
        if services.iter().any(has) {
            return true;
        }
        self.missing(reference);
        let ports = services.iter().flat_map(|(_, service)| service.ports.iter().map(|port| port.number));
        let ports: BTreeSet<u16> = ports.collect();
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        if let Some(reported) = self.found.last_mut() {
            reported.hint = Some(format!("its ports are {}", ports.join(", ")));
        }
        false
    }

    fn subset(&mut self, services: &[Found], (host, name, used): (&Hostname, &str, bool), reference: &Reference) {
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
            self.missing(reference);
        } else if !has_endpoints {
            self.report(reference.path.clone(), no_endpoints(name, host), NO_ENDPOINTS_HINT);
        }
    }

    /// The services of a host that some of the clients see. Reports that there are none.
    fn services(&mut self, host: &Hostname, effect: &str, reference: &Reference) -> Vec<Found> {
        let keys = self.cx.get::<ServicesByHost>(host);
        let keys = keys.iter().flat_map(|keys| keys.iter());
        let all = keys.filter_map(|key| Some((key.clone(), (*self.cx.get::<Services>(key)?).clone())));
        let (seen, hidden): (Vec<_>, Vec<_>) = all.partition(|(_, service)| self.shares(&service.export_to));
        match (seen.is_empty(), hidden.first()) {
            (false, _) => {}
            (true, None) => self.missing(reference),
            (true, Some((key, _))) => {
                let hidden =
                    format!("the service {host} of namespace {} is not exported to the clients", key.namespace);
                self.report(reference.path.clone(), format!("{hidden}: {effect}"), "extend exportTo of the service");
            }
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
    fn has_endpoints(&self, (key, service): &Found, labels: &Labels) -> bool {
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
