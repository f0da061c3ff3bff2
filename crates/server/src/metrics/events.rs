//! Counts of changed objects and of the reasons for responses, under istiod's names.

use std::collections::{BTreeMap, BTreeSet};

use config::Kind;
use world::Changes;

use super::{Families, Labels};

/// Counters of changes since the start.
#[derive(Clone, Default, Debug)]
pub(crate) struct Events {
    /// Changed objects by kind and event (`add`, `update`, `delete`).
    objects: BTreeMap<(Kind, &'static str), u64>,
    /// Objects in effect, by kind.
    current: BTreeMap<Kind, u64>,
    /// Commits that changed something for proxies, by cause.
    triggers: BTreeMap<&'static str, u64>,
}

impl Events {
    /// Counts the changes of a commit.
    pub(crate) fn note(&mut self, changes: &Changes) {
        let mut kinds = BTreeSet::new();
        for key in changes.objects.upserts.keys() {
            kinds.insert(key.kind);
            *self.objects.entry((key.kind, "update")).or_default() += 1;
        }
        for (kind, added) in &changes.added {
            *self.objects.entry((*kind, "add")).or_default() += added;
            let updated = self.objects.entry((*kind, "update")).or_default();
            *updated = updated.saturating_sub(*added);
            *self.current.entry(*kind).or_default() += added;
        }
        for key in &changes.objects.deletes {
            kinds.insert(key.kind);
            *self.objects.entry((key.kind, "delete")).or_default() += 1;
            let current = self.current.entry(key.kind).or_default();
            *current = current.saturating_sub(1);
        }
        if !changes.is_empty() {
            let causes: BTreeSet<&'static str> = kinds.into_iter().map(trigger).collect();
            causes.into_iter().for_each(|cause| *self.triggers.entry(cause).or_default() += 1);
        }
    }

    pub(crate) fn write(&self, to: &mut Families) {
        let samples = |core: bool| {
            let of = self.objects.iter().filter(move |((kind, _), count)| kind.is_complete() != core && **count > 0);
            of.map(|((kind, event), count)| {
                let labels: Labels<'_> = vec![("type", type_label(*kind)), ("event", event)];
                (labels, *count as f64)
            })
        };
        let virtual_services = self.current.get(&Kind::VirtualService).copied().unwrap_or_default();
        to.gauge("pilot_virt_services", "VirtualServices in effect", [(vec![], virtual_services as f64)]);
        let current = self
            .current
            .iter()
            .map(|(kind, count)| (vec![("kind", kind.name()), ("group", kind.group())], *count as f64));
        to.gauge("rutter_objects_in_effect", "Objects in effect, by kind", current);
        to.counter("pilot_k8s_cfg_events", "Changed objects of the mesh's configuration", samples(false));
        to.counter(
            "pilot_k8s_reg_events",
            "Changed Services, endpoints, pods and other Kubernetes objects",
            samples(true),
        );
        let triggers = self.triggers.iter().map(|(cause, count)| (vec![("type", *cause)], *count as f64));
        to.counter(
            "pilot_push_triggers",
            "Commits that changed something for proxies, by the kind of change",
            triggers,
        );
    }
}

/// The label `type` of a kind. istiod has the plural for these kinds.
fn type_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "Services",
        Kind::Pod => "Pods",
        Kind::Node => "Nodes",
        kind => kind.name(),
    }
}

/// istiod's name for the reason of a push after a change of this kind.
fn trigger(kind: Kind) -> &'static str {
    match kind {
        Kind::EndpointSlice | Kind::Pod | Kind::WorkloadEntry => "endpoint",
        Kind::Service | Kind::ServiceEntry => "service",
        Kind::Namespace => "namespace",
        Kind::MeshConfig => "global",
        Kind::MeshNetworks => "networks",
        Kind::Secret => "secret",
        Kind::Node => "proxy",
        _ => "config",
    }
}
