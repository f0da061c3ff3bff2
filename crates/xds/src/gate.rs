//! Make before break: what must be in place at a client before what needs it is sent.
//!
//! Sending order is clusters, endpoints, listeners, routes. The rules, of which each looks at one stream only:
//!
//! - **Listeners and routes wait for clusters and endpoints.** A listener or route that changed in epoch *e* is sent once
//!   the client has answered for all changes of clusters and endpoints up to *e*. Older changes do not wait for newer
//!   clusters, so a mesh that changes without pause delays routes by a round trip and does not starve them. (In state of
//!   the world, listeners are sent as a whole and wait as a whole.)
//! - **New clusters wait for their endpoints.** When clusters with discovered endpoints were sent and accepted, they
//!   count as in place once the client has subscribed to all their endpoints and answered for them, and for those that
//!   it discovers singly ([`awaited`](crate::awaited)). A client that has never asked for endpoints is not waited for.
//! - **Clusters are removed last**: when the client has answered for all listeners and routes of the epoch in which they
//!   went. A stream of a client that returns (it says what it has) has yet to subscribe to those, and is waited for, too.
//!   In state of the world, the set that is sent meanwhile still has the clusters that went, as they were.
//! - **A refusal is an answer**: it ends the wait.
//! - **No wait is longer than [`Limits::hold`](crate::Limits::hold)**, counted from the first change that waits: a client
//!   that never answers or never asks gets the rest anyway. [`Stats::overdue`](crate::Stats::overdue) counts that.

use std::sync::Arc;

use model::xds::ResourceType;

use crate::compose::Discovery;
use crate::core::Core;
use crate::ledger::Ledger;
use crate::selection::Selection;
use crate::stream::Stream;
use crate::wire::{Reader, Value};
use crate::{Epoch, Moment, Name, Origin};

/// Clusters that the client was sent, until their endpoints are in place.
pub(crate) struct Settling {
    pub(crate) fresh: Arc<[Discovery]>,
    /// Up to which epoch clusters were in place before.
    pub(crate) before: Epoch,
    /// When the client accepted them.
    pub(crate) answered: Option<Moment>,
    /// How many responses with endpoints must have been answered; known once all endpoints are subscribed to.
    pub(crate) target: Option<u64>,
    /// The same of single endpoints; known once all collections are subscribed to.
    pub(crate) singly: Option<u64>,
}

/// What may be sent of a type now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// What came or changed up to this epoch.
    pub(crate) upto: Epoch,
    /// What went up to this epoch.
    pub(crate) sweep: Epoch,
}

/// The types that lead to clusters.
const USERS_OF_CLUSTERS: [ResourceType; 3] = [ResourceType::Listener, ResourceType::Route, ResourceType::VirtualHost];

impl<O: Origin> Core<O> {
    /// What may be sent of a type now; `None`: nothing.
    pub(crate) fn window(&self, stream: &Stream<O::Token>, kind: ResourceType, now: Moment) -> Option<Window> {
        let expired = |hold: Option<(Epoch, Moment)>| hold.is_some_and(|(_, since)| now >= since + self.limits.hold);
        match kind {
            ResourceType::Cluster if stream.settling.is_some() => None,
            ResourceType::Cluster if expired(stream.sweep_hold) => Some(Window::all(self.epoch)),
            ResourceType::Cluster => Some(Window {
                upto: self.epoch,
                sweep: self.users_of_clusters(stream),
            }),
            ResourceType::Endpoints | ResourceType::LbEndpoint => Some(Window::all(self.epoch)),
            ResourceType::Secret | ResourceType::Extension | ResourceType::NameTable => Some(Window::all(self.epoch)),
            ResourceType::Listener | ResourceType::Route | ResourceType::VirtualHost => {
                let upto = if expired(stream.hold) {
                    self.epoch
                } else {
                    self.clusters_in_place(stream)
                };
                (upto > 0).then_some(Window::all(upto))
            }
        }
    }

    /// Whether nothing of this type has to wait.
    pub(crate) fn is_open(&self, stream: &Stream<O::Token>, kind: ResourceType) -> bool {
        match kind {
            ResourceType::Cluster => self.users_of_clusters(stream) == self.epoch,
            ResourceType::Endpoints | ResourceType::LbEndpoint => true,
            ResourceType::Secret | ResourceType::Extension | ResourceType::NameTable => true,
            ResourceType::Listener | ResourceType::Route | ResourceType::VirtualHost => {
                self.clusters_in_place(stream) == self.epoch
            }
        }
    }

