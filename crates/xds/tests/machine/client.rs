//! A stream and the state of its client, for step-by-step tests.

use envoy::types;
use model::proxy::ProxyKind;
use model::xds::ResourceType;
use xds::decode::{Body, Texts};
use xds::{Request, StreamId, Variant};

use crate::harness::{Harness, Received, TYPES, at, delta, show, sotw};
use crate::world::types;

pub(crate) struct Client {
    pub(crate) id: StreamId,
    variant: Variant,
    /// The last response of each type, in sending order of types.
    last: [Option<Received>; TYPES],
    /// The subscriptions of a SotW client.
    names: [Vec<String>; TYPES],
}

impl Client {
    pub(crate) fn new(h: &mut Harness, variant: Variant) -> Client {
        Client::of(h, ProxyKind::Sidecar, variant)
    }

    pub(crate) fn of(h: &mut Harness, kind: ProxyKind, variant: Variant) -> Client {
        let id = h.connect_as(kind, variant);
        Client { id, variant, last: Default::default(), names: Default::default() }
    }

    /// A client that has subscribed to, and accepted, everything in [`Harness::small`].
    pub(crate) fn settled(h: &mut Harness, variant: Variant) -> Client {
        let mut client = Client::new(h, variant);
        for (kind, names) in
            [(types::CLUSTER, &[][..]), (types::ENDPOINTS, &["a", "b"]), (types::LISTENER, &[]), (types::ROUTE, &["r"])]
        {
            client.subscribe(h, kind, names);
            assert_eq!(client.take(h).len(), 1, "{kind:?}");
            client.ack(h, kind);
        }
        assert_eq!(client.take(h), [""; 0]);
        client
    }

    /// Subscribes to these names (SotW: and no others).
    pub(crate) fn subscribe(&mut self, h: &mut Harness, kind: ResourceType, names: &[&str]) {
        let request = match self.variant {
            Variant::Sotw => {
                self.names[at(kind)] = names.iter().map(|name| (*name).to_owned()).collect();
                self.again(kind)
            }
            Variant::Delta => crate::harness::subscribe(kind, names, &[]),
        };
        h.request(self.id, request).unwrap();
    }

    /// Repeats the last request (SotW).
    pub(crate) fn repeat(&mut self, h: &mut Harness, kind: ResourceType) {
        let request = self.again(kind);
        h.request(self.id, request).unwrap();
    }

    pub(crate) fn unsubscribe(&mut self, h: &mut Harness, kind: ResourceType, names: &[&str]) {
        h.request(self.id, crate::harness::subscribe(kind, &[], names)).unwrap();
    }

    pub(crate) fn ack(&mut self, h: &mut Harness, kind: ResourceType) {
        let request = self.acceptance(kind);
        h.request(self.id, request).unwrap();
    }

    pub(crate) fn nack(&mut self, h: &mut Harness, kind: ResourceType, error: &str) {
        let request = self.rejection(kind, error);
        h.request(self.id, request).unwrap();
    }

    /// A NACK of the last response of a type.
    pub(crate) fn rejection(&self, kind: ResourceType, error: &str) -> Request {
        Request { error: Some(error.to_owned()), ..self.acceptance(kind) }
    }

    /// Receives responses, as text.
    pub(crate) fn take(&mut self, h: &mut Harness) -> Vec<String> {
        h.hub.take_woken();
        let received = h.poll(self.id);
        for one in &received {
            self.last[at(one.kind)] = Some(one.clone());
        }
        received.iter().map(show).collect()
    }

    /// Receives and accepts responses until there are none.
    pub(crate) fn drain(&mut self, h: &mut Harness) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let texts = self.take(h);
            if texts.is_empty() {
                return all;
            }
            let kinds: Vec<ResourceType> =
                types().iter().filter(|k| texts.iter().any(|t| t.starts_with(k.short_name))).collect();
            kinds.into_iter().for_each(|kind| self.ack(h, kind));
            all.extend(texts);
        }
    }

    pub(crate) fn last(&self, kind: ResourceType) -> &Received {
        self.last[at(kind)].as_ref().unwrap()
    }

    /// Keeps the last response of a former stream.
    pub(crate) fn remember(&mut self, former: &Client, kind: ResourceType) {
        self.last[at(kind)] = former.last[at(kind)].clone();
    }

    /// An ACK of the last response of a type.
    pub(crate) fn acceptance(&self, kind: ResourceType) -> Request {
        match self.variant {
            Variant::Sotw => self.again(kind),
            Variant::Delta => Request { nonce: self.last(kind).nonce.clone(), ..delta(kind) },
        }
    }

    fn again(&self, kind: ResourceType) -> Request {
        let names: Vec<&str> = self.names[at(kind)].iter().map(String::as_str).collect();
        let last = self.last[at(kind)].as_ref();
        let (version, nonce) = last.map_or(("", ""), |last| (&last.version, &last.nonce));
        sotw(kind, &names, version, nonce)
    }
}

/// The versions that a settled client reports on its next stream.
pub(crate) fn versions(h: &Harness, id: StreamId, kind: ResourceType) -> Vec<(String, String)> {
    let version = |r: &model::xds::Resource| (r.name().to_string(), r.version().to_string());
    h.hub.resources(id, kind).iter().map(version).collect()
}

pub(crate) fn borrow(had: &[(String, String)]) -> Vec<(&str, &str)> {
    had.iter().map(|(name, version)| (&**name, &**version)).collect()
}

/// The first delta request of a client that has resources.
pub(crate) fn resume(kind: ResourceType, names: &[&str], had: &[(&str, &str)]) -> Request {
    let initial = had.iter().copied().collect();
    let subscribe = names.iter().copied().collect();
    Request { body: Body::Delta { subscribe, unsubscribe: Texts::default(), initial }, ..delta(kind) }
}
