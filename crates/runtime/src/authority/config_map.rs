//! The ConfigMap with the roots in a store of Rutter, where `rutter ca root` and people read it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Timestamp;
use controllers::{KEY, PublishedRoots};
use serde_json::{Value, json};
use store::{Error, Expect, GroupResource, Key, Operation, Store, Transaction};
use tokio::sync::watch;
use tokio::time::sleep;

/// The wait after a failure.
const AGAIN: Duration = Duration::from_secs(5);

/// Writes the roots now and after each change, until the sender ends or the store is closed.
pub(super) async fn follow(
    store: Arc<dyn Store>,
    namespace: Arc<str>,
    name: String,
    mut published: watch::Receiver<PublishedRoots>,
) {
    let key = Key::new(GroupResource::new("", "configmaps"), namespace, name);
    loop {
        let roots = published.borrow_and_update().roots.clone();
        if let Some(roots) = roots {
            match write(&*store, &key, &roots).await {
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot write the root certificates to the store, will retry");
                    sleep(AGAIN).await;
                    continue;
                }
            }
        }
        if published.changed().await.is_err() {
            return;
        }
    }
}

async fn write(store: &dyn Store, key: &Key, roots: &str) -> Result<(), Error> {
    let stored = store.get(key).await?;
    let (mut value, expect) = match &stored {
        Some(stored) => (stored.value(), Expect::Revision(stored.revision)),
        None => (fresh(key), Expect::Absent),
    };
    if value["data"][KEY] == roots {
        return Ok(());
    }
    value["data"][KEY] = roots.into();
    let put = Operation::Put { key: key.clone(), value, expect };
    store.commit(Transaction::one(put)).await.map(drop)
}

fn fresh(key: &Key) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_unix(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now.to_string(),
            "labels": {"istio.io/config": "true"},
        },
        "data": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_roots_are_written_and_follow_changes() {
        let store = crate::file_objects::fresh_store();
        let roots = |text: &str| PublishedRoots { roots: Some(text.into()), ..PublishedRoots::default() };
        let (sender, published) = watch::channel(PublishedRoots::default());
        tokio::spawn(follow(store.clone(), "istio-system".into(), "istio-ca-root-cert".to_owned(), published));
        let key = Key::new(GroupResource::new("", "configmaps"), "istio-system", "istio-ca-root-cert");
        for text in ["one", "two"] {
            let mut watch = store.watch(&store::Scope::default(), store.revision().await.unwrap()).await.unwrap();
            sender.send_replace(roots(text));
            while !matches!(watch.next().await.unwrap(), store::WatchEvent::Changes(_)) {}
            let stored = store.get(&key).await.unwrap().unwrap().value();
            assert_eq!(stored["data"][KEY], text);
            assert_eq!(stored["metadata"]["labels"]["istio.io/config"], "true");
        }
    }
}
