//! Conflicts of the listeners of a Gateway.
//!
//! As the specification says, no listener of one object wins: all that conflict with another one are not served. Between the objects
//! of a Gateway, precedence decides: the Gateway's own listeners come first, then those of the older ListenerSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use names::Hostname;

use crate::plan::{ListenerPlan, ListenerProtocol};

/// A conflict of a listener with another one of its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Conflict {
    /// The other has an incompatible protocol.
    Protocol,
    /// The other has the same protocol and hostname.
    Hostname,
}

/// Marks the listeners that conflict with others. Of several conflicts, that of protocols is marked.
pub(crate) fn mark(listeners: &mut [ListenerPlan]) {
    for at in 0..listeners.len() {
        listeners[at].conflict = among(listeners, at, |_| true);
    }
}

/// The conflict of a listener with those others of its object that are left.
fn among(listeners: &[ListenerPlan], at: usize, is_left: impl Fn(usize) -> bool) -> Option<Conflict> {
    let others = listeners.iter().enumerate().filter(|(other, _)| *other != at && is_left(*other));
    others.filter_map(|(_, other)| between(&listeners[at], other)).min()
}

/// The conflict of two listeners; symmetric.
fn between(a: &ListenerPlan, b: &ListenerPlan) -> Option<Conflict> {
    use ListenerProtocol::{Http, Https, Tcp, Tls, Udp, Unknown};
    if a.port != b.port {
        return None;
    }
    let same_host = a.hostname == b.hostname;
    match (a.protocol, b.protocol) {
        // Listeners of unknown protocols are not served anyway.
        (Unknown, _) | (_, Unknown) => None,
        (Udp, Udp) | (Tcp, Tcp) => Some(Conflict::Hostname),
        (Udp, _) | (_, Udp) => None,
        (Http, Http) | (Https, Https) | (Tls, Tls) => same_host.then_some(Conflict::Hostname),
        (Tcp, _) | (_, Tcp) => Some(Conflict::Protocol),
        // HTTPS and TLS are selected by SNI. HTTP is the rest of the port's connections, but no host is both.
        (Http | Https | Tls, _) => same_host.then_some(Conflict::Protocol),
    }
}

/// The listeners of a Gateway that were accepted so far. Their number does not slow down the search.
#[derive(Default)]
pub(crate) struct Claims {
    ports: BTreeMap<u16, PortClaims>,
}

#[derive(Default)]
struct PortClaims {
    udp: bool,
    tcp: bool,
    /// The hosts of the other listeners.
    hosts: BTreeMap<Hostname, ListenerProtocol>,
}

impl Claims {
    /// Marks the listeners of an object that conflict with those before or, of the rest, among themselves. Adds the others. Those
    /// that are marked keep nobody out.
    pub(crate) fn add(&mut self, listeners: &Arc<[ListenerPlan]>) -> Arc<[ListenerPlan]> {
        let lost: Vec<Option<Conflict>> = listeners.iter().map(|one| self.conflict(one)).collect();
        let own = |at: usize| among(listeners, at, |other| lost[other].is_none());
        let found: Vec<Option<Conflict>> = match lost.iter().all(Option::is_none) {
            true => listeners.iter().map(|one| one.conflict).collect(),
            false => lost.iter().enumerate().map(|(at, lost)| lost.or_else(|| own(at))).collect(),
        };
        for (listener, _) in listeners.iter().zip(&found).filter(|(_, conflict)| conflict.is_none()) {
            self.ports.entry(listener.port).or_default().add(listener);
        }
        if listeners.iter().zip(&found).all(|(listener, conflict)| listener.conflict == *conflict) {
            return listeners.clone();
        }
        let marked = listeners.iter().zip(found);
        marked.map(|(listener, conflict)| ListenerPlan { conflict, ..listener.clone() }).collect()
    }

    fn conflict(&self, listener: &ListenerPlan) -> Option<Conflict> {
        use ListenerProtocol::{Http, Https, Tcp, Tls, Udp, Unknown};
        let port = self.ports.get(&listener.port)?;
        match listener.protocol {
            Unknown => None,
            Udp => port.udp.then_some(Conflict::Hostname),
            Tcp if !port.hosts.is_empty() => Some(Conflict::Protocol),
            Tcp => port.tcp.then_some(Conflict::Hostname),
            Http | Https | Tls if port.tcp => Some(Conflict::Protocol),
            Http | Https | Tls => port.hosts.get(&listener.hostname).map(|other| match *other == listener.protocol {
                true => Conflict::Hostname,
                false => Conflict::Protocol,
            }),
        }
    }
}

