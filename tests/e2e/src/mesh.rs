//! A control plane with its own directory of files.

use std::net::IpAddr;
use std::time::Duration;

use test_harness::run::{ConfigDir, Control, Envoy, Node, Protocol, Result, wait_for};

use crate::{envoy_binary, rutter_binary};

/// The maximum time for a change on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A control plane and the directory that it watches.
#[derive(Debug)]
pub struct Mesh {
    /// The directory.
    pub config: ConfigDir,
    /// The control plane.
    pub control: Control,
}

impl Mesh {
    /// Starts a control plane with these files.
    pub async fn start(files: &[(&str, &str)]) -> Result<Mesh> {
        Mesh::start_on([127, 0, 0, 1].into(), files).await
    }

    /// As above, with these flags.
    pub async fn start_with(files: &[(&str, &str)], flags: &[&str]) -> Result<Mesh> {
        Mesh::launch([127, 0, 0, 1].into(), files, flags).await
    }

    /// As above, listening on this address of the machine.
    pub async fn start_on(ip: IpAddr, files: &[(&str, &str)]) -> Result<Mesh> {
        Mesh::launch(ip, files, &[]).await
    }

    async fn launch(ip: IpAddr, files: &[(&str, &str)], flags: &[&str]) -> Result<Mesh> {
        let config = ConfigDir::new()?;
        for (name, text) in files {
            config.put(name, text)?;
        }
        let control = Control::start_on(ip, rutter_binary(), config.path(), flags).await?;
        Ok(Mesh { config, control })
    }

    /// Starts an Envoy that connects to it.
    pub async fn envoy(&self, node: &Node, protocol: Protocol) -> Result<Envoy> {
        Envoy::start(envoy_binary(), node, protocol, self.control.grpc()).await
    }

    /// Starts an Envoy that connects to its Unix socket, over which it receives secrets.
    pub async fn local_envoy(&self, node: &Node, protocol: Protocol) -> Result<Envoy> {
        Envoy::start(envoy_binary(), node, protocol, &*self.control.socket()).await
    }

    /// Starts a gateway proxy of the Gateway `edge` of the Gateway API, and waits until it listens at these ports.
    pub async fn edge(&self, protocol: Protocol, ports: &[u16]) -> Result<Envoy> {
        let labels = [("gateway.networking.k8s.io/gateway-name", "edge")];
        let envoy = self.local_envoy(&Node::gateway("edge", "test", "127.0.0.3", &labels), protocol).await?;
        for port in ports {
            envoy.wait_for_listener(([0, 0, 0, 0], *port).into()).await?;
        }
        Ok(envoy)
    }

    /// Writes a file, and waits until the proxy has other routes than before.
    pub async fn reroute(&self, envoy: &Envoy, file: &str, text: &str) -> Result<()> {
        let before = envoy.routes().await?;
        self.config.put(file, text)?;
        let changed = || async { envoy.routes().await.ok().filter(|now| *now != before).map(drop) };
        wait_for("other routes in Envoy", PATIENCE, changed).await
    }

    /// Waits until the proxy's cluster has exactly these endpoints.
    pub async fn wait_for_endpoints(&self, envoy: &Envoy, cluster: &str, endpoints: &[String]) -> Result<()> {
        let mut wanted = endpoints.to_vec();
        wanted.sort();
        let reached = || async { envoy.endpoints(cluster).await.ok().flatten().filter(|now| *now == wanted).map(drop) };
        let result = wait_for(&format!("{wanted:?} in {cluster}"), PATIENCE, reached).await;
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; there are {:?}", envoy.endpoints(cluster).await?).into()),
        }
    }

    /// Waits until `/debug/syncz` contains (or no longer contains) this text.
    pub async fn wait_for_syncz(&self, text: &str, present: bool) -> Result<()> {
        let what = format!("`{text}` to {} syncz", if present { "appear in" } else { "leave" });
        let reached = || async {
            let page = self.control.debug("/debug/syncz").await.ok()?.text();
            Some(()).filter(|()| page.contains(text) == present)
        };
        wait_for(&what, PATIENCE, reached).await
    }
}
