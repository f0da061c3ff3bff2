//! Route tables of gRPC clients: one for each port of a service, with the name of its cluster.

use std::sync::Arc;

use flow::Reads;
use model::audience::{HostList, RouteAudience, RouteTable, VirtualHostContent, VirtualHostSpec};
use names::{ClusterName, Direction, Hostname};
use registry::Services;

use super::host::Client;
use crate::hosts::EgressHosts;
use crate::scope::{self, VisibleService};
use crate::virtual_service::MeshLookup;

/// The route table `outbound|PORT||HOST`, if the client sees the service. Its one virtual host matches any name,
/// because the client's listener has selected the service.
pub(super) fn table(cx: &Reads<'_>, audience: &RouteAudience, name: &str) -> Option<RouteTable> {
    let name = ClusterName::parse(name).ok()?;
    if name.direction != Direction::Outbound || !name.subset.is_empty() {
        return None;
    }
    let host = Hostname::parse(&name.host).ok()?;
    let visible = scope::served(cx, &audience.scope, &host, name.port)?;
    let spec = VirtualHostSpec {
        name: format!("{host}:{}", name.port).into(),
        overrides: None,
        domains: vec!["*".into()],
        content: content(cx, audience, &visible, name.port)?,
        require_tls: false,
        // Session affinity is part of the listener.
        session: None,
    };
    Some(RouteTable { virtual_hosts: HostList::from_iter([Arc::new(spec)]), ignore_port: true, http3_port: None })
}

fn content(
    cx: &Reads<'_>,
    audience: &RouteAudience,
    visible: &VisibleService,
    port: u16,
) -> Option<VirtualHostContent> {
    let scope = &audience.scope;
    let lookup = MeshLookup::new(cx, &scope.namespace);
    let aliases = registry::aliases::aliases(cx);
    // An open scope resolves single hosts, so that other services do not matter.
    let seen = match scope::is_open(cx, scope) {
        true => None,
        false => Some(scope::visible(cx, scope)?),
    };
    let everything = EgressHosts::everything();
    let egress = match &seen {
        None => &everything,
        Some(seen) => {
            let admits = |hosts: &EgressHosts| hosts.admits_service(&visible.key.namespace, &visible.key.hostname);
            let listener = seen.listeners.iter().find(|listener| admits(&listener.hosts));
            listener.map_or(&everything, |listener| &listener.hosts)
        }
    };
    let find = |host: &Hostname| scope::find(cx, scope, host).map(|s| s.key);
    let client = Client {
        cx,
        scope,
        source: &audience.source,
        egress,
        find: &find,
        lookup: &lookup,
        aliases: &aliases,
        all_ports: false,
    };
    let behind = scope::behind(&aliases, &find, &visible.key.hostname);
    let service = find(behind).filter(|key| cx.with::<Services, _>(key, |s| s.is_some()))?;
    Some(client.content(&service, port))
}
