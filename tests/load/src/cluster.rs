//! The mesh in a real Kubernetes: written into its etcd, changed through its API.
//!
//! Creating fifty thousand pods through the API takes a hundred thousand writes, longer than all measurements. They are
//! written into etcd in JSON, as the API server would store them. It reads them from there at startup and serves them
//! like all others. The measured path is complete: a request to the API server, its watch, the control plane, the
//! proxies.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::schema::{crd, definitions};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Settings};
use test_harness::run::wait_for;

use crate::api::{Api, kind_of, part, path_of};

/// The number of objects in one transaction of etcd; the limit is 128.
const TOGETHER: usize = 100;
/// The maximum time until the API server serves all objects.
const PATIENCE: Duration = Duration::from_secs(120);

/// A real API server with a mesh.
pub struct Cluster {
    plane: ControlPlane,
    api: Api,
    etcd: Client,
}

impl Cluster {
    /// Starts an empty API server with Rutter's CRDs.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start() -> Result<Cluster> {
        let settings = Settings { controllers: false, ..Settings::default() };
        let plane = ControlPlane::start(settings).await.map_err(anyhow::Error::from_boxed)?;
        let api = Api::new(&plane.kubeconfig()).await?;
        let cluster = Cluster { etcd: Client::try_from(Config::new(plane.etcd_endpoint().parse()?))?, api, plane };
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for definition in definitions().iter().filter(|definition| !definition.builtin) {
            cluster.api.send("POST", path, &crd(definition)).await?;
        }
        cluster.is_warm().await?;
        Ok(cluster)
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    /// A client of its API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Writes objects into etcd, and waits until the API server has the last of each kind.
    pub async fn fill(&self, objects: &[Value]) -> Result<()> {
        let transactions = objects.chunks(TOGETHER).map(|objects| {
            let puts = objects.iter().map(|object| {
                let key = stored_at(object)?;
                let value = STANDARD.encode(object.to_string());
                anyhow::Ok(json!({"request_put": {"key": STANDARD.encode(key), "value": value}}))
            });
            puts.collect::<Result<Vec<Value>>>().map(|puts| json!({"success": puts}))
        });
        let transactions = transactions.collect::<Result<Vec<Value>>>()?;
        stream::iter(transactions)
            .map(|transaction| async move {
                let request = Request::post("/v3/kv/txn").header("content-type", "application/json");
                let answer = self.etcd.request_text(request.body(transaction.to_string().into_bytes())?).await?;
                anyhow::ensure!(answer.contains("\"succeeded\":true"), "etcd: {answer}");
                anyhow::Ok(())
            })
            .buffer_unordered(4)
            .try_collect::<Vec<()>>()
            .await?;
        // A read without a revision is answered from the API server's cache, which lags behind etcd for a while.
        let mut last = BTreeMap::new();
        for object in objects {
            last.insert(kind_of(object)?, object);
        }
        for object in last.into_values() {
            let path = format!("{}?resourceVersion=0", path_of(object, true)?);
            self.answers(&path).await?;
        }
        Ok(())
    }

    /// Waits until every kind is served from the API server's cache.
    async fn is_warm(&self) -> Result<()> {
        for definition in definitions().iter().filter(|definition| !definition.builtin) {
            let version = definition.versions[0].version;
            let path = format!("/apis/{}/{version}/{}", definition.group, definition.plural);
            self.answers(&format!("{path}?resourceVersion=0&limit=1")).await?;
        }
        Ok(())
    }

    async fn answers(&self, path: &str) -> Result<()> {
        let there = || async { self.api.send("GET", path, &Value::Null).await.is_ok().then_some(()) };
        wait_for(&format!("the API server to answer {path}"), PATIENCE, there).await.map_err(anyhow::Error::from_boxed)
    }
}

/// The key under which an API server stores an object.
fn stored_at(object: &Value) -> Result<String> {
    let (group, _, plural) = kind_of(object)?;
    let place = match (group, plural) {
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("" | "discovery.k8s.io", plural) => plural.to_owned(),
        (group, plural) => format!("{group}/{plural}"),
    };
    let namespace = match part(object, "/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/{namespace}"),
    };
    Ok(format!("/registry/{place}{namespace}/{}", part(object, "/metadata/name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_paths_equal_those_of_kubernetes() -> Result<()> {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(stored_at(&service)?, "/registry/services/specs/n/a");
        assert_eq!(path_of(&service, true)?, "/api/v1/namespaces/n/services/a");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        assert_eq!(stored_at(&node)?, "/registry/minions/a");
        let route = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(stored_at(&route)?, "/registry/networking.istio.io/virtualservices/n/a");
        assert_eq!(path_of(&route, false)?, "/apis/networking.istio.io/v1/namespaces/n/virtualservices");
        Ok(())
    }
}
