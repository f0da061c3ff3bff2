//! LEDS: endpoints follow the assignment that names their collections.
//!
//! An assignment is complete once the client has subscribed to the collections that it names and has acknowledged their
//! endpoints. Two properties of Envoy decide the rest:
//!
//! - Envoy treats a cluster that is sent again as new. It takes its assignment again and then needs the endpoints of its
//!   collections, but does not subscribe to them again. They are sent again after the assignment.
//! - A reconnecting Envoy reports its collections but not their endpoints, so it would keep endpoints that were removed
//!   meanwhile. Its collections are replaced by collections with new names ([`Origin::renew_collections`]).

use model::xds::ResourceType;

use crate::core::Core;
use crate::stream::Stream;
use crate::wire::{Reader, Value};
use crate::{Epoch, Moment, Name, Origin};

/// Collections that a client was told of and has not subscribed to yet.
#[derive(Default)]
pub(crate) struct Awaited {
    /// The assignment, and the collection that it names.
    pub(crate) collections: Vec<(Name, Name)>,
    /// Since when there have been any.
    pub(crate) since: Moment,
    /// Up to which epoch endpoints were in place before.
    pub(crate) before: Epoch,
}

impl<O: Origin> Core<O> {
    /// Assignments that name these collections are about to be sent, some of them because their cluster was sent again.
    pub(crate) fn note_collections(
        &self,
        stream: &mut Stream<O::Token>,
        named: &[(Name, Name)],
        again: &[Name],
        now: Moment,
    ) {
        if named.is_empty() {
            return;
        }
        let settled = stream.watch(ResourceType::Endpoints).map(|watch| watch.settled);
        let watch = stream.watches[ResourceType::LbEndpoint as usize].as_deref_mut();
        let selection = watch.as_ref().map(|watch| self.selection(watch));
        let known = |collection: &Name| {
            let names = selection.and_then(|selection| selection.names.as_ref());
            names.is_some_and(|names| names.contains(collection))
        };
        let (known, new): (Vec<_>, Vec<_>) = named.iter().cloned().partition(|(_, collection)| known(collection));
        if let Some(watch) = watch {
            let again = known.into_iter().filter(|(name, _)| again.binary_search(name).is_ok());
            let collections: Vec<Name> = again.map(|(_, collection)| collection).collect();
            watch
                .pending
                .owe(self.ledgers[watch.ledger].in_collections(&collections));
        }
        let awaited = &mut stream.awaited;
        if awaited.collections.is_empty() {
            awaited.since = now;
            awaited.before = settled.unwrap_or_default();
        }
        awaited.collections.extend(new);
        awaited.collections.sort_unstable();
        awaited.collections.dedup();
    }

    /// Forgets collections that are no longer awaited: the client has subscribed to them, their assignment does not name
    /// them any more, or it has been long enough.
    pub(crate) fn check_awaited(&mut self, stream: &mut Stream<O::Token>, now: Moment) {
        if stream.awaited.collections.is_empty() {
            return;
        }
        let overdue = now >= stream.awaited.since + self.limits.hold;
        let mut collections = std::mem::take(&mut stream.awaited.collections);
        collections.retain(|(assignment, collection)| self.is_awaited(stream, assignment, collection));
        if overdue && !collections.is_empty() {
            self.stats.overdue[ResourceType::LbEndpoint as usize] += 1;
            collections.clear();
        }
        stream.awaited.collections = collections;
    }

    fn is_awaited(&self, stream: &Stream<O::Token>, assignment: &Name, collection: &Name) -> bool {
        let (endpoints, single) = (
            stream.watch(ResourceType::Endpoints),
            stream.watch(ResourceType::LbEndpoint),
        );
        let named = |watch: &crate::watch::Watch| {
            let resource = self.ledgers[watch.ledger].resource(&self.cells, assignment);
            let named = resource
                .map(|resource| collections_of(resource.body()))
                .unwrap_or_default();
            self.selection(watch).covers(assignment) && named.contains(collection)
        };
        let subscribed = |watch: &crate::watch::Watch| {
            let names = self.selection(watch).names.as_ref();
            names.is_some_and(|names| names.contains(collection))
        };
        endpoints.is_some_and(named) && !single.is_some_and(subscribed)
    }

    /// A client subscribes to its first collections on this stream, of which it says nothing more.
    pub(crate) fn renew_collections(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, names: &[Name]) {
        let told = |name: &Name| stream.awaited.collections.iter().any(|(_, told)| told == name);
        if !stream.resumed && names.iter().all(told) {
            return;
        }
        if origin.renew_collections(stream.token, names) {
            self.relocate(origin, stream, ResourceType::Endpoints);
        }
    }
}

/// The collections that an encoded `ClusterLoadAssignment` names.
pub(crate) fn collections_of(assignment: &[u8]) -> Vec<Name> {
    const ENDPOINTS: u64 = 2;
    const LEDS: u64 = 8;
    const COLLECTION: u64 = 2;
    let mut found = Vec::new();
    let mut reader = Reader::new(assignment);
    while let Ok(Some((field, value))) = reader.field() {
        let (ENDPOINTS, Value::Bytes(locality)) = (field, value) else {
            continue;
        };
        let mut locality = Reader::new(locality);
        while let Ok(Some((field, value))) = locality.field() {
            let (LEDS, Value::Bytes(config)) = (field, value) else {
                continue;
            };
            let mut config = Reader::new(config);
            while let Ok(Some((field, value))) = config.field() {
                if let (COLLECTION, Value::Bytes(name)) = (field, value) {
                    let name = std::str::from_utf8(name).ok().and_then(|name| name.strip_suffix("/*"));
                    found.extend(name.map(Name::from));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use protos::Message;
    use protos::envoy::config::endpoint::v3::locality_lb_endpoints::LbConfig;
    use protos::envoy::config::endpoint::v3::{ClusterLoadAssignment, LedsClusterLocalityConfig, LocalityLbEndpoints};

    #[test]
    fn the_collections_of_an_assignment_are_found_in_its_bytes() {
        let locality = |name: &str| LocalityLbEndpoints {
            priority: 1,
            lb_config: Some(LbConfig::LedsClusterLocalityConfig(LedsClusterLocalityConfig {
                leds_config: Some(Default::default()),
                leds_collection_name: name.to_owned(),
            })),
            ..LocalityLbEndpoints::default()
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: "c".to_owned(),
            endpoints: vec![
                locality("c/a/*"),
                LocalityLbEndpoints::default(),
                locality("c/b"),
                locality("c/d/*"),
            ],
            ..ClusterLoadAssignment::default()
        };
        let found = collections_of(&assignment.encode_to_vec());
        assert_eq!(found, [Name::from("c/a"), Name::from("c/d")]);
        assert_eq!(collections_of(b"\xff\xff"), [] as [Name; 0]);
    }
}
