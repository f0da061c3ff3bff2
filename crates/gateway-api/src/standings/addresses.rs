//! Addresses of Gateways: the services and proxies that they are reached by, and problems with these.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::core;
use config::gateway_api::Gateway;
use config::gateway_api::gateway::GatewaySpecAddress;
use flow::Reads;
use model::service::{ObjectId, Registry, Service, ServiceKey};
use model::standing::{Fact, PROXY_ADDRESSES, StatusAddress, condition};
use registry::inputs::{ServiceObject, ServiceObjects};
use registry::services::DefinitionsByService;
use registry::{Services, ServicesByHost};

use crate::binding::{self, GatewayServices, HOSTNAME};
use crate::plan::{self, OwnPlans};

/// The type of addresses that are IPs.
const IP_ADDRESS: &str = "IPAddress";
/// Annotation with the type of the addresses in the status of a Gateway without external addresses.
const ADDRESS_TYPE: &str = "networking.istio.io/address-type";
/// The maximum number of addresses in a status.
const MOST: usize = 16;

/// The addresses of a Gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Addresses {
    /// The addresses for the status.
    pub(super) shown: Vec<StatusAddress>,
    /// `HOST:PORT` of its services.
    pub(super) services: Vec<Arc<str>>,
    /// Addresses of its specification of types that are not supported.
    pub(super) unsupported: Vec<Arc<str>>,
    /// The condition `Programmed`, if an address cannot be used.
    pub(super) problem: Option<Fact>,
}

flow::rule! {
    /// The addresses of the Gateways of served classes.
    pub(super) GatewayAddresses: ObjectId => Arc<Addresses> = "addresses of gateways of the gateway api", derive_addresses;
}

fn derive_addresses(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Addresses>> {
    let plan = cx.get::<OwnPlans>(id)?;
    let object = plan::object(cx, id)?;
    let spec = &object.spec;
    let others = spec.addresses.iter().filter(|address| ![HOSTNAME, IP_ADDRESS].contains(&&*address.kind));
    let unsupported: Vec<Arc<str>> = others.map(|address| address.value.clone().unwrap_or_default()).collect();
    let ports: BTreeSet<u16> = plan.listeners.iter().filter(|one| one.is_served()).map(|one| one.port).collect();
    let mut found = Found { ports, must_exist: binding::named(spec).next().is_some(), ..Found::new(cx) };
    for service in cx.get::<GatewayServices>(id).iter().flat_map(|all| all.iter()) {
        found.add(service);
    }
    let of_proxies = object.meta.annotation(PROXY_ADDRESSES).into_iter().flat_map(|all| all.split(','));
    found.external.extend(of_proxies.filter_map(|ip| Some(ip.trim().parse::<IpAddr>().ok()?.to_string().into())));
    found.require(requested_ips(spec).filter_map(|address| address.value.as_ref()).filter(|value| !value.is_empty()));
    let problem = found.problem(!spec.addresses.is_empty() && unsupported.len() == spec.addresses.len());
    let virtual_ones = match object.meta.annotation(ADDRESS_TYPE) {
        Some(kind) => kind == IP_ADDRESS,
        None => requested_ips(spec).any(|address| address.value.is_none()),
    };
    Some(Arc::new(Addresses {
        shown: found.shown(virtual_ones),
        services: found.used.into_iter().collect(),
        unsupported,
        problem,
    }))
}

/// The addresses of a specification that are IPs. One without a value requests any.
fn requested_ips(spec: &Gateway) -> impl Iterator<Item = &GatewaySpecAddress> {
    spec.addresses.iter().filter(|address| &*address.kind == IP_ADDRESS)
}

/// The addresses of a Gateway of another control plane: those of its specification.
pub(super) fn of_remote(addresses: &[GatewaySpecAddress]) -> Vec<StatusAddress> {
    let shown = addresses.iter().filter_map(|address| {
        let value = address.value.clone()?;
        Some(StatusAddress { kind: address.kind.clone(), value })
    });
    shown.take(MOST).collect()
}

/// The services of a Gateway that were found, and problems.
struct Found<'a> {
    cx: &'a Reads<'a>,
    /// The ports of its listeners.
    ports: BTreeSet<u16>,
    /// Whether a missing service is a problem.
    must_exist: bool,
    external: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    virtual_ones: Vec<Arc<str>>,
    used: BTreeSet<Arc<str>>,
    missing: Vec<String>,
    pending: Vec<String>,
}

