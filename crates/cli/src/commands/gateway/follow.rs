//! The objects that decide which Envoys run, and with which settings.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value as Json;
use tokio::sync::mpsc;

use super::API;
use crate::failure::StatusError;
use crate::server::{Request, Server, array, encode};

/// The delay before objects are read again, and that for kinds that cannot be read.
const PAUSE: Duration = Duration::from_secs(1);
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// A kind of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Class,
    Gateway,
    Set,
    ProxyConfig,
    ConfigMap,
}

/// The objects of a kind that are followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Collection {
    pub(super) kind: Kind,
    /// Their namespace; none for all.
    pub(super) namespace: Option<String>,
    path: String,
}

impl Collection {
    fn new(kind: Kind, namespace: Option<&str>) -> Collection {
        let (api, plural) = match kind {
            Kind::Class => (API, "gatewayclasses"),
            Kind::Gateway => (API, "gateways"),
            Kind::Set => (API, "listenersets"),
            Kind::ProxyConfig => ("/apis/networking.istio.io/v1beta1", "proxyconfigs"),
            Kind::ConfigMap => ("/api/v1", "configmaps"),
        };
        let path = match namespace {
            None => format!("{api}/{plural}"),
            Some(namespace) => format!("{api}/namespaces/{}/{plural}", encode(namespace)),
        };
        Collection { kind, namespace: namespace.map(str::to_owned), path }
    }

    /// Whether Envoys run without these objects.
    fn is_optional(&self) -> bool {
        matches!(self.kind, Kind::Set | Kind::ProxyConfig | Kind::ConfigMap)
    }
}

/// The collections for the Gateways of a namespace, or of all.
pub(super) fn collections(namespace: Option<&str>, root_namespace: &str) -> Vec<Collection> {
    let mut all = vec![Collection::new(Kind::Class, None)];
    all.extend(
        [Kind::ProxyConfig, Kind::ConfigMap, Kind::Set, Kind::Gateway].map(|kind| Collection::new(kind, namespace)),
    );
    if namespace.is_some_and(|namespace| namespace != root_namespace) {
        all.push(Collection::new(Kind::ProxyConfig, Some(root_namespace)));
    }
    all
}

/// A change of objects.
pub(super) enum Change {
    All(Collection, Vec<Json>),
    /// One object, and whether it exists.
    One(Kind, Json, bool),
}

/// Sends all objects of a collection, and their changes. After the first answer, errors are logged and the objects read again.
pub(super) async fn follow(server: Server, collection: Collection, sender: mpsc::Sender<Change>) -> Result<Infallible> {
    let mut answered = false;
    let mut lost = None;
    loop {
        let result = pass(&server, &collection, &sender, &mut answered).await;
        let error = match result {
            Ok(()) => {
                lost = None;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => error,
        };
        let message = error.to_string();
        let is_new = lost.replace(message.clone()) != Some(message.clone());
        let pause = match (answered, collection.is_optional()) {
            (true, _) => {
                if is_new {
                    tracing::warn!("{message}; Envoys keep running");
                }
                PAUSE
            }
            (false, true) => {
                if is_new {
                    tracing::warn!("{message}; Envoys run without the objects in {}", collection.path);
                }
                send(&sender, Change::All(collection.clone(), Vec::new())).await?;
                LONG_PAUSE
            }
            (false, false) => return Err(error),
        };
        tokio::time::sleep(pause).await;
    }
}

async fn send(sender: &mpsc::Sender<Change>, change: Change) -> Result<()> {
    sender.send(change).await.map_err(|_| anyhow!("the objects are not needed any more"))
}

async fn pass(
    server: &Server,
    collection: &Collection,
    sender: &mpsc::Sender<Change>,
    answered: &mut bool,
) -> Result<()> {
    let Collection { kind, path, .. } = collection;
    let mut list = server.list(Request::get(path)).await?;
    *answered = true;
    let all = array(&mut list, "items").map(std::mem::take).unwrap_or_default();
    send(sender, Change::All(collection.clone(), all)).await?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut events = pin!(server.watch(Request::get(path).with("resourceVersion", version)).await?);
    while let Some(event) = events.next().await {
        let change = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::One(*kind, object, true),
            WatchEvent::Deleted(object) => Change::One(*kind, object, false),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(StatusError { status }.into()),
        };
        send(sender, change).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_root_namespace_are_followed() {
        let paths = |namespace: Option<&str>| -> Vec<String> {
            collections(namespace, "istio-system").into_iter().map(|one| one.path).collect()
        };
        let api = "/apis/networking.istio.io/v1beta1";
        assert_eq!(paths(None)[1..3], [format!("{api}/proxyconfigs"), "/api/v1/configmaps".to_owned()]);
        assert_eq!(paths(None).len(), 5);
        assert_eq!(paths(Some("shop"))[5], format!("{api}/namespaces/istio-system/proxyconfigs"));
        assert_eq!(paths(Some("istio-system")).len(), 5);
    }
}