    /// Notices when the endpoints of new clusters are in place.
    pub(crate) fn check_settling(&mut self, stream: &mut Stream<O::Token>, now: Moment) {
        let Some(settling) = &stream.settling else { return };
        let Some(answered) = settling.answered else { return };
        let (mut target, mut singly) = (settling.target, settling.singly);
        let done = match stream.watch(ResourceType::Endpoints) {
            None => true,
            Some(endpoints) => {
                let selection = self.selection(endpoints);
                let pending = endpoints.has_updates(selection);
                if target.is_none() && self.subscribed(stream, selection, &settling.fresh) {
                    target = Some(endpoints.responses + u64::from(pending));
                }
                target.is_some_and(|target| endpoints.has_answered(target, pending))
            }
        };
        let done = done && self.settled_singly(stream, &mut singly);
        let overdue = now >= answered + self.limits.hold;
        if done || overdue {
            self.stats.overdue[ResourceType::Endpoints as usize] += u64::from(!done);
            stream.settling = None;
        } else if let Some(settling) = &mut stream.settling {
            settling.target = target;
            settling.singly = singly;
        }
    }

    /// Whether all collections of endpoints that the client was told of are in place.
    fn settled_singly(&self, stream: &Stream<O::Token>, target: &mut Option<u64>) -> bool {
        if !stream.awaited.collections.is_empty() {
            return false;
        }
        let Some(single) = stream.watch(ResourceType::LbEndpoint) else {
            return true;
        };
        let pending = single.has_updates(self.selection(single));
        let target = *target.get_or_insert(single.responses + u64::from(pending));
        single.has_answered(target, pending)
    }

    /// Notes what waits now, so that it does not wait for ever. Gives the time at which to look again.
    pub(crate) fn update_holds(&mut self, stream: &mut Stream<O::Token>, now: Moment) -> Option<Moment> {
        stream.hold = self.held(stream).then(|| match stream.hold {
            Some((epoch, since)) if !self.sent_since(stream, epoch) => (epoch, since),
            _ => (self.epoch, now),
        });
        let clusters = stream.watch(ResourceType::Cluster);
        let removals_sent = clusters
            .filter(|watch| watch.has_removals(self.selection(watch)))
            .map(|watch| watch.removals_sent);
        stream.sweep_hold = removals_sent.map(|removals_sent| match stream.sweep_hold {
            Some((epoch, since)) if removals_sent < epoch => (epoch, since),
            _ => (self.epoch, now),
        });
        let settling = stream.settling.as_ref().and_then(|settling| settling.answered);
        let starts = [
            stream.hold.map(|(_, since)| since),
            stream.sweep_hold.map(|(_, since)| since),
            settling,
            (!stream.awaited.collections.is_empty()).then_some(stream.awaited.since),
        ];
        // What has expired already waits for an answer of the client, not for the time.
        starts
            .into_iter()
            .flatten()
            .map(|since| since + self.limits.hold)
            .filter(|at| *at > now)
            .min()
    }

    /// Up to which epoch clusters and their endpoints are in place at the client.
    fn clusters_in_place(&self, stream: &Stream<O::Token>) -> Epoch {
        let clusters = match &stream.settling {
            Some(settling) => settling.before,
            None => self.reached(stream, ResourceType::Cluster),
        };
        let awaited = match stream.awaited.collections.is_empty() {
            true => self.epoch,
            false => stream.awaited.before,
        };
        let endpoints = self.reached(stream, ResourceType::Endpoints);
        let single = self.reached(stream, ResourceType::LbEndpoint);
        clusters.min(endpoints).min(single).min(awaited)
    }

    /// Up to which epoch those are in place that may use clusters.
    fn users_of_clusters(&self, stream: &Stream<O::Token>) -> Epoch {
        let listeners = stream.watch(ResourceType::Listener);
        if listeners.is_none() && stream.resumed {
            return 0;
        }
        let reached = USERS_OF_CLUSTERS.into_iter().map(|kind| self.reached(stream, kind));
        reached.min().unwrap_or(self.epoch)
    }

    /// Up to which epoch the client has answered for a type; for one that it has not subscribed to, all.
    fn reached(&self, stream: &Stream<O::Token>, kind: ResourceType) -> Epoch {
        let Some(watch) = stream.watch(kind) else {
            return self.epoch;
        };
        let selection = self.selection(watch);
        let clusters = kind == ResourceType::Cluster;
        let waiting = watch
            .inflight
            .as_ref()
            .is_some_and(|inflight| inflight.updates || !clusters);
        let pending = watch.has_updates(selection) || !clusters && watch.has_removals(selection);
        if waiting || pending { watch.settled } else { self.epoch }
    }

