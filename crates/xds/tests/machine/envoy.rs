//! A client that behaves like Envoy and checks the responses that it receives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::proxy::ProxyKind;
use model::xds::ResourceType;
use xds::decode::Body;
use xds::{Request, StreamId, Variant};

use crate::harness::*;

/// A client that behaves like Envoy: it reads responses in order and subscribes to the resources that it needs.
pub(crate) struct Envoy {
    pub(crate) id: StreamId,
    pub(crate) token: u64,
    pub(crate) variant: Variant,
    /// Whether it subscribes to endpoints again when a cluster is sent again (SotW).
    pub(crate) resubscribes: bool,
    pub(crate) inbox: VecDeque<Received>,
    pub(crate) outbox: VecDeque<Request>,
    /// Whether the server has not handled a request completely that has left the outbox.
    pub(crate) incomplete: bool,
    pub(crate) has: [BTreeMap<String, (String, u32)>; TYPES],
    /// Resources that it dropped while the request is still in the outbox, so that the server cannot know.
    pub(crate) dropped: Vec<(ResourceType, String, u32)>,
    /// The clusters of each route.
    pub(crate) leads: BTreeMap<String, Vec<String>>,
    /// Clusters that have had endpoints, and clusters that wait for some.
    pub(crate) warm: BTreeSet<String>,
    pub(crate) cold: BTreeSet<String>,
    pub(crate) subscribed: [BTreeSet<String>; TYPES],
    pub(crate) nonces: [String; TYPES],
    pub(crate) versions: [String; TYPES],
    /// Types with a rejected resource since everything was last settled.
    pub(crate) rejected: [bool; TYPES],
    /// Names that were subscribed to again.
    pub(crate) asked: BTreeSet<String>,
    pub(crate) moved: bool,
    pub(crate) resumed: bool,
}

impl Envoy {
    pub(crate) fn connect(h: &mut Harness, variant: Variant, resubscribes: bool, before: Option<Envoy>) -> Envoy {
        let id = h.connect_as(ProxyKind::Sidecar, variant);
        let mut envoy = Envoy {
            id,
            token: h.world.last_token(),
            variant,
            resubscribes,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            incomplete: false,
            has: Default::default(),
            dropped: Vec::new(),
            leads: BTreeMap::new(),
            warm: BTreeSet::new(),
            cold: BTreeSet::new(),
            subscribed: Default::default(),
            nonces: Default::default(),
            versions: Default::default(),
            rejected: [false; TYPES],
            asked: BTreeSet::new(),
            moved: false,
            resumed: false,
        };
        if let Some(before) = before {
            (envoy.has, envoy.leads, envoy.subscribed) = (before.has, before.leads, before.subscribed);
            (envoy.warm, envoy.versions, envoy.resumed) = (before.warm, before.versions, true);
            // When a stream breaks, a cluster that waits for endpoints continues with its old ones.
            for cluster in before.cold {
                envoy.warm.insert(cluster);
            }
        }
        for kind in [CDS, EDS, LDS, RDS] {
            let wanted = kind.is_wildcard() || !envoy.subscribed[at(kind)].is_empty();
            if wanted {
                let names = envoy.subscribed[at(kind)].clone();
                envoy.send(kind, &names, &BTreeSet::new(), true, None);
            }
        }
        envoy
    }

    /// Sends a request with all names, or (delta) the changes.
    pub(crate) fn send(
        &mut self,
        kind: ResourceType,
        more: &BTreeSet<String>,
        less: &BTreeSet<String>,
        first: bool,
        answer: Option<Option<String>>,
    ) {
        let nonce = self.nonces[at(kind)].clone();
        let base = Request { error: answer.clone().flatten(), ..delta(kind) };
        let texts = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect();
        let request = match self.variant {
            Variant::Sotw => Request {
                nonce,
                body: Body::Sotw { version: self.versions[at(kind)].clone(), names: texts(&self.subscribed[at(kind)]) },
                ..base
            },
            Variant::Delta => {
                let had = self.has[at(kind)].iter().filter(|_| first);
                let initial = had.map(|(name, (version, _))| (name.as_str(), version.as_str())).collect();
                let body = Body::Delta { subscribe: texts(more), unsubscribe: texts(less), initial };
                Request { nonce: if answer.is_some() { nonce } else { String::new() }, body, ..base }
            }
        };
        self.outbox.push_back(request);
    }

    pub(crate) fn want(&mut self, kind: ResourceType, wanted: BTreeSet<String>, even_if_same: bool) {
        let had = std::mem::replace(&mut self.subscribed[at(kind)], wanted.clone());
        let more: BTreeSet<String> = wanted.difference(&had).cloned().collect();
        let less: BTreeSet<String> = had.difference(&wanted).cloned().collect();
        for name in &less {
            if let Some((_, number)) = self.has[at(kind)].remove(name) {
                self.dropped.push((kind, name.clone(), number));
            }
            if kind == RDS {
                self.leads.remove(name);
            }
        }
        let first = had.is_empty() && self.nonces[at(kind)].is_empty();
        if !more.is_empty() || !less.is_empty() || even_if_same && self.variant == Variant::Sotw && !wanted.is_empty() {
            self.send(kind, &more, &less, first, None);
        }
    }

