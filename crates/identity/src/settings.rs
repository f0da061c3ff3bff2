//! The settings of the workload's identity, from the environment. Names and defaults are those of Istio's agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use agent_core::upstream::{Roots, TOKEN_FILE, Upstream, headers};
use model::tls::KeyProvider;

/// The folder of the SDS socket, relative to the agent's directory.
const SOCKETS: &str = "var/run/secrets/workload-spiffe-uds";
/// The socket of the SDS server that serves only files, because another server has the workload's certificate.
const FILES_SOCKET: &str = "var/run/secrets/credential-uds/files-socket";
/// The name of the agent's own socket.
const SOCKET: &str = "socket";
/// The folder of certificates that the platform mounts.
const WORKLOAD_CREDENTIALS: &str = "var/run/secrets/workload-spiffe-credentials";
/// The folder of certificates that the user mounts.
const MOUNTED: &str = "etc/certs";
/// The revocation list of the mesh's certificate authority.
const CRL: &str = "var/run/secrets/istio/crl/ca-crl.pem";
/// The port on which a control plane serves without TLS.
const PLAIN_TEXT_PORT: &str = ":15010";

/// The value of CA_PROVIDER for certificates that Google's platform mounts.
const GKE: &str = "GkeWorkloadCertificate";

/// The kind and size of private keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// RSA with 2048 bits.
    Rsa2048,
    /// RSA with 3072 bits.
    Rsa3072,
    /// RSA with 4096 bits.
    Rsa4096,
    /// ECDSA with the curve P-256.
    P256,
    /// ECDSA with the curve P-384.
    P384,
}

/// The paths of a certificate chain, its private key, and the roots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The trust roots.
    pub roots: PathBuf,
}

impl CertificateFiles {
    fn within(folder: &Path, [chain, key, roots]: [&str; 3]) -> CertificateFiles {
        CertificateFiles { chain: folder.join(chain), key: folder.join(key), roots: folder.join(roots) }
    }

    /// The usual names in a folder: `cert-chain.pem`, `key.pem` and `root-cert.pem`.
    #[must_use]
    pub fn of_folder(folder: &Path) -> CertificateFiles {
        CertificateFiles::within(folder, ["cert-chain.pem", "key.pem", "root-cert.pem"])
    }

    /// Whether all three exist.
    pub(crate) fn exist(&self) -> bool {
        [&self.chain, &self.key, &self.roots].iter().all(|path| path.exists())
    }
}

/// The settings of the workload's identity.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The certificate authority, and how the agent connects to it.
    pub authority: Upstream,
    /// The agent's directory, to which the fixed paths of sockets and certificates are relative.
    pub folder: PathBuf,
    /// The path of the agent's own SDS socket, if it is not the usual one in the folder.
    pub own_socket: Option<PathBuf>,
    /// The SPIFFE ID that is requested.
    pub spiffe_id: String,
    /// The kind of new keys.
    pub key: KeyKind,
    /// Whether keys are written as PKCS#8, not in the form that is specific to their kind.
    pub pkcs8: bool,
    /// The requested lifetime of certificates.
    pub lifetime: Duration,
    /// The share of the lifetime that remains when a certificate is renewed.
    pub grace: f64,
    /// The largest random deviation from `grace`.
    pub jitter: f64,
    /// The signer that the certificate authority is asked for; empty for its default.
    pub signer: String,
    /// The folder to which certificates are written.
    pub output: Option<PathBuf>,
    /// The permissions of written files.
    pub output_mode: u32,
    /// The folder of the certificate with which the agent authenticates at the certificate authority.
    pub provisioned: Option<PathBuf>,
    /// The files that are used instead of a certificate authority.
    pub mounted: Option<CertificateFiles>,
    /// Whether the agent does not start without them.
    pub requires_mounted: bool,
    /// The name of the SDS socket that proxies use. A name other than `socket` requires another SDS server.
    pub socket_file: String,
    /// The time between a change of a file and its reading.
    pub debounce: Duration,
    /// Whether the revocation list of the mesh is sent to proxies.
    pub revocation: bool,
    /// Whether an SDS server runs.
    pub serve: bool,
    /// The provider of operations with private keys. It is not in the environment, but in the ProxyConfig.
    pub key_provider: Option<KeyProvider>,
}

