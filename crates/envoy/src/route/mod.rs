//! Route tables (RDS): routes, virtual hosts and tables, each encoded once and concatenated.
//!
//! Repeated fields of a message can be concatenated. Each virtual host is therefore kept as an encoded field of its
//! table, and a change of one does not re-encode a table with a thousand others.

mod action;
pub(crate) mod defaults;
mod destinations;
mod faults;
mod hash;
mod headers;
pub(crate) mod kube;
mod matching;
mod retry;
pub(crate) mod sessions;
pub(crate) mod translate;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flow::Reads;
use model::audience::{
    HostRun, ProxyClass, RouteAudience, RouteTable, RoutesKey, SharedHostsKey, VirtualHostContent, VirtualHostSpec,
};
use model::kube::{HttpRouteKey, MatchRef};
use model::xds::Resource;
use protos::Message;
use protos::envoy::config::route::v3::{Route, Vhds};
use registry::proxy_settings::mesh_of;
use traffic::routes::{RouteTables, SharedHosts, virtual_host_name};
use traffic::virtual_service::EffectiveVirtualServices;

pub(crate) use action::direct_response;
pub(crate) use defaults::{dynamic_forward_proxy_table, inbound_table};
pub(crate) use destinations::Destinations;
pub use kube::KubeRoutes;
pub(crate) use matching::everything;
pub(crate) use translate::Context;

use crate::parts::aggregated_discovery;
use crate::wire::{Writer, enter_field, skip_field};
use crate::{Pieces, grpc};

/// The largest body of a fixed response, in bytes.
const MAX_DIRECT_RESPONSE: u64 = 1024 * 1024;
/// The lifetime of the HTTP/3 advertisement (`alt-svc`), in seconds.
const ADVERTISED_FOR: u32 = 86_400;
/// `VirtualHost.TlsRequirementType.ALL`.
const REQUIRE_TLS: u64 = 2;

/// The encoded routes of one key, as `routes` fields of a virtual host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EncodedRoutes {
    /// Routes with a condition, in order.
    pub specific: Bytes,
    /// The route without a condition, if any. If several VirtualServices share a virtual host, it follows the
    /// conditional routes of all of them.
    pub catch_all: Bytes,
}

impl EncodedRoutes {
    /// Encodes routes. Routes after the first one without a condition are unreachable and left out.
    pub(crate) fn of(routes: impl IntoIterator<Item = Route>) -> EncodedRoutes {
        let (mut specific, mut catch_all) = (Writer::default(), Writer::default());
        for route in routes {
            let bytes = route.encode_to_vec();
            if matching::is_catch_all(&route) {
                catch_all.bytes(3, &bytes);
                break;
            }
            specific.bytes(3, &bytes);
        }
        EncodedRoutes { specific: specific.finish(), catch_all: catch_all.finish() }
    }
}

flow::rule! {
    /// Encoded routes of VirtualServices, and default routes of services.
    pub HttpRoutes: Arc<RoutesKey> => EncodedRoutes = "http routes", derive_http_routes;
}

fn derive_http_routes(cx: &Reads<'_>, key: &Arc<RoutesKey>) -> Option<EncodedRoutes> {
    encoded(cx, key, Some)
}

/// The routes of a key, filtered by `keep`.
pub(crate) fn encoded(cx: &Reads<'_>, key: &RoutesKey, keep: impl Fn(Route) -> Option<Route>) -> Option<EncodedRoutes> {
    let mesh = mesh_of(cx, key.overrides.as_ref())?;
    let Some(id) = &key.virtual_service else {
        let hash = Destinations::read(cx, key, None).hash_of_default(&key.host);
        let route = defaults::outbound(key.host.as_str(), key.port, hash.as_ref(), &mesh.config);
        return Some(EncodedRoutes::of(keep(route)));
    };
    let object = cx.get::<EffectiveVirtualServices>(id)?;
    let destinations = Destinations::read(cx, key, Some(&object.spec));
    let context = Context { id, key, config: &mesh.config, destinations: &destinations };
    Some(EncodedRoutes::of(translate::routes(&object.spec, &context).filter_map(keep)))
}

flow::rule! {
    /// Encoded virtual hosts, each as the `virtual_hosts` field of a table.
    pub VirtualHosts: Arc<VirtualHostSpec> => Bytes = "virtual hosts", derive_virtual_hosts;
}

