//! Workloads with certificates that Rutter's own authority signed. Each joins with a token, requests a certificate for its key
//! over the TLS port, and renews it with the one it has. Its sidecar receives both over SDS, and connects to the TLS port with
//! them.

use std::net::IpAddr;
use std::ops::Deref;

use tempfile::TempDir;
use test_agent::{Secrets, bootstrap, over_tls, serve};
use test_harness::run::{ConfigDir, Control, Envoy, Node, Protocol, Result, wait_for};
use tokio::sync::watch;

use crate::pair::Plan;
use crate::secure::{Client, Key, Proof};
use crate::tls::Identity;
use crate::{Mesh, PATIENCE, Pair, done, envoy_binary, rutter_binary};

/// The name of the control plane in its certificate.
pub const ISTIOD: &str = "istiod.istio-system.svc";

/// A client and a server `web`, with certificates of Rutter.
pub struct Issued {
    pair: Pair,
    /// The server's workload.
    pub web: Member,
    /// The client's workload.
    pub caller: Member,
    /// The data directory of the control plane.
    pub data: TempDir,
}

impl Deref for Issued {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

impl Issued {
    /// Starts them with these additional files and flags, and waits until both sidecars listen. The server uses the protocol of
    /// the service's port (`HTTP`, `TCP`, ...).
    pub async fn start(protocol: Protocol, speaks: &str, files: &[(&str, &str)], flags: &[&str]) -> Result<Issued> {
        let (plan, data) = (Plan::new(speaks).await?, tempfile::tempdir()?);
        let mesh = start(&plan.with(files), &data, flags).await?;
        let web = Member::join(&mesh.control, "test", "web").await?;
        let caller = Member::join(&mesh.control, "test", "client").await?;
        let server = web.envoy(&mesh.control, Plan::node("web"), protocol).await?;
        let client = caller.envoy(&mesh.control, Plan::node("client"), protocol).await?;
        let pair = plan.run(mesh, server, client).await?;
        web.is_used_by(&pair.server).await?;
        caller.is_used_by(&pair.client).await?;
        Ok(Issued { pair, web, caller, data })
    }

    /// Renews the server's certificate, and waits until its sidecar uses it.
    pub async fn renew_web(&self) -> Result<()> {
        self.web.renew(&self.pair.mesh.control).await?;
        self.web.is_used_by(&self.pair.server).await
    }

    /// Renews the client's certificate, and waits until its sidecar uses it.
    pub async fn renew_caller(&self) -> Result<()> {
        self.caller.renew(&self.pair.mesh.control).await?;
        self.caller.is_used_by(&self.pair.client).await
    }

    /// Gives the server's sidecar another certificate, and waits until it uses it.
    pub async fn present(&self, identity: &Identity) -> Result<()> {
        self.web.present(identity);
        self.web.is_used_by(&self.pair.server).await
    }

    /// The roots that the control plane publishes.
    pub async fn root(&self) -> Result<String> {
        root(&self.pair.mesh.control).await
    }
}

/// Starts a control plane with a store, which has an authority and join tokens, and with files of objects.
pub async fn start(files: &[(&str, &str)], data: &TempDir, flags: &[&str]) -> Result<Mesh> {
    start_on([127, 0, 0, 1].into(), files, data, flags).await
}

/// As above, listening on this address of the machine.
pub async fn start_on(ip: IpAddr, files: &[(&str, &str)], data: &TempDir, flags: &[&str]) -> Result<Mesh> {
    let config = ConfigDir::new()?;
    for (name, text) in files {
        config.put(name, text)?;
    }
    let directory = config.path().display().to_string();
    let own = ["--store", "embedded", "--config-dir", &directory];
    let control = Control::start_with_api_on(ip, rutter_binary(), data.path(), &[&own[..], flags].concat()).await?;
    Ok(Mesh { config, control })
}

/// The roots that a control plane publishes.
pub async fn root(control: &Control) -> Result<String> {
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let read = || async { done(&kubeconfig, &["ca", "root"], "").await.ok() };
    wait_for("the root certificate", PATIENCE, read).await
}

/// Creates a join token.
pub async fn token(control: &Control, namespace: &str, account: &str) -> Result<String> {
    let kubeconfig = control.kubeconfig().ok_or("no kubeconfig")?;
    let arguments = ["token", "create", "-n", namespace, "--service-account", account];
    Ok(done(&kubeconfig, &arguments, "").await?.trim().to_owned())
}

/// Connects to the TLS port, and verifies the server by these roots and this name.
pub async fn connect(
    control: &Control,
    (roots, name): (&str, &str),
    certified: Option<(&str, &str)>,
) -> Result<Client> {
    let connect = || async { Client::connect(control.secure(), (roots, name), certified).await.ok() };
    match wait_for("a connection to the TLS port", PATIENCE, connect).await {
        Ok(client) => Ok(client),
        Err(error) => Err(format!("{error}; {}", control.log_end()?).into()),
    }
}

/// A workload with a certificate, as its agent has it.
pub struct Member {
    account: String,
    /// The name of the control plane in its certificate.
    istiod: String,
    secrets: watch::Sender<Secrets>,
}

impl Member {
    /// Joins as a service account: gets a token, and with it a certificate.
    pub async fn join(control: &Control, namespace: &str, account: &str) -> Result<Member> {
        let (roots, token) = (root(control).await?, token(control, namespace, account).await?);
        Member::prove(control, (ISTIOD, &roots), Proof::token(&token), account).await
    }