impl<'a> Found<'a> {
    fn new(cx: &'a Reads<'a>) -> Found<'a> {
        Found {
            cx,
            ports: BTreeSet::new(),
            must_exist: false,
            external: Vec::new(),
            hosts: Vec::new(),
            virtual_ones: Vec::new(),
            used: BTreeSet::new(),
            missing: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn add(&mut self, key: &ServiceKey) {
        let host = &key.hostname;
        let Some(service) = self.cx.get::<Services>(key) else {
            if self.must_exist {
                self.missing.push(self.not_found(key));
            }
            return;
        };
        self.add_ports(&service, host.as_str());
        match self.add_external(key) {
            // Its host is no address: clients that wait for one would use it.
            true => self.pending.push(format!("address pending for hostname {:?}", host.as_str())),
            false => self.hosts.push(host.as_str().into()),
        }
    }

    fn not_found(&self, key: &ServiceKey) -> String {
        let host = key.hostname.as_str();
        let elsewhere = self.cx.get::<ServicesByHost>(&key.hostname);
        let namespaces: Vec<&str> = elsewhere.iter().flat_map(|all| all.iter()).map(|one| &*one.namespace).collect();
        match namespaces[..] {
            [] => format!("hostname {host:?} not found"),
            _ => format!(
                "hostname {host:?} not found in namespace {:?}, but it was found in namespace(s) {namespaces:?}",
                key.namespace
            ),
        }
    }

    fn add_ports(&mut self, service: &Service, host: &str) {
        for port in &self.ports {
            match service.ports.iter().any(|one| one.number == *port) {
                true => drop(self.used.insert(format!("{host}:{port}").into())),
                false => self.missing.push(format!("port {port} not found for hostname {host:?}")),
            }
        }
    }

    /// Adds the addresses of the Kubernetes Services of all clusters that define the service. Returns whether a load balancer
    /// has none yet.
    fn add_external(&mut self, key: &ServiceKey) -> bool {
        let mut is_pending = false;
        let objects = self.cx.get::<DefinitionsByService>(key);
        for object in objects.iter().flat_map(|all| all.iter()).filter(|one| one.registry == Registry::Kubernetes) {
            let Some(row) = self.cx.get::<ServiceObjects>(object) else { continue };
            let ServiceObject::Kubernetes(object) = &*row else { continue };
            let mut any = false;
            for address in object.spec.external_addresses() {
                any = true;
                self.external.push(address.clone());
            }
            self.virtual_ones.extend(object.spec.virtual_addresses().cloned());
            is_pending |= !any && object.spec.kind == core::ServiceType::LoadBalancer;
        }
        is_pending
    }

    /// Requires that the services have these external addresses.
    fn require<'v>(&mut self, ips: impl Iterator<Item = &'v Arc<str>>) {
        for ip in ips.filter(|ip| !self.external.contains(ip)) {
            self.missing.push(format!("no service of the Gateway has the address {ip}"));
        }
    }

    /// The condition `Programmed`, if an address cannot be used. `none` says that all are of types that are not supported.
    fn problem(&self, none: bool) -> Option<Fact> {
        const FAILED: &str = "Failed to assign to any requested addresses";
        if none {
            return Some(Fact::no(condition::PROGRAMMED, "UnsupportedAddress", FAILED));
        }
        if !self.missing.is_empty() {
            let message = match self.used.is_empty() {
                true => format!("{FAILED}: {}", self.missing.join("; ")),
                false => format!(
                    "Assigned to service(s) {}, but failed to assign to all requested addresses: {}",
                    joined(&self.used),
                    self.missing.join("; ")
                ),
            };
            return Some(Fact::no(condition::PROGRAMMED, "AddressNotUsable", message));
        }
        if !self.pending.is_empty() {
            let message = match self.used.is_empty() {
                true => self.pending.join("; "),
                false => format!("Assigned to service(s) {}, but {}", joined(&self.used), self.pending.join("; ")),
            };
            return Some(Fact::no(condition::PROGRAMMED, "AddressNotAssigned", message));
        }
        None
    }

    /// The addresses for the status: the external ones, else the services.
    fn shown(&self, virtual_ones: bool) -> Vec<StatusAddress> {
        let values = match (&self.external[..], virtual_ones) {
            ([], true) => &self.virtual_ones,
            ([], false) => &self.hosts,
            _ => &self.external,
        };
        let mut shown: Vec<StatusAddress> = Vec::new();
        for value in values {
            let is_ip = value.parse::<IpAddr>().is_ok();
            let kind = if is_ip { IP_ADDRESS } else { HOSTNAME };
            let address = StatusAddress { kind: kind.into(), value: value.clone() };
            if !shown.contains(&address) {
                shown.push(address);
            }
        }
        shown.truncate(MOST);
        shown
    }
}

fn joined(services: &BTreeSet<Arc<str>>) -> String {
    let names: Vec<&str> = services.iter().map(|service| &**service).collect();
    names.join(" and ")
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<GatewayAddresses>();
}
