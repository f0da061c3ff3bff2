//! Address assignment for ServiceEntries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::{AnyObject, ParseOptions, Timestamp, parse_documents};
use controllers::{Addresses, Allocation, Body, Controller, Entry, Ranges, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

fn entry(hosts: &[&str], created: i64) -> Entry {
    Entry {
        uid: "u".into(),
        created: Some(Timestamp::from_unix(created)),
        hosts: hosts.iter().map(|host| (*host).into()).collect(),
        has: Vec::new(),
    }
}

/// The addresses in a write.
fn given(write: &Write) -> Vec<Allocation> {
    let Body::Apply { fields, create: false, .. } = &write.body else {
        panic!("{write:?}");
    };
    let addresses = fields["status"]["addresses"].as_array().unwrap().iter();
    let one = |address: &Value| Allocation {
        host: address["host"].as_str().unwrap().into(),
        address: address["value"].as_str().unwrap().parse().unwrap(),
    };
    addresses.map(one).collect()
}

fn read(spec: &str, labels: &str, status: Option<&Value>) -> Vec<Arc<str>> {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: a, labels: {{{labels}}}}}, spec: {{{spec}}}}}"
    );
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    let Some(AnyObject::ServiceEntry(object)) = parsed.objects.into_iter().next() else {
        panic!("{text}: {:?}", parsed.diagnostics);
    };
    Entry::of(&object.meta, &object.spec, status).hosts
}

#[test]
fn only_eligible_entries_get_addresses() {
    let ports = "ports: [{number: 80, name: http, protocol: HTTP}]";
    let fits = |spec: &str, labels: &str| !read(&format!("{spec}, {ports}"), labels, None).is_empty();
    assert!(fits("hosts: [a.example], resolution: DNS", ""));
    assert!(fits("hosts: [a.example], resolution: STATIC", ""));
    assert!(fits("hosts: ['*.example'], resolution: DYNAMIC_DNS", ""));
    assert!(!fits("hosts: [a.example], resolution: NONE", ""));
    assert!(!fits("hosts: [a.example], resolution: DNS, addresses: [10.0.0.1]", ""));
    let label = "networking.istio.io/enable-autoallocate-ip";
    assert!(!fits("hosts: [a.example], resolution: DNS", &format!("{label}: 'false'")));
    assert!(fits("hosts: [a.example], resolution: DNS", &format!("{label}: 'true'")));
}

#[test]
fn each_host_gets_an_address_of_both_families_the_same_on_every_replica() {
    let plan = |order: &[&str]| -> BTreeMap<String, Vec<Allocation>> {
        let mut controller = Addresses::default();
        for name in order {
            controller.entry("shop", name, Some(entry(&[&format!("{name}.example"), "x.example"], 1)));
        }
        let writes = controller.plan();
        assert!(controller.plan().is_empty(), "the writes are in flight");
        writes.iter().map(|write| (write.target.to_string(), given(write))).collect()
    };
    let planned = plan(&["a", "b", "c"]);
    assert_eq!(planned, plan(&["c", "a", "b"]));
    let all: Vec<IpAddr> = planned.values().flatten().map(|one| one.address).collect();
    assert_eq!(all.len(), 12);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 12, "{all:?}");
    for address in all {
        let text = address.to_string();
        assert!(text.starts_with("240.240.") || text.starts_with("2001:2:"), "{text}");
        assert!(!matches!(text.as_str(), "240.240.0.0" | "240.240.255.255" | "2001:2::"));
    }
}

#[test]
fn the_older_entry_keeps_a_duplicate_address() {
    let mut controller = Addresses::default();
    let shared = |host: &str| Allocation { host: host.into(), address: "240.240.0.9".parse().unwrap() };
    let mut old = entry(&["old.example"], 1);
    old.has = vec![shared("old.example")];
    let mut new = entry(&["new.example"], 2);
    new.has = vec![shared("new.example")];
    controller.entry("n", "old", Some(old));
    controller.entry("n", "new", Some(new));
    let writes: BTreeMap<String, Vec<Allocation>> =
        controller.plan().iter().map(|write| (write.target.name.to_string(), given(write))).collect();
    assert!(writes["old"].contains(&shared("old.example")), "the missing family is assigned");
    assert!(!writes["new"].contains(&shared("new.example")));
}

