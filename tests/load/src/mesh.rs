//! The mesh, as files, in Rutter's own store or in a real Kubernetes, and the edits that are measured.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;
use test_harness::run::{ConfigDir, free_port};

use crate::api::Api;
use crate::cluster::Cluster;
use crate::objects::{BEGIN, NODES, Size, cluster_slice, namespace, node, node_name, pod, read};
use crate::rules;
use crate::wire::Workload;

/// Where the objects of a mesh are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Location {
    /// In a directory
    #[default]
    Files,
    /// In the embedded store; Services have no cluster IP, as users write them
    Embedded,
    /// In a real Kubernetes, with a pod for every endpoint
    Kubernetes,
}

/// A mesh and its location.
pub struct Mesh {
    place: Place,
    size: Size,
}

enum Place {
    /// A directory: a file per service, one per service's endpoints, and one with a route.
    Files(ConfigDir),
    /// The control plane's own store, behind its API at this address.
    Embedded { address: SocketAddr, api: Option<Api> },
    /// A real API server, with a pod for every endpoint.
    Cluster(Box<Cluster>),
}

impl Mesh {
    /// A mesh in this location. One in the embedded store is empty until the control plane runs ([`Mesh::fill`]).
    pub async fn at(location: Location, size: Size) -> Result<Mesh> {
        match location {
            Location::Files => Mesh::write(size),
            Location::Embedded => {
                let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
                let size = Size { cluster_ips: false, ..size };
                Ok(Mesh { place: Place::Embedded { address, api: None }, size })
            }
            Location::Kubernetes => Mesh::in_cluster(size).await,
        }
    }

    /// Writes it into a directory.
    fn write(size: Size) -> Result<Mesh> {
        let config = ConfigDir::new().map_err(anyhow::Error::from_boxed)?;
        for service in 0..size.services {
            let file = |name: String| config.path().join(name);
            fs::write(file(format!("service-{service}.yaml")), size.service(service))?;
            fs::write(file(format!("endpoints-{service}.yaml")), size.slice(service, 0))?;
        }
        fs::write(config.path().join("route.yaml"), size.split(90))?;
        fs::write(config.path().join("rules.yaml"), size.rules().join("---\n"))?;
        Ok(Mesh { place: Place::Files(config), size })
    }

    /// Fills a cluster with it, and with the pods and nodes behind it.
    async fn in_cluster(size: Size) -> Result<Mesh> {
        let cluster = Cluster::start().await?;
        let mut objects: Vec<Value> = (0..size.namespaces).map(|number| namespace(&size.namespace(number))).collect();
        // That of the policies of all workloads.
        objects.push(namespace("istio-system"));
        objects.extend((0..NODES).map(node));
        for service in 0..size.services {
            objects.push(read(&size.service(service))?);
            objects.push(cluster_slice(size, service, 0)?);
            objects.extend((0..size.endpoints).map(|endpoint| pod(size, service, endpoint)));
        }
        objects.push(read(&size.split(90))?);
        for rule in size.rules() {
            objects.push(read(&rule)?);
        }
        objects.iter_mut().enumerate().for_each(|(number, object)| {
            object["metadata"]["uid"] = format!("00000000-0000-4000-8000-{number:012}").into();
            object["metadata"]["creationTimestamp"] = BEGIN.into();
        });
        cluster.fill(&objects).await?;
        cluster
            .api()
            .witness(&[
                "/api/v1/services",
                "/apis/discovery.k8s.io/v1/endpointslices",
                "/apis/networking.istio.io/v1/virtualservices",
            ])
            .await?;
        Ok(Mesh { place: Place::Cluster(Box::new(cluster)), size })
    }

    /// Fills the embedded store of a control plane that runs with this data directory. A mesh in another location is
    /// complete already.
    pub async fn fill(&mut self, data: &Path) -> Result<()> {
        let Place::Embedded { api, .. } = &mut self.place else {
            return Ok(());
        };
        let api = &*api.insert(Api::new(&data.join("kubeconfig")).await?);
        let size = self.size;
        let services = (0..size.services).flat_map(|number| [size.service(number), size.slice(number, 0)]);
        let rules = std::iter::once(size.split(90)).chain(size.rules());
        let mut objects = services.chain(rules).map(|text| read(&text)).collect::<Result<Vec<Value>>>()?;
        objects.extend((0..NODES).map(node));
        let namespaces = (0..size.namespaces).map(|number| namespace(&size.namespace(number)));
        api.create(namespaces.collect()).await?;
        api.create(objects).await
    }

    /// Adds this many pods that belong to no service.
    pub async fn add_pods(&self, count: usize) -> Result<()> {
        let Place::Cluster(cluster) = &self.place else {
            return Ok(());
        };
        let more = Size { endpoints: count, ..self.size };
        let pods = (0..count).map(|endpoint| {
            let mut pod = pod(more, self.size.services + 100, endpoint);
            pod["metadata"]["uid"] = format!("00000000-0000-4000-9000-{endpoint:012}").into();
            pod["metadata"]["creationTimestamp"] = BEGIN.into();
            pod
        });
        cluster.fill(&pods.collect::<Vec<Value>>()).await
    }

