//! The conditions for the first commit.

use registry::inputs::MeshSettings;
use server::Pace;
use world::World;
use xds::Limits;

use super::*;

fn source(name: &str, remote: bool) -> Source {
    Source { name: name.into(), remote }
}

fn begin(sources: &[Source], patience: Duration) -> (Vec<ChangeSender>, watch::Receiver<Progress>) {
    let defaults = MeshSettings::default();
    let pilot = WorldHandle::start(World::new(defaults, 1), Limits::default(), Pace::UNLIMITED).unwrap();
    let options = Options { pilot, patience };
    start(sources.to_vec(), options)
}

async fn until(progress: &mut watch::Receiver<Progress>, wanted: impl FnMut(&Progress) -> bool) -> Progress {
    let reached = tokio::time::timeout(Duration::from_secs(30), progress.wait_for(wanted)).await;
    reached.unwrap().unwrap().clone()
}

#[tokio::test]
async fn the_first_commit_waits_for_all_sources() {
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
async fn a_late_remote_source_does_not_delay_the_first_commit() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[0].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.begun).await;
    assert_eq!(now.awaited.len(), 1);
    senders[1].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.awaited.is_empty()).await;
}

#[tokio::test]
async fn the_first_commit_always_waits_for_the_store() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[1].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.awaited.len() == 1).await;
    assert_eq!((&*now.awaited[0], now.begun), ("store", false));
    senders[0].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.begun).await;
}
