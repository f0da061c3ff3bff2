//! The parts of the agent besides the supervisor of Envoy.

use std::path::PathBuf;

use agent_core::environment::{Environment, EnvironmentError};
use agent_core::exchange::{Event, Health, MeshRoots, Names};
use anyhow::Result;
use config::mesh::{PrivateKeyProvider, ProxyConfig};
use identity::{Identity, Source};
use model::tls::{KeyProvider, KeyProviderSort};
use names::NodeType;
use prometheus::Registry;
use relay::{Relay, grpc_bootstrap};
use serde_json::json;
use supervisor::Settings;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::arguments::Arguments;
use crate::discovery;
use crate::surroundings::{Fixed, Proxy};

/// The running parts.
pub(crate) struct Parts {
    identity: Identity,
    relay: Relay,
    relay_socket: PathBuf,
    status: agent_status::Running,
    dns: Option<dns_proxy::Running>,
    tasks: JoinSet<()>,
}

impl Parts {
    /// Starts the parts: the DNS proxy, the SDS server, the relay and the status port.
    ///
    /// # Errors
    /// A variable has a value that cannot be used, or a part cannot start.
    pub(crate) async fn start(
        fixed: &Fixed<'_>,
        proxy: &Proxy,
        registry: &Registry,
        (events, obstacle): (mpsc::Sender<Event>, watch::Receiver<Option<&'static str>>),
        stop: watch::Receiver<bool>,
    ) -> Result<Parts> {
        let environment = fixed.environment;
        let upstream = discovery::upstream(environment, &proxy.settings)?;
        let (names, named) = watch::channel(Names::default());
        let (roots, mesh_roots) = watch::channel(MeshRoots::default());
        let (health, healthy) = watch::channel(Health::default());

        let dns = match has_dns(environment, fixed.arguments.kind)? {
            true => {
                let settings =
                    dns_proxy::Settings::from_environment(environment, &proxy.role.namespace, &proxy.role.domain)?;
                Some(dns_proxy::start(settings, named.clone(), registry, stop.clone()).await?)
            }
            false => None,
        };
        let settings = identity::Settings {
            key_provider: key_provider(&proxy.settings),
            ..identity::Settings::from_environment(environment, &proxy.settings.discovery_address)?
        };
        let identity = identity::start(settings, mesh_roots, registry, stop.clone()).await?;
        let settings = relay::Settings { names: dns.is_some(), ..relay::Settings::from_environment(environment)? };
        let channels = relay::Channels { names, roots, health: healthy };
        let relay = relay::start(&settings, upstream, channels, registry, stop.clone())?;

        let node = agent_status::Node {
            sidecar: fixed.arguments.kind == NodeType::Sidecar,
            addresses: &proxy.role.addresses,
            status_port: port(proxy.settings.status_port),
            admin: (proxy.node.loopback(), port(proxy.settings.proxy_admin_port)).into(),
            grpc_bootstrap: grpc_bootstrap::FILE,
        };
        let status_settings = agent_status::Settings::from_environment(environment, &node)?;
        let mut tasks = JoinSet::new();
        if let Some(probe) = proxy.settings.readiness_probe.clone() {
            let (settings, stop) = (status_settings.clone(), stop.clone());
            tasks.spawn(async move { agent_status::health::check(&settings, &probe, &health, stop).await });
        }
        let channels = agent_status::Channels { names: dns.is_some().then_some(named), obstacle, events };
        let status = agent_status::start(status_settings, channels, registry, stop).await?;
        Ok(Parts { identity, relay, relay_socket: settings.socket, status, dns, tasks })
    }

    /// Whether another SDS server has the workload's certificate.
    pub(crate) fn serves_only_files(&self) -> bool {
        matches!(self.identity.source(), Source::OtherServer(_))
    }

    /// Writes the bootstrap file of gRPC applications (`GRPC_XDS_BOOTSTRAP`).
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_grpc_bootstrap(&self, proxy: &Proxy, environment: &Environment) -> Result<()> {
        let path = environment.text_or(agent_status::GRPC_BOOTSTRAP, grpc_bootstrap::FILE);
        let node = json!({
            "id": proxy.node.id,
            "metadata": proxy.node.metadata,
            "locality": proxy.node.locality.to_json(),
        });
        let certificates = environment.text("OUTPUT_CERTS").map(PathBuf::from);
        let bootstrap = grpc_bootstrap::bootstrap(node, &self.relay_socket, certificates.as_deref());
        Ok(grpc_bootstrap::write(path.as_ref(), &bootstrap)?)
    }

    /// Waits until all parts have ended.
    pub(crate) async fn ended(mut self) {
        self.status.stopped().await;
        self.relay.stopped().await;
        self.identity.ended().await;
        if let Some(dns) = self.dns {
            dns.stopped().await;
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Whether this agent answers DNS queries: a sidecar's by `ISTIO_META_DNS_CAPTURE`, another's by `ISTIO_META_ENABLE_DNS_SERVER`.
fn has_dns(environment: &Environment, kind: NodeType) -> Result<bool, EnvironmentError> {
    let captured = environment.flag("ISTIO_META_DNS_CAPTURE", false)? && kind == NodeType::Sidecar;
    Ok(captured || environment.flag("ISTIO_META_ENABLE_DNS_SERVER", false)?)
}

/// The implementation of operations with private keys, as the settings name it.
fn key_provider(settings: &ProxyConfig) -> Option<KeyProvider> {
    let (sort, settings) = match settings.private_key_provider.as_ref()? {
        PrivateKeyProvider::Cryptomb(settings) => (KeyProviderSort::Cryptomb, settings),
        PrivateKeyProvider::Qat(settings) => (KeyProviderSort::Qat, settings),
        PrivateKeyProvider::Proxy => return None,
    };
    let (poll_delay, fallback) = (settings.poll_delay.unwrap_or_default(), settings.fallback.unwrap_or_default());
    Some(KeyProvider { sort, poll_delay, fallback })
}

/// A port of the settings; their parser has checked its range.
fn port(number: i32) -> u16 {
    number.try_into().unwrap_or_default()
}

/// The settings of the supervisor.
///
/// # Errors
/// A variable has a value that cannot be used.
pub(crate) fn supervisor_settings(
    arguments: &Arguments,
    environment: &Environment,
    proxy: &Proxy,
) -> Result<Settings, EnvironmentError> {
    let settings = &proxy.settings;
    let described = supervisor::Proxy {
        binary: PathBuf::from(&*settings.binary_path),
        drain: settings.drain_duration,
        termination_drain: settings.termination_drain_duration,
        concurrency: settings.concurrency.and_then(|number| number.try_into().ok()).unwrap_or_default(),
        admin_port: port(settings.proxy_admin_port),
        file_flush_interval: settings.file_flush_interval,
        file_flush_min_size_kb: settings.file_flush_min_size_kb,
        is_sidecar: arguments.kind == NodeType::Sidecar,
        is_ipv6: proxy.node.loopback().is_ipv6(),
        log_level: arguments.log_level.clone(),
        component_log_level: arguments.component_log_level.clone(),
        is_root: nix::unistd::geteuid().is_root(),
    };
    Settings::from_environment(environment, described)
}
