//! Rejected servers of `Gateway`s.
//!
//! Connected proxies decide which `Gateway`s are merged. Without a connected proxy, a workload is assumed that the
//! `Gateway` exactly selects.

use std::collections::BTreeMap;

use config::istio;
use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::audience::GatewaySet;
use model::service::ObjectId;
use registry::Gateways;
use registry::inputs::ProxyToken;

use super::{Conflicts, conflict, row};
use crate::audience::{Audiences, ProxyAudiences, gateways_for};
use crate::gateways::{MergedGateway, MergedGateways, Server, UnservedReason};

flow::rule! {
    /// The conflicts of each `Gateway` with others that select the same workloads.
    pub GatewayConflicts: ObjectId => Conflicts = "conflicts on gateways", derive_gateway_conflicts;
}

fn derive_gateway_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<Gateways>(key)?;
    let sets = cx.keys::<ProxiesByGateways>();
    let mut sets: Vec<GatewaySet> = sets.iter().filter(|set| set.gateways.contains(key)).cloned().collect();
    if sets.is_empty() {
        // The gateways of a workload with exactly these labels.
        sets.push(GatewaySet { gateways: gateways_for(cx, &own.spec.selector).into(), ports: [].into() });
    }
    let mut found: BTreeMap<usize, Diagnostic> = BTreeMap::new();
    for set in sets {
        let Some(merged) = cx.get::<MergedGateways>(&set) else {
            continue;
        };
        for one in merged.unserved.iter().filter(|one| one.gateway == *key) {
            let tell = || {
                let path = FieldPath::spec().field("servers").index(one.server);
                let (message, hint) = explanation(one.reason, rival(&merged, &own.spec.servers[one.server]));
                conflict(Kind::Gateway, key, path, message, hint)
            };
            found.entry(one.server).or_insert_with(tell);
        }
    }
    row(found.into_values().collect())
}

flow::index! {
    /// Connected gateways by the `Gateway`s that select them.
    pub(super) ProxiesByGateways: GatewaySet => members of Audiences = "proxies by gateways", proxies_by_gateways_keys;
}

fn proxies_by_gateways_keys(_: &ProxyToken, row: &ProxyAudiences) -> Vec<GatewaySet> {
    let sets = row.listener.class.gateway().map(|facts| facts.set.clone());
    sets.into_iter().filter(|set| !set.gateways.is_empty()).collect()
}

/// The first served server at the port of a rejected one.
fn rival<'m>(merged: &'m MergedGateway, server: &istio::Server) -> Option<&'m Server> {
    let number = server.port.as_ref().map(|port| port.number)?;
    let mut there = merged.ports.iter().flat_map(|port| &port.servers);
    there.find(|other| u32::from(other.port) == number)
}

/// The message and the hint.
fn explanation(reason: UnservedReason, rival: Option<&Server>) -> (String, &'static str) {
    let older = rival.map_or_else(
        || "an older server".to_owned(),
        |rival| {
            let ObjectId { namespace, name } = &rival.gateway;
            format!("an older server (spec.servers[{}] of Gateway {namespace}/{name})", rival.index)
        },
    );
    match reason {
        UnservedReason::NoPort => {
            ("the server has no port and is not served".to_owned(), "give it a port from 1 to 65535")
        }
        UnservedReason::Conflict => (
            format!("{older} has the same address and port, and the two cannot share it: this server is not served"),
            "servers share a port if all speak plain-text HTTP, or all speak TLS for different hosts",
        ),
        UnservedReason::DuplicateHost => (
            "an older TLS server of the same port has one of the hosts: this server is not served".to_owned(),
            "name each host in one TLS server of a port",
        ),
        UnservedReason::DuplicateName => (
            format!("{older} has the same port and port name: this server is not served"),
            "give the ports of HTTPS servers names of their own",
        ),
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<ProxiesByGateways>();
    b.view::<GatewayConflicts>();
}
