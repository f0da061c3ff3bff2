//! Which routes attach to which listeners, and with which hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::gateway_api::reference::ParentReference;
use flow::Reads;
use model::kube::{ListenerId, ListenerOwner, RouteId, RouteKind};
use model::service::ObjectId;
use names::Hostname;
use registry::inputs::RouteObjects;
use xxhash_rust::xxh3::xxh3_64;

use crate::displaced::Displaced;
use crate::grants::GROUP;
use crate::merged::{HostsOfPort, ListenersByOwner, PortHost};
use crate::plan::ListenerPlan;
use crate::route::{RouteSummaries, RouteSummary};
use crate::{hostnames, namespaces};

/// The Gateways that a route refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// One entry for each of its `parentRefs` that is a Gateway of a served class, or a ListenerSet of one, in their order.
    pub parents: Vec<Parent>,
}

/// A Gateway or ListenerSet that a route refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The index in `parentRefs`.
    pub index: usize,
    /// The Gateway, also of a ListenerSet.
    pub gateway: ObjectId,
    /// The listeners that the route attaches to; at least one, or the reason why there is none.
    pub outcome: Result<Vec<Joined>, Refusal>,
}

/// A listener that a route attaches to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The listener.
    pub listener: ListenerId,
    /// The hosts that both serve, without those that belong to a more specific listener.
    pub hosts: Vec<Hostname>,
}

/// Why a route does not attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, as in conditions.
    pub reason: RefusalReason,
    /// The message.
    pub message: Arc<str>,
}

/// Reasons of [`Refusal`]. Of several, the first of these is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RefusalReason {
    /// The listener does not allow the route's namespace or kind, or prefers an older route of another kind.
    NotAllowedByListeners,
    /// No host is served by both.
    NoMatchingListenerHostname,
    /// The listener conflicts with another one.
    Conflicted,
    /// The Gateway has no such listener.
    NoMatchingParent,
}

impl Attachment {
    /// The listeners that the route attaches to.
    pub fn joined(&self) -> impl Iterator<Item = &Joined> {
        self.parents.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten()
    }
}

impl RefusalReason {
    /// The reason as in conditions.
    pub fn name(self) -> &'static str {
        match self {
            RefusalReason::NotAllowedByListeners => "NotAllowedByListeners",
            RefusalReason::NoMatchingListenerHostname => "NoMatchingListenerHostname",
            RefusalReason::Conflicted | RefusalReason::NoMatchingParent => "NoMatchingParent",
        }
    }
}

flow::rule! {
    /// The Gateways and listeners that routes may attach to, without regard to other routes.
    pub Attempts: RouteId => Arc<Attachment> = "attempts to attach routes", derive_attempt;
    /// The Gateways and listeners that routes attach to.
    pub Attachments: RouteId => Arc<Attachment> = "attachments of routes", derive_attachment;
}

flow::index! {
    /// Attached routes by listener and host.
    pub RoutesByHost: (ListenerId, Hostname) => members of Attachments = "routes by listener and host", routes_by_host_keys;
    /// The hosts of a listener that routes are attached with.
    pub HostsOfListener: ListenerId => members of RoutesByHost = "hosts of listeners", hosts_of_listener_keys;
    /// The same in [`PARTS`] parts, so that a change of one of very many hosts concerns one part.
    pub PartsOfListener: (ListenerId, u8) => members of RoutesByHost = "parts of the hosts of listeners", parts_of_listener_keys;
}

/// The number of parts into which the hosts of a listener are divided.
pub const PARTS: u8 = 64;

/// The part of a host: below [`PARTS`].
pub fn part_of(host: &Hostname) -> u8 {
    (xxh3_64(host.as_str().as_bytes()) % u64::from(PARTS)) as u8
}

fn parts_of_listener_keys(
    (listener, host): &(ListenerId, Hostname),
    _: &flow::Members<RouteId>,
) -> Vec<(ListenerId, u8)> {
    vec![(listener.clone(), part_of(host))]
}

