//! Servers of `Gateway`s that answer nobody.

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::ObjectId;
use registry::Gateways;
use resources::istio::{self, Gateway};
use resources::{FieldPath, Kind, Object};

use super::{CONFLICT, Remarks, remark, row};
use crate::audience::GatewaysBySelector;
use crate::gateways::{GatewaySet, MergedGateway, MergedGateways, Server, UnservedReason};

/// The remarks on each `Gateway`: how its servers get on with those of the `Gateway`s that have the same selector.
pub struct GatewayRemarks;

impl Relation for GatewayRemarks {
    const NAME: &'static str = "remarks on gateways";
    type Key = ObjectId;
    type Row = Remarks;
}

impl Rule for GatewayRemarks {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Remarks> {
        let own = cx.get::<Gateways>(key)?;
        let label = own.spec.selector.first_key_value();
        let members = cx.get::<GatewaysBySelector>(&label.map(|(name, value)| (name.clone(), value.clone())))?;
        let objects = members.iter().filter_map(|id| Some((id, cx.get::<Gateways>(id)?)));
        let mut set: Vec<(&ObjectId, Arc<Arc<Object<Gateway>>>)> = objects
            .filter(|(_, object)| object.spec.selector == own.spec.selector)
            .collect();
        set.sort_by(|(_, a), (_, b)| a.meta.by_age(&b.meta));
        let merged = cx.get::<MergedGateways>(&GatewaySet {
            gateways: set.iter().map(|(id, _)| (*id).clone()).collect(),
            ports: [].into(),
        })?;
        let unserved = merged.unserved.iter().filter(|one| one.gateway == *key);
        let remarks = unserved.map(|one| {
            let path = FieldPath::spec().field("servers").index(one.server);
            let (message, hint) = told(one.reason, rival(&merged, &own.spec.servers[one.server]));
            remark(Kind::Gateway, key, CONFLICT, path, message, hint)
        });
        row(remarks.collect())
    }
}

/// The first server that answers at the port of one that does not.
fn rival<'m>(merged: &'m MergedGateway, server: &istio::Server) -> Option<&'m Server> {
    let number = server.port.as_ref().map(|port| port.number)?;
    let mut there = merged.ports.iter().flat_map(|port| &port.servers);
    there.find(|other| u32::from(other.port) == number)
}

/// Why, and what to do.
fn told(reason: UnservedReason, rival: Option<&Server>) -> (String, &'static str) {
    let older = rival.map_or_else(
        || "an older server".to_owned(),
        |rival| {
            let ObjectId { namespace, name } = &rival.gateway;
            format!(
                "an older server (spec.servers[{}] of Gateway {namespace}/{name})",
                rival.index
            )
        },
    );
    match reason {
        UnservedReason::NoPort => (
            "the server has no port, and answers nobody".to_owned(),
            "give it a port from 1 to 65535",
        ),
        UnservedReason::Conflict => (
            format!("{older} has the same address and port, and the two cannot share it: this one answers nobody"),
            "servers share a port if all speak plain-text HTTP, or all speak TLS for different hosts",
        ),
        UnservedReason::DuplicateHost => (
            "an older TLS server of the same port has one of the hosts: this one answers nobody".to_owned(),
            "name each host in one TLS server of a port",
        ),
        UnservedReason::DuplicateName => (
            format!("{older} has the same port and port name: this one answers nobody"),
            "give the ports of HTTPS servers names of their own",
        ),
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<GatewayRemarks>();
}
