//! Every Service that is visible to the mesh gets an export, and existing exports are left unchanged.

use std::collections::{BTreeMap, BTreeSet};

use controllers::{Body, Controller, ServiceExports};
use proptest::prelude::*;

#[test]
fn an_export_is_created_once_and_owned_by_its_service() {
    let mut controller = ServiceExports::default();
    controller.export("shop", "there", true);
    controller.service("shop", "there", Some("u1"));
    controller.service("shop", "cart", Some("u2"));
    let writes = controller.plan();
    assert_eq!(writes.len(), 1, "an existing export is kept");
    assert_eq!(writes[0].target.to_string(), "ServiceExport shop/cart");
    let Body::Create { fields, .. } = &writes[0].body else {
        panic!("{writes:?}");
    };
    let owner = &fields["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&"Service".into(), &"u2".into()));
    controller.service("shop", "cart", Some("u2"));
    assert!(controller.plan().is_empty(), "the write is in flight");
    controller.export("shop", "cart", true);
    assert!(controller.plan().is_empty());
    controller.export("shop", "cart", false);
    assert_eq!(controller.plan().len(), 1, "the export was deleted");
    // Another Service has the same name now: the export is deleted with its owner.
    controller.service("shop", "cart", Some("u3"));
    assert_eq!(controller.plan().len(), 1);
    controller.service("shop", "cart", None);
    controller.restart();
    assert!(controller.plan().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever happens, and whichever writes take effect, in the end every Service has an export, and no deleted
    /// Service gets one.
    #[test]
    fn every_service_is_eventually_exported(steps in proptest::collection::vec((0..4u8, 0..5u8), 1..40)) {
        let mut controller = ServiceExports::default();
        let mut services: BTreeMap<u8, u8> = BTreeMap::new();
        let mut exports: BTreeSet<u8> = BTreeSet::new();
        let name = |of: u8| format!("s{of}");
        for (of, what) in steps {
            match what {
                0 => drop(services.insert(of, what)),
                1 => drop(services.remove(&of)),
                2 => drop(exports.insert(of)),
                3 => drop(exports.remove(&of)),
                _ => controller.restart(),
            }
            controller.service("n", &name(of), services.contains_key(&of).then_some("u"));
            controller.export("n", &name(of), exports.contains(&of));
            for write in controller.plan() {
                let of: u8 = write.target.name[1..].parse().unwrap();
                prop_assert!(services.contains_key(&of) && !exports.contains(&of));
                // Some writes are observed at once, others never.
                if what % 2 == 0 {
                    exports.insert(of);
                    controller.export("n", &name(of), true);
                }
            }
        }
        controller.restart();
        let planned: BTreeSet<String> = controller.plan().iter().map(|write| write.target.name.to_string()).collect();
        let missing: BTreeSet<String> = services.keys().filter(|of| !exports.contains(of)).map(|of| name(*of)).collect();
        prop_assert_eq!(planned, missing);
    }
}