    /// Whether listeners or routes wait for clusters or endpoints.
    fn held(&self, stream: &Stream<O::Token>) -> bool {
        let waits = |kind| {
            let watch = stream.watch(kind);
            watch.is_some_and(|watch: &crate::watch::Watch| watch.has_updates(self.selection(watch)))
        };
        USERS_OF_CLUSTERS.into_iter().any(waits) && self.clusters_in_place(stream) < self.epoch
    }

    /// Whether what listeners and routes had to bring at `epoch` has been sent meanwhile.
    fn sent_since(&self, stream: &Stream<O::Token>, epoch: Epoch) -> bool {
        let sent = |kind| {
            let watch = stream.watch(kind);
            watch.is_none_or(|watch| watch.sent >= epoch || !watch.has_updates(self.selection(watch)))
        };
        USERS_OF_CLUSTERS.into_iter().all(sent)
    }

    /// What these clusters discover; nothing for those that do not.
    pub(crate) fn discoveries(&self, ledger: &Ledger<O>, clusters: &[Name]) -> Arc<[Discovery]> {
        let one = |cluster: &Name| {
            let endpoints = endpoints_name(cluster, ledger.resource(&self.cells, cluster)?.body())?;
            Some(Discovery {
                cluster: cluster.clone(),
                endpoints,
            })
        };
        clusters.iter().filter_map(one).collect()
    }

    /// Whether the client has subscribed to all endpoints of its new clusters, but for those that are gone again.
    fn subscribed(&self, stream: &Stream<O::Token>, selection: &Selection, fresh: &[Discovery]) -> bool {
        let Some(clusters) = stream.watch(ResourceType::Cluster) else {
            return true;
        };
        let ledger = &self.ledgers[clusters.ledger];
        let there = |fresh: &&Discovery| ledger.resource(&self.cells, &fresh.cluster).is_some();
        fresh
            .iter()
            .filter(there)
            .all(|fresh| selection.covers(&fresh.endpoints))
    }
}

impl Window {
    fn all(epoch: Epoch) -> Window {
        Window {
            upto: epoch,
            sweep: epoch,
        }
    }
}

/// The name under which a cluster discovers its endpoints: its own, if it gives no other. `None` if it does not.
fn endpoints_name(name: &Name, cluster: &[u8]) -> Option<Name> {
    const TYPE: u64 = 2;
    const EDS_CONFIG: u64 = 3;
    const EDS: u64 = 3;
    const SERVICE_NAME: u64 = 2;
    let (mut discovers, mut service) = (false, None);
    let mut reader = Reader::new(cluster);
    while let Ok(Some((field, value))) = reader.field() {
        match (field, value) {
            (TYPE, Value::Varint(value)) => discovers = value == EDS,
            (EDS_CONFIG, Value::Bytes(config)) => {
                let mut config = Reader::new(config);
                while let Ok(Some((field, value))) = config.field() {
                    if let (SERVICE_NAME, Value::Bytes(value)) = (field, value) {
                        service = std::str::from_utf8(value).ok();
                    }
                }
            }
            _ => {}
        }
    }
    let service = service.filter(|service| !service.is_empty() && **service != **name);
    discovers.then(|| service.map_or_else(|| name.clone(), Name::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protos::Message;
    use protos::envoy::config::cluster::v3::Cluster;
    use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig};

    #[test]
    fn the_endpoints_of_a_cluster_are_found_in_its_bytes() {
        let cluster = |kind: DiscoveryType, service: &str| {
            let eds = EdsClusterConfig {
                service_name: service.to_owned(),
                ..EdsClusterConfig::default()
            };
            let cluster = Cluster {
                name: "c".to_owned(),
                alt_stat_name: "other".to_owned(),
                cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
                eds_cluster_config: Some(eds),
                ..Cluster::default()
            };
            endpoints_name(&"c".into(), &cluster.encode_to_vec()).map(|name| name.to_string())
        };
        assert_eq!(cluster(DiscoveryType::Eds, "").as_deref(), Some("c"));
        assert_eq!(cluster(DiscoveryType::Eds, "s").as_deref(), Some("s"));
        assert_eq!(cluster(DiscoveryType::StrictDns, "s"), None);
        assert_eq!(endpoints_name(&"c".into(), b"\xff\xff"), None);
    }
}
