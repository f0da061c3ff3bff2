//! Rejected servers of `Gateway`s, and their credentials that do not exist.
//!
//! Connected proxies decide which `Gateway`s are merged. Without a connected proxy, a workload is assumed that the
//! `Gateway` exactly selects. The rejected servers of all `Gateway`s of a workload are found together, because a server can
//! conflict with any of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{FieldPath, Kind};
use flow::Reads;
use model::audience::GatewaySet;
use model::proxy::Labels;
use model::service::ObjectId;
use registry::Gateways;
use registry::inputs::ProxyToken;

use super::credentials::{self, MissingCredentials};
use super::{Conflicts, conflict, row};
use crate::audience::{Audiences, ProxyAudiences, gateways_for};
use crate::gateways::{MergedGateways, Server, UnservedReason};

flow::rule! {
    /// The conflicts of each `Gateway` with others that select the same workloads.
    pub GatewayConflicts: ObjectId => Conflicts = "conflicts on gateways", derive_gateway_conflicts;
}

fn derive_gateway_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let missing = cx.get::<MissingCredentials>(key);
    let missing = missing.iter().flat_map(|all| all.iter().cloned());
    let rejected = cx.get::<RejectedServers>(key);
    let each = rejected.iter().flat_map(|servers| servers.iter()).map(|(server, rejected)| {
        let path = FieldPath::spec().field("servers").index(*server);
        let (message, hint) = explanation(rejected);
        conflict(Kind::Gateway, key, path, message, hint)
    });
    row(each.chain(missing).collect())
}

flow::index! {
    /// Connected gateways by the `Gateway`s that select them.
    pub(super) ProxiesByGateways: GatewaySet => members of Audiences = "proxies by gateways", proxies_by_gateways_keys;
}

fn proxies_by_gateways_keys(_: &ProxyToken, row: &ProxyAudiences) -> Vec<GatewaySet> {
    let sets = row.listener.class.gateway().map(|facts| facts.set.clone());
    sets.into_iter().filter(|set| !set.gateways.is_empty()).collect()
}

/// A rejected server.
#[derive(Clone, PartialEq, Debug)]
struct Rejected {
    reason: UnservedReason,
    /// The first served server at its port: its `Gateway` and index.
    rival: Option<(ObjectId, usize)>,
}

/// The rejected servers of a `Gateway`, by index.
type ByServer = BTreeMap<usize, Rejected>;

/// The rejected servers of each `Gateway` of some sets.
type ByGateway = Arc<BTreeMap<ObjectId, ByServer>>;

flow::rule! {
    /// The rejected servers of a `Gateway`. A relation of its own, so that a change of other `Gateway`s stops here.
    RejectedServers: ObjectId => ByServer = "rejected servers", derive_rejected_servers;
    /// The rejected servers of the `Gateway`s of connected proxies.
    ConnectedGateways: () => ByGateway = "rejected servers of connected gateways", derive_connected_gateways;
    /// The rejected servers of the `Gateway`s of a workload with these labels.
    AssumedGateways: Labels => ByGateway = "rejected servers of a workload", derive_assumed_gateways;
}

fn derive_rejected_servers(cx: &Reads<'_>, key: &ObjectId) -> Option<ByServer> {
    let connected = cx.with::<ConnectedGateways, _>(&(), |all| all.and_then(|all| all.get(key).cloned()));
    connected.or_else(|| {
        let selector = cx.with::<Gateways, _>(key, |own| own.map(|own| own.spec.selector.clone()))?;
        cx.with::<AssumedGateways, _>(&selector, |all| all.and_then(|all| all.get(key).cloned()))
    })
}

fn derive_connected_gateways(cx: &Reads<'_>, (): &()) -> Option<ByGateway> {
    let mut found = BTreeMap::new();
    cx.keys::<ProxiesByGateways>().iter().for_each(|set| add(cx, set, &mut found));
    Some(Arc::new(found))
}

fn derive_assumed_gateways(cx: &Reads<'_>, labels: &Labels) -> Option<ByGateway> {
    let mut found = BTreeMap::new();
    add(cx, &GatewaySet { gateways: gateways_for(cx, labels).into(), ..GatewaySet::default() }, &mut found);
    Some(Arc::new(found))
}

/// Adds the `Gateway`s of a set, with their rejected servers. What is known of a server stays.
fn add(cx: &Reads<'_>, set: &GatewaySet, found: &mut BTreeMap<ObjectId, ByServer>) {
    for gateway in set.gateways.iter() {
        found.entry(gateway.clone()).or_default();
    }
    let Some(merged) = cx.get::<MergedGateways>(set).filter(|merged| !merged.unserved.is_empty()) else {
        return;
    };
    let mut first: BTreeMap<u32, &Server> = BTreeMap::new();
    for server in merged.ports.iter().flat_map(|port| &port.servers) {
        first.entry(u32::from(server.port)).or_insert(server);
    }
    for one in &merged.unserved {
        let port = cx.with::<Gateways, _>(&one.gateway, |gateway| {
            gateway?.spec.servers.get(one.server)?.port.as_ref().map(|port| port.number)
        });
        let rival = port.and_then(|port| first.get(&port)).map(|rival| (rival.gateway.clone(), rival.index));
        let servers = found.entry(one.gateway.clone()).or_default();
        servers.entry(one.server).or_insert(Rejected { reason: one.reason, rival });
    }
}

/// The message and the hint.
fn explanation(Rejected { reason, rival }: &Rejected) -> (String, &'static str) {
    let older = rival.as_ref().map_or_else(
        || "an older server".to_owned(),
        |(ObjectId { namespace, name }, index)| {
            format!("an older server (spec.servers[{index}] of Gateway {namespace}/{name})")
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
    b.view::<ConnectedGateways>();
    b.view::<AssumedGateways>();
    b.view::<RejectedServers>();
    credentials::register(b);
    b.view::<GatewayConflicts>();
}
