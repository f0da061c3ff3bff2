//! Selects the policy of a service for a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::audience::{PolicyKey, Scope};
use model::service::{ExportTo, ObjectId, ServiceKey};
use names::Hostname;
use registry::ServicesByHost;
use registry::inputs::Mesh;

use super::groups::{Group, grouped};
use super::{DestinationRuleSummaries, DestinationRulesByHost, RuleSummary};
use crate::hosts::Pattern;

flow::rule! {
    /// All policies that cover a host, whatever their visibility.
    pub PolicyCandidates: Hostname => Arc<Candidates> = "policy candidates", derive_policy_candidates;
}

/// The policies that cover a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// The mesh's root namespace, whose policies apply unless the client's or the service's namespace has one.
    pub root: Arc<str>,
    /// The most specific host first, then by namespace.
    pub hosts: Vec<HostPolicies>,
}

/// The policies of one namespace for one host or wildcard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPolicies {
    /// The namespace of the rules.
    pub namespace: Arc<str>,
    /// In order of precedence; those with a selector go first.
    pub groups: Vec<GroupRef>,
}

/// A policy and its visibility.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRef {
    /// Its key.
    pub key: PolicyKey,
    /// The rule with a `workloadSelector`; none if the policy applies to all clients.
    pub selected: Option<ObjectId>,
    /// Its visibility.
    pub export_to: ExportTo,
    /// It is visible in its own namespace only.
    pub private: bool,
}

fn derive_policy_candidates(cx: &Reads<'_>, key: &Hostname) -> Option<Arc<Candidates>> {
    let mesh = cx.get::<Mesh>(&())?;
    let rules = rules_covering(cx, key);
    let mut by_host: Vec<(Owner, Vec<Arc<RuleSummary>>)> = rules.into_iter().collect();
    by_host.sort_by(|((a, n), _), ((b, m), _)| a.by_specificity(b).then_with(|| n.cmp(m)));
    let policies = |((_, namespace), rules): (Owner, _)| HostPolicies {
        namespace,
        groups: grouped(rules).iter().map(group_ref).collect(),
    };
    let hosts = by_host.into_iter().map(policies).collect();
    Some(Arc::new(Candidates { root: mesh.config.root_namespace.clone(), hosts }))
}

/// A host or wildcard, and the namespace of its rules.
type Owner = (Hostname, Arc<str>);

/// The rules that cover a host, by host and namespace.
fn rules_covering(cx: &Reads<'_>, host: &Hostname) -> BTreeMap<Owner, Vec<Arc<RuleSummary>>> {
    let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for pattern in Pattern::covering(host) {
        let Some(members) = cx.get::<DestinationRulesByHost>(&pattern) else {
            continue;
        };
        let summaries = members.iter().filter_map(|id| cx.get::<DestinationRuleSummaries>(id));
        for rule in summaries.filter(|rule| host.subset_of(&rule.host)) {
            out.entry((rule.host.clone(), rule.id.namespace.clone())).or_default().push((*rule).clone());
        }
    }
    out
}

fn group_ref(group: &Group) -> GroupRef {
    let head = group.head();
    GroupRef {
        key: group.key.clone(),
        selected: head.selector.is_some().then(|| head.id.clone()),
        export_to: head.export_to.clone(),
        private: head.is_private(),
    }
}

/// Adds the namespaces whose clients may resolve a host to another service, or use another policy, than other clients.
pub(crate) fn particular_to(cx: &Reads<'_>, host: &Hostname, names: &mut BTreeSet<Arc<str>>) {
    let Some(definitions) = cx.get::<ServicesByHost>(host) else {
        return;
    };
    if definitions.len() > 1 {
        names.extend(definitions.iter().map(|key| key.namespace.clone()));
    }
    let Some(candidates) = cx.get::<PolicyCandidates>(host) else {
        return;
    };
    if candidates.hosts.is_empty() {
        return;
    }
    for key in definitions.iter() {
        names.extend(candidates.particular_namespaces(&key.namespace));
    }
}

/// The policy that applies to a service for the clients of a scope, if any.
pub fn policy_for(cx: &Reads<'_>, scope: &Scope, service: &ServiceKey) -> Option<PolicyKey> {
    cx.with::<PolicyCandidates, _>(&service.hostname, |candidates| candidates?.choose(scope, &service.namespace))
}

/// The policies that clients of a scope's namespace may have for a service: the one for all of them, and those that select
/// some of them.
pub(crate) fn policies_for(cx: &Reads<'_>, scope: &Scope, service: &ServiceKey) -> Vec<PolicyKey> {
    cx.with::<PolicyCandidates, _>(&service.hostname, |candidates| {
        let Some(candidates) = candidates else { return Vec::new() };
        let own = candidates.hosts.iter().filter(|host| host.namespace == scope.namespace);
        let selecting = own.flat_map(|host| &host.groups).filter(|group| group.selected.is_some());
        let selecting = selecting.map(|group| group.key.clone());
        candidates.choose(scope, &service.namespace).into_iter().chain(selecting).collect()
    })
}