    /// Reads the next response as Envoy does, checks it, and answers it.
    pub(crate) fn read(&mut self, refuse: bool) {
        let Some(response) = self.inbox.pop_front() else { return };
        let kind = response.kind;
        self.nonces[at(kind)] = response.nonce.clone();
        if refuse {
            self.rejected[at(kind)] = true;
            self.send(kind, &BTreeSet::new(), &BTreeSet::new(), false, Some(Some("no".to_owned())));
            return;
        }
        self.versions[at(kind)] = response.version.clone();
        match kind.short_name {
            "CDS" => self.clusters(&response),
            "EDS" => self.endpoints(&response),
            "LDS" => self.listeners(&response),
            "RDS" => self.routes(&response),
            other => panic!("this client never subscribes to {other:?}"),
        }
        self.send(kind, &BTreeSet::new(), &BTreeSet::new(), false, Some(None));
    }

    pub(crate) fn clusters(&mut self, response: &Received) {
        let changed = self.take_whole(response);
        for name in &changed {
            self.cold.insert(name.clone());
        }
        let has = &self.has[at(CDS)];
        self.warm.retain(|name| has.contains_key(name));
        self.cold.retain(|name| has.contains_key(name));
        if !self.rejected.contains(&true) && !self.moved && !self.resumed {
            for (route, clusters) in &self.leads {
                for cluster in clusters {
                    assert!(has.contains_key(cluster), "{cluster} was removed, but {route} uses it");
                }
            }
        }
        let wanted = has.keys().cloned().collect();
        self.want(EDS, wanted, self.resubscribes && !changed.is_empty());
    }

    pub(crate) fn endpoints(&mut self, response: &Received) {
        for (name, version, body) in &response.resources {
            let number = number_of(EDS, body);
            let same = self.has[at(EDS)].get(name).is_some_and(|(_, had)| *had == number);
            let reason = self.cold.contains(name)
                || self.asked.contains(name)
                || self.exempt(EDS)
                || self.exempt(CDS)
                || self.resumed
                || self.moved;
            assert!(!same || reason || self.variant == Variant::Sotw, "{name}={number} was sent again for no reason");
            if self.subscribed[at(EDS)].contains(name) {
                self.has[at(EDS)].insert(name.clone(), (version.clone(), number));
                self.cold.remove(name);
                self.warm.insert(name.clone());
            }
        }
        for name in &response.removed {
            self.has[at(EDS)].remove(name);
        }
    }

    pub(crate) fn listeners(&mut self, response: &Received) {
        self.take_whole(response);
        let wanted = self.has[at(LDS)].keys().cloned().collect();
        self.want(RDS, wanted, false);
    }

    pub(crate) fn routes(&mut self, response: &Received) {
        for (name, version, body) in &response.resources {
            let route: protos::envoy::config::route::v3::RouteConfiguration =
                protos::Message::decode(body.clone()).unwrap();
            let clusters: Vec<String> = route.virtual_hosts.into_iter().map(|host| host.name).collect();
            if !self.exempt(CDS) && !self.exempt(EDS) {
                for cluster in &clusters {
                    assert!(self.warm.contains(cluster), "{name} uses {cluster}, which is not in place");
                }
            }
            if self.subscribed[at(RDS)].contains(name) {
                self.has[at(RDS)].insert(name.clone(), (version.clone(), number_of(RDS, body)));
                self.leads.insert(name.clone(), clusters);
            }
        }
        for name in &response.removed {
            self.has[at(RDS)].remove(name);
        }
    }

    pub(crate) fn exempt(&self, kind: ResourceType) -> bool {
        self.rejected[at(kind)]
    }

    /// Applies a response of a root type. Returns new and changed names.
    pub(crate) fn take_whole(&mut self, response: &Received) -> Vec<String> {
        let kind = response.kind;
        // Proxies that move back may be sent resources that they have.
        let exempt = self.exempt(kind) || self.moved;
        let has = &mut self.has[at(kind)];
        let old = has.clone();
        if self.variant == Variant::Sotw {
            has.clear();
        }
        let mut changed = Vec::new();
        for (name, version, body) in &response.resources {
            let number = number_of(kind, body);
            let same = old.get(name).is_some_and(|(_, had)| *had == number);
            assert!(!same || exempt || self.variant == Variant::Sotw, "{name}={number} was sent again");
            has.insert(name.clone(), (version.clone(), number));
            if !same {
                changed.push(name.clone());
            }
        }
        for name in &response.removed {
            has.remove(name);
        }
        changed
    }
}
