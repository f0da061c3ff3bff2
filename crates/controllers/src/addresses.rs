//! Assigns virtual addresses to hosts of ServiceEntries without addresses, so that TCP connections to them can be
//! distinguished.
//!
//! Each host gets an address of both families. The search starts at a hash of the host's name, so that a host gets the
//! same address again unless another one holds it. A host keeps the address that it has. If two entries have the same
//! address, the older entry keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use config::istio::{Resolution, ServiceEntry};
use config::{AnyObject, Meta, ParseOptions, Timestamp, read_object};
use serde_json::{Value, json};

use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id};

/// The label with which an entry opts out.
const LABEL: &str = "networking.istio.io/enable-autoallocate-ip";
/// The maximum number of addresses that are tried for one host.
const TRIES: u32 = 1 << 16;

/// The ranges of addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// The first address of the IPv4 range and the prefix length.
    pub v4: (Ipv4Addr, u8),
    /// The first address of the IPv6 range and the prefix length.
    pub v6: (Ipv6Addr, u8),
}

impl Default for Ranges {
    /// `240.240.0.0/16` and `2001:2::/48`.
    fn default() -> Ranges {
        Ranges { v4: (Ipv4Addr::new(240, 240, 0, 0), 16), v6: (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48) }
    }
}

impl Ranges {
    /// The IPv4 address at an index, which starts at 1.
    fn v4_at(&self, place: u32) -> IpAddr {
        IpAddr::V4((u32::from(self.v4.0) + place).into())
    }

    fn v6_at(&self, place: u32) -> IpAddr {
        IpAddr::V6((u128::from(self.v6.0) + u128::from(place)).into())
    }

    /// The number of usable addresses with this many host bits: all but the first (network) and the last (broadcast).
    fn places(bits: u8) -> u32 {
        (1_u32 << bits.clamp(2, 30)) - 2
    }

    fn holds(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let bits = 32 - u32::from(self.v4.1.min(32));
                let shift = |a: Ipv4Addr| u64::from(u32::from(a)) >> bits;
                shift(address) == shift(self.v4.0)
            }
            IpAddr::V6(address) => {
                let bits = 128 - u32::from(self.v6.1.min(128));
                let shift = |a: Ipv6Addr| u128::from(a).checked_shr(bits).unwrap_or(0);
                shift(address) == shift(self.v6.0)
            }
        }
    }
}

/// An address of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Allocation {
    /// The host.
    pub host: Arc<str>,
    /// The address.
    pub address: IpAddr,
}

/// The relevant fields of a ServiceEntry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// The hosts that need addresses; empty if the entry is not eligible.
    pub hosts: Vec<Arc<str>>,
    /// `status.addresses`.
    pub has: Vec<Allocation>,
}

impl Entry {
    /// Reads an entry. `status` is its stored status.
    pub fn of(meta: &Meta, spec: &ServiceEntry, status: Option<&Value>) -> Entry {
        let refused = meta.labels.get(LABEL).is_some_and(|value| &**value == "false");
        let dynamic = spec.resolution == Resolution::DynamicDns;
        let fits = !refused && spec.addresses.is_empty() && spec.resolution != Resolution::None;
        let wild = |host: &Arc<str>| host.starts_with('*');
        // If one host cannot get an address, addresses of the others are useless: its connections could have any
        // destination.
        let hosts = match fits && (dynamic || !spec.hosts.iter().any(wild)) {
            true => spec.hosts.clone(),
            false => Vec::new(),
        };
        Entry {
            uid: meta.uid.clone(),
            created: meta.creation_timestamp,
            hosts,
            has: status.map(allocations).unwrap_or_default(),
        }
    }
}

/// Reads `status.addresses`. Invalid addresses are skipped.
fn allocations(status: &Value) -> Vec<Allocation> {
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let one = |address: &Value| {
        Some(Allocation {
            host: address["host"].as_str().unwrap_or_default().into(),
            address: address["value"].as_str()?.parse().ok()?,
        })
    };
    addresses.filter_map(one).collect()
}

/// An entry's namespace and name.
type Key = (Arc<str>, Arc<str>);