impl Candidates {
    /// The namespaces whose clients may use another policy for a service of this namespace than other clients.
    pub fn particular_namespaces(&self, service: &str) -> BTreeSet<Arc<str>> {
        let mut out = BTreeSet::new();
        for host in &self.hosts {
            let near = &*host.namespace == service || host.namespace == self.root;
            for group in &host.groups {
                match &group.export_to {
                    ExportTo::All if near && group.selected.is_none() => {}
                    ExportTo::All => drop(out.insert(host.namespace.clone())),
                    ExportTo::Namespaces(names) => out.extend(names.iter().cloned()),
                }
            }
        }
        out
    }

    /// Order: the client's namespace, the service's namespace, the root namespace. Within a namespace the most specific
    /// host wins. Clients in the root namespace also read the service's namespace before their own, so that mesh-wide
    /// rules do not hide more specific ones from gateways there.
    fn choose(&self, scope: &Scope, service: &Arc<str>) -> Option<PolicyKey> {
        if self.hosts.is_empty() {
            return None;
        }
        let (client, root) = (&scope.namespace, &self.root);
        let hosts_of = |namespace: &'_ Arc<str>| {
            let namespace = namespace.clone();
            self.hosts.iter().filter(move |h| h.namespace == namespace)
        };
        let own = |group: &GroupRef| client != root || group.private;
        let exported = |group: &GroupRef| !group.private;
        (hosts_of(client).find_map(|host| pick(host, scope, own)))
            .or_else(|| hosts_of(service).find_map(|host| pick(host, scope, exported)))
            .or_else(|| hosts_of(root).find_map(|host| pick(host, scope, exported)))
    }
}

/// The policy of one host: one that selects the client, else the last of those for all clients, as in Istio.
fn pick(host: &HostPolicies, scope: &Scope, eligible: impl Fn(&GroupRef) -> bool) -> Option<PolicyKey> {
    let seen = || host.groups.iter().filter(|g| eligible(g) && g.export_to.includes(&scope.namespace));
    let selects = |g: &&GroupRef| g.selected.as_ref().is_some_and(|rule| scope.selected_rules.contains(rule));
    let chosen = seen().find(selects).or_else(|| seen().rfind(|g| g.selected.is_none()))?;
    Some(chosen.key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(&str, &str, &[&str], bool)]) -> Candidates {
        let host = |(host, namespace, export, selected): &(&str, &str, &[&str], bool)| {
            let names = export.iter().map(|n| Arc::from(*n)).collect();
            let export_to = if *export == ["*"] { ExportTo::All } else { ExportTo::Namespaces(names) };
            let id = ObjectId { namespace: (*namespace).into(), name: "rule".into() };
            let key = PolicyKey {
                namespace: (*namespace).into(),
                host: Hostname::parse(host).unwrap(),
                selected: selected.then(|| "rule".into()),
            };
            let group = GroupRef { key, selected: selected.then_some(id), export_to, private: *export == [*namespace] };
            HostPolicies { namespace: (*namespace).into(), groups: vec![group] }
        };
        Candidates { root: "root".into(), hosts: list.iter().map(host).collect() }
    }

    fn scope(namespace: &str, selected: &[&str]) -> Scope {
        let rule = |n: &&str| ObjectId { namespace: (*n).into(), name: "rule".into() };
        Scope {
            namespace: namespace.into(),
            sidecar: None,
            selected_rules: selected.iter().map(rule).collect(),
            cluster: "".into(),
            assigned: false,
        }
    }

    #[test]
    fn the_closest_namespace_wins() {
        let c = candidates(&[
            ("a.b", "svc", &["*"], false),
            ("*.b", "client", &["client"], false),
            ("*.b", "root", &["*"], false),
        ]);
        let namespace = |client: &str| c.choose(&scope(client, &[]), &"svc".into()).map(|k| k.namespace.to_string());
        assert_eq!(namespace("client").as_deref(), Some("client"));
        assert_eq!(namespace("other").as_deref(), Some("svc"));
        assert_eq!(namespace("root").as_deref(), Some("svc"));
        let elsewhere = c.choose(&scope("other", &[]), &"third".into());
        assert_eq!(elsewhere.map(|k| k.namespace.to_string()).as_deref(), Some("root"));
    }

    #[test]
    fn what_is_not_exported_is_not_seen() {
        let c = candidates(&[("a.b", "svc", &["svc"], false)]);
        assert!(c.choose(&scope("other", &[]), &"svc".into()).is_none());
        assert!(c.choose(&scope("svc", &[]), &"svc".into()).is_some());
        let c = candidates(&[("a.b", "svc", &["friend"], false)]);
        assert!(c.choose(&scope("friend", &[]), &"svc".into()).is_some());
        assert!(c.choose(&scope("svc", &[]), &"svc".into()).is_none());
    }

    #[test]
    fn a_rule_that_selects_others_hides_nothing() {
        let c = candidates(&[("a.b", "client", &["client"], true), ("*.b", "client", &["*"], false)]);
        let host = |s: Scope| c.choose(&s, &"svc".into()).unwrap().host.to_string();
        assert_eq!(host(scope("client", &[])), "*.b");
        assert_eq!(host(scope("client", &["client"])), "a.b");
    }
}