fn routes_by_host_keys(_: &RouteId, row: &Arc<Attachment>) -> Vec<(ListenerId, Hostname)> {
    row.joined().flat_map(|one| one.hosts.iter().map(|host| (one.listener.clone(), host.clone()))).collect()
}

fn hosts_of_listener_keys((listener, _): &(ListenerId, Hostname), _: &flow::Members<RouteId>) -> Vec<ListenerId> {
    vec![listener.clone()]
}

fn derive_attempt(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<Attachment>> {
    let summary = cx.get::<RouteSummaries>(id)?;
    let parents = summary.parents.iter().enumerate().filter_map(|(index, parent)| {
        let owner = owner_of(parent, &id.id.namespace)?;
        let found = cx.get::<ListenersByOwner>(&owner)?;
        let gateway = found.gateway.clone();
        let attempt = Attempt {
            cx,
            id,
            summary: &summary,
            parent,
            owner: &owner,
            gateway: &gateway,
            listeners: &found.listeners,
        };
        let outcome = attempt.outcome();
        Some(Parent { index, gateway, outcome })
    });
    let parents: Vec<Parent> = parents.collect();
    (!parents.is_empty()).then(|| Arc::new(Attachment { parents }))
}

fn derive_attachment(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<Attachment>> {
    let attempt = cx.get::<Attempts>(id)?;
    let by_listener = |joined: &Joined| {
        let displaced = cx.get::<Displaced>(&joined.listener)?;
        Some((joined.listener.clone(), displaced.get(id)?.clone()))
    };
    let displaced: BTreeMap<ListenerId, RouteId> = match id.kind {
        RouteKind::Http | RouteKind::Grpc => attempt.joined().filter_map(by_listener).collect(),
        RouteKind::Tls | RouteKind::Tcp | RouteKind::Udp => BTreeMap::new(),
    };
    if displaced.is_empty() {
        return Some((*attempt).clone());
    }
    let parent = |parent: &Parent| {
        let outcome = parent.outcome.clone().and_then(|joined| without(joined, &displaced));
        Parent { outcome, ..parent.clone() }
    };
    Some(Arc::new(Attachment { parents: attempt.parents.iter().map(parent).collect() }))
}

/// The listeners that do not prefer another route; the reason why there is none, if all do.
fn without(joined: Vec<Joined>, displaced: &BTreeMap<ListenerId, RouteId>) -> Result<Vec<Joined>, Refusal> {
    let (lost, kept): (Vec<Joined>, Vec<Joined>) =
        joined.into_iter().partition(|one| displaced.contains_key(&one.listener));
    if !kept.is_empty() {
        return Ok(kept);
    }
    let refusals = lost.iter().filter_map(|one| {
        let older = displaced.get(&one.listener)?;
        let message =
            format!("{older:?} is older and has hosts in common with the route at listener {:?}", one.listener.name);
        Some(Refusal { reason: RefusalReason::NotAllowedByListeners, message: message.into() })
    });
    Err(worst(&refusals.collect::<Vec<_>>()))
}

/// The Gateway or ListenerSet that a reference means; none for other kinds.
pub(crate) fn owner_of(parent: &ParentReference, namespace: &Arc<str>) -> Option<ListenerOwner> {
    let namespace = parent.namespace.as_ref().unwrap_or(namespace).clone();
    let id = ObjectId { namespace, name: parent.name.clone() };
    match (&*parent.group, &*parent.kind) {
        (GROUP, "Gateway") => Some(ListenerOwner::Gateway(id)),
        (GROUP, "ListenerSet") => Some(ListenerOwner::ListenerSet(id)),
        _ => None,
    }
}

/// An attempt to attach a route to a Gateway or ListenerSet.
struct Attempt<'a> {
    cx: &'a Reads<'a>,
    id: &'a RouteId,
    summary: &'a RouteSummary,
    parent: &'a ParentReference,
    owner: &'a ListenerOwner,
    gateway: &'a ObjectId,
    listeners: &'a [ListenerPlan],
}

impl Attempt<'_> {
    fn outcome(&self) -> Result<Vec<Joined>, Refusal> {
        let mut joined = Vec::new();
        let mut refusals = Vec::new();
        for listener in self.listeners {
            match self.join(listener) {
                Ok(one) => joined.push(one),
                Err(refusal) => refusals.push(refusal),
            }
        }
        if joined.is_empty() { Err(worst(&refusals)) } else { Ok(joined) }
    }

    fn join(&self, listener: &ListenerPlan) -> Result<Joined, Refusal> {
        let refuse = |reason, message: String| Err(Refusal { reason, message: message.into() });
        if let Some(port) = self.parent.port.filter(|port| *port != listener.port) {
            return refuse(RefusalReason::NoMatchingParent, format!("port {port} not found"));
        }
        if let Some(section) = self.parent.section_name.as_ref().filter(|section| **section != listener.name) {
            return refuse(RefusalReason::NoMatchingParent, format!("sectionName {section:?} not found"));
        }
        if listener.conflict.is_some() {
            let message = format!("listener {:?} conflicts with another listener of the Gateway", listener.name);
            return refuse(RefusalReason::Conflicted, message);
        }
        let own = if listener.hostname.is_everything() { "" } else { listener.hostname.as_str() };
        let hosts = hostnames::intersection(&listener.hostname, &self.summary.hostnames);
        if hosts.is_empty() {
            let message = format!("no hostnames matched parent hostname {own:?}");
            return refuse(RefusalReason::NoMatchingListenerHostname, message);
        }
        let namespace = &self.id.id.namespace;
        if !namespaces::are_allowed(self.cx, self.owner, listener, namespace) {
            let message = format!(
                "hostnames matched parent hostname {own:?}, but namespace {namespace:?} is not allowed by the parent"
            );
            return refuse(RefusalReason::NotAllowedByListeners, message);
        }
        if !listener.kinds.contains(&self.id.kind) {
            let message = format!("kind {GROUP}/v1, Kind={} is not allowed", self.id.kind.name());
            return refuse(RefusalReason::NotAllowedByListeners, message);
        }
        let free = hosts.into_iter().filter(|host| !self.is_taken(listener, host));
        let id = ListenerId { owner: self.owner.clone(), name: listener.name.clone() };
        Ok(Joined { listener: id, hosts: free.collect() })
    }

    /// Whether a host belongs to another listener of the Gateway and port that is selected in the same way, of whichever object.
    fn is_taken(&self, listener: &ListenerPlan, host: &Hostname) -> bool {
        let exists = |name: &Hostname| self.cx.contains::<HostsOfPort>(&PortHost::of(self.gateway, listener, name));
        hostnames::is_taken(host, &listener.hostname, exists)
    }
}

/// The refusal to report: that with the first reason, with the messages of all of this reason.
fn worst(refusals: &[Refusal]) -> Refusal {
    let Some(reason) = refusals.iter().map(|refusal| refusal.reason).min() else {
        let message = "the parent has no valid listeners".into();
        return Refusal { reason: RefusalReason::NoMatchingParent, message };
    };
    let same = refusals.iter().filter(|refusal| refusal.reason == reason);
    let messages: BTreeSet<&str> = same.map(|refusal| &*refusal.message).collect();
    let messages: Vec<&str> = messages.into_iter().collect();
    Refusal { reason, message: messages.join("; ").into() }
}

/// Adds the rules that know no other routes.
pub(crate) fn register_attempts(b: &mut flow::Builder) {
    b.world::<Attempts, RouteObjects>();
}

/// Adds the other rules of this module.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Attachments, Attempts>();
    b.index::<RoutesByHost>();
    b.index::<HostsOfListener>();
    b.index::<PartsOfListener>();
}