impl Settings {
    /// Reads the settings. `discovery` is the address of the control plane, the default for the certificate authority.
    ///
    /// # Errors
    /// A variable has a value that is not supported, or variables contradict each other.
    pub fn from_environment(environment: &Environment, discovery: &str) -> Result<Settings, EnvironmentError> {
        let folder = PathBuf::from(".");
        let path = |name: &str| environment.text(name).map(PathBuf::from);
        let provisioned = path("PROV_CERT");
        let mounted = mounted(environment, &folder)?;
        let authority = authority(environment, discovery, provisioned.as_deref())?;
        check_provider(environment, &authority.address)?;
        if provisioned.is_some() && mounted.is_some() {
            let remedy = "remove it, or FILE_MOUNTED_CERTS: certificates are either requested or mounted";
            return Err(environment.wrong("PROV_CERT", remedy));
        }
        let text = |name, default| environment.text_or(name, default).to_owned();
        let socket_file = text("WORKLOAD_IDENTITY_SOCKET_FILE", SOCKET);
        if Path::new(&socket_file).file_name().is_none_or(|name| name != socket_file.as_str()) {
            return Err(environment.wrong("WORKLOAD_IDENTITY_SOCKET_FILE", "give the name of a file, without a folder"));
        }
        let trust_domain = environment.text_or("TRUST_DOMAIN", "cluster.local");
        let [namespace, account] = ["POD_NAMESPACE", "SERVICE_ACCOUNT"].map(|name| environment.text_or(name, ""));
        let in_kubernetes = environment.text("KUBERNETES_SERVICE_HOST").is_some();
        Ok(Settings {
            authority,
            folder,
            own_socket: None,
            spiffe_id: format!("spiffe://{trust_domain}/ns/{namespace}/sa/{account}"),
            key: key_kind(environment)?,
            pkcs8: environment.flag("PKCS8_KEY", false)?,
            lifetime: environment.duration("SECRET_TTL", Duration::from_hours(24))?,
            grace: share(environment, "SECRET_GRACE_PERIOD_RATIO", 0.5)?,
            jitter: share(environment, "SECRET_GRACE_PERIOD_RATIO_JITTER", 0.01)?,
            signer: text("ISTIO_META_CERT_SIGNER", ""),
            output: path("OUTPUT_CERTS"),
            // In a pod, other containers with other users read them.
            output_mode: if in_kubernetes { 0o644 } else { 0o600 },
            provisioned,
            mounted,
            requires_mounted: environment.text("CA_PROVIDER") == Some(GKE),
            socket_file,
            debounce: environment.duration("FILE_DEBOUNCE_DURATION", Duration::from_millis(100))?,
            revocation: environment.flag("PILOT_ENABLE_CA_CRL", true)?,
            serve: !environment.flag("DISABLE_ENVOY", false)?,
            key_provider: None,
        })
    }

    /// The socket that proxies use.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.own_socket.clone().unwrap_or_else(|| self.folder.join(SOCKETS).join(&self.socket_file))
    }

    /// Whether proxies use the agent's own socket, unless another server listens on it.
    pub(crate) fn has_own_socket(&self) -> bool {
        self.socket_file == SOCKET
    }

    /// The agent's own socket; with `files_only`, the one of a server that serves only files.
    pub(crate) fn own_socket(&self, files_only: bool) -> PathBuf {
        match &self.own_socket {
            _ if files_only => self.folder.join(FILES_SOCKET),
            Some(socket) => socket.clone(),
            None => self.folder.join(SOCKETS).join(SOCKET),
        }
    }

    /// The certificates that the platform mounts.
    pub(crate) fn workload_credentials(&self) -> CertificateFiles {
        CertificateFiles::of_folder(&self.folder.join(WORKLOAD_CREDENTIALS))
    }

    /// The well-known files of `etc/certs`. They are no source if the agent itself writes them.
    pub(crate) fn well_known(&self) -> Option<CertificateFiles> {
        let folder = self.folder.join(MOUNTED);
        let same = |output: &PathBuf| match (output.canonicalize(), folder.canonicalize()) {
            (Ok(output), Ok(folder)) => output == folder,
            _ => *output == folder,
        };
        (!self.output.as_ref().is_some_and(same)).then(|| CertificateFiles::of_folder(&folder))
    }

    /// The revocation list, if there is one. Envoy follows the file itself, so the path must stay the same when a mounted volume
    /// is updated: links are not resolved.
    pub(crate) fn crl(&self) -> Option<PathBuf> {
        let path = self.folder.join(CRL);
        (self.revocation && path.exists()).then(|| std::path::absolute(&path).unwrap_or(path))
    }
}

