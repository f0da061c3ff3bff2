//! Random meshes: unusual but valid objects, and proxies that use them.
//!
//! Objects are generated from the schema of their kind. If validation reports an error, the field is removed, until the
//! object is valid. Equal seeds generate equal objects.

mod dice;
mod object;
mod value;

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use config::{AnyObject, Kind, ParseOptions};
use serde_json::Value;
use world::{Batch, World};

use crate::judge::Evidence;
use crate::state::Client;
use dice::Dice;

/// The number of objects in a mesh.
pub const OBJECTS: usize = 18;
/// The kinds of the objects of a mesh.
const KINDS: [Kind; OBJECTS] = [
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::Gateway,
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::ServiceEntry,
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::Sidecar,
    Kind::WorkloadEntry,
    Kind::Gateway,
    Kind::ServiceEntry,
    Kind::PeerAuthentication,
    Kind::PeerAuthentication,
    Kind::MeshConfig,
    Kind::AuthorizationPolicy,
    Kind::AuthorizationPolicy,
    Kind::AuthorizationPolicy,
];
/// The objects that every mesh has.
const BASE: &str = include_str!("base.yaml");

/// The random objects of the mesh with this seed, all valid.
pub fn objects(seed: u64) -> Vec<Value> {
    let mut dice = Dice::new(seed);
    let kinds = KINDS.iter().enumerate();
    kinds.map(|(number, kind)| object::valid(&mut dice, *kind, number)).collect()
}

/// The resources of the proxies of the mesh with this seed.
///
/// # Errors
/// A rule panics, or a proxy cannot be served.
pub fn evidence(seed: u64) -> Result<Evidence> {
    let mut world = World::new(crate::run::mesh(Default::default()), 1);
    let base = config::parse_documents(BASE.as_bytes(), "base", &ParseOptions::default());
    if let Some(wrong) = base.diagnostics.first() {
        bail!("{wrong}");
    }
    let mut batch = Batch::new();
    base.objects.into_iter().for_each(|object| batch.put(object));
    for json in objects(seed) {
        let read = config::read_object(&json, &ParseOptions::default());
        let object = read.object.with_context(|| format!("not valid: {json}"))?;
        if let AnyObject::MeshConfig(config) = &object {
            batch.set_mesh(crate::run::mesh(config.spec.clone()));
        }
        batch.put(object);
    }
    let changes = world.commit(batch);
    if !changes.panics.is_empty() {
        bail!("rules panicked: {:?}", changes.panics);
    }
    let mut evidence = Evidence::default();
    for (name, yaml) in PROXIES {
        let mut client = Client::new(world.connect(Arc::new(crate::proxy::parse(name, yaml)?)).0);
        client.refresh(&mut world).with_context(|| format!("proxy {name}"))?;
        evidence.add(&format!("seed {seed}: proxy {name}"), false, client.holdings());
    }
    world.check().map_err(|m| anyhow!("incremental and recomputed differ: {m}"))?;
    Ok(evidence)
}

/// The proxies of a mesh.
const PROXIES: [(&str, &str); 6] = [
    ("client", "{namespace: test, labels: {app: client, version: v1}, locality: r1/z1/s1}"),
    ("shop", "{namespace: test, ip: 10.1.0.9, labels: {app: shop, version: v1}, locality: r1/z2}"),
    ("agent", "{namespace: test, ip: 10.1.0.9, labels: {app: shop, version: v1}, metadata: {ISTIO_VERSION: 1.28.0}}"),
    ("none", "{namespace: other, ip: 10.1.0.7, labels: {app: client}, metadata: {INTERCEPTION_MODE: NONE}}"),
    ("six", "{namespace: test, ips: ['fd00::7', 10.1.0.6], labels: {app: six}, metadata: {HTTP10: '1'}}"),
    ("edge", "{type: router, namespace: test, ip: 10.1.0.8, labels: {app: gw}, metadata: {UNPRIVILEGED_POD: 'true'}}"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_generate_equal_objects() {
        assert_eq!(objects(7), objects(7));
        assert_ne!(objects(7), objects(8));
        let size: usize = (0..20).flat_map(objects).map(|object| object.to_string().len()).sum();
        assert!(size > 20 * OBJECTS * 300, "the objects are too small: {size} bytes");
    }
}
