//! The content of a response: the whole state, or the changes.

use std::sync::Arc;

use model::xds::Resource;

use crate::compose::{Composed, Content, Envelope, Fresh, encode};
use crate::core::Core;
use crate::ledger::Ledger;
use crate::selection::{Key, Selection};
use crate::stream::Stream;
use crate::watch::{Pending, Watch};
use crate::{Epoch, Name, Origin};

/// The content of a response to be composed, and the state of the watch after it.
pub(crate) struct Plan {
    pub(crate) key: Key,
    /// The pending changes that the response includes.
    pub(crate) included: Pending,
    /// The pending changes that are deferred to a later response.
    pub(crate) deferred: Pending,
    /// Whether there are updates, and not only removals.
    pub(crate) updates: bool,
}

impl<O: Origin> Core<O> {
    /// The response of a plan. Uses a cached one if it does not depend on the stream.
    pub(crate) fn composed(
        &mut self,
        stream: &Stream<O::Token>,
        watch: &Watch,
        plan: &Plan,
        full: bool,
    ) -> Arc<Composed> {
        let shared = plan.included.is_empty() && plan.deferred.is_empty();
        if shared && let Some(composed) = self.ledgers[watch.ledger].selections[watch.selection].cached(&plan.key) {
            return composed;
        }
        let ledger = &self.ledgers[watch.ledger];
        let selection = self.selection(watch);
        let content = if full { self.whole(ledger, selection, plan) } else { self.partial(ledger, selection, plan) };
        let fresh = match self.types.reference_from(watch.kind) {
            None => Fresh::Some(Arc::default()),
            Some(_) if plan.key.from == 0 => Fresh::All,
            Some((_, reference)) => Fresh::Some(self.references(ledger, &unsent(ledger, selection, plan), reference)),
        };
        let Key { from, upto, sweep, .. } = plan.key;
        let mut version = ledger.version(selection);
        // A client that reconnects with a version must have exactly the state of that version.
        if upto < selection.changed || sweep < selection.removed || !plan.deferred.is_empty() {
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
            names: match self.types.collections_in(watch.kind) {
                Some(_) => content.resources.iter().map(|(name, _)| name.clone()).collect(),
                None => Vec::new(),
            },
            fresh,
        });
        self.stats.of_mut(watch.kind).composed += 1;
        if shared {
            self.ledgers[watch.ledger].selections[watch.selection].cache(plan.key, composed.clone());
        }
        composed
    }

    /// The whole state, including resources whose removal is deferred.
    fn whole(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let live = ledger.live(&self.cells, selection);
        let mut resources: Vec<(Name, Resource)> =
            live.map(|(name, resource)| (name.clone(), resource.clone())).collect();
        let live = resources.len();
        for (name, tomb) in ledger.removed(selection, plan.key.sweep, Epoch::MAX) {
            resources.push((name.clone(), tomb.last.clone()));
        }
        for gone in &plan.deferred.gone {
            let there = ledger.resource(&self.cells, &gone.name).is_some();
            if let Some(last) = gone.last.as_ref().filter(|_| !there) {
                resources.push((gone.name.clone(), last.clone()));
            }
        }
        if resources.len() > live {
            resources.sort_by(|(one, _), (other, _)| one.cmp(other));
            resources.dedup_by(|(one, _), (other, _)| one == other);
        }
        Content { resources, removed: Vec::new() }
    }

    /// The changes, and the pending resources.
    fn partial(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let key = plan.key;
        let mut names = unsent(ledger, selection, plan);
        if key.newest_first {
            // The resource that the client rejected may still be in the response: changes must come before it.
            names.sort_by_key(|name| std::cmp::Reverse(ledger.epoch_of(name)));
        }
        let (mut resources, mut removed) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            let owed = || plan.included.owed.binary_search(&name).is_ok();
            match ledger.resource(&self.cells, &name) {
                Some(resource) => resources.push((name, resource.clone())),
                None if ledger.kind.is_listed() && !owed() => {}
                None => match ledger.kind.placeholder.filter(|_| key.placeholders && (key.from == 0 || owed())) {
                    Some(placeholder) => {
                        let empty = Resource::new(name.clone(), (placeholder.encode)(&name));
                        resources.push((name, empty));
                    }
                    None => removed.push(name),
                },
            }
        }
        let absent = |name: &&Name| ledger.resource(&self.cells, name).is_none();
        removed.extend(ledger.removed(selection, key.removals_sent, key.sweep).map(|(name, _)| name).cloned());
        removed.extend(plan.included.gone.iter().map(|gone| &gone.name).filter(absent).cloned());
        removed.sort_unstable();
        removed.dedup();
        if !key.delta {
            removed.clear();
        }
        Content { resources, removed }
    }
}

/// Names whose current resource the client has not been sent.
fn unsent<O: Origin>(ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Vec<Name> {
    let mut names = ledger.changed(selection, plan.key.from, plan.key.upto);
    names.extend(plan.included.owed.iter().cloned());
    names.sort_unstable();
    names.dedup();
    names
}
