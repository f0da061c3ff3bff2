//! Patched route tables: whole, or without the virtual hosts, which are then discovered by VHDS.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use config::istio::envoy_filter::ApplyTo;
use envoy::{Pieces, RouteConfigs, RouteShells, SharedVirtualHosts, TableOptions, VirtualHosts};
use flow::Reads;
use model::audience::{HostRun, RouteAudience, RouteTable, SharedHostsKey};
use model::xds::Resource;
use protos::dynamic::{DynamicMessage, descriptor, encode_dynamic};
use traffic::routes::RouteTables;

use crate::apply;
use crate::compile::Chosen;
use crate::hosts::{PatchedVirtualHosts, Place, Plan, Planned, changes_list, patches_of_table, plan};
use crate::matching::TableFacts;
use crate::outcome::{Outcomes, Patched};

flow::rule! {
    /// Encoded route tables of audiences with patches.
    pub PatchedRouteConfigs: (Arc<RouteAudience>, Arc<str>) => Patched = "patched route configurations", derive_patched_route_configs;
}

fn derive_patched_route_configs(cx: &Reads<'_>, (audience, name): &(Arc<RouteAudience>, Arc<str>)) -> Option<Patched> {
    let plain = (audience.plain(), name.clone());
    let patches = patches_of_table(cx, &audience.filters, &TableFacts::discovered(audience, name));
    if patches.is_empty() {
        return Some(unpatched(audience, &*cx.get::<RouteConfigs>(&plain)?));
    }
    let table = cx.get::<RouteTables>(&plain)?;
    let Plan { hosts: planned, mut outcomes } = plan(cx, &table.virtual_hosts, &patches);
    let mut hosts = TableHosts::default();
    for host in planned {
        match host {
            Planned::Plain(place) => hosts.unchanged(cx, place),
            Planned::Patched(_, key) | Planned::Added(_, key) => {
                let Some(row) = cx.get::<PatchedVirtualHosts>(&key) else { continue };
                outcomes.add_left(&key.filters, &row.left);
                hosts.0.push(Encoded::Own(row.body.clone()));
            }
        }
    }
    let (before, behind) = fields(name, false, &table, &patches, &mut outcomes);
    let resource = Resource::in_pieces(name.clone(), hosts.table(cx, &before, &behind));
    Some(Patched { resource, left: outcomes.left(&audience.filters) })
}

flow::rule! {
    /// Encoded route tables of audiences with patches whose virtual hosts are sent over VHDS. As without patches, a table
    /// without virtual hosts has no VHDS source. Nothing else makes a table gain or lose it, because Envoy uses a table with a
    /// new source before it has the virtual hosts.
    pub PatchedRouteShells: (Arc<RouteAudience>, Arc<str>) => Patched = "patched route configurations without virtual hosts", derive_patched_route_shells;
}

fn derive_patched_route_shells(cx: &Reads<'_>, (audience, name): &(Arc<RouteAudience>, Arc<str>)) -> Option<Patched> {
    let plain = (audience.plain(), name.clone());
    let patches = patches_of_table(cx, &audience.filters, &TableFacts::discovered(audience, name));
    if patches.is_empty() {
        return Some(unpatched(audience, &*cx.get::<RouteShells>(&plain)?));
    }
    let table = cx.get::<RouteTables>(&plain)?;
    let discovers = match patches.iter().any(changes_list) {
        true => !plan(cx, &table.virtual_hosts, &patches).hosts.is_empty(),
        false => !table.virtual_hosts.is_empty(),
    };
    let mut outcomes = Outcomes::default();
    let (before, behind) = fields(name, discovers, &table, &patches, &mut outcomes);
    let resource = Resource::new(name.clone(), [before, behind].concat());
    Some(Patched { resource, left: outcomes.left(&audience.filters) })
}

fn unpatched(audience: &RouteAudience, plain: &Resource) -> Patched {
    Patched { resource: plain.clone(), left: Outcomes::default().left(&audience.filters) }
}

/// The encoded virtual hosts of a table, in order.
#[derive(Default)]
struct TableHosts(Vec<Encoded>);

enum Encoded {
    /// Virtual hosts of a list that tables share.
    Shared(SharedHostsKey, Range<usize>),
    /// One virtual host.
    Own(Bytes),
}

impl TableHosts {
    /// Adds a virtual host as it is.
    fn unchanged(&mut self, cx: &Reads<'_>, (run, at): Place<'_>) {
        let HostRun::Shared(list, range) = run else {
            let hosts = run.hosts().iter().skip(at).take(1);
            self.0
                .extend(hosts.filter_map(|host| cx.get::<VirtualHosts>(host)).map(|row| Encoded::Own((*row).clone())));
            return;
        };
        let at = range.start + at;
        match self.0.last_mut() {
            Some(Encoded::Shared(key, range)) if range.end == at && *key == list.key => range.end = at + 1,
            _ => self.0.push(Encoded::Shared(list.key.clone(), at..at + 1)),
        }
    }

    /// The table with these fields before and behind its virtual hosts.
    fn table(self, cx: &Reads<'_>, before: &[u8], behind: &[u8]) -> Box<[Bytes]> {
        let mut body = Pieces::default();
        body.copy(before);
        for hosts in self.0 {
            match hosts {
                Encoded::Own(host) => body.copy(&host),
                Encoded::Shared(key, range) => {
                    cx.with::<SharedVirtualHosts, _>(&key, |shared| shared.map(|s| body.share(s.slice(&range))));
                }
            }
        }
        body.copy(behind);
        body.finish()
    }
}

/// The encoded fields of a table before its virtual hosts, and behind them.
fn fields(
    name: &str,
    discovers: bool,
    table: &RouteTable,
    patches: &[Chosen],
    outcomes: &mut Outcomes,
) -> (Bytes, Bytes) {
    let (before, behind) = envoy::route_configuration(name, discovers, TableOptions::of(table));
    let merges = |patch: &Chosen| patch.apply_to == ApplyTo::RouteConfiguration && patch.operation.merges();
    if !patches.iter().any(merges) {
        return (before, behind);
    }
    let descriptor = ApplyTo::RouteConfiguration.message().and_then(descriptor);
    let body: Bytes = [&*before, &*behind].concat().into();
    let Some(mut message) = descriptor.and_then(|of| DynamicMessage::decode(of, body).ok()) else {
        return (before, behind);
    };
    let source = message.get_field_by_name("vhds").filter(|_| discovers).map(|source| source.into_owned());
    apply::table_settings(&mut message, patches, outcomes);
    // The plan of the virtual hosts has them.
    message.clear_field_by_name("virtual_hosts");
    if let Some(source) = source {
        message.set_field_by_name("vhds", source);
    }
    (encode_dynamic(&message).into(), Bytes::new())
}
