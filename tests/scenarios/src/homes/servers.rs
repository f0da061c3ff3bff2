//! APIs in front of real stores.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::server::{Server, ServerOptions};
use config::schema::{crd, definitions};
use config::{AnyObject, ChangeSet, Kind, ObjectKey, ParseOptions};
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use runtime::objects::Follower;
use serde_json::{Value, json};
use sources::ChangeSender;
use sources::kubernetes::{MeshOptions, Options};
use store::Store;
use store::embedded::Embedded;
use tempfile::TempDir;
use test_harness::kubernetes::{ControlPlane, Settings};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::cluster::{Cluster, Inbox};
use super::markers::MARKER;
use super::writer::{Writer, done};
use super::{Document, Home};

/// The capacity of the channel of changes.
const QUEUE: usize = 64;
/// The range of Service addresses in scenarios.
const SERVICES: [&str; 4] = ["10.96.0.0/12", "10.0.0.0/16", "fd00::/112", "fd00:1::/112"];
/// The range for the address of the server's own Service.
const OWN_SERVICES: &str = "10.200.0.0/16,fd00:ffff::/112";

/// One API for each cluster, and its source.
pub struct Servers {
    kind: Which,
    clusters: BTreeMap<String, Cluster>,
    embedded: Vec<Local>,
    _real: Option<ControlPlane>,
    // Last, because the tasks of the fields above run in it.
    runtime: Runtime,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Store,
    Api,
    Kubernetes,
}

/// One of Rutter's APIs in this process.
struct Local {
    _follower: Option<Follower>,
    _server: Server,
    _dir: TempDir,
}

impl Servers {
    /// The embedded store behind its API, read as `rutter serve` reads its own store.
    ///
    /// # Errors
    /// It does not start.
    pub fn store() -> Result<Servers> {
        Servers::start(Which::Store)
    }

    /// The same API, read as a Kubernetes API.
    ///
    /// # Errors
    /// It does not start.
    pub fn api() -> Result<Servers> {
        Servers::start(Which::Api)
    }

    /// A real Kubernetes API server, without controllers, which would create EndpointSlices.
    ///
    /// # Errors
    /// It does not start.
    pub fn kubernetes() -> Result<Servers> {
        Servers::start(Which::Kubernetes)
    }

    fn start(kind: Which) -> Result<Servers> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut servers = Servers { kind, clusters: BTreeMap::new(), embedded: Vec::new(), _real: None, runtime };
        servers.open("")?;
        Ok(servers)
    }

    /// The cluster with this id, started on first use.
    fn open(&mut self, id: &str) -> Result<&mut Cluster> {
        if !self.clusters.contains_key(id) {
            let cluster = match self.kind {
                Which::Kubernetes if !id.is_empty() => bail!("there is one cluster only"),
                Which::Kubernetes => {
                    let (plane, cluster) = self.runtime.block_on(real())?;
                    self._real = Some(plane);
                    cluster
                }
                kind => {
                    let (local, cluster) = self.runtime.block_on(local(id, kind == Which::Store))?;
                    self.embedded.push(local);
                    cluster
                }
            };
            self.clusters.insert(id.to_owned(), cluster);
        }
        self.clusters.get_mut(id).context("it was just begun")
    }
}

impl Home for Servers {
    fn name(&self) -> &'static str {
        match self.kind {
            Which::Store => "store",
            Which::Api => "api",
            Which::Kubernetes => "kubernetes",
        }
    }

    fn edit(&mut self, puts: Vec<Document>, gone: Vec<ObjectKey>) -> Result<ChangeSet> {
        let mut change = ChangeSet::default();
        let mut by_cluster: BTreeMap<String, (Vec<Document>, Vec<ObjectKey>)> = BTreeMap::new();
        for put in puts {
            if self.kind == Which::Store && is_setting(put.key.kind) {
                setting(&put).into_iter().for_each(|object| change.upsert(object));
                continue;
            }
            by_cluster.entry(put.key.cluster.to_string()).or_default().0.push(put);
        }
        for key in gone {
            if self.kind == Which::Store && is_setting(key.kind) {
                change.delete(key);
                continue;
            }
            by_cluster.entry(key.cluster.to_string()).or_default().1.push(key);
        }
        for (id, (puts, gone)) in by_cluster {
            self.open(&id)?;
            let cluster = self.clusters.get_mut(&id).context("it was just begun")?;
            let said = self.runtime.block_on(cluster.edit(&puts, &gone))?;
            change.merge(said);
        }
        Ok(change)
    }

    fn clear(&mut self) -> Result<()> {
        for cluster in self.clusters.values_mut() {
            self.runtime.block_on(cluster.clear())?;
        }
        Ok(())
    }
}

