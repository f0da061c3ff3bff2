//! The facts of a response that a proxy needs: the names and versions of its resources, and what they reference.

use test_harness::run::Protocol;

use crate::texts::{self, Id};
use crate::wire;

/// The types, in Envoy's order of subscription.
pub(crate) const TYPES: [&str; 5] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "type.googleapis.com/envoy.config.route.v3.VirtualHost",
];
pub(crate) const CLUSTERS: usize = 0;
pub(crate) const ENDPOINTS: usize = 1;
pub(crate) const LISTENERS: usize = 2;
pub(crate) const ROUTES: usize = 3;
pub(crate) const VIRTUAL_HOSTS: usize = 4;

/// The version of a resource that was removed.
pub(crate) const REMOVED: Id = texts::NONE;

/// The facts of a response, of which a part may not have arrived yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    protocol: Protocol,
    /// The type, if it is known.
    pub(crate) kind: Option<usize>,
    /// The version of the response (SotW).
    pub(crate) version: Vec<u8>,
    pub(crate) nonce: Vec<u8>,
    /// The number of resources.
    pub(crate) resources: u64,
    /// The names and versions of the resources in order, with those that were removed (delta).
    pub(crate) changes: Vec<(Id, Id)>,
    /// The clusters whose endpoints are not discovered (delta). They are few.
    pub(crate) fixed: Vec<Id>,
    /// The names of resources, each with a name that it references.
    pub(crate) references: Vec<(Id, Id)>,
    /// Whether a route table uses VHDS.
    pub(crate) discovers_hosts: bool,
}

impl Facts {
    /// The facts of a response that has not begun to arrive.
    pub(crate) fn new(protocol: Protocol) -> Facts {
        Facts {
            protocol,
            kind: None,
            version: Vec::new(),
            nonce: Vec::new(),
            resources: 0,
            changes: Vec::new(),
            fixed: Vec::new(),
            references: Vec::new(),
            discovers_hosts: false,
        }
    }

    /// Reads the next field of the response.
    pub(crate) fn read(&mut self, number: u64, value: &[u8]) {
        match (number, self.protocol) {
            (1, Protocol::Sotw) => self.version = value.to_vec(),
            (2, _) => self.read_resource(value),
            (4, _) => self.kind = kind(value),
            (5, _) => self.nonce = value.to_vec(),
            (6, Protocol::Delta) => self.changes.push((texts::id(value), REMOVED)),
            _ => {}
        }
    }

    fn read_resource(&mut self, resource: &[u8]) {
        self.resources += 1;
        let any = if self.protocol == Protocol::Delta { wire::field(resource, 2) } else { resource };
        let (kind, content) = (kind(wire::field(any, 1)), wire::field(any, 2));
        let name = match (self.protocol, kind) {
            (Protocol::Delta, _) => {
                let name = texts::id(wire::field(resource, 3));
                self.changes.push((name, texts::id(wire::field(resource, 1))));
                name
            }
            (Protocol::Sotw, Some(CLUSTERS | LISTENERS)) => texts::id(wire::field(content, 1)),
            (Protocol::Sotw, _) => return,
        };
        match (kind, self.protocol) {
            // A cluster without content is one of these.
            (Some(CLUSTERS) | None, Protocol::Delta) if !wire::has_discovered_endpoints(content) => {
                self.fixed.push(name);
            }
            (Some(CLUSTERS), Protocol::Sotw) if wire::has_discovered_endpoints(content) => {
                self.references.push((name, name));
            }
            (Some(LISTENERS), _) => {
                let routes = wire::route_names(content).into_iter().map(|route| texts::id(route.as_bytes()));
                self.references.extend(routes.map(|route| (name, route)));
            }
            (Some(ROUTES), _) => self.discovers_hosts |= wire::fields(content).any(|(number, _)| number == 9),
            _ => {}
        }
    }
}

