//! Properties of hostnames and composed names.

use std::cmp::Ordering;

use names::{ClusterName, Hostname, Identity, NodeId, TrustDomain, dns};
use proptest::prelude::*;

fn label() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "foo", "bar", "x-y", "0"]).prop_map(str::to_owned)
}

fn plain() -> impl Strategy<Value = Hostname> {
    prop::collection::vec(label(), 1..5).prop_map(|labels| labels.join(".").parse().expect("a hostname"))
}

/// Hosts and wildcards of few labels, which often overlap.
fn hostname() -> impl Strategy<Value = Hostname> {
    let wildcard = prop::collection::vec(label(), 0..4).prop_map(|labels| match &labels[..] {
        [] => "*".parse().expect("a wildcard"),
        labels => format!("*.{}", labels.join(".")).parse().expect("a wildcard"),
    });
    prop_oneof![plain(), wildcard]
}

proptest! {
    #[test]
    fn matching_is_symmetric_and_reflexive(a in hostname(), b in hostname()) {
        prop_assert_eq!(a.matches(&b), b.matches(&a));
        prop_assert!(a.matches(&a) && a.subset_of(&a));
    }

    #[test]
    fn a_subset_matches_and_is_transitive(a in hostname(), b in hostname(), c in hostname()) {
        if a.subset_of(&b) {
            prop_assert!(a.matches(&b));
        }
        if a.subset_of(&b) && b.subset_of(&c) {
            prop_assert!(a.subset_of(&c));
        }
        if a.subset_of(&b) && b.subset_of(&a) {
            prop_assert_eq!(&a, &b);
        }
    }

    /// Names match if a host is covered by both.
    #[test]
    fn names_that_cover_a_common_host_match(host in plain(), a in hostname(), b in hostname()) {
        if host.subset_of(&a) && host.subset_of(&b) {
            prop_assert!(a.matches(&b), "{host} is covered by {a} and {b}");
        }
        let covered = a.as_str().strip_prefix('*').is_some_and(|suffix| host.as_str().ends_with(suffix) && host.as_str().len() > suffix.len());
        prop_assert_eq!(host.subset_of(&a), covered || host == a);
    }

    #[test]
    fn specificity_is_a_total_order_with_subsets_first(a in hostname(), b in hostname(), c in hostname()) {
        prop_assert_eq!(a.by_specificity(&b), b.by_specificity(&a).reverse());
        if a.by_specificity(&b) != Ordering::Greater && b.by_specificity(&c) != Ordering::Greater {
            prop_assert_ne!(a.by_specificity(&c), Ordering::Greater);
        }
        if a.subset_of(&b) && a != b {
            prop_assert_eq!(a.by_specificity(&b), Ordering::Less);
        }
    }

    #[test]
    fn a_parsed_hostname_parses_to_itself(text in "\\PC{0,40}|[a-zA-Z0-9*._-]{0,40}") {
        if let Ok(name) = Hostname::parse(&text) {
            prop_assert_eq!(Hostname::parse(name.as_str()), Ok(name.clone()));
            prop_assert_eq!(name.as_str(), name.as_str().to_ascii_lowercase());
            prop_assert!(name.as_str().len() <= dns::MAX_NAME);
            prop_assert!(!name.as_str()[1..].contains('*'));
        }
    }

    #[test]
    fn short_names_resolve_to_services_of_the_namespace(name in "[a-z][a-z0-9-]{0,10}[a-z]", namespace in "[a-z]{1,10}") {
        let full = Hostname::resolve(&name, &namespace, "cluster.local").unwrap();
        prop_assert_eq!(full.as_str(), format!("{name}.{namespace}.svc.cluster.local"));
        prop_assert_eq!(Hostname::resolve(full.as_str(), "other", "cluster.local").unwrap(), full);
    }

    #[test]
    fn cluster_names_parse_back(port: u16, subset in "[a-z0-9-]{0,10}", host in plain()) {
        let name = ClusterName::outbound(port, subset, host.as_str());
        prop_assert_eq!(ClusterName::parse(&name.to_string()), Ok(name.clone()));
        prop_assert_eq!(ClusterName::parse(&name.to_sni()), Ok(name));
    }

    #[test]
    fn parsing_never_panics(text in "\\PC{0,200}") {
        let _ = Hostname::parse(&text);
        let _ = TrustDomain::parse(&text);
        if let Ok(name) = ClusterName::parse(&text) {
            prop_assert_eq!(ClusterName::parse(&name.to_string()), Ok(name));
        }
        if let Ok(identity) = Identity::parse(&text) {
            prop_assert_eq!(Identity::parse(&identity.to_string()), Ok(identity));
        }
        if let Ok(node) = NodeId::parse(&text) {
            prop_assert_eq!(NodeId::parse(&node.to_string()), Ok(node));
        }
    }
}
