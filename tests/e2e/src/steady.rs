//! A population of services that are never deleted. Every object contains its generation in two places, so that a proxy
//! can check that its resources were derived from complete objects, and from which. [`crate::observer`] checks this.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Method};
use test_harness::run::Result;
use tokio::sync::watch;

use crate::cluster::Namespace;

/// The population, in a namespace.
#[derive(Debug)]
pub struct Steady<'a> {
    plane: &'a ControlPlane,
    namespace: String,
    /// The number of hosts, each with a ServiceEntry, a DestinationRule and a VirtualService.
    pub hosts: usize,
}

/// The suffix of the hostnames of a population, by its namespace.
pub(crate) fn suffix(namespace: &str) -> String {
    format!(".{namespace}.steady.test")
}

/// Generations fit into a byte of an address.
const GENERATIONS: RangeInclusive<u64> = 1..=255;

impl<'a> Steady<'a> {
    /// Creates the population at generation 1.
    ///
    /// # Errors
    /// The API rejects an object.
    pub async fn create(plane: &'a ControlPlane, space: &Namespace<'_>, hosts: usize) -> Result<Steady<'a>> {
        let steady = Steady { plane, namespace: space.name().to_owned(), hosts };
        steady.make().await?;
        Ok(steady)
    }

    /// Creates it again at generation 1, after it was deleted.
    ///
    /// # Errors
    /// The API rejects an object.
    pub async fn make(&self) -> Result<()> {
        let objects = (0..self.hosts).flat_map(|host| self.objects(host, 1));
        let items: Vec<Value> = objects.map(|(kind, _, object)| with_kind(kind, object)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let arguments = ["apply", "--server-side", "--force-conflicts", "-n", &self.namespace, "-f", "-"];
        self.plane.kubectl(&arguments, &list.to_string()).await?;
        Ok(())
    }

    /// Writes one object after the other until all have this generation.
    ///
    /// # Errors
    /// The API rejects an object.
    pub async fn move_to(&self, generation: u64) -> Result<()> {
        assert!(GENERATIONS.contains(&generation), "there is no generation {generation}");
        for (_, plural, object) in (0..self.hosts).flat_map(|host| self.objects(host, generation)) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/apis/networking.istio.io/v1/namespaces/{}/{plural}/{name}", self.namespace);
            let patch = json!({"spec": object["spec"]});
            let answer = self.plane.request(Method::PATCH, &path, &patch).await?;
            if !answer.status.is_success() {
                return Err(format!("{path}: {}", answer.text()).into());
            }
        }
        Ok(())
    }

    /// Advances from `generation` until it is stopped, and ignores failures. Returns the last generation that was
    /// started.
    pub async fn move_until(&self, generation: u64, stop: &watch::Sender<bool>) -> u64 {
        let mut last = generation;
        while !*stop.borrow() && last < *GENERATIONS.end() - 1 {
            last += 1;
            // The server may be unavailable, which is what the test causes.
            let _ = self.move_to(last).await;
        }
        last
    }

    /// Kind, plural and content of each object of a host.
    fn objects(&self, host: usize, generation: u64) -> [(&'static str, &'static str, Value); 3] {
        let name = format!("h{host}");
        let dns = format!("{name}{}", suffix(&self.namespace));
        let object = |spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let endpoint = |last: u8| json!({"address": format!("10.{generation}.{host}.{last}")});
        let timeout = format!("{generation}s");
        let route = json!([{"destination": {"host": dns}}]);
        [
            (
                "ServiceEntry",
                "serviceentries",
                object(json!({
                    "exportTo": ["."], "hosts": [dns], "location": "MESH_INTERNAL", "resolution": "STATIC",
                    "ports": [{"number": 8080, "name": "http", "protocol": "HTTP"}],
                    "endpoints": [endpoint(1), endpoint(2)],
                })),
            ),
            (
                "DestinationRule",
                "destinationrules",
                object(json!({
                    "exportTo": ["."], "host": dns,
                    "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": timeout, "maxConnections": generation}}},
                })),
            ),
            (
                "VirtualService",
                "virtualservices",
                object(json!({
                    "exportTo": ["."], "hosts": [dns],
                    "http": [
                        {"match": [{"uri": {"prefix": "/first"}}], "timeout": timeout, "route": route},
                        {"timeout": timeout, "route": route},
                    ],
                })),
            ),
        ]
    }
}

fn with_kind(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = "networking.istio.io/v1".into();
    object["kind"] = kind.into();
    object
}