/// Whether it is one of the mesh settings, which are not API objects.
fn is_setting(kind: Kind) -> bool {
    matches!(kind, Kind::MeshConfig | Kind::MeshNetworks)
}

/// A mesh setting, which no store has: `--mesh-config` names a file.
fn setting(document: &Document) -> Vec<AnyObject> {
    config::parse_documents(document.text.as_bytes(), "mesh", &ParseOptions::default().degrading()).objects
}

/// A store with its API, and its source.
async fn local(id: &str, as_store: bool) -> Result<(Local, Cluster)> {
    let dir = tempfile::tempdir()?;
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path(), store::embedded::Options::default()).await?);
    let api = api::Api::new(Arc::clone(&store), api::Options::default());
    let options = ServerOptions { http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), ..ServerOptions::default() };
    let server = Server::start(options, api).await?;
    let address = server.http().context("it listens")?;
    let client = Client::try_from(Config::new(format!("http://{address}").parse()?))?;
    let (follower, inbox) = if as_store {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let follower = Follower::start(store, ChangeSender::new(0, sender)).await.context("the store ended")?;
        (Some(follower), Inbox::new(receiver, None))
    } else {
        (None, follow(id, client.clone()))
    };
    let cluster = Cluster::start(id, client, inbox).await?;
    let local = Local { _follower: follower, _server: server, _dir: dir };
    Ok((local, cluster))
}

/// A real API server with Rutter's CRDs.
async fn real() -> Result<(ControlPlane, Cluster)> {
    let settings = Settings {
        controllers: false,
        api_flags: vec![format!("--service-cluster-ip-range={OWN_SERVICES}")],
        ..Settings::default()
    };
    let plane = ControlPlane::start(settings).await.map_err(anyhow::Error::from_boxed)?;
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let writer = Writer::new(client.clone());
    for (at, range) in SERVICES.into_iter().enumerate() {
        let name = format!("scenario-{at}");
        let range = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": name},
            "spec": {"cidrs": [range]},
        });
        let path = "/apis/networking.k8s.io/v1/servicecidrs";
        done(writer.send(Method::POST, path, &range).await?)?;
    }
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in definitions().iter().filter(|definition| !definition.builtin) {
        done(writer.send(Method::POST, path, &crd(definition)).await?).context(definition.kind)?;
    }
    for definition in definitions().iter().filter(|definition| !definition.builtin) {
        let path = format!("{path}/{}.{}", definition.plural, definition.group);
        let established = || async {
            let (_, found) = writer.send(Method::GET, &path, &Value::Null).await.ok()?;
            let conditions = found["status"]["conditions"].as_array()?;
            let established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
            conditions.iter().any(established).then_some(())
        };
        test_harness::run::wait_for("a definition to be established", std::time::Duration::from_secs(60), established)
            .await
            .map_err(anyhow::Error::from_boxed)?;
    }
    let inbox = follow("", client.clone());
    let cluster = Cluster::start("", client, inbox).await?;
    Ok((plane, cluster))
}

/// Reads an API as a Kubernetes API.
fn follow(id: &str, client: Client) -> Inbox {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (report, reports) = watch::channel(sources::kubernetes::Report::default());
    let options = Options {
        cluster: id.into(),
        credentials: true,
        mesh: id.is_empty().then(|| MeshOptions {
            namespace: MARKER.to_owned(),
            name: MARKER.to_owned(),
            shared: None,
            file: None,
        }),
        ..Options::new(client)
    };
    tokio::spawn(sources::kubernetes::follow(options, ChangeSender::new(0, sender), report));
    Inbox::new(receiver, Some(reports))
}