fn derive_virtual_hosts(cx: &Reads<'_>, key: &Arc<VirtualHostSpec>) -> Option<Bytes> {
    let mesh = mesh_of(cx, key.overrides.as_ref())?;
    let of_keys = |keys: &[Arc<RoutesKey>]| -> Vec<EncodedRoutes> {
        keys.iter().filter_map(|key| cx.get::<HttpRoutes>(key)).map(|row| (*row).clone()).collect()
    };
    let of_matches = |matches: &[MatchRef]| routes_of(matches, |key| cx.get::<KubeRoutes>(key));
    let routes: Vec<EncodedRoutes> = match &key.content {
        VirtualHostContent::Routes(keys) => of_keys(keys),
        VirtualHostContent::Matches(matches) => of_matches(matches),
        VirtualHostContent::Joined(keys, matches) => [of_keys(keys), of_matches(matches)].concat(),
        VirtualHostContent::AllowAny(cluster) => {
            vec![EncodedRoutes::of([defaults::allow_any(cluster, &mesh.config)])]
        }
        VirtualHostContent::DynamicForwardProxy => {
            vec![EncodedRoutes::of([defaults::dynamic_forward_proxy(&mesh.config)])]
        }
        VirtualHostContent::BlockAll => vec![EncodedRoutes::of([defaults::block_all()])],
        VirtualHostContent::NotFound => Vec::new(),
        VirtualHostContent::Misdirected => vec![EncodedRoutes::of([defaults::misdirected()])],
    };
    Some(virtual_host(key, &routes, defaults::counts_attempts(&mesh.config)))
}

/// The routes of matches, whose order is decided. Each key is read once.
pub(crate) fn routes_of(
    matches: &[MatchRef],
    read: impl Fn(&Arc<HttpRouteKey>) -> Option<Arc<Arc<[Bytes]>>>,
) -> Vec<EncodedRoutes> {
    let mut rows = BTreeMap::new();
    let mut encoded = |one: &MatchRef| {
        let row = rows.entry(Arc::as_ptr(&one.key)).or_insert_with(|| read(&one.key));
        row.as_ref().and_then(|row| row.get(usize::from(one.index)).cloned())
    };
    let specific = matches.iter().filter_map(&mut encoded);
    specific.map(|specific| EncodedRoutes { specific, catch_all: Bytes::new() }).collect()
}

flow::rule! {
    /// The encoded virtual hosts of a list that tables share.
    pub SharedVirtualHosts: SharedHostsKey => EncodedHosts = "shared virtual hosts", derive_shared_virtual_hosts;
}

/// Encoded virtual hosts, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EncodedHosts {
    bytes: Bytes,
    /// The end of each virtual host in `bytes`.
    ends: Vec<usize>,
}

impl EncodedHosts {
    /// The virtual hosts with these indices.
    pub fn slice(&self, hosts: &Range<usize>) -> Bytes {
        let end_of = |count: usize| count.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        self.bytes.slice(end_of(hosts.start)..end_of(hosts.end))
    }
}

fn derive_shared_virtual_hosts(cx: &Reads<'_>, key: &SharedHostsKey) -> Option<EncodedHosts> {
    let table = cx.get::<SharedHosts>(key)?;
    let (mut bytes, mut ends) = (BytesMut::new(), Vec::with_capacity(table.list().hosts.len()));
    for host in &table.list().hosts {
        cx.with::<VirtualHosts, _>(host, |row| bytes.extend_from_slice(row.map_or(&[], |row| row)));
        ends.push(bytes.len());
    }
    Some(EncodedHosts { bytes: bytes.freeze(), ends })
}

flow::rule! {
    /// Encoded route tables. For sidecars, an unknown name has an empty table, so that Envoy does not wait for it.
    pub RouteConfigs: (Arc<RouteAudience>, Arc<str>) => Resource = "route configurations", derive_route_configs;
}

fn derive_route_configs(cx: &Reads<'_>, key: &(Arc<RouteAudience>, Arc<str>)) -> Option<Resource> {
    let table = cx.get::<RouteTables>(key)?;
    if key.0.class == ProxyClass::Grpc {
        let body = grpc::route_configuration(cx, &key.1, &table);
        return Some(Resource::new(key.1.clone(), body));
    }
    let (before, behind) = route_configuration(&key.1, false, Options::of(&table));
    let mut body = Pieces::default();
    body.copy(&before);
    for run in table.virtual_hosts.runs() {
        match run {
            HostRun::Shared(list, range) => {
                cx.with::<SharedVirtualHosts, _>(&list.key, |shared| shared.map(|s| body.share(s.slice(range))));
            }
            HostRun::Own(_) | HostRun::Part(_) => {
                for host in run.hosts() {
                    cx.with::<VirtualHosts, _>(host, |row| row.map(|row| body.copy(row)));
                }
            }
        }
    }
    body.copy(&behind);
    Some(Resource::in_pieces(key.1.clone(), body.finish()))
}

