//! Virtual hosts for one client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::audience::{PolicyKey, RoutesKey, Scope, Source, VirtualHostContent, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use model::session::Session;
use names::Hostname;
use registry::AliasTable;

use super::bind::{self, bind_with};
use super::mesh::{self, Attached};
use super::{ServiceHostKey, ServiceHosts, domains};
use crate::hosts::EgressHosts;
use crate::policy::policy_for;
use crate::scope;
use crate::sessions;
use crate::virtual_service::{MeshEntry, MeshLookup, Summary, VirtualServiceSummaries};

flow::rule! {
    /// The virtual host of a service with its default route.
    pub DefaultHosts: DefaultHostKey => Arc<VirtualHostSpec> = "default hosts", derive_default_hosts;
}

/// Decides the virtual host of a service with its default route.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DefaultHostKey {
    /// The service and the client's view of its names.
    pub host: ServiceHostKey,
    /// The traffic policy that applies to it.
    pub policy: Option<PolicyKey>,
}

fn derive_default_hosts(cx: &Reads<'_>, key: &DefaultHostKey) -> Option<Arc<VirtualHostSpec>> {
    let host = cx.get::<ServiceHosts>(&key.host)?;
    if host.alias {
        return None;
    }
    let routes = bind::default(&key.host.service, key.host.port, key.policy.clone());
    let session = sessions::of(cx, &key.host.service);
    Some(spec(host.name.clone(), host.domains.clone(), only(routes), session))
}

/// A VirtualService with routes for a client and port.
type Chosen<'a> = (&'a MeshEntry, Arc<Summary>);

/// Builds virtual hosts for one client.
pub(super) struct Client<'a> {
    /// Reads of the calling rule.
    pub cx: &'a Reads<'a>,
    /// The client's scope.
    pub scope: &'a Arc<Scope>,
    /// The client's facts that conditions test.
    pub source: &'a Source,
    /// The hosts that its listener imports.
    pub egress: &'a EgressHosts,
    /// Resolves a host to a visible service.
    pub find: &'a dyn Fn(&Hostname) -> Option<ServiceKey>,
    /// The VirtualServices that it sees.
    pub lookup: &'a MeshLookup,
    /// Aliases of services.
    pub aliases: &'a AliasTable,
    /// The table serves all ports.
    pub all_ports: bool,
}

/// Calls `run` with a client of one listener that imports everything.
pub(super) fn open<T>(cx: &Reads<'_>, scope: &Arc<Scope>, source: &Source, run: impl FnOnce(&Client<'_>) -> T) -> T {
    let lookup = MeshLookup::new(cx, &scope.namespace);
    let aliases = registry::aliases::aliases(cx);
    let egress = EgressHosts::everything();
    let find = |host: &Hostname| scope::find(cx, scope, host).map(|s| s.key);
    run(&Client {
        cx,
        scope,
        source,
        egress: &egress,
        find: &find,
        lookup: &lookup,
        aliases: &aliases,
        all_ports: false,
    })
}

impl<'a> Client<'a> {
    /// The virtual host of a service, and the VirtualService whose routes it has, if any. `None` if the port is not
    /// HTTP.
    pub(super) fn service(&self, key: &ServiceKey, port: u16) -> Option<(Arc<VirtualHostSpec>, Option<&'a ObjectId>)> {
        let host = ServiceHostKey {
            service: key.clone(),
            port,
            local: domains::local_namespace(key.hostname.as_str()) == Some(&self.scope.namespace),
            with_port: self.all_ports,
            cluster: self.scope.cluster.clone(),
            assigned: self.scope.assigned,
            aliases: self.aliases_of(key),
        };
        let chosen = self.chosen(key, port);
        if let Some(attached) = self.attached(key, port, chosen.as_ref()) {
            let names = self.cx.get::<ServiceHosts>(&host)?;
            let session = sessions::of(self.cx, key);
            return Some((spec(names.name.clone(), names.domains.clone(), attached.content(), session), None));
        }
        let Some((entry, summary)) = chosen else {
            let policy = policy_for(self.cx, self.scope, key);
            let spec = self.cx.get::<DefaultHosts>(&DefaultHostKey { host, policy })?;
            return Some(((*spec).clone(), None));
        };
        let names = self.cx.get::<ServiceHosts>(&host)?;
        let routes = self.bound(&summary, &key.hostname, port);
        let session = sessions::of(self.cx, key);
        let spec = spec(names.name.clone(), names.domains.clone(), only(routes), session);
        Some((spec, Some(&entry.id)))
    }

