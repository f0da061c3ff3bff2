//! Environment variables that the mesh settings refer to: proxies receive the values; debug pages do not show them.
#![allow(clippy::unwrap_used)]

mod support;

use envoy::types;
use std::sync::Arc;

use config::{ParseOptions, parse_documents};
use model::proxy::ProxyKind;
use registry::inputs::{MeshSettings, Sharing};
use world::{Batch, World};

const OBJECTS: &str = r#"
apiVersion: mesh.istio.io/v1alpha1
kind: MeshConfig
metadata: {name: mesh}
spec:
  extensionProviders:
  - name: collector
    opentelemetry:
      service: otel.obs.svc.cluster.local
      port: 4317
      grpc: {initialMetadata: [{name: x-collector-token, envName: OTEL_TOKEN}]}
  defaultProviders: {tracing: [collector]}
---
apiVersion: v1
kind: Service
metadata: {name: otel, namespace: obs}
spec: {clusterIP: 10.96.0.2, ports: [{name: grpc, port: 4317}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
"#;

/// Whether a listener of a sidecar contains this text.
fn has_text(world: &mut World, text: &str) -> bool {
    let (token, _) = world.connect(Arc::new(support::proxy("web", "shop", ProxyKind::Sidecar)));
    let audience = world.audience(token, types::LISTENER).unwrap();
    let (_, listed) = world.open_catalogue(&audience, &"".into()).unwrap();
    let keys: Vec<_> = listed.entries.iter().map(|(_, key)| key).collect();
    let opened = world.open_all(&keys);
    let mut bodies = opened.iter().filter_map(|(_, resource)| Some(resource.as_ref()?.body()));
    bodies.any(|body| body.windows(text.len()).any(|part| part == text.as_bytes()))
}

#[test]
fn environment_values_reach_proxies_and_not_debug_pages() {
    let parsed = parse_documents(OBJECTS.as_bytes(), "f", &ParseOptions::default());
    let mut batch = Batch::new();
    for object in parsed.objects {
        if let config::AnyObject::MeshConfig(config) = &object {
            let names: Vec<Arc<str>> = config.spec.environment().collect();
            assert_eq!(names, ["OTEL_TOKEN".into()]);
            batch.set_mesh(MeshSettings { config: config.spec.clone(), ..support::settings(Sharing::All) });
            continue;
        }
        batch.put(object);
    }
    let mut world = World::new(support::settings(Sharing::All), 1);
    world.commit(batch);
    assert!(has_text(&mut world, "otel.obs"), "requests are traced");
    assert!(!has_text(&mut world, "x-collector-token"), "a header without a value is left out");

    let mut batch = Batch::new();
    batch.set_environment("OTEL_TOKEN".into(), Some("s3cret".to_owned()));
    world.commit(batch);
    assert!(has_text(&mut world, "x-collector-token") && has_text(&mut world, "s3cret"));
    let shown = world.mesh().to_string();
    assert!(shown.contains("OTEL_TOKEN") && !shown.contains("s3cret"), "{shown}");
    assert!(!world.worldz().to_string().contains("s3cret"));

    let mut batch = Batch::new();
    batch.set_environment("OTEL_TOKEN".into(), None);
    world.commit(batch);
    assert!(!has_text(&mut world, "s3cret"));
}
