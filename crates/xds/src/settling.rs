//! Resources that are in place only when the resources they refer to are: clusters and their endpoints.
//!
//! Envoy does not use a new cluster until it has its endpoints, and drops the endpoints of a cluster that is sent
//! again.

use std::sync::Arc;

use model::xds::{Parent, ReadReference, ResourceType};

use crate::compose::Reference;
use crate::core::Core;
use crate::stream::Stream;
use crate::subscription::Subscription;
use crate::unanswered::Names;
use crate::{Epoch, Moment, Name, Origin};

/// Resources that were sent and whose references are not in place yet.
pub(crate) struct Settling {
    pub(crate) fresh: Arc<[Reference]>,
    /// The epoch up to which the type was in place before.
    pub(crate) before: Epoch,
    /// The time at which the client accepted them.
    pub(crate) answered: Option<Moment>,
    /// The number of responses of the child type that must be answered; known once the client has subscribed to all
    /// references.
    pub(crate) target: Option<u64>,
}

impl<O: Origin> Core<O> {
    /// Ends the settling of types whose references are in place.
    pub(crate) fn check_settling(&mut self, stream: &mut Stream<O::Token>, now: Moment) {
        let settling = stream.watches.iter().filter(|watch| watch.settling.is_some());
        let kinds: Vec<ResourceType> = settling.map(|watch| watch.kind).collect();
        for kind in kinds {
            self.check_settling_of(stream, kind, now);
        }
    }

    fn check_settling_of(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, now: Moment) {
        let Some((child, _)) = self.types.reference_from(kind) else {
            return;
        };
        let Some(settling) = stream.watch(kind).and_then(|watch| watch.settling.as_ref()) else {
            return;
        };
        let Some(answered) = settling.answered else { return };
        let mut target = settling.target;
        let done = match stream.watch(child) {
            None => true,
            Some(watch) => {
                let children = self.subscription(watch);
                let pending = watch.has_updates(children.latest());
                if target.is_none() && self.subscribed(stream, kind, children, &settling.fresh) {
                    target = Some(watch.responses + u64::from(pending));
                }
                target.is_some_and(|target| watch.has_answered(target, pending))
            }
        };
        let overdue = now >= answered + self.limits.hold;
        let Some(watch) = stream.watch_mut(kind) else { return };
        if done || overdue {
            self.stats.of_mut(child).overdue += u64::from(!done);
            watch.settling = None;
        } else if let Some(settling) = &mut watch.settling {
            settling.target = target;
        }
    }

    /// The references of these resources.
    pub(crate) fn references(
        &self,
        parents: Subscription<'_, O>,
        names: &[Name],
        reference: ReadReference,
    ) -> Arc<[Reference]> {
        let one = |parent: &Name| {
            let child = reference(parent, &parents.resource(&self.cells, parent)?.body())?;
            let parent = parent.clone();
            Some(Reference { parent, child })
        };
        names.iter().filter_map(one).collect()
    }

    /// Whether the client has subscribed to all references of resources that still exist.
    fn subscribed(
        &self,
        stream: &Stream<O::Token>,
        parent: ResourceType,
        children: Subscription<'_, O>,
        fresh: &[Reference],
    ) -> bool {
        let Some(parent) = stream.watch(parent) else {
            return true;
        };
        let parents = self.subscription(parent);
        let exists = |fresh: &&Reference| parents.resource(&self.cells, &fresh.parent).is_some();
        fresh.iter().filter(exists).all(|fresh| children.covers(&fresh.child))
    }
}

impl<T> Stream<T> {
    /// The resources of a type that the client may have dropped because their parents were sent on this stream before it
    /// subscribed to the type.
    pub(crate) fn dropped(&self, kind: ResourceType) -> Option<&Names> {
        match kind.parent {
            Parent::None => None,
            Parent::Reference { of, .. } | Parent::Any { of } => self.watch(of).map(|watch| &watch.unclaimed),
            Parent::Collections { of } => self.dropped(of),
        }
    }

    /// Whether there are any.
    pub(crate) fn has_dropped(&self, kind: ResourceType) -> bool {
        self.dropped(kind).is_some_and(|dropped| !dropped.is_empty())
    }

    /// Stops recording unclaimed references: the client has subscribed to the type, and its watch tracks them from now
    /// on.
    pub(crate) fn claim(&mut self, kind: ResourceType) {
        if let Parent::Reference { of, .. } = kind.parent
            && let Some(watch) = self.watch_mut(of)
        {
            watch.unclaimed = Names::default();
        }
    }
}
