//! The trust bundle that agents receive (PCDS).
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use envoy::types;
use model::proxy::ProxyKind;
use registry::inputs::Sharing;
use world::{Batch, World};

/// The certificates in the bundle of an agent; `None` if there is no bundle.
fn bundle(world: &mut World) -> Option<Vec<String>> {
    let (token, _) = world.connect(Arc::new(support::proxy("web", "shop", ProxyKind::Sidecar)));
    let audience = world.audience(token, types::PROXY_CONFIG).unwrap();
    let (_, listed) = world.open_catalogue(&audience, &"".into()).unwrap();
    let keys: Vec<_> = listed.entries.iter().map(|(_, key)| key).collect();
    let opened = world.open_all(&keys);
    let (_, resource) = opened.first()?;
    let body = resource.as_ref()?.body();
    let json = protos::json(types::PROXY_CONFIG.type_url, &body).unwrap();
    let listed = json["caCertificatesPem"].as_array().unwrap();
    Some(listed.iter().map(|root| root.as_str().unwrap().to_owned()).collect())
}

#[test]
fn agents_receive_the_roots_of_the_mesh_if_there_are_any() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    assert_eq!(bundle(&mut world), None);
    for roots in [vec!["one"], vec!["one", "two"]] {
        let mut batch = Batch::new();
        batch.set_trust_bundle(roots.iter().map(|root| (*root).into()).collect());
        world.commit(batch);
        assert_eq!(bundle(&mut world).unwrap(), roots);
    }
    let mut batch = Batch::new();
    batch.set_trust_bundle(Vec::new());
    world.commit(batch);
    assert_eq!(bundle(&mut world), None);
}
