//! The running parts of the demo.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, Traffic, free_port, wait_for};

use super::config;
use super::operator::{Operator, Step};
use super::screen::Screen;

/// The requests per second through each proxy.
const RATE: u32 = 200;
const CONNECTIONS: u32 = 8;
/// The timeout of a change.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Stage {
    /// The Envoy program, and the variant of xDS.
    pub(super) envoy: (PathBuf, Protocol),
    pub(super) control: Control,
    pub(super) sidecar: Envoy,
    pub(super) gateway: Envoy,
    pub(super) through_sidecar: Traffic,
    pub(super) through_gateway: Traffic,
    pub(super) operator: Operator,
    service_port: u16,
    backends: Vec<Backend>,
    /// The control plane's data and the applied files. The last field, so that it is removed after its users.
    _directory: TempDir,
}

/// A completed change.
pub(super) struct Changed {
    /// The time from the request until both proxies had the change.
    pub(super) took: Duration,
    /// The equivalent command.
    pub(super) command: String,
}

impl Stage {
    /// Starts everything and waits until traffic can flow.
    pub(super) async fn start(envoy: &Path, protocol: Protocol, screen: &mut Screen) -> Result<Stage> {
        let (service_port, gateway_port) = (free_port(), free_port());
        let directory = tempfile::Builder::new().prefix("rutter-demo-").tempdir()?;
        let data = directory.path().join("data");
        let control = Control::start_with_api(&std::env::current_exe()?, &data, &[]).await?;
        let kubeconfig = control.kubeconfig().ok_or("the API has no kubeconfig")?;
        screen.say(&format!(
            "control plane: rutter serve, discovery on {} and {}",
            control.grpc(),
            control.socket().display()
        ));
        screen.say(&format!("objects:       embedded store in {}", data.display()));
        screen.say(&format!("try it:        export KUBECONFIG={}", kubeconfig.display()));
        let operator = Operator::new(kubeconfig, directory.path()).await?;
        for manifest in config::service(service_port, gateway_port) {
            operator.perform(operator.apply(&manifest)?).await?;
        }
        operator.perform(operator.apply(&config::split(10, service_port))?).await?;
        let mut backends = Vec::new();
        let instances = [("v1", "shop-v1-a"), ("v1", "shop-v1-b"), ("v2", "shop-v2-a"), ("v2", "shop-v2-b")];
        for (version, name) in instances {
            let backend = Backend::start(version, name).await?;
            let manifest = config::instance(name, version, backend.address());
            operator.perform(operator.apply(&manifest)?).await?;
            screen.say(&format!("service:       {name} on {}", backend.address()));
            backends.push(backend);
        }
        // Different addresses, so that no instance of the service is taken for the client or the gateway.
        let client = Node::sidecar("client", config::NAMESPACE, "127.0.0.2", &[("app", "client")]);
        let front = Node::gateway("gateway", config::NAMESPACE, "127.0.0.3", &[("app", "gateway")]);
        let sidecar = Envoy::start(envoy, &client, protocol, control.grpc()).await?;
        // Only the Unix socket proves which user's proxy connects, as a gateway with certificates needs.
        let gateway = Envoy::start(envoy, &front, protocol, &*control.socket()).await?;
        let (service, front) = (([127, 0, 0, 1], service_port).into(), ([127, 0, 0, 1], gateway_port).into());
        sidecar.wait_for_listener(service).await?;
        gateway.wait_for_listener(front).await?;
        screen.say(&format!("sidecar:       Envoy, the client's outbound traffic on {service}"));
        screen.say(&format!("gateway:       Envoy on {front}"));
        // The API answers before proxies have what it stored, and endpoints may overtake routes. Requests before that would fail.
        for ((version, _), backend) in instances.iter().zip(&backends) {
            let (cluster, address) = (cluster(service_port, version), backend.address().to_string());
            wait_for_endpoint([&sidecar, &gateway], &cluster, &address, true).await?;
        }
        wait_for_routes([&sidecar, &gateway], service_port).await?;
        let host = [("host", config::HOST)];
        let through_sidecar = Traffic::start(service, "/", &host, RATE, CONNECTIONS);
        let through_gateway = Traffic::start(front, "/", &host, RATE, CONNECTIONS);
        let stage = Stage {
            envoy: (envoy.to_owned(), protocol),
            control,
            sidecar,
            gateway,
            through_sidecar,
            through_gateway,
            operator,
            service_port,
            backends,
            _directory: directory,
        };
        Ok(stage)
    }