    /// The routes of a service at a port of any protocol.
    pub(super) fn content(&self, key: &ServiceKey, port: u16) -> VirtualHostContent {
        let chosen = self.chosen(key, port);
        if let Some(attached) = self.attached(key, port, chosen.as_ref()) {
            return attached.content();
        }
        only(match chosen {
            Some((_, summary)) => self.bound(&summary, &key.hostname, port),
            None => bind::default(key, port, policy_for(self.cx, self.scope, key)),
        })
    }

    /// The VirtualService with routes for a service's port.
    fn chosen(&self, key: &ServiceKey, port: u16) -> Option<Chosen<'a>> {
        let chosen = self.lookup.chosen(self.egress, &key.hostname);
        chosen.into_iter().find_map(|entry| Some((entry, self.summary(entry, port)?)))
    }

    /// The HTTPRoutes and GRPCRoutes of a service's port, if they precede the VirtualService.
    fn attached(&self, key: &ServiceKey, port: u16, chosen: Option<&Chosen<'_>>) -> Option<Attached> {
        let attached = mesh::attached(self.cx, self.scope, key, port)?;
        chosen.is_none_or(|(_, summary)| attached.precede(summary, &key.hostname)).then_some(attached)
    }

    /// The imported aliases of a service, and whether the client is in the namespace of each.
    fn aliases_of(&self, key: &ServiceKey) -> Arc<[(Hostname, bool)]> {
        let seen = self.aliases.of(&key.hostname).iter();
        let seen = seen.filter(|alias| self.egress.admits_service(&key.namespace, alias));
        let is_local = |alias: &Hostname| domains::local_namespace(alias.as_str()) == Some(&self.scope.namespace);
        seen.map(|alias| (alias.clone(), is_local(alias))).collect()
    }

    /// Virtual hosts of hosts without a service at this port: at port 80 of all VirtualServices, at other ports only of
    /// VirtualServices that a service at the port uses.
    pub(super) fn other_hosts(
        &self,
        port: u16,
        in_use: &BTreeSet<&ObjectId>,
        is_served: &dyn Fn(&Hostname) -> bool,
    ) -> Vec<Arc<VirtualHostSpec>> {
        if port != 80 && (in_use.is_empty() || self.all_ports) {
            return Vec::new();
        }
        let mut out: BTreeMap<&Hostname, Arc<VirtualHostSpec>> = BTreeMap::new();
        let entries = self.lookup.all(self.egress).filter(|e| port == 80 || in_use.contains(&e.id));
        for entry in entries {
            let unknown = entry.hosts.iter().filter(|h| !out.contains_key(h) && !is_served(h));
            let unknown: Vec<&Hostname> = unknown.collect();
            if unknown.is_empty() {
                continue;
            }
            let Some(summary) = self.summary(entry, port) else {
                continue;
            };
            for host in unknown {
                let names = vec![domains::bracketed(host.as_str())];
                let domains = domains::with_port(names, self.all_ports.then_some(port));
                let routes = self.bound(&summary, host, port);
                out.insert(host, spec(format!("{host}:{port}").into(), domains, only(routes), None));
            }
        }
        out.into_values().collect()
    }

    /// The VirtualService, if it has routes for this client and port.
    fn summary(&self, entry: &MeshEntry, port: u16) -> Option<Arc<Summary>> {
        let summary = self.cx.get::<VirtualServiceSummaries>(&entry.id)?;
        summary.routes(port, None, self.source).then(|| (*summary).clone())
    }

    fn bound(&self, summary: &Summary, host: &Hostname, port: u16) -> Arc<RoutesKey> {
        bind_with(self.cx, self.scope, self.find, summary, (host, port, None), self.source)
    }
}

/// The routes of one key.
fn only(routes: Arc<RoutesKey>) -> VirtualHostContent {
    VirtualHostContent::Routes(vec![routes])
}

fn spec(
    name: Arc<str>,
    domains: Vec<Arc<str>>,
    content: VirtualHostContent,
    session: Option<Session>,
) -> Arc<VirtualHostSpec> {
    Arc::new(VirtualHostSpec { name, overrides: None, domains, content, require_tls: false, session })
}
