//! The agent in a pod: it requests a certificate with the token of the pod's service account, and serves it to the sidecar.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use test_agent::client::{Client, Key, Proof};
use test_agent::{Secrets, serve_at};
use test_harness::run::{Result, wait_for};
use tokio::sync::watch;

/// The port on loopback at which the sidecar gets its certificate.
pub(super) const SDS_PORT: u16 = 15018;
const SECURE_PORT: u16 = 15012;
/// The files that a pod mounts.
const TOKEN: &str = "/var/run/secrets/tokens/istio-token";
const ROOTS: &str = "/var/run/secrets/istio/root-cert.pem";
const PATIENCE: Duration = Duration::from_secs(60);

/// Gets a certificate from the control plane with this name, and serves it. The demonstration ends long before the
/// certificate does, so it is not renewed.
pub(super) async fn run(istiod: &str) -> Result<()> {
    let (token, roots) = (std::fs::read_to_string(TOKEN)?, std::fs::read_to_string(ROOTS)?);
    let key = Key::new()?;
    let issued = || async { certificate(istiod, &roots, token.trim(), &key).await.ok() };
    let secrets = match wait_for("a certificate", PATIENCE, issued).await {
        Ok(secrets) => secrets,
        // The reason of one more attempt.
        Err(_) => certificate(istiod, &roots, token.trim(), &key).await?,
    };
    serve_at(SocketAddr::from((Ipv4Addr::LOCALHOST, SDS_PORT)), watch::Sender::new(secrets)).await?;
    super::actors::ended().await
}

async fn certificate(istiod: &str, roots: &str, token: &str, key: &Key) -> Result<Secrets> {
    let mut addresses = (istiod, SECURE_PORT).to_socket_addrs()?;
    let address = addresses.next().ok_or("the control plane has no address")?;
    let client = Client::connect(address, (roots, istiod), None).await?;
    let chain = client.create(Proof::token(token), &key.request(&[])?, &[]).await??;
    Secrets::issued(chain, key, None)
}
