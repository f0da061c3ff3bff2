//! Cluster IPs of Services, assigned as an API server does.
//!
//! A Service without a cluster IP gets one of each of its families. The search starts at a hash of its namespace and
//! name, so a Service that is deleted and created again usually gets the same address. Every address in use is *claimed*
//! by an object that is named after it. The transaction that writes the Service creates and deletes the claims, so two
//! replicas cannot assign one address. Clients do not see claims.
//!
//! Addresses outside of the ranges may be set by hand. They are not claimed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};
use store::{Error, Expect, GroupResource, Key, Operation, Scope, Transaction};

use crate::api::Api;
use crate::error::{About, ApiError, Cause};

/// The maximum number of addresses that are tried for one Service.
const TRIES: u64 = 1 << 16;
/// The value of `clusterIP` of a headless Service.
const HEADLESS: &str = "None";

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceRange {
    /// The first address, which is not assigned.
    pub first: IpAddr,
    /// The prefix length.
    pub length: u8,
}

impl ServiceRange {
    fn family(&self) -> &'static str {
        family(self.first)
    }

    fn host_bits(&self) -> u8 {
        (if self.first.is_ipv4() { 32_u8 } else { 128 }).saturating_sub(self.length)
    }

    /// The number of addresses that can be assigned: all but the first and the last, at most 2^32.
    fn places(&self) -> u64 {
        (1_u64 << self.host_bits().clamp(2, 32)) - 2
    }

    fn at(&self, place: u64) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from((u64::from(u32::from(first)) + place) as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) + u128::from(place)).into(),
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128| a.checked_shr(self.host_bits().into()) == b.checked_shr(self.host_bits().into());
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => same(u32::from(first).into(), u32::from(address).into()),
            (IpAddr::V6(first), IpAddr::V6(address)) => same(first.into(), address.into()),
            _ => false,
        }
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl Api {
    /// Sets the family of a new Service that names none: that of the first range.
    pub(crate) fn fill_family(&self, object: &mut Value) {
        let spec = &object["spec"];
        let named = ["ipFamilies", "clusterIP", "clusterIPs"].iter().any(|name| !is_empty(&spec[*name]));
        if let Some(range) = self.0.options.service_ranges.first()
            && range.first.is_ipv6()
            && spec.is_object()
            && spec["type"] != "ExternalName"
            && !named
        {
            object["spec"]["ipFamilies"] = json!([range.family()]);
        }
    }

    /// Completes the addresses of a Service that is to be written. Returns the operations that claim and release them.
    ///
    /// # Errors
    /// An address is in use, a family or no address is available, or the store cannot be read.
    pub(crate) async fn assign_cluster_ips(
        &self,
        key: &Key,
        before: Option<&Value>,
        object: &mut Value,
    ) -> Result<Vec<Operation>, ApiError> {
        if self.0.options.service_ranges.is_empty() || !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Vec::new());
        }
        let has_none = object["spec"]["type"] == "ExternalName" || object["spec"]["clusterIP"] == HEADLESS;
        if !has_none && object["spec"].is_object() {
            self.families(key, before, object)?;
            self.addresses(key, object).await?;
        }
        let (was, is) = (before.map(|before| self.claimed(before)).unwrap_or_default(), self.claimed(object));
        let mut operations = Vec::new();
        for address in is.difference(&was) {
            if self.0.store.get(&claim_key(*address)).await?.is_some() {
                let why = format!("failed to allocate IP {address}: provided IP is already allocated");
                return Err(invalid(key, "spec.clusterIPs", &object["spec"]["clusterIPs"], &why));
            }
            operations.push(claim(*address, key));
        }
        operations.extend(was.difference(&is).map(|address| release(*address)));
        Ok(operations)
    }

    /// The operations that release the addresses of a deleted Service.
    pub(crate) fn release_cluster_ips(&self, key: &Key, object: &Value) -> Vec<Operation> {
        match is_service(key) {
            true => self.claimed(object).into_iter().map(release).collect(),
            false => Vec::new(),
        }
    }

    /// Claims the addresses of Services that were written before addresses were claimed.
    pub(crate) async fn claim_cluster_ips(&self) -> Result<(), ApiError> {
        if self.0.options.service_ranges.is_empty() {
            return Ok(());
        }
        let all = |resource| Scope { resource: Some(resource), ..Scope::default() };
        let claims = self.0.store.snapshot(&all(claims())).await?.items;
        let known: BTreeSet<&str> = claims.iter().map(|claim| &*claim.key.name).collect();
        for service in self.0.store.snapshot(&all(GroupResource::new("", "services"))).await?.items {
            for address in self.claimed(&service.value()) {
                if known.contains(&*address.to_string()) {
                    continue;
                }
                match self.0.store.commit(Transaction::one(claim(address, &service.key))).await {
                    // Two old Services may have the same address.
                    Ok(_) | Err(Error::Exists { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// The addresses of a Service that are in a range.
    fn claimed(&self, object: &Value) -> BTreeSet<IpAddr> {
        let addresses = object["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|address| address.as_str()?.parse::<IpAddr>().ok());
        addresses.filter(|address| self.0.options.service_ranges.iter().any(|range| range.holds(*address))).collect()
    }

    /// Makes the families agree with the policy.
    fn families(&self, key: &Key, before: Option<&Value>, object: &mut Value) -> Result<(), ApiError> {
        let ranges = &self.0.options.service_ranges;
        let policy = object["spec"]["ipFamilyPolicy"].as_str().unwrap_or("SingleStack").to_owned();
        let spec = &mut object["spec"];
        if policy == "SingleStack" {
            // A client that changes only the policy gives up the second address.
            for name in ["clusterIPs", "ipFamilies"] {
                if before.is_some_and(|before| before["spec"][name] == spec[name])
                    && let Some(list) = spec[name].as_array_mut()
                {
                    list.truncate(1);
                }
            }
            return Ok(());
        }
        let Some(families) = spec["ipFamilies"].as_array_mut() else {
            return Ok(());
        };
        if families.len() == 1
            && let Some(other) = ranges.iter().find(|range| families[0] != range.family())
        {
            families.push(other.family().into());
        }
        if policy == "RequireDualStack" && families.len() < 2 {
            let why = "this cluster is not configured for dual-stack services: set `--service-cluster-ip-range` to an IPv4 \
                       and an IPv6 range";
            return Err(invalid(key, "spec.ipFamilyPolicy", &json!(policy), why));
        }
        Ok(())
    }

    /// Assigns the addresses that are missing.
    async fn addresses(&self, key: &Key, object: &mut Value) -> Result<(), ApiError> {
        let families: Vec<String> =
            object["spec"]["ipFamilies"].as_array().into_iter().flatten().filter_map(text).collect();
        let mut addresses: Vec<String> =
            object["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(text).collect();
        for (index, family) in families.iter().enumerate().skip(addresses.len()) {
            let range = self.0.options.service_ranges.iter().find(|range| range.family() == family);
            let Some(range) = range else {
                let why = "not configured on this cluster: `--service-cluster-ip-range` has no range of this family";
                return Err(invalid(key, &format!("spec.ipFamilies[{index}]"), &json!(family), why));
            };
            addresses.push(self.free(key, range).await?.to_string());
        }
        if let Some(first) = addresses.first() {
            object["spec"]["clusterIP"] = json!(first);
            object["spec"]["clusterIPs"] = json!(addresses);
        }
        Ok(())
    }

    /// Finds an address that is not claimed.
    async fn free(&self, key: &Key, range: &ServiceRange) -> Result<IpAddr, ApiError> {
        let places = range.places();
        let start = hash(&[&key.namespace, &key.name]);
        for step in 0..places.min(TRIES) {
            let address = range.at(1 + start.wrapping_add(step) % places);
            if self.0.store.get(&claim_key(address)).await?.is_none() {
                return Ok(address);
            }
        }
        Err(ApiError::internal(format!(
            "failed to allocate a cluster IP for the Service {}/{}: the range {range} is full; set a larger \
             `--service-cluster-ip-range`, or delete Services",
            key.namespace, key.name
        )))
    }
}

/// Whether a write failed because another one claimed an address at the same time. Another attempt finds another address.
pub(crate) fn lost_race(error: &Error) -> bool {
    matches!(error, Error::Exists { key } if key.resource == claims())
}

/// Whether this is the key of a Service.
pub(crate) fn is_service(key: &Key) -> bool {
    key.resource.group.is_empty() && &*key.resource.plural == "services"
}

fn claims() -> GroupResource {
    GroupResource::new("networking.k8s.io", "ipaddresses")
}

fn claim_key(address: IpAddr) -> Key {
    Key::new(claims(), "", address.to_string())
}

fn claim(address: IpAddr, service: &Key) -> Operation {
    let parent = json!({"group": "", "resource": "services", "namespace": &*service.namespace, "name": &*service.name});
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address.to_string()},
        "spec": {"parentRef": parent},
    });
    Operation::Put { key: claim_key(address), value, expect: Expect::Absent }
}

fn release(address: IpAddr) -> Operation {
    Operation::Delete { key: claim_key(address), expect: Expect::Anything }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value == "" || value == &json!([])
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn invalid(key: &Key, field: &str, value: &Value, why: &str) -> ApiError {
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.to_owned(),
    };
    ApiError::invalid(About { group: "", kind: "Service", name: &key.name }, vec![cause])
}

/// The FNV-1a hash, equal on every replica.
fn hash(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_it_assigns() {
        for (first, length, places) in [("10.96.0.0", 29, 6), ("10.96.0.0", 12, (1 << 20) - 2), ("fd00::", 112, 65_534)]
        {
            let range = ServiceRange { first: first.parse().unwrap(), length };
            assert_eq!(range.places(), places);
            assert!(range.holds(range.at(1)) && range.holds(range.at(places)), "{range}");
            assert!(!range.holds(range.at(places + 2)), "{range}");
        }
        let four = ServiceRange { first: "10.96.0.0".parse().unwrap(), length: 12 };
        assert!(!four.holds("fd00::1".parse().unwrap()));
    }
}