/// The precedence of entries that have the same address: by age, then by name.
type Rank = (Option<Timestamp>, Key);

/// Assigns addresses to hosts.
#[derive(Default, Debug)]
pub struct Addresses {
    ranges: Ranges,
    entries: BTreeMap<Key, Entry>,
    /// Assignments that the entry's status does not show yet.
    decided: BTreeMap<Key, Vec<Allocation>>,
    /// The entries that have, or were assigned, each address.
    holders: BTreeMap<IpAddr, BTreeSet<Key>>,
    /// Entries with hosts for which no address was free.
    starved: BTreeSet<Key>,
    /// Whether an address became free.
    freed: bool,
    dirty: BTreeSet<Key>,
    ledger: Ledger,
}

impl Addresses {
    /// Creates a controller that assigns addresses of these ranges.
    pub fn new(ranges: Ranges) -> Addresses {
        Addresses { ranges, ..Addresses::default() }
    }

    /// Sets the state of an entry; `None` if it was deleted.
    pub fn entry(&mut self, namespace: &str, name: &str, entry: Option<Entry>) {
        let key: Key = (namespace.into(), name.into());
        if self.entries.get(&key) == entry.as_ref() {
            return;
        }
        self.release(&key);
        match entry {
            Some(entry) => {
                if self.entries.get(&key).is_some_and(|before| before.has != entry.has) {
                    self.ledger.forget(&target(&key));
                }
                self.decided.remove(&key);
                self.entries.insert(key.clone(), entry);
                self.hold(&key);
            }
            None => {
                self.decided.remove(&key);
                self.entries.remove(&key);
                self.ledger.forget(&target(&key));
            }
        }
        self.dirty.insert(key);
    }

    /// The addresses that an entry holds.
    fn held(&self, key: &Key) -> Vec<IpAddr> {
        let has = self.entries.get(key).map(|entry| &entry.has);
        let decided = self.decided.get(key);
        let all = has.into_iter().chain(decided).flatten();
        all.map(|allocation| allocation.address).collect()
    }

    fn hold(&mut self, key: &Key) {
        for address in self.held(key) {
            self.holders.entry(address).or_default().insert(key.clone());
        }
    }

    fn release(&mut self, key: &Key) {
        for address in self.held(key) {
            let Some(holders) = self.holders.get_mut(&address) else {
                continue;
            };
            holders.remove(key);
            // An entry that lost the address to this one keeps its new address, even though this one is free now.
            if holders.is_empty() {
                self.holders.remove(&address);
                self.freed = true;
            }
        }
    }

    fn rank(&self, key: &Key) -> Rank {
        (self.entries.get(key).and_then(|entry| entry.created), key.clone())
    }

    /// Whether no entry with higher precedence holds the address.
    fn may_keep(&self, key: &Key, address: IpAddr) -> bool {
        let rank = self.rank(key);
        let others = self.holders.get(&address).into_iter().flatten();
        self.ranges.holds(address) && others.filter(|other| *other != key).all(|other| self.rank(other) > rank)
    }

    /// The addresses that an entry should have; `None` if it needs no change.
    fn decide(&self, key: &Key) -> Option<Vec<Allocation>> {
        let entry = self.entries.get(key)?;
        let mut decided: Vec<Allocation> = Vec::new();
        for host in &entry.hosts {
            for is_v4 in [true, false] {
                let kept = entry.has.iter().find(|one| {
                    one.host == *host
                        && one.address.is_ipv4() == is_v4
                        && self.may_keep(key, one.address)
                        && !decided.iter().any(|taken| taken.address == one.address)
                });
                let address = match kept {
                    Some(kept) => Some(kept.address),
                    None => self.free(key, host, is_v4, &decided),
                };
                decided.extend(address.map(|address| Allocation { host: host.clone(), address }));
            }
        }
        let mut has = entry.has.clone();
        has.sort();
        let mut wanted = decided.clone();
        wanted.sort();
        (!entry.hosts.is_empty() && has != wanted).then_some(decided)
    }

