//! Unique names and domains of a route table; Envoy rejects duplicates.

use std::sync::Arc;

use model::audience::VirtualHostSpec;
use rustc_hash::FxHashSet;

/// Drops duplicate virtual hosts and domains, and virtual hosts without a domain.
///
/// A host's first domain is its own name. Other domains give way to a host whose own name they are: `foo.com`, the
/// short form of `foo.com.svc.cluster.local`, belongs to the service `foo.com`.
fn unique(hosts: Vec<Arc<VirtualHostSpec>>) -> Vec<Arc<VirtualHostSpec>> {
    let own: FxHashSet<&str> = hosts.iter().filter_map(|h| h.domains.first()).map(|d| &**d).collect();
    let mut names: FxHashSet<&str> = FxHashSet::default();
    let mut domains: FxHashSet<&str> = FxHashSet::default();
    names.reserve(hosts.len());
    domains.reserve(hosts.len() * 6);
    let mut out = Vec::with_capacity(hosts.len() + 1);
    for host in &hosts {
        if !names.insert(&host.name) {
            continue;
        }
        let keeps: Vec<bool> = (host.domains.iter().enumerate())
            .map(|(at, domain)| (at == 0 || !own.contains(&**domain)) && domains.insert(domain))
            .collect();
        if keeps.iter().all(|keep| *keep) {
            out.push(host.clone());
        } else if keeps.contains(&true) {
            let kept = host.domains.iter().zip(keeps).filter(|(_, keep)| *keep).map(|(d, _)| d.clone());
            out.push(Arc::new(VirtualHostSpec { domains: kept.collect(), ..(**host).clone() }));
        }
    }
    out
}

/// The virtual hosts in order, with unique names and domains.
pub(super) fn sorted(hosts: Vec<Arc<VirtualHostSpec>>) -> Vec<Arc<VirtualHostSpec>> {
    let mut out = unique(hosts);
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

#[cfg(test)]
mod tests {
    use model::audience::VirtualHostContent;

    use super::*;

    fn host(name: &str, domains: &[&str]) -> Arc<VirtualHostSpec> {
        Arc::new(VirtualHostSpec {
            name: name.into(),
            overrides: None,
            domains: domains.iter().map(|d| Arc::from(*d)).collect(),
            content: VirtualHostContent::AllowAny("anywhere".into()),
            require_tls: false,
            session: None,
        })
    }

    #[test]
    fn the_first_keeps_a_domain_but_a_hosts_own_name_is_its_own() {
        let hosts = vec![
            host("foo.com.svc:80", &["foo.com.svc", "foo.com", "10.0.0.1"]),
            host("foo.com:80", &["foo.com", "10.0.0.1", "foo.com."]),
            host("foo.com:80", &["other"]),
            host("same:80", &["foo.com."]),
        ];
        let out = unique(hosts);
        let domains: Vec<Vec<&str>> = out.iter().map(|h| h.domains.iter().map(|d| &**d).collect()).collect();
        assert_eq!(domains, [vec!["foo.com.svc", "10.0.0.1"], vec!["foo.com"], vec!["foo.com."]]);
    }
}