    /// Shifts the split. Returns when both proxies have it.
    pub(super) async fn shift(&self, v2: u32) -> Result<Changed> {
        let before = (versions(&self.sidecar).await?, versions(&self.gateway).await?);
        let split = config::split(v2, self.service_port);
        let step = self.operator.patch(&split, &config::shift(v2))?;
        let moved = |envoy, before: Vec<String>| async move {
            wait_for("the new route in a proxy", PATIENCE, || async {
                versions(envoy).await.ok().filter(|now| *now != before).map(drop)
            })
            .await
        };
        let both = async { tokio::try_join!(moved(&self.sidecar, before.0), moved(&self.gateway, before.1)).map(drop) };
        self.change(step, both).await
    }

    /// Starts another instance. Returns when both proxies have it.
    pub(super) async fn add(&mut self, version: &str, name: &str) -> Result<Changed> {
        let backend = Backend::start(version, name).await?;
        let manifest = config::instance(name, version, backend.address());
        let step = self.operator.apply(&manifest)?;
        let address = backend.address().to_string();
        self.backends.push(backend);
        self.change(step, self.wait_for_endpoint(version, &address, true)).await
    }

    /// Removes an instance from the configuration while it keeps running. Returns when both proxies have removed it.
    pub(super) async fn remove(&mut self, version: &str, name: &str) -> Result<Changed> {
        let address = self.backend(name)?.address();
        let step = self.operator.delete(&config::instance(name, version, address))?;
        self.change(step, self.wait_for_endpoint(version, &address.to_string(), false)).await
    }

    /// Kills the control plane, as a crash would, and restarts it over the same data.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.control.kill().await?;
        self.control.begin().await?;
        self.operator.reconnect().await
    }

    /// Waits until the status of the split reports that both proxies run its current generation. Returns a summary.
    pub(super) async fn status(&self) -> Result<String> {
        let split = config::split(0, self.service_port);
        wait_for("the status of the split", PATIENCE, || async {
            let object = self.operator.get(&split).await.ok()?;
            let (generation, proxies) = (&object["metadata"]["generation"], &object["status"]["proxies"]);
            let count = |field: &str| proxies[field].as_u64();
            let all = count("running") == Some(2) && count("total") == Some(2);
            let summary = || {
                let (running, total) = (Value::from(count("running")), Value::from(count("total")));
                format!("{running} of {total} proxies run generation {generation}")
            };
            (all && proxies["generation"] == *generation).then(summary)
        })
        .await
    }

    async fn change(&self, step: Step, reached: impl Future<Output = Result<()>>) -> Result<Changed> {
        let (command, begin) = (step.command.clone(), Instant::now());
        self.operator.perform(step).await?;
        reached.await?;
        let took = begin.elapsed();
        Ok(Changed { took, command })
    }

    pub(super) fn backend(&self, name: &str) -> Result<&Backend> {
        Ok(self.backends.iter().find(|b| b.instance() == name).ok_or("there is no such instance")?)
    }

    async fn wait_for_endpoint(&self, version: &str, address: &str, present: bool) -> Result<()> {
        let cluster = cluster(self.service_port, version);
        wait_for_endpoint([&self.sidecar, &self.gateway], &cluster, address, present).await
    }
}

/// The name of a version's cluster.
fn cluster(service_port: u16, version: &str) -> String {
    format!("outbound|{service_port}|{version}|{}", config::HOST)
}

/// Waits until the sidecar and the gateway have this endpoint in the cluster, or have it no more.
async fn wait_for_endpoint(proxies: [&Envoy; 2], cluster: &str, address: &str, present: bool) -> Result<()> {
    wait_for_both(proxies, "the instances", async |proxy| {
        let endpoints = proxy.endpoints(cluster).await.ok().flatten()?;
        Some(()).filter(|()| endpoints.iter().any(|e| e == address) == present)
    })
    .await
}

/// Waits until the sidecar and the gateway route to the clusters of both versions.
async fn wait_for_routes(proxies: [&Envoy; 2], service_port: u16) -> Result<()> {
    let clusters = ["v1", "v2"].map(|version| cluster(service_port, version));
    wait_for_both(proxies, "the routes", async |proxy| {
        let routes = proxy.routes().await.ok()?.into_values();
        let text: String = routes.map(|(_, configuration)| configuration.to_string()).collect();
        clusters.iter().all(|cluster| text.contains(cluster)).then_some(())
    })
    .await
}

/// Waits until the sidecar and the gateway have something.
async fn wait_for_both(proxies: [&Envoy; 2], what: &str, has: impl AsyncFn(&Envoy) -> Option<()>) -> Result<()> {
    let done = async |name: &str, proxy| wait_for(&format!("{what} in the {name}"), PATIENCE, || has(proxy)).await;
    let [sidecar, gateway] = proxies;
    tokio::try_join!(done("sidecar", sidecar), done("gateway", gateway))?;
    Ok(())
}

/// The versions of all route configurations of a proxy.
async fn versions(envoy: &Envoy) -> Result<Vec<String>> {
    Ok(envoy.routes().await?.into_values().map(|(version, _)| version).collect())
}
