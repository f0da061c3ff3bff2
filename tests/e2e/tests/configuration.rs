//! Configuration from one control plane to another: the server and the xDS source over a real socket.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use config::{AnyObject, ChangeSet, Kind, MeshConfig, ObjectKey, ParseOptions};
use registry::inputs::MeshSettings;
use server::{Configuration, Options, Pace, Server, WorldHandle};
use sources::xds::{Address, Node};
use sources::{ChangeSender, SourceChange};
use tokio::sync::mpsc;
use world::World;
use xds::Limits;

async fn start(configuration: Configuration) -> Server {
    let mesh = MeshSettings::default();
    let pilot = WorldHandle::start(World::new(mesh, 1), Limits::default(), Pace::UNLIMITED).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let options = Options {
        grpc: any,
        http: any,
        monitoring: any,
        keepalive_interval: Duration::from_secs(30),
        keepalive_timeout: Duration::from_secs(10),
        max_connection_age: None,
        vhds: true,
        max_request_bytes: 64 << 10,
        security: server::Security::default(),
        secret_access: server::SecretAccess::None,
        registrar: None,
        socket: None,
        connections: Default::default(),
        limits: Limits::default(),
        version: "test".into(),
        instance: "test".into(),
    };
    let server = Server::start_with(options, pilot, Some(configuration)).await.unwrap();
    server.set_ready();
    server
}

fn follow(server: &Server) -> mpsc::Receiver<SourceChange> {
    let address = Address { authority: server.addresses().grpc.to_string().into(), tls: None };
    let node = Node { namespace: "mesh".into(), name: "other-0".into(), ip: "10.0.0.9".into(), revision: "".into() };
    let (sender, changes) = mpsc::channel(10);
    tokio::spawn(sources::xds::follow(sources::xds::Options::new(address, node), ChangeSender::new(0, sender)));
    changes
}

async fn next(changes: &mut mpsc::Receiver<SourceChange>) -> ChangeSet {
    tokio::time::timeout(Duration::from_secs(30), changes.recv()).await.unwrap().unwrap().change
}

/// A change set that adds and deletes these objects.
fn change(objects: &[AnyObject], deletes: &[ObjectKey]) -> ChangeSet {
    let mut change: ChangeSet = objects.iter().cloned().collect();
    change.deletes.extend(deletes.iter().cloned());
    change
}

fn objects(text: &str) -> Vec<AnyObject> {
    let parsed = config::parse_documents(text.as_bytes(), "test", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:?}", parsed.diagnostics);
    parsed.objects
}

/// One object of each transferred kind, each with a field of its own.
const EACH: &str = include_str!("data/each-kind.yaml");

#[tokio::test]
async fn every_kind_is_transferred_unchanged() {
    let given = objects(EACH);
    let configuration = Configuration::default();
    configuration.apply(&change(&given, &[]));
    configuration.set_mesh(MeshConfig { root_namespace: "mesh".into(), ..MeshConfig::default() });
    let server = start(configuration).await;
    let first = next(&mut follow(&server)).await;
    let errors: Vec<_> = first.diagnostics.values().flatten().filter(|said| said.is_error()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let arrived = |key| first.upserts.get(&key).cloned();
    for object in &given {
        let got = arrived(object.key()).unwrap_or_else(|| panic!("{} did not arrive", object.key()));
        assert_eq!(got.spec_json(), object.spec_json(), "{}", object.key());
        assert_eq!((&got.meta().labels, &got.meta().annotations), (&object.meta().labels, &object.meta().annotations));
    }
    let Some(AnyObject::MeshConfig(mesh)) = arrived(MeshConfig::key()) else { panic!("no MeshConfig") };
    assert_eq!((&*mesh.spec.root_namespace, mesh.spec.connect_timeout), ("mesh", Duration::from_secs(10)));
    // MeshNetworks are not transferred, as with Istio.
    let missing: Vec<_> = Kind::ALL
        .iter()
        .filter(|kind| **kind != Kind::MeshNetworks)
        .filter(|kind| kind.group().ends_with("istio.io") && first.upserts.keys().all(|key| key.kind != **kind))
        .collect();
    assert!(missing.is_empty(), "no example of {missing:?}");
}

#[tokio::test]
async fn only_changed_objects_are_sent_to_other_control_planes() {
    let entry = |name: &str, host: &str| {
        objects(&format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  hosts: [{host}]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: DNS\n"
        ))
    };
    let configuration = Configuration::default();
    let (a, b) = (entry("a", "a.com"), entry("b", "b.com"));
    configuration.apply(&change(&a, &[]));
    configuration.apply(&change(&b, &[]));
    let server = start(configuration.clone()).await;
    let mut changes = follow(&server);
    assert_eq!(next(&mut changes).await.upserts.len(), 2);
    configuration.apply(&change(&entry("a", "x.com"), &[b[0].key()]));
    let received = next(&mut changes).await;
    assert_eq!((received.upserts.len(), received.deletes), (1, [b[0].key()].into()));
    // A change of a kind that is not transferred sends nothing, and the next change arrives.
    configuration.apply(&change(&objects("apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n"), &[]));
    configuration.apply(&change(&b, &[]));
    assert_eq!(next(&mut changes).await.upserts.len(), 1);
    let stopped = tokio::time::timeout(Duration::from_secs(10), server.shut_down(Duration::from_secs(20))).await;
    assert!(stopped.is_ok(), "an open stream delayed the shutdown");
    assert!(changes.try_recv().is_err(), "no object is deleted");
}