#[test]
fn hosts_beyond_a_full_range_get_no_address() {
    let mut controller = Addresses::new(Ranges { v4: ("10.0.0.0".parse().unwrap(), 30), ..Ranges::default() });
    for name in ["a", "b", "c"] {
        controller.entry("n", name, Some(entry(&[&format!("{name}.example")], 1)));
    }
    let v4 = controller.plan().iter().flat_map(given).filter(|one| one.address.is_ipv4()).count();
    assert_eq!(v4, 2);
}

proptest! {
    /// Entries are added, removed and changed, and lose their statuses; writes are observed late. In the end every host
    /// has unique addresses, and a new controller plans nothing.
    #[test]
    fn allocation_converges_without_conflicts(
        steps in prop::collection::vec((0..5_u8, 0..6_usize, 0..4_u8), 0..60),
        bits in 26..29_u8,
    ) {
        let ranges = Ranges { v4: ("240.240.0.0".parse().unwrap(), bits), ..Ranges::default() };
        let mut stored: BTreeMap<usize, Entry> = BTreeMap::new();
        let mut controller = Addresses::new(ranges.clone());
        let mut in_flight: Vec<Write> = Vec::new();
        let name = |which: usize| format!("e{which}");
        let land = |stored: &mut BTreeMap<usize, Entry>, writes: &mut Vec<Write>| {
            for write in writes.drain(..) {
                let which: usize = write.target.name[1..].parse().unwrap();
                if let Some(entry) = stored.get_mut(&which) {
                    entry.has = given(&write);
                }
            }
        };
        for (action, which, hosts) in steps {
            match action {
                0 => {
                    let hosts: Vec<String> = (0..hosts).map(|host| format!("h{host}.e{which}")).collect();
                    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
                    let has = stored.get(&which).map(|entry| entry.has.clone()).unwrap_or_default();
                    stored.insert(which, Entry { has, ..entry(&hosts, i64::from(hosts.len() as u8)) });
                }
                1 => drop(stored.remove(&which)),
                2 => if let Some(entry) = stored.get_mut(&which) {
                    // A user writes an address by hand.
                    let host = entry.hosts.first().cloned().unwrap_or_else(|| "x".into());
                    entry.has = vec![Allocation { host, address: format!("240.240.0.{}", hosts + 1).parse().unwrap() }];
                },
                3 => controller.entry("n", &name(which), stored.get(&which).cloned()),
                _ => {
                    land(&mut stored, &mut in_flight);
                    in_flight = controller.plan();
                }
            }
        }
        // Changes that were missed may have undone writes.
        controller.restart();
        for _ in 0..6 {
            land(&mut stored, &mut in_flight);
            (0..6).for_each(|which| controller.entry("n", &name(which), stored.get(&which).cloned()));
            in_flight = controller.plan();
        }
        prop_assert!(in_flight.is_empty(), "{in_flight:?}");
        let mut fresh = Addresses::new(ranges);
        (0..6).for_each(|which| fresh.entry("n", &name(which), stored.get(&which).cloned()));
        prop_assert!(fresh.plan().is_empty(), "a new leader has nothing to change");
        let fitting = stored.values().filter(|entry| !entry.hosts.is_empty());
        let mut seen = BTreeSet::new();
        for entry in fitting {
            for host in &entry.hosts {
                let of_host = entry.has.iter().filter(|one| one.host == *host);
                prop_assert!(of_host.clone().any(|one| one.address.is_ipv6()));
                for one in of_host {
                    prop_assert!(seen.insert(one.address), "{} twice", one.address);
                }
            }
        }
    }
}

#[test]
fn invalid_addresses_in_a_status_are_ignored() {
    let status = json!({"addresses": [{"value": "x", "host": "a.example"}, 5, {"host": "b"}]});
    let spec = "hosts: [a.example], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]";
    assert_eq!(read(spec, "", Some(&status)).len(), 1);
}
