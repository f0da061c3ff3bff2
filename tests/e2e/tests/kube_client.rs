//! `kube`, the Rust client of Kubernetes, with Rutter's API: its watcher, reflector and controller miss no event over a
//! restart of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use e2e::rutter_binary;
use futures::StreamExt as _;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use test_harness::run::{Control, Result, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

async fn client(control: &Control) -> Result<Client> {
    let path = control.kubeconfig().ok_or("it has no kubeconfig")?;
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn destination_rules() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("networking.istio.io", "v1", "DestinationRule"))
}

fn rule(name: &str, host: &str) -> DynamicObject {
    let meta = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut object = DynamicObject::new(name, &destination_rules()).data(json!({"spec": {"host": host}}));
    object.metadata = meta;
    object
}

/// The objects that an observer knows: names and hosts.
type Known = Arc<Mutex<BTreeMap<String, String>>>;

fn read(known: &Known) -> BTreeMap<String, String> {
    known.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn host(object: &DynamicObject) -> String {
    object.data["spec"]["host"].as_str().unwrap_or_default().to_owned()
}

/// Follows with a plain watcher.
fn watch(api: Api<DynamicObject>, config: watcher::Config) -> Known {
    let known = Known::default();
    let seen = known.clone();
    tokio::spawn(async move {
        let mut listed = BTreeMap::new();
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            // Errors are expected during a restart; the watcher continues by itself.
            let Ok(event) = event else { continue };
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => drop(listed.insert(object.name_any(), host(&object))),
                Event::InitDone => *seen = std::mem::take(&mut listed),
                Event::Apply(object) => drop(seen.insert(object.name_any(), host(&object))),
                Event::Delete(object) => drop(seen.remove(&object.name_any())),
            }
        }
    });
    known
}

/// Follows with a controller, which receives names and looks the objects up in its reflected store.
fn control(api: Api<DynamicObject>) -> Known {
    let known = Known::default();
    let controller = Controller::new_with(api, watcher::Config::default(), destination_rules());
    let reconcile = |object: Arc<DynamicObject>, known: Arc<Known>| async move {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(object.name_any(), host(&object));
        Ok::<Action, std::convert::Infallible>(Action::await_change())
    };
    let refused = |_: Arc<DynamicObject>, _: &std::convert::Infallible, _: Arc<Known>| Action::await_change();
    tokio::spawn(controller.run(reconcile, refused, Arc::new(known.clone())).for_each(|_| async {}));
    known
}

async fn over_a_restart() -> Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let rules: Api<DynamicObject> = Api::default_namespaced_with(client(&server).await?, &destination_rules());
    for number in 0..20 {
        rules.create(&PostParams::default(), &rule(&format!("before-{number}"), "one")).await?;
    }

    let watched = watch(rules.clone(), watcher::Config::default());
    let streamed = watch(rules.clone(), watcher::Config::default().streaming_lists());
    let controlled = control(rules.clone());
    let (reflected, writer) = {
        let writer = reflector::store::Writer::new(destination_rules());
        (writer.as_reader(), writer)
    };
    let events = reflector(writer, watcher(rules.clone(), watcher::Config::default()).default_backoff());
    tokio::spawn(events.for_each(|_| async {}));
    reflected.wait_until_ready().await?;

    for number in 0..10 {
        let patch = Patch::Merge(json!({"spec": {"host": "two"}}));
        rules.patch(&format!("before-{number}"), &PatchParams::default(), &patch).await?;
    }
    server.kill().await?;
    server.begin().await?;
    for number in 0..20 {
        rules.create(&PostParams::default(), &rule(&format!("after-{number}"), "three")).await?;
    }
    let apply = PatchParams::apply("test").force();
    rules.patch("before-0", &apply, &Patch::Apply(rule("before-0", "four"))).await?;
    rules.delete("before-1", &DeleteParams::default()).await?;

    let wanted: BTreeMap<String, String> =
        rules.list(&Default::default()).await?.iter().map(|object| (object.name_any(), host(object))).collect();
    assert_eq!(wanted.len(), 39);
    assert_eq!(wanted["before-0"], "four");
    for (who, known) in [("watcher", &watched), ("streaming watcher", &streamed)] {
        wait_for(who, PATIENCE, || async { (read(known) == wanted).then_some(()) }).await?;
    }
    // A controller does not receive deletions of objects without a finalizer. It has the current version of all other
    // objects.
    let agrees = || async {
        let mut known = read(&controlled);
        known.remove("before-1");
        (known == wanted).then_some(())
    };
    wait_for("controller", PATIENCE, agrees).await?;
    let mirrored = || async {
        let state: BTreeMap<String, String> =
            reflected.state().iter().map(|object| (object.name_any(), host(object))).collect();
        (state == wanted).then_some(())
    };
    wait_for("reflector", PATIENCE, mirrored).await?;
    let gone = ObjectRef::new_with("before-1", destination_rules()).within("default");
    assert!(reflected.get(&gone).is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_watchers_miss_no_event_over_a_restart() {
    over_a_restart().await.unwrap_or_else(|error| panic!("{error}"));
}
