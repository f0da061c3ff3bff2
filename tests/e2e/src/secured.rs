//! Two workloads with sidecars that have certificates of a CA of the test.

use std::ops::Deref;

use test_harness::run::{Protocol, Result};

use crate::objects::networking;
use crate::pair::Plan;
pub use crate::pair::{Pair, WEB, said};
use crate::tls::Authority;
use crate::{Mesh, certified};

/// Two workloads whose sidecars have certificates of one CA.
pub struct Secured {
    /// The CA that signed the certificates.
    pub authority: Authority,
    pair: Pair,
}

impl Deref for Secured {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

impl Secured {
    /// Starts them with these additional files, and waits until both sidecars listen. The server uses the protocol of
    /// the service's port (`HTTP`, `TCP`, ...).
    pub async fn start(protocol: Protocol, speaks: &str, files: &[(&str, &str)]) -> Result<Secured> {
        let (authority, plan) = (Authority::new("mesh")?, Plan::new(speaks).await?);
        let mesh = Mesh::start(&plan.with(files)).await?;
        let server = certified(&mesh, Plan::node("web"), protocol, (&authority, "web")).await?;
        let client = certified(&mesh, Plan::node("client"), protocol, (&authority, "client")).await?;
        Ok(Secured { authority, pair: plan.run(mesh, server, client).await? })
    }
}

/// A PeerAuthentication of the namespace; `spec` is YAML in flow style, without the braces.
pub fn peers(name: &str, spec: &str) -> String {
    networking("PeerAuthentication", name, spec).replace("networking.istio.io", "security.istio.io")
}
