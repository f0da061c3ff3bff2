//! Sets of hosts: index patterns that cover a host, and the egress hosts of a `Sidecar`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use names::Hostname;

/// The index key of a host or wildcard, such that all keys that cover a host are found with few lookups
/// ([`Pattern::covering`]).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Pattern {
    /// A host, `*`, or a wildcard whose star replaces whole labels.
    Named(Hostname),
    /// All wildcards whose star replaces a part of a label (`*-a.example.com`). They are rare and share one key.
    Partial,
}

impl Pattern {
    /// The pattern of this host or wildcard.
    pub fn of(host: &Hostname) -> Pattern {
        let whole = !host.is_wildcard() || host.is_everything() || host.as_str().starts_with("*.");
        if whole { Pattern::Named(host.clone()) } else { Pattern::Partial }
    }

    /// All patterns that may cover this host, including its own.
    pub fn covering(host: &Hostname) -> Vec<Pattern> {
        let mut out = vec![Pattern::of(host)];
        for suffix in suffixes(host).filter(|s| s.is_empty() || s.starts_with('.')) {
            let Ok(wildcard) = Hostname::parse(&format!("*{suffix}")) else {
                continue;
            };
            if wildcard != *host {
                out.push(Pattern::of(&wildcard));
            }
        }
        if out[0] != Pattern::Partial {
            out.push(Pattern::Partial);
        }
        out
    }
}

/// The suffixes of wildcards that cover this host, the longest first; the last is empty, for `*`.
pub(crate) fn suffixes(host: &Hostname) -> impl Iterator<Item = &str> {
    let text = host.as_str();
    // A star matches at least one character; a wildcard covers itself.
    let from = 1;
    (from..=text.len()).filter(|at| text.is_char_boundary(*at)).map(|at| &text[at..])
}

/// The hosts of one egress listener of a `Sidecar`, by the namespace of the defining object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EgressHosts {
    by_namespace: BTreeMap<Arc<str>, HostSet>,
    all_namespaces: HostSet,
}

/// Included and excluded hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostSet {
    /// Exact hosts.
    pub exact: BTreeSet<Hostname>,
    /// Wildcards.
    pub wildcards: Vec<Hostname>,
    /// Excluded hosts and wildcards (`~NAMESPACE/HOST`).
    pub excluded: Vec<Hostname>,
}

impl HostSet {
    fn admits_service(&self, host: &Hostname) -> bool {
        self.exact.contains(host) || self.wildcards.iter().any(|w| host.subset_of(w))
    }

    /// VirtualServices are imported if their host overlaps, too: `*.com` serves clients of `a.com`.
    fn admits_route(&self, host: &Hostname) -> bool {
        self.exact.contains(host)
            || self.wildcards.iter().any(|w| host.matches(w))
            || host.is_wildcard() && self.exact.iter().any(|e| e.subset_of(host))
    }

    fn excludes(&self, host: &Hostname) -> bool {
        self.excluded.iter().any(|e| host.subset_of(e))
    }
}

impl EgressHosts {
    /// All visible hosts (`*/*`).
    pub fn everything() -> EgressHosts {
        EgressHosts::parse(&["*/*"], "")
    }

    /// Parses `NAMESPACE/HOST` texts for a client in this namespace; invalid ones import nothing.
    pub fn parse<S: AsRef<str>>(hosts: &[S], namespace: &str) -> EgressHosts {
        let mut out = EgressHosts::default();
        for text in hosts {
            let Some((owner, host)) = text.as_ref().split_once('/') else {
                continue;
            };
            let Ok(host) = Hostname::parse(host) else { continue };
            let (owner, excluded) = match owner.strip_prefix('~') {
                // `~/*` imports nothing.
                Some("") => ("*", true),
                Some(rest) => (rest, true),
                None => (owner, false),
            };
            let set = match owner {
                "*" => &mut out.all_namespaces,
                "." => out.by_namespace.entry(namespace.into()).or_default(),
                named => out.by_namespace.entry(named.into()).or_default(),
            };
            match (excluded, host.is_wildcard()) {
                (true, _) => set.excluded.push(host),
                (false, true) => set.wildcards.push(host),
                (false, false) => {
                    set.exact.insert(host);
                }
            }
        }
        out
    }

