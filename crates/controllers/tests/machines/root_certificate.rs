//! The root certificate in every namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use controllers::{Body, CONFIG_MAP, Controller, Found, KEY, PublishedRoots, RootCertificates, RootMap, Write};
use proptest::prelude::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

fn publish(controller: &mut RootCertificates, roots: Option<&str>) {
    controller.publish(&PublishedRoots { roots: roots.map(Into::into), revocation: None });
}

#[derive(Default)]
struct Cluster {
    maps: BTreeMap<Arc<str>, Found>,
    version: u64,
    writes: usize,
}

impl Cluster {
    fn put(&mut self, namespace: &str, pem: Option<&str>, labelled: bool) {
        self.version += 1;
        let found = Found { pem: pem.map(Into::into), labelled, version: self.version.to_string().into() };
        self.maps.insert(namespace.into(), found);
    }

    fn write(&mut self, write: &Write) {
        let Body::Apply { fields, manager, create, .. } = &write.body else {
            panic!("{write:?}");
        };
        assert_eq!((&*write.target.name, *manager, *create), (CONFIG_MAP, "rutter", true));
        assert_eq!(fields["metadata"]["labels"]["istio.io/config"], "true");
        self.writes += 1;
        self.put(&write.target.namespace, fields["data"][KEY].as_str(), true);
    }

    fn show(&self, controller: &mut RootCertificates, namespace: &str) {
        controller.config_map(RootMap::Roots, namespace, self.maps.get(namespace).cloned());
    }
}

#[test]
fn each_selected_namespace_gets_one_config_map() {
    let (mut cluster, mut controller) = (Cluster::default(), RootCertificates::default());
    for namespace in ["shop", "kube-system", "kube-public", "kube-node-lease", "local-path-storage", "going"] {
        controller.namespace(namespace, namespace != "going");
    }
    assert!(controller.plan().is_empty(), "no certificate is known yet");
    publish(&mut controller, Some(PEM));
    let writes = controller.plan();
    let targets: Vec<String> = writes.iter().map(|write| write.target.to_string()).collect();
    assert_eq!(targets, ["ConfigMap kube-system/istio-ca-root-cert", "ConfigMap shop/istio-ca-root-cert"]);
    assert!(controller.plan().is_empty(), "the write is in flight");
    writes.iter().for_each(|write| cluster.write(write));
    cluster.show(&mut controller, "shop");
    cluster.show(&mut controller, "kube-system");
    assert!(controller.plan().is_empty());

    // Another client changes the ConfigMap, then deletes it.
    cluster.put("shop", Some("other"), true);
    cluster.show(&mut controller, "shop");
    cluster.maps.remove("kube-system");
    cluster.show(&mut controller, "kube-system");
    assert_eq!(controller.plan().len(), 2);

    // A new certificate is written everywhere; a missing one removes nothing.
    publish(&mut controller, Some(&format!("{PEM}{PEM}")));
    assert_eq!(controller.plan().len(), 2);
    publish(&mut controller, None);
    assert!(controller.plan().is_empty());
}

#[test]
fn a_write_undone_before_it_was_observed_is_repeated() {
    let (mut cluster, mut controller) = (Cluster::default(), RootCertificates::default());
    publish(&mut controller, Some(PEM));
    controller.namespace("shop", true);
    cluster.put("shop", Some("old"), true);
    cluster.show(&mut controller, "shop");
    let first = controller.plan();
    cluster.write(&first[0]);
    cluster.put("shop", Some("old"), true);
    cluster.show(&mut controller, "shop");
    assert_eq!(controller.plan(), first, "the old content was observed in a newer version");
}

proptest! {
    /// Two replicas, of which one leads at a time, observe everything late. In the end all ConfigMaps are correct, with
    /// no more writes than disturbances.
    #[test]
    fn two_replicas_write_no_more_than_disturbed(steps in prop::collection::vec((0..6_u8, 0..4_usize), 0..60)) {
        let names = ["a", "b", "c", "d"];
        let mut cluster = Cluster::default();
        let mut replicas = [RootCertificates::default(), RootCertificates::default()];
        let (mut leader, mut disturbed) = (0, names.len());
        for replica in &mut replicas {
            publish(replica, Some(PEM));
            names.iter().for_each(|name| replica.namespace(name, true));
        }
        for (action, which) in steps {
            let name = names[which];
            match action {
                0 => {
                    cluster.put(name, Some("x"), false);
                    disturbed += 1;
                }
                1 => {
                    cluster.maps.remove(name);
                    disturbed += 1;
                }
                2 => cluster.show(&mut replicas[0], name),
                3 => cluster.show(&mut replicas[1], name),
                4 => replicas[leader].plan().iter().for_each(|write| cluster.write(write)),
                _ => {
                    leader = 1 - leader;
                    // A new leader reads everything first.
                    names.iter().for_each(|name| cluster.show(&mut replicas[leader], name));
                    replicas[leader].restart();
                }
            }
        }
        // Changes that were missed may have undone writes.
        replicas[leader].restart();
        for _ in 0..3 {
            names.iter().for_each(|name| cluster.show(&mut replicas[leader], name));
            replicas[leader].plan().iter().for_each(|write| cluster.write(write));
        }
        for name in names {
            prop_assert_eq!(cluster.maps[name].pem.as_deref(), Some(PEM));
        }
        prop_assert!(replicas[leader].plan().is_empty());
        prop_assert!(cluster.writes <= disturbed, "{} writes for {} disturbances", cluster.writes, disturbed);
    }
}
