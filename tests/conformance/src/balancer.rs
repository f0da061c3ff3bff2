//! A load balancer for a cluster without a cloud: it gives an address to each Service of type `LoadBalancer`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Method};
use test_harness::run::Result;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

/// The interval at which Services are read.
const INTERVAL: Duration = Duration::from_millis(200);
/// The last byte of the first and the last address. Kubernetes gives the first 256 addresses of a range to Services only after all
/// others.
const LAST_BYTES: std::ops::Range<u8> = 20..250;

/// A running load balancer. It ends when it is dropped. The node translates the addresses, as it does for those of a real one.
pub(crate) struct Balancer {
    task: JoinHandle<()>,
    /// The address that Services may request.
    pub(crate) usable: Ipv4Addr,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Balancer {
    /// Starts it.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Balancer> {
        let plane = cluster.plane();
        let path = "/api/v1/namespaces/default/services/kubernetes";
        let service = plane.request(Method::GET, path, &Value::Null).await?.json()?;
        let first: Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap_or_default().parse()?;
        let task = tokio::spawn(async move {
            loop {
                // The API server may be busy; the next round repeats what is left.
                let _ = assign(&plane, first).await;
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(Balancer { task, usable: usable(first) })
    }
}

/// Gives addresses to the Services that have none.
async fn assign(plane: &Arc<ControlPlane>, first: Ipv4Addr) -> Result<()> {
    let list = plane.request(Method::GET, "/api/v1/services", &Value::Null).await?.json()?;
    for (path, address) in missing(&list, first) {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        plane.request(Method::PATCH, &format!("{path}/status"), &status).await?;
    }
    Ok(())
}

/// The address that Services may request.
fn usable(first: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = first.octets();
    Ipv4Addr::new(a, b, c, LAST_BYTES.end)
}

/// The paths of the Services without an address, and a free address for each.
fn missing(list: &Value, first: Ipv4Addr) -> BTreeMap<String, Ipv4Addr> {
    let services = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ingress = |service: &Value| service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned);
    let mut taken: BTreeSet<String> = services.iter().filter_map(ingress).collect();
    taken.extend(services.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).map(str::to_owned));
    let [a, b, c, _] = first.octets();
    let mut free = LAST_BYTES.map(|last| Ipv4Addr::new(a, b, c, last)).filter(|ip| !taken.contains(&ip.to_string()));
    let waiting =
        services.iter().filter(|service| service["spec"]["type"] == "LoadBalancer" && ingress(service).is_none());
    waiting
        .filter_map(|service| {
            let meta = &service["metadata"];
            let (namespace, name) = (meta["namespace"].as_str()?, meta["name"].as_str()?);
            let address = match service["spec"]["loadBalancerIP"].as_str() {
                // An address that is not one of ours is never given.
                Some(wanted) => wanted.parse().ok().filter(|wanted| *wanted == usable(first))?,
                None => free.next()?,
            };
            Some((format!("/api/v1/namespaces/{namespace}/services/{name}"), address))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_without_an_address_get_free_ones() {
        let service = |name: &str, kind: &str, ip: Option<&str>| {
            let ingress: Vec<Value> = ip.into_iter().map(|ip| json!({"ip": ip})).collect();
            json!({"metadata": {"namespace": "n", "name": name}, "spec": {"type": kind, "clusterIP": "10.97.0.21"},
                   "status": {"loadBalancer": {"ingress": ingress}}})
        };
        let list = json!({"items": [
            service("a", "LoadBalancer", Some("10.97.0.20")), service("b", "ClusterIP", None), service("c", "LoadBalancer", None),
        ]});
        let found = missing(&list, Ipv4Addr::new(10, 97, 0, 1));
        let wanted = [("/api/v1/namespaces/n/services/c".to_owned(), Ipv4Addr::new(10, 97, 0, 22))];
        assert_eq!(found, wanted.into());
    }
}