    /// Finds a free address, starting at the hash of the host's name.
    fn free(&self, key: &Key, host: &str, is_v4: bool, taken: &[Allocation]) -> Option<IpAddr> {
        let bits = match is_v4 {
            true => 32 - self.ranges.v4.1.min(32),
            false => 128 - self.ranges.v6.1.min(128),
        };
        let places = Ranges::places(bits);
        let start = hash(&[&key.0, host]);
        let tries = (0..places.min(TRIES)).map(|step| {
            let place = 1 + (start.wrapping_add(step)) % places;
            match is_v4 {
                true => self.ranges.v4_at(place),
                false => self.ranges.v6_at(place),
            }
        });
        let is_free = |address: &IpAddr| {
            !self.holders.contains_key(address) && !taken.iter().any(|taken| taken.address == *address)
        };
        tries.into_iter().find(is_free)
    }
}

impl Controller for Addresses {
    fn plan(&mut self) -> Vec<Write> {
        // Entries that share an address with a changed one may lose it.
        let mut dirty = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.freed) {
            dirty.append(&mut self.starved);
        }
        let sharing = |key: &Key| -> Vec<Key> {
            let held = self.held(key).into_iter();
            held.filter_map(|address| self.holders.get(&address)).flatten().cloned().collect()
        };
        let others: Vec<Key> = dirty.iter().flat_map(sharing).collect();
        dirty.extend(others);
        let mut ranked: Vec<Rank> = dirty.iter().map(|key| self.rank(key)).collect();
        ranked.sort();
        let mut writes = Vec::new();
        for (_, key) in ranked {
            // An assignment in flight is not changed.
            if self.decided.contains_key(&key) && self.ledger.given(&target(&key)).is_some() {
                continue;
            }
            let decided = self.decide(&key);
            let allocated = decided.as_ref().or(self.entries.get(&key).map(|entry| &entry.has));
            let hosts = self.entries.get(&key).map_or(0, |entry| entry.hosts.len());
            match allocated.map_or(0, Vec::len) < 2 * hosts {
                true => drop(self.starved.insert(key.clone())),
                false => drop(self.starved.remove(&key)),
            }
            let wanted = decided.as_ref().and_then(|decided| self.write(&key, decided));
            if let Some(decided) = decided {
                self.release(&key);
                self.decided.insert(key.clone(), decided);
                self.hold(&key);
            }
            writes.extend(self.ledger.settle(&target(&key), wanted));
        }
        writes
    }

    fn restart(&mut self) {
        self.ledger.clear();
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in &keys {
            self.release(key);
            self.decided.remove(key);
            self.hold(key);
        }
        self.dirty.extend(keys);
    }
}

impl Addresses {
    fn write(&self, key: &Key, decided: &[Allocation]) -> Option<Write> {
        let one = |allocation: &Allocation| json!({"value": allocation.address.to_string(), "host": &*allocation.host});
        let addresses: Vec<Value> = decided.iter().map(one).collect();
        Some(Write {
            target: target(key),
            uid: self.entries.get(key)?.uid.clone(),
            body: Body::Apply {
                fields: json!({"status": {"addresses": addresses}}),
                // A separate field manager: apply removes fields that a manager no longer names, such as the rest of
                // the status.
                manager: "rutter-addresses",
                create: false,
                managed: false,
            },
        })
    }
}

fn target((namespace, name): &Key) -> Target {
    Target::status(Resource::SERVICE_ENTRY, namespace, name)
}

/// The FNV-1a hash, equal on every replica.
fn hash(texts: &[&str]) -> u32 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Feeds the controller with the objects that it watches.
pub struct AddressDriver(Addresses);

impl AddressDriver {
    /// Creates a driver without objects.
    pub fn new(ranges: Ranges) -> AddressDriver {
        AddressDriver(Addresses::new(ranges))
    }
}

impl Driver for AddressDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(Resource::SERVICE_ENTRY)]
    }

    fn see(&mut self, _: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        let read = || match read_object(object, &ParseOptions::default()).object {
            Some(AnyObject::ServiceEntry(entry)) => Some(Entry::of(&entry.meta, &entry.spec, object.get("status"))),
            // An invalid entry has no effect and needs no address.
            _ => None,
        };
        self.0.entry(namespace, name, there.then(read).flatten());
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.0
    }
}