    /// Gets a certificate as a service account with other credentials, from a control plane with this name and these roots.
    pub async fn prove(
        control: &Control,
        (istiod, roots): (&str, &str),
        proof: Proof<'_>,
        account: &str,
    ) -> Result<Member> {
        let key = Key::new()?;
        let client = connect(control, (roots, istiod), None).await?;
        let chain = client.create(proof, &key.request(&[])?, &[]).await??;
        let secrets = watch::Sender::new(Secrets::issued(chain, &key, None)?);
        Ok(Member { account: account.to_owned(), istiod: istiod.to_owned(), secrets })
    }

    /// Gets a certificate for a new key with the current one, and gives both to the sidecar, with the roots that came with it.
    pub async fn renew(&self, control: &Control) -> Result<()> {
        let (old, key) = (self.secrets.borrow().clone(), Key::new()?);
        let client = connect(control, (&old.roots, &self.istiod), Some((&old.certificate, &old.key))).await?;
        let chain = client.create(Proof::default(), &key.request(&[])?, &[]).await??;
        self.secrets.send_replace(Secrets::issued(chain, &key, Some(&old))?);
        Ok(())
    }

    /// Gives another certificate to the sidecar.
    pub fn present(&self, (certificate, key): &Identity) {
        self.secrets.send_modify(|secrets| {
            (secrets.certificate, secrets.key) = (certificate.clone(), key.clone());
            secrets.version += 1;
        });
    }

    /// The certificate chain and the key.
    pub fn identity(&self) -> Identity {
        let secrets = self.secrets.borrow();
        (secrets.certificate.clone(), secrets.key.clone())
    }

    /// The roots.
    pub fn roots(&self) -> String {
        self.secrets.borrow().roots.clone()
    }

    /// Starts an Envoy of this workload, which connects to the TLS port.
    pub async fn envoy(&self, control: &Control, mut node: Node, protocol: Protocol) -> Result<Envoy> {
        node.metadata["SERVICE_ACCOUNT"] = self.account.as_str().into();
        let sds = serve(self.secrets.clone()).await?;
        let bootstrap = over_tls(bootstrap(node, protocol, control.secure(), sds), &self.istiod);
        Envoy::start_with(envoy_binary(), &bootstrap).await
    }

    /// Waits until an Envoy uses the current secrets.
    pub async fn is_used_by(&self, envoy: &Envoy) -> Result<()> {
        let (version, roots) = {
            let secrets = self.secrets.borrow();
            (secrets.version.to_string(), secrets.roots_version.to_string())
        };
        let used = || async {
            let secrets = envoy.dump("dynamic_active_secrets").await.ok()?;
            let has = |name: &str, version: &str| {
                secrets.iter().any(|one| one["name"] == name && one["version_info"] == version)
            };
            (has("default", &version) && has("ROOTCA", &roots)).then_some(())
        };
        match wait_for(&format!("the secrets {version} of {}", self.account), PATIENCE, used).await {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; Envoy's log:\n{}", envoy.log()?).into()),
        }
    }
}
