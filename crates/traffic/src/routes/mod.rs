//! Route tables: their virtual hosts with domains and keys of routes.
//!
//! A table lists virtual hosts and does not read their routes: a changed weight, match or timeout derives the routes of
//! one virtual host ([`RoutesKey`]) and no table. Virtual hosts that many clients share are derived once
//! ([`DefaultHosts`]), as is the part of a table that all clients with unrestricted visibility share ([`SharedHosts`]);
//! a client's table replaces few hosts of it.

mod bind;
mod catch_all;
pub(crate) mod domains;
mod grpc;
mod host;
mod mesh;
mod overlay;
mod own;
mod served;
mod shared;
mod sidecar;
mod table_name;
mod unique;
mod vhds;

use std::sync::Arc;

use flow::Reads;
use model::audience::{ProxyClass, RouteAudience, RouteTable, VirtualHostSpec};

pub use bind::bind;
pub use domains::{ServiceHost, ServiceHostKey, ServiceHosts};
pub use host::{DefaultHostKey, DefaultHosts};
pub(crate) use mesh::precede;
pub use own::{OwnHostList, OwnHosts};
pub use shared::{SharedHost, SharedHostRows, SharedHosts, SharedTable};
pub use vhds::{SharedHostCatalogue, VirtualHostCatalogue, resource_name};

use crate::gateways;

flow::rule! {
    /// The route table of a name for an audience.
    ///
    /// Sidecars get an empty table for unknown names, so that a listener that is about to be removed does not wait for its
    /// routes. For gRPC clients, which do not wait, unknown names do not exist.
    pub RouteTables: (Arc<RouteAudience>, Arc<str>) => Arc<RouteTable> = "route tables", derive_route_tables;
}

fn derive_route_tables(cx: &Reads<'_>, (audience, name): &(Arc<RouteAudience>, Arc<str>)) -> Option<Arc<RouteTable>> {
    let mut table = match audience.class {
        ProxyClass::Sidecar(()) => sidecar::table(cx, audience, name),
        ProxyClass::Grpc => grpc::table(cx, audience, name)?,
        ProxyClass::Waypoint | ProxyClass::Ztunnel => return None,
        ProxyClass::Gateway(_) => gateways::gateway_table(cx, audience, name)?,
    };
    if let Some(overrides) = &audience.overrides {
        let own = |host: &Arc<VirtualHostSpec>| Arc::new(host.with_overrides(overrides));
        table.virtual_hosts = table.virtual_hosts.iter().map(own).collect();
    }
    Some(Arc::new(table))
}

/// The VHDS name of a virtual host.
pub fn virtual_host_name(table: &str, host: &str) -> Arc<str> {
    // The last slash terminates the table's name.
    match host.contains('/') {
        true => format!("{table}/{}", host.replace('%', "%25").replace('/', "%2F")).into(),
        false => format!("{table}/{host}").into(),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ServiceHosts>();
    b.view::<DefaultHosts>();
    mesh::register(b);
    b.view::<SharedHostRows>();
    b.view::<SharedHosts>();
    b.view::<own::DifferentHosts>();
    b.view::<OwnHosts>();
    b.view::<RouteTables>();
    b.view::<SharedHostCatalogue>();
    b.view::<VirtualHostCatalogue>();
}
