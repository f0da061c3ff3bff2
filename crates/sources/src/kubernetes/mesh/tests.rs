//! Merging, precedence and invalid texts.

use serde_json::json;

use super::*;

fn mesh() -> Mesh {
    Mesh::new(MeshOptions {
        namespace: "istio-system".into(),
        name: "istio".into(),
        shared: Some("shared".into()),
        file: None,
    })
}

fn map(text: &str) -> Value {
    json!({"data": {"mesh": text}})
}

fn domain(mesh: &Mesh) -> Option<String> {
    match mesh.config.as_ref()? {
        AnyObject::MeshConfig(config) => Some(config.spec.trust_domain.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_own_text_overrides_the_shared_one_and_an_invalid_one_changes_nothing() {
    let (mut mesh, mut out) = (mesh(), ChangeSet::default());
    mesh.take(ConfigMapRole::Shared, Some(&map("trustDomain: shared\nrootNamespace: roots")), &mut out);
    assert_eq!(domain(&mesh).as_deref(), Some("shared"));
    mesh.take(ConfigMapRole::Own, Some(&map("trustDomain: own")), &mut out);
    assert_eq!(domain(&mesh).as_deref(), Some("own"));
    let Some(AnyObject::MeshConfig(config)) = &mesh.config else { panic!("no settings") };
    assert_eq!(&*config.spec.root_namespace, "roots");
    assert!(!mesh.is_rejected());
    mesh.take(ConfigMapRole::Own, Some(&map("trustDomain: [")), &mut out);
    assert_eq!((domain(&mesh).as_deref(), mesh.is_rejected()), (Some("own"), true));
    mesh.take(ConfigMapRole::Own, None, &mut out);
    assert_eq!((domain(&mesh).as_deref(), mesh.is_rejected()), (Some("shared"), false));
    let mut out = ChangeSet::default();
    mesh.take(ConfigMapRole::Shared, None, &mut out);
    assert_eq!(out.deletes, [MeshConfig::key()].into());
}

#[test]
fn a_file_replaces_the_own_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh");
    let options = MeshOptions { file: Some(path.clone()), ..mesh().options };
    let (mut mesh, mut out) = (Mesh::new(options), ChangeSet::default());
    mesh.look(&mut out);
    mesh.take(ConfigMapRole::Own, Some(&map("trustDomain: own")), &mut out);
    assert_eq!(domain(&mesh).as_deref(), Some("own"));
    fs::write(&path, "trustDomain: file").unwrap();
    mesh.look(&mut out);
    assert_eq!(domain(&mesh).as_deref(), Some("file"));
    fs::remove_file(&path).unwrap();
    mesh.look(&mut out);
    assert_eq!(domain(&mesh).as_deref(), Some("own"));
}

#[test]
fn some_fields_are_merged() {
    let base = json!({
        "default_config": {"proxyMetadata": {"A": "1", "B": "1"}, "tracing": {"zipkin": {"address": "z:1"}, "sampling": 1}},
        "extensionProviders": [{"name": "a", "x": 1}, {"name": "b"}],
        "trustDomainAliases": ["b", "a"],
        "defaultProviders": {"metrics": ["m"], "tracing": ["t"]},
        "accessLogFile": "/dev/stdout",
    });
    let over = json!({
        "defaultConfig": {"proxyMetadata": {"B": "2"}, "tracing": {"datadog": {"address": "d:1"}}},
        "extensionProviders": [{"name": "a", "x": 2}],
        "trustDomainAliases": ["c", "a"],
        "defaultProviders": {"tracing": ["u"]},
    });
    let wanted = json!({
        "defaultConfig": {"proxyMetadata": {"A": "1", "B": "2"}, "tracing": {"datadog": {"address": "d:1"}, "sampling": 1}},
        "extensionProviders": [{"name": "a", "x": 2}, {"name": "b"}],
        "trustDomainAliases": ["a", "b", "c"],
        "defaultProviders": {"metrics": ["m"], "tracing": ["u"]},
        "accessLogFile": "/dev/stdout",
    });
    assert_eq!(merged(base, over), wanted);
}

proptest::proptest! {
    #[test]
    fn no_text_causes_a_panic(one in "[a-zA-Z: \\[\\]{}\n-]{0,60}", other in "\\PC{0,40}") {
        let (mut mesh, mut out) = (mesh(), ChangeSet::default());
        mesh.take(ConfigMapRole::Shared, Some(&map(&one)), &mut out);
        mesh.take(ConfigMapRole::Own, Some(&map(&other)), &mut out);
    }
}
