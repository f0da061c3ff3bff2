//! A pod: an application in a network namespace, with a sidecar that captures all of its traffic.

use test_harness::run::{Envoy, Node, Protocol, Result};

use crate::{Mesh, Namespace, envoy_binary};

/// A namespace with a sidecar, and its control plane.
#[derive(Debug)]
pub struct Pod {
    /// The sidecar.
    pub envoy: Envoy,
    /// The control plane, at the other end of the namespace's only link.
    pub mesh: Mesh,
    /// The namespace in which the application runs.
    pub namespace: Namespace,
}

impl Pod {
    /// Starts a control plane with these files, and the sidecar of a pod named `front`.
    pub async fn start(namespace: Namespace, protocol: Protocol, files: &[(&str, &str)]) -> Result<Pod> {
        let mesh = Mesh::start_on(namespace.host.into(), files).await?;
        let ip = namespace.ip.to_string();
        let mut node = Node::sidecar("front", "test", &ip, &[("app", "front")]);
        node.metadata["INTERCEPTION_MODE"] = "REDIRECT".into();
        let grpc = mesh.control.grpc();
        let envoy = Envoy::start_in_namespace(envoy_binary(), &node, protocol, grpc, (&namespace.name, &ip)).await?;
        envoy.wait_for_listener(([0, 0, 0, 0], 15001).into()).await?;
        envoy.wait_for_listener(([0, 0, 0, 0], 15006).into()).await?;
        Ok(Pod { envoy, mesh, namespace })
    }

    /// The application's view of a page: status, version and server, or `nothing` without an answer.
    pub fn fetch(&self, url: &str) -> Result<String> {
        self.fetch_as(url, "")
    }

    /// As above, with another `Host` than that of the URL unless it is empty.
    pub fn fetch_as(&self, url: &str, host: &str) -> Result<String> {
        let program = format!(
            "headers = {{'Host': '{host}'}} if '{host}' else {{}}\n\
             q = urllib.request.Request('{url}', headers=headers)\n\
             try: r = urllib.request.urlopen(q, timeout=20)\n\
             except urllib.error.HTTPError as e: r = e\n\
             except OSError: r = None\n\
             print(r.status, r.headers.get('x-version'), r.headers.get('server')) if r else print('nothing')"
        );
        Ok(self.namespace.python(&program)?.trim().to_owned())
    }
}
