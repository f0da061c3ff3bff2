//! A workload whose sidecar enforces AuthorizationPolicies, and clients with any identity that send requests byte by byte.

mod client;
mod judge;

use std::net::SocketAddr;

use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, wait_for};

pub use client::{Answer, Ask};
pub use judge::{Judge, judge_service};

use crate::objects::networking;
use crate::tls::{Authority, Identity};
use crate::{Mesh, PATIENCE, certified};

/// The host of the workload.
pub const HOST: &str = "web.test";

/// A workload with a sidecar, with an HTTP port and a TCP port.
pub struct Guarded {
    /// The control plane.
    pub mesh: Mesh,
    /// The CA of the mesh.
    pub authority: Authority,
    /// The application.
    pub backend: Backend,
    /// The sidecar.
    pub sidecar: Envoy,
    /// Its HTTP port.
    pub http: u16,
    /// Its TCP port.
    pub tcp: u16,
}

/// An AuthorizationPolicy of the namespace `test`; `spec` is YAML in flow style, without the braces.
pub fn policy(name: &str, spec: &str) -> String {
    networking("AuthorizationPolicy", name, spec).replace("networking.istio.io", "security.istio.io")
}

/// A MeshConfig object; `spec` as above.
pub fn mesh_config(spec: &str) -> String {
    format!("apiVersion: mesh.istio.io/v1alpha1\nkind: MeshConfig\nspec: {{ {spec} }}\n")
}

impl Guarded {
    /// Starts it with these additional files, and waits until the sidecar listens.
    pub async fn start(files: &[(&str, &str)]) -> Result<Guarded> {
        let (authority, backend) = (Authority::new("mesh")?, Backend::start("v1", "web").await?);
        let (http, tcp) = (free_port(), free_port());
        let ingress = ingress(http, tcp, backend.address());
        let own = [("ingress.yaml", ingress.as_str())];
        let files: Vec<(&str, &str)> = own.into_iter().chain(files.iter().copied()).collect();
        let mesh = Mesh::start(&files).await?;
        let node = Node::sidecar("web", "test", "127.0.0.1", &[("app", "web")]);
        let sidecar = certified(&mesh, node, Protocol::Delta, (&authority, "web")).await?;
        sidecar.wait_for_listener(([127, 0, 0, 1], http).into()).await?;
        sidecar.wait_for_listener(([127, 0, 0, 1], tcp).into()).await?;
        Ok(Guarded { mesh, authority, backend, sidecar, http, tcp })
    }

    /// The address of the HTTP port.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.http).into()
    }

    /// A certificate of the mesh with this SPIFFE id.
    pub fn identity(&self, id: &str) -> Result<Identity> {
        self.authority.workload(id)
    }

    /// Replaces the policies with this one, and waits until the sidecar has it. `name` must differ from those before.
    pub async fn protect(&self, name: &str, spec: &str) -> Result<()> {
        self.put(&policy(name, spec), &format!("policy[{name}]")).await
    }

    /// Replaces the policies with these objects, and waits until the sidecar's listeners contain a text.
    pub async fn put(&self, objects: &str, text: &str) -> Result<()> {
        self.mesh.config.put("policy.yaml", objects)?;
        self.has(text, true).await
    }

    /// Waits until the sidecar's listeners contain this text, or no longer do.
    pub async fn has(&self, text: &str, present: bool) -> Result<()> {
        has(&self.sidecar, text, present).await
    }
}

/// Waits until the listeners of an Envoy contain this text, or no longer do.
pub async fn has(envoy: &Envoy, text: &str, present: bool) -> Result<()> {
    let reached = || async {
        let listeners = envoy.listeners().await.ok()?;
        let found = listeners.values().any(|listener| listener.to_string().contains(text));
        (found == present).then_some(())
    };
    let what = format!("`{text}` to {} the listeners", if present { "be in" } else { "leave" });
    let result = wait_for(&what, PATIENCE, reached).await;
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error}; Envoy's log:\n{}", envoy.log()?).into()),
    }
}

/// The sidecar's own listeners. It includes no services.
fn ingress(http: u16, tcp: u16, application: SocketAddr) -> String {
    let listener = |port: u16, protocol: &str| {
        format!(
            "{{ port: {{ number: {port}, name: p-{port}, protocol: {protocol} }}, bind: 127.0.0.1, captureMode: NONE, \
             defaultEndpoint: '{application}' }}"
        )
    };
    let spec = format!(
        "workloadSelector: {{ labels: {{ app: web }} }}, egress: [{{ hosts: [nowhere/*] }}], ingress: [{}, {}]",
        listener(http, "HTTP"),
        listener(tcp, "TCP")
    );
    networking("Sidecar", "web", &spec)
}
