//! Everything that runs in the demo.

use std::path::Path;
use std::time::{Duration, Instant};

use parts::run::{Backend, ConfigDir, Control, Envoy, Node, Protocol, Result, Traffic, free_port, wait_for};

use super::config;
use super::screen::Screen;

/// Requests a second through each proxy.
const RATE: u32 = 200;
/// Connections to each proxy.
const CONNECTIONS: u32 = 8;
/// How long a change may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// All parts, running.
pub(super) struct Stage {
    pub(super) config: ConfigDir,
    pub(super) control: Control,
    pub(super) sidecar: Envoy,
    pub(super) gateway: Envoy,
    pub(super) through_sidecar: Traffic,
    pub(super) through_gateway: Traffic,
    service_port: u16,
    backends: Vec<Backend>,
}

impl Stage {
    /// Starts everything and waits until traffic can flow.
    pub(super) async fn start(envoy: &Path, protocol: Protocol, screen: &mut Screen) -> Result<Stage> {
        let (service_port, gateway_port) = (free_port(), free_port());
        let config = ConfigDir::new()?;
        screen.say(&format!("configuration: {}", config.path().display()));
        config.put("service.yaml", &config::service(service_port, gateway_port))?;
        config.put("split.yaml", &config::split(10, service_port))?;
        let mut backends = Vec::new();
        for (version, name) in [
            ("v1", "shop-v1-a"),
            ("v1", "shop-v1-b"),
            ("v2", "shop-v2-a"),
            ("v2", "shop-v2-b"),
        ] {
            let backend = Backend::start(version, name).await?;
            config.put(
                &format!("{name}.yaml"),
                &config::instance(name, version, backend.address()),
            )?;
            screen.say(&format!("service:       {name} on {}", backend.address()));
            backends.push(backend);
        }
        let control = Control::start(&std::env::current_exe()?, config.path(), &[]).await?;
        screen.say(&format!("control plane: rutter serve, discovery on {}", control.grpc()));
        // Addresses of their own, so that no instance of the service looks like the client or the gateway.
        let client = Node::sidecar("client", config::NAMESPACE, "127.0.0.2", &[("app", "client")]);
        let front = Node::gateway("gateway", config::NAMESPACE, "127.0.0.3", &[("app", "gateway")]);
        let sidecar = Envoy::start(envoy, &client, protocol, control.grpc()).await?;
        let gateway = Envoy::start(envoy, &front, protocol, control.grpc()).await?;
        let (service, front) = (
            ([127, 0, 0, 1], service_port).into(),
            ([127, 0, 0, 1], gateway_port).into(),
        );
        sidecar.wait_for_listener(service).await?;
        gateway.wait_for_listener(front).await?;
        screen.say(&format!(
            "sidecar:       Envoy, the client's outbound traffic on {service}"
        ));
        screen.say(&format!("gateway:       Envoy on {front}"));
        let host = [("host", config::HOST)];
        let through_sidecar = Traffic::start(service, "/", &host, RATE, CONNECTIONS);
        let through_gateway = Traffic::start(front, "/", &host, RATE, CONNECTIONS);
        let stage = Stage {
            config,
            control,
            sidecar,
            gateway,
            through_sidecar,
            through_gateway,
            service_port,
            backends,
        };
        Ok(stage)
    }

    /// Shifts the split, and returns how long it took until both proxies had it.
    pub(super) async fn shift(&self, v2: u32) -> Result<Duration> {
        let before = (versions(&self.sidecar).await?, versions(&self.gateway).await?);
        let begin = Instant::now();
        self.config.put("split.yaml", &config::split(v2, self.service_port))?;
        let moved = |envoy, before: Vec<String>| async move {
            wait_for("the new route in a proxy", PATIENCE, || async {
                versions(envoy).await.ok().filter(|now| *now != before).map(drop)
            })
            .await
        };
        tokio::try_join!(moved(&self.sidecar, before.0), moved(&self.gateway, before.1))?;
        Ok(begin.elapsed())
    }

    /// Starts one more instance, and returns how long it took until both proxies knew it.
    pub(super) async fn add(&mut self, version: &str, name: &str) -> Result<Duration> {
        let backend = Backend::start(version, name).await?;
        let address = backend.address().to_string();
        let begin = Instant::now();
        self.config.put(
            &format!("{name}.yaml"),
            &config::instance(name, version, backend.address()),
        )?;
        self.backends.push(backend);
        self.wait_for_endpoint(version, &address, true).await?;
        Ok(begin.elapsed())
    }

    /// Takes an instance out of the configuration (it goes on running), and returns how long it took until both proxies
    /// had forgotten it.
    pub(super) async fn remove(&mut self, version: &str, name: &str) -> Result<Duration> {
        let address = self.backend(name)?.address().to_string();
        let begin = Instant::now();
        self.config.remove(&format!("{name}.yaml"))?;
        self.wait_for_endpoint(version, &address, false).await?;
        Ok(begin.elapsed())
    }

    /// The instance of this name.
    pub(super) fn backend(&self, name: &str) -> Result<&Backend> {
        Ok(self
            .backends
            .iter()
            .find(|b| b.instance() == name)
            .ok_or("there is no such instance")?)
    }

    /// The name of a version's cluster.
    pub(super) fn cluster(&self, version: &str) -> String {
        format!("outbound|{}|{version}|{}", self.service_port, config::HOST)
    }

    async fn wait_for_endpoint(&self, version: &str, address: &str, present: bool) -> Result<()> {
        let cluster = &self.cluster(version);
        let done = |envoy: &'static str, proxy| async move {
            wait_for(&format!("the instances in the {envoy}"), PATIENCE, || async {
                let endpoints = Envoy::endpoints(proxy, cluster).await.ok()??;
                Some(()).filter(|()| endpoints.iter().any(|e| e == address) == present)
            })
            .await
        };
        tokio::try_join!(done("sidecar", &self.sidecar), done("gateway", &self.gateway))?;
        Ok(())
    }
}

/// The versions of all route configurations of a proxy.
async fn versions(envoy: &Envoy) -> Result<Vec<String>> {
    Ok(envoy
        .routes()
        .await?
        .into_values()
        .map(|(version, _)| version)
        .collect())
}
