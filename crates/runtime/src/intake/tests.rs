//! When the first commit is made.

use config::ChangeSet;
use world::World;
use xds::Limits;

use super::*;

fn source(name: &str, elsewhere: bool) -> Source {
    Source {
        name: name.into(),
        elsewhere,
    }
}

fn begin(sources: &[Source], patience: Duration) -> (Vec<ChangeSender>, watch::Receiver<Progress>) {
    let defaults = MeshSettings {
        config: MeshConfig::default(),
        domain: "cluster.local".into(),
        cluster_id: "Kubernetes".into(),
        sharing: Default::default(),
        features: Default::default(),
        assigned_addresses: true,
    };
    let pilot = WorldHandle::start(World::new(defaults.clone(), 1), Limits::default(), Duration::ZERO).unwrap();
    let options = Options {
        pilot,
        configuration: Configuration::default(),
        defaults,
        patience,
        mesh: watch::Sender::default(),
    };
    start(sources.to_vec(), options)
}

async fn until(progress: &mut watch::Receiver<Progress>, wanted: impl FnMut(&Progress) -> bool) -> Progress {
    let reached = tokio::time::timeout(Duration::from_secs(30), progress.wait_for(wanted)).await;
    reached.unwrap().unwrap().clone()
}

#[tokio::test]
async fn it_begins_when_everybody_has_spoken_and_not_before() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::ZERO);
    assert_eq!(progress.borrow().awaited.len(), 2);
    senders[0].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.awaited.len() == 1).await;
    assert_eq!((&*now.awaited[0], now.begun), ("far", false));
    senders[1].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.begun).await;
    assert!(now.awaited.is_empty());
}

#[tokio::test]
async fn it_goes_on_without_who_is_elsewhere_and_takes_it_in_later() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[0].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.begun).await;
    assert_eq!(now.awaited.len(), 1);
    senders[1].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.awaited.is_empty()).await;
}

#[tokio::test]
async fn it_never_goes_on_without_the_store() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[1].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.awaited.len() == 1).await;
    assert_eq!((&*now.awaited[0], now.begun), ("store", false));
    senders[0].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.begun).await;
}