fn share(environment: &Environment, name: &str, default: f64) -> Result<f64, EnvironmentError> {
    let share = environment.parsed(name, default)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(environment.wrong(name, "give a number from 0 to 1")) }
}

fn key_kind(environment: &Environment) -> Result<KeyKind, EnvironmentError> {
    match environment.text("ECC_SIGNATURE_ALGORITHM") {
        None => match environment.parsed("WORKLOAD_RSA_KEY_SIZE", 2048)? {
            2048 => Ok(KeyKind::Rsa2048),
            3072 => Ok(KeyKind::Rsa3072),
            4096 => Ok(KeyKind::Rsa4096),
            _ => Err(environment.wrong("WORKLOAD_RSA_KEY_SIZE", "give 2048, 3072 or 4096")),
        },
        Some("ECDSA") => match environment.text_or("ECC_CURVE", "P256") {
            "P256" => Ok(KeyKind::P256),
            "P384" => Ok(KeyKind::P384),
            _ => Err(environment.wrong("ECC_CURVE", "give P256 or P384")),
        },
        Some(_) => Err(environment.wrong("ECC_SIGNATURE_ALGORITHM", "give ECDSA, or remove it for RSA keys")),
    }
}

/// The mounted files that replace the certificate authority.
fn mounted(environment: &Environment, folder: &Path) -> Result<Option<CertificateFiles>, EnvironmentError> {
    if environment.text("CA_PROVIDER") == Some(GKE) {
        let names = ["certificates.pem", "private_key.pem", "ca_certificates.pem"];
        return Ok(Some(CertificateFiles::within(&folder.join(WORKLOAD_CREDENTIALS), names)));
    }
    if !environment.flag("FILE_MOUNTED_CERTS", false)? {
        return Ok(None);
    }
    let variables = ["TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT"];
    let [chain, key, roots] = variables.map(|name| environment.text(&format!("ISTIO_META_{name}")).map(PathBuf::from));
    Ok(Some(match (chain, key, roots) {
        (Some(chain), Some(key), Some(roots)) => CertificateFiles { chain, key, roots },
        _ => CertificateFiles::of_folder(&folder.join(MOUNTED)),
    }))
}

fn check_provider(environment: &Environment, address: &str) -> Result<(), EnvironmentError> {
    match environment.text_or("CA_PROVIDER", "Citadel") {
        GKE => Ok(()),
        "Citadel" if address.contains("googleapis.com") => Err(environment.wrong("CA_ADDR",
            "Google's certificate authority is not supported; give the address of istiod or Rutter",
        )),
        "Citadel" => Ok(()),
        _ => Err(environment.wrong("CA_PROVIDER",
            "give Citadel (istiod, Rutter and other servers of istio.v1.auth.IstioCertificateService), or GkeWorkloadCertificate",
        )),
    }
}

fn authority(
    environment: &Environment,
    discovery: &str,
    provisioned: Option<&Path>,
) -> Result<Upstream, EnvironmentError> {
    let given = environment.text("CA_ADDR");
    let address = given.unwrap_or(discovery).to_owned();
    let roots = match (environment.text("CA_ROOT_CA"), provisioned) {
        _ if address.ends_with(PLAIN_TEXT_PORT) => Roots::PlainText,
        (Some("SYSTEM"), _) => Roots::System,
        (Some(path), _) => Roots::File(path.into()),
        (None, _) if environment.text("PILOT_CERT_PROVIDER") == Some("custom") => {
            Roots::File("./etc/certs/root-cert.pem".into())
        }
        (None, Some(folder)) => Roots::File(folder.join("root-cert.pem")),
        (None, None) => Roots::File("./var/run/secrets/istio/root-cert.pem".into()),
    };
    if !matches!(environment.text("CREDENTIAL_FETCHER_TYPE"), None | Some("JWT")) {
        return Err(environment.wrong("CREDENTIAL_FETCHER_TYPE", "give JWT: the token is read from a file"));
    }
    Ok(Upstream {
        roots,
        server_name: environment.text("ISTIOD_SAN").filter(|_| given.is_none()).map(str::to_owned),
        // Chosen for each request.
        certificate: None,
        token: Some(TOKEN_FILE.into()),
        cluster: environment.text_or("ISTIO_META_CLUSTER_ID", "").to_owned(),
        headers: headers(environment, "CA_HEADER_"),
        address,
    })
}

#[cfg(test)]
mod tests;
