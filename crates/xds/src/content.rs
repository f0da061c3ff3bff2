//! What is in a response: everything there is, or what changed.

use std::sync::Arc;

use bytes::Bytes;
use model::xds::{Resource, ResourceType};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::config::route::v3::RouteConfiguration;

use crate::awaited::collections_of;
use crate::compose::{Composed, Content, Envelope, Fresh, encode};
use crate::core::Core;
use crate::ledger::Ledger;
use crate::selection::{Key, Selection};
use crate::stream::Stream;
use crate::watch::{Pending, Watch};
use crate::{Epoch, Name, Origin};

/// What a response will be made of, and where it leaves the watch.
pub(crate) struct Plan {
    pub(crate) key: Key,
    /// The part of the pending changes that it sends.
    pub(crate) paid: Pending,
    /// What is not.
    pub(crate) left: Pending,
    /// Whether there is a reason to send it besides removals.
    pub(crate) news: bool,
}

impl<O: Origin> Core<O> {
    /// The response of a plan: one that was composed before, if it is the same for all.
    pub(crate) fn composed(
        &mut self,
        stream: &Stream<O::Token>,
        watch: &Watch,
        plan: &Plan,
        full: bool,
    ) -> Arc<Composed> {
        let shared = plan.paid.is_empty() && plan.left.is_empty();
        if shared && let Some(composed) = self.ledgers[watch.ledger].selections[watch.selection].cached(&plan.key) {
            return composed;
        }
        let ledger = &self.ledgers[watch.ledger];
        let selection = self.selection(watch);
        let content = if full {
            self.whole(ledger, selection, plan)
        } else {
            self.partial(ledger, selection, plan)
        };
        let fresh = match watch.kind {
            ResourceType::Cluster if plan.key.from == 0 => Fresh::All,
            ResourceType::Cluster => Fresh::Some(self.discoveries(ledger, &news(ledger, selection, plan))),
            _ => Fresh::Some(Arc::default()),
        };
        let Key { from, upto, sweep, .. } = plan.key;
        let mut version = ledger.version(selection);
        // The version that a client shows when it returns must stand for having everything and nothing more.
        if upto < selection.changed || sweep < selection.removed || !plan.left.is_empty() {
            version = format!("{version}.{upto:x}.{sweep:x}");
        }
        let mut nonce = format!("{:x}.{from:x}.{upto:x}.{sweep:x}", selection.serial);
        if !shared {
            nonce = format!("{nonce}.{:x}", stream.sequence);
        }
        let envelope = Envelope {
            kind: watch.kind,
            delta: plan.key.delta,
            version: &version,
            nonce: &nonce,
            identifier: &self.limits.identifier,
        };
        let composed = Arc::new(Composed {
            rope: encode(&envelope, &content),
            version: version.as_str().into(),
            nonce: nonce.as_str().into(),
            resources: content.resources.len(),
            removed: content.removed.len(),
            tables: match watch.kind {
                ResourceType::Route => content.resources.iter().map(|(name, _)| name.clone()).collect(),
                _ => Vec::new(),
            },
            collections: match watch.kind {
                ResourceType::Endpoints => named_collections(&content),
                _ => Vec::new(),
            },
            fresh,
        });
        self.stats.composed[watch.kind as usize] += 1;
        if shared {
            self.ledgers[watch.ledger].selections[watch.selection].cache(plan.key, composed.clone());
        }
        composed
    }

    /// Everything that there is, and what went but must not be said to have gone yet.
    fn whole(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let live = ledger.live(&self.cells, selection);
        let mut resources: Vec<(Name, Resource)> =
            live.map(|(name, resource)| (name.clone(), resource.clone())).collect();
        let live = resources.len();
        for (name, tomb) in ledger.removed(selection, plan.key.sweep, Epoch::MAX) {
            resources.push((name.clone(), tomb.last.clone()));
        }
        for gone in &plan.left.gone {
            let there = ledger.resource(&self.cells, &gone.name).is_some();
            if let Some(last) = gone.last.as_ref().filter(|_| !there) {
                resources.push((gone.name.clone(), last.clone()));
            }
        }
        if resources.len() > live {
            resources.sort_by(|(one, _), (other, _)| one.cmp(other));
            resources.dedup_by(|(one, _), (other, _)| one == other);
        }
        Content {
            resources,
            removed: Vec::new(),
        }
    }

    /// What changed, and what the client is owed.
    fn partial(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let key = plan.key;
        let mut names = news(ledger, selection, plan);
        if key.newest_first {
            // What stopped the client from taking the rest may still be there: what is new must come before it.
            names.sort_by_key(|name| std::cmp::Reverse(ledger.epoch_of(name)));
        }
        let (mut resources, mut removed) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            let owed = || plan.paid.owed.binary_search(&name).is_ok();
            match ledger.resource(&self.cells, &name) {
                Some(resource) => resources.push((name, resource.clone())),
                None if ledger.kind.is_listed() && !owed() => {}
                None if key.placeholders && (key.from == 0 || owed()) => {
                    let empty = Resource::new(name.clone(), placeholder(ledger.kind, &name));
                    resources.push((name, empty));
                }
                None => removed.push(name),
            }
        }
        let absent = |name: &&Name| ledger.resource(&self.cells, name).is_none();
        removed.extend(
            ledger
                .removed(selection, key.removals_sent, key.sweep)
                .map(|(name, _)| name)
                .cloned(),
        );
        removed.extend(plan.paid.gone.iter().map(|gone| &gone.name).filter(absent).cloned());
        removed.sort_unstable();
        removed.dedup();
        if !key.delta {
            removed.clear();
        }
        Content { resources, removed }
    }
}

/// Names of which the client has not had the present form.
fn news<O: Origin>(ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Vec<Name> {
    let mut names = ledger.changed(selection, plan.key.from, plan.key.upto);
    names.extend(plan.paid.owed.iter().cloned());
    names.sort_unstable();
    names.dedup();
    names
}

/// The collections of endpoints that assignments name.
fn named_collections(content: &Content) -> Vec<(Name, Name)> {
    let of = |(name, resource): &(Name, Resource)| {
        let name = name.clone();
        collections_of(resource.body())
            .into_iter()
            .map(move |collection| (name.clone(), collection))
    };
    let mut named: Vec<(Name, Name)> = content.resources.iter().flat_map(of).collect();
    named.sort_unstable();
    named
}

/// What a client gets for a name that means nothing, so that it does not wait: no endpoints, no routes.
fn placeholder(kind: ResourceType, name: &str) -> Bytes {
    if kind == ResourceType::Endpoints {
        protos::encode(&ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        })
    } else {
        let validate_clusters = Some(false);
        protos::encode(&RouteConfiguration {
            name: name.to_owned(),
            validate_clusters,
            ..RouteConfiguration::default()
        })
    }
}