fn kind(url: &[u8]) -> Option<usize> {
    TYPES.iter().position(|known| known.as_bytes() == url)
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;
    use crate::parts::{Part, Parts};
    use crate::samples::{cluster, listener, nested, removed, response, route_table};

    /// The facts of all messages of a body in chunks of this size.
    fn facts(protocol: Protocol, body: &[u8], size: usize) -> Result<Vec<Facts>> {
        let (mut all, mut facts, mut parts) = (Vec::new(), Facts::new(protocol), Parts::default());
        for chunk in body.chunks(size) {
            parts.feed(chunk, |part| {
                match part {
                    Part::Field(number, value) => facts.read(number, value),
                    Part::End => all.push(std::mem::replace(&mut facts, Facts::new(protocol))),
                }
                Ok(())
            })?;
        }
        Ok(all)
    }

    fn ids<const N: usize>(names: [&str; N]) -> [Id; N] {
        names.map(|name| texts::id(name.as_bytes()))
    }

    #[test]
    fn chunks_of_any_size_have_the_same_facts() -> Result<()> {
        for protocol in [Protocol::Delta, Protocol::Sotw] {
            let clusters = [cluster(protocol, "a", true), cluster(protocol, "b", false)].concat();
            let tables = [route_table(protocol, "80", true), listener(protocol, "l", &["80", "81"])].concat();
            let body = [response(protocol, CLUSTERS, &clusters), response(protocol, ROUTES, &tables)].concat();
            let whole = facts(protocol, &body, body.len())?;
            assert_eq!(whole.iter().map(|facts| facts.kind).collect::<Vec<_>>(), [Some(CLUSTERS), Some(ROUTES)]);
            for size in 1..body.len() {
                assert_eq!(facts(protocol, &body, size)?, whole, "chunks of {size} bytes");
            }
        }
        Ok(())
    }

    #[test]
    fn a_delta_response_has_changes_and_references() -> Result<()> {
        let protocol = Protocol::Delta;
        let clusters = [cluster(protocol, "a", true), cluster(protocol, "b", false), removed("c")].concat();
        let [all] = &facts(protocol, &response(protocol, CLUSTERS, &clusters), 10)?[..] else { panic!("one message") };
        let [a, b, c, version] = ids(["a", "b", "c", "v-a"]);
        assert_eq!((all.changes[0], all.changes[2]), ((a, version), (c, REMOVED)));
        assert_eq!((all.resources, &all.fixed, &all.nonce[..]), (2, &vec![b], &b"nonce"[..]));
        let listeners = listener(protocol, "l", &["80", "81"]);
        let [all] = &facts(protocol, &response(protocol, LISTENERS, &listeners), 10)?[..] else {
            panic!("one message")
        };
        let [l, first, second] = ids(["l", "80", "81"]);
        assert_eq!(all.references, [(l, first), (l, second)]);
        for discovers in [true, false] {
            let table = response(protocol, ROUTES, &route_table(protocol, "80", discovers));
            assert_eq!(facts(protocol, &table, 10)?[0].discovers_hosts, discovers);
        }
        Ok(())
    }

    #[test]
    fn a_sotw_response_has_references_and_a_version() -> Result<()> {
        let protocol = Protocol::Sotw;
        let clusters = [cluster(protocol, "a", true), cluster(protocol, "b", false)].concat();
        let [all] = &facts(protocol, &response(protocol, CLUSTERS, &clusters), 10)?[..] else { panic!("one message") };
        let [a] = ids(["a"]);
        assert_eq!((&all.references, all.changes.len(), all.resources), (&vec![(a, a)], 0, 2));
        assert_eq!(all.version, b"version");
        Ok(())
    }

    #[test]
    fn a_cluster_without_content_has_no_discovered_endpoints() {
        let mut facts = Facts::new(Protocol::Delta);
        facts.read(2, &nested(&[(3, b"empty")]));
        assert_eq!(facts.fixed, ids(["empty"]));
    }
}
