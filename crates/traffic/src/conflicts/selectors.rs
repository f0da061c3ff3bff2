//! Objects of a namespace that select workloads by labels, of which the oldest has an effect.
//!
//! An object is compared with the oldest one of each selector that covers its own, and not with all of its namespace. A
//! change of another object stops at [`OldestBySelector`], unless that one is the oldest.

use std::sync::Arc;

use config::istio::{PeerAuthentication, ProxyConfig, Sidecar};
use config::{Kind, Meta, Object, Timestamp};
use flow::{Members, Reads, Relation};
use model::proxy::Labels;
use model::service::ObjectId;
use registry::inputs::{PeerAuthentications, ProxyConfigs, Sidecars};
use security::peers;

/// The maximum number of labels of a selector of which all subsets are examined. Of more labels, only the subsets with up
/// to [`LABELS_OF_MANY`] are, and the selector itself, so that the number of subsets has a limit.
const LABELS: usize = 8;
const LABELS_OF_MANY: usize = 2;

/// A selector in a namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Selector {
    pub(super) namespace: Arc<str>,
    /// None for all workloads that no other object selects.
    pub(super) labels: Option<Labels>,
}

flow::index! {
    /// `Sidecar`s by selector.
    SidecarsBySelector: Selector => members of Sidecars = "sidecars by selector", sidecars_by_selector_keys;
    /// PeerAuthentications by selector.
    PeerAuthenticationsBySelector: Selector => members of PeerAuthentications = "peer authentications by exact selector", peer_authentications_by_selector_keys;
    /// ProxyConfigs by selector.
    ProxyConfigsBySelector: Selector => members of ProxyConfigs = "proxy configs by selector", proxy_configs_by_selector_keys;
}

fn sidecars_by_selector_keys(key: &ObjectId, row: &Arc<Object<Sidecar>>) -> Vec<Selector> {
    let labels = row.spec.workload_selector.as_ref().map(|selector| selector.labels.clone());
    vec![Selector { namespace: key.namespace.clone(), labels }]
}

fn peer_authentications_by_selector_keys(key: &ObjectId, row: &Arc<Object<PeerAuthentication>>) -> Vec<Selector> {
    vec![Selector { namespace: key.namespace.clone(), labels: peers::selector(&row.spec).cloned() }]
}

fn proxy_configs_by_selector_keys(key: &ObjectId, row: &Arc<Object<ProxyConfig>>) -> Vec<Selector> {
    let labels = row.spec.selector.as_ref().map(|selector| selector.match_labels.clone());
    match &labels {
        // Without labels it selects nothing.
        Some(labels) if labels.is_empty() => Vec::new(),
        _ => vec![Selector { namespace: key.namespace.clone(), labels }],
    }
}

flow::rule! {
    /// The oldest object of a kind with a selector.
    OldestBySelector: (Kind, Selector) => Oldest = "oldest by selector", derive_oldest;
}

/// An object's age and name. Ascending, the oldest is the first, as in [`Meta::by_age`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Oldest {
    created: Option<Timestamp>,
    name: Arc<str>,
}

impl Oldest {
    fn of(meta: &Meta) -> Oldest {
        Oldest { created: meta.creation_timestamp, name: meta.name.clone() }
    }
}

fn derive_oldest(cx: &Reads<'_>, (kind, selector): &(Kind, Selector)) -> Option<Oldest> {
    match kind {
        Kind::Sidecar => oldest::<SidecarsBySelector, Sidecars, _>(cx, selector),
        Kind::PeerAuthentication => oldest::<PeerAuthenticationsBySelector, PeerAuthentications, _>(cx, selector),
        Kind::ProxyConfig => oldest::<ProxyConfigsBySelector, ProxyConfigs, _>(cx, selector),
        _ => None,
    }
}

fn oldest<I, R, T>(cx: &Reads<'_>, selector: &Selector) -> Option<Oldest>
where
    I: Relation<Key = Selector, Row = Members<ObjectId>>,
    R: Relation<Key = ObjectId, Row = Arc<Object<T>>>,
{
    let members = cx.get::<I>(selector)?;
    members.iter().filter_map(|id| cx.with::<R, _>(id, |object| object.map(|object| Oldest::of(&object.meta)))).min()
}

/// The oldest object of a kind that is older than this one, and that selects all workloads that this one selects.
pub(super) fn covering(cx: &Reads<'_>, kind: Kind, meta: &Meta, labels: Option<&Labels>) -> Option<ObjectId> {
    let own = Oldest::of(meta);
    let wider = labels.map_or_else(|| vec![None], |labels| subsets(labels).into_iter().map(Some).collect());
    let oldest = wider.into_iter().filter_map(|labels| {
        let selector = Selector { namespace: meta.namespace.clone(), labels };
        cx.get::<OldestBySelector>(&(kind, selector)).filter(|oldest| **oldest < own)
    });
    let oldest = oldest.min_by(|a, b| (**a).cmp(b))?;
    Some(ObjectId { namespace: meta.namespace.clone(), name: oldest.name.clone() })
}

/// Selectors that select all workloads that this one selects.
fn subsets(labels: &Labels) -> Vec<Labels> {
    let most = if labels.len() <= LABELS { LABELS } else { LABELS_OF_MANY };
    let mut subsets = vec![Labels::new()];
    for (name, value) in labels {
        let smaller = subsets.iter().filter(|subset| subset.len() < most);
        let with_label: Vec<Labels> = smaller
            .cloned()
            .map(|mut subset| {
                subset.insert(name.clone(), value.clone());
                subset
            })
            .collect();
        subsets.extend(with_label);
    }
    if labels.len() > most {
        subsets.push(labels.clone());
    }
    subsets
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<SidecarsBySelector>();
    b.index::<PeerAuthenticationsBySelector>();
    b.index::<ProxyConfigsBySelector>();
    b.view::<OldestBySelector>();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(count: usize) -> Labels {
        (0..count).map(|number| (format!("label-{number}").into(), "x".into())).collect()
    }

    #[test]
    fn the_number_of_subsets_has_a_limit() {
        for count in 0..=LABELS {
            assert_eq!(subsets(&labels(count)).len(), 1 << count);
        }
        let many = labels(20);
        let found = subsets(&many);
        assert_eq!(found.len(), 1 + 20 + 20 * 19 / 2 + 1);
        assert!(found.contains(&many));
    }
}
