//! The identity of a Gateway's Envoy in the mesh: its certificate, and its connection to the TLS port of the control plane.
//!
//! ```text
//! token file ─► identity ─SDS─► Envoy ─xDS─► relay ─TLS, with the certificate─► control plane
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use agent_core::exchange::{Health, MeshRoots, Names};
use agent_core::upstream::{ClientCertificate, Roots, Upstream};
use identity::{CertificateFiles, Identity, IdentityError, KeyKind, has_certificate};
use prometheus::Registry;
use relay::{Relay, RelayError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::gateway::Gateway;
use crate::machine::Folder;

/// The interval at which the first token is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// The interval at which the certificate is checked. If it is lost or has expired, a token is needed.
const CHECK: Duration = Duration::from_secs(10);
/// The age after which a token without effect is replaced.
const TOKEN_AGE: Duration = Duration::from_mins(10);
/// The delay after the parts could not be started.
const RETRY: Duration = Duration::from_secs(5);
/// The time in which the parts end.
const END: Duration = Duration::from_secs(5);

/// The control plane at its TLS port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secure {
    /// Host and port.
    pub address: String,
    /// The name in its certificate; none for the host.
    pub server_name: Option<String>,
    /// The roots of its certificate in PEM, until the certificate authority has sent its own.
    pub roots: String,
}

/// A token is needed that proves the service account of a Gateway to the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRequest {
    /// The namespace of the service account.
    pub namespace: String,
    /// Its name.
    pub account: String,
    /// The file to which the token is written.
    pub file: PathBuf,
}

/// A part of the identity cannot start.
#[derive(Debug, thiserror::Error)]
enum MeshError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Relay(#[from] RelayError),
}

/// The identity of a Gateway's Envoy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    secure: Secure,
    cluster: String,
    pub(crate) namespace: String,
    pub(crate) account: String,
    /// The folder of its certificate and token.
    pub(crate) folder: PathBuf,
    /// The folder of Wasm modules.
    modules: PathBuf,
    /// The Unix sockets of the relay and of the SDS server.
    pub(crate) xds: PathBuf,
    pub(crate) sds: PathBuf,
}

impl Member {
    /// `file` is the name of the files of the Gateway.
    pub(crate) fn new(secure: &Secure, cluster: &str, gateway: &Gateway, folder: &Folder, file: &str) -> Member {
        Member {
            secure: secure.clone(),
            cluster: cluster.to_owned(),
            namespace: gateway.id.namespace.clone(),
            account: gateway.account.clone(),
            folder: folder.join(&format!("{file}.mesh")),
            modules: folder.join("wasm"),
            xds: folder.join(&format!("{file}.xds")),
            sds: folder.join(&format!("{file}.sds")),
        }
    }

    /// The request for a token.
    pub(crate) fn token_request(&self) -> TokenRequest {
        TokenRequest { namespace: self.namespace.clone(), account: self.account.clone(), file: self.token() }
    }

    fn token(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// Requests a token when one is needed, and removes one that is not needed any more. Never ends.
    pub(crate) async fn keep_token(&self, request: impl Fn()) {
        loop {
            if has_certificate(&self.folder) {
                // It does not exist if the certificate is older than this process.
                let _ = fs::remove_file(self.token());
            } else if self.token_age().is_none_or(|age| age > TOKEN_AGE) {
                request();
            }
            sleep(CHECK).await;
        }
    }

    fn token_age(&self) -> Option<Duration> {
        fs::metadata(self.token()).ok()?.modified().ok()?.elapsed().ok()
    }

    /// Starts the parts, and waits for the first certificate.
    pub(crate) async fn join(&self) -> Parts {
        let is_proven = || has_certificate(&self.folder) || self.token().exists();
        while !is_proven() {
            sleep(LOOK).await;
        }
        loop {
            match self.start().await {
                Ok(parts) => {
                    // The identity logs why there is none.
                    let _ = parts.identity.certificates().wait_for(Option::is_some).await;
                    return parts;
                }
                Err(error) => {
                    tracing::error!(%error, retry_after = ?RETRY, "cannot join the mesh");
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Creates the folder with the roots. A certificate of another service account is removed.
    pub(crate) fn prepare(&self) {
        if let Err(error) = self.create_folder() {
            tracing::error!(folder = %self.folder.display(), %error, "cannot prepare the folder of its certificate");
        }
    }

    fn create_folder(&self) -> io::Result<()> {
        let owner = self.folder.join("account");
        if fs::read_to_string(&owner).is_ok_and(|account| account != self.account) {
            fs::remove_dir_all(&self.folder)?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        fs::write(owner, &self.account)?;
        fs::write(CertificateFiles::of_folder(&self.folder).roots, &self.secure.roots)
    }

    async fn start(&self) -> Result<Parts, MeshError> {
        let (stop, stopped) = watch::channel(false);
        let (roots, mesh_roots) = watch::channel(MeshRoots::default());
        let (names, _) = watch::channel(Names::default());
        let (_, health) = watch::channel(Health::default());
        let registry = Registry::new();
        let identity = identity::start(self.identity()?, mesh_roots, &registry, stopped.clone()).await?;
        let defaults = relay::Settings::from_environment(&Environment::default())?;
        let wasm = relay::wasm::Settings { directory: self.modules.clone(), ..defaults.wasm };
        let settings = relay::Settings { socket: self.xds.clone(), wasm, ..defaults };
        let certificate = Some(ClientCertificate::of_folder(&self.folder));
        let upstream = Upstream { certificate, ..self.upstream() };
        let channels = relay::Channels { names, roots, health };
        let relay = relay::start(&settings, upstream, channels, &registry, stopped)?;
        Ok(Parts { identity, relay, stop })
    }

    fn identity(&self) -> Result<identity::Settings, EnvironmentError> {
        let defaults = identity::Settings::from_environment(&Environment::default(), &self.secure.address)?;
        Ok(identity::Settings {
            authority: self.upstream(),
            folder: self.folder.clone(),
            own_socket: Some(self.sds.clone()),
            // The control plane takes the names of the certificate from the proof.
            spiffe_id: format!("spiffe://cluster.local/ns/{}/sa/{}", self.namespace, self.account),
            key: KeyKind::P256,
            output: Some(self.folder.clone()),
            ..defaults
        })
    }

    fn upstream(&self) -> Upstream {
        Upstream {
            address: self.secure.address.clone(),
            roots: Roots::File(CertificateFiles::of_folder(&self.folder).roots),
            server_name: self.secure.server_name.clone(),
            certificate: None,
            token: Some(self.token()),
            cluster: self.cluster.clone(),
            headers: Vec::new(),
        }
    }
}

/// The running parts: the certificate with its SDS server, and the relay of xDS.
pub(crate) struct Parts {
    identity: Identity,
    relay: Relay,
    stop: watch::Sender<bool>,
}

impl Parts {
    /// Ends the parts, after Envoy.
    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        let ended = async {
            self.relay.stopped().await;
            self.identity.ended().await;
        };
        if timeout(END, ended).await.is_err() {
            tracing::warn!("requests of Envoy are still open; they are dropped");
        }
    }
}