    /// The flags with which `rutter serve` reads it.
    pub fn flags(&self, data: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let (flag, value, more) = match &self.place {
            Place::Files(config) => {
                return ["--store", "none", "--config-dir"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([text(config.path())])
                    .collect();
            }
            Place::Embedded { address, .. } => {
                let fast = ["--api-requests-per-second".to_owned(), "1000000".to_owned()];
                (
                    "--api-addr",
                    address.to_string(),
                    [&["--store".to_owned(), "embedded".to_owned()], &fast[..]].concat(),
                )
            }
            Place::Cluster(cluster) => {
                ("--kubeconfig", text(&cluster.kubeconfig()), vec!["--store".to_owned(), "kubernetes".to_owned()])
            }
        };
        [vec![flag.to_owned(), value, "--data-dir".to_owned(), text(data)], more].concat()
    }

    /// The time of the API server's last event, if there is one, since the previous call.
    pub fn told(&self) -> Option<Instant> {
        match &self.place {
            Place::Cluster(cluster) => cluster.api().told(),
            Place::Files(_) | Place::Embedded { .. } => None,
        }
    }

    /// The sidecar of an endpoint: of the second endpoint of each service in turn, then of the third, and so on. The
    /// first endpoint of a service is the one that changes. Sidecars beyond the number of endpoints share their pods.
    pub fn workload(&self, number: usize) -> Workload {
        let size = self.size;
        let (service, round) = (number % size.services, number / size.services);
        let endpoint = (1 + round % (size.endpoints - 1).max(1)) % size.endpoints;
        let instance = service * size.endpoints + endpoint;
        Workload {
            name: format!("load-{number}"),
            namespace: size.namespace(service),
            app: format!("svc-{service}"),
            ip: size.address(instance, 10),
            node: node_name(instance),
        }
    }

    /// Gives one endpoint of each of these services another address; `generation` says which.
    pub async fn change_endpoints(&self, changes: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        match &self.place {
            Place::Cluster(cluster) => {
                let slices = changes.map(|(service, generation)| cluster_slice(self.size, service, generation));
                cluster.api().change(slices.collect::<Result<Vec<Value>>>()?).await
            }
            _ => {
                for (service, generation) in changes {
                    let text = self.size.slice(service, generation);
                    self.change(&format!("endpoints-{service}"), &[text]).await?;
                }
                Ok(())
            }
        }
    }

    /// Sets the share, in percent, of one service's requests that stay with it; the others go to the next service.
    pub async fn route(&self, share: usize) -> Result<()> {
        self.change("route", &[self.size.split(share)]).await
    }

    /// Adds an EnvoyFilter that changes one cluster of all sidecars.
    pub async fn add_filter(&self) -> Result<()> {
        self.create("filter", &[rules::filter_of_all(self.size)]).await
    }

    /// Changes an AuthorizationPolicy of one service's workloads, or of all, which generation 0 adds.
    pub async fn authorize(&self, service: Option<usize>, generation: usize) -> Result<()> {
        let (name, text) = policy_file(self.size, service, generation);
        match generation {
            0 => self.create(&name, &[text]).await,
            _ => self.change(&name, &[text]).await,
        }
    }

    /// Removes an AuthorizationPolicy of [`Mesh::authorize`].
    pub async fn remove_policy(&self, service: Option<usize>) -> Result<()> {
        let (name, text) = policy_file(self.size, service, 0);
        self.remove(&name, &[text]).await
    }

    /// Adds a service with endpoints; `number` is beyond those that there are. Clients of a node-local service only call
    /// endpoints on their own node.
    pub async fn add_service(&self, number: usize, node_local: bool) -> Result<()> {
        let (mut service, slice) = (self.size.service(number), self.size.slice(number, 0));
        if node_local {
            service = service.replacen("spec:\n", "spec:\n  internalTrafficPolicy: Local\n", 1);
        }
        self.create(&format!("service-{number}"), &[service, slice]).await
    }

    /// Creates objects; as files, in one with this name.
    pub async fn create(&self, name: &str, texts: &[String]) -> Result<()> {
        match self.api()? {
            None => self.put(name, texts),
            // One after the other: a service before its endpoints.
            Some(api) => {
                for text in texts {
                    api.create(vec![read(text)?]).await?;
                }
                Ok(())
            }
        }
    }

    /// Changes objects; as files, those in the one with this name.
    pub async fn change(&self, name: &str, texts: &[String]) -> Result<()> {
        match self.api()? {
            None => self.put(name, texts),
            Some(api) => api.change(texts.iter().map(|text| read(text)).collect::<Result<Vec<Value>>>()?).await,
        }
    }

    /// Removes objects; as files, the one with this name.
    pub async fn remove(&self, name: &str, texts: &[String]) -> Result<()> {
        match (&self.place, self.api()?) {
            (_, Some(api)) => api.remove(texts.iter().map(|text| read(text)).collect::<Result<Vec<Value>>>()?).await,
            (Place::Files(config), _) => config.remove(&format!("{name}.yaml")).map_err(anyhow::Error::from_boxed),
            _ => Ok(()),
        }
    }

    /// The API that serves it; `None` for files.
    pub(crate) fn api(&self) -> Result<Option<&Api>> {
        match &self.place {
            Place::Files(_) => Ok(None),
            Place::Embedded { api, .. } => api.as_ref().context("the store is not filled yet").map(Some),
            Place::Cluster(cluster) => Ok(Some(cluster.api())),
        }
    }

    fn put(&self, name: &str, texts: &[String]) -> Result<()> {
        match &self.place {
            Place::Files(config) => {
                config.put(&format!("{name}.yaml"), &texts.join("---\n")).map_err(anyhow::Error::from_boxed)
            }
            _ => Ok(()),
        }
    }
}

fn policy_file(size: Size, service: Option<usize>, generation: usize) -> (String, String) {
    let name = service.map_or_else(|| "policy".to_owned(), |service| format!("policy-{service}"));
    (name, rules::policy(size, service, generation))
}