    /// Whether a service of this namespace and host is imported.
    pub fn admits_service(&self, namespace: &str, host: &Hostname) -> bool {
        let own = self.by_namespace.get(namespace);
        let excluded = own.is_some_and(|s| s.excludes(host)) || self.all_namespaces.excludes(host);
        !excluded && (own.is_some_and(|s| s.admits_service(host)) || self.all_namespaces.admits_service(host))
    }

    /// Whether a VirtualService of this namespace is imported: at least one of its hosts is.
    pub fn admits_routes(&self, namespace: &str, hosts: &[Hostname]) -> bool {
        if self.is_everything() {
            return true;
        }
        let own = self.by_namespace.get(namespace);
        hosts.iter().any(|host| {
            let excluded = own.is_some_and(|s| s.excludes(host)) || self.all_namespaces.excludes(host);
            !excluded && (own.is_some_and(|s| s.admits_route(host)) || self.all_namespaces.admits_route(host))
        })
    }

    /// Whether everything is imported.
    pub fn is_everything(&self) -> bool {
        self.by_namespace.values().all(|s| s.excluded.is_empty())
            && self.all_namespaces.excluded.is_empty()
            && self.all_namespaces.wildcards.iter().any(Hostname::is_everything)
    }

    /// Hosts of single namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = (&Arc<str>, &HostSet)> {
        self.by_namespace.iter()
    }

    /// Hosts of all namespaces.
    pub fn all_namespaces(&self) -> &HostSet {
        &self.all_namespaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).unwrap()
    }

    #[test]
    fn a_host_is_found_under_every_pattern_that_covers_it() {
        let covering = Pattern::covering(&host("a.b.c"));
        let wildcards = ["*.b.c", "*.c", "*", "a.b.c"];
        for text in wildcards {
            assert!(covering.contains(&Pattern::of(&host(text))), "{text}");
        }
        assert!(covering.contains(&Pattern::of(&host("*-x.b.c"))));
        assert!(!covering.contains(&Pattern::of(&host("*.a.b.c"))));
        assert_eq!(covering.len(), 5);
        let covering = Pattern::covering(&host("*.b.c"));
        assert_eq!(covering[0], Pattern::Named(host("*.b.c")));
        assert!(covering.contains(&Pattern::Named(host("*.c"))));
        assert_eq!(covering.len(), 4);
        assert!(Pattern::covering(&host("*")).contains(&Pattern::Named(host("*"))));
    }

    #[test]
    fn egress_hosts() {
        let hosts = EgressHosts::parse(&["./*", "b/x.com", "*/*.org", "~b/no.org", "~/z.org", "bad"], "a");
        assert!(hosts.admits_service("a", &host("any.thing")));
        assert!(hosts.admits_service("b", &host("x.com")));
        assert!(!hosts.admits_service("b", &host("y.com")));
        assert!(hosts.admits_service("c", &host("y.org")));
        assert!(!hosts.admits_service("b", &host("no.org")));
        assert!(hosts.admits_service("c", &host("no.org")));
        assert!(!hosts.admits_service("c", &host("z.org")));
        assert!(!hosts.is_everything());
        assert!(EgressHosts::everything().admits_service("z", &host("*")));
        assert!(!EgressHosts::parse(&["~/*"], "a").admits_service("a", &host("x.com")));
    }

    #[test]
    fn routes_overlap_both_ways() {
        let hosts = EgressHosts::parse(&["b/a.com"], "a");
        assert!(hosts.admits_routes("b", &[host("*.com")]));
        assert!(!hosts.admits_routes("c", &[host("*.com")]));
        assert!(!hosts.admits_service("b", &host("*.com")));
    }
}
