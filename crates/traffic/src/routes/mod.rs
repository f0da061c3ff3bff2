//! Route tables: which virtual hosts a table has, under which domains, and what decides the routes of each.
//!
//! A table lists virtual hosts and never looks into their routes: a changed weight, match or time-out re-runs the
//! routes of one virtual host ([`RoutesKey`]) and no table. Virtual hosts that are the same for many clients are
//! derived once ([`DefaultHosts`]), and so is what
//! a table has for all clients who see everything ([`PublicHosts`]); a client's own table is that with a few hosts replaced.

mod bind;
mod catch_all;
pub(crate) mod domains;
mod grpc;
mod host;
mod overlay;
mod public;
mod sidecar;
mod table_name;
mod unique;

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{ProxyClass, ResourceKey, RouteAudience, RouteTable, VirtualHostSpec};

pub use bind::bind;
pub use domains::{ServiceHost, ServiceHostKey, ServiceHosts};
pub use host::{DefaultHostKey, DefaultHosts};
pub use public::{PublicHosts, PublicTable};

use crate::{Catalogue, gateways};

pub(crate) use unique::unique;

/// The route table of a name, as an audience sees it.
///
/// A sidecar gets an answer for every name, an empty table for those that mean nothing to it, so that a listener which
/// is about to go never waits for its routes. To gRPC clients, who wait for none, a name that means nothing is absent.
pub struct RouteTables;

impl Relation for RouteTables {
    const NAME: &'static str = "route tables";
    type Key = (Arc<RouteAudience>, Arc<str>);
    type Row = Arc<RouteTable>;
}

impl Rule for RouteTables {
    fn derive(cx: &Reads<'_>, (audience, name): &(Arc<RouteAudience>, Arc<str>)) -> Option<Arc<RouteTable>> {
        let mut table = match audience.class {
            ProxyClass::Sidecar(()) => sidecar::table(cx, audience, name),
            ProxyClass::Grpc => grpc::table(cx, audience, name)?,
            ProxyClass::Waypoint | ProxyClass::Ztunnel => return None,
            ProxyClass::Gateway(_) => gateways::gateway_table(cx, audience, name)?,
        };
        if let Some(overrides) = &audience.overrides {
            let own = |host: &mut Arc<VirtualHostSpec>| *host = Arc::new(host.with_overrides(overrides));
            table.virtual_hosts.iter_mut().for_each(own);
        }
        Some(Arc::new(table))
    }
}

/// What is in the route table of a name, for clients that discover virtual hosts singly: `TABLE/VIRTUAL HOST`.
pub struct VirtualHostCatalogue;

impl Relation for VirtualHostCatalogue {
    const NAME: &'static str = "virtual host catalogue";
    type Key = (Arc<RouteAudience>, Arc<str>);
    type Row = Catalogue;
}

impl Rule for VirtualHostCatalogue {
    fn derive(cx: &Reads<'_>, key: &(Arc<RouteAudience>, Arc<str>)) -> Option<Catalogue> {
        let table = cx.get::<RouteTables>(key)?;
        let name = &key.1;
        let entry = |host: &Arc<VirtualHostSpec>| {
            let resource = ResourceKey::VirtualHost(name.clone(), host.clone());
            (virtual_host_name(name, &host.name), resource)
        };
        Some(Catalogue::new(table.virtual_hosts.iter().map(entry).collect()))
    }
}

/// What a virtual host is called among those of all tables.
pub fn virtual_host_name(table: &str, host: &str) -> Arc<str> {
    // The last slash is where the table's name ends.
    match host.contains('/') {
        true => format!("{table}/{}", host.replace('%', "%25").replace('/', "%2F")).into(),
        false => format!("{table}/{host}").into(),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ServiceHosts>();
    b.view::<DefaultHosts>();
    b.view::<PublicHosts>();
    b.view::<RouteTables>();
    b.view::<VirtualHostCatalogue>();
}
