//! An Envoy beside an agent that has the workload's certificate.

use test_agent::{Secrets, bootstrap, serve};
use test_harness::run::{Envoy, Node, Protocol, Result};
use tokio::sync::watch;

use crate::tls::Authority;
use crate::{Mesh, envoy_binary};

/// Starts an Envoy beside an agent with the certificate of a service account in the namespace `test`.
pub async fn certified(
    mesh: &Mesh,
    mut node: Node,
    protocol: Protocol,
    (authority, account): (&Authority, &str),
) -> Result<Envoy> {
    node.metadata["SERVICE_ACCOUNT"] = account.into();
    let (certificate, key) = authority.account(account)?;
    let secrets = Secrets { certificate, key, roots: authority.pem.clone(), version: 1, roots_version: 1 };
    let sds = serve(watch::Sender::new(secrets)).await?;
    Envoy::start_with(envoy_binary(), &bootstrap(node, protocol, mesh.control.grpc(), sds)).await
}