impl PortClaims {
    fn add(&mut self, listener: &ListenerPlan) {
        match listener.protocol {
            ListenerProtocol::Unknown => {}
            ListenerProtocol::Udp => self.udp = true,
            ListenerProtocol::Tcp => self.tcp = true,
            ListenerProtocol::Http | ListenerProtocol::Https | ListenerProtocol::Tls => {
                self.hosts.insert(listener.hostname.clone(), listener.protocol);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::AllowedNamespaces;

    fn listener(port: u16, protocol: ListenerProtocol, host: &str) -> ListenerPlan {
        ListenerPlan {
            name: "x".into(),
            port,
            protocol,
            hostname: Hostname::parse(host).unwrap(),
            namespaces: AllowedNamespaces::Same,
            kinds: Vec::new(),
            conflict: None,
            termination: None,
            passthrough: None,
        }
    }

    #[test]
    fn nobody_wins() {
        use Conflict::{Hostname, Protocol};
        use ListenerProtocol::*;
        let table = [
            ((Http, "a.com"), (Http, "b.com"), None),
            ((Http, "*"), (Http, "*"), Some(Hostname)),
            ((Https, "a.com"), (Https, "a.com"), Some(Hostname)),
            ((Http, "a.com"), (Https, "b.com"), None),
            ((Http, "a.com"), (Https, "a.com"), Some(Protocol)),
            ((Http, "*"), (Tls, "a.com"), None),
            ((Https, "a.com"), (Tls, "b.com"), None),
            ((Https, "a.com"), (Tls, "a.com"), Some(Protocol)),
            ((Tcp, "*"), (Http, "a.com"), Some(Protocol)),
            ((Tcp, "*"), (Udp, "*"), None),
            ((Udp, "*"), (Http, "*"), None),
            ((Unknown, "*"), (Http, "*"), None),
        ];
        for ((one, host), (two, other), expected) in table {
            let mut both = [listener(80, one, host), listener(80, two, other), listener(81, one, host)];
            mark(&mut both);
            let found = both.map(|listener| listener.conflict);
            assert_eq!(found, [expected, expected, None], "{one:?} {host} and {two:?} {other}");
        }
    }

    #[test]
    fn the_first_object_wins() {
        use ListenerProtocol::*;
        let all = [Http, Https, Tls, Tcp, Udp, Unknown].into_iter();
        let all: Vec<_> = all.flat_map(|one| ["*", "a.com", "b.com"].map(|host| listener(80, one, host))).collect();
        for (first, second) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            let mut claims = Claims::default();
            let parts = [first, second].map(|one| claims.add(&[one.clone()].into()));
            assert_eq!(parts[0][0].conflict, None);
            assert_eq!(parts[1][0].conflict, between(first, second), "{first:?} {second:?}");
            // A listener that is not accepted keeps nobody out.
            let third = claims.add(&[ListenerPlan { port: 81, ..second.clone() }].into());
            assert_eq!(third[0].conflict, None);
        }
    }

    #[test]
    fn those_that_lose_keep_nobody_out() {
        use Conflict::{Hostname, Protocol};
        use ListenerProtocol::{Http, Https, Tcp};
        let mut claims = Claims::default();
        let mut add = |mut all: Vec<ListenerPlan>| {
            mark(&mut all);
            claims.add(&all.into()).iter().map(|listener| listener.conflict).collect::<Vec<_>>()
        };
        let http = |host| listener(80, Http, host);
        assert_eq!(add(vec![http("a.com")]), [None]);
        // TCP loses against the first object, so that HTTP of its own one is served.
        assert_eq!(
            add(vec![http("b.com"), listener(80, Tcp, "*"), http("a.com")]),
            [None, Some(Protocol), Some(Hostname)]
        );
        // No listener of one object wins over another.
        let same = vec![http("c.com"), listener(80, Https, "c.com"), http("b.com")];
        assert_eq!(add(same), [Some(Protocol), Some(Protocol), Some(Hostname)]);
        assert_eq!(add(vec![http("c.com")]), [None]);
    }

    #[test]
    fn objects_without_conflicts_are_shared() {
        let own: Arc<[ListenerPlan]> = [listener(80, ListenerProtocol::Http, "a.com")].into();
        assert!(Arc::ptr_eq(&Claims::default().add(&own), &own));
    }

    #[test]
    fn a_conflict_of_protocols_comes_first() {
        use ListenerProtocol::{Http, Tcp};
        let mut three = [listener(80, Http, "*"), listener(80, Http, "*"), listener(80, Tcp, "*")];
        mark(&mut three);
        assert_eq!(three.map(|listener| listener.conflict), [Some(Conflict::Protocol); 3]);
    }
}