flow::rule! {
    /// Encoded route tables whose virtual hosts are sent over VHDS. A table without virtual hosts has no VHDS source, so
    /// that Envoy waits for nothing.
    pub RouteShells: (Arc<RouteAudience>, Arc<str>) => Resource = "route configurations without virtual hosts", derive_route_shells;
}

fn derive_route_shells(cx: &Reads<'_>, key: &(Arc<RouteAudience>, Arc<str>)) -> Option<Resource> {
    let table = cx.get::<RouteTables>(key)?;
    let (before, behind) = route_configuration(&key.1, !table.virtual_hosts.is_empty(), Options::of(&table));
    Some(Resource::new(key.1.clone(), [before, behind].concat()))
}

flow::rule! {
    /// Encoded virtual hosts as resources of their own.
    pub VirtualHostResources: (Arc<str>, Arc<VirtualHostSpec>) => Resource = "virtual host resources", derive_virtual_host_resources;
}

fn derive_virtual_host_resources(cx: &Reads<'_>, (table, host): &(Arc<str>, Arc<VirtualHostSpec>)) -> Option<Resource> {
    virtual_host_resource(virtual_host_name(table, &host.name), &cx.get::<VirtualHosts>(host)?)
}

/// The resource of this name for a virtual host that is encoded as a field of a table. `None` if the field is malformed.
pub fn virtual_host_resource(name: Arc<str>, field: &[u8]) -> Option<Resource> {
    let mut body = Writer::with_capacity(field.len() + name.len() + 8);
    // Envoy finds an on-demand virtual host by the name of the resource, so its own name must be equal.
    body.text(1, &name);
    body.raw(skip_field(enter_field(field)?)?);
    Some(Resource::new(name, body.finish()))
}

/// The `Vhds` message: discovery over the same stream.
fn vhds_source() -> Vec<u8> {
    Vhds { config_source: Some(aggregated_discovery()) }.encode_to_vec()
}

/// One `virtual_hosts` field.
pub(crate) fn virtual_host(spec: &VirtualHostSpec, routes: &[EncodedRoutes], count_attempts: bool) -> Bytes {
    let size: usize = routes.iter().map(|r| r.specific.len() + r.catch_all.len()).sum();
    let mut writer = Writer::with_capacity(size + 256);
    writer.message(2, |w| {
        w.text(1, &spec.name);
        for domain in &spec.domains {
            w.bytes(2, domain.as_bytes());
        }
        routes.iter().for_each(|routes| w.raw(&routes.specific));
        routes.iter().for_each(|routes| w.raw(&routes.catch_all));
        w.uint(4, if spec.require_tls { REQUIRE_TLS } else { 0 });
        w.uint(14, count_attempts.into());
        if let Some(session) = &spec.session {
            w.entry(15, sessions::FILTER, |w| w.raw(&sessions::options(session).encode_to_vec()));
        }
    });
    writer.finish()
}

/// The fields of a table other than its virtual hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// See [`RouteTable::ignore_port`].
    pub ignore_port: bool,
    /// See [`RouteTable::http3_port`].
    pub http3_port: Option<u16>,
}

impl Options {
    /// The options of a table.
    pub fn of(table: &RouteTable) -> Options {
        Options { ignore_port: table.ignore_port, http3_port: table.http3_port }
    }
}

/// Encodes a `RouteConfiguration`, with the source of its virtual hosts (`Vhds`) if it `discovers` them: the fields before its
/// virtual hosts, and those behind them. Unknown clusters are accepted: requests get 503 until they exist.
pub fn route_configuration(name: &str, discovers: bool, options: Options) -> (Bytes, Bytes) {
    let mut before = Writer::with_capacity(name.len() + 8);
    before.text(1, name);
    let mut behind = Writer::with_capacity(64);
    if let Some(port) = options.http3_port {
        behind.message(4, |w| {
            w.message(1, |w| {
                w.text(1, "alt-svc");
                w.text(2, &format!("h3=\":{port}\"; ma={ADVERTISED_FOR}"));
            });
        });
    }
    behind.wrapped(7, 0);
    if discovers {
        behind.bytes(9, &vhds_source());
    }
    behind.wrapped(11, MAX_DIRECT_RESPONSE);
    behind.uint(14, options.ignore_port.into());
    (before.finish(), behind.finish())
}

#[cfg(test)]
mod tests;
